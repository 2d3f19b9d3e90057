"""Jobs for worker processes and their replies, as length-prefixed messages over pipes.

A job is one JSON message. A reply has three parts, so that the service does not
parse the parts that it passes on. The first part is facts as JSON. The second is
words as JSON text, ready for the answer: for speech, the word durations. The
third is the samples of a stream. Audio of any other kind goes to a file.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

JOB_HEAD = struct.Struct(">I")
REPLY_HEAD = struct.Struct(">III")


@dataclass(frozen=True)
class WorkerJob:
    """One job of a worker.

    Parameters
    ----------
    kind
        A name of :data:`speechframe.local.service.workers.main.TASKS`.
    fields
        The input of the task as JSON values. A task that makes audio has ``format``, ``channel_type`` and
        ``sample_rate_hz``.
    path
        The file for the audio; None if there is no audio, or if the reply contains it as samples.
    """

    kind: str
    fields: Mapping[str, Any]
    path: str | None = None

    def encoded(self) -> bytes:
        """Return the job as a message."""
        body = json.dumps({**self.fields, "kind": self.kind, "path": self.path}).encode()
        return JOB_HEAD.pack(len(body)) + body


@dataclass(frozen=True)
class Facts:
    """The facts of a reply.

    Parameters
    ----------
    audio_seconds, content_type, size_bytes, warnings
        Facts of the new audio.
    sample_rate_hz
        The rate of samples in the reply; 0 if the audio is encoded.
    refused
        The reason why the engine cannot speak this text, which is the caller's fault. It contains no path.
    failed
        The reason of any other failure, in words for the caller. It contains neither the text nor a path.
    fault
        The reason in words for the log, if the engine is at fault. It may contain paths.
    engine_ms, encode_ms
        CPU time of the two steps.
    memory_bytes
        The worker's resident memory.
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
    """A worker's reply: facts, words as JSON text, and float32 samples of a stream."""

    facts: Facts
    words: bytes = b"[]"
    audio: bytes = b""

    def with_warning(self, words: str | None) -> "WorkerReply":
        """Return the reply with a warning before its other warnings; None adds no warning."""
        if words is None:
            return self
        return replace(self, facts=replace(self.facts, warnings=(words, *self.facts.warnings)))

    def encoded(self) -> tuple[bytes, bytes, bytes]:
        """Return the reply as a message, in parts."""
        facts = json.dumps(vars(self.facts)).encode()
        return REPLY_HEAD.pack(len(facts), len(self.words), len(self.audio)) + facts, self.words, self.audio


def read_facts(message: bytes) -> Facts:
    """Return the facts of a reply."""
    fields = json.loads(message)
    lists = {name: tuple(fields[name]) for name in ("warnings", "unused_words")}
    return Facts(**{**fields, **lists})
