"""The jobs ``measure``, ``change`` and ``probe`` of a worker process.

``measure`` decodes a clip, and ``change`` replaces its voice. These are two jobs, because the price depends
on the length of the clip and is reserved before the voice is changed. ``measure`` writes the samples into a
file, so another worker may run ``change``. ``probe`` checks a media file before a dubbing job is queued.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from speechframe.audio import media
from speechframe.engines import registry, streaming
from speechframe.engines.base import Conversion, Recording, Speech, Transcript, Utterance
from speechframe.errors import AudioError, EngineError
from speechframe.local.service.workers.job import Facts, WorkerReply
from speechframe.local.service.workers.speech import encode_speech, list_unused_words
from speechframe.spec import chosen
from speechframe.spec.speech import Pronunciation

_PRONUNCIATIONS_ADAPTER = TypeAdapter(dict[str, Pronunciation])


def measure_clip(job: dict[str, Any]) -> WorkerReply:
    """Decode the file ``upload`` and write its float32 samples to ``path``.

    The reply's `result_json` is a JSON object with ``sample_rate_hz``.

    Raises
    ------
    EngineError
        The file is not audio that can be decoded, or it is too long.
    """
    started = time.process_time()
    frames = 0
    try:
        with media.open_media(Path(job["upload"]), max_seconds=job["max_seconds"]) as opened:
            file = os.open(job["path"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as samples:
                for block in opened.blocks:
                    samples.write(block.tobytes())
                    frames += len(block)
            rate_hz, warning = opened.sample_rate_hz, opened.warning
    except AudioError as error:
        # An EngineError refuses the request. The caller's file is at fault here, unlike elsewhere.
        raise EngineError(str(error)) from None
    facts = Facts(audio_seconds=frames / rate_hz, engine_ms=(time.process_time() - started) * 1000)
    return WorkerReply(facts, json.dumps({"sample_rate_hz": rate_hz}).encode()).with_warning(warning)


def probe(job: dict[str, Any]) -> WorkerReply:
    """Check the whole media file ``upload``. The reply contains its length in seconds.

    Raises
    ------
    EngineError
        The file cannot be dubbed.
    """
    from speechframe.local.dubbing.media import probe_medium

    try:
        seconds = probe_medium(Path(job["upload"]), max_seconds=job["max_seconds"], locale=job["locale"])
    except AudioError as error:
        raise EngineError(str(error)) from None
    return WorkerReply(Facts(audio_seconds=seconds))


def change_voice(job: dict[str, Any]) -> WorkerReply:
    """Speak the clip in the file ``samples`` with another voice, and write the audio to ``path``.

    The reply's `result_json` is a JSON object with ``transcription``.
    """
    started = time.process_time()
    recording = Recording(np.fromfile(job["samples"], np.float32), job["clip_rate_hz"])
    conversion, warning = _limit_length(Conversion(**job["conversion"]), recording)
    transcript = _get_transcript(job, recording)
    speak = _make_speak(job)
    unused_words: tuple[str, ...] = ()
    if job["retain_accent"]:
        speech = registry.load_changers()[job["changer"]].change(recording, conversion, speak=speak)
    else:
        from speechframe.local.engines.respeak import respeak_clip

        # Check the whole text for warnings, because `respeak` speaks it in parts.
        whole = _make_utterance(job, transcript.text)
        whole_warnings = (
            streaming.check(registry.find_speaker(job["speaker"]), whole) if transcript.text.strip() else ()
        )
        unused_words = list_unused_words(whole)
        speech = respeak_clip(
            recording, conversion, speak=speak, text=transcript.text, language=transcript.language
        )
        speech = replace(speech, warnings=tuple(dict.fromkeys((*whole_warnings, *speech.warnings))))
    reply = encode_speech(
        # Answers of the voice changer contain no word durations.
        replace(speech, words=()),
        job,
        asked_s=conversion.audio_duration_s,
        engine_start_s=started,
        shape_names=("channel_type", "sample_rate"),
    ).with_warning(warning)
    return replace(
        reply,
        facts=replace(reply.facts, unused_words=unused_words),
        result_json=json.dumps({"transcription": transcript.text}).encode(),
    )


def _limit_length(conversion: Conversion, recording: Recording) -> tuple[Conversion, str | None]:
    """Return a conversion with an allowed length, and a warning if its length was changed, else None."""
    seconds, warning = chosen.clamp_duration(
        "audio_duration", conversion.audio_duration_s, recording.audio_seconds
    )
    return replace(conversion, audio_duration_s=seconds), warning


def _get_transcript(job: dict[str, Any], recording: Recording) -> Transcript:
    if job["transcription"] is not None or job["recogniser"] is None:
        return Transcript(job["transcription"] or "", None)
    return registry.load_recognisers()[job["recogniser"]].recognise(recording)


def _make_utterance(job: dict[str, Any], text: str) -> Utterance:
    wanted = job["conversion"]
    pronunciations = _PRONUNCIATIONS_ADAPTER.validate_python(job["pronunciations"])
    return Utterance(
        text, wanted["voice_id"], wanted["locale"], wanted["style"], pronunciations=pronunciations
    )


def _make_speak(job: dict[str, Any]) -> Callable[[Utterance], Speech]:
    speaker = registry.find_speaker(job["speaker"])
    pronunciations = _PRONUNCIATIONS_ADAPTER.validate_python(job["pronunciations"])

    def speak(utterance: Utterance) -> Speech:
        asked = replace(utterance, pronunciations={**pronunciations, **utterance.pronunciations})
        return streaming.speak(speaker, asked)

    return speak
