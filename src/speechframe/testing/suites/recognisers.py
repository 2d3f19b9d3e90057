"""Tests of the behaviour that all speech recognisers share."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from speechframe.audio import codec
from speechframe.engines.base import Recogniser, Recording, Speaker, Transcript, Utterance
from speechframe.engines.kinds import RECOGNISERS
from speechframe.spec.locales import get_language
from speechframe.testing.suites.common import (
    catch_refusal,
    check_engine_parts,
    check_words,
    get_cached_engine,
    measure_word_error,
    split_words,
)

_NOISE_RATE_HZ = 16_000
"""Sample rate of the clips without speech, such as silence and noise."""


class RecogniserSuite:
    """Tests of a speech recogniser. Derive a class and set `engine`, `speaker` and `voice_id`.

    Attributes
    ----------
    engine
        Class of the recogniser.
    speaker
        Class of the speech engine that speaks the clip (the recording to recognise). A subclass that defines
        its own :meth:`clip` needs no `speaker`.
    voice_id
        Id of the voice of the clip. It must begin with the locale, as in ``en-US-nora``.
    text
        Words that the clip contains. The default is an English sentence.
    most_errors
        Largest allowed word error rate (default 0.35).
    """

    engine: ClassVar[Callable[[], Any]]
    speaker: ClassVar[Callable[[], Any]]
    voice_id: ClassVar[str]
    text: ClassVar[str] = "She opened the old wooden door and looked outside."
    most_errors: ClassVar[float] = 0.35

    @property
    def recogniser(self) -> Recogniser:
        """The recogniser. It is created once and then cached."""
        recogniser: Recogniser = get_cached_engine(type(self).engine)
        return recogniser

    @property
    def locale(self) -> str:
        """Locale of the clip, from `voice_id`."""
        return "-".join(self.voice_id.split("-")[:2])

    def clip(self) -> Recording:
        """Return a recording of `text`."""
        return _speak_clip(type(self).speaker, Utterance(self.text, self.voice_id, self.locale, variation=0))

    def transcribe_clip(self, *, language: str | None = None, words: bool = False) -> Transcript:
        """Return the transcript of :meth:`clip`. Results are cached."""
        return _recognise_clip(type(self).engine, self.clip(), language, words)

    def test_it_has_the_attributes_of_a_recogniser(self) -> None:
        check_engine_parts(self.recogniser, RECOGNISERS)

    def test_it_recognises_the_words_in_a_given_language(self) -> None:
        found = self.transcribe_clip(language=get_language(self.locale))
        assert measure_word_error(self.text, found.text) <= self.most_errors, found.text
        assert found.language == get_language(self.locale)
        assert found.words == (), "words were not asked for"

    def test_it_detects_the_language_and_recognises_the_words(self) -> None:
        found = self.transcribe_clip(words=True)
        assert found.language == get_language(self.locale)
        assert measure_word_error(self.text, found.text) <= self.most_errors, found.text
        check_words(found.words, self.clip().audio_seconds)
        assert split_words(" ".join(word.word for word in found.words)) == split_words(found.text)

    def test_equal_clips_give_equal_texts(self) -> None:
        language = get_language(self.locale)
        again = self.recogniser.recognise(self.clip(), language=language)
        assert again == self.transcribe_clip(language=language)

    def test_the_sample_rate_of_a_clip_changes_few_words(self) -> None:
        clip = self.clip()
        other = Recording(codec.resample(clip.samples, clip.sample_rate_hz, 48_000), 48_000)
        found = self.recogniser.recognise(other, language=get_language(self.locale))
        assert measure_word_error(self.text, found.text) <= self.most_errors, found.text

    def test_silence_and_noise_give_no_words(self) -> None:
        noise = np.random.default_rng(0).standard_normal(3 * _NOISE_RATE_HZ)
        hum = np.sin(np.arange(3 * _NOISE_RATE_HZ, dtype=np.float32) * np.float32(0.17))
        for name, samples in {
            "silence": np.zeros(3 * _NOISE_RATE_HZ, np.float32),
            "noise": (0.1 * noise).astype(np.float32),
            "faint noise": (0.0005 * noise).astype(np.float32),
            "a hum": np.float32(0.3) * hum,
            "a click": np.eye(1, _NOISE_RATE_HZ, 500, dtype=np.float32)[0],
        }.items():
            for language in (None, get_language(self.locale)):
                found = self.recogniser.recognise(
                    Recording(samples, _NOISE_RATE_HZ), language=language, words=True
                )
                assert (found.text, found.words) == ("", ()), f"{name} ({language})"

    def test_an_empty_clip_gives_an_empty_text(self) -> None:
        assert self.recogniser.recognise(Recording(np.zeros(0, np.float32), _NOISE_RATE_HZ)).text == ""

    def test_an_unknown_language_is_refused(self) -> None:
        assert catch_refusal(lambda: self.recogniser.recognise(self.clip(), language="tlh"))
        assert catch_refusal(lambda: self.recogniser.recognise(self.clip(), language="no such language"))


@lru_cache(maxsize=8)
def _speak_clip(speaker: Callable[[], Speaker], utterance: Utterance) -> Recording:
    speech = get_cached_engine(speaker).speak(utterance)
    return Recording(speech.samples, speech.sample_rate_hz)


@lru_cache(maxsize=64)
def _recognise_clip(
    engine: Callable[[], Recogniser],
    clip: Recording,
    language: str | None,
    words: bool,  # noqa: FBT001
) -> Transcript:
    recogniser: Recogniser = get_cached_engine(engine)
    return recogniser.recognise(clip, language=language, words=words)
