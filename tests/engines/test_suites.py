"""The suites for authors of engines notice engines that do what they should not: each one here is spoiled in one way."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from speechframe.engines.base import Recording, Speech, Transcript, Utterance
from speechframe.errors import EngineError
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.world.changer import WorldChanger
from speechframe.spec.texts import split_pauses
from speechframe.testing.suites import ChangerSuite, RecogniserSuite, SpeakerSuite

SAID = "Hello there. Nobody saw it."


def suite_of(suite, **fields):
    return type("Spoiled", (suite,), fields)()


def heard(speech, samples, **other):
    return replace(speech, samples=samples.astype(np.float32), **other)


# Speech engines


def spoiled_speaker(spoil):
    """Return a class of espeak whose answers are spoiled: ``spoil(speak, utterance)``."""
    return type(
        "Spoiled", (EspeakSpeaker,), {"speak": lambda self, told: spoil(super(type(self), self).speak, told)}
    )


def without(**fields):
    """Return an engine that ignores some fields."""
    return spoiled_speaker(lambda speak, told: speak(replace(told, **fields)))


def of_the_speech(change):
    return spoiled_speaker(lambda speak, told: change(speak(told)))


class Elsewhere(EspeakSpeaker):
    """Speaks otherwise in each process."""

    def speak(self, utterance):
        said = super().speak(utterance)
        return heard(said, said.samples * (1 + os.getpid() % 997 / 1e4))


class Twice(EspeakSpeaker):
    """Has each voice twice."""

    def voices(self):
        return [*super().voices()] * 2


class Nameless(EspeakSpeaker):
    """Has no version to tell."""

    version = ""


class Shy(EspeakSpeaker):
    """Is quieter after a text that it could not speak."""

    tired = 1.0

    def speak(self, utterance):
        try:
            said = super().speak(utterance)
        except EngineError:
            self.tired = 0.5
            raise
        return heard(said, said.samples * self.tired)


class Hurried(EspeakSpeaker):
    """Leaves the last sentence out of its streams."""

    def stream(self, utterance):
        yield from list(super().stream(utterance))[:-1]


class Obliging(EspeakSpeaker):
    """Streams whatever it is asked for."""

    def check(self, utterance):
        return ()

    def stream(self, utterance):
        yield Speech(np.zeros(100, np.float32), 22050, ())


def takes_always_count(speak, told):
    said = speak(told)
    return heard(said, said.samples * (1 - told.take / 100))


def plain_style_alone(speak, told):
    said = speak(told)
    return said if told.style in {None, "Conversational"} else heard(said, said.samples * 0)


def says_pauses(speak, told):
    pauseless = " ".join(part for part in split_pauses(told.text) if isinstance(part, str))
    return speak(replace(told, text=pauseless))


def speaks_anything(speak, told):
    try:
        return speak(told)
    except EngineError:
        return Speech(np.zeros(100, np.float32), 22050, ())


SPOILED_SPEAKERS = {
    "it_has_the_attributes_of_a_speaker": Nameless,
    "its_voices_are_valid_in_a_catalogue": Twice,
    "it_speaks": of_the_speech(lambda said: heard(said, said.samples * 0)),
    "words_have_the_order_of_the_text_and_times_inside_the_audio": of_the_speech(
        lambda said: replace(said, words=said.words[:-1])
    ),
    "words_have_the_times_of_their_sound": of_the_speech(
        lambda said: heard(said, np.concatenate([np.zeros(66150), said.samples]))
    ),
    "words_as_original_text_have_the_written_spelling": without(words_as_original_text=False),
    "equal_utterances_give_equal_bytes_in_any_order_and_process": Elsewhere,
    "takes_differ_only_with_variation": without(take=0),
    "the_rate_changes_the_length_but_not_the_pitch": without(rate=0),
    "the_pitch_changes_but_not_the_length": without(pitch=0),
    "a_requested_length_is_exact_to_the_frame": of_the_speech(lambda said: heard(said, said.samples[:-1])),
    "a_pause_is_silent_for_its_length": spoiled_speaker(says_pauses),
    "a_pronunciation_changes_the_sound_but_not_the_written_word": without(pronunciations={}),
    "every_style_of_the_voice_speaks": spoiled_speaker(plain_style_alone),
    "a_text_that_cannot_be_spoken_is_refused": spoiled_speaker(speaks_anything),
    "an_unknown_voice_locale_or_style_is_refused": without(style=None),
    "a_stream_yields_the_sentences_in_order": Hurried,
    "a_stream_refuses_a_text_before_it_speaks": Obliging,
    "odd_texts_are_spoken_or_refused_without_damage": Shy,
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [name for name in dir(SpeakerSuite) if name.startswith("test_")])
def test_a_speaker_that_is_spoiled_fails(name):
    test = name.removeprefix("test_")
    with pytest.raises(AssertionError):
        getattr(suite_of(SpeakerSuite, engine=SPOILED_SPEAKERS[test], text=SAID), name)()


def test_a_take_that_counts_without_variation_fails():
    suite = suite_of(SpeakerSuite, engine=spoiled_speaker(takes_always_count), text=SAID)
    with pytest.raises(AssertionError):
        suite.test_takes_differ_only_with_variation()


PLAIN_ENGINE = """
import numpy as np
from speechframe.engines.base import Capabilities
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.errors import EngineError


class Plain(EspeakSpeaker):
    \"\"\"Speaks a text and can do nothing else.\"\"\"

    name = "plain"
    capabilities = Capabilities()

    def speak(self, utterance):
        odd = utterance.pitch or utterance.rate or utterance.audio_duration_s or utterance.variation
        if odd or utterance.words_as_original_text or utterance.pronunciations or "[pause" in utterance.text:
            raise EngineError("this engine is asked for what it cannot do")
        return super().speak(utterance)


class Silent(Plain):
    def speak(self, utterance):
        said = super().speak(utterance)
        return type(said)(said.samples * np.float32(0), said.sample_rate_hz, said.words)
"""
PLAIN_TESTS = """
from plain_engine import Plain, Silent
from speechframe.testing.suites import SpeakerSuite


class TestPlain(SpeakerSuite):
    engine = Plain
    text = "Hello there. Nobody saw it."


class TestSilent(SpeakerSuite):
    engine = Silent
    text = "Hello there. Nobody saw it."
"""


@pytest.mark.slow
def test_in_another_package_an_engine_without_abilities_passes_and_a_failure_shows_its_values(tmp_path):
    (tmp_path / "plain_engine.py").write_text(PLAIN_ENGINE)
    (tmp_path / "test_plain.py").write_text(PLAIN_TESTS)
    asked = "pitch or rate or pause or equal or takes or refused"
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-k",
            f"TestSilent and it_speaks or TestPlain and ({asked})",
            "test_plain.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 9 passed" in ended.stdout, ended.stdout[-3000:]
    assert re.search(r"E +AssertionError: assert 0\.01 < .*0\.0", ended.stdout), "the values are shown"


# Voice changers

CLIP = Utterance("The boat sailed home.", "en-US-miles", "en-US", variation=0)


def spoiled_changer(spoil):
    def change(self, recording, conversion, *, speak):
        return spoil(lambda *told: super(type(self), self).change(*told, speak=speak), recording, conversion)

    return type("Spoiled", (WorldChanger,), {"change": change})


class ElsewhereChanged(WorldChanger):
    """Changes otherwise in each process."""

    def change(self, recording, conversion, *, speak):
        said = super().change(recording, conversion, speak=speak)
        return heard(said, said.samples * (1 + os.getpid() % 997 / 1e4))


class NamelessChanger(WorldChanger):
    """Has no version to tell."""

    version = ""


def in_place(change, recording, conversion):
    recording.samples[:] *= 0.5
    return change(recording, conversion)


def silence_too(change, recording, conversion):
    try:
        return change(recording, conversion)
    except EngineError:
        return Speech(recording.samples, recording.sample_rate_hz, ())


def of_the_change(spoil):
    return spoiled_changer(lambda change, clip, how: spoil(change(clip, how), how))


def into_one_voice(change, recording, conversion):
    return change(recording, replace(conversion, voice_id="en-US-nora"))


SPOILED_CHANGERS = {
    "it_has_the_attributes_of_a_changer": NamelessChanger,
    "the_result_is_mono_and_has_no_words": of_the_change(
        lambda said, _: heard(said, np.stack([said.samples, said.samples]))
    ),
    "the_given_clip_is_not_modified": spoiled_changer(in_place),
    "equal_calls_give_equal_bytes_in_any_order_and_process": ElsewhereChanged,
    "without_variation_every_take_is_the_same": of_the_change(
        lambda said, how: heard(said, said.samples * (1 - how.take / 100))
    ),
    "a_requested_length_is_exact_to_the_sample": of_the_change(
        lambda said, _: heard(said, said.samples[:-1])
    ),
    "without_a_requested_length_the_length_is_that_of_the_clip": of_the_change(
        lambda said, _: heard(said, np.resize(said.samples, round(1.03 * len(said.samples))))
    ),
    "the_result_has_the_pitch_of_the_target_voice": spoiled_changer(into_one_voice),
    "clips_of_all_usual_sample_rates_are_accepted": spoiled_changer(
        lambda change, clip, how: change(Recording(clip.samples, 22050), how)
    ),
    "silence_is_refused": spoiled_changer(silence_too),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in dir(ChangerSuite) if name.startswith("test_")])
def test_a_changer_that_is_spoiled_fails(name):
    test = name.removeprefix("test_")
    with pytest.raises(AssertionError):
        getattr(suite_of(ChangerSuite, engine=SPOILED_CHANGERS[test], source=CLIP), name)()


# Recognisers


class Ear:
    """Knows what is said by how long it is, as no recogniser does, and hears nothing in steady sound."""

    name = "ear"
    version = "1"
    invented = ""

    def recognise(self, recording, *, language=None, words=False):
        del words
        if language in {"tlh", "no such language"}:
            raise EngineError("no such language")
        seconds = recording.audio_seconds
        text = RecogniserSuite.text if 2 < seconds < 2.9 else self.invented
        return Transcript(text, "en")


class Dreamer(Ear):
    """Writes what nobody said."""

    invented = "Thanks for watching!"


@pytest.mark.parametrize("name", ["silence_and_noise_give_no_words", "an_empty_clip_gives_an_empty_text"])
def test_a_recogniser_that_invents_fails(name):
    fields = {"speaker": EspeakSpeaker, "voice_id": "en-US-nora"}
    getattr(suite_of(RecogniserSuite, engine=Ear, **fields), f"test_{name}")()
    with pytest.raises(AssertionError):
        getattr(suite_of(RecogniserSuite, engine=Dreamer, **fields), f"test_{name}")()
