"""Tables line up, whatever is in them."""

from speechframe.cli import show


def test_columns_line_up_with_wide_characters_and_marks():
    lines = show.format_table(["a", "b"], [["你好", 1], ["e\u0301a", None], ["abcd", [1, 2]]]).splitlines()
    assert lines == ["A     B", "你好  1", "e\u0301a", "abcd  1, 2"]


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
