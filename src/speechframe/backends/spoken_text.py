"""Convert written texts to spoken texts: remove tags, decode entities, and fill placeholders."""

import html
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from speechframe.errors import InvalidRows, make_problem
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.spec.locales import get_language, normalise
from speechframe.spec.placeholders import ICU_BRANCHES_START, iter_code
from speechframe.spec.texts import PAUSE_MARKERS
from speechframe.tables.column import Column
from speechframe.tables.table import is_per_row

ALL_LOCALES = "*"
"""Key of `fill` whose values belong to every locale."""
_FILL_EXAMPLE = '{"pt-BR": {"count": "3"}, "*": {"name": "Ana"}}'

# Tags that separate words, and times in the text of a cue, which are not among the tags of the spec.
_SEPARATING_TAG = re.compile(r"</?(?:br|p|div|li|ul|ol|tr|td|th|h[1-6]|hr)\b", re.IGNORECASE)
_CUE_TIME = re.compile(r"<(?:\d+:)?\d\d:\d\d[.,]\d{3}>")
_ESCAPE = re.compile(r"\\+(?:(?:u\{?|x|U)([0-9a-fA-F]{2,8})\}?|(.))", re.DOTALL)
_WHITESPACE_ESCAPES = "nrtvf"
# Code that is not a placeholder: remarks of templates, styles of subtitles, and single tags of BBCode.
_REMARK = re.compile(r"\{#.*#\}|\{\\[^{}]*\}|\[(?:/\w+|[bius])\]|\{\{!.*\}\}", re.DOTALL)
# Each pattern matches a whole placeholder. Its group is the name or the number of the value.
_NAME = r"([^\W\d](?:[\w.-]*\w)?|\d{1,9})"
_NAMED = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rf"[$#%@*:]{{0,2}}\{{+[-~]?\s*[$%]?{_NAME}\s*(?:![rsa])?\s*(?:[:,|].*)?[-~]?\}}+",  # {name}
        rf"%\({_NAME}\).*|%<{_NAME}>.*|%{_NAME}\$.*|%(\d+)!.*|%#@{_NAME}@|%L?(\d)",  # %(name)s, %1$s, %1
        rf"%{_NAME}%?|\${_NAME}\$?|[:@!]{{1,2}}{_NAME}:?|\[_(\d+)\]|\[{{1,2}}{_NAME}\]{{1,2}}",  # :name
        rf"\(\({_NAME}\)\)|[#~^]{{1,2}}{_NAME}[#~^]{{1,2}}|<[%?]=?\s*{_NAME}\s*[%?]>",  # #name#, <%= name %>
    )
]
_POSITIONAL = re.compile(
    r"%(?:[#0+\-,( ]|'.){0,5}(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|L|q|j|z|t|T|I64|I32)?[A-Za-z@]"
    r"|\{\s*(?:[:!].*)?\}"
)
_BRANCHES = re.compile(rf"{ICU_BRANCHES_START}|\{{[^{{}}]*->")
# Placeholders of these kinds need a value, except amounts such as $5 and words in brackets.
_KINDS_WITH_VALUE = frozenset({"braces", "percent", "dollar", "name", "square", "tag"})
_ORDINARY_TEXT = re.compile(r"\$\d|\[(?![_\[]).*", re.DOTALL)

FindValue = Callable[[Sequence[str]], Any]
"""Returns the value of a placeholder, or None. The argument has the keys of the value, the best key first."""


def make_spoken_text(text: str, find_value: FindValue) -> tuple[str, list[FieldProblem]]:
    """Return the spoken text of a written text, and a problem for each placeholder without a value.

    Addresses and other code that occurs in ordinary texts stay as written. Whitespace is collapsed.
    """
    parts: list[str] = []
    problems: dict[str, FieldProblem] = {}
    end = positional = 0
    text = _CUE_TIME.sub("", text)
    for kind, start, stop in iter_code(text):
        piece, before, end = text[start:stop], text[end:start], stop
        parts.append(before)
        plain = _read_plain_code(kind, piece)
        if plain is not None:
            parts.append(plain)
            continue
        keys = _list_keys(piece, positional)
        positional += _POSITIONAL.fullmatch(piece) is not None
        if (value := find_value(keys)) is not None:
            is_whole = isinstance(value, float) and value.is_integer()
            parts.append(str(int(value) if is_whole else value))
        elif kind in _KINDS_WITH_VALUE and not _ORDINARY_TEXT.fullmatch(piece):
            problems.setdefault(piece, _make_problem(piece, keys))
        else:
            parts.append(piece)
    parts.append(text[end:])
    return " ".join("".join(parts).split()), list(problems.values())


def _read_plain_code(kind: str, piece: str) -> str | None:
    """Return the text to speak for a piece of code that needs no value, or None for a placeholder."""
    if kind == "tag" and not piece.startswith(("<%", "<?")):
        return " " if _SEPARATING_TAG.match(piece) else ""
    if kind == "entity":
        return html.unescape(piece)
    if kind == "escape":
        return _ESCAPE.sub(_decode_escape, piece)
    if kind == "office":
        return chr(int(piece[2:-1], 16))
    if piece == "%%":
        return "%"
    if kind in {"braces", "square"} and _REMARK.fullmatch(piece):
        return ""
    may_have_value = kind in _KINDS_WITH_VALUE or kind in {"number", "other"}
    return None if may_have_value and not PAUSE_MARKERS.fullmatch(piece) else piece


def _decode_escape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(min(int(match[1], 16), sys.maxunicode))
    return " " if match[2] in _WHITESPACE_ESCAPES else match[2]


def _list_keys(piece: str, positional: int) -> list[str]:
    """Return the keys under which a placeholder's value is looked up: as written, then by name or number.

    Placeholders without a name have numbers in order: `%s` from 1, and `{}` from 0.
    """
    if _BRANCHES.match(piece):
        return [piece]
    if _POSITIONAL.fullmatch(piece):
        return [piece, str(positional + piece.startswith("%"))]
    names = (match for pattern in _NAMED if (match := pattern.fullmatch(piece)))
    return [piece, *(next(filter(None, match.groups())) for match in names)][:2]


def _make_problem(piece: str, keys: Sequence[str]) -> FieldProblem:
    key = json.dumps(keys[-1], ensure_ascii=False)
    allowed = f'fill={{"*": {{{key}: "the text to speak"}}}}' + (f", or a column {key}" if keys[1:] else "")
    return FieldProblem("fill", "has no value for a placeholder", shorten_value(piece), allowed)


def read_fill(fill: Any) -> Any:
    """Return the values of placeholders by locale, in normal spelling. Values by row stay unchanged."""
    if fill is None or isinstance(fill, Column) or is_per_row(fill):
        return fill
    try:
        return {
            locale if locale == ALL_LOCALES else normalise(str(locale)): {
                str(name): value for name, value in values.items()
            }
            for locale, values in fill.items()
        }
    except (ValueError, AttributeError):
        fault = "needs a dict of values for each locale"
        problem = make_problem("fill", fault, value=shorten_value(fill), allowed=_FILL_EXAMPLE)
        raise InvalidRows([problem]) from None


def read_object(argument: str, given: Any, example: str) -> Mapping[str, Any] | FieldProblem:
    """Return a dict of one row, which may be given as JSON text, or the problem of the argument."""
    try:
        values = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        values = None
    if isinstance(values, Mapping):
        return values
    allowed = f"a dict such as {example}, also as JSON text"
    return FieldProblem(argument, "is not an object", shorten_value(given), allowed)


def make_finder(
    fill: Mapping[str, Mapping[str, Any]], locale: str | None, read_column: Callable[[str], Any]
) -> FindValue:
    """Return a function that finds values for a locale, its language, every locale, and then in columns."""
    tags = [ALL_LOCALES]
    with suppress(ValueError):
        tags = [normalise(locale or ""), get_language(locale or ""), *tags]
    levels = [fill[tag] for tag in tags if tag in fill]

    def find_value(keys: Sequence[str]) -> Any:
        found = (values[key] for values in levels for key in keys if values.get(key) is not None)
        value = next(found, None)
        return read_column(keys[-1]) if value is None else value

    return find_value
