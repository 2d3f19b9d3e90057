"""The configuration of a service process, and the parsers of its keys."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import SecretStr

from speechframe.errors import SettingsError
from speechframe.settings.hidden import Hidden
from speechframe.spec import chosen
from speechframe.spec.limits import SOCKET_IDLE_S

MEBIBYTE = 1 << 20
"""Bytes of a mebibyte (MiB)."""

# Characters. A generated key has 38, and a header may have 8190.
_MAX_KEY_CHARACTERS = 200


@dataclass(frozen=True)
class KeySpec:
    """A key that the service accepts.

    Parameters
    ----------
    key
        The secret. The service stores only a hash of it.
    quota_characters
        Characters that the key may use in a billing cycle (a calendar month, UTC). For a dubbing key, the
        number counts credits.
    concurrency
        Requests that the key may have in flight, in each pool (streaming, and all other calls). None selects
        the default of the region for streaming, and of ``spec.chosen`` for all other calls.
    """

    key: SecretStr
    quota_characters: int = chosen.DEFAULT_QUOTA_CHARACTERS
    concurrency: int | None = None


@dataclass(frozen=True)
class WorkerLimits:
    """Limits at which a worker process counts as hung, or is replaced.

    Parameters
    ----------
    start_s
        Seconds that a worker may take to start.
    base_s, per_character_s, per_audio_second_s
        CPU time in seconds that a job may use: a base, plus a share for each character of text and for each
        second of requested audio. A neural voice uses about a third of this time.
    per_changed_second_s
        CPU time in seconds that a voice change may use more for each second of the source clip. Speech
        recognition is included.
    idle_s
        Seconds without any CPU use after which a worker with a job counts as hung.
    jobs
        Number of jobs after which a worker is replaced. This bounds a memory leak of a native library.
    memory_bytes
        Resident memory above which a worker is replaced after its job. A neural voice needs 1 GB for a long
        sentence.
    """

    start_s: float = 60.0
    base_s: float = 20.0
    per_character_s: float = 0.25
    per_audio_second_s: float = 0.1
    per_changed_second_s: float = 2.0
    idle_s: float = 60.0
    jobs: int = 10_000
    memory_bytes: int = 1536 * MEBIBYTE

    def compute_job_limit_s(self, characters: int, audio_seconds: float) -> float:
        """Return the seconds of CPU time that a job of this size may use.

        Examples
        --------
        >>> WorkerLimits(base_s=10, per_character_s=0.01).compute_job_limit_s(500, 0.0)
        15.0
        """
        return self.base_s + self.per_character_s * characters + self.per_audio_second_s * audio_seconds

    def compute_change_limit_s(self, characters: int, changed_seconds: float, audio_seconds: float) -> float:
        """Return the seconds of CPU time that a voice change may use.

        `changed_seconds` is the length of the source clip, `audio_seconds` the length of the result.

        Examples
        --------
        >>> WorkerLimits(base_s=10).compute_change_limit_s(0, 60.0, 0.0)
        130.0
        """
        return (
            self.compute_job_limit_s(characters, audio_seconds) + self.per_changed_second_s * changed_seconds
        )


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of ``speechframe serve``, with their descriptions. A name ends with its unit."""

    port: Annotated[int, "port to listen on; 0 takes a free one"] = 8099
    host: Annotated[str, "address to listen on"] = "127.0.0.1"
    region: Annotated[str, "region to play; its streaming concurrency is the default of keys"] = "global"
    workers: Annotated[int, "speech processes; 0 takes one a core, at most 4"] = 0
    dub_workers: Annotated[
        int, "media dubbed at once, each in its own process; 0 takes one for two cores"
    ] = 0
    queue: Annotated[int, "requests that may wait for a worker, more get 503; 0 takes 32 a worker"] = 0
    # A late body gets 408, or 400 for calls without a 408 in section 7.2 of the service document.
    body_timeout_s: Annotated[
        float,
        "seconds in which the headers of a request must arrive, and again its body; for a form, the longest "
        "pause",
    ] = 20.0
    job_timeout_s: Annotated[float, "seconds of CPU time that a job may use; a longer job may use more"] = (
        WorkerLimits.base_s
    )
    idle_timeout_s: Annotated[float, "seconds without any CPU use after which a job counts as hung"] = (
        WorkerLimits.idle_s
    )
    progress_s: Annotated[
        float, "seconds between two interim answers (status 102) to a call that is in work"
    ] = chosen.PROGRESS_SECONDS
    socket_idle_s: Annotated[float, "seconds without traffic after which a WebSocket is closed"] = (
        SOCKET_IDLE_S
    )
    webhook_s: Annotated[float, "seconds over which the deliveries of an unanswered webhook are spread"] = (
        chosen.WEBHOOK_RETRY_SECONDS
    )
    grace_s: Annotated[float, "seconds that requests in flight get to finish when the service stops"] = 10.0
    shelf_mb: Annotated[int, "audio kept for links, at most; the oldest is removed first"] = 2048
    max_upload_mb: Annotated[int, "size of an uploaded or fetched file, at most; a larger one gets 400"] = (
        chosen.MAX_UPLOAD_BYTES // MEBIBYTE
    )
    allow_private_urls: Annotated[
        bool,
        "let a file_url or webhook_url lead to this machine and its network; only if every caller may go "
        "there too",
    ] = False
    changer: Annotated[str | None, "changer to use if several are installed; default: the first by name"] = (
        None
    )
    recogniser: Annotated[
        str | None, "recogniser to use if several are installed; default: the first by name"
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServiceConfig(ServeOptions):
    """The configuration of a service process.

    Parameters
    ----------
    data
        Folder of keys, balances and audio. If it is missing, it is created with mode 700.
    keys
        Keys to accept. If empty, the service accepts the key in the file ``data/key``. It creates the file if
        the file is missing.
    dub_keys
        Keys of the dubbing calls. If empty, the dubbing calls accept `keys`.
    max_body_bytes
        Largest size of a request body. A larger body gets 400.
    max_audio_seconds
        The longest accepted ``audioDuration``, and the longest accepted clip, in seconds. The document (the
        service's specification) sets no limit, but the memory of a machine is limited.
    slow_reader_s
        Seconds after which a client that reads its answer too slowly is disconnected.
    unread_bytes
        Bytes of answers that may wait in memory for slow clients, over all connections.
    """

    data: Path
    keys: tuple[KeySpec, ...] = ()
    dub_keys: tuple[KeySpec, ...] = ()
    max_body_bytes: int = chosen.MAX_BODY_BYTES
    max_audio_seconds: float = 1800.0
    slow_reader_s: float = chosen.READER_SPEED_WINDOW_S
    unread_bytes: int = chosen.MAX_UNREAD_BYTES

    @property
    def limits(self) -> WorkerLimits:
        """Limits after which a worker process is replaced."""
        return WorkerLimits(base_s=self.job_timeout_s, idle_s=self.idle_timeout_s)

    @property
    def max_upload_bytes(self) -> int:
        """Largest size of a file in a form or behind a ``file_url``."""
        return self.max_upload_mb * MEBIBYTE

    @property
    def worker_count(self) -> int:
        """Number of worker processes."""
        return self.workers or max(1, min(4, _count_cores()))

    @property
    def dub_worker_count(self) -> int:
        """Number of media files that are dubbed at the same time."""
        return self.dub_workers or max(1, _count_cores() // 2)

    @property
    def waiting_limit(self) -> int:
        """Number of requests that may wait for a worker."""
        return self.queue or 32 * self.worker_count


def _count_cores() -> int:
    # A container or taskset may allow this process fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_key(text: str, default: int = chosen.DEFAULT_QUOTA_CHARACTERS) -> KeySpec:
    """Return the key written as ``KEY[:QUOTA[:CONCURRENCY]]``. Without QUOTA, the quota is `default`.

    Raises
    ------
    SettingsError
        The key is empty, too long, or has characters that a header cannot contain, or quota or concurrency is
        not an allowed whole number. The message never contains the key.

    Examples
    --------
    >>> parse_key("secret:5000:2").quota_characters
    5000
    """
    # Quota and concurrency are hidden, too. If a key contains a colon, they are a part of the secret.
    key, quota, concurrency, *_ = map(Hidden, (*Hidden(text).strip().split(":", 2), "", ""))
    if not key or len(key) > _MAX_KEY_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsError(
            "a key is empty, longer than 200 characters, or has characters that a header cannot contain. "
            "Write KEY, KEY:QUOTA or KEY:QUOTA:CONCURRENCY"
        )
    return KeySpec(
        SecretStr(key),
        _parse_integer(quota, "quota", 0) if quota else default,
        _parse_integer(concurrency, "concurrency", 1) if concurrency else None,
    )


def parse_dub_key(text: str) -> KeySpec:
    """Return the dubbing key written as ``KEY[:CREDITS]``.

    Raises
    ------
    SettingsError
        As :func:`parse_key`, or a concurrency is given.

    Examples
    --------
    >>> parse_dub_key("secret:5000").quota_characters
    5000
    """
    spec = parse_key(Hidden(text), chosen.DEFAULT_DUB_CREDITS)
    if spec.concurrency is not None:
        raise SettingsError("a dubbing key looks like KEY or KEY:CREDITS")
    return spec


def _parse_integer(text: str, name: str, low: int) -> int:
    # isdecimal() and int() also accept digits of other scripts, such as Arabic. This does no harm.
    if not text.isdecimal() or len(text) > len(str(2**53)) or int(text) < low:
        raise SettingsError(
            f"the {name} of a key is not a whole number of at least {low}; "
            "a key looks like KEY, KEY:QUOTA or KEY:QUOTA:CONCURRENCY and contains no colon itself"
        )
    return int(text)


def parse_keys(text: str) -> tuple[KeySpec, ...]:
    """Return the keys of a keys file. Each line is a key as in :func:`parse_key`, or a comment after ``#``.

    Raises
    ------
    SettingsError
        A line is not a key. The message contains the line's number.
    """
    text, found = Hidden(text), []
    for number, line in enumerate(map(Hidden, text.splitlines()), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found.append(parse_key(line))
        except SettingsError as error:
            raise SettingsError(f"keys file, line {number}: {error}") from None
    return tuple(found)


def remove_duplicate_keys(keys: Iterable[KeySpec]) -> tuple[KeySpec, ...]:
    """Return the keys without duplicates.

    Raises
    ------
    SettingsError
        A key is given twice with different quota or concurrency.
    """
    found: dict[SecretStr, KeySpec] = {}
    for spec in keys:
        known = found.setdefault(spec.key, spec)
        if known != spec:
            raise SettingsError("one key is given twice with different quota or concurrency; give it once")
    return tuple(found.values())
