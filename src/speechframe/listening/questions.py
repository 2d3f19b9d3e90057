"""Check the questions that listeners get before the first trial, and check their answers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from speechframe.errors import ListeningError, VoteRefused

_Kind = Literal["text", "number", "choice"]
_Words = Annotated[str, Field(pattern=r"\S")]

_MAX_ANSWER_CHARACTERS = 2_000
"""Longest stored answer in characters. The rest of a longer answer is cut off."""


class Question(BaseModel):
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
        Whether the listener must answer before the first trial. None counts as False.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Words
    label: _Words
    kind: _Kind = "text"
    choices: tuple[str, ...] = ()
    required: Annotated[bool | None, Field(strict=True)] = True


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
        fields = {"label": given_question} if isinstance(given_question, str) else given_question
        try:
            kind = "choice" if "choices" in fields else "text"
            fields = {"kind": kind, "name": fields["label"], **fields}
            if _is_list(fields.get("choices")):
                fields["choices"] = tuple(map(str, fields["choices"]))
            question = Question.model_validate(fields)
        except (ValidationError, TypeError, KeyError):
            raise ListeningError(
                f"{given_question!r} is not a question; a question is a text, or a mapping with label and "
                f"optionally name, kind ({', '.join(get_args(_Kind))}), choices, required"
            ) from None
        if (question.kind == "choice") != bool(question.choices):
            raise ListeningError(
                f"question {question.name!r}: a question of kind choice needs choices, and other kinds must "
                "not have them; add choices, or leave them out"
            )
        found.append(question)
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
    >>> questions = [Question(name="age", label="Your age?", kind="number")]
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
