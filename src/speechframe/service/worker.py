"""A worker process: speaks and encodes one text at a time, told over its pipes.

Run as ``python -m speechframe.service.worker PARENT_PID``. A native library
that crashes, hangs or leaks does so here, and costs one request. It ends when
its service does: by the end of its standard input, or, in the middle of a
job, by the kernel's word that the parent died.
"""

import base64
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from speechframe._allocator import tune_allocator
from speechframe.audio import codec
from speechframe.engines import registry
from speechframe.engines.base import Speaker, Utterance
from speechframe.errors import EngineError
from speechframe.service.job import JOB_HEAD, Facts, Reply
from speechframe.spec import chosen
from speechframe.spec.speech import ChannelType, Format, Pronunciation, WordDuration

_PR_SET_PDEATHSIG = 1
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031

_LOWEST_RATE_HZ = 8000

_WORDS = TypeAdapter(list[WordDuration])


def main() -> None:
    """Serve jobs from standard input until it ends."""
    _die_with_parent(int(sys.argv[1]))
    tune_allocator()
    # Ctrl-C in a terminal goes to the whole group: the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs, replies = _pipes()
    try:
        speakers, hello = registry.speakers(), _hello()
    except Exception as error:  # noqa: BLE001 - whatever an engine does to be found, the service says it
        hello = {"engines": {}, "broken": {"?": f"{type(error).__name__}: {error}"}}
    _send_hello(replies, hello)
    while (job := _read_job(jobs)) is not None:
        for part in _done(job, speakers).encoded():
            replies.write(part)
        replies.flush()


def _die_with_parent(parent: int) -> None:
    # Where there is no prctl, the end of standard input remains.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    # A native library that prints must not print into the replies.
    replies = os.fdopen(os.dup(1), "wb", buffering=_PIPE_BYTES)
    os.dup2(2, 1)
    with contextlib.suppress(OSError, ImportError):
        import fcntl

        # A clip of usual length passes in one go, without a context switch every 64 KB.
        fcntl.fcntl(replies.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
    return sys.stdin.buffer, replies


def _hello() -> dict[str, Any]:
    reports = registry.describe()
    engines = {report.name: report.version for report in reports if report.works}
    # An engine that is broken or not installed costs its voices only.
    broken = {report.name: report.problem for report in reports if not report.works}
    return {"engines": engines, "broken": broken}


def _send_hello(replies: BinaryIO, hello: dict[str, Any]) -> None:
    body = json.dumps(hello).encode()
    replies.write(JOB_HEAD.pack(len(body)) + body)
    replies.flush()


def _read_job(jobs: BinaryIO) -> dict[str, Any] | None:
    head = jobs.read(JOB_HEAD.size)
    if len(head) < JOB_HEAD.size:
        return None
    job: dict[str, Any] = json.loads(jobs.read(JOB_HEAD.unpack(head)[0]))
    return job


def _done(job: dict[str, Any], speakers: Mapping[str, Speaker]) -> Reply:
    try:
        return _speak(job, speakers[job["engine"]])
    except EngineError as error:
        return Reply(Facts(refused=str(error), memory_bytes=_memory_bytes()))
    except Exception as error:  # noqa: BLE001 - an engine's fault costs one request, not the worker's replies
        words = (
            f"{error.strerror} ({type(error).__name__})"
            if isinstance(error, OSError)
            else type(error).__name__
        )
        return Reply(Facts(failed=words, memory_bytes=_memory_bytes()))


def _speak(job: dict[str, Any], speaker: Speaker) -> Reply:
    started = time.process_time()
    speech = speaker.speak(_utterance(job["utterance"]))
    spoken = time.process_time()
    asked = ChannelType(job["channel_type"]), job["sample_rate_hz"]
    audio_format = Format(job["format"])
    channel_type, rate_hz = codec.forced_shape(audio_format, *asked)
    # A length that was asked for is kept to the sample at the rate that was asked for, not at the engine's.
    asked_s = job["utterance"]["audio_duration_s"]
    seconds = asked_s if _is_close(asked_s, speech.audio_seconds, rate_hz) else speech.audio_seconds
    data = codec.encode(
        speech.samples,
        speech.sample_rate_hz,
        format=audio_format,
        channel_type=channel_type,
        output_rate_hz=rate_hz,
        audio_seconds=seconds,
    )
    audio = b""
    if job["path"] is None:
        audio = base64.b64encode(data)
    else:
        _write(Path(job["path"]), data)
    warnings = list(speech.warnings)
    if (channel_type, rate_hz) != asked:
        warnings.append(
            f"{audio_format} is always {channel_type} at {rate_hz} Hz; channelType and sampleRate were set so"
        )
    facts = Facts(
        audio_seconds=max(1, codec.seconds_to_frames(seconds, rate_hz)) / rate_hz,
        content_type=chosen.content_type(audio_format, rate_hz, channel_type.channels),
        size_bytes=len(data),
        warnings=tuple(warnings),
        engine_ms=(spoken - started) * 1000,
        encode_ms=(time.process_time() - spoken) * 1000,
        memory_bytes=_memory_bytes(),
    )
    words = [
        WordDuration.model_construct(word=word.word, start_ms=word.start_ms, end_ms=word.end_ms)
        for word in speech.words
    ]
    return Reply(facts, _WORDS.dump_json(words, by_alias=True, exclude_none=True), audio)


def _utterance(fields: dict[str, Any]) -> Utterance:
    spoken = {word: Pronunciation(**how) for word, how in fields.pop("pronunciations").items()}
    return Utterance(**fields, pronunciations=spoken)


def _is_close(asked_s: float, made_s: float, rate_hz: int) -> bool:
    # Within what rounding at two rates can make: an engine that did not fit the length is believed.
    return abs(asked_s - made_s) < 2 / min(rate_hz, _LOWEST_RATE_HZ)


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(data)


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - once a job, as cheap as it gets
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
