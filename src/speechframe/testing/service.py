"""A service that fails as it is told, for tests: a child process on a real port of this machine."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Never, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from speechframe.errors import ConnectionFailed, SettingsError
from speechframe.processes.child import Running, line_within
from speechframe.settings import GLOBAL_REGION, Settings
from speechframe.spec.chosen import API_KEY_HEADER
from speechframe.testing.books import Books
from speechframe.testing.desk import BOOKS_PATH, CONTROL_PATH, identity_of
from speechframe.testing.knobs import DEFAULT_KEY, Knobs
from speechframe.testing.plan import Form, Latency

__all__ = ["FaultyService"]

_START_S = 60.0
_STOP_S = 5.0
_ASK_S = 60.0
_OK = 200


class FaultyService(Running):
    """A canned, fast speech service that fails as it is told and keeps books of everything it saw.

    It answers ``POST /v1/speech/generate``, ``POST /v1/speech/stream`` and
    ``POST /v1/text/translate`` (words turned round, and the target behind
    them), the voice listing, the page of limits and the audio URLs it gives
    out; on a loopback port, in a process of its own, so that its time is not
    the client's. A context manager
    (``with`` or ``async with``). Whatever it does is decided by `seed`, the
    text and how often that text came before, never by chance.

    What it bills is on disk before it is answered: :meth:`kill` loses nothing
    of it.

    Parameters
    ----------
    seed
        Decides faults and latencies.
    latency
        Seconds from request to answer: a number, :class:`Fixed` or
        :class:`Lognormal`, drawn anew for each request; 0 by default.
    cap
        Calls in flight per key and region; one more is answered 429. None: any number.
    cap_plan
        ``(seconds, cap)`` pairs: from so many seconds after the first call on, the cap is another.
    rate, burst
        Calls per second and key above which it answers 429, and how many may come at once.
    quota
        Characters per key; a call that does not fit into what is left is answered 402.
    faults
        Step to the share of attempts that get it. A step is a status such as ``"500"``, or one of
        ``reset_before``, ``reset_after`` (the connection is reset before or after billing), ``hang``,
        ``hang_billed``, ``truncated``, ``broken_json``, ``broken_base64``, ``no_audio``, ``expired_url``,
        ``slow_bytes`` (all of these are billed; of a stream, which has neither JSON nor URL, those about them
        are ``no_audio``; those about audio leave a translation without texts). A 429 is answered at once,
        anything else after the latency.
    scripts
        Text to its steps, one an attempt, then good answers; ``"..."`` at the end stays at the last step.
        The text ``"*"`` stands for every text without a script. A step may be ``"ok"``, and a status may
        bring its own Retry-After, as in ``"429:1.5"``. A text with a script has no other faults. A call for
        translations plays the script of the first of its texts that has one.
    odd
        Text to what is odd about its answers, which are billed: a field to its JSON (``{"wordDurations":
        "[]"}``), or a Content-Type to a whole body (``{"text/html": "<p>Hello"}``). Of a translation
        it is the text's entry that is odd.
    retry_after
        How 429 and 503 say when to come again: whole ``"seconds"``, a decimal number (``"float"``), a
        ``"date"``, not at all (None), or each by turns (``"mixed"``).
    retry_after_s
        The seconds they say.
    audio_bytes
        About the size of each audio; None makes it as long as its text takes, 0.06 s a character.
    regions
        Regions (section 4.1), each on a port of its own.
    down_regions
        Those that answer 503.
    publish_cap
        Whether the page of limits tells the cap.
    limits_page
        Whether there is a page of limits at all.
    idempotent
        Whether ``Idempotency-Key`` is honoured.
    billed_times
        How many times its price each call is billed, and said to be.
    takes
        Whether ``X-Take`` is honoured.
    hang_s
        When a connection that hangs is closed at last, in seconds.
    slow_s
        How long ``slow_bytes`` takes, in seconds.
    keys
        Keys that are let in; any other gets 403.
    data
        Folder of the journal; a temporary one, removed at the end, when not given.

    Raises
    ------
    SettingsError
        For a knob that does not exist or a value it cannot have.

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
        **unknown: Never,  # for an error of ours; type checkers still refuse it
    ) -> None:
        self._keys = _checked_keys(keys)
        if data is not None and not isinstance(data, (str, os.PathLike)):
            raise SettingsError(f"data={data!r}; allowed: a folder")
        self._knobs = Knobs.of({
            "seed": seed, "latency": latency, "cap": cap, "cap_plan": cap_plan, "rate": rate,
            "burst": burst, "quota": quota, "faults": faults, "scripts": scripts,
            "retry_after": retry_after, "retry_after_s": retry_after_s, "audio_bytes": audio_bytes,
            "regions": regions, "down_regions": down_regions, "publish_cap": publish_cap,
            "limits_page": limits_page, "idempotent": idempotent, "billed_times": billed_times,
            "takes": takes, "hang_s": hang_s, "slow_s": slow_s, **unknown,
        })  # fmt: skip
        self._given_data = data
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._urls: dict[str, str] = {}
        self.pid = 0

    def __repr__(self) -> str:
        return f"<FaultyService {' '.join(self._urls.values()) or 'not started'}>"

    # -- what it is ----------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address, of the first region if there are several."""
        if not self._urls:
            raise SettingsError("the faulty service has not been started: use it as a context manager")
        return next(iter(self._urls.values()))

    @property
    def region_urls(self) -> Mapping[str, str]:
        """Region to its address."""
        return dict(self._urls)

    @property
    def api_key(self) -> SecretStr:
        """The first key."""
        return self._keys[0]

    @property
    def settings(self) -> Settings:
        """Address and key, as a client takes them; the profile is the same for equal seeds."""
        named = {name: url for name, url in self._urls.items() if name != GLOBAL_REGION}
        return Settings(
            base_url=self._urls.get(GLOBAL_REGION) if named else self.url,
            region_urls=named,
            regions=tuple(named),
            api_key=self.api_key,
            profile=identity_of(self._knobs.seed),
        )

    @property
    def is_running(self) -> bool:
        """Whether the child process lives."""
        return self._process is not None and self._process.poll() is None

    # -- its life ------------------------------------------------------------------

    def start(self) -> Self:
        """Start the child and return when it answers.

        Raises
        ------
        SettingsError
            When it runs already or cannot start, with its own words.
        """
        if self.is_running:
            raise SettingsError("this faulty service is running already")
        if self._given_data is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="speechframe-", ignore_cleanup_errors=True)
        try:
            self._spawn()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the child and remove its temporary folder; calling it again does nothing."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def kill(self) -> None:
        """End the child by SIGKILL, in the middle of whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            _end(process)

    def restart(self) -> None:
        """Start again on the same ports, with the same keys and knobs, knowing what was billed.

        A child that still runs is killed before. Attempts of texts, scripts and all books but the bills
        begin anew.
        """
        self.kill()
        self.start()

    # -- while it runs -------------------------------------------------------------

    def books(self) -> Books:
        """Return what it saw so far.

        Raises
        ------
        ConnectionFailed
            When it does not run.
        """
        return Books.of_json(self._ask("GET", BOOKS_PATH))

    def set(self, **knobs: Any) -> None:
        """Turn knobs while it runs; what is on its way is not changed.

        Parameters
        ----------
        **knobs
            Any of the parameters but `seed`, `regions`, `keys` and `data`. A new `cap_plan` counts from the
            first call as before; with new `scripts` every text begins its script anew.

        Raises
        ------
        SettingsError
            For an unknown knob, one that is fixed at the start, or a value it cannot have.
        ConnectionFailed
            When it does not run.
        """
        changed = self._knobs.changed(knobs)
        self._ask("POST", CONTROL_PATH, changed.model_dump_json(include=set(knobs)))
        self._knobs = changed

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=_ASK_S)
        try:
            connection.request(method, path, body, {API_KEY_HEADER: self.api_key.get_secret_value()})
            reply = connection.getresponse()
            answer: dict[str, Any] = json.load(reply)
        except (OSError, HTTPException) as error:
            raise ConnectionFailed(f"the faulty service does not answer: {error}", sent=True) from None
        finally:
            connection.close()
        if reply.status != _OK:
            raise SettingsError(answer["error_message"])
        return answer

    def _spawn(self) -> None:
        command = [sys.executable, "-P", "-m", "speechframe.testing.faulty"]
        self._process = process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a notebook or terminal is for this process; the child ends with the block.
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - asked for as a pipe
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(self._told().encode() + b"\n")
            process.stdin.flush()
        assert process.stdout is not None  # noqa: S101 - same
        line = line_within(process.stdout, _START_S)
        try:
            said = json.loads(line)
        except ValueError:
            said = {"error": f"it ended or said nothing within {_START_S:g} s; see its standard error"}
        if "error" in said:
            raise SettingsError(f"the faulty service cannot start: {said['error']}")
        self._urls = said["urls"]
        self.pid = said["pid"]

    def _told(self) -> str:
        folder = self._given_data if self._given_data is not None else self._temporary
        data = folder.name if isinstance(folder, tempfile.TemporaryDirectory) else os.fspath(folder or "")
        # Keys go through the pipe: arguments could be read by every user of the machine.
        keys = [key.get_secret_value() for key in self._keys]
        knobs = self._knobs.model_dump(mode="json") | {"keys": keys}
        ports = {region: urlsplit(url).port for region, url in self._urls.items()}
        return json.dumps({"knobs": knobs, "data": str(Path(data).absolute()), "ports": ports})


def _checked_keys(keys: Any) -> tuple[SecretStr, ...]:
    # A text is a list too, of letters.
    given = tuple(keys) if isinstance(keys, Iterable) and not isinstance(keys, (str, bytes)) else None
    if given is None or not all(isinstance(key, (str, SecretStr)) for key in given):
        raise SettingsError(
            "keys is no list of keys as text; allowed: a list of keys, such as ['one', 'two']"
        )
    if not given:
        raise SettingsError("a FaultyService needs a key that it lets in")
    return tuple(key for one in given if (key := Settings(api_key=one).api_key) is not None)


def _end(process: "subprocess.Popen[bytes]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S)
