"""Split texts into portions for a translation model, and protect words that the model cannot read."""

import re
from collections.abc import Callable

from speechframe.local.engines.translation.vocabulary import Alphabet
from speechframe.spec.placeholders import TAG_PATTERN, find_code

PORTION_CHARACTERS = 1000
"""Longest portion of a text for one call of a model. Longer texts can make a model write endless output."""

_LETTER_PATTERN = re.compile(r"[^\W\d_]")
# Places where a text may be cut: after line breaks and sentences. The repetitions are possessive, and a run
# of marks such as ?! matches only from its first mark, so matching takes linear time for any text.
_CUT_PATTERN = re.compile(
    r"\n+"
    r"|(?<![.!?\u2026\u3002\uff01\uff1f])[.!?\u2026\u3002\uff01\uff1f]++[\"')\]\u201d\u2019]*+(?=\s|$)"
    r"|[\u3002\uff01\uff1f]"
)

_TAG_PATTERN = re.compile(TAG_PATTERN, re.DOTALL)
_TAG_OR_LINE_BREAK_PATTERN = re.compile(rf"({TAG_PATTERN}|(?<!\s)[^\S\n]*+\n\s*+)", re.DOTALL)
# A chunk is a word with its punctuation.
_CHUNK_PATTERN = re.compile(r"\S+")
_EDGE_CHARACTERS = " \t\"'()[].,;:!?\u2018\u2019\u201c\u201d\u00ab\u00bb\u2026\u2013\u2014\u00bf\u00a1"
"""Characters that are cut off the ends of a chunk before the check for unreadable characters."""
_MAX_PROTECTED_CHARACTERS = 40
"""In a chunk with more characters than this, single characters are protected instead of the whole chunk."""
# Whitespace and invisible characters at the ends of a line, such as byte order marks or direction marks.
_INVISIBLE_CLASS = r"[\s\ufeff\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069]"
_INVISIBLE_ENDS_PATTERN = re.compile(rf"\A{_INVISIBLE_CLASS}++|(?<!{_INVISIBLE_CLASS}){_INVISIBLE_CLASS}++\Z")

_TOKEN_PREFIXES = ("PZ", "XPH", "ZQX", "K7Q")
"""Prefixes of tokens (stand-ins for protected words), the best first. A number follows, as in PZ0. In tests,
the tokens of at least 637 of 640 lines came through translation unchanged."""
_MAX_TOKENS = 20
"""Largest number of tokens in a line."""


def has_letters(text: str) -> bool:
    """Return True if a text contains a letter.

    Examples
    --------
    >>> has_letters("12:30"), has_letters("a.m.")
    (False, True)
    """
    return _LETTER_PATTERN.search(text) is not None


def split_portions(text: str, most: int = PORTION_CHARACTERS) -> list[str]:
    """Cut a text into portions of at most `most` characters. Joined, the portions are the whole text.

    The text is cut after a line or a sentence if possible, otherwise before whitespace, otherwise anywhere. A
    placeholder, tag or other code is only cut if it does not fit into a portion.

    Examples
    --------
    >>> split_portions("One. Two three. Four", 12)
    ['One.', ' Two three.', ' Four']
    """
    found = []
    start = 0
    is_in_code = _mark_code(text) if len(text) > most else b""
    while len(text) - start > most:
        end = start + most
        # Search one character further, because the end of the range would count as the end of the text.
        ends = [match.end() for match in _CUT_PATTERN.finditer(text, start + 1, end + 1)]
        places = [place for place in range(end, start, -1) if not is_in_code[place]]
        cut = next((place for place in reversed(ends) if place <= end and not is_in_code[place]), None)
        cut = cut or next((place for place in places if text[place].isspace()), places[0] if places else end)
        found.append(text[start:cut])
        start = cut
    if start < len(text) or not found:
        found.append(text[start:])
    return found


def _mark_code(text: str) -> bytearray:
    """Return 1 for each place of a text that is inside a piece of code, else 0."""
    marks = bytearray(len(text))
    for start, end in find_code(text):
        marks[start + 1 : end] = b"\1" * (end - start - 1)
    return marks


def translate_protected(text: str, alphabet: Alphabet, translate: Callable[[str], str]) -> str:
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
    for portion in split_portions(text):
        for line in _TAG_OR_LINE_BREAK_PATTERN.split(portion):
            core = _INVISIBLE_ENDS_PATTERN.sub("", line)
            if not has_letters(core) or _TAG_PATTERN.fullmatch(line):
                pieces.append(line)
                continue
            before, _, after = line.partition(core)
            pieces.append(before + _translate_line(core, alphabet, translate) + after)
    return "".join(pieces)


def _translate_line(core: str, alphabet: Alphabet, translate: Callable[[str], str]) -> str:
    parts = _split_protected(core, alphabet)
    kept = [part for is_kept, part in parts if is_kept]
    if not kept:
        return translate("".join(part for _, part in parts))
    if not any(has_letters(part) for is_kept, part in parts if not is_kept):
        return core
    prefix = next((form for form in _TOKEN_PREFIXES if not re.search(rf"{form}\d", core)), None)
    if prefix is not None and len(kept) <= _MAX_TOKENS:
        sent: list[str] = []
        spaces: list[tuple[str, str]] = []
        for number, (is_kept, part) in enumerate(parts):
            if not is_kept:
                sent.append(part)
                continue
            # Separate a token from a letter or digit beside it by a space, or both would be one word.
            # `_restore_words` removes the space again.
            before = " " * parts[number - 1][1][-1:].isalnum() if number else ""
            after = " " * parts[number + 1][1][:1].isalnum() if number + 1 < len(parts) else ""
            sent.append(f"{before}{prefix}{len(spaces)}{after}")
            spaces.append((before, after))
        if (done := _restore_words(translate("".join(sent)), prefix, kept, spaces)) is not None:
            return done
    return "".join(part if is_kept else _translate_core(part, translate) for is_kept, part in parts)


def _translate_core(part: str, translate: Callable[[str], str]) -> str:
    core = part.strip()
    if not has_letters(core):
        return part
    before, _, after = part.partition(core)
    return before + translate(core) + after


def _restore_words(
    translated: str, prefix: str, kept: list[str], spaces: list[tuple[str, str]]
) -> str | None:
    """Replace the tokens by the protected words. Return None unless each token occurs exactly once."""
    token = re.compile(rf"( ?){prefix}(\d+)( ?)")
    if sorted(int(match[2]) for match in token.finditer(translated)) != list(range(len(kept))):
        return None

    def restore_word(match: re.Match[str]) -> str:
        number = int(match[2])
        before, after = spaces[number]
        return match[1][len(before) :] + kept[number] + match[3][len(after) :]

    return token.sub(restore_word, translated)


def _split_protected(core: str, alphabet: Alphabet) -> list[tuple[bool, str]]:
    """Split a line into protected words (True) and text for the model (False), respelled if needed."""
    found: list[tuple[bool, str]] = []

    def add_part(part: str, *, kept: bool) -> None:
        if not part:
            return
        if found and found[-1][0] == kept:
            found[-1] = (kept, found[-1][1] + part)
        else:
            found.append((kept, part))

    position = 0
    for start, end in [*find_code(core), (len(core), len(core))]:
        for match in _CHUNK_PATTERN.finditer(core, position, start):
            add_part(core[position : match.start()], kept=False)
            for kept, part in _split_chunk(match[0], alphabet):
                add_part(part, kept=kept)
            position = match.end()
        add_part(core[position:start], kept=False)
        add_part(core[start:end], kept=True)
        position = end
    return found


def _split_chunk(chunk: str, alphabet: Alphabet) -> list[tuple[bool, str]]:
    inner = chunk.strip(_EDGE_CHARACTERS)
    before, _, after = chunk.partition(inner) if inner else ("", "", chunk)
    edges = [alphabet.respell(edge) if edge else "" for edge in (before, after)]
    if inner and (spelled := alphabet.respell(inner)) is not None:
        middle = [(False, spelled)]
    elif len(inner) <= _MAX_PROTECTED_CHARACTERS:
        middle = [(True, inner)]
    else:
        # In scripts without spaces a chunk may be a sentence. Protect only its unreadable characters.
        middle = [(not alphabet.can_read(c), c) for c in inner]
    return [
        (edges[0] is None, edges[0] if edges[0] is not None else before),
        *middle,
        (edges[1] is None, edges[1] if edges[1] is not None else after),
    ]
