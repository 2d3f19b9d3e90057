"""Voices differ, are what they say, and sound clean; measured, not believed."""

import itertools
from collections import Counter

import numpy as np
import pytest

from speechframe.audio import measure
from speechframe.errors import EngineError
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.espeak.voices import STYLES
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.spec.speech import Gender, Model

RATE_HZ = 22050

FIXED = {
    "en-US": "nora miles ruby hank",
    "en-GB": "edith oscar",
    "es-ES": "lucia mateo alba bruno",
    "es-MX": "ximena diego",
    "fr-FR": "camille hugo elise remi",
    "de-DE": "greta jonas frieda emil",
    "pt-BR": "larissa caio bianca davi",
    "it-IT": "giulia marco chiara dante",
    "hi-IN": "asha rohan meera vikram",
    "zh-CN": "mei wei lan jun",
}
LARGE = ["en-US", "es-ES", "fr-FR", "de-DE", "pt-BR", "it-IT", "hi-IN", "zh-CN"]
VOICES = {voice.voice_id: voice for voice in EspeakSpeaker().voices()}
TEXT = "The small boat sailed across the quiet harbour before the storm."


def sound(say, voice, text, locale=None, **fields):
    samples = say(text, voice.name, locale, **fields).samples
    return measure.median_f0_hz(samples, RATE_HZ), measure.measure_formants_hz(samples, RATE_HZ)


def test_the_names_people_know_are_there():
    for locale, names in FIXED.items():
        for name in names.split():
            assert VOICES[f"{locale}-{name}"].locale == locale


def test_ids_and_names_are_unique_over_both_catalogues():
    names = Counter(voice.name for voice in VOICES.values())
    assert max(names.values()) == 1
    assert all(voice_id == f"{voice.locale}-{voice.name}" for voice_id, voice in VOICES.items())


def test_every_locale_has_a_female_and_a_male_voice_in_gen2():
    for locale in LOCALES:
        genders = {
            voice.gender for voice in VOICES.values() if voice.locale == locale and Model.GEN2 in voice.models
        }
        assert {Gender.FEMALE, Gender.MALE} <= genders


def test_the_catalogues_are_separate_and_differ():
    by_model = {model: [voice for voice in VOICES.values() if model in voice.models] for model in Model}
    assert all(len(voice.models) == 1 for voice in VOICES.values())
    locales = {model: {voice.locale for voice in voices} for model, voices in by_model.items()}
    assert locales[Model.FALCON_2] < locales[Model.GEN2]
    assert len(locales[Model.FALCON_2]) >= 20
    styles = {
        model: {style for voice in voices for style in voice.supported_locales[voice.locale].available_styles}
        for model, voices in by_model.items()
    }
    assert styles[Model.FALCON_2] == {"Conversational", "Narration"}
    assert styles[Model.GEN2] == set(STYLES)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("locale_", LARGE)
def test_the_voices_of_a_large_language_differ_in_pairs(say, sentences, locale_):
    voices = [VOICES[f"{locale_}-{name}"] for name in FIXED[locale_].split()]
    assert len(voices) >= 4
    sounds = {voice.name: sound(say, voice, sentences[locale_]["text"]) for voice in voices}
    for (one, (f0, formants)), (other, (other_f0, other_formants)) in itertools.combinations(
        sounds.items(), 2
    ):
        by_pitch = max(f0, other_f0) / min(f0, other_f0) - 1
        by_formants = np.exp(np.abs(np.log(formants / other_formants)).mean()) - 1
        assert by_pitch >= 0.15 or by_formants >= 0.08, (one, other, by_pitch, by_formants)


@pytest.mark.sampled(5)
def test_every_voice_sounds_like_its_gender_and_is_clean(say, sentences, locale):
    for voice in VOICES.values():
        if voice.locale != locale:
            continue
        samples = say(sentences[locale]["text"], voice.name).samples
        f0_hz = measure.median_f0_hz(samples, RATE_HZ)
        low, high = {Gender.FEMALE: (150, 265), Gender.MALE: (65, 140), Gender.NON_BINARY: (135, 165)}[
            voice.gender
        ]
        assert low < f0_hz < high, voice.voice_id
        assert measure.measure_loudness_lufs(samples, RATE_HZ) == pytest.approx(-24, abs=2.5), voice.voice_id
        assert measure.measure_peak(samples) <= 0.9
        # The pause between words is silent: no echo, no noise floor.
        inside = [
            span
            for span in measure.find_silences(samples, RATE_HZ, shortest_ms=90, below_db=40)
            if span[0] > 0.1 and span[1] < len(samples) / RATE_HZ - 0.1
        ]
        for start_s, end_s in inside:
            pause = samples[round((start_s + 0.03) * RATE_HZ) : round((end_s - 0.03) * RATE_HZ)]
            assert measure.measure_rms_db(pause) < -90, voice.voice_id


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["ximena", "nora", "hank", "olga"])
def test_all_supported_locales_are_spoken_by_the_same_voice(say, sentences, name):
    voice = next(voice for voice in VOICES.values() if voice.name == name)
    at_home, _ = sound(say, voice, sentences[voice.locale]["text"])
    for locale in voice.supported_locales:
        speech = say(sentences[locale]["text"], name, locale)
        assert len(speech.words) == sentences[locale]["words"]
        f0_hz = measure.median_f0_hz(speech.samples, RATE_HZ)
        assert f0_hz == pytest.approx(at_home, rel=0.15), (name, locale)


def test_another_locale_is_another_pronunciation(say):
    american, british, french = (
        say("I can't dance in the bath.", "nora", tag).samples for tag in ("en-US", "en-GB", "fr-FR")
    )
    assert american.tobytes() != british.tobytes() != french.tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["nora", "hank", "asha"])
def test_styles_really_differ(say, sentences, name):
    voice = next(voice for voice in VOICES.values() if voice.name == name)
    text = sentences[voice.locale]["text"]
    styles = voice.supported_locales[voice.locale].available_styles
    assert len(styles) == 8
    figures = {}
    for style in styles:
        speech = say(text, name, style=style)
        f0_hz, _ = measure.f0_track(speech.samples, RATE_HZ)
        f0_hz = f0_hz[f0_hz > 0]
        low, middle, high = np.percentile(f0_hz, [15, 50, 85])
        figures[style] = (speech.audio_seconds, middle, high / low - 1)
    for (one, a), (other, b) in itertools.combinations(figures.items(), 2):
        seconds, pitch, range_ = (max(x, y) / min(x, y) - 1 for x, y in zip(a, b, strict=True))
        assert seconds >= 0.07 or pitch >= 0.07 or range_ >= 0.3, (one, other, seconds, pitch, range_)


def test_no_style_is_the_first_and_case_does_not_matter(say):
    assert say(TEXT).samples.tobytes() == say(TEXT, style="Conversational").samples.tobytes()
    assert say(TEXT, style="promo").samples.tobytes() == say(TEXT, style="Promo").samples.tobytes()


@pytest.mark.parametrize(
    ("name", "locale_", "style", "words"),
    [
        ("nora", None, "Shouting", "no style 'Shouting' in en-US; it has Conversational, Narration"),
        ("nora", "fr-FR", "Promo", "no style 'Promo' in fr-FR; it has Conversational, Narration"),
        ("ivy", None, "Promo", "no style"),
        ("nora", "ja-JP", None, "does not speak 'ja-JP'; it speaks en-US"),
        ("nora", "en-AU", None, "does not speak 'en-AU'; it speaks en-US, en-GB"),
    ],
)
def test_what_a_voice_cannot_do_is_said_with_what_it_can(say, name, locale_, style, words):
    with pytest.raises(EngineError, match=words):
        say(TEXT, name, locale_, style=style)
