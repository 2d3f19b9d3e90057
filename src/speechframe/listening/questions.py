"""Check the questions that listeners get before the first trial, and check their answers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.errors import ListeningError, VoteRefused

__all__ = ["Question", "check_answers", "parse_questions"]

_REQUIRED_VALUES = (None, True, False)
"""Allowed values of the field ``required``. None also stands for a missing field."""

_QUESTION_KINDS = ("text", "number", "choice")
"""Allowed kinds of a question."""

_MAX_ANSWER_CHARACTERS = 2_000
"""Longest stored answer in characters. The rest of a longer answer is cut off."""


@dataclass(frozen=True)
class Question:
    """A question to the listener before the first trial.

    Parameters
    ----------
    name
        Name of the answer's column.
    label
        Text of the question.
    kind
        ``text``, ``number`` or ``choice``.
    choices
        The possible answers of a ``choice``.
    required
        Whether the listener must answer before the first trial.
    """

    name: str
    label: str
    kind: str = "text"
    choices: tuple[str, ...] = ()
    required: bool = True

    def to_page(self) -> dict[str, Any]:
        """Return the question as plain values for the page."""
        return {
            "name": self.name,
            "label": self.label,
            "kind": self.kind,
            "choices": list(self.choices),
            "required": self.required,
        }


def parse_questions(given: Sequence[str | Mapping[str, Any]]) -> tuple[Question, ...]:
    """Return the given questions as :class:`Question` objects.

    Parameters
    ----------
    given
        Questions, each as a text or as a mapping of the fields of :class:`Question`. A single question may be
        given without a list.

    Raises
    ------
    ListeningError
        A question is neither a text nor a valid mapping, only one of ``kind="choice"`` and choices is given,
        or two questions have the same name.

    Examples
    --------
    >>> asked = parse_questions(["Your age?", {"label": "Headphones?", "choices": ["yes", "no"]}])
    >>> [(question.name, question.kind) for question in asked]
    [('Your age?', 'text'), ('Headphones?', 'choice')]
    """
    found: list[Question] = []
    # A single text or mapping is one question. Iteration would split it into characters or keys.
    given_questions: Any = given
    for given_question in given_questions if _is_list(given_questions) else [given_questions]:
        fields: dict[str, Any] = {"label": given_question} if isinstance(given_question, str) else {}
        if isinstance(given_question, Mapping):
            fields = dict(given_question)
        unknown = set(fields) - set(Question.__dataclass_fields__)
        given_choices = fields.get("choices", ())
        choices = tuple(map(str, given_choices)) if _is_list(given_choices) else ()
        is_choice = "choices" in fields
        fields = {
            "kind": "choice" if is_choice else "text",
            "name": fields.get("label"),
            **fields,
            "choices": choices,
        }
        texts = [fields["label"], fields["name"]] if fields.get("label") else [None]
        has_texts = all(isinstance(value, str) and value.strip() for value in texts) and _is_list(
            given_choices
        )
        if (
            unknown
            or not has_texts
            or fields["kind"] not in _QUESTION_KINDS
            or fields.get("required") not in _REQUIRED_VALUES
        ):
            raise ListeningError(
                f"{given_question!r} is not a question; a question is a text, or a mapping with label and "
                f"optionally name, kind ({', '.join(_QUESTION_KINDS)}), choices, required"
            )
        if (fields["kind"] == "choice") != bool(choices):
            raise ListeningError(
                f"question {fields['name']!r}: a question of kind choice needs choices, and other kinds must "
                "not have them; add choices, or leave them out"
            )
        found.append(Question(**fields))
    names = [question.name for question in found]
    if len(set(names)) != len(names):
        raise ListeningError(
            f"two questions have the same name; give each its own name; the names are: {', '.join(names)}"
        )
    return tuple(found)


def check_answers(
    message: Mapping[str, Any], *, consent: str | None, questions: Sequence[Question]
) -> dict[str, Any]:
    """Return the checked answers of a listener by name of the question. Answers to numbers become floats.

    Parameters
    ----------
    message
        The message of the page, with ``consent`` and ``answers``.
    consent
        Text that the listener must agree to. None requires no consent.
    questions
        The questions of the test.

    Raises
    ------
    VoteRefused
        The consent or a required answer is missing, or an answer is not valid.

    Examples
    --------
    >>> questions = [Question("age", "Your age?", "number")]
    >>> message = {"consent": True, "answers": {"age": "31"}}
    >>> check_answers(message, consent="I take part.", questions=questions)
    {'age': 31.0}
    """
    if consent is not None and message.get("consent") is not True:
        raise VoteRefused("the test begins when you have agreed to take part")
    given = message.get("answers") or {}
    if not isinstance(given, Mapping) or set(given) - {question.name for question in questions}:
        raise VoteRefused("the message answers a question that this test does not have: reload the page")
    return {question.name: _check_answer(question, given.get(question.name)) for question in questions}


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, Mapping))


def _check_answer(question: Question, value: Any) -> Any:
    """Return a checked answer, or None if an answer is missing and not required."""
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
            raise VoteRefused(f"please answer with a number: {question.label}")
        return number
    if question.kind == "choice" and value not in question.choices:
        raise VoteRefused(f"please choose one of {', '.join(question.choices)}: {question.label}")
    # Half of a surrogate pair cannot be encoded as UTF-8, so it becomes a question mark.
    return str(value)[:_MAX_ANSWER_CHARACTERS].encode(errors="replace").decode()
