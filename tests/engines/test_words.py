"""What counts as a word, and when it is heard."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.engines.words import original_tokens, spoken_tokens
from speechframe.local.engines.reading.word_times import time_tokens


def shown(text, **options):
    return [token.shown for token in spoken_tokens(text, **options)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", "world"]),
        ("I have 42 apples and 1,234.50 pears.", ["I", "have", "42", "apples", "and", "1,234.50", "pears"]),
        ("Dr. Smith, e.g. in the U.S., paid $20.", ["Dr", "Smith", "e.g", "in", "the", "U.S", "paid", "$20"]),
        ("3.5 kg at 10:30 for 50%", ["3.5", "kg", "at", "10:30", "for", "50%"]),
        ("a well-known mother-in-law", ["a", "well-known", "mother-in-law"]),
        ("don't, O\u2019Brien's 'quoted' rock'n'roll", ["don't", "O\u2019Brien's", "quoted", "rock'n'roll"]),
        ("wait\u2014what? and\u2026so", ["wait", "what", "and", "so"]),
        ("one...two.Three", ["one", "two.Three"]),
        ("(yes) [no] \u00abmaybe\u00bb \u201cso\u201d", ["yes", "no", "maybe", "so"]),
        (
            "me@example.com or https://example.com/a?b=1",
            ["me@example.com", "or", "https", "//example.com/a", "b=1"],
        ),
        ("-- & \U0001f600 / !", ["&", "\U0001f600", "/"]),
        ("1914\u20131918", ["1914\u20131918"]),
        ("\u00bfQu\u00e9? \u00a1Hola!", ["Qu\u00e9", "Hola"]),
        (
            "\u0645\u0631\u062d\u0628\u0627\u060c \u0643\u064a\u0641\u061f",
            ["\u0645\u0631\u062d\u0628\u0627", "\u0643\u064a\u0641"],
        ),
        ("C++ and C#", ["C++", "and", "C#"]),
        ("\u00a7 5 and \u00a8 ^", ["\u00a7", "5", "and", "\u00a8", "^"]),
        ("", []),
        ("... !!! ---", []),
    ],
)
def test_spoken_words(text, words):
    assert shown(text) == words


def test_chinese_has_a_word_for_every_character():
    assert shown("我有3个iPhone，好！", characters_are_words=True) == ["我", "有", "3", "个", "iPhone", "好"]
    assert shown("我们去公园。") == ["我们去公园"]


def test_original_tokens_are_what_stands_between_spaces():
    text = "  Dr. Smith --\tpaid\n$20, ok? \U0001f600 "
    tokens = original_tokens(text)
    assert [token.shown for token in tokens] == text.split()
    assert all(text[token.start : token.end] == token.shown for token in tokens)
    assert [token.certain for token in tokens] == [True, True, False, True, True, True, False]


@given(st.text(max_size=60), st.booleans())
def test_tokens_lie_in_the_text_in_order_without_overlap(text, characters_are_words):
    at = 0
    for token in spoken_tokens(text, characters_are_words=characters_are_words):
        assert at <= token.start < token.end <= len(text)
        assert text[token.start : token.end] == token.shown
        assert not any(character.isspace() for character in token.shown)
        at = token.end
    assert [token.shown for token in original_tokens(text)] == text.split()


# When words are heard: steps of 10 frames, sound where there is a 1.


def timed(text, events, sound, tokens=spoken_tokens):
    active = np.array([character == "1" for character in sound])
    heard = time_tokens(tokens(text), events, active, 10, 10 * len(sound))
    return [(word.token.shown, word.start, word.end) for word in heard]


def test_merged_words_share_a_span_by_their_length():
    assert timed("so that a", [(0, 0)], "1" * 14) == [("so", 0, 40), ("that", 40, 120), ("a", 120, 140)]


def test_split_numbers_are_one_word():
    assert timed("42 pears", [(0, 0), (1, 30), (3, 60)], "1" * 10) == [("42", 0, 60), ("pears", 60, 100)]


def test_the_pause_belongs_to_no_word():
    # The event comes in the silence, at its end, or a step late: it makes no difference.
    for event in (70, 110, 120, 130):
        assert timed("yes, no", [(0, 0), (5, event)], "1" * 6 + "0" * 6 + "1" * 6) == [
            ("yes", 0, 60),
            ("no", 120, 180),
        ]


def test_a_short_closure_between_two_words_is_in_one_of_them():
    assert timed("at top", [(0, 0), (3, 60)], "1" * 6 + "000" + "1" * 6) == [
        ("at", 0, 60),
        ("top", 60 + 30, 150),
    ]


def test_a_closure_inside_a_word_stays_inside():
    assert timed("apple tree", [(0, 0), (6, 150)], "111" + "0" * 8 + "1" * 10) == [
        ("apple", 0, 150),
        ("tree", 150, 210),
    ]


def test_a_sign_is_heard_or_has_no_time():
    heard = timed("a & b", [(0, 0), (2, 20), (4, 140)], "1" * 20)
    assert heard == [("a", 0, 20), ("&", 20, 140), ("b", 140, 200)]
    silent = timed("a & b", [(0, 0), (2, 20), (4, 140)], "11" + "0" * 12 + "1" * 6)
    assert silent == [("a", 0, 20), ("&", 20, 20), ("b", 140, 200)]


def test_original_tokens_without_sound_stand_where_they_would_be():
    heard = timed("one -- two", [(0, 0), (7, 100)], "1" * 8 + "00" + "1" * 5, original_tokens)
    assert heard == [("one", 0, 80), ("--", 80, 80), ("two", 100, 150)]


@given(
    st.lists(
        st.sampled_from(["so", "that", "a", "42", "&", "--", "well-known", "x"]), min_size=1, max_size=12
    ),
    st.data(),
)
def test_times_are_in_order_and_inside_whatever_the_events_are(words, data):
    text = " ".join(words)
    sound = data.draw(st.text("01", min_size=1, max_size=60))
    events = data.draw(
        st.lists(st.tuples(st.integers(-5, len(text) + 5), st.integers(0, 10 * len(sound))), max_size=15)
    )
    events.sort(key=lambda event: event[1])
    at = 0
    for _, start, end in timed(text, events, sound, original_tokens):
        assert at <= start <= end <= 10 * len(sound)
        at = end
