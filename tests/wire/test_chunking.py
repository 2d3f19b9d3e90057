import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.spec.socket import PredictiveChunking
from speechframe.wire.chunking import Chunker

STRICT, LENIENT = PredictiveChunking
ALPHABET = "ab. ,!?。！，।\n\"')”[]pause 1s3é\u0301—…"
TEXTS = st.one_of(
    st.text(ALPHABET, max_size=200),
    st.lists(
        st.sampled_from(
            ["Dr. Who ", "[pause 1s]", "3.14 ", "e.g. ", "Yes! ", "再见。", "Well... ", "\n", "a, b; "]
        ),
        max_size=30,
    ).map("".join),
    st.text(max_size=80),
)


def cut(text, mode=STRICT, at_least=0, **options):
    chunker = Chunker(min_buffer_size=at_least, mode=mode, **options)
    chunks = chunker.add(text)
    return chunks, chunker.waiting


def pieces(text, cuts):
    places = sorted({0, len(text), *(place % (len(text) + 1) for place in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


@given(
    TEXTS,
    st.sampled_from([STRICT, LENIENT]),
    st.integers(0, 30),
    st.integers(5, 60),
    st.lists(st.integers(0, 1000), max_size=30),
)
def test_the_chunks_joined_are_the_text_and_how_it_came_changes_no_cut(text, mode, at_least, longest, cuts):
    whole = Chunker(min_buffer_size=at_least, mode=mode, longest=longest)
    split = Chunker(min_buffer_size=at_least, mode=mode, longest=longest)
    chunks = whole.add(text)
    assert [chunk for piece in pieces(text, cuts) for chunk in split.add(piece)] == chunks
    assert "".join([*chunks, whole.flush()]) == text
    assert all(chunk and len(chunk) <= longest for chunk in chunks)
    assert all(len(chunk) >= min(at_least, longest // 2 - 1) or "[pause " in text for chunk in chunks)


@given(
    TEXTS, st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(["add", "expire", "flush"])), max_size=20)
)
def test_nothing_is_lost_or_moved_by_waits_that_end(text, steps):
    chunker, given_out = Chunker(min_buffer_size=3), ""
    parts = pieces(text, [place for place, _ in steps])
    for index, part in enumerate(parts):
        given_out += "".join(chunker.add(part))
        kind = steps[index % len(steps)][1] if steps else "add"
        given_out += {"add": str, "expire": chunker.take_expired_text, "flush": chunker.flush}[kind]()
    assert given_out + chunker.flush() == text


@pytest.mark.rule("socket.predictive-chunking")
def test_strict_cuts_behind_sentences_and_lenient_behind_clauses_too():
    text = "First, one thing; then another. And more"
    assert cut(text) == (["First, one thing; then another. "], "And more")
    assert cut(text, LENIENT) == (["First, ", "one thing; ", "then another. "], "And more")


@pytest.mark.parametrize(
    "text",
    [
        "It is 3.14 and no more",
        "See e.g. this, i.e. that",
        "Dr. Who met Mrs. Smith and Prof. Ng",
        'he said "no.thing" there',
        "z.B. heute, d.h. jetzt",
    ],
)
def test_a_full_stop_that_ends_nothing_cuts_nothing(text):
    assert cut(text) == ([], text)


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("Yes! No? Perhaps... Well, ok. x", ["Yes! ", "No? ", "Perhaps... ", "Well, ok. "]),
        ('He said "Stop." Then (why?) he left. x', ['He said "Stop." ', "Then (why?) ", "he left. "]),
        ("你好。再见！什么？」他说", ["你好。", "再见！", "什么？」"]),
        ("यह है। वह भी॥और", ["यह है। ", "वह भी॥"]),
        ("هل هذا؟ نعم۔ و", ["هل هذا؟ ", "نعم۔ "]),
        ("Üben macht müde. Ça va. x", ["Üben macht müde. ", "Ça va. "]),
    ],
)
def test_sentences_end_where_their_script_ends_them(text, chunks):
    found, rest = cut(text)
    assert found == chunks
    assert "".join(found) + rest == text


def test_commas_of_scripts_without_spaces_are_clauses():
    assert cut("如果，那么；所以", LENIENT) == (["如果，", "那么；"], "所以")
    assert cut("1,000 and 10:30 are numbers", LENIENT)[0] == []


def test_short_sentences_are_gathered_up_to_the_buffer_size():
    assert cut("One. Two. Three. Four. x", at_least=10) == (["One. Two. ", "Three. Four. "], "x")


def test_nothing_that_cannot_be_heard_is_a_chunk_of_its_own():
    assert cut("... \n[pause 1s]\n! Yes. x") == (["... \n[pause 1s]\n! Yes. "], "x")


def test_a_pause_marker_is_never_torn_by_a_wait_that_ends():
    chunker = Chunker()
    chunker.add("Wait [pa")
    assert chunker.take_expired_text() == "Wait "
    assert chunker.is_in_marker
    chunker.add("use 1.5")
    chunker.add("s]now")
    assert chunker.take_expired_text() == "[pause 1.5s]now"


@pytest.mark.parametrize("meant", ["[Pause 500ms]", "[ break ]"])
def test_what_is_meant_as_a_marker_is_not_torn_either(meant):
    assert cut(f"Wait {meant} now, go. ", LENIENT) == ([f"Wait {meant} now, ", "go. "], "")
    chunker = Chunker(min_buffer_size=0)
    chunker.add(f"Wait {meant[:-1]}")
    assert chunker.take_expired_text() == "Wait "


def test_what_only_began_like_a_marker_goes_with_the_second_wait():
    chunker = Chunker()
    chunker.add("a [pause")
    assert [chunker.take_expired_text(), chunker.take_expired_text()] == ["a ", "[pause"]


@given(st.integers(0, 12))
def test_text_without_marks_is_cut_between_words_and_no_marker_is_torn(shift):
    text = "x" * shift + " word [pause 1.5s]" * 12
    chunks, rest = cut(text, longest=40)
    assert all(len(chunk) <= 40 for chunk in chunks)
    assert sum(chunk.count("[pause 1.5s]") for chunk in [*chunks, rest]) == 12


def test_a_megabyte_is_cut_in_one_pass_whatever_is_in_it():
    chunks, rest = cut("Yes, it is. " * 80_000, at_least=40)
    assert len(chunks) > 10_000
    assert len(rest) < 60
    # Nothing in it is worth a chunk of its own, and there are breaks everywhere.
    began_s = time.process_time()
    chunks, rest = cut(" . " * 100_000)
    assert time.process_time() - began_s < 3
    assert sum(map(len, [*chunks, rest])) == 300_000


@pytest.mark.quiet
@pytest.mark.parametrize("text", [".", "a. ", "[pause 1s]a", "[", "。", '."'])
def test_whatever_a_long_text_is_made_of_it_is_cut_in_one_pass(text):
    text = (text * 65_536)[:65_536]
    started = time.process_time()
    assert "".join(map("".join, cut(text, LENIENT))) == text
    assert time.process_time() - started < 0.4


def test_a_new_setting_counts_for_what_waits():
    chunker = Chunker(min_buffer_size=1000)
    assert chunker.add("One. Two, three") == []
    chunker.min_buffer_size = 0
    assert chunker.take_ready_chunks() == ["One. "]
    chunker.mode = LENIENT
    assert chunker.take_ready_chunks() == ["Two, "]
    assert len(chunker.flush()) == 5
