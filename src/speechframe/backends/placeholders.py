"""Replace placeholders such as ``{name}`` by short tokens in a text, and put them back into its translation.

Tokens work with any translator. Tokens such as ``PZ0`` came back intact more often than the other forms that
were tried (in 639 of 640 texts, English and Portuguese, Firefox models). Numbers are sent unchanged, and then
searched for in the translation.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from speechframe.spec import placeholders
from speechframe.spec.placeholders import ICU_BRANCHES_START, count_signs, find_closing_braces

# Matches text that looks like the beginning of a token, in lower case.
_TOKEN_START = re.compile(r"pz(x*+)")
_BRANCHES_START = re.compile(rf"(?P<icu>{ICU_BRANCHES_START})|\{{\s*\$?[\w.-]+\s*(?:\([^()]*\)\s*)?->")
"""Matches the start of a message with branches, such as singular and plural, of ICU or of Fluent."""
# Matches a branch of a Fluent message: its name in brackets, and its text.
_FLUENT_BRANCH = re.compile(r"\*?\[\s*([\w.-]+)\s*\]([^\[\]]*)")

_LATIN_LETTERS = r"A-Za-z\u00c0-\u024f"
# Matches words that stay the same in a translation: OK, single letters, up to four consonants (abbreviations
# and units, such as PDF and km), and words with a digit or a capital inside, which are names.
_SAME_IN_ALL_LANGUAGES = re.compile(
    rf"(?<!\w)(?:OK|[{_LATIN_LETTERS}]|[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]{{1,4}}"
    rf"|[{_LATIN_LETTERS}\d]*(?:\d|[a-z\u00df-\u00ff](?=[A-Z]))[{_LATIN_LETTERS}\d]*)(?!\w)"
)

# Matches a number with any marks between its digits.
_NUMBER_PATTERN = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f]\d+)*")
_TIME_OF_DAY = re.compile(
    r"(?<![\d.,:])(\d{1,2})(?:[:h](\d\d)(?![\d:])|(?:[:.](\d\d))?\s?(?:h|uhr|[ap]\.?\s?m)\b)", re.IGNORECASE
)
"""Matches a time of day, such as 18:30, 18h30, 18h, 18.30 Uhr, 6 p.m. or 6:30pm."""


@dataclass(frozen=True, slots=True)
class Span:
    """A placeholder or a term of a glossary in a text, at ``text[start:end]``. It is sent as a token."""

    start: int
    end: int
    replacement: str  # what replaces the token: the placeholder itself, or the translation of the term
    is_term: bool = False


@dataclass(frozen=True, slots=True)
class RestoredTranslation:
    """A translation in which every token was replaced, and the result of the checks."""

    text: str
    # True if each placeholder occurs once, other code and all numbers are unchanged, and no message has
    # branches with words.
    placeholders_ok: bool
    terms_ok: bool | None  # True if each term occurs once, None if the text contains no term
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtectedText:
    """A text in which tokens stand for placeholders and terms."""

    sent: str  # the text with tokens
    form: str  # the letters with which each token begins
    spans: tuple[Span, ...]  # token n replaces span n
    between: tuple[str, ...]  # the text before, between and after the tokens
    # Numbers of tokens before and after which a space was added, because a letter or digit is there.
    before: frozenset[int]
    after: frozenset[int]

    def restore(self, translated: str) -> RestoredTranslation:
        """Replace every token in `translated`, a translation of `sent`. Also check the translation."""
        found: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(self.spans))}

        def replace_token(token: re.Match[str]) -> str:
            number = int(token[2])
            if number >= len(self.spans):
                return token[0]
            found[number].append(token.span())
            before = "" if number in self.before else token[1]
            return before + self.spans[number].replacement + ("" if number in self.after else token[3])

        # Some translators write a token in small letters, or put a space before its number.
        token = re.compile(rf"( ?){self.form}\s?(\d{{1,9}})( ?)", re.IGNORECASE)
        text, outside = token.sub(replace_token, translated), token.sub("\n", translated)
        occurs_once = [len(places) == 1 for places in found.values()]
        by_span = list(zip(occurs_once, self.spans, strict=True))
        has_term = [is_there for is_there, span in by_span if span.is_term]
        has_placeholders = all(is_there or span.is_term for is_there, span in by_span)
        branches = self._list_branches()
        is_same = count_signs(self.outside) == count_signs(outside) and _has_numbers(self.outside, outside)
        for number, between in enumerate(self.between[1:-1]):
            # Words that touch the placeholder before and after them, as in <b>all</b>, must stay between the
            # two.
            is_inside = number in self.after and number + 1 in self.before and _has_letter(between)
            if is_inside and occurs_once[number] and occurs_once[number + 1]:
                (_, start), (end, _) = *found[number], *found[number + 1]
                is_same = is_same and _has_letter(translated[start:end])
        return RestoredTranslation(
            text,
            has_placeholders and not branches and is_same,
            all(has_term) if has_term else None,
            (f"branches were not translated: {', '.join(branches)}",) if branches else (),
        )

    @property
    def outside(self) -> str:
        """The text outside of the tokens. Line breaks stand for the tokens."""
        return "\n".join(self.between)

    def has_words(self) -> bool:
        """Return whether the text has words to translate, outside of placeholders and terms, or in branches.

        Abbreviations without a vowel, "OK", and words with a digit or a capital inside are names or units.

        Examples
        --------
        >>> texts = ("Integer", "OK", "{name}: 5 km", "GitHub")
        >>> [replace_spans(text, find_placeholders(text)).has_words() for text in texts]
        [True, False, False, False]
        """
        return _has_letter(_SAME_IN_ALL_LANGUAGES.sub("", self.outside)) or bool(self._list_branches())

    def _list_branches(self) -> list[str]:
        """Return the branches with words of all messages among the placeholders."""
        return [one for span in self.spans if not span.is_term for one in _iterate_branches(span.replacement)]


def find_placeholders(text: str) -> list[Span]:
    """Return a span for each placeholder of a text, in order. The spans do not overlap.

    :mod:`speechframe.spec.placeholders` lists the forms, such as ``{name}``, ``%1$d``, ``:name``, and tags.
    A whole ICU message such as ``{n, plural, one {# file} other {# files}}`` is one placeholder.
    """
    return [Span(start, end, text[start:end]) for start, end in placeholders.find_code(text)]


def replace_spans(text: str, spans: Iterable[Span]) -> ProtectedText:
    """Replace each of `spans` in a text by a token. The spans must not overlap.

    Examples
    --------
    >>> text = replace_spans("Hello {name}, %d files", find_placeholders("Hello {name}, %d files"))
    >>> text.sent, text.restore("PZ1 fichiers, bonjour PZ0").text
    ('Hello PZ0, PZ1 files', '%d fichiers, bonjour {name}')
    """
    ordered = tuple(sorted(spans, key=lambda span: span.start))
    # Begin tokens with PZ and one X more than the longest run of X after PZ in the text, or with PZ alone if
    # the text has no PZ. So no part of the text looks like a token.
    runs = [len(run) for run in _TOKEN_START.findall(text.casefold())]
    form = "PZ" + "X" * (1 + max(runs, default=-1))
    starts, ends = ({getattr(span, end) for span in ordered} for end in ("start", "end"))
    before: set[int] = set()
    after: set[int] = set()
    sent, between, position = [], [], 0
    for number, span in enumerate(ordered):
        # Add a space between a token and a letter or digit, which would seem to belong to the token.
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
    return ProtectedText("".join([*sent, between[-1]]), form, ordered, tuple(between), *spaces)


def _iterate_branches(message: str) -> Iterator[str]:
    """Yield the branches of a message that contain words, which stay untranslated as part of a token."""
    head = _BRANCHES_START.match(message)
    if head is None:
        return
    for name, branch in (_split_icu_branches if head["icu"] else _split_fluent_branches)(message, head.end()):
        # Leave out the placeholders of the branch, except messages, because these contain words.
        without_words = [
            span for span in find_placeholders(branch) if not _BRANCHES_START.match(span.replacement)
        ]
        if _has_letter(replace_spans(branch, without_words).outside):
            yield f"{name} {{{branch}}}"


def _split_icu_branches(message: str, position: int) -> Iterator[tuple[str, str]]:
    """Yield name and text of each branch of an ICU message, from a position on."""
    ends = find_closing_braces(message)
    while (opening := message.find("{", position)) >= 0:
        name = "".join(message[position:opening].split()[-1:])
        position = ends.get(opening, len(message))
        yield name, message[opening + 1 : position - 1]


def _split_fluent_branches(message: str, position: int) -> Iterator[tuple[str, str]]:
    """Yield name and text of each branch of a Fluent message, from a position on."""
    for branch in _FLUENT_BRANCH.finditer(message, position, len(message) - 1):
        yield branch[1], branch[2].rstrip("* \t\n").strip()


def _has_letter(text: str) -> bool:
    """Return whether a text contains a letter."""
    return any(map(str.isalpha, text))


def _has_numbers(source: str, translated: str) -> bool:
    """Return whether each number of the source is in the translation, in any usual notation.

    The marks between digits may differ. A time of day may use 12 or 24 hours.
    """
    texts = [
        re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text) for text in (source, translated)
    ]
    times, other_times = ([*_TIME_OF_DAY.finditer(text)] for text in texts)
    hours = [(int(time[1]), (int(time[1]) + 12) % 24) for time in times]
    hours += [((int(time[1]) + 12) % 24, int(time[1])) for time in other_times]
    for pattern in (r"\d+", _NUMBER_PATTERN):
        # Compare texts, not int, because a number may have more digits than Python converts.
        wanted, present = (
            Counter(re.sub(r"\D", "", number).lstrip("0") or "0" for number in re.findall(pattern, text))
            for text in texts
        )
        missing, surplus = wanted - present, present - wanted
        # The zeros of 18:00 may be missing, because 18:00 may be written as 6 p.m.
        missing["0"] -= sum(int(time[2] or time[3] or "1") == 0 for time in times)
        for hour, other in hours:
            if missing[str(hour)] > 0 and surplus[str(other)] > 0:
                missing[str(hour)] -= 1
                surplus[str(other)] -= 1
        if max(missing.values()) <= 0:
            return True
    return False
