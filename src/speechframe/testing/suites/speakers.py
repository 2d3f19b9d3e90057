"""Tests of the behaviour that all speech engines share."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from speechframe.audio import measure
from speechframe.audio.codec import convert_seconds_to_frames
from speechframe.engines import streaming
from speechframe.engines.base import EngineVoice, Speaker, Speech, Utterance
from speechframe.engines.kinds import SPEAKERS
from speechframe.engines.words import spoken_tokens
from speechframe.errors import EngineError
from speechframe.spec.limits import PITCH, RATE, VARIATION
from speechframe.spec.locales import get_language
from speechframe.spec.speech import Pronunciation, PronunciationKind
from speechframe.testing.suites.common import (
    call_in_new_process,
    catch_refusal,
    check_engine_parts,
    check_words,
    get_cached_engine,
    hash_speech,
    measure_f0_hz,
)

_PAUSE_S = 1.5
"""Length in seconds of the pause that a test requests."""
_PAUSE_EXCESS_S = 0.35
"""Allowed excess of a silence over the requested pause, because a sentence ends with a short pause itself."""
_ODD_TEXTS = (
    "\U0001f600\U0001f44d",
    "x" * 40,
    "1" * 13,
    "a\x00b\x07c \u200b\ufeff d",
    "Привет, 世界! שלום",
    "[[tEst]] <speak>&amp;</speak> \\pau=100\\",
    "e\u0301\u0302\u0303 \u0661\u0662\u0663",
)
_PAUSE_ALONE = "[pause 1s]"
_UNSPEAKABLE_TEXTS = ("", "   ", "...!?", "\n\t\n", _PAUSE_ALONE, "\u200b")


class SpeakerSuite:
    """Tests of a speech engine. Derive a class and set `engine`, and pytest collects the tests.

    The ``capabilities`` of the engine select the tests, because an engine may lack, for example, pitch, rate
    or pauses.

    Attributes
    ----------
    engine
        Class of the speech engine. Another process must be able to import the class by name.
    voice_id
        Id of the voice that speaks. With None (default), the engine's first English voice speaks, or its
        first voice if none is English.
    text
        At least two sentences in the language of the voice. The default is English.
    """

    engine: ClassVar[Callable[[], Any]]
    voice_id: ClassVar[str | None] = None
    text: ClassVar[str] = "The small boat sailed across the harbour. It was late, and nobody saw it."

    @property
    def speaker(self) -> Speaker:
        """The speech engine. It is created once and then cached."""
        speaker: Speaker = get_cached_engine(type(self).engine)
        return speaker

    @property
    def voice(self) -> EngineVoice:
        """The voice that speaks in these tests."""
        voices = self.speaker.voices()
        if self.voice_id is not None:
            return next(voice for voice in voices if voice.voice_id == self.voice_id)
        return next((voice for voice in voices if get_language(voice.locale) == "en"), voices[0])

    def say(self, text: str | None = None, **fields: Any) -> Speech:
        """Return the speech of an utterance (see :meth:`utterance`). Results are cached."""
        return _speak(type(self).engine, self.utterance(text, **fields))

    def utterance(self, text: str | None = None, **fields: Any) -> Utterance:
        """Return an utterance by `voice`, by default of `text` and without variation.

        `fields` sets further fields of the utterance.
        """
        plain: dict[str, Any] = {
            "voice_id": self.voice.voice_id,
            "locale": self.voice.locale,
            "variation": VARIATION.low,
            "pronunciations": {},
        }
        return Utterance(self.text if text is None else text, **(plain | fields))

    def test_it_has_the_attributes_of_a_speaker(self) -> None:
        check_engine_parts(self.speaker, SPEAKERS)

    def test_its_voices_are_valid_in_a_catalogue(self) -> None:
        voices = self.speaker.voices()
        assert len({voice.voice_id for voice in voices}) == len(voices), "no id is there twice"
        for voice in voices:
            assert voice.voice_id == f"{voice.locale}-{voice.name}"
            assert voice.locale in voice.supported_locales
            assert voice.display_name
            assert voice.models
            for details in voice.supported_locales.values():
                assert details.available_styles

    def test_it_speaks(self) -> None:
        speech = self.say()
        assert speech.samples.dtype == np.float32
        assert speech.samples.ndim == 1, "mono"
        assert 0.01 < np.abs(speech.samples).max() <= 1
        assert speech.sample_rate_hz >= 8000

    def test_words_have_the_order_of_the_text_and_times_inside_the_audio(self) -> None:
        speech = self.say()
        check_words(speech.words, speech.audio_seconds)
        assert [word.word for word in speech.words] == [token.shown for token in spoken_tokens(self.text)]
        assert all(word.end_ms > word.start_ms for word in speech.words), "each of them is heard"

    def test_words_have_the_times_of_their_sound(self) -> None:
        speech = self.say()
        level_db = measure.measure_frame_levels_db(speech.samples, speech.sample_rate_hz)
        for word in speech.words:
            heard_db = level_db[word.start_ms // 10 : word.end_ms // 10 + 1].max()
            assert heard_db > level_db.max() - 35, word

    def test_words_as_original_text_have_the_written_spelling(self) -> None:
        if not self.speaker.capabilities.original_text or get_language(self.voice.locale) != "en":
            return
        speech = self.say(words_as_original_text=True)
        assert [word.word for word in speech.words] == self.text.split()

    def test_equal_utterances_give_equal_bytes_in_any_order_and_process(self) -> None:
        able = self.speaker.capabilities
        pitch, rate = PITCH.high // 2 * able.pitch, RATE.high // 2 * able.rate
        calls = [
            (self.utterance(),),
            (self.utterance(variation=VARIATION.high * able.variation, take=3),),
            (self.utterance(pitch=pitch, rate=rate),),
        ]
        here = [hash_speech(_speak(type(self).engine, *call)) for call in calls]
        there = call_in_new_process(type(self).engine, "speak", calls[::-1], hash_speech)
        assert here == there[::-1]
        assert hash_speech(self.speaker.speak(*calls[0])) == here[0], "as before, after other texts"

    def test_takes_differ_only_with_variation(self) -> None:
        still = {hash_speech(self.say(take=take)) for take in range(3)}
        assert len(still) == 1
        if self.speaker.capabilities.variation:
            takes = {hash_speech(self.say(variation=1, take=take)) for take in range(3)}
            assert len(takes) == 3

    def test_the_rate_changes_the_length_but_not_the_pitch(self) -> None:
        if not self.speaker.capabilities.rate:
            return
        slow, plain, fast = (self.say(rate=rate) for rate in (RATE.low // 2, 0, RATE.high // 2))
        assert slow.audio_seconds > 1.15 * plain.audio_seconds > 1.15 * 1.15 * fast.audio_seconds
        for speech in (slow, fast):
            assert abs(measure_f0_hz(speech) / measure_f0_hz(plain) - 1) < 0.12

    def test_the_pitch_changes_but_not_the_length(self) -> None:
        if not self.speaker.capabilities.pitch:
            return
        heard = [self.say(pitch=pitch) for pitch in (PITCH.low // 2, 0, PITCH.high // 2)]
        for low, high in pairwise(heard):
            assert measure_f0_hz(high) > 1.05 * measure_f0_hz(low)
            assert abs(high.audio_seconds / low.audio_seconds - 1) < 0.05

    def test_a_requested_length_is_exact_to_the_frame(self) -> None:
        if not self.speaker.capabilities.audio_duration:
            return
        plain = self.say()
        for factor in (0.8, 1.0, 1.3):
            seconds = round(factor * plain.audio_seconds, 3)
            speech = self.say(audio_duration_s=seconds)
            assert len(speech.samples) == convert_seconds_to_frames(seconds, speech.sample_rate_hz)
            check_words(speech.words, speech.audio_seconds)
            assert [word.word for word in speech.words] == [word.word for word in plain.words]

    def test_a_pause_is_silent_for_its_length(self) -> None:
        if not self.speaker.capabilities.pauses:
            return
        first, _, second = self.text.partition(" ")
        speech = self.say(f"{first} [pause {_PAUSE_S}s] {second}")
        spans = measure.find_silences(speech.samples, speech.sample_rate_hz, below_db=40)
        longest_s = max(end_s - start_s for start_s, end_s in spans)
        assert _PAUSE_S - 0.05 < longest_s < _PAUSE_S + _PAUSE_EXCESS_S
        assert [word.word for word in speech.words] == [token.shown for token in spoken_tokens(self.text)]

    def test_a_pronunciation_changes_the_sound_but_not_the_written_word(self) -> None:
        if not self.speaker.capabilities.pronunciations:
            return
        word, other = self.say().words[1].word, self.say().words[-1].word
        said = {word.lower(): Pronunciation(type=PronunciationKind.SAY_AS, pronunciation=f"{other} {other}")}
        speech = self.speaker.speak(self.utterance(pronunciations=said))
        assert hash_speech(speech) != hash_speech(self.say())
        assert [heard.word for heard in speech.words] == [heard.word for heard in self.say().words]

    def test_every_style_of_the_voice_speaks(self) -> None:
        for style in self.voice.supported_locales[self.voice.locale].available_styles:
            speech = self.say(style=style)
            assert np.abs(speech.samples).max() > 0.01, style
            assert [word.word for word in speech.words] == [word.word for word in self.say().words], style

    def test_a_text_that_cannot_be_spoken_is_refused(self) -> None:
        for text in _UNSPEAKABLE_TEXTS:
            if text == _PAUSE_ALONE and not self.speaker.capabilities.pauses:
                continue
            assert catch_refusal(lambda text=text: self.speaker.speak(self.utterance(text)))  # type: ignore[misc]

    def test_an_unknown_voice_locale_or_style_is_refused(self) -> None:
        for field, value in (
            ("voice_id", "en-US-nobody-at-all"),
            ("locale", "tlh-QO"),
            ("style", "Nonesuch"),
        ):
            wrong = replace(self.utterance(), **{field: value})  # type: ignore[arg-type]
            assert catch_refusal(lambda wrong=wrong: self.speaker.speak(wrong))  # type: ignore[misc]

    def test_a_stream_yields_the_sentences_in_order(self) -> None:
        texts = streaming.split_sentences(self.text)
        pieces = list(streaming.stream(self.speaker, self.utterance()))
        assert len(pieces) == len(texts) > 1, "the suite's text has several sentences"
        assert all(piece.sample_rate_hz == pieces[0].sample_rate_hz for piece in pieces)
        for text, piece in zip(texts, pieces, strict=True):
            (alone,) = streaming.stream(self.speaker, self.utterance(text))
            assert np.array_equal(piece.samples[-len(alone.samples) :], alone.samples), text
            assert not piece.samples[: -len(alone.samples)].any(), "only silence comes before a sentence"
            check_words(piece.words, piece.audio_seconds)
        whole = self.say()
        seconds = sum(piece.audio_seconds for piece in pieces)
        assert abs(seconds - whole.audio_seconds) < 0.3 * whole.audio_seconds
        if self.speaker.capabilities.streaming:
            assert streaming.check(self.speaker, self.utterance()) == whole.warnings

    def test_a_stream_refuses_a_text_before_it_speaks(self) -> None:
        wrong = replace(self.utterance(), voice_id="xx-XX-nobody")
        assert catch_refusal(lambda: list(streaming.stream(self.speaker, wrong)))

    def test_odd_texts_are_spoken_or_refused_without_damage(self) -> None:
        before = hash_speech(self.say())
        for text in _ODD_TEXTS:
            try:
                speech = self.speaker.speak(self.utterance(text))
            except EngineError:
                continue
            assert np.isfinite(speech.samples).all(), text
            check_words(speech.words, speech.audio_seconds)
        assert hash_speech(self.speaker.speak(self.utterance())) == before


@lru_cache(maxsize=256)
def _speak(engine: Callable[[], Speaker], utterance: Utterance) -> Speech:
    speaker: Speaker = get_cached_engine(engine)
    return speaker.speak(utterance)
