"""The jobs of a worker process that speak: a whole text into a file, or a part of a stream as samples."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from speechframe.audio import codec
from speechframe.audio.streams import StreamEncoder
from speechframe.engines import registry, streaming
from speechframe.engines.base import Speaker, Speech, Utterance
from speechframe.engines.faults import shorten_paths
from speechframe.errors import EngineError, EngineFault
from speechframe.local.service.workers.job import Facts, WorkerJob, WorkerReply
from speechframe.spec import chosen
from speechframe.spec.limits import get_default_sample_rate_hz
from speechframe.spec.speech import ChannelType, Format, Model, WordDuration

_LOWEST_RATE_HZ = 8000
"""Lowest sample rate in Hz of engines and formats."""
# Flags of os.open for a file that must not exist yet.
_NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_WORDS_ADAPTER = TypeAdapter(list[WordDuration])


@dataclass(frozen=True)
class AudioFormat:
    """Format, channels and sample rate in Hz of audio to send.

    `warnings` is a warning if channels or sample rate differ from the request, because the format fixes them.
    """

    format: Format
    channel_type: ChannelType
    sample_rate_hz: int
    warnings: tuple[str, ...]

    @classmethod
    def from_request(
        cls, format: Format, asked: tuple[ChannelType, float | None], model: Model, *, names: tuple[str, str]
    ) -> "AudioFormat":
        """Return the format of the audio for a request.

        Parameters
        ----------
        asked
            The requested channels and sample rate. None selects the default rate of the model.
        names
            The request's names of these two fields, for a warning.
        """
        channel_type, rate_hz = asked
        rate_hz = int(rate_hz or get_default_sample_rate_hz(model))
        forced = codec.get_forced_shape(format, channel_type, rate_hz)
        given = channel_type, asked[1] or forced[1]
        warning = f"{format} is always {forced[0]} at {forced[1]} Hz; {' and '.join(names)} were set so"
        return cls(format, *forced, () if forced == given else (warning,))

    @property
    def content_type(self) -> str:
        """Content-Type of the audio."""
        return chosen.make_content_type(self.format, self.sample_rate_hz, self.channel_type.channels)

    def make_encoder(self, input_rate_hz: int) -> StreamEncoder:
        """Return a new encoder of a stream for samples at this rate."""
        return StreamEncoder(self.format, self.channel_type, input_rate_hz, self.sample_rate_hz)


@dataclass(frozen=True)
class SpeakJob(WorkerJob):
    """Speak an utterance with an engine, and write the audio file."""

    engine: str
    utterance: Utterance
    shape: AudioFormat
    path: Path

    def run(self) -> WorkerReply:
        """Return the facts of the audio file, and the word durations."""
        started = time.process_time()
        speaker, utterance = registry.find_speaker(self.engine), self.utterance
        whole_warnings = streaming.check(speaker, utterance)
        utterance, warning = _limit_length(speaker, utterance)
        speech = streaming.speak(speaker, utterance)
        speech = replace(speech, warnings=tuple(dict.fromkeys((*whole_warnings, *speech.warnings))))
        reply = encode_speech(
            speech, self.shape, self.path, asked_s=utterance.audio_duration_s, engine_start_s=started
        ).with_warning(warning)
        return replace(reply, facts=replace(reply.facts, unused_words=list_unused_words(utterance)))


def _limit_length(speaker: Speaker, utterance: Utterance) -> tuple[Utterance, str | None]:
    """Return an utterance with an allowed length, and a warning if its length was changed, else None."""
    asked_s = utterance.audio_duration_s
    if asked_s <= chosen.ALWAYS_ALLOWED_DURATION_S:
        return utterance, None
    natural_s = streaming.speak(speaker, replace(utterance, audio_duration_s=0.0)).audio_seconds
    seconds, warning = chosen.clamp_duration("audioDuration", asked_s, natural_s)
    return replace(utterance, audio_duration_s=seconds), warning


@dataclass(frozen=True)
class StreamJob(WorkerJob):
    """Speak a part of a stream.

    Parameters
    ----------
    engine, utterance
        Name of the engine, and the part of the text.
    pause_s
        Seconds of silence before the part.
    whole
        The whole text, for the first part. It is checked before the part is spoken. None for later parts.
    """

    engine: str
    utterance: Utterance
    pause_s: float = 0.0
    whole: str | None = None

    def run(self) -> WorkerReply:
        """Return the samples, and the warnings for the whole text."""
        started = time.process_time()
        speaker, utterance = registry.find_speaker(self.engine), self.utterance
        warnings: list[str] = []
        whole = utterance
        if self.whole is not None:
            whole = replace(utterance, text=self.whole)
            warnings += streaming.check(speaker, whole)
        unused_here = list_unused_words(whole)
        try:
            pieces = list(streaming.stream(speaker, utterance))
        except EngineFault:
            raise
        except EngineError as error:
            if not speaker.capabilities.streaming or self.whole == utterance.text:
                raise
            # The whole text can be spoken, but this part of it cannot. So the part is silent, with a warning.
            return WorkerReply(
                Facts(warnings=(*warnings, shorten_paths(str(error))), unused_words=unused_here)
            )
        rate_hz = pieces[0].sample_rate_hz
        pause = np.zeros(codec.convert_seconds_to_frames(self.pause_s, rate_hz), np.float32)
        samples = np.concatenate([pause, *(piece.samples for piece in pieces)])
        warnings += [warning for piece in pieces for warning in piece.warnings]
        facts = Facts(
            audio_seconds=len(samples) / rate_hz,
            sample_rate_hz=rate_hz,
            warnings=tuple(dict.fromkeys(warnings)),
            engine_ms=(time.process_time() - started) * 1000,
            unused_words=unused_here,
        )
        return WorkerReply(facts, audio=samples.astype("<f4").tobytes())


def encode_speech(
    speech: Speech, shape: AudioFormat, path: Path, *, asked_s: float, engine_start_s: float
) -> WorkerReply:
    """Encode speech, write it to a new file, and return the reply with its facts and word durations.

    Parameters
    ----------
    speech
        Speech of an engine.
    shape
        Format of the file.
    path
        Path of the file.
    asked_s
        The requested length in seconds. 0 if the request names no length.
    engine_start_s
        Value of `time.process_time` before the engine began.
    """
    engine_end_s = time.process_time()
    rate_hz = shape.sample_rate_hz
    # If the engine met the requested length, make it exact to the sample at the output rate.
    fits = asked_s > 0 and _is_close(asked_s, speech.audio_seconds, rate_hz)
    seconds = asked_s if fits else speech.audio_seconds
    with os.fdopen(os.open(path, _NEW_FILE_FLAGS, 0o600), "w+b") as file:
        codec.write_encoded(
            file,
            speech.samples,
            speech.sample_rate_hz,
            format=shape.format,
            channel_type=shape.channel_type,
            output_rate_hz=rate_hz,
            audio_seconds=seconds,
        )
        size_bytes = file.seek(0, os.SEEK_END)
    facts = Facts(
        audio_seconds=max(1, codec.convert_seconds_to_frames(seconds, rate_hz)) / rate_hz,
        content_type=shape.content_type,
        size_bytes=size_bytes,
        warnings=(*speech.warnings, *shape.warnings),
        engine_ms=(engine_end_s - engine_start_s) * 1000,
        encode_ms=(time.process_time() - engine_end_s) * 1000,
    )
    words = [
        WordDuration.model_construct(word=word.word, start_ms=word.start_ms, end_ms=word.end_ms)
        for word in speech.words
    ]
    return WorkerReply(facts, _WORDS_ADAPTER.dump_json(words, by_alias=True, exclude_none=True))


def list_unused_words(utterance: Utterance) -> tuple[str, ...]:
    """Return the words of an utterance's pronunciation dictionary that its text does not contain."""
    if not utterance.pronunciations:
        return ()
    # Imported here, because the service imports this module for its jobs, and only workers need the function.
    from speechframe.local.engines.reading.text import find_unused_words

    return find_unused_words(utterance.text, utterance.pronunciations)


def _is_close(asked_s: float, made_s: float, rate_hz: int) -> bool:
    # Allow two samples for rounding at two rates. If the engine missed the length by more, keep its length.
    return abs(asked_s - made_s) < 2 / min(rate_hz, _LOWEST_RATE_HZ)
