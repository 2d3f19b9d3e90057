"""Words of a text laid upon what a recogniser heard of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.audio import codec
from speechframe.engines import registry
from speechframe.engines.base import Utterance, Word
from speechframe.errors import AudioError, EngineError, SettingsError
from speechframe.recognition.alignment import WordAligner, align_words
from speechframe.spec.speech import ChannelType, Format

TEXT = "The committee meets at 10:30 on Tuesday, [pause 0.5s] in room 42."
WRITTEN = ["The", "committee", "meets", "at", "10:30", "on", "Tuesday", "in", "room", "42"]

some_words = st.lists(
    st.text("abcdefgé'-", min_size=1, max_size=8).filter(lambda w: any(map(str.isalnum, w)))
)


@st.composite
def heard_words(draw, words=some_words):
    """Words as a recogniser gives them: in order, sometimes touching, at odd places."""
    found, now = [], draw(st.integers(0, 300))
    for word in draw(words):
        start = now + draw(st.integers(0, 400))
        now = start + draw(st.integers(0, 900))
        found.append(Word(word, start, now))
    return found


@settings(max_examples=50)
@given(some_words, heard_words(), st.integers(1, 5000))
def test_words_are_the_texts_own_in_order_and_inside_the_audio(written, heard, audio_ms):
    try:
        found = align_words(written, heard, audio_ms)
    except EngineError:
        return
    assert [word for word, _, _ in found] == written
    times = [time for _, start, end in found for time in (start, end)]
    assert times == sorted(times)
    assert not times or (times[0] >= 0 and times[-1] <= audio_ms)


@settings(max_examples=30)
@given(heard_words())
def test_what_is_heard_as_it_is_written_has_the_recognisers_times(heard):
    written = [word.word for word in heard]
    assert align_words(written, heard, 10**7) == [(word.word, word.start_ms, word.end_ms) for word in heard]


def test_case_and_punctuation_make_no_difference():
    heard = [Word("WAIT,", 0, 300), Word("what's", 300, 700), Word("that?", 700, 900)]
    assert align_words(["wait", "What\u2019s", "that"], heard, 1000) == [
        ("wait", 0, 300), ("What\u2019s", 300, 700), ("that", 700, 900),
    ]  # fmt: skip


def test_what_is_heard_otherwise_shares_its_time_by_length():
    heard = [Word("the", 0, 100), Word("blue", 100, 200), Word("whale", 200, 400), Word("swims", 400, 500)]
    found = align_words(["the", "bluewhale", "swims"], heard, 500)
    assert found[1] == ("bluewhale", 100, 400)
    found = align_words(["the", "bl", "ue", "wale", "swims"], heard, 500)
    assert found[1:4] == [("bl", 100, 175), ("ue", 175, 250), ("wale", 250, 400)]


def test_what_is_not_heard_gets_what_lies_between_its_neighbours():
    heard = [Word("one", 100, 200), Word("three", 600, 700), Word("four", 700, 800)]
    found = align_words(["one", "two", "three", "four", "five"], heard, 1000)
    assert (found[1], found[4]) == (("two", 200, 600), ("five", 800, 1000))


@pytest.mark.parametrize("heard", [[], [Word("thanks", 0, 100), Word("bye", 100, 200)]])
def test_other_words_are_no_alignment(heard):
    with pytest.raises(EngineError, match="of the text's 17 letters were recognised"):
        align_words(["nobody", "saidanything"[:11]], heard, 1000)


def test_a_text_without_letters_has_no_words():
    assert align_words([], [Word("oh", 0, 100)], 1000) == []


@pytest.mark.slow
def test_a_real_voice_is_heard_where_it_speaks():
    speech = registry.load_speakers()["espeak"].speak(Utterance(TEXT, "en-US-nora", "en-US"))
    audio = codec.encode(
        speech.samples, speech.sample_rate_hz, format=Format.FLAC, channel_type=ChannelType.STEREO
    )
    aligner = WordAligner.find_installed()
    assert aligner.name.startswith("whisper ")
    shape = {"format": Format.FLAC, "sample_rate_hz": speech.sample_rate_hz, "channels": 2}
    found = aligner.align(audio, text=TEXT, locale="en-US", **shape)
    assert [word for word, _, _ in found] == WRITTEN
    spoken = {word.word: word.start_ms for word in speech.words}
    late_ms = sorted(abs(start - spoken[word]) for word, start, _ in found)
    assert late_ms[len(late_ms) // 2] < 150
    assert late_ms[-1] < 600
    with pytest.raises(EngineError, match="letters were recognised"):
        aligner.align(audio, text="Nothing of this kind was ever said by anybody.", locale="en-US", **shape)
    with pytest.raises(AudioError):
        aligner.align(b"no audio", text=TEXT, locale="en-US", **shape)


def test_without_a_recogniser_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(registry, "load_recognisers", dict)
    with pytest.raises(SettingsError, match=r"speechframe\[asr\].*Nothing was sent"):
        WordAligner.find_installed()


def test_a_recogniser_without_a_model_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_ASR_MODEL", str(tmp_path))
    with pytest.raises(SettingsError, match=r"without a model.bin.*speechframe\[asr\]"):
        WordAligner.find_installed()
