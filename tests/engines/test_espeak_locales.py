"""Every locale speaks a sentence of its own: all of it, and each word when it is heard."""

import re
import unicodedata

import numpy as np
import pytest

from speechframe.audio import measure
from speechframe.local.engines.espeak import library as espeak_library
from speechframe.local.engines.espeak.voices import list_espeak_voices
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.spec.locales import get_language, normalise

RATE_HZ = 22050
BOUNDARY_MS = 60
PAUSE = ",،、，。፣"

FIRST_VOICE = {voice.locale: voice.name for voice in reversed(list_espeak_voices().values())}


def test_there_are_many_locales_and_each_has_a_sentence(sentences):
    assert len(LOCALES) >= 70
    assert set(sentences) == set(LOCALES)
    assert all(normalise(tag) == tag for tag in LOCALES)


def test_the_sentence_of_a_locale_is_spoken_whole_and_each_word_when_it_is_heard(say, sentences, locale):
    sentence = sentences[locale]
    speech = say(sentence["text"], FIRST_VOICE[locale])
    one_entry_per_spoken_word(speech, sentence, locale)
    words_are_in_order_inside_the_audio_and_take_time(speech, sentence, locale)
    words_beside_a_pause_end_and_begin_with_the_sound(speech, sentence, locale)
    the_first_and_last_word_touch_the_ends_of_the_sound(speech, sentence, locale)
    nothing_is_spelled_out_or_read_as_another_language(speech, sentence, locale)


def one_entry_per_spoken_word(speech, sentence, locale):
    assert len(speech.words) == sentence["words"]
    assert speech.warnings == ()
    shown = "".join(word.word for word in speech.words)
    assert shown == "".join(filter(_is_in_a_word, sentence["text"]))


def words_are_in_order_inside_the_audio_and_take_time(speech, sentence, locale):
    at_ms = 0
    for word in speech.words:
        assert at_ms <= word.start_ms < word.end_ms
        at_ms = word.end_ms
    assert at_ms <= 1000 * speech.audio_seconds


def words_beside_a_pause_end_and_begin_with_the_sound(speech, sentence, locale):
    text = sentence["text"]
    silent_ms = [
        (1000 * start_s, 1000 * end_s)
        for start_s, end_s in measure.find_silences(
            speech.samples, RATE_HZ, shortest_ms=90, below_db=40, frame_ms=10
        )
        if end_s < speech.audio_seconds - 0.02
    ]
    # The text says which word stands before the comma; its pause is the silence nearest to it.
    inside = [match.start() for match in re.finditer(f"[{PAUSE}]", text) if match.end() < len(text)]
    checked = 0
    for position in inside:
        before = _words_in(text[:position], locale)
        if before >= len(speech.words):
            continue
        last, first = speech.words[before - 1], speech.words[before]
        pauses = [span for span in silent_ms if span[0] < first.start_ms and span[1] > last.end_ms]
        assert pauses, f"no pause is heard between {last} and {first}"
        start_ms, end_ms = max(pauses, key=lambda span: span[1] - span[0])
        assert abs(last.end_ms - start_ms) <= BOUNDARY_MS
        assert abs(first.start_ms - end_ms) <= BOUNDARY_MS
        checked += 1
    assert checked


def the_first_and_last_word_touch_the_ends_of_the_sound(speech, sentence, locale):
    level_db = measure.measure_frame_levels_db(speech.samples, RATE_HZ, 5)
    heard_ms = 5 * np.flatnonzero(level_db > level_db.max() - 40)
    assert abs(speech.words[0].start_ms - heard_ms[0]) <= BOUNDARY_MS
    assert abs(speech.words[-1].end_ms - heard_ms[-1]) <= BOUNDARY_MS
    # No garbage and no long silence around what is said.
    assert heard_ms[0] <= 30
    assert heard_ms[-1] >= 1000 * speech.audio_seconds - 60


def nothing_is_spelled_out_or_read_as_another_language(speech, sentence, locale):
    """What a language cannot read it spells: then a word takes seconds."""
    language = LOCALES[locale].language
    rendered = espeak_library.render_speech(sentence["text"], espeak_library.EspeakSetting(language, 165))
    seconds = len(rendered.samples) / rendered.sample_rate_hz
    assert 0.15 < seconds / sentence["words"] < 0.8


@pytest.mark.parametrize("locale_", ["ru-RU", "ar-SA", "am-ET", "te-IN", "zh-CN", "ja-JP"])
def test_own_script_is_read_here_and_left_out_elsewhere(say, sentences, locale_):
    text = sentences[locale_]["text"]
    speech = say(f"Hello {text}")
    assert [word.word for word in speech.words] == ["Hello"]
    assert "left out" in speech.warnings[0]
    assert all(LOCALES[locale_].can_read(letter) for letter in text if letter.isalpha())


@pytest.mark.parametrize("locale_", ["hi-IN", "el-GR", "ko-KR"])
def test_scripts_that_the_engine_reads_in_any_language_are_read(say, sentences, locale_):
    text = sentences[locale_]["text"]
    speech = say(f"Hello {text}")
    assert len(speech.words) == 1 + sentences[locale_]["words"]
    assert speech.warnings == ()


def test_each_locale_is_spoken_by_its_own_language():
    """The engine reads some scripts in any language, so a wrong one would hardly be heard."""
    called = {"zh": "cmn"}
    for tag, locale in LOCALES.items():
        language = get_language(tag)
        name = locale.language.rpartition("/")[2].lower()
        assert name.partition("-")[0] == called.get(language, language)


def _is_in_a_word(character):
    return character in "'-" or unicodedata.category(character)[0] not in "PZ"


def _words_in(text, locale):
    if LOCALES[locale].characters_are_words:
        return len(re.sub(r"\W", "", text))
    return len(re.findall(r"[^\s。]+", text))
