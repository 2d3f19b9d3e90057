"""The rules of a vote: what a page's message must hold, and the rows that it becomes.

Nothing here opens a file. Messages come from a page, so that everything in them is checked; what is said
about them goes back to a listener, so that no condition is named.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from speechframe.analysis.votes import AB, ABX, METHODS, TIE, VOTE_SCHEMA, A, B, Method
from speechframe.errors import ListeningError, VoteRefused
from speechframe.listening.design import Page

__all__ = [
    "LISTEN_S",
    "REFERENCE_SLOT",
    "X_SLOT",
    "Question",
    "begun",
    "needed_s",
    "questions_of",
    "refuse_stored",
    "vote_rows",
]

LISTEN_S = 3.0
"""Voting waits until this much of every signal was heard, or all of it."""

_SLACK_S, _SLACK_SHARE = 0.2, 0.1
"""Of all of a signal, as much at most is not waited for: pages look at the clock from time to time."""

REFERENCE_SLOT = "R"
X_SLOT = "X"

_FLAGS = (None, True, False)
_KINDS = ("text", "number", "choice")
_MOST_TEXT = 2_000
_LATEST_MS = 9.2e12
"""In the year 2261: later times do not fit into pandas' nanoseconds."""
_MOST_PLAYS = 1_000_000
_MOST_LISTENED_S = 366 * 86_400
"""Far more than anybody plays of a signal on a page, and far less than a column of votes can hold."""
_ANSWERS: Mapping[str, tuple[str | None, ...]] = {
    "left": (A, B),
    "truth": (A, B),
    "choice": (A, B, TIE, None),
    "answer": (A, B, None),
}


@dataclass(frozen=True)
class Question:
    """A question to the listener, before the first trial.

    Parameters
    ----------
    name
        What the answer's column is called.
    label
        What the listener reads.
    kind
        ``text``, ``number`` or ``choice``.
    choices
        What can be chosen.
    required
        Whether the test waits for it.
    """

    name: str
    label: str
    kind: str = "text"
    choices: tuple[str, ...] = ()
    required: bool = True

    def to_page(self) -> dict[str, Any]:
        """Return what goes to the page."""
        return {
            "name": self.name,
            "label": self.label,
            "kind": self.kind,
            "choices": list(self.choices),
            "required": self.required,
        }


def questions_of(given: Sequence[str | Mapping[str, Any]]) -> tuple[Question, ...]:
    """Return questions as they were given: a text, or a mapping of a :class:`Question`'s fields.

    Raises
    ------
    ListeningError
        A question says something else, or two have one name.

    Examples
    --------
    >>> asked = questions_of(["Your age?", {"label": "Headphones?", "choices": ["yes", "no"]}])
    >>> [(question.name, question.kind) for question in asked]
    [('Your age?', 'text'), ('Headphones?', 'choice')]
    """
    found: list[Question] = []
    # A text is one question, not as many as it has letters; and so is a mapping.
    several: Any = given
    for one in several if _is_list(several) else [several]:
        fields: dict[str, Any] = {"label": one} if isinstance(one, str) else {}
        if isinstance(one, Mapping):
            fields = dict(one)
        unknown = set(fields) - set(Question.__dataclass_fields__)
        offered = fields.get("choices", ())
        choices = tuple(map(str, offered)) if _is_list(offered) else ()
        is_choice = "choices" in fields
        fields = {
            "kind": "choice" if is_choice else "text",
            "name": fields.get("label"),
            **fields,
            "choices": choices,
        }
        texts = [fields["label"], fields["name"]] if fields.get("label") else [None]
        is_asked = all(isinstance(value, str) and value.strip() for value in texts) and _is_list(offered)
        if unknown or not is_asked or fields["kind"] not in _KINDS or fields.get("required") not in _FLAGS:
            raise ListeningError(
                f"{one!r} is no question: a text, or a mapping with label and, if wanted, name, kind "
                f"({', '.join(_KINDS)}), choices, required"
            )
        if (fields["kind"] == "choice") != bool(choices):
            raise ListeningError(
                f"question {fields['name']!r}: choices are what a question of kind choice has"
            )
        found.append(Question(**fields))
    names = [question.name for question in found]
    if len(set(names)) != len(names):
        raise ListeningError(f"two questions have one name: {', '.join(names)}")
    return tuple(found)


def begun(
    message: Mapping[str, Any], *, consent: str | None, questions: Sequence[Question]
) -> dict[str, Any]:
    """Return the answers of a listener who begins.

    Parameters
    ----------
    message
        As the page sends it: ``consent`` and ``answers``.
    consent
        What the listener has to agree to, if anything.
    questions
        What was asked.

    Raises
    ------
    VoteRefused
        No consent, or an answer that is missing or is none.

    Examples
    --------
    >>> asked = [Question("age", "Your age?", "number")]
    >>> begun({"consent": True, "answers": {"age": "31"}}, consent="I take part.", questions=asked)
    {'age': 31.0}
    """
    if consent is not None and message.get("consent") is not True:
        raise VoteRefused("the test begins when you have agreed to take part")
    given = message.get("answers") or {}
    if not isinstance(given, Mapping) or set(given) - {question.name for question in questions}:
        raise VoteRefused("there are answers to questions that were not asked")
    return {question.name: _answer(question, given.get(question.name)) for question in questions}


def needed_s(audio_seconds: float) -> float:
    """Return how much of a signal must be heard before a vote, in seconds.

    Examples
    --------
    >>> needed_s(8.0), needed_s(2.0), needed_s(0.5)
    (3.0, 1.8, 0.45)
    """
    return round(min(LISTEN_S, audio_seconds - min(_SLACK_S, _SLACK_SHARE * audio_seconds)), 3)


def vote_rows(
    page: Page,
    message: Mapping[str, Any],
    *,
    method: str,
    needed: Mapping[str, float],
    known: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the rows of a vote, as JSON holds them: times are texts, a score that was not given is None.

    Parameters
    ----------
    page
        What was asked.
    message
        As the page sends it: ``scores``, ``choice`` or ``answer``; ``plays`` and ``listened_s`` by slot;
        ``unplayable`` (slots that could not be heard), ``first_play_ms`` and ``voted_ms``.
    method
        Of the test.
    needed
        Slot to the seconds of it that must be heard, reference and X among them.
    known
        Further columns of each row.

    Raises
    ------
    VoteRefused
        The message breaks a rule, or is no vote.
    """
    heard = _Heard.of(page.trial, message, needed)
    heard.refuse_unheard(needed)
    times = {
        "first_play_utc": _time(page.trial, message.get("first_play_ms"), needed=False),
        "voted_utc": _time(page.trial, message.get("voted_ms"), needed=True),
    }
    if method in {AB, ABX}:
        asked = _chosen(page, message, method, heard)
        how = {"plays": sum(heard.plays.values()), "listened_s": round(sum(heard.listened_s.values()), 3)}
        return [{**known, **page.rows[0], **asked, **how, **times}]
    scores = _scores(page, message, method, heard)
    return [
        {
            **known,
            **row,
            "score": scores[slot],
            "plays": heard.plays[slot],
            "listened_s": round(heard.listened_s[slot], 3),
            **times,
        }
        for row, slot in zip(page.rows, page.slots, strict=True)
    ]


def refuse_stored(row: Any, *, method: str, known: Mapping[str, Any], names: Mapping[str, Any]) -> None:
    """Raise ValueError for a stored row of a vote that nothing can be counted by.

    Parameters
    ----------
    row
        As it stands in the file.
    method
        Of the test.
    known
        Column to what it must hold: whose vote it is, of which test and trial.
    names
        Column to the names it may hold: items and conditions.

    Examples
    --------
    >>> refuse_stored({"test_id": "t1"}, method="mos", known={"test_id": "t2"}, names={})
    Traceback (most recent call last):
    ValueError: test_id is 't1'
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"a row is {row!r:.80}")  # noqa: TRY004 - damaged content, as below
    allowed = {
        **{name: (value,) for name, value in known.items()},
        "training": (True, False),
        **names,
        **_ANSWERS,
    }
    for name in VOTE_SCHEMA[method].names:
        value, scale = row.get(name), METHODS[method]
        is_wrong = (
            value not in allowed.get(name, (value,))
            or (name == "score" and value is not None and not _is_score(scale, value))
            or (
                name == "correct"
                and row["answer"] is not None
                and value is not (row["answer"] == row["truth"])
            )
        )
        if is_wrong or name not in row:
            raise ValueError(f"{name} is {value!r:.80}")


@dataclass(frozen=True)
class _Heard:
    """What a listener heard of a page."""

    trial: int
    plays: Mapping[str, int]
    listened_s: Mapping[str, float]
    unplayable: frozenset[str]

    @classmethod
    def of(cls, trial: int, message: Mapping[str, Any], slots: Mapping[str, float]) -> "_Heard":
        plays, listened = message.get("plays"), message.get("listened_s")
        unplayable = message.get("unplayable") or []
        if (
            not isinstance(plays, Mapping)
            or not isinstance(listened, Mapping)
            or not isinstance(unplayable, list)
        ):
            raise VoteRefused("this vote does not say what was heard", trial=trial)
        if not {*plays, *listened, *map(str, unplayable)} <= set(slots):
            raise VoteRefused("this vote is about signals that the trial does not have", trial=trial)
        return cls(
            trial,
            {slot: int(_amount(trial, plays.get(slot, 0), _MOST_PLAYS)) for slot in slots},
            {slot: _amount(trial, listened.get(slot, 0.0), _MOST_LISTENED_S) for slot in slots},
            frozenset(map(str, unplayable)),
        )

    def refuse_unheard(self, needed: Mapping[str, float]) -> None:
        for slot, seconds in needed.items():
            if slot in self.unplayable:
                continue
            if not self.plays[slot] or self.listened_s[slot] < seconds:
                raise VoteRefused(
                    f"listen to {slot} first: {LISTEN_S:g} s of it, or all of it where it is shorter",
                    trial=self.trial,
                )


def _chosen(page: Page, message: Mapping[str, Any], method: str, heard: _Heard) -> dict[str, Any]:
    row = page.rows[0]
    of_slot = dict(zip(page.slots, (A, B) if row["left"] == A else (B, A), strict=True))
    if method == AB:
        of_slot[TIE] = TIE
    name = "choice" if method == AB else "answer"
    given = message.get(name)
    if given is None and heard.unplayable:
        return {name: None, **({"correct": None} if method == ABX else {})}
    if not isinstance(given, str) or given not in of_slot:
        raise VoteRefused(f"choose one of {', '.join(of_slot)}", trial=page.trial)
    chosen = of_slot[given]
    return {name: chosen, **({"correct": chosen == row["truth"]} if method == ABX else {})}


def _scores(page: Page, message: Mapping[str, Any], method: str, heard: _Heard) -> dict[str, float | None]:
    scale, given = METHODS[method], message.get("scores")
    if not isinstance(given, Mapping) or not set(given) <= set(page.slots):
        raise VoteRefused(f"a vote scores {', '.join(page.slots)}", trial=page.trial)
    found: dict[str, float | None] = {}
    for slot in page.slots:
        score = given.get(slot)
        if score is None and slot in heard.unplayable:
            found[slot] = None
        elif not _is_score(scale, score):
            steps = "" if scale.step is None else f" in steps of {scale.step:g}"
            raise VoteRefused(
                f"rate {slot}, from {scale.lowest:g} to {scale.highest:g}{steps}", trial=page.trial
            )
        else:
            found[slot] = float(score)  # type: ignore[arg-type]
    return found


def _is_score(scale: Method, value: Any) -> bool:
    lowest, highest = float(scale.lowest or 0), float(scale.highest or 0)
    return (
        _is_number(value)
        and lowest <= value <= highest
        and (scale.step is None or not (float(value) - lowest) % scale.step)
    )


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, Mapping))


def _is_number(value: object) -> bool:
    # Bounded before it becomes a float: an integer of JSON may be larger than any.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LATEST_MS


def _amount(trial: int, value: Any, most: int) -> float:
    if not _is_number(value) or not 0 <= value <= most:
        raise VoteRefused(
            f"this vote does not say how much was heard: a number from 0 to {most:,}", trial=trial
        )
    return float(value)


def _time(trial: int, value: Any, *, needed: bool) -> str | None:
    if value is None and not needed:
        return None
    if not _is_number(value) or not 0 < value < _LATEST_MS:
        raise VoteRefused("this vote does not say when it was given", trial=trial)
    return datetime.fromtimestamp(value / 1000, UTC).isoformat()


def _answer(question: Question, value: Any) -> Any:
    if value is None or value == "":
        if question.required:
            raise VoteRefused(f"please answer: {question.label}")
        return None
    if question.kind == "number":
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise VoteRefused(f"please answer by a number: {question.label}")
        return number
    if question.kind == "choice" and value not in question.choices:
        raise VoteRefused(f"please choose one of {', '.join(question.choices)}: {question.label}")
    # Half of a surrogate pair is no text that could be written.
    return str(value)[:_MOST_TEXT].encode(errors="replace").decode()
