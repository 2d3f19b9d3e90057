"""The jobs of a worker process that measure a clip, change its voice, and check a media file for dubbing.

To measure and to change are two jobs, because the price depends on the length of the clip and is reserved
before the voice is changed. The samples are in a file, so another worker may change the voice.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from speechframe.engines import registry, streaming
from speechframe.engines.base import Conversion, Recording, Speech, Transcript, Utterance
from speechframe.errors import AudioError, EngineError
from speechframe.local.service.workers.job import Facts, WorkerJob, WorkerReply
from speechframe.local.service.workers.speech import AudioFormat, encode_speech, list_unused_words
from speechframe.spec import chosen
from speechframe.spec.speech import Pronunciation


@dataclass(frozen=True)
class MeasureJob(WorkerJob):
    """Decode the clip `upload`, unless it is too long, and write its float32 samples to `path`."""

    upload: Path
    max_seconds: float
    path: Path

    def run(self) -> WorkerReply:
        """Return the length of the clip, and a JSON object with ``sample_rate_hz``."""
        from speechframe.audio import media

        started = time.process_time()
        frames = 0
        try:
            with media.open_media(self.upload, max_seconds=self.max_seconds) as opened:
                file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
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


@dataclass(frozen=True)
class ProbeJob(WorkerJob):
    """Check the whole media file `upload`, before it is dubbed. `locale` selects one of its audio tracks."""

    upload: Path
    max_seconds: float
    locale: str | None

    def run(self) -> WorkerReply:
        """Return the length of the media file."""
        from speechframe.local.dubbing.media import probe_medium

        try:
            seconds = probe_medium(self.upload, max_seconds=self.max_seconds, locale=self.locale)
        except AudioError as error:
            raise EngineError(str(error)) from None
        return WorkerReply(Facts(audio_seconds=seconds))


@dataclass(frozen=True, kw_only=True)
class ChangeJob(WorkerJob):
    """Replace the voice of a clip, and write the audio file.

    Parameters
    ----------
    samples, clip_rate_hz
        File of the clip's float32 samples, and their sample rate.
    conversion
        The new voice and the manner of speaking.
    speaker, changer, recogniser
        Names of the engines. `changer` or `recogniser` is None if the job does not need this engine.
    transcription
        The words of the clip, if the caller gave them.
    pronunciations
        Maps a word to its pronunciation.
    """

    path: Path
    samples: Path
    clip_rate_hz: int
    conversion: Conversion
    speaker: str
    changer: str | None
    recogniser: str | None
    transcription: str | None
    pronunciations: Mapping[str, Pronunciation]
    shape: AudioFormat

    def run(self) -> WorkerReply:
        """Return the facts of the audio file, and a JSON object with ``transcription``."""
        started = time.process_time()
        recording = Recording(np.fromfile(self.samples, np.float32), self.clip_rate_hz)
        conversion, warning = _limit_length(self.conversion, recording)
        transcript = _get_transcript(self, recording)
        speak = _make_speak(self)
        unused_words: tuple[str, ...] = ()
        if self.changer is not None:
            speech = registry.load_changers()[self.changer].change(recording, conversion, speak=speak)
        else:
            from speechframe.local.engines.respeak import respeak_clip

            # Check the whole text for warnings, because `respeak` speaks it in parts.
            wanted = self.conversion
            whole = Utterance(
                transcript.text,
                wanted.voice_id,
                wanted.locale,
                wanted.style,
                pronunciations=self.pronunciations,
            )
            whole_warnings = (
                streaming.check(registry.find_speaker(self.speaker), whole) if transcript.text.strip() else ()
            )
            unused_words = list_unused_words(whole)
            speech = respeak_clip(
                recording, conversion, speak=speak, text=transcript.text, language=transcript.language
            )
            speech = replace(speech, warnings=tuple(dict.fromkeys((*whole_warnings, *speech.warnings))))
        reply = encode_speech(
            # Answers of the voice changer contain no word durations.
            replace(speech, words=()),
            self.shape,
            self.path,
            asked_s=conversion.audio_duration_s,
            engine_start_s=started,
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


def _get_transcript(job: ChangeJob, recording: Recording) -> Transcript:
    if job.transcription is not None or job.recogniser is None:
        return Transcript(job.transcription or "", None)
    return registry.load_recognisers()[job.recogniser].recognise(recording)


def _make_speak(job: ChangeJob) -> Callable[[Utterance], Speech]:
    speaker = registry.find_speaker(job.speaker)

    def speak(utterance: Utterance) -> Speech:
        asked = replace(utterance, pronunciations={**job.pronunciations, **utterance.pronunciations})
        return streaming.speak(speaker, asked)

    return speak
