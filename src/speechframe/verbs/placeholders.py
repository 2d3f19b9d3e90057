"""Placeholders of a text: replaced by short tokens before it is sent, put back into its translation.

Tokens work with any translator. Of the forms that were tried, ``PZ0`` came back whole most often (639 of 640
texts, English and Portuguese, Firefox models); a text that contains one by itself gets the next form. Numbers
are sent as they are, and the translation is searched for them.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Protected", "Restored", "Span", "find", "protect"]

FORMS = ("PZ", "XPH", "ZQX", "K7Q")

_WITH_BRANCHES = "plural|selectordinal|select"
_ICU = rf"{_WITH_BRANCHES}|choice|number|date|time|spellout|ordinal|duration"
# Every repeat has a bound or ends at a character of its own, so that hostile texts take linear time too.
_PLACEHOLDER = re.compile(
    rf"""
    (?P<icu> [$#%]?(?=\{{\s*\w+\s*,\s*(?:{_ICU})\s*[,}}])\{{ )
  | (?P<braces> [$#%]?(?:\{{\{{[^{{}}]*\}}\}} | \{{\s*(?:[\w.$!:+\-\[\]()<>^%\#]+\s*)?\}}) )
  | (?P<url> (?:https?|ftp|file)://[^\s<>"'{{}}]+ | \bwww\.[^\s<>"'{{}}]+\.[^\s<>"'{{}}]+ )
  | (?P<mail> (?:mailto:)?[\w.+-]{{1,64}}@[\w-]+(?:\.[\w-]+)+ )
  | (?P<tag> <!--(?:(?!<!--).)*?--> | </?[A-Za-z][^<>]*> )
  | (?P<entity> &(?:\#\d{{1,7}}|\#x[0-9a-fA-F]{{1,6}}|[A-Za-z]\w{{1,30}}); )
  | (?P<printf> %\(\w+\)[#0+\-]{{0,5}}\d{{0,9}}(?:\.\d{{1,9}})?[diouxXeEfFgGcrsa]
        | (?<![\d%])%(?:\d{{1,9}}\$)?[#0+\-]{{0,5}}(?:\d{{1,9}}|\*)?(?:\.(?:\d{{1,9}}|\*))?
          (?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGcrsap@](?![A-Za-z])
        | %% )
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACE = re.compile(r"[{}]")
_NOT_OF_A_URL = ".,;:!?)]}\u00bb\u201d\u2019"
"""A sentence may go on after a URL: these characters at its end belong to the sentence."""

_BRANCHES = re.compile(rf"[$#%]?\{{\s*\w+\s*,\s*(?:{_WITH_BRANCHES})\s*,")
_SHOWN_BRANCHES, _SHOWN_CHARACTERS = 4, 60

_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f]\d+)*")
_TIME_OF_DAY = re.compile(
    r"(?<![\d.,:])(\d{1,2})(?:[:h](\d\d)(?![\d:])|(?:[:.](\d\d))?\s?(?:h|uhr|[ap]\.?\s?m)\b)", re.IGNORECASE
)
"""18:30, 18h30, 18h, 18.30 Uhr, 6 p.m., 6:30pm"""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text that is sent as a token.

    Parameters
    ----------
    start, end
        Where it stands in the text.
    replacement
        What replaces its token in the translation: the placeholder itself, or a term in the target language.
    is_term
        It is a term of a glossary, not a placeholder.
    """

    start: int
    end: int
    replacement: str
    is_term: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """A translation in which every token was replaced.

    Parameters
    ----------
    text
        The translation.
    placeholders_ok
        Every placeholder is there once, every number is there, and no ICU message has branches that still
        are in the source language.
    terms_ok
        Every term is there once; None where the text had none.
    warnings
        Which branches were not translated.
    """

    text: str
    placeholders_ok: bool
    terms_ok: bool | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Protected:
    """A text as it is sent.

    Parameters
    ----------
    sent
        The text with tokens.
    form
        The letters that tokens begin with.
    spans
        What the tokens replace; token n replaces span n.
    outside
        The text between the tokens.
    spaced
        Numbers of the tokens after which a space was added, because a digit follows that would be read as
        one of the token.
    """

    sent: str
    form: str
    spans: tuple[Span, ...]
    outside: str
    spaced: frozenset[int] = frozenset()

    def restore(self, translated: str) -> Restored:
        """Return a translation of `sent` in which every token is replaced.

        Examples
        --------
        >>> text = protect("Hello {name}, %d files", find("Hello {name}, %d files"))
        >>> text.sent
        'Hello PZ0, PZ1 files'
        >>> text.restore("PZ1 fichiers, bonjour PZ0").text
        '%d fichiers, bonjour {name}'
        """
        found: Counter[int] = Counter()

        def replaced(token: re.Match[str]) -> str:
            number = int(token[1])
            if number >= len(self.spans):
                return token[0]
            found[number] += 1
            return self.spans[number].replacement + ("" if number in self.spaced else token[2])

        # Some translators write a token in small letters, or put a space before its number.
        token = re.compile(rf"{self.form}\s?(\d{{1,9}})((?: (?=\d))?)", re.IGNORECASE)
        text = token.sub(replaced, translated)
        terms = [found[number] == 1 for number, span in enumerate(self.spans) if span.is_term]
        are_there = all(found[number] == 1 for number, span in enumerate(self.spans) if not span.is_term)
        branches = [one for span in self.spans if not span.is_term for one in _branches(span.replacement)]
        warnings = (f"branches were not translated: {_listed(branches)}",) if branches else ()
        has_numbers = _has_numbers(self.outside, token.sub(" ", translated))
        return Restored(
            text,
            placeholders_ok=are_there and has_numbers and not branches,
            terms_ok=all(terms) if terms else None,
            warnings=warnings,
        )


def find(text: str) -> list[Span]:
    """Return the placeholders of a text in order, none inside another.

    Known are ``{name}``, ``{0}``, ``{{name}}``, ``${name}``, ICU messages such as ``{n, plural, one {#
    file} other {# files}}`` as a whole, ``%s``, ``%1$d``, ``%(n)d``, XML and HTML tags and entities, URLs and
    e-mail addresses.

    Examples
    --------
    >>> [span.replacement for span in find("Dear {name}, see <b>https://example.org</b>.")]
    ['{name}', '<b>', 'https://example.org', '</b>']
    """
    spans: list[Span] = []
    closing: dict[int, int] | None = None
    position = 0
    while (match := _PLACEHOLDER.search(text, position)) is not None:
        start, position = match.span()
        if match.lastgroup == "icu":
            closing = _closing(text) if closing is None else closing
            if (end := closing.get(position - 1)) is None:
                continue
            position = end
        elif match.lastgroup == "url":
            position = start + len(match[0].rstrip(_NOT_OF_A_URL))
        spans.append(Span(start, position, text[start:position]))
    return spans


def protect(text: str, spans: Iterable[Span]) -> Protected:
    """Return a text with a token for each of `spans`, which do not overlap.

    Examples
    --------
    >>> protect("PZ1 of {n}", find("PZ1 of {n}")).sent
    'PZ1 of XPH0'
    """
    ordered = tuple(sorted(spans, key=lambda span: span.start))
    folded = text.casefold()
    form = next((form for form in FORMS if form.casefold() not in folded), None) or _unused_form(folded)
    starts = {span.start for span in ordered}
    spaced = frozenset(
        number
        for number, span in enumerate(ordered)
        if text[span.end : span.end + 1].isdecimal() and span.end not in starts
    )
    sent, outside, position = [], [], 0
    for number, span in enumerate(ordered):
        outside.append(text[position : span.start])
        sent += [outside[-1], f"{form}{number}{' ' if number in spaced else ''}"]
        position = span.end
    outside.append(text[position:])
    sent.append(outside[-1])
    return Protected("".join(sent), form, ordered, "\n".join(outside), spaced)


def _unused_form(folded: str) -> str:
    letters = 0
    while (form := f"QX{'Z' * letters}J").casefold() in folded:
        letters += 1
    return form


def _closing(text: str) -> dict[int, int]:
    """Return the end of what each opening brace opens, where it is closed."""
    ends: dict[int, int] = {}
    still_open: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            still_open.append(brace.start())
        elif still_open:
            ends[still_open.pop()] = brace.end()
    return ends


# -- branches of ICU messages ---------------------------------------------------------------


def _branches(message: str) -> Iterator[str]:
    """Yield the branches of an ICU message that contain words: inside a token they are not translated."""
    head = _BRANCHES.match(message)
    if head is None:
        return
    ends, position = _closing(message), head.end()
    while (opening := message.find("{", position)) >= 0:
        name = "".join(message[position:opening].split()[-1:])
        position = ends.get(opening, len(message))
        branch = message[opening + 1 : position - 1]
        # A message inside a branch counts as words of that branch.
        without_words = [span for span in find(branch) if not _BRANCHES.match(span.replacement)]
        if any(map(str.isalpha, protect(branch, without_words).outside)):
            yield f"{name} {{{branch}}}"


def _listed(branches: Sequence[str]) -> str:
    shown = ", ".join(_short(branch) for branch in branches[:_SHOWN_BRANCHES])
    more = len(branches) - _SHOWN_BRANCHES
    return f"{shown} and {more} more" if more > 0 else shown


def _short(words: str) -> str:
    return words if len(words) <= _SHOWN_CHARACTERS else f"{words[: _SHOWN_CHARACTERS - 1]}…"


# -- numbers ----------------------------------------------------------------------------------


def _has_numbers(source: str, translated: str) -> bool:
    """Return whether each number of the source is in the translation, however it is written.

    Digits may be grouped in another way, and the hour of a time of day may be one of 12 or of 24.
    """
    if not _DIGITS.search(source):
        return True
    times, other_times = ([*map(_time, _TIME_OF_DAY.finditer(text))] for text in (source, translated))
    hours = [(hour, _other_half(hour)) for hour, _ in times]
    hours += [(_other_half(hour), hour) for hour, _ in other_times]
    whole_hours = sum(is_whole for _, is_whole in times)
    numbers, there = _NUMBER.findall(source), _NUMBER.findall(translated)
    return any(_has_all(read(numbers), read(there), hours, whole_hours) for read in (_runs, _joined))


def _has_all(
    wanted: Iterable[str], there: Iterable[str], hours: Iterable[tuple[str, str]], whole_hours: int
) -> bool:
    asked, found = Counter(wanted), Counter(there)
    missing, surplus = asked - found, found - asked
    # 18:00 is 6 p.m., without the zeros.
    missing["0"] -= whole_hours
    for hour, other in hours:
        if missing[hour] > 0 and surplus[other] > 0:
            missing[hour] -= 1
            surplus[other] -= 1
    return all(count <= 0 for count in missing.values())


def _time(match: re.Match[str]) -> tuple[str, bool]:
    """Return the hour of a time of day, and whether zeros are written for its minutes."""
    minutes = match[2] or match[3]
    return _value(match[1]), minutes is not None and _value(minutes) == "0"


def _other_half(hour: str) -> str:
    return str((int(hour) + 12) % 24)


def _runs(numbers: Iterable[str]) -> list[str]:
    return [_value(digits) for number in numbers for digits in _DIGITS.findall(number)]


def _joined(numbers: Iterable[str]) -> list[str]:
    return [_value("".join(_DIGITS.findall(number))) for number in numbers]


def _value(digits: str) -> str:
    # Not int(): a number in a text may have more digits than Python converts.
    return "".join(str(unicodedata.decimal(digit)) for digit in digits).lstrip("0") or "0"
