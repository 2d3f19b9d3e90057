"""Speak and encode parts of a text, for streams over HTTP and over WebSockets.

:func:`make_utterance` describes the speech for a worker. The call for whole texts uses the same function.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from speechframe.audio.codec import convert_seconds_to_frames, resample
from speechframe.audio.streams import StreamEncoder
from speechframe.engines.base import Utterance
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.readers import Reader
from speechframe.local.service.http.threads import KeyThreads
from speechframe.local.service.speech.catalogue import ResolvedVoice
from speechframe.local.service.state import State
from speechframe.local.service.workers.job import Facts
from speechframe.local.service.workers.speech import StreamJob
from speechframe.spec.check import shorten_value
from speechframe.spec.limits import VARIATION
from speechframe.spec.socket import VoiceConfig
from speechframe.spec.speech import Format, GenerateRequest, Model, StreamRequest

_ABANDONED_S = 0.5
"""Seconds that a worker may go on after the client has left. Few parts take longer."""
_SLICE_S = 1.0
"""Seconds of audio that are encoded at once. The result fits into one WebSocket frame."""
_SLOW_FORMATS = frozenset({Format.MP3, Format.OGG, Format.FLAC})
"""Formats that a thread encodes, because they would block the event loop for too long."""
_SHOWN_WORDS = 10
"""Largest number of words that one warning lists."""
VARIATION_IGNORED = "variation is for gen2 only and was ignored"


class PartRefused(Exception):
    """The engine works, but cannot speak this text. The message is the reason."""


class PartFailed(Exception):
    """The engine failed. The message never contains the text."""


@dataclass(frozen=True, eq=False)
class SpokenPart:
    """A part of a text as audio.

    Parameters
    ----------
    samples
        Mono float32 samples between -1 and 1. Empty if the text contains nothing that can be heard.
    sample_rate_hz
        Sample rate in Hz. 0 if there are no samples.
    warnings
        Warnings of the engine, for example about characters that it left out.
    unused_words
        Words of the pronunciation dictionary that are not in the text. If the whole text was checked with
        this part, words that are not in the whole text.
    """

    samples: NDArray[np.float32]
    sample_rate_hz: int
    warnings: tuple[str, ...]
    unused_words: tuple[str, ...] = ()

    def resample_to(self, sample_rate_hz: int) -> "SpokenPart":
        """Return the part at a sample rate in Hz. Voices of one stream may have different rates."""
        if self.sample_rate_hz == sample_rate_hz:
            return self
        samples = resample(self.samples, self.sample_rate_hz, sample_rate_hz)
        return replace(self, samples=samples, sample_rate_hz=sample_rate_hz)


def make_utterance(
    wanted: GenerateRequest | StreamRequest | VoiceConfig,
    resolved: ResolvedVoice,
    model: Model,
    *,
    take: int = 0,
) -> Utterance:
    """Return the description of the speech for a worker, without the text.

    For other models than gen2, the variation is the default, because only gen2 supports it.
    """
    variation = (
        wanted.variation if model is Model.GEN2 and wanted.variation is not None else VARIATION.default
    )
    return Utterance(
        "",
        resolved.voice.voice_id,
        resolved.locale,
        resolved.style,
        pitch=wanted.pitch or 0,
        rate=wanted.rate or 0,
        variation=VARIATION.default or 0 if variation is None else variation,
        take=take,
        pronunciations=wanted.pronunciation_dictionary or {},
    )


def warn_unused_words(unused_words: Sequence[str]) -> tuple[str, ...]:
    """Return a warning that lists unused words of a pronunciation dictionary. No words give no warning."""
    if not unused_words:
        return ()
    shown_words = ", ".join(map(shorten_value, unused_words[:_SHOWN_WORDS]))
    more = len(unused_words) - _SHOWN_WORDS
    and_more = f" and {more} more" if more > 0 else ""
    return (f"words of the pronunciation dictionary are not in the text: {shown_words}{and_more}",)


def collect_warnings(asked: Sequence[str], facts: Facts) -> tuple[str, ...]:
    """Return all warnings of an answer without duplicates.

    `asked` are the warnings about the request. `facts` contains those about the speech and the dictionary.
    """
    return tuple(dict.fromkeys((*asked, *facts.warnings, *warn_unused_words(facts.unused_words))))


async def speak(
    state: State,
    key: Key,
    engine: str,
    utterance: Utterance,
    *,
    reader: Reader,
    pause_s: float = 0.0,
    whole: str | None = None,
    under_way: bool = False,
) -> SpokenPart:
    """Have a worker speak a part of a text, and return the samples.

    Parameters
    ----------
    state
        The shared objects of the service.
    key
        The key that pays. Keys take turns in the queue.
    engine
        Name of the speech engine.
    utterance
        The part of the text to speak, with the voice.
    reader
        The client. It counts the samples until they are deleted.
    pause_s
        Seconds of silence before the part.
    whole
        The whole text, for the first part. The worker checks it before it speaks the part. None for later
        parts.
    under_way
        Whether the answer has begun. Then a full queue does not refuse the part.

    Raises
    ------
    PartRefused
        The engine cannot speak the text.
    PartFailed
        The engine failed.
    Saturated, WorkerLost, PoolClosed
        As :meth:`WorkerPool.run`.
    """
    limit_s = state.config.limits.compute_job_limit_s(len(utterance.text), 0.0)
    reply = await state.pools.get_pool(engine).run(
        StreamJob(engine, utterance, pause_s, whole),
        limit_s=limit_s,
        abandoned_s=_ABANDONED_S,
        key_hash=key.key_hash,
        under_way=under_way,
    )
    facts = reply.facts
    if facts.refused is not None:
        raise PartRefused(facts.refused)
    if facts.failed is not None:
        raise PartFailed(facts.failed)
    samples = np.frombuffer(reply.audio, "<f4")
    reader.hold_until_deleted(samples, len(reply.audio))
    return SpokenPart(samples, facts.sample_rate_hz, facts.warnings, facts.unused_words)


async def encode_part(encoder: StreamEncoder, part: SpokenPart, threads: KeyThreads) -> AsyncIterator[bytes]:
    """Yield a part's audio in the encoder's format, about one second at a time.

    `threads` are the threads of the client's key. Formats that take long to encode use them.
    """
    step = convert_seconds_to_frames(_SLICE_S, part.sample_rate_hz)
    for start in range(0, len(part.samples), step):
        samples = part.samples[start : start + step]
        if encoder.format in _SLOW_FORMATS:
            data = await threads.run(encoder.add, samples)
        else:
            data = encoder.add(samples)
        if data:
            yield data
