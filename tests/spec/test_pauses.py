"""Pause markers and billed characters: what is a marker, what stays text, what it costs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.spec import billing
from speechframe.spec.chosen import PAUSE_SECONDS_RANGE
from speechframe.spec.texts import (
    Pause,
    count_billed_characters,
    find_code_warnings,
    find_pause_warnings,
    split_pauses,
    strip_pauses,
)


@pytest.mark.parametrize(
    ("marker", "asked_s", "heard_s"),
    [
        ("[pause 1.5s]", 1.5, 1.5),
        ("[pause .5s]", 0.5, 0.5),
        ("[pause 5.0s]", 5, 5),
        ("[pause 0s]", 0, 0.1),
        ("[pause 0.05s]", 0.05, 0.1),
        ("[pause 5.01s]", 5.01, 5),
        ("[pause 999999999999999s]", 999999999999999, 5),
    ],
)
def test_markers(marker, asked_s, heard_s):
    assert split_pauses(marker) == (Pause(heard_s, asked_s),)
    assert split_pauses(f"a{marker}b") == ("a", Pause(heard_s, asked_s), "b")
    assert (split_pauses(marker)[0].warning is not None) is (asked_s != heard_s)
    assert bool(find_pause_warnings(marker)) is (asked_s != heard_s)
    assert count_billed_characters(f"a{marker}b") == 2


@pytest.mark.parametrize(
    "text",
    [
        "[pause s]",
        "[pause 1e1s]",
        "[pause nans]",
        "[pause ١s]",
        "[pause 1s",
        "(pause 1s)",
        "[pause 9999999999999999s]",
        "[pausen sind gut]",
        "[pause for effect]",
        "[break-in]",
    ],
)
def test_what_only_looks_like_a_marker_stays_text(text):
    assert split_pauses(text) == (text,)
    assert strip_pauses(text) == text
    assert count_billed_characters(text) == len(text)


@pytest.mark.parametrize(
    "meant",
    [
        "[pause]",
        "[pause 500ms]",
        "[pause1s]",
        "[Pause 1s]",
        "[pause -1s]",
        "[pause 1,5s]",
        "[pause\n1s]",
        "[pause: 2 sec]",
        "[pause for 2 seconds]",
        "[Break]",
        "[break 1s]",
    ],
)
def test_what_is_clearly_meant_as_a_marker_is_left_out_and_said(meant):
    assert split_pauses(f"Wait {meant}now") == ("Wait ", "now")
    assert count_billed_characters(f"Wait {meant}now") == len("Wait now")
    assert find_pause_warnings(f"Wait {meant}now") == (
        f"{meant!r} is not a pause marker and was left out; write [pause 1.5s]",
    )


def test_other_look_alikes_are_reported_and_ordinary_brackets_are_not():
    assert find_pause_warnings("Wait [pause for effect] and [pause 1s") == (
        "'[pause for effect]' is not a pause marker and is spoken as text; write [pause 1.5s]",
        "'[pause 1s' is not a pause marker and is spoken as text; write [pause 1.5s]",
    )
    assert find_pause_warnings("see [1], [pauses] and [pause 2s]") == ()
    assert find_pause_warnings("[pause 9s]") == ("pause of 9 s was set to 5 s (allowed: 0.1 to 5 s)",)


def test_a_marker_inside_a_marker_is_taken_once():
    assert strip_pauses("[pau[pause 1s]se 2s]") == "[pause 2s]"


MARKER = st.floats(0, 100, allow_nan=False).map(lambda seconds: f"[pause {seconds:.3f}s]")
PLAIN = st.text(st.characters(exclude_characters="[", exclude_categories=["Cs"]))


@given(st.lists(st.one_of(MARKER.map(lambda m: ("marker", m)), PLAIN.map(lambda t: ("text", t)))))
def test_markers_are_found_wherever_they_stand_and_cost_nothing(pieces):
    text = "".join(piece for _, piece in pieces)
    spoken = "".join(piece for kind, piece in pieces if kind == "text")
    split = split_pauses(text)
    assert "".join(piece for piece in split if isinstance(piece, str)) == spoken == strip_pauses(text)
    pauses = [piece for piece in split if isinstance(piece, Pause)]
    asked = [float(piece[7:-2]) for kind, piece in pieces if kind == "marker"]
    assert [pause.asked_seconds for pause in pauses] == asked
    assert all(pause.seconds in PAUSE_SECONDS_RANGE for pause in pauses)
    assert all((pause.warning is None) is (pause.asked_seconds in PAUSE_SECONDS_RANGE) for pause in pauses)
    assert count_billed_characters(text) == len(spoken)


@given(st.text(st.sampled_from("[]pause 0123456789.s\nx")) | st.text())
def test_any_text_is_split_without_loss(text):
    split = split_pauses(text)
    assert "" not in split
    assert "".join(piece for piece in split if isinstance(piece, str)) == strip_pauses(text)
    assert 0 <= count_billed_characters(text) <= len(text)
    assert all(math.isfinite(piece.asked_seconds) for piece in split if isinstance(piece, Pause))
    assert all(isinstance(words, str) for words in find_pause_warnings(text))


def test_whitespace_and_code_points_are_billed():
    assert count_billed_characters(" a\n\t") == 4
    assert count_billed_characters("👩‍👧") == 3
    assert count_billed_characters("e\u0301") == 2
    assert count_billed_characters("你好") == 2


def test_prices_of_the_other_calls():
    assert billing.compute_translation_millicredits(["ab", "c [pause 1s]"]) == 14_000
    assert billing.compute_voice_change_millicredits(2.0) == 30_000
    assert billing.compute_voice_change_millicredits(0.00001) == 1
    assert billing.compute_dub_millicredits(1.5, 3) == 4_500
    assert set(billing.PRICES) == {"generate", "stream", "convert", "translate", "dub"}
    assert {price.balance for price in billing.PRICES.values()} == {"speech", "dubbing"}


def test_codes_of_other_programs_are_named():
    codes = [
        "<b>",
        "</b>",
        "{count}",
        "%(name)s",
        "%s",
        "&#39;",
        "&amp;",
        "{\\an8}",
        "\\n",
        "_x000D_",
        "<!-- x -->",
    ]
    assert [
        code for code in codes if not find_code_warnings(f"Hi {code} you")[0].startswith(f"'{code}' looks")
    ] == []
    (warning,) = find_code_warnings("<b>{a}{b}{c}</b><b>")
    assert warning.startswith("'<b>', '{a}', '{b}' and 2 more look like markup")
    plain = ["50% off & more", "a < b, I <3 you", "R&D; AT&T", "100%", "[break] (so) #1", "a_x b", "it's {"]
    assert [text for text in plain if find_code_warnings(text)] == []
