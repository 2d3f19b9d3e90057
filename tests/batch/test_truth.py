"""Answers of the real service raise no doubt; the same answers, spoiled, do."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from speechframe.audio import codec
from speechframe.old_batch.operation import Planned
from speechframe.old_batch.pace import Pace, load_of
from speechframe.old_batch.truth import Suspicion, Truth
from speechframe.old_batch.wording import coverage
from speechframe.old_client import Call, Spoken, SyncClient
from speechframe.spec.speech import Format, GenerateRequest

DATASETS = Path(__file__).parents[2] / "datasets"
RATE_HZ = 8000
ODD = [
    "Hi.",
    "12",
    "1,234.56",
    "%s",
    "Dr. No",
    "HTTP 404",
    "👍 great",
    "Wait. [pause 3s]",
    "www.example.com/a?b=c",
]
TEXT = "The train to the harbour leaves at noon, and nobody will wait for us."


def planned_of(request):
    locale = request.locale or request.voice_id[:5]
    return Planned(
        "0" * 32, 0, Call.of(request), 1, 1, request.text, request.voice_id, locale, "gen2", "FLAC"
    )


def request_of(text, voice="en-US-nora", **fields):
    shape = {"format": Format.FLAC, "sample_rate": RATE_HZ, "encode_as_base64": True}
    return GenerateRequest(text=text, voice_id=voice, **shape, **fields)


def written(samples, format=Format.FLAC):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE_HZ, format=format.value, subtype="PCM_16")
    return buffer.getvalue()


def sounding(answer, samples, **fields):
    """The answer with other samples, and all that follows from them."""
    return replace(
        answer,
        audio=written(samples),
        audio_seconds=len(samples) / RATE_HZ,
        **{"said_seconds": None, **fields},
    )


def samples_of(answer):
    return codec.decode(answer.audio).samples


def codes(found):
    return {doubt.code.value for doubt in found}


@pytest.fixture(scope="module")
def client(service):
    with SyncClient(service.settings) as made:
        yield made


@pytest.fixture(scope="module")
def heard(client):
    """Requests and answers: lines of every shipped locale, and odd texts."""
    lines = pd.read_csv(DATASETS / "demo.csv")
    requests = [request_of(row.text, row.voice) for row in lines.itertuples()]
    requests += [request_of(text) for text in ODD]
    return [(planned_of(request), client.call(Call.of(request))) for request in requests]


@pytest.fixture(scope="module")
def one(client):
    request = request_of(TEXT)
    return planned_of(request), client.call(Call.of(request))


def doubts_of(planned, answer, said_seconds=None):
    return codes(Truth().doubts(planned, replace(answer, said_seconds=said_seconds)))


def test_answers_of_the_real_service_raise_no_doubt(heard):
    truth = Truth()
    found = {p.text: truth.doubts(p, replace(a, said_seconds=a.audio_seconds)) for p, a in heard}
    assert {text: doubts for text, doubts in found.items() if doubts} == {}


@pytest.mark.parametrize("format", Format)
def test_no_format_raises_a_doubt(client, format):
    request = request_of(TEXT).model_copy(update={"format": format, "sample_rate": 24000.0})
    answer = client.call(Call.of(request))
    assert Truth().doubts(planned_of(request), replace(answer, said_seconds=answer.audio_seconds)) == ()


def test_an_asked_length_is_what_counts(client):
    request = request_of(TEXT, audio_duration=9.0)
    answer = client.call(Call.of(request))
    assert doubts_of(planned_of(request), answer) == set()
    assert doubts_of(planned_of(request), sounding(answer, samples_of(answer)[: 5 * RATE_HZ], words=[])) == {
        "pace"
    }


def test_half_of_the_audio_is_not_the_answer(one):
    planned, answer = one
    samples = samples_of(answer)
    half = sounding(answer, samples[: len(samples) // 2])
    assert doubts_of(planned, half, answer.audio_seconds) == {"length", "words_outside"}
    assert doubts_of(planned, replace(answer, audio=answer.audio[: len(answer.audio) // 2])) == {
        "undecodable"
    }


def test_an_answer_much_too_long_is_seen(one):
    planned, answer = one
    assert "pace" in doubts_of(planned, sounding(answer, np.tile(samples_of(answer), 10)))
    assert "words_missing" in doubts_of(planned, sounding(answer, np.tile(samples_of(answer), 2)))


def test_of_a_length_that_cannot_be_only_the_beginning_is_heard(one):
    planned, answer = one
    # Nearly silent, and of as many bytes as a tone: a place in the middle is one of it.
    hiss = np.random.default_rng(2).integers(-9, 10, 1 << 22, np.int16)
    tone = (np.sin(np.arange(1 << 16) / 4) * 9000).astype(np.int16)
    late = sounding(answer, np.concatenate([hiss, tone, hiss[: 1 << 14]]), words=[])
    assert doubts_of(planned, late, said_seconds=1.0) == {"length", "pace", "silent"}
    # As long as was asked for, it is heard to its end.
    asked = planned_of(request_of(TEXT, audio_duration=late.audio_seconds))
    assert doubts_of(asked, late, said_seconds=late.audio_seconds) == set()


def test_silence_hiss_and_noise_are_no_speech(one):
    planned, answer = one
    frames = len(samples_of(answer))
    random = np.random.default_rng(5)
    assert doubts_of(planned, sounding(answer, np.zeros(frames, np.int16))) == {"silent"}
    hiss = (random.standard_normal(frames) * 20).astype(np.int16)
    assert doubts_of(planned, sounding(answer, hiss)) == {"silent"}
    garbage = replace(answer, audio=random.bytes(2 * frames), format=Format.PCM)
    assert doubts_of(planned, garbage) == {"noise"}
    assert doubts_of(planned, replace(garbage, audio=random.bytes(frames), format=Format.ULAW)) == {"noise"}


@pytest.mark.parametrize("format", [Format.WAV, Format.FLAC])
def test_audio_made_too_loud_is_clipped_and_audio_made_loud_is_not(one, format):
    planned, answer = one
    samples = samples_of(answer)
    normal = samples / np.abs(samples).max()
    for gain, expected in ((1.0, set()), (4.0, {"clipped"})):
        loud = replace(answer, audio=written(np.clip(normal * gain, -1, 1), format), format=format)
        assert doubts_of(planned, loud) == expected


@pytest.mark.parametrize("factor", [0.8, 1.2, 0.0, float("nan"), float("inf"), -1.0])
def test_a_wrong_length_is_told_in_figures(one, factor):
    planned, answer = one
    said = answer.audio_seconds * factor
    (doubt,) = Truth().doubts(planned, replace(answer, said_seconds=said))
    assert doubt.code is Suspicion.LENGTH
    assert doubt.words == f"the answer says {said:.2f} s, the audio holds {answer.audio_seconds:.2f} s"


def test_words_outside_the_audio_are_seen(one):
    planned, answer = one
    late = [(word, start + 3000, end + 3000) for word, start, end in answer.words]
    assert "words_outside" in doubts_of(planned, replace(answer, words=late))
    early = [(word, start - 3000, end) for word, start, end in answer.words]
    assert "words_outside" in doubts_of(planned, replace(answer, words=early))


def test_words_of_another_text_are_seen(heard, one):
    planned, answer = one
    for other, others in heard:
        if other.locale == "en-US" and len(other.text) > 30:
            scale = answer.audio_seconds / others.audio_seconds
            words = [(word, int(start * scale), int(end * scale)) for word, start, end in others.words]
            assert "words_missing" in doubts_of(planned, replace(answer, words=words)), other.text


def test_words_for_half_of_the_text_are_too_few(one):
    planned, answer = one
    half = len(answer.words) // 2
    assert "words_missing" in doubts_of(planned, replace(answer, words=answer.words[:half]))
    assert "words_missing" in doubts_of(planned, replace(answer, words=answer.words[half:]))


def test_missing_words_are_odd_only_where_words_are_usual(one):
    planned, answer = one
    truth = Truth()
    assert truth.doubts(planned, replace(answer, words=[])) == ()
    for _ in range(20):
        assert truth.doubts(planned, answer) == ()
    assert "words_missing" in codes(truth.doubts(planned, replace(answer, words=[])))


def test_only_latin_letters_may_be_a_transcription():
    assert coverage("你好世界", [("nǐhǎo", 0, 500), ("shìjiè", 500, 900)]).foreign
    assert not coverage(TEXT, [("поезд", 0, 500), ("отходит", 500, 900)]).foreign
    assert not coverage(TEXT, [("zug", 0, 500)]).foreign


def test_a_service_that_never_gives_words_is_never_doubted_for_it(one):
    planned, answer = one
    truth = Truth()
    assert [truth.doubts(planned, replace(answer, words=[])) for _ in range(60)] == [()] * 60


def test_a_voice_that_is_known_is_held_to_its_own_pace(heard, one):
    planned, answer = one
    slow = sounding(
        answer, samples_of(answer).repeat(2), words=[(w, 2 * s, 2 * e) for w, s, e in answer.words]
    )
    truth = Truth()
    assert truth.doubts(planned, slow) == ()
    truth = Truth()
    for _ in range(20):
        truth.doubts(planned, answer)
    assert codes(truth.doubts(planned, slow)) == {"pace"}


def test_suspect_answers_teach_nothing(one):
    planned, answer = one
    slow = sounding(
        answer, samples_of(answer).repeat(2), words=[(w, 2 * s, 2 * e) for w, s, e in answer.words]
    )
    truth = Truth()
    for _ in range(20):
        truth.doubts(planned, answer)
    for _ in range(200):
        assert codes(truth.doubts(planned, slow)) == {"pace"}
    assert truth.doubts(planned, answer) == ()


def test_the_same_answers_in_the_same_order_give_the_same_doubts(heard):
    swapped = [(p, heard[(i * 7) % len(heard)][1]) for i, (p, _) in enumerate(heard)]
    first, second = ([truth.doubts(p, a) for p, a in swapped] for truth in (Truth(), Truth()))
    assert first == second
    # Most have got another text's answer.
    assert sum(map(bool, first)) > 0.75 * len(first)


def test_a_pause_asked_for_is_not_speech(one):
    _, answer = one
    pause = np.zeros(5 * RATE_HZ, np.int16)
    samples = (samples_of(answer) * 32767).astype(np.int16)
    asked = planned_of(request_of(TEXT + " [pause 5s]"))
    assert doubts_of(asked, sounding(answer, np.concatenate([samples, pause]))) == set()
    assert "pace" in doubts_of(asked, answer)


def test_memory_does_not_grow_with_rows_or_voices():
    pace = Pace()
    load = load_of(TEXT)
    for number in range(5000):
        pace.learn(load, (number,), 4.0)
    for _ in range(1000):
        pace.learn(load, ("one",), 4.0)
    assert len(pace._voices) == 2048
    assert max(len(readings.recent) for readings in pace._voices.values()) == 48


@given(
    readings=st.lists(st.floats(0.5, 60), min_size=20, max_size=100),
    wrong=st.lists(st.floats(0.01, 500), max_size=4),
)
def test_bounds_hold_the_middle_of_what_was_heard(readings, wrong):
    # Up to four wrong rows among the first twenty do not move the middle out of the right ones.
    pace, load = Pace(), load_of(TEXT)
    for seconds in [*wrong, *readings]:
        pace.learn(load, ("voice",), seconds)
    low_s, high_s = pace.bounds_s(load, ("voice",), rate=0)
    assert 0 <= low_s < high_s
    kept = [*wrong, *readings][-48:]
    assert low_s <= max(kept) + 1e-6
    assert high_s >= min(kept) - 1e-6
    assert high_s / max(low_s, 0.1) < 60


@given(seconds=st.lists(st.floats(3, 6), min_size=20, max_size=27), order=st.randoms())
def test_the_order_of_what_was_heard_does_not_matter_before_the_bounds_move_on(seconds, order):
    load = load_of(TEXT)
    shuffled = list(seconds[:20])
    order.shuffle(shuffled)
    first, second = Pace(), Pace()
    for pace, heard in ((first, seconds[:20]), (second, shuffled)):
        for each in heard:
            pace.learn(load, ("voice",), each)
    assert first.bounds_s(load, ("voice",), rate=0) == pytest.approx(
        second.bounds_s(load, ("voice",), rate=0)
    )


@given(text=st.text(max_size=200), more=st.text(max_size=50))
def test_more_text_never_takes_less_time(text, more):
    short, long = load_of(text), load_of(text + more)
    assert 0 < short.least <= short.usual <= short.most
    assert long.usual >= short.usual - 1e-9 or "[pause" in text + more


words_of = st.lists(
    st.tuples(st.text(max_size=12), st.integers(-(2**31), 2**31), st.integers(-(2**31), 2**31))
)


@given(text=st.text(max_size=100), words=words_of)
def test_coverage_is_a_share_of_the_text(text, words):
    found = coverage(text, words)
    assert 0 <= found.covered <= found.letters <= 20 * len(text)


@given(text=st.text(max_size=200))
def test_a_text_covers_itself(text):
    found = coverage(text, [(word, 0, 1) for word in text.split()])
    assert found.covered == found.letters or "[pause" in text


@given(
    text=st.text(min_size=1, max_size=60),
    words=words_of,
    audio=st.binary(max_size=200),
    format=st.sampled_from(Format),
    seconds=st.floats(0, 1e6),
    said=st.none() | st.floats(),
)
def test_no_answer_is_too_odd_to_be_judged(text, words, audio, format, seconds, said):
    request = request_of(TEXT).model_copy(update={"text": text})
    answer = Spoken(audio, format, RATE_HZ, 1, seconds, words, 0, None, (), None, 0.0, "global")
    for doubt in Truth().doubts(planned_of(request), replace(answer, said_seconds=said)):
        assert doubt.words
        assert doubt.code.meaning
