"""What goes to a worker process and comes back: length-prefixed messages over its pipes.

A job is one JSON message. A reply is three parts, so that the service never
parses what it only passes on: facts as JSON, words (of speech: the word
durations) as JSON text ready for the answer, and the samples of a stream.
Audio of any other kind goes to a file.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

JOB_HEAD = struct.Struct(">I")
REPLY_HEAD = struct.Struct(">III")


@dataclass(frozen=True)
class Job:
    """One thing to do.

    Parameters
    ----------
    kind
        A name of :data:`speechframe.service.worker.TASKS`.
    fields
        What the task reads, as JSON values; where audio is made, ``format``, ``channel_type`` and
        ``sample_rate_hz`` are among them.
    path
        File the audio is written to; ``None`` where there is none, or it comes back as samples.
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
    """What a worker says about a job.

    Parameters
    ----------
    audio_seconds, content_type, size_bytes, warnings
        Of the audio that was made.
    sample_rate_hz
        Of samples that come back as they are; 0 where they are encoded.
    refused
        Why the engine cannot speak this text: the caller's fault.
    failed
        What went wrong otherwise: ours. Never holds the text.
    engine_ms, encode_ms
        CPU time of the two steps.
    memory_bytes
        The worker's resident memory.
    unused_words
        Words of the pronunciation dictionary that the text has not.
    """

    audio_seconds: float = 0.0
    content_type: str = ""
    size_bytes: int = 0
    warnings: tuple[str, ...] = ()
    refused: str | None = None
    failed: str | None = None
    engine_ms: float = 0.0
    encode_ms: float = 0.0
    memory_bytes: int = 0
    sample_rate_hz: int = 0
    unused_words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """A worker's reply: facts, words as JSON text, and of a stream float32 samples."""

    facts: Facts
    words: bytes = b"[]"
    audio: bytes = b""

    def with_warning(self, words: str | None) -> "Reply":
        """Return the reply with a warning before its others, if there is one."""
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
