"""What listeners are asked before the first trial, and their answers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.errors import ListeningError, VoteRefused

__all__ = ["Question", "begun", "questions_of"]

_FLAGS = (None, True, False)
_KINDS = ("text", "number", "choice")
_MOST_TEXT = 2_000


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


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, Mapping))


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
