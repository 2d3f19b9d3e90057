"""What is heard: sentences with their times, apart by speaker; scripts; and a voice for each speaker."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from speechframe.audio import codec
from speechframe.engines import registry
from speechframe.engines.base import Transcript, Utterance, Word
from speechframe.local.dubbing import hear, job
from speechframe.local.dubbing.cast import cast_speakers, list_voices
from speechframe.local.dubbing.folder import Refused, Task
from speechframe.local.engines.translation.routes import Routes
from speechframe.local.service.dubbing.languages import Languages
from speechframe.wire.cues import Cue

MAN, WOMAN = "en-US-miles", "en-US-nora"


class Listener:
    """A recogniser that knows what was said, and writes it down word by word, some of it too early."""

    def __init__(self, words, probability=1.0):
        self.words, self.probability = words, probability

    def recognise(self, recording, *, language=None, words=False):
        return Transcript("", "en", self.words, None if language else self.probability)


def dialogue(*turns, gap_s=0.1, early_ms=150):
    """Turns of voice and text over a soft hum: samples, words as they are recognised, true starts in ms."""
    parts, words, starts, at = [np.zeros(8000, np.float32)], [], [], 8000
    for voice_id, text in turns:
        speech = registry.load_speakers()["espeak"].speak(Utterance(text, voice_id=voice_id, locale="en-US"))
        samples = codec.resample(speech.samples, speech.sample_rate_hz, hear.RATE_HZ)
        heard = np.flatnonzero(np.abs(samples) > 0.01 * np.abs(samples).max())
        starts.append((at + heard[0]) * 1000 / hear.RATE_HZ)
        at_ms = at * 1000 // hear.RATE_HZ
        timed = [Word(w.word, at_ms + w.start_ms, at_ms + w.end_ms) for w in speech.words]
        # As written, signs and all.
        shown = [
            Word(word, each.start_ms, each.end_ms) for word, each in zip(text.split(), timed, strict=True)
        ]
        shown[0] = Word(shown[0].word, max(0, shown[0].start_ms - early_ms), shown[0].end_ms)
        words += shown
        parts += [samples, np.zeros(round(gap_s * hear.RATE_HZ), np.float32)]
        at += len(samples) + len(parts[-1])
    samples = np.concatenate(parts)
    hum = 0.003 * np.sin(2 * np.pi * 110 * np.arange(len(samples)) / hear.RATE_HZ)
    return (samples + hum).astype(np.float32), tuple(words), starts


def test_a_sentence_is_cut_where_the_speaker_changes_and_starts_with_its_sound():
    samples, words, starts = dialogue(
        (MAN, "Good morning and welcome to the shop"),
        (WOMAN, "thank you very much I am looking for a present."),
        (MAN, "What does she like?"),
    )
    _, found = hear.recognise(samples, Listener(words))
    assert [each.speaker for each in found] == ["Speaker 1", "Speaker 2", "Speaker 1"]
    assert [each.text.split()[0] for each in found] == ["Good", "thank", "What"]
    late_ms = [each.start_ms - start for each, start in zip(found, starts, strict=True)]
    assert all(-45 <= ms <= 125 for ms in late_ms), late_ms
    assert all(one.end_ms <= other.start_ms for one, other in pairwise(found))
    registers = hear.measure_registers_hz(samples, found)
    assert 60 < registers["Speaker 1"] < 150 < registers["Speaker 2"] < 300


@pytest.mark.parametrize(("gap_s", "most_ms"), [(1.0, 60), (0.05, 250)])
def test_an_utterance_is_audible_until_its_last_sound_has_died_away(gap_s, most_ms):
    samples, _, starts = dialogue((MAN, "That was the last house."), (WOMAN, "Yes."), gap_s=gap_s)
    end_ms = starts[1] - 1000 * gap_s
    early = Cue(round(starts[0]), round(end_ms) - 150, "")
    ((start_s, end_s),) = hear.find_audible_spans(samples, [early])
    assert start_s == pytest.approx(starts[0] / 1000, abs=0.001)
    assert -50 <= 1000 * end_s - end_ms <= most_ms


def test_one_voice_is_one_speaker_however_it_rises():
    samples, words, _ = dialogue(
        (WOMAN, "Are you sure that this is the right way?"),
        (WOMAN, "Yes, I am."),
        (WOMAN, "Really? Well, then go!"),
    )
    assert {each.speaker for each in hear.recognise(samples, Listener(words))[1]} == {"Speaker 1"}


def test_what_is_as_soft_as_the_background_is_no_sentence():
    samples, words, _ = dialogue(
        (MAN, "We also have bread from the village."), (WOMAN, "Honey would be perfect."), gap_s=1.0
    )
    end_ms = words[6].end_ms
    invented = Word("Much.", end_ms + 200, end_ms + 600)
    _, found = hear.recognise(samples, Listener((*words[:7], invented, *words[7:])))
    assert [each.text for each in found] == [
        "We also have bread from the village.",
        "Honey would be perfect.",
    ]


def test_a_language_counts_as_another_only_where_the_recogniser_is_sure():
    samples, words, _ = dialogue((MAN, "Good morning."))
    with pytest.raises(Refused, match=r"'en'.*'pt-BR'"):
        hear.recognise(samples, Listener(words, probability=0.95), locale="pt-BR")
    assert hear.recognise(samples, Listener(words, probability=0.5), locale="pt-BR")[0] == "pt-BR"
    assert hear.recognise(samples, Listener(words), locale="en-GB")[0] == "en-GB"


@pytest.mark.parametrize("seconds", [0.1, 28, 200])
def test_pieces_are_short_and_follow_each_other(seconds):
    samples = np.random.default_rng(1).normal(0, 0.1, int(seconds * hear.RATE_HZ)).astype(np.float32)
    pieces = list(hear._split_at_quiet(samples))
    assert [0, *(end for _, end in pieces)] == [*(start for start, _ in pieces), len(samples)]
    assert max(end - start for start, end in pieces) <= 28 * hear.RATE_HZ


class Medium(NamedTuple):
    seconds: float


def test_a_script_has_its_speakers_and_the_language_of_its_text():
    text = (
        "1\n00:00:00,500 --> 00:00:02,000\nANNA: Bom dia a todos,\nsejam bem-vindos.\n\n"
        "2\n00:00:02,500 --> 00:00:04,000\nBRUNO: Muito obrigado pela ajuda.\n\n"
        "3\n00:00:09,000 --> 00:00:10,000\nBRUNO: Tarde demais.\n"
    )
    locale, (found, warnings) = job._read_script(Task(targets=("en-US",), script=text), Medium(seconds=3.5))
    assert locale == "pt"
    assert [(each.speaker, each.text, each.end_ms) for each in found] == [
        ("ANNA", "Bom dia a todos, sejam bem-vindos.", 2000),
        ("BRUNO", "Muito obrigado pela ajuda.", 3500),
    ]
    assert any("1 cue not spoken, because the medium ends at 3.5 s" in words for words in warnings)


def test_speakers_have_voices_of_their_register_and_none_twice_while_there_are_others():
    known = list_voices()
    chosen = cast_speakers({"one": 100.0, "two": 210.0, "three": 95.0, "four": 0.0}, "pt-BR", known)
    assert len(set(chosen.values())) == 4
    genders = [known[chosen[name]].voice.gender.value for name in ("one", "two", "three")]
    assert genders == ["Male", "Female", "Male"]
    assert all("pt-BR" in known[voice_id].voice.supported_locales for voice_id in chosen.values())


@pytest.mark.parametrize(
    ("registers_hz", "genders"),
    [
        ((88.0, 138.0), ["Male", "Female"]),  # joaquim and helena
        ((138.0,), ["Female"]),
        ((119.0,), ["Male"]),
        ((132.0,), ["Male"]),
        ((128.0, 133.0), ["Male", "Male"]),
        ((142.0, 170.0), ["Female", "Female"]),
        ((140.0, 220.0), ["Male", "Female"]),
        ((95.0, 118.0), ["Male", "Male"]),
    ],
)
def test_a_register_is_judged_beside_those_of_the_others(registers_hz, genders):
    known = list_voices()
    chosen = cast_speakers(dict(zip("ab", registers_hz, strict=False)), "pt-BR", known)
    assert [known[voice_id].voice.gender.value for voice_id in chosen.values()] == genders


def test_a_wanted_voice_is_taken_where_it_speaks_the_locale():
    known = list_voices()
    wanted = {"one": "pt-BR-larissa", "two": "en-US-joe", "nobody": "pt-BR-caio"}
    chosen = cast_speakers({"one": 100.0, "two": 210.0}, "pt-BR", known, wanted)
    assert chosen["one"] == "pt-BR-larissa"
    assert chosen["two"] not in {"en-US-joe", "pt-BR-larissa"}
    assert cast_speakers({"one": 100.0}, "tlh-XX", known) == {}


def test_languages_are_those_that_the_engines_here_can_do():
    routes, speakers = Routes(registry.load_translators()), registry.load_speakers()
    found = Languages.load(routes, registry.load_recognisers(), speakers)
    assert ("pt-BR", "Portuguese (Brazil)") in [(one.locale, one.language) for one in hyphened(found)]
    for locale in found.targets:
        assert any(locale in voice.supported_locales for voice in found.voices.values())
        assert routes.list_sources(locale)
    assert {"en-US", "pt-BR"} <= {*found.sources} <= {*found.targets}
    assert Languages.load(routes, {}, speakers) == Languages()


def hyphened(found):
    return [one.model_copy(update={"locale": one.locale.replace("_", "-")}) for one in found.listed_targets]
