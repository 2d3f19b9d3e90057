"""Tables line up, whatever is in them."""

import pytest

from speechframe.cli import show


def test_columns_line_up_with_wide_characters_and_marks():
    lines = show.format_table(["a", "b"], [["你好", 1], ["e\u0301a", None], ["abcd", [1, 2]]]).splitlines()
    assert lines == ["A     B", "你好  1", "e\u0301a", "abcd  1, 2"]


def test_a_missing_value_is_an_empty_cell():
    assert show.format_table(["kind", "n"], [[None, 1], [float("nan"), 2]]).splitlines() == [
        "KIND  N", "      1", "      2",
    ]  # fmt: skip


def test_problems_are_shown_in_words_of_the_command_line():
    problems = [
        {"row": None, "row_id": None, "field": "voice", "problem": "is not a voice", "value": "who", "allowed": 'did you mean col("who")?'},
        {"row": 3, "row_id": "03", "field": "text", "problem": "is empty", "value": "x" * 100, "allowed": ""},
    ]  # fmt: skip
    said = show.format_problems(problems, 30)
    assert "did you mean --voice-col who?" in said
    assert "x" * 39 + "…" in said
    assert "x" * 40 not in said
    assert said.splitlines()[0].split() == ["ROW", "FIELD", "PROBLEM", "VALUE", "ALLOWED"]
    assert said.endswith("... and 28 more")
    assert not show.format_problems(problems[:1], 1).startswith("ROW")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (1023, "1,023 B"),
        (1023.7, "1.0 KB"),
        (2**20 - 60, "1,023.9 KB"),
        (2**20 - 1, "1.0 MB"),
        (2**30 - 1, "1.0 GB"),
    ],
)
def test_a_size_just_below_a_step_has_the_unit_of_the_step(size, words):
    assert show.format_size(size) == words
