"""Jobs for worker processes and their replies, as length-prefixed messages over pipes.

A job is one pickled object. A reply is never pickled, so an engine cannot run code in the service. It has
three parts: facts, a result and samples. The facts are JSON that the service reads. The result is JSON text
for the answer, such as word durations. In most answers the service copies them without parsing. The samples
are the audio of a stream. All other audio goes to a file.
"""

import json
import pickle
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

JOB_HEAD = struct.Struct(">I")
"""Head of a job, and of the first message of a worker: the number of bytes that follow."""
REPLY_HEAD = struct.Struct(">III")
"""Head of a reply: the numbers of bytes of facts, result and samples."""


class WorkerJob(ABC):
    """One job of a worker: a frozen dataclass with the input.

    `path` is the file that the job writes. It is None if the job writes no file.
    """

    path: Path | None = None

    @abstractmethod
    def run(self) -> "WorkerReply":
        """Do the job in the worker process."""

    def encode_message(self) -> bytes:
        """Return the job as a message of bytes."""
        body = pickle.dumps(self)
        return JOB_HEAD.pack(len(body)) + body


@dataclass(frozen=True)
class Facts:
    """The facts of a reply.

    Parameters
    ----------
    audio_seconds, content_type, size_bytes, warnings
        Length, Content-Type and file size of the new audio, and warnings about it.
    sample_rate_hz
        Sample rate in Hz of the samples in the reply. 0 if the reply contains none.
    refused
        The reason, without paths, why the engine cannot do this job, if the caller's input is at fault.
    failed
        The reason of any other failure, for the caller. It contains neither the text nor a path.
    fault
        The reason for the log, if the engine is at fault. It may contain paths.
    engine_ms, encode_ms
        CPU time of the engine and of the encoder, in milliseconds.
    memory_bytes
        Resident memory of the worker after the job.
    unused_words
        Words of the pronunciation dictionary that the text does not contain.
    """

    audio_seconds: float = 0.0
    content_type: str = ""
    size_bytes: int = 0
    warnings: tuple[str, ...] = ()
    refused: str | None = None
    failed: str | None = None
    fault: str | None = None
    engine_ms: float = 0.0
    encode_ms: float = 0.0
    memory_bytes: int = 0
    sample_rate_hz: int = 0
    unused_words: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerReply:
    """A worker's reply: facts, a result as JSON text, and float32 samples of a stream."""

    facts: Facts
    result_json: bytes = b"[]"
    audio: bytes = b""

    def with_warning(self, warning: str | None) -> "WorkerReply":
        """Return the reply with one more warning, which is the first. None adds no warning."""
        if warning is None:
            return self
        return replace(self, facts=replace(self.facts, warnings=(warning, *self.facts.warnings)))

    def encode_message(self) -> tuple[bytes, bytes, bytes]:
        """Return the reply as a message of bytes: head and facts, result, samples."""
        facts = json.dumps(vars(self.facts)).encode()
        return (
            REPLY_HEAD.pack(len(facts), len(self.result_json), len(self.audio)) + facts,
            self.result_json,
            self.audio,
        )


def read_facts(message: bytes) -> Facts:
    """Return the facts from their JSON in a reply."""
    fields = json.loads(message)
    lists = {name: tuple(fields[name]) for name in ("warnings", "unused_words")}
    return Facts(**{**fields, **lists})
