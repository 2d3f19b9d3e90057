"""Run the embedded service as a child process that never outlives its parent.

The child runs the same service as ``speechframe serve``, on a free port of this
machine. Each region (a named address of the service) has a child of its own.
All children share one data folder. The parent holds the write end of the
child's standard input. This pipe closes when the ``with`` block ends or the
parent is killed. The child and its worker processes then end.
"""

import atexit
import logging
import os
import secrets
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from speechframe.errors import SettingsError
from speechframe.processes.child import Child, Running
from speechframe.settings import GLOBAL_REGION, Settings, find_default_service_folder
from speechframe.settings.hidden import Hidden
from speechframe.spec.limits import REGIONS

log = logging.getLogger("speechframe.local")

_MAX_WORKERS = 4
"""Largest number of speech processes that regions divide among them if `workers` is not given."""


class LocalService(Running):
    """A running embedded service, created by :func:`local_service`.

    Attributes
    ----------
    url
        Address of the first region.
    api_key
        First key. Its text form is masked.
    keys
        All keys.
    regions
        Names of the requested regions. Empty if none were requested.
    region_urls, pids
        Address and process id by region. If no regions were requested, the only region is ``global``.
    pid
        Process id of the first region's service.
    data
        Folder of keys, balances and audio. None before the start if the folder is temporary.
    """

    def __init__(
        self,
        *,
        keys: Sequence[Hidden],
        data: Path | None,
        workers: int | None,
        options: Sequence[str],
        regions: Sequence[str] = (),
    ) -> None:
        self._key_lines = list(keys)
        self._given_data = data
        self._options = list(options)
        self._workers = _divide_workers(workers, max(1, len(regions)))
        self._children: dict[str, Child] = {}
        self._owner_pid = 0
        self._is_given_up = False
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.regions = tuple(regions)
        self.keys: tuple[SecretStr, ...] = ()
        self.data = data
        self.region_urls: dict[str, str] = {}
        self.pids: dict[str, int] = {}

    @property
    def url(self) -> str:
        """Address of the first region. Empty before the start."""
        return next(iter(self.region_urls.values()), "")

    @property
    def pid(self) -> int:
        """Process id of the first region's service. 0 before the start."""
        return next(iter(self.pids.values()), 0)

    @property
    def api_key(self) -> SecretStr:
        """First key of the service. Raises SettingsError before the start."""
        if not self.keys:
            raise SettingsError("the local service has not been started: use it as a context manager")
        return self.keys[0]

    @property
    def settings(self) -> Settings:
        """Settings with the addresses and the key, for a client."""
        if not self.regions:
            return Settings(base_url=self.url, api_key=self.api_key)
        return Settings(api_key=self.api_key, regions=self.regions, region_urls=self.region_urls)

    @property
    def is_running(self) -> bool:
        """True if this process started the service and the service of at least one region still runs."""
        return self._owner_pid == os.getpid() and any(child.is_alive for child in self._children.values())

    def __repr__(self) -> str:
        if self.regions and self.region_urls:
            return f"<LocalService {', '.join(f'{name} {url}' for name, url in self.region_urls.items())}>"
        return f"<LocalService {self.url or 'not started'}>"

    def start(self) -> Self:
        """Start one child for each region, and return when all of them accept requests.

        Raises
        ------
        SettingsError
            The service was started before, or cannot start, for example because an extra is missing or a
            folder is unusable. In the second case the message comes from the child process.
        """
        if self._children:
            raise SettingsError("this local service was started before; make a new one")
        if self._given_data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="speechframe-", ignore_cleanup_errors=True)
            self.data = Path(self._temporary.name)
        self._owner_pid = os.getpid()
        _started.add(self)
        try:
            # Start all children before the first wait, because loading the engines takes most of the time.
            for region, workers in zip(self.regions or (GLOBAL_REGION,), self._workers, strict=True):
                self._children[region] = Child(self._build_command(region, workers), self._key_lines)
            if self._is_given_up:
                self.give_up()
            for region, child in self._children.items():
                announcement = child.read_announcement()
                self.region_urls[region] = announcement["url"]
                self.pids[region] = announcement["pid"]
                self.keys = announcement["keys"]
            if left_out := announcement["left_out"]:
                log.warning(
                    "the local service left out what cannot be used (%d); `speechframe doctor` names it",
                    left_out,
                )
        except BaseException:
            self.stop()
            raise
        return self

    def _build_command(self, region: str, workers: int | None) -> list[str]:
        return [
            sys.executable, "-P", "-m", "speechframe.local.service",
            "--port", "0", "--data", str(self.data), "--json", "--die-with-parent", "--keys-file", "-",
            *(() if workers is None else ("--workers", str(workers))),
            *self._options,
            *(("--region", region) if self.regions else ()),
        ]  # fmt: skip

    def give_up(self) -> None:
        """Make a `start` that is running in another thread fail soon, by ending the child processes."""
        self._is_given_up = True
        for child in list(self._children.values()):
            child.terminate()

    def stop(self) -> None:
        """End all child processes and remove the temporary folder, if there is one.

        A second call, or a call in a forked process, ends nothing.
        """
        children, self._children = self._children, {}
        # A forked process has a copy of this object, but is not the parent of the child processes.
        if os.getpid() != self._owner_pid:
            return
        for child in children.values():
            child.terminate()
        for child in children.values():
            child.wait()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def let_go(self) -> None:
        """Close this process's copies of the children's standard inputs after a fork."""
        for child in self._children.values():
            child.let_go()


def local_service(
    *,
    quota: int | None = None,
    concurrency: int | None = None,
    keys: Iterable[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    regions: Iterable[str] | None = None,
    voices: Iterable[str | os.PathLike[str]] = (),
    translation_models: Iterable[str | os.PathLike[str]] = (),
    allow_private_urls: bool = False,
    options: Sequence[str] = (),
) -> LocalService:
    """Return the embedded service, not started yet, as a context manager for ``with`` or ``async with``.

    Parameters
    ----------
    quota
        Characters that the generated key may use in a billing cycle. Default: the default of the service.
    concurrency
        Largest number of requests that the generated key may have in flight, in each region and worker pool.
        Default: the default of the service.
    keys
        Your own keys as ``KEY[:QUOTA[:CONCURRENCY]]``, instead of a generated key. `quota` and
        `concurrency` then apply to keys that lack these numbers.
    data
        Folder of keys, balances and audio. Default: a temporary folder, which is removed when the block ends.
    workers
        Number of speech processes, divided among the regions. Each region has at least one. Default: one per
        core, at most 4.
    regions
        Names of the regions to serve (section 4.1), in order of preference. Each region has its own address
        and concurrency limits (section 8). Regions share keys, balances, idempotency and audio. Default: one
        address without a region.
    voices
        Folders of Piper voices for the gen2 catalogue. Default: the folders in ``SPEECHFRAME_VOICES``. The
        voices need the extra ``speechframe[neural]``.
    translation_models
        Folders of Firefox-Translations models, in addition to the installed models. Default: the folders in
        ``SPEECHFRAME_TRANSLATION_MODELS``. The models need the extra ``speechframe[translate]``.
    allow_private_urls
        True if a ``file_url`` or ``webhook_url`` may point to this machine or its network, for example to
        your own server.
    options
        Further command-line options of ``speechframe serve``.

    Raises
    ------
    SettingsError
        A region is not in the document, or a value has the wrong type. Also raised on entering the block, if
        the extra ``speechframe[local]`` is missing or a folder is unusable.

    Examples
    --------
    >>> with local_service(quota=1000) as service:  # doctest: +SKIP
    ...     print(service.url)
    http://127.0.0.1:40123
    >>> with local_service(regions=["us-east", "eu-central"]) as service:  # doctest: +SKIP
    ...     print(service.settings.addresses())
    {'us-east': 'http://127.0.0.1:40125', 'eu-central': 'http://127.0.0.1:40127'}
    """
    keys = _hide_keys(keys)
    for name, number in (("quota", quota), ("concurrency", concurrency), ("workers", workers)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, Integral)):
            raise SettingsError(f"{name}={number!r}; allowed: a whole number")
    if data is not None and not isinstance(data, (str, os.PathLike)):
        raise SettingsError(f"data={data!r}; allowed: a folder")
    given = _check_list("keys", keys, "keys", str) if keys is not None else []
    if not given and (quota is not None or concurrency is not None):
        given = [Hidden(f"local-{secrets.token_urlsafe(24)}")]
    lines = [_complete_key(key, quota, concurrency) for key in given]
    return LocalService(
        keys=lines,
        data=Path(data) if data is not None else None,
        workers=workers,
        options=[
            *_repeat_option("--voices", voices),
            *_repeat_option("--translation-models", translation_models),
            *(("--allow-private-urls",) if allow_private_urls else ()),
            *_check_list("options", options, "options", str),
        ],
        regions=() if regions is None else _check_regions(regions),
    )


def _repeat_option(option: str, folders: Iterable[str | os.PathLike[str]]) -> list[str]:
    name = option[2:].replace("-", "_")
    given = (
        [folders]
        if isinstance(folders, str | os.PathLike)
        else _check_list(name, folders, "folders", str, os.PathLike)
    )
    return [f"{option}={os.fspath(folder)}" for folder in given]


def _check_list(name: str, values: Any, what: str, *kinds: type) -> list[Any]:
    """Return `values` as a list, or raise SettingsError if a type is wrong.

    The error contains only the types, because the values may be keys.
    """
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        kind = "str" if isinstance(values, str) else type(values).__name__
        raise SettingsError(f"{name} is of type {kind}; allowed: a list of {what}")
    found = list(values)
    for one in found:
        if not isinstance(one, kinds):
            wrong = type(one).__name__
            raise SettingsError(f"{name} contains something of type {wrong}; allowed: a list of {what}")
    return found


def _check_regions(regions: Iterable[str]) -> tuple[str, ...]:
    # Settings accepts a string, too, and splits it at its commas, as in SPEECHFRAME_REGIONS.
    names = Settings(regions=regions).regions  # type: ignore[arg-type]
    unknown = [name for name in names if name not in REGIONS]
    if unknown or not names:
        wrong = ", ".join(unknown) or "none at all"
        raise SettingsError(f"regions cannot be {wrong}; allowed, each once: {', '.join(REGIONS)}")
    return names


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _divide_workers(workers: int | None, parts: int) -> list[int | None]:
    if workers is None and parts > 1:
        workers = min(_MAX_WORKERS, _count_cores())
    if workers is None or workers < 1:
        # Pass these values on: the service replaces None by its default, and refuses numbers below 1.
        return [workers] * parts
    return [max(1, workers // parts + (part < workers % parts)) for part in range(parts)]


def _hide_keys(keys: Any) -> Any:
    if isinstance(keys, Iterable) and not isinstance(keys, (str, bytes)):
        return [Hidden(key) if isinstance(key, str) else key for key in keys]
    return Hidden(keys) if isinstance(keys, str) else keys


def _complete_key(key: Hidden, quota: int | None, concurrency: int | None) -> Hidden:
    if "\n" in key or "\r" in key:
        raise SettingsError("a key contains a line break")
    name, own_quota, own_concurrency, *_ = map(Hidden, (*key.split(":", 2), "", ""))
    quota_text = own_quota or ("" if quota is None else str(quota))
    concurrency_text = own_concurrency or ("" if concurrency is None else str(concurrency))
    return Hidden(f"{name}:{quota_text}:{concurrency_text}".rstrip(":"))


_started: "weakref.WeakSet[LocalService]" = weakref.WeakSet()
_shared: dict[Path, LocalService] = {}
_shared_lock = threading.Lock()
_inherited: list[LocalService] = []


def get_shared_service(data: str | os.PathLike[str] | None = None) -> LocalService:
    """Return this process's embedded service over a shared data folder, started on first use.

    The service ends with this process. Later calls, also from other threads,
    return the same service. After a fork or a crash of the service, a call
    starts a new service.

    Parameters
    ----------
    data
        Data folder. Several processes may share it, each with a service of its own and the same keys and
        balances. Default: ``SPEECHFRAME_SERVICE``, or else ``speechframe/service`` in the user's cache
        folder.

    Raises
    ------
    SettingsError
        The service cannot start.
    """
    folder = Path(find_default_service_folder() if data is None else data).expanduser().absolute()
    with _shared_lock:
        service = _shared.get(folder)
        if service is None or not service.is_running:
            if service is not None:
                service.stop()
            service = local_service(data=folder).start()
            _shared[folder] = service
            log.info(
                "no key is set: using the embedded local service at %s (data in %s)", service.url, folder
            )
        return service


def is_shared_service(settings: Settings) -> bool:
    """Return whether these are the settings of a service of :func:`get_shared_service`."""
    return any(service.settings == settings for service in _shared.values())


def _stop_shared() -> None:
    for service in _shared.values():
        service.stop()
    _shared.clear()


def _reset_after_fork() -> None:
    global _shared_lock  # noqa: PLW0603 - it may have been held by a thread that no longer exists
    _shared_lock = threading.Lock()
    _shared.clear()
    # The service processes belong to the parent. Only close the inherited pipes that keep them alive.
    _inherited.extend(_started)
    for service in _inherited:
        service.let_go()


atexit.register(_stop_shared)
os.register_at_fork(after_in_child=_reset_after_fork)
