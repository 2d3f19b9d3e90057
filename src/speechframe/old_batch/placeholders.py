"""What must not be translated: found in a text, kept out of the translator's reach, put back afterwards.

Every placeholder is replaced by a token before the text is sent, so it works
with any service. Of the forms that were tried, ``PZ0`` came back whole most
often (639 of 640 texts, English and Portuguese, Firefox models); a text that
holds one by itself gets the next form. Numbers are sent as they are, and
looked for in the translation.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["VERSION", "Protected", "Restored", "Span", "find", "protect"]

VERSION = 1
"""Of the way texts are protected: it enters request keys, as the same text is then sent in another way."""

FORMS = ("PZ", "XPH", "ZQX", "K7Q")

_ICU = "plural|select|selectordinal|number|date|time|spellout|ordinal|duration|choice"
_BRACES = re.compile(
    rf"\{{\{{[^{{}}]*\}}\}}|\{{\s*(?:[\w.$!:+\-\[\]()<>^%#]+\s*)?\}}|(?=\{{\s*\w+\s*,\s*(?:{_ICU})\s*[,}}])\{{"
)
# Every repeat is bounded or ends at a sign of its own: a text made of half placeholders takes no longer.
_OTHERS = re.compile(
    r"""
    (?P<url> (?:https?|ftp|file)://[^\s<>"'{}]+ | \bwww\.[^\s<>"'{}]+\.[^\s<>"'{}]+ )
  | (?P<mail> (?:mailto:)?[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+ )
  | (?P<tag> <!--(?:(?!<!--).)*?--> | </?[A-Za-z][^<>]*> )
  | (?P<entity> &(?:\#\d{1,7}|\#x[0-9a-fA-F]{1,6}|[A-Za-z]\w{1,30}); )
  | (?P<printf> %\(\w+\)[#0+\-]{0,5}\d{0,9}(?:\.\d{1,9})?[diouxXeEfFgGcrsa]
        | (?<![\d%])%(?:\d{1,9}\$)?[#0+\-]{0,5}(?:\d{1,9}|\*)?(?:\.(?:\d{1,9}|\*))?(?:hh|h|ll|l|L|q|j|z|t)?
          [diouxXeEfFgGcrsap@](?![A-Za-z])
        | %% )
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACE = re.compile(r"[{}]")
_AFTER_URL = ".,;:!?)]}\u00bb\u201d\u2019"
_DIGITS = re.compile(r"\d+")
_GROUPED = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f]\d+)*")


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text that travels as a token.

    Parameters
    ----------
    start, end
        Where it stands.
    back
        What is put in its place at the end.
    is_term
        It is a term of a glossary, no placeholder.
    """

    start: int
    end: int
    back: str
    is_term: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """A translation with everything put back.

    Parameters
    ----------
    text
        The translation.
    placeholders_ok
        Every placeholder came back once and every number is there.
    terms_ok
        Every term came back once; None where there was none.
    """

    text: str
    placeholders_ok: bool
    terms_ok: bool | None


@dataclass(frozen=True, slots=True)
class Protected:
    """A text as it is sent.

    Parameters
    ----------
    sent
        With tokens.
    form
        What tokens begin with.
    spans
        What the tokens stand for, in the order of their numbers.
    numbers
        Of the text outside the tokens.
    apart
        Tokens that a space keeps apart from the digit that follows.
    """

    sent: str
    form: str
    spans: tuple[Span, ...]
    numbers: tuple[str, ...]
    apart: frozenset[int] = frozenset()

    def restore(self, translated: str) -> Restored:
        """Return a translation of `sent` with every token replaced by what it stands for.

        Examples
        --------
        >>> text = protect("Hello {name}, %d files", find("Hello {name}, %d files"))
        >>> text.sent
        'Hello PZ0, PZ1 files'
        >>> text.restore("PZ1 fichiers, bonjour PZ0")
        Restored(text='%d fichiers, bonjour {name}', placeholders_ok=True, terms_ok=None)
        """
        found: Counter[int] = Counter()

        def back(token: re.Match[str]) -> str:
            number = int(token[1])
            if number >= len(self.spans):
                return token[0]
            found[number] += 1
            return self.spans[number].back + ("" if number in self.apart else token[2])

        pattern = _tokens(self.form)
        text = pattern.sub(back, translated)
        of_terms = [found[i] == 1 for i, span in enumerate(self.spans) if span.is_term]
        others = all(found[i] == 1 for i, span in enumerate(self.spans) if not span.is_term)
        bare = pattern.sub(" ", translated)
        return Restored(
            text,
            placeholders_ok=others and _has_numbers(bare, self.numbers),
            terms_ok=all(of_terms) if of_terms else None,
        )


def find(text: str) -> list[Span]:
    """Return the placeholders of a text in order, none inside another.

    Known are ``{name}``, ``{0}``, ``{{name}}``, ``${name}``, ICU messages such as ``{n, plural, one {#
    file} other {# files}}`` as a whole, ``%s``, ``%1$d``, ``%(n)d``, XML and HTML tags and entities, URLs and
    e-mail addresses.

    Examples
    --------
    >>> [span.back for span in find("Dear {name}, see <b>https://example.org</b>.")]
    ['{name}', '<b>', 'https://example.org', '</b>']
    """
    closing: dict[int, int] = {}
    found: list[Span] = []
    brace, other, position = _brace(text, 0, closing), _other(text, 0), 0
    while brace is not None or other is not None:
        if other is None or (brace is not None and _before(text, brace[0], position) <= other[0]):
            assert brace is not None  # noqa: S101 - for the type: one of the two is there
            start, end = _before(text, brace[0], position), brace[1]
        else:
            start, end = other
        found.append(Span(start, end, text[start:end]))
        position = end
        # What was found beyond it stands: nothing is looked for twice.
        if brace is not None and brace[0] < position:
            brace = _brace(text, position, closing)
        if other is not None and other[0] < position:
            other = _other(text, position)
    return found


def protect(text: str, spans: Iterable[Span]) -> Protected:
    """Return a text with a token for each of `spans`, which do not overlap.

    Examples
    --------
    >>> protect("PZ1 of {n}", find("PZ1 of {n}")).sent
    'PZ1 of XPH0'
    """
    ordered = tuple(sorted(spans, key=lambda span: span.start))
    form = next((form for form in FORMS if form.casefold() not in text.casefold()), _unheard_of(text))
    # A digit that follows would be read as one of the token.
    starts = {span.start for span in ordered}
    apart = frozenset(
        number
        for number, span in enumerate(ordered)
        if text[span.end : span.end + 1].isdecimal() and span.end not in starts
    )
    pieces, position = [], 0
    for number, span in enumerate(ordered):
        pieces += [text[position : span.start], f"{form}{number}{' ' if number in apart else ''}"]
        position = span.end
    pieces.append(text[position:])
    outside = "\n".join(piece for piece in pieces[::2])
    return Protected("".join(pieces), form, ordered, tuple(_GROUPED.findall(outside)), apart)


def _unheard_of(text: str) -> str:
    number = 0
    while (form := f"QX{'Z' * number}J") in text.upper():
        number += 1
    return form


def _tokens(form: str) -> re.Pattern[str]:
    # Some translators write what looks like a word in small letters, or set its number apart.
    return re.compile(rf"{form}\s?(\d+)((?: (?=\d))?)", re.IGNORECASE)


def _other(text: str, position: int) -> tuple[int, int] | None:
    """Return where the first placeholder without braces from `position` on begins and ends."""
    found = _OTHERS.search(text, position)
    if found is None:
        return None
    start, end = found.span()
    if found.lastgroup == "url":
        end = start + len(found[0].rstrip(_AFTER_URL))
    return start, end


def _brace(text: str, position: int, closing: dict[int, int]) -> tuple[int, int] | None:
    """Return where the first placeholder in braces from `position` on begins and ends.

    Parameters
    ----------
    text, position
        Where to look.
    closing
        Opening brace to the end of what it opens; filled when it is first needed.
    """
    for found in _BRACES.finditer(text, position):
        start, end = found.span()
        if found[0] != "{":
            return start, end
        if not closing:
            closing |= _closing(text)
        if start in closing:
            return start, closing[start]
    return None


def _before(text: str, start: int, position: int) -> int:
    # ${name}, #{name} and %{name} are one thing.
    return start - 1 if start > position and text[start - 1] in "$#%" else start


def _closing(text: str) -> dict[int, int]:
    found: dict[int, int] = {-1: -1}
    still_open: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            still_open.append(brace.start())
        elif still_open:
            found[still_open.pop()] = brace.end()
    return found


def _has_numbers(translated: str, numbers: Sequence[str]) -> bool:
    """Whether each number of the source stands in the translation, however its digits are grouped."""
    if not numbers:
        return True
    there = _GROUPED.findall(translated)
    return any(not Counter(read(numbers)) - Counter(read(there)) for read in (_runs, _joined))


def _runs(numbers: Iterable[str]) -> list[str]:
    return [_western(digits) for number in numbers for digits in _DIGITS.findall(number)]


def _joined(numbers: Iterable[str]) -> list[str]:
    return ["".join(_runs([number])) for number in numbers]


def _western(digits: str) -> str:
    return "".join(str(unicodedata.decimal(digit)) for digit in digits)
