"""Split texts into portions for a translation model, and protect words that the model cannot read."""

import re
from collections.abc import Callable

from speechframe.local.engines.translation.vocabulary import Alphabet
from speechframe.spec.placeholders import TAG, find

__all__ = ["has_letters", "portions", "shielded"]

# In portions of this length, no model produces endless output. So the time of a translation grows linearly
# with the length of the text.
PORTION_CHARACTERS = 1000

_LETTER = re.compile(r"[^\W\d_]")
# The repetitions are possessive, and a run of marks such as ?! matches from its first mark only. So matching
# takes linear time for any text.
_ENDS = re.compile(
    r"\n+"
    r"|(?<![.!?\u2026\u3002\uff01\uff1f])[.!?\u2026\u3002\uff01\uff1f]++[\"')\]\u201d\u2019]*+(?=\s|$)"
    r"|[\u3002\uff01\uff1f]"
)

_TAG = re.compile(TAG, re.DOTALL)
_TAG_OR_LINE_BREAK = re.compile(rf"({TAG}|(?<!\s)[^\S\n]*+\n\s*+)", re.DOTALL)
_CHUNK = re.compile(r"\S+")
_EDGE = " \t\"'()[].,;:!?\u2018\u2019\u201c\u201d\u00ab\u00bb\u2026\u2013\u2014\u00bf\u00a1"
_LONG_CHUNK = 40
# Whitespace and invisible characters at the ends of a text, such as a byte order mark or marks of direction.
_NOT_SEEN = r"[\s\ufeff\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069]"
_ENDS_NOT_SEEN = re.compile(rf"\A{_NOT_SEEN}++|(?<!{_NOT_SEEN}){_NOT_SEEN}++\Z")

# Prefixes of tokens. A number follows, as in PZ0. Lines with such tokens survived translation unchanged in at
# least 637 of 640 cases. The best prefix is first.
_FORMS = ("PZ", "XPH", "ZQX", "K7Q")
_MOST_TOKENS = 20


def has_letters(text: str) -> bool:
    """Return whether a text contains letters to translate.

    Examples
    --------
    >>> has_letters("12:30"), has_letters("a.m.")
    (False, True)
    """
    return _LETTER.search(text) is not None


def portions(text: str, most: int = PORTION_CHARACTERS) -> list[str]:
    """Cut a text into portions of at most `most` characters. The portions join to the text.

    Cuts are after a line or a sentence if possible, otherwise before whitespace, otherwise anywhere.

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

    Tokens replace placeholders, addresses, and words that the model cannot read in any spelling. If a token
    does not come back exactly once, or if tokens cannot be used, only the text between the protected words is
    translated, piece by piece. Tags, lines, and whitespace around lines stay in their places.

    Parameters
    ----------
    text
        A text of any length.
    alphabet
        Characters that the model can read.
    translate
        Translates a line or a piece of a line. The piece has a letter, and no whitespace around it.
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
            # A token and a letter or digit beside it would be one word, so a space separates them. `_filled`
            # removes the space again.
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
    """Put the protected words back in place of the tokens. Return None unless each occurs exactly once."""
    token = re.compile(rf"( ?){form}(\d+)( ?)")
    if sorted(int(match[2]) for match in token.finditer(translated)) != list(range(len(kept))):
        return None

    def replaced(match: re.Match[str]) -> str:
        number = int(match[2])
        before, after = spaces[number]
        return match[1][len(before) :] + kept[number] + match[3][len(after) :]

    return token.sub(replaced, translated)


def _parts(core: str, alphabet: Alphabet) -> list[tuple[bool, str]]:
    """Cut a line into protected words (True) and text for the model (False), respelled if needed."""
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
        # Some scripts do not use spaces. There, a rare character must not protect a whole sentence.
        middle = [(not alphabet.knows(c), c) for c in inner]
    return [
        (edges[0] is None, edges[0] if edges[0] is not None else before),
        *middle,
        (edges[1] is None, edges[1] if edges[1] is not None else after),
    ]
