"""Split texts into portions for a translation model, and protect words that the model cannot read."""

import re
from collections.abc import Callable

from speechframe.local.engines.translation.vocabulary import Alphabet
from speechframe.spec.placeholders import TAG, find

__all__ = ["has_letters", "portions", "shielded"]

PORTION_CHARACTERS = 1000
"""Longest portion of a text for one call of a model. Longer texts can make a model write endless output."""

_LETTER = re.compile(r"[^\W\d_]")
# Places where a text may be cut: after line breaks and sentences. The repetitions are possessive, and a run
# of marks such as ?! matches only from its first mark, so matching takes linear time for any text.
_ENDS = re.compile(
    r"\n+"
    r"|(?<![.!?\u2026\u3002\uff01\uff1f])[.!?\u2026\u3002\uff01\uff1f]++[\"')\]\u201d\u2019]*+(?=\s|$)"
    r"|[\u3002\uff01\uff1f]"
)

_TAG = re.compile(TAG, re.DOTALL)
_TAG_OR_LINE_BREAK = re.compile(rf"({TAG}|(?<!\s)[^\S\n]*+\n\s*+)", re.DOTALL)
# A chunk is a word with its punctuation.
_CHUNK = re.compile(r"\S+")
_EDGE = " \t\"'()[].,;:!?\u2018\u2019\u201c\u201d\u00ab\u00bb\u2026\u2013\u2014\u00bf\u00a1"
"""Characters that are cut off the ends of a chunk before the check for unreadable characters."""
_LONG_CHUNK = 40
"""In a chunk with more characters than this, single characters are protected instead of the whole chunk."""
# Whitespace and invisible characters at the ends of a line, such as byte order marks or direction marks.
_NOT_SEEN = r"[\s\ufeff\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069]"
_ENDS_NOT_SEEN = re.compile(rf"\A{_NOT_SEEN}++|(?<!{_NOT_SEEN}){_NOT_SEEN}++\Z")

_FORMS = ("PZ", "XPH", "ZQX", "K7Q")
"""Prefixes of tokens (stand-ins for protected words), the best first. A number follows, as in PZ0. In tests,
the tokens of at least 637 of 640 lines came through translation unchanged."""
_MOST_TOKENS = 20
"""Largest number of tokens in a line."""


def has_letters(text: str) -> bool:
    """Return True if a text contains a letter.

    Examples
    --------
    >>> has_letters("12:30"), has_letters("a.m.")
    (False, True)
    """
    return _LETTER.search(text) is not None


def portions(text: str, most: int = PORTION_CHARACTERS) -> list[str]:
    """Cut a text into portions of at most `most` characters. Joined, the portions are the whole text.

    The text is cut after a line or a sentence if possible, otherwise before whitespace, otherwise anywhere.

    Examples
    --------
    >>> portions("One. Two three. Four", 12)
    ['One.', ' Two three.', ' Four']
    """
    found = []
    start = 0
    while len(text) - start > most:
        end = start + most
        ends = [match.end() for match in _ENDS.finditer(text, start + 1, end)]
        cut = ends[-1] if ends else next((i for i in range(end, start, -1) if text[i].isspace()), end)
        found.append(text[start:cut])
        start = cut
    if start < len(text) or not found:
        found.append(text[start:])
    return found


def shielded(text: str, alphabet: Alphabet, translate: Callable[[str], str]) -> str:
    """Return the translation of a text. Words that the model cannot read stay unchanged.

    Protected words are placeholders, addresses, and words that the model cannot read in any spelling. The
    model gets tokens in their place. If the translation does not contain each token exactly once, or if
    tokens cannot be used, the texts between the protected words are translated separately. Tags, line breaks,
    and whitespace around lines stay in their places.

    Parameters
    ----------
    text
        A text of any length.
    alphabet
        The characters that the model can read.
    translate
        Function that translates a line or a piece of a line.
    """
    pieces = []
    for portion in portions(text):
        for line in _TAG_OR_LINE_BREAK.split(portion):
            core = _ENDS_NOT_SEEN.sub("", line)
            if not has_letters(core) or _TAG.fullmatch(line):
                pieces.append(line)
                continue
            before, _, after = line.partition(core)
            pieces.append(before + _line(core, alphabet, translate) + after)
    return "".join(pieces)


def _line(core: str, alphabet: Alphabet, translate: Callable[[str], str]) -> str:
    parts = _parts(core, alphabet)
    kept = [words for is_kept, words in parts if is_kept]
    if not kept:
        return translate("".join(words for _, words in parts))
    if not any(has_letters(words) for is_kept, words in parts if not is_kept):
        return core
    form = next((form for form in _FORMS if not re.search(rf"{form}\d", core)), None)
    if form is not None and len(kept) <= _MOST_TOKENS:
        sent: list[str] = []
        spaces: list[tuple[str, str]] = []
        for number, (is_kept, words) in enumerate(parts):
            if not is_kept:
                sent.append(words)
                continue
            # Separate a token from a letter or digit beside it by a space, or both would be one word.
            # `_filled` removes the space again.
            before = " " * parts[number - 1][1][-1:].isalnum() if number else ""
            after = " " * parts[number + 1][1][:1].isalnum() if number + 1 < len(parts) else ""
            sent.append(f"{before}{form}{len(spaces)}{after}")
            spaces.append((before, after))
        if (done := _filled(translate("".join(sent)), form, kept, spaces)) is not None:
            return done
    return "".join(words if is_kept else _around(words, translate) for is_kept, words in parts)


def _around(words: str, translate: Callable[[str], str]) -> str:
    core = words.strip()
    if not has_letters(core):
        return words
    before, _, after = words.partition(core)
    return before + translate(core) + after


def _filled(translated: str, form: str, kept: list[str], spaces: list[tuple[str, str]]) -> str | None:
    """Replace the tokens by the protected words. Return None unless each token occurs exactly once."""
    token = re.compile(rf"( ?){form}(\d+)( ?)")
    if sorted(int(match[2]) for match in token.finditer(translated)) != list(range(len(kept))):
        return None

    def replaced(match: re.Match[str]) -> str:
        number = int(match[2])
        before, after = spaces[number]
        return match[1][len(before) :] + kept[number] + match[3][len(after) :]

    return token.sub(replaced, translated)


def _parts(core: str, alphabet: Alphabet) -> list[tuple[bool, str]]:
    """Split a line into protected words (True) and text for the model (False), respelled if needed."""
    found: list[tuple[bool, str]] = []

    def put(words: str, *, kept: bool) -> None:
        if not words:
            return
        if found and found[-1][0] == kept:
            found[-1] = (kept, found[-1][1] + words)
        else:
            found.append((kept, words))

    place = 0
    for start, end in [*find(core), (len(core), len(core))]:
        for match in _CHUNK.finditer(core, place, start):
            put(core[place : match.start()], kept=False)
            for kept, words in _chunk(match[0], alphabet):
                put(words, kept=kept)
            place = match.end()
        put(core[place:start], kept=False)
        put(core[start:end], kept=True)
        place = end
    return found


def _chunk(chunk: str, alphabet: Alphabet) -> list[tuple[bool, str]]:
    inner = chunk.strip(_EDGE)
    before, _, after = chunk.partition(inner) if inner else ("", "", chunk)
    edges = [alphabet.spelled(edge) if edge else "" for edge in (before, after)]
    if inner and (spelled := alphabet.spelled(inner)) is not None:
        middle = [(False, spelled)]
    elif len(inner) <= _LONG_CHUNK:
        middle = [(True, inner)]
    else:
        # In scripts without spaces a chunk may be a sentence. Protect only its unreadable characters.
        middle = [(not alphabet.knows(c), c) for c in inner]
    return [
        (edges[0] is None, edges[0] if edges[0] is not None else before),
        *middle,
        (edges[1] is None, edges[1] if edges[1] is not None else after),
    ]
