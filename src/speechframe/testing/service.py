"""Start, stop and control a service with planned faults. It is a child process with a real local port."""

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Never, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from speechframe.errors import ConnectionFailed, SettingsError
from speechframe.processes.child import Child, Running
from speechframe.settings import GLOBAL_REGION, Settings
from speechframe.settings.hidden import Hidden
from speechframe.spec.chosen import API_KEY_HEADER
from speechframe.testing.books import Books
from speechframe.testing.handler import BOOKS_PATH, CONTROL_PATH, make_identity
from speechframe.testing.knobs import DEFAULT_KEY, Knobs
from speechframe.testing.plan import Form, Latency

_REPLY_TIMEOUT_S = 60.0
"""Time limit in seconds for an answer of the child process about its counts or settings."""
_STATUS_OK = 200


class FaultyService(Running):
    """A canned, fast speech service with planned faults, which counts calls, answers and bills.

    The service answers ``POST /v1/speech/generate``, ``POST /v1/speech/stream``, ``POST /v1/text/translate``,
    the voice listing, the page of limits, and the audio URLs in its answers. A translation is the text with
    each word reversed, followed by the target language. The service runs on a loopback port in its own
    process, so it does not delay the Python code of the client. It is a context manager (``with`` or
    ``async with``). The fault of a call depends only on `seed`, the text, and the number of earlier calls
    with that text.

    The service writes each bill to disk before it sends the answer, so :meth:`kill` loses no bill.

    Parameters
    ----------
    seed
        Seed of faults and latencies (default 0).
    latency
        Seconds from request to answer: a number, or a :class:`Fixed` or :class:`Lognormal` distribution, from
        which the service draws a latency for each request (default 0).
    cap
        Largest number of calls in flight for each key and region. Further calls get 429. None for no limit.
    cap_plan
        Pairs ``(seconds, cap)``. The cap changes at these times after the first call.
    rate
        Calls per second for each key. Further calls get 429. None for no limit.
    burst
        Number of calls that may come at once within `rate` (default 1).
    quota
        Characters for each key. A call with more characters than are left gets 402. None for no limit.
    faults
        Share of attempts for each step. A step is a status such as ``"500"``, or a fault: ``reset_before`` or
        ``reset_after`` (a reset before or after billing), ``hang``, ``hang_billed``, ``truncated``,
        ``broken_json``, ``broken_base64``, ``no_audio``, ``expired_url``, ``slow_bytes``. All faults except
        ``reset_before`` and ``hang`` are billed. A stream contains no JSON and no URL, so ``broken_json``,
        ``broken_base64`` and ``expired_url`` become ``no_audio`` there. In translations, ``no_audio``,
        ``broken_base64`` and ``expired_url`` give an empty list of translations. A 429 is sent at once, all
        other answers after the latency.
    scripts
        Steps for a text, one for each attempt. After the last step, the text gets good answers. If the script
        ends with ``"..."``, all later attempts repeat the step before it. The text ``"*"`` stands for every
        text without a script. A step may be ``"ok"``, and a status may have its own Retry-After, as in
        ``"429:1.5"``. A text with a script gets no faults from `faults`. A translation call uses the script
        of its first text that has a script.
    odd
        Changes to the good answers of a text: JSON for a field (``{"wordDurations": "[]"}``), or a whole body
        for a Content-Type (``{"text/html": "<p>Hello"}``). In a translation, a field changes only in the
        entry of the text.
    retry_after
        Form of Retry-After in 429 and 503: whole ``"seconds"``, a decimal number (``"float"``), a ``"date"``,
        no header (None), or a mixture of these (``"mixed"``).
    retry_after_s
        Waiting time of Retry-After in seconds (default 1).
    audio_bytes
        Approximate size of each audio in bytes. With None (default), the length is 0.06 s for each character.
    regions
        Names of the regions (section 4.1 of the service document). Each region has its own port.
    down_regions
        Names of the regions that answer 503.
    publish_cap
        Whether the page of limits contains the cap (default False).
    limits_page
        Whether there is a page of limits (default True).
    idempotent
        Whether the service honours ``Idempotency-Key``, so a repeated call is not billed again (default
        True).
    billed_times
        Factor on the price of each call, in bills and answers (default 1).
    takes
        Whether the service honours the header ``X-Take`` (default True).
    hang_s
        Seconds until a hanging connection is closed (default 3600).
    slow_s
        Seconds that an answer with the fault ``slow_bytes`` takes (default 1).
    keys
        API keys that are accepted. Other keys get 403.
    data
        Folder of the journal (the file of bills). By default a temporary folder, which is removed at the end.

    Raises
    ------
    SettingsError
        If a parameter does not exist, or its value is not allowed.

    Examples
    --------
    >>> import asyncio
    >>> from speechframe.client import Client
    >>> from speechframe.testing import FaultyService, tag_in, tag_of
    >>> async def speak(service: FaultyService, text: str) -> bytes:
    ...     async with Client(service.settings) as client:
    ...         return (await client.generate(text, voice="nora", encode_as_base64=True)).audio
    >>> with FaultyService(scripts={"Hello": ["503", "ok"]}, retry_after_s=0) as service:
    ...     audio = asyncio.run(speak(service, "Hello"))
    ...     books = service.books()
    >>> tag_in(audio) == tag_of("Hello")
    True
    >>> books.requests, books.statuses, books.billed_characters
    (2, {503: 1, 200: 1}, 5)
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        latency: Latency | float = 0.0,
        cap: int | None = None,
        cap_plan: Iterable[tuple[float, int | None]] | None = None,
        rate: float | None = None,
        burst: int = 1,
        quota: int | None = None,
        faults: Mapping[str, float] | None = None,
        scripts: Mapping[str, Sequence[str]] | None = None,
        odd: Mapping[str, Mapping[str, str]] | None = None,
        retry_after: Form = "seconds",
        retry_after_s: float = 1.0,
        audio_bytes: int | None = None,
        regions: Sequence[str] = (GLOBAL_REGION,),
        down_regions: Iterable[str] = (),
        publish_cap: bool = False,
        limits_page: bool = True,
        idempotent: bool = True,
        billed_times: float = 1.0,
        takes: bool = True,
        hang_s: float = 3600.0,
        slow_s: float = 1.0,
        keys: Sequence[str | SecretStr] = (DEFAULT_KEY,),
        data: str | os.PathLike[str] | None = None,
        **unknown: Never,  # raise SettingsError instead of TypeError; type checkers still report the call
    ) -> None:
        knobs = {name: value for name, value in locals().items() if name in Knobs.model_fields}
        self._keys = _check_keys(knobs.pop("keys"))
        if data is not None and not isinstance(data, (str, os.PathLike)):
            raise SettingsError(f"data={data!r}; allowed: a folder")
        self._knobs = Knobs.from_values(knobs | unknown)
        self._given_data = data
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._child: Child | None = None
        self._urls: dict[str, str] = {}
        self.pid = 0

    def __repr__(self) -> str:
        return f"<FaultyService {' '.join(self._urls.values()) or 'not started'}>"

    # -- properties ----------------------------------------------------------------

    @property
    def url(self) -> str:
        """Address of the service, or of its first region."""
        if not self._urls:
            raise SettingsError("the faulty service has not been started. Use it as a context manager.")
        return next(iter(self._urls.values()))

    @property
    def region_urls(self) -> Mapping[str, str]:
        """Address of each region."""
        return dict(self._urls)

    @property
    def api_key(self) -> SecretStr:
        """The first of `keys`."""
        return self._keys[0]

    @property
    def settings(self) -> Settings:
        """Settings for a client: addresses, API key, profile. Services with equal seeds share a profile."""
        named = {name: url for name, url in self._urls.items() if name != GLOBAL_REGION}
        return Settings(
            base_url=self._urls.get(GLOBAL_REGION) if named else self.url,
            region_urls=named,
            regions=tuple(named),
            api_key=self.api_key,
            profile=make_identity(self._knobs.seed),
        )

    @property
    def is_running(self) -> bool:
        """Whether the child process runs."""
        return self._child is not None and self._child.is_alive

    # -- start and stop -------------------------------------------------------------

    def start(self) -> Self:
        """Start the child process. Return when the service is ready.

        Raises
        ------
        SettingsError
            If the service runs already, or cannot start.
        """
        if self.is_running:
            raise SettingsError("this faulty service is running already")
        if self._given_data is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="speechframe-", ignore_cleanup_errors=True)
        command = [sys.executable, "-P", "-m", "speechframe.testing.faulty"]
        try:
            self._child = Child(command, [Hidden(self._make_start_message())], "the faulty service")
            message = self._child.read_announcement()
        except BaseException:
            self.stop()
            raise
        self._urls, self.pid = message["urls"], message["pid"]
        return self

    def stop(self) -> None:
        """End the child process and remove the temporary folder, if any. A second call does nothing."""
        child, self._child = self._child, None
        if child is not None:
            child.let_go()
            child.wait()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def kill(self) -> None:
        """Kill the child process with SIGKILL. If no child process runs, do nothing."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def restart(self) -> None:
        """Start the service again on the same ports, with the same keys, settings and bills.

        A running child process is killed first. Scripts, and all counts except bills, begin again.
        """
        self.kill()
        self.start()

    # -- counts and changes of a running service --------------------------------------

    def books(self) -> Books:
        """Return the counts so far.

        Raises
        ------
        ConnectionFailed
            If the service does not run.
        """
        return Books.from_json(self._request_json("GET", BOOKS_PATH))

    def set(self, **knobs: Any) -> None:
        """Change parameters while the service runs. Calls in flight do not change.

        Parameters
        ----------
        **knobs
            Any parameters except `seed`, `regions`, `keys` and `data`. A new `cap_plan` still counts from the
            first call. After new `scripts`, every text begins its script again.

        Raises
        ------
        SettingsError
            If a parameter is unknown or cannot change, or if its value is not allowed.
        ConnectionFailed
            If the service does not run.
        """
        changed = self._knobs.with_changes(knobs)
        self._request_json("POST", CONTROL_PATH, changed.model_dump_json(include=set(knobs)))
        self._knobs = changed

    def _request_json(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=_REPLY_TIMEOUT_S)
        try:
            connection.request(method, path, body, {API_KEY_HEADER: self.api_key.get_secret_value()})
            reply = connection.getresponse()
            answer: dict[str, Any] = json.load(reply)
        except (OSError, HTTPException) as error:
            raise ConnectionFailed(f"the faulty service does not answer: {error}", sent=True) from None
        finally:
            connection.close()
        if reply.status != _STATUS_OK:
            raise SettingsError(answer["error_message"])
        return answer

    def _make_start_message(self) -> str:
        folder = self._given_data if self._given_data is not None else self._temporary
        data = folder.name if isinstance(folder, tempfile.TemporaryDirectory) else os.fspath(folder or "")
        # Send the API keys through the pipe, because every user of the machine can read command lines.
        keys = [key.get_secret_value() for key in self._keys]
        knobs = self._knobs.model_dump(mode="json") | {"keys": keys}
        ports = {region: urlsplit(url).port for region, url in self._urls.items()}
        return json.dumps({"knobs": knobs, "data": str(Path(data).absolute()), "ports": ports})


def _check_keys(keys: Any) -> tuple[SecretStr, ...]:
    # Refuse a single string, because each of its letters would become a key.
    given = tuple(keys) if isinstance(keys, Iterable) and not isinstance(keys, (str, bytes)) else None
    if given is None or not all(isinstance(key, (str, SecretStr)) for key in given):
        raise SettingsError(
            "keys is not a list of keys as text; allowed: a list of keys, such as ['one', 'two']"
        )
    if not given:
        raise SettingsError("a FaultyService needs at least one key. Give keys=['one'], or leave keys out.")
    return tuple(key for one in given if (key := Settings(api_key=one).api_key) is not None)
