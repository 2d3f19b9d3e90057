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

from speechframe.spec import placeholders
from speechframe.spec.placeholders import WITH_BRANCHES, closing, signs

_LIKE_A_TOKEN = re.compile(r"pz(x*+)")
_BRANCHES = re.compile(rf"(?P<icu>{WITH_BRANCHES})|\{{\s*\$?[\w.-]+\s*(?:\([^()]*\)\s*)?->")
"""The start of a message with branches, of ICU or of Fluent."""
_FLUENT_BRANCH = re.compile(r"\*?\[\s*([\w.-]+)\s*\]([^\[\]]*)")

_LATIN = r"A-Za-z\u00c0-\u024f"
# Words of consonants are abbreviations or units (PDF, km). Words with a digit or a capital inside are names.
_SAME_IN_ALL_LANGUAGES = re.compile(
    rf"(?<!\w)(?:OK|[{_LATIN}]|[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]{{1,4}}"
    rf"|[{_LATIN}\d]*(?:\d|[a-z\u00df-\u00ff](?=[A-Z]))[{_LATIN}\d]*)(?!\w)"
)

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
    placeholders_ok: bool  # each occurs once, other code and numbers did not change, and no branch is left
    terms_ok: bool | None  # each occurs once, or None if the text contains no terms
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Protected:
    """A text in which tokens stand for placeholders and terms."""

    sent: str
    form: str  # the letters that tokens begin with
    spans: tuple[Span, ...]  # token n replaces span n
    between: tuple[str, ...]  # the text before, between and after the tokens
    before: frozenset[int]  # tokens before which a space was added, because a letter or digit stood there
    after: frozenset[int]  # tokens after which a space was added

    def restore(self, translated: str) -> Restored:
        """Return a translation of `sent` in which every token is replaced."""
        found: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(self.spans))}

        def replaced(token: re.Match[str]) -> str:
            number = int(token[2])
            if number >= len(self.spans):
                return token[0]
            found[number].append(token.span())
            before = "" if number in self.before else token[1]
            return before + self.spans[number].replacement + ("" if number in self.after else token[3])

        # Some translators write a token in small letters, or put a space before its number.
        token = re.compile(rf"( ?){self.form}\s?(\d{{1,9}})( ?)", re.IGNORECASE)
        text, outside = token.sub(replaced, translated), token.sub("\n", translated)
        once = [len(places) == 1 for places in found.values()]
        terms = [is_there for is_there, span in zip(once, self.spans, strict=True) if span.is_term]
        are_there = all(is_there or span.is_term for is_there, span in zip(once, self.spans, strict=True))
        left = self._branches()
        is_same = signs(self.outside) == signs(outside) and _has_numbers(self.outside, outside)
        for number, words in enumerate(self.between[1:-1]):
            # Words that touch two placeholders, as in <b>all</b>, must stay between them.
            is_inside = number in self.after and number + 1 in self.before and _is_text(words)
            if is_inside and once[number] and once[number + 1]:
                (_, start), (end, _) = *found[number], *found[number + 1]
                is_same = is_same and _is_text(translated[start:end])
        return Restored(
            text,
            are_there and not left and is_same,
            all(terms) if terms else None,
            (f"branches were not translated: {', '.join(left)}",) if left else (),
        )

    @property
    def outside(self) -> str:
        """The text without its tokens."""
        return "\n".join(self.between)

    def has_words(self) -> bool:
        """Return whether the text has words to translate, outside of placeholders and terms, or in branches.

        Abbreviations without a vowel, "OK", and words with a digit or a capital inside are names or units.

        Examples
        --------
        >>> [protect(text, find(text)).has_words() for text in ("Integer", "OK", "{name}: 5 km", "GitHub")]
        [True, False, False, False]
        """
        return _is_text(_SAME_IN_ALL_LANGUAGES.sub("", self.outside)) or bool(self._branches())

    def _branches(self) -> list[str]:
        return [one for span in self.spans if not span.is_term for one in _branches(span.replacement)]


def find(text: str) -> list[Span]:
    """Return the placeholders of a text in order. They do not overlap.

    :mod:`speechframe.spec.placeholders` lists the forms, such as ``{name}``, ``%1$d``, ``:name``, and tags.
    A whole ICU message such as ``{n, plural, one {# file} other {# files}}`` is one placeholder.
    """
    return [Span(start, end, text[start:end]) for start, end in placeholders.find(text)]


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
    starts, ends = ({getattr(span, end) for span in ordered} for end in ("start", "end"))
    before: set[int] = set()
    after: set[int] = set()
    sent, between, position = [], [], 0
    for number, span in enumerate(ordered):
        # A letter or digit beside a token would belong to it.
        if span.start and text[span.start - 1].isalnum() and span.start not in ends:
            before.add(number)
        if text[span.end : span.end + 1].isalnum() and span.end not in starts:
            after.add(number)
        between.append(text[position : span.start])
        token = f"{' ' * (number in before)}{form}{number}{' ' * (number in after)}"
        sent += [between[-1], token]
        position = span.end
    between.append(text[position:])
    spaces = frozenset(before), frozenset(after)
    return Protected("".join([*sent, between[-1]]), form, ordered, tuple(between), *spaces)


def _branches(message: str) -> Iterator[str]:
    """Yield the branches of a message that contain words, which stay untranslated in a token."""
    head = _BRANCHES.match(message)
    if head is None:
        return
    for name, branch in (_icu_branches if head["icu"] else _fluent_branches)(message, head.end()):
        # A message inside a branch counts as words of that branch.
        without_words = [span for span in find(branch) if not _BRANCHES.match(span.replacement)]
        if _is_text(protect(branch, without_words).outside):
            yield f"{name} {{{branch}}}"


def _icu_branches(message: str, position: int) -> Iterator[tuple[str, str]]:
    ends = closing(message)
    while (opening := message.find("{", position)) >= 0:
        name = "".join(message[position:opening].split()[-1:])
        position = ends.get(opening, len(message))
        yield name, message[opening + 1 : position - 1]


def _fluent_branches(message: str, position: int) -> Iterator[tuple[str, str]]:
    for branch in _FLUENT_BRANCH.finditer(message, position, len(message) - 1):
        yield branch[1], branch[2].rstrip("* \t\n").strip()


def _is_text(words: str) -> bool:
    return any(map(str.isalpha, words))


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
        wanted, there = (
            Counter(re.sub(r"\D", "", number).lstrip("0") or "0" for number in re.findall(pattern, text))
            for text in texts
        )
        missing, surplus = wanted - there, there - wanted
        # 18:00 is 6 p.m., without the zeros.
        missing["0"] -= sum(int(time[2] or time[3] or "1") == 0 for time in times)
        for hour, other in hours:
            if missing[str(hour)] > 0 and surplus[str(other)] > 0:
                missing[str(hour)] -= 1
                surplus[str(other)] -= 1
        if max(missing.values()) <= 0:
            return True
    return False
