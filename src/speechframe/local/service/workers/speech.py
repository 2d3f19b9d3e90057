"""The jobs ``speak`` and ``stream`` of a worker process.

``speak`` writes an utterance as an audio file. ``stream`` returns a part of an utterance as samples.
"""

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from speechframe.audio import codec
from speechframe.engines import registry, streaming
from speechframe.engines.base import Speaker, Speech, Utterance
from speechframe.engines.faults import shorten_paths
from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines.reading.text import find_unused_words
from speechframe.local.service.workers.job import Facts, WorkerReply
from speechframe.spec import chosen
from speechframe.spec.speech import ChannelType, Format, Pronunciation, WordDuration

_LOWEST_RATE_HZ = 8000
"""Lowest sample rate in Hz of engines and formats."""
# Flags of os.open for a file that must not exist yet.
_NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_WORDS_ADAPTER = TypeAdapter(list[WordDuration])


def speak(job: dict[str, Any]) -> WorkerReply:
    """Speak the job's ``utterance`` with its ``engine``, and write the audio to ``path``."""
    started = time.process_time()
    speaker, utterance = registry.find_speaker(job["engine"]), make_utterance(job["utterance"])
    whole_warnings = streaming.check(speaker, utterance)
    utterance, warning = _limit_length(speaker, utterance)
    speech = streaming.speak(speaker, utterance)
    speech = replace(speech, warnings=tuple(dict.fromkeys((*whole_warnings, *speech.warnings))))
    reply = encode_speech(
        speech, job, asked_s=utterance.audio_duration_s, engine_start_s=started
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


def speak_part(job: dict[str, Any]) -> WorkerReply:
    """Return a part of a stream as float32 samples.

    The job contains ``engine``, ``utterance`` and ``pause_s``, the silence in seconds before the part. The
    job of the first part also contains the ``whole`` text. The worker then checks the whole text before it
    speaks the part. The reply contains the warnings for the whole text.

    Raises
    ------
    EngineError
        The engine cannot speak the text.
    """
    started = time.process_time()
    speaker, utterance = registry.find_speaker(job["engine"]), make_utterance(job["utterance"])
    warnings: list[str] = []
    whole = utterance
    if job["whole"] is not None:
        whole = replace(utterance, text=job["whole"])
        warnings += streaming.check(speaker, whole)
    unused_here = list_unused_words(whole)
    try:
        pieces = list(streaming.stream(speaker, utterance))
    except EngineFault:
        raise
    except EngineError as error:
        if not speaker.capabilities.streaming or job["whole"] == utterance.text:
            raise
        # The whole text can be spoken, but this part of it cannot. So the part is silent, with a warning.
        return WorkerReply(Facts(warnings=(*warnings, shorten_paths(str(error))), unused_words=unused_here))
    rate_hz = pieces[0].sample_rate_hz
    pause = np.zeros(codec.convert_seconds_to_frames(job["pause_s"], rate_hz), np.float32)
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
    speech: Speech,
    job: dict[str, Any],
    *,
    asked_s: float,
    engine_start_s: float,
    shape_names: tuple[str, str] = ("channelType", "sampleRate"),
) -> WorkerReply:
    """Encode speech, write it to the job's file, and return the reply with its facts and word durations.

    Parameters
    ----------
    speech
        Speech of an engine.
    job
        Contains ``format``, ``channel_type``, ``sample_rate_hz`` and ``path``.
    asked_s
        The requested length in seconds. 0 if the request names no length.
    engine_start_s
        Value of `time.process_time` before the engine began.
    shape_names
        The request's names of channel type and sample rate, for warnings.
    """
    engine_end_s = time.process_time()
    asked = ChannelType(job["channel_type"]), job["sample_rate_hz"]
    audio_format = Format(job["format"])
    channel_type, rate_hz = codec.get_forced_shape(audio_format, *asked)
    # If the engine met the requested length, make it exact to the sample at the output rate.
    fits = asked_s > 0 and _is_close(asked_s, speech.audio_seconds, rate_hz)
    seconds = asked_s if fits else speech.audio_seconds
    with os.fdopen(os.open(job["path"], _NEW_FILE_FLAGS, 0o600), "w+b") as file:
        codec.write_encoded(
            file,
            speech.samples,
            speech.sample_rate_hz,
            format=audio_format,
            channel_type=channel_type,
            output_rate_hz=rate_hz,
            audio_seconds=seconds,
        )
        size_bytes = file.seek(0, os.SEEK_END)
    warnings = list(speech.warnings)
    if (channel_type, rate_hz) != asked:
        names = " and ".join(shape_names)
        warnings.append(f"{audio_format} is always {channel_type} at {rate_hz} Hz; {names} were set so")
    facts = Facts(
        audio_seconds=max(1, codec.convert_seconds_to_frames(seconds, rate_hz)) / rate_hz,
        content_type=chosen.make_content_type(audio_format, rate_hz, channel_type.channels),
        size_bytes=size_bytes,
        warnings=tuple(warnings),
        engine_ms=(engine_end_s - engine_start_s) * 1000,
        encode_ms=(time.process_time() - engine_end_s) * 1000,
    )
    words = [
        WordDuration.model_construct(word=word.word, start_ms=word.start_ms, end_ms=word.end_ms)
        for word in speech.words
    ]
    return WorkerReply(facts, _WORDS_ADAPTER.dump_json(words, by_alias=True, exclude_none=True))


def make_utterance(fields: dict[str, Any]) -> Utterance:
    """Return the utterance that the fields of a job describe. Remove ``pronunciations`` from `fields`."""
    pronunciations = {
        word: Pronunciation(**pronunciation) for word, pronunciation in fields.pop("pronunciations").items()
    }
    return Utterance(**fields, pronunciations=pronunciations)


def list_unused_words(utterance: Utterance) -> tuple[str, ...]:
    """Return the words of an utterance's pronunciation dictionary that its text does not contain."""
    return find_unused_words(utterance.text, utterance.pronunciations) if utterance.pronunciations else ()


def _is_close(asked_s: float, made_s: float, rate_hz: int) -> bool:
    # Allow two samples for rounding at two rates. If the engine missed the length by more, keep its length.
    return abs(asked_s - made_s) < 2 / min(rate_hz, _LOWEST_RATE_HZ)
