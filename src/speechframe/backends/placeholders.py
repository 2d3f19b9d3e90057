"""Replace the placeholders of a text by short tokens before it is sent, and put them into its translation.

Tokens work with any translator. ``PZ0`` came back intact more often than the other forms that were tried (639
of 640 texts, English and Portuguese, Firefox models). Numbers are sent unchanged, and then searched for in
the translation.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from speechframe.spec.texts import CODES, WITH_BRANCHES

_PLACEHOLDER = re.compile(
    rf"""{CODES}
  | (?P<url> (?:https?|ftp|file)://[^\s<>"'{{}}]+ | \bwww\.[^\s<>"'{{}}]+\.[^\s<>"'{{}}]+ )
  | (?P<mail> (?:mailto:)?[\w.+-]{{1,64}}@[\w-]+(?:\.[\w-]+)+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_NOT_OF_A_URL = ".,;:!?)]}\u00bb\u201d\u2019"
"""Characters at the end of a URL that belong to the sentence around it."""

_LIKE_A_TOKEN = re.compile(r"pz(x*+)")
_BRANCHES = re.compile(rf"[$#%]?\{{\s*\w+\s*,\s*(?:{WITH_BRANCHES})\s*,")

_NUMBER = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f]\d+)*")
_TIME_OF_DAY = re.compile(
    r"(?<![\d.,:])(\d{1,2})(?:[:h](\d\d)(?![\d:])|(?:[:.](\d\d))?\s?(?:h|uhr|[ap]\.?\s?m)\b)", re.IGNORECASE
)
"""18:30, 18h30, 18h, 18.30 Uhr, 6 p.m., 6:30pm"""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text that is sent as a token."""

    start: int
    end: int
    replacement: str  # text in the translation, either the placeholder itself or a term's translation
    is_term: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """A translation in which every token was replaced."""

    text: str
    placeholders_ok: bool  # each is there once, each number is there, each ICU branch is translated
    terms_ok: bool | None  # each is there once, or None if the text had no terms
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Protected:
    """A text as it is sent."""

    sent: str
    form: str  # the letters that tokens begin with
    spans: tuple[Span, ...]  # token n replaces span n
    outside: str  # the text between the tokens
    spaced: frozenset[int]  # tokens after which a space was added, because a digit follows

    def restore(self, translated: str) -> Restored:
        """Return a translation of `sent` in which every token is replaced."""
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
        left = [one for span in self.spans if not span.is_term for one in _branches(span.replacement)]
        return Restored(
            text,
            are_there and not left and _has_numbers(self.outside, token.sub(" ", translated)),
            all(terms) if terms else None,
            (f"branches were not translated: {', '.join(left)}",) if left else (),
        )


def find(text: str) -> list[Span]:
    """Return the placeholders of a text in order, none inside another.

    Examples are ``{name}``, ``{0}``, ``{{name}}``, ``${name}``, ``%s``, ``%1$d`` and ``%(n)d``. XML and HTML
    tags and entities, URLs and e-mail addresses are placeholders, too. A whole ICU message such as
    ``{n, plural, one {# file} other {# files}}`` is one placeholder.
    """
    spans: list[Span] = []
    closing, position = _closing(text), 0
    while (match := _PLACEHOLDER.search(text, position)) is not None:
        start, position = match.span()
        if match.lastgroup == "icu":
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
    >>> text = protect("Hello {name}, %d files", find("Hello {name}, %d files"))
    >>> text.sent, text.restore("PZ1 fichiers, bonjour PZ0").text
    ('Hello PZ0, PZ1 files', '%d fichiers, bonjour {name}')
    """
    ordered = tuple(sorted(spans, key=lambda span: span.start))
    # One X more than the longest run after PZ in the text, so that the text does not contain any token.
    runs = [len(run) for run in _LIKE_A_TOKEN.findall(text.casefold())]
    form = "PZ" + "X" * (1 + max(runs, default=-1))
    starts = {span.start for span in ordered}
    spaced: set[int] = set()
    sent, outside, position = [], [], 0
    for number, span in enumerate(ordered):
        if text[span.end : span.end + 1].isdecimal() and span.end not in starts:
            spaced.add(number)  # otherwise the digit would belong to the token
        outside.append(text[position : span.start])
        sent += [outside[-1], f"{form}{number}{' ' if number in spaced else ''}"]
        position = span.end
    outside.append(text[position:])
    return Protected("".join([*sent, outside[-1]]), form, ordered, "\n".join(outside), frozenset(spaced))


def _closing(text: str) -> dict[int, int]:
    """Return the end of each pair of braces by its start. Braces without a partner are left out."""
    ends: dict[int, int] = {}
    still_open: list[int] = []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            still_open.append(brace.start())
        elif still_open:
            ends[still_open.pop()] = brace.end()
    return ends


def _branches(message: str) -> Iterator[str]:
    """Yield the branches of an ICU message that contain words, which stay untranslated in a token."""
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


def _has_numbers(source: str, translated: str) -> bool:
    """Return whether each number of the source is in the translation, in any notation.

    The grouping of digits may differ. A time of day may use 12 or 24 hours.
    """
    texts = [
        re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text) for text in (source, translated)
    ]
    times, other_times = ([*_TIME_OF_DAY.finditer(text)] for text in texts)
    hours = [(int(time[1]), (int(time[1]) + 12) % 24) for time in times]
    hours += [((int(time[1]) + 12) % 24, int(time[1])) for time in other_times]
    for pattern in (r"\d+", _NUMBER):
        # Do not use int(), because a number in a text may have more digits than Python converts.
        asked, there = (
            Counter(re.sub(r"\D", "", number).lstrip("0") or "0" for number in re.findall(pattern, text))
            for text in texts
        )
        missing, surplus = asked - there, there - asked
        # 18:00 is 6 p.m., without the zeros.
        missing["0"] -= sum(int(time[2] or time[3] or "1") == 0 for time in times)
        for hour, other in hours:
            if missing[str(hour)] > 0 and surplus[str(other)] > 0:
                missing[str(hour)] -= 1
                surplus[str(other)] -= 1
        if max(missing.values()) <= 0:
            return True
    return False
