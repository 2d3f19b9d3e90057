"""The embedded service as a child process: started in a line, gone when the block ends or this process dies.

The child runs what ``speechframe serve`` runs, on a free port of this machine;
a region is a child of its own, over the same data folder.
This process holds the other end of its standard input: when that closes, by
the end of the block or by this process being killed, the child ends, and its
worker processes with it.
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

from speechframe._child import Child, Running
from speechframe.errors import SettingsError
from speechframe.settings import GLOBAL_REGION, Settings, default_service_folder
from speechframe.settings.hidden import Hidden
from speechframe.spec.limits import REGIONS

__all__ = ["LocalService", "default_data_dir", "local_service", "shared_service"]

log = logging.getLogger("speechframe.local")

_MOST_WORKERS = 4


def default_data_dir() -> Path:
    """Return the data folder that is used when no key and no address are set.

    ``SPEECHFRAME_SERVICE``, else ``speechframe/service`` in the user's cache
    folder. Processes may share it: each has a service of its own, over the
    same keys and balances.
    """
    return default_service_folder()


class LocalService(Running):
    """A running embedded service; made by :func:`local_service`.

    Attributes
    ----------
    url
        Its address; with several regions that of the first.
    api_key
        Its first key; shown as stars.
    keys
        All of its keys.
    regions
        Names of the regions it was asked to play; none when it was not asked.
    region_urls, pids
        Address and process id of each region; it is ``global`` when none was asked for.
    pid
        Its process id; with several regions that of the first.
    data
        Its data folder.
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
        self._workers = _divided(workers, max(1, len(regions)))
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
        """The address, of the first region; empty until it is started."""
        return next(iter(self.region_urls.values()), "")

    @property
    def pid(self) -> int:
        """The process id, of the first region; 0 until it is started."""
        return next(iter(self.pids.values()), 0)

    @property
    def api_key(self) -> SecretStr:
        """The first key."""
        if not self.keys:
            raise SettingsError("the local service has not been started: use it as a context manager")
        return self.keys[0]

    @property
    def settings(self) -> Settings:
        """Addresses and key, as a client takes them."""
        if not self.regions:
            return Settings(base_url=self.url, api_key=self.api_key)
        return Settings(api_key=self.api_key, regions=self.regions, region_urls=self.region_urls)

    @property
    def is_running(self) -> bool:
        """Whether it serves and belongs to this process; with several regions, whether one of them serves."""
        return self._owner_pid == os.getpid() and any(child.lives for child in self._children.values())

    def __repr__(self) -> str:
        if self.regions and self.region_urls:
            return f"<LocalService {', '.join(f'{name} {url}' for name, url in self.region_urls.items())}>"
        return f"<LocalService {self.url or 'not started'}>"

    def start(self) -> Self:
        """Start a child, or one a region, and return when all of them answer.

        Raises
        ------
        SettingsError
            When it cannot start, with its own words: a missing extra, a folder that cannot be used.
        """
        if self._children:
            raise SettingsError("this local service was started before; make a new one")
        if self._given_data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="speechframe-", ignore_cleanup_errors=True)
            self.data = Path(self._temporary.name)
        self._owner_pid = os.getpid()
        _started.add(self)
        try:
            # All at once: what each of them waits for is its own engines.
            for region, workers in zip(self.regions or (GLOBAL_REGION,), self._workers, strict=True):
                self._children[region] = Child(self._command(region, workers), self._key_lines)
            if self._is_given_up:
                self.give_up()
            for region, child in self._children.items():
                said = child.announcement()
                self.region_urls[region] = said["url"]
                self.pids[region] = said["pid"]
                self.keys = said["keys"]
            if left_out := said["left_out"]:
                log.warning(
                    "the local service left out what cannot be used (%d); `speechframe doctor` names it",
                    left_out,
                )
        except BaseException:
            self.stop()
            raise
        return self

    def _command(self, region: str, workers: int | None) -> list[str]:
        return [
            sys.executable, "-P", "-m", "speechframe.service",
            "--port", "0", "--data", str(self.data), "--json", "--die-with-parent", "--keys-file", "-",
            *(() if workers is None else ("--workers", str(workers))),
            *self._options,
            *(("--region", region) if self.regions else ()),
        ]  # fmt: skip

    def give_up(self) -> None:
        """Let a start that goes on in another thread come to its end soon."""
        self._is_given_up = True
        for child in list(self._children.values()):
            child.terminate()

    def stop(self) -> None:
        """End its processes, their workers and its temporary folder; calling it again does nothing."""
        children, self._children = self._children, {}
        # A fork of this process holds a copy of this object, but the children are not its children.
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
        """Close this process's copies of the children's standard inputs, after a fork."""
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
    """Return the embedded service, to be used as a context manager (``with`` or ``async with``).

    Parameters
    ----------
    quota
        Characters in a billing cycle of the key that is made; the service's default when not given.
    concurrency
        Requests in flight of the key that is made, in each region and pool; the service's default when
        not given.
    keys
        Keys of your own as ``KEY[:QUOTA[:CONCURRENCY]]``, instead of one that is made. `quota` and
        `concurrency` then count for keys that do not say their own.
    data
        Folder of keys, balances and audio; a temporary one, removed at the end, when not given.
    workers
        Speech processes; one a core, at most 4, when not given. Regions divide them, one each at least.
    regions
        Names of the regions to play (section 4.1), in order of preference: each has an address and caps of
        its own (section 8); keys, balances, idempotency and audio are shared. One address when not given.
    voices
        Folders of Piper voices for the gen2 catalogue; those of ``SPEECHFRAME_VOICES`` when not given. The
        voices need the extra ``speechframe[neural]``.
    translation_models
        Folders of Firefox-Translations models, beside the pairs that are installed; those of
        ``SPEECHFRAME_TRANSLATION_MODELS`` when not given. They need the extra ``speechframe[translate]``.
    allow_private_urls
        Whether a ``file_url`` or ``webhook_url`` may lead to this machine and its network, for example to a
        server of your own.
    options
        Further options of ``speechframe serve``.

    Raises
    ------
    SettingsError
        For a region the document does not know, or a value of another type. On entering the block: the
        extra ``speechframe[local]`` is missing, or a folder cannot be used.

    Examples
    --------
    >>> with local_service(quota=1000) as service:  # doctest: +SKIP
    ...     print(service.url)
    http://127.0.0.1:40123
    >>> with local_service(regions=["us-east", "eu-central"]) as service:  # doctest: +SKIP
    ...     print(service.settings.addresses())
    {'us-east': 'http://127.0.0.1:40125', 'eu-central': 'http://127.0.0.1:40127'}
    """
    keys = _hidden(keys)
    for name, number in (("quota", quota), ("concurrency", concurrency), ("workers", workers)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, Integral)):
            raise SettingsError(f"{name}={number!r}; allowed: a whole number")
    if data is not None and not isinstance(data, (str, os.PathLike)):
        raise SettingsError(f"data={data!r}; allowed: a folder")
    given = _listed("keys", keys, "keys", str) if keys is not None else []
    if not given and (quota is not None or concurrency is not None):
        given = [Hidden(f"local-{secrets.token_urlsafe(24)}")]
    lines = [_with_figures(key, quota, concurrency) for key in given]
    return LocalService(
        keys=lines,
        data=Path(data) if data is not None else None,
        workers=workers,
        options=[
            *_repeated("--voices", voices),
            *_repeated("--translation-models", translation_models),
            *(("--allow-private-urls",) if allow_private_urls else ()),
            *_listed("options", options, "options", str),
        ],
        regions=() if regions is None else _checked_regions(regions),
    )


def _repeated(option: str, folders: Iterable[str | os.PathLike[str]]) -> list[str]:
    name = option[2:].replace("-", "_")
    given = (
        [folders]
        if isinstance(folders, str | os.PathLike)
        else _listed(name, folders, "folders", str, os.PathLike)
    )
    return [f"{option}={os.fspath(folder)}" for folder in given]


def _listed(name: str, values: Any, what: str, *kinds: type) -> list[Any]:
    """Return values of some kinds as a list; a text is none. They may be keys: their type alone is told."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        kind = "str" if isinstance(values, str) else type(values).__name__
        raise SettingsError(f"{name} is of type {kind}; allowed: a list of {what}")
    found = list(values)
    for one in found:
        if not isinstance(one, kinds):
            wrong = type(one).__name__
            raise SettingsError(f"{name} holds something of type {wrong}; allowed: a list of {what}")
    return found


def _checked_regions(regions: Iterable[str]) -> tuple[str, ...]:
    # A string with commas is read as SPEECHFRAME_REGIONS is.
    names = Settings(regions=regions).regions  # type: ignore[arg-type]
    unknown = [name for name in names if name not in REGIONS]
    if unknown or not names:
        wrong = ", ".join(unknown) or "none at all"
        raise SettingsError(f"regions cannot be {wrong}; allowed, each once: {', '.join(REGIONS)}")
    return names


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _divided(workers: int | None, parts: int) -> list[int | None]:
    if workers is None and parts > 1:
        workers = min(_MOST_WORKERS, _cores())
    if workers is None or workers < 1:
        # What is no number of processes is the service's to take or to refuse.
        return [workers] * parts
    return [max(1, workers // parts + (part < workers % parts)) for part in range(parts)]


def _hidden(keys: Any) -> Any:
    if isinstance(keys, Iterable) and not isinstance(keys, (str, bytes)):
        return [Hidden(key) if isinstance(key, str) else key for key in keys]
    return Hidden(keys) if isinstance(keys, str) else keys


def _with_figures(key: Hidden, quota: int | None, concurrency: int | None) -> Hidden:
    if "\n" in key or "\r" in key:
        raise SettingsError("a key holds a line break")
    name, own_quota, own_concurrency, *_ = map(Hidden, (*key.split(":", 2), "", ""))
    first = own_quota or ("" if quota is None else str(quota))
    second = own_concurrency or ("" if concurrency is None else str(concurrency))
    return Hidden(f"{name}:{first}:{second}".rstrip(":"))


_started: "weakref.WeakSet[LocalService]" = weakref.WeakSet()
_shared: dict[Path, LocalService] = {}
_shared_lock = threading.Lock()
_inherited: list[LocalService] = []


def shared_service(data: str | os.PathLike[str] | None = None) -> LocalService:
    """Return this process's embedded service over a shared data folder, started on first use.

    It ends with this process. Called again, or from another thread, it
    returns the same one; after a fork, or when it died, a new one.

    Parameters
    ----------
    data
        The data folder, :func:`default_data_dir` when not given.

    Raises
    ------
    SettingsError
        When it cannot start.
    """
    folder = Path(data).expanduser().absolute() if data is not None else default_data_dir().absolute()
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


def _stop_shared() -> None:
    for service in _shared.values():
        service.stop()
    _shared.clear()


def _after_fork() -> None:
    global _shared_lock  # noqa: PLW0603 - it may have been held by a thread that no longer exists
    _shared_lock = threading.Lock()
    _shared.clear()
    # Not this process's children: it lets go of their sign of life, and of nothing else.
    _inherited.extend(_started)
    for service in _inherited:
        service.let_go()


atexit.register(_stop_shared)
os.register_at_fork(after_in_child=_after_fork)
