"""The rules of a vote: what was not heard is not judged, and what is no vote is refused in plain words."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from votes_lab import frame_of, vote_of

from speechframe.errors import ListeningError, VoteRefused
from speechframe.listening.design import build_pages, design_trials
from speechframe.listening.making import make_test
from speechframe.listening.questions import check_answers, parse_questions
from speechframe.listening.session import MIN_LISTENED_S, compute_needed_s, make_vote_rows

METHODS = {
    "ab": {"choice": "A"},
    "abx": {"answer": "A"},
    "mos": {"scores": {"A": 3}},
    "multi": {"scores": {"A": 30, "B": 60.5}},
}


def voted(method, message=None, *, seconds=2.0, left="a", **changes):
    """Return the rows of a vote on the first page of a method, in pair methods with this condition on the left."""
    frame = design_trials(method, items=["s1", "s2"], conditions=["x", "y"], training=0)
    page = next(page for page in build_pages(frame, "listener-01") if page.rows[0].get("left", left) == left)
    slots = [*page.slots, *(["X"] if page.x else [])]
    sent = {
        **METHODS[method],
        "plays": dict.fromkeys(slots, 1),
        "listened_s": dict.fromkeys(slots, seconds),
        "voted_ms": 1.7e12,
        **(message or {}),
        **changes,
    }
    return make_vote_rows(
        page,
        sent,
        method=method,
        needed=dict.fromkeys(slots, compute_needed_s(seconds)),
        known={"test_id": "t"},
    )


@pytest.mark.parametrize("method", sorted(METHODS))
@settings(max_examples=15)
@given(whole=st.floats(0.3, 20), heard=st.floats(0, 20))
def test_a_vote_waits_until_three_seconds_or_all_of_every_signal_was_heard(method, whole, heard):
    enough = heard >= compute_needed_s(whole)
    listened = dict.fromkeys("ABX" if method == "abx" else "A" if method == "mos" else "AB", whole)
    listened["A"] = heard
    if enough:
        assert voted(method, seconds=whole, listened_s=listened)
    else:
        with pytest.raises(VoteRefused, match="listen to A first"):
            voted(method, seconds=whole, listened_s=listened)


@given(whole=st.floats(0.2, 60))
def test_three_seconds_are_three_seconds_and_all_is_all_but_a_blink(whole):
    needed = compute_needed_s(whole)
    assert 0 < needed <= MIN_LISTENED_S
    assert needed == pytest.approx(MIN_LISTENED_S if whole >= MIN_LISTENED_S + 0.2 else whole, rel=0.11)


def test_a_signal_that_was_never_begun_was_not_heard():
    with pytest.raises(VoteRefused, match="listen to B first"):
        voted("ab", plays={"A": 1})


@settings(max_examples=30)
@given(
    score=st.one_of(
        st.floats(allow_nan=True), st.integers(-200, 300), st.booleans(), st.none(), st.text(max_size=3)
    )
)
@pytest.mark.parametrize("method", ["mos", "multi"])
def test_a_score_is_a_number_of_the_scale_or_refused(method, score):
    scores = {**METHODS[method]["scores"], "A": score}
    is_number = isinstance(score, (int, float)) and not isinstance(score, bool)
    allowed = is_number and (score in {1, 2, 3, 4, 5} if method == "mos" else 0 <= score <= 100)
    if allowed:
        assert voted(method, scores=scores)[0]["score"] == score
    else:
        with pytest.raises(VoteRefused, match="rate A"):
            voted(method, scores=scores)


def test_what_was_not_touched_is_missing_and_never_zero():
    with pytest.raises(VoteRefused, match="rate B"):
        voted("multi", scores={"A": 10})
    first, second = voted("multi", scores={"A": 0}, unplayable=["B"])
    assert (first["score"], second["score"]) == (0.0, None)


@pytest.mark.parametrize(("left", "right"), ["ab", "ba"])
def test_sides_become_conditions(left, right):
    (row,) = voted("ab", choice="A", left=left)
    assert row["choice"] == row["left"] == left
    (row,) = voted("ab", choice="tie", left=left)
    assert row["choice"] == "tie"
    (row,) = voted("abx", answer="B", left=left)
    assert row["answer"] == right
    assert row["correct"] == (row["answer"] == row["truth"])
    (row,) = voted("ab", choice=None, unplayable=["A"], plays={"B": 2}, listened_s={"B": 2})
    assert (row["choice"], row["plays"]) == (None, 2)


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("ab", {"choice": "x"}, "choose one of A, B, tie"),
        ("ab", {"choice": None}, "choose one of"),
        ("abx", {"answer": "tie"}, "choose one of A, B$"),
        ("mos", {"scores": [3]}, "scores must be given for A only"),
        ("mos", {"plays": None}, "does not contain the played sounds"),
        ("mos", {"unplayable": "A"}, "does not contain the played sounds"),
        ("mos", {"plays": {"A": -1}}, "must be numbers from 0 to"),
        ("abx", {"plays": dict.fromkeys("ABX", 10**400)}, "must be numbers from 0 to"),
        ("mos", {"listened_s": {"A": math.inf}}, "must be numbers from 0 to"),
        ("mos", {"listened_s": {"A": 2, "Z": 1}}, "names sounds that the trial does not have"),
        ("mos", {"voted_ms": None}, "does not contain a valid time"),
        ("mos", {"voted_ms": 10**400}, "does not contain a valid time"),
        ("mos", {"scores": {"A": 10**400}}, "rate A"),
        ("mos", {"first_play_ms": "now"}, "does not contain a valid time"),
    ],
)
def test_what_is_no_vote_is_refused_in_words(method, changes, words):
    with pytest.raises(VoteRefused, match=words) as refused:
        voted(method, **changes)
    assert isinstance(refused.value.trial, int)


def test_refusals_name_no_condition(tmp_path):
    test = make_test(frame_of(("zephyrine", "quillon")), "ab", folder=tmp_path / "t")
    vote = vote_of(test.plan(1), 0, {"choice": "A"})
    said = [test.reply(1, vote)]
    assert "has not begun" in said[0]["message"]
    test.reply(1, {"kind": "begin"})
    said += [
        test.reply(1, {**vote, **change})
        for change in ({"choice": 1}, {"plays": {}}, {"trial": True}, {"trial": 77})
    ]
    said += [test.reply(1, {"kind": "reveal"}), test.reply(1, {})]
    assert {one["kind"] for one in said} == {"refused"}
    assert not any(name in str(said) for name in ("zephyrine", "quillon", "s1"))


def test_a_text_alone_is_one_question():
    assert [question.label for question in parse_questions("Your age?")] == ["Your age?"]


def test_a_test_begins_with_consent_and_answers():
    asked = parse_questions(
        ["Name", {"label": "Age", "kind": "number", "required": False}, {"label": "Ears", "choices": [1, 2]}]
    )
    whole = {"consent": True, "answers": {"Name": "x", "Age": "31", "Ears": "2"}}
    assert check_answers(whole, consent="Yes?", questions=asked) == {"Name": "x", "Age": 31.0, "Ears": "2"}
    assert (
        check_answers({"answers": {"Name": "x", "Ears": "1"}}, consent=None, questions=asked)["Age"] is None
    )
    odd = check_answers({"answers": {"Name": "half \ud83c", "Ears": "1"}}, consent=None, questions=asked)
    assert odd["Name"] == "half ?", "what cannot be written is not kept"
    for message, words in [
        ({**whole, "consent": "true"}, "agreed"),
        ({**whole, "answers": {**whole["answers"], "Age": 10**400}}, "with a number: Age"),
        ({"consent": True}, "please answer: Name"),
        ({"consent": True, "answers": {**whole["answers"], "Age": "old"}}, "with a number: Age"),
        ({"consent": True, "answers": {**whole["answers"], "Ears": "3"}}, "choose one of 1, 2: Ears"),
        (
            {"consent": True, "answers": {**whole["answers"], "Shoes": "42"}},
            "a question that this test does not have",
        ),
        ({"consent": True, "answers": [1]}, "a question that this test does not have"),
    ]:
        with pytest.raises(VoteRefused, match=words):
            check_answers(message, consent="Yes?", questions=asked)


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        ([{"name": "x"}], "is not a question"),
        ([{"label": "x", "kind": "colour"}], "is not a question"),
        ([{"label": "x", "wanted": True}], "is not a question"),
        ([{"label": "x", "kind": "choice"}], "a question of kind choice needs choices"),
        ([{"label": "x", "kind": "text", "choices": ["a"]}], "a question of kind choice needs choices"),
        (["x", "x"], "two questions have the same name"),
    ],
)
def test_what_is_no_question_is_refused(questions, words):
    with pytest.raises(ListeningError, match=words):
        parse_questions(questions)
