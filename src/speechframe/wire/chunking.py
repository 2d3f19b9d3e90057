"""Cutting of text that arrives in pieces into chunks for synthesis.

Section 6 of the service document describes the field `predictive_chunking`.

Strict mode cuts after sentences, and lenient mode also after clauses. A missing cut only delays the speech,
but a listener notices a cut in a wrong place. So the chunker does not cut after a full stop that may not end
a sentence (``Dr.``, ``e.g.``, ``3.14``, ``3. Mai``). The cuts depend on the text alone, and not on its
division into frames. So the chunker waits for the character after each punctuation mark.
"""

import re
import unicodedata
from collections.abc import Iterator

from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.spec.limits import BUFFER_SIZE
from speechframe.spec.socket import PredictiveChunking
from speechframe.spec.texts import PAUSE_MARKERS, UNFINISHED_MARKER, find_first_spoken

# Punctuation marks without a space after them. They belong to Chinese, Japanese, Devanagari, Urdu, Arabic,
# Khmer, Burmese and Ethiopic. The last mark is the double exclamation mark.
_SPACELESS_SENTENCE_MARKS = "\u3002\uff01\uff1f\uff61\u0964\u0965\u06d4\u061f\u17d4\u104b\u1362\u203c"
_SPACELESS_CLAUSE_MARKS = "\uff0c\u3001\uff1b\uff1a\u060c\u061b\u1363\u104a"
SENTENCE_MARKS = f".!?\u2026{_SPACELESS_SENTENCE_MARKS}"
CLAUSE_MARKS = f",;:\u2013\u2014{_SPACELESS_CLAUSE_MARKS}"
CLOSING_MARKS = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\u3011\u3015\uff09\uff3d\u300b\u3009\uff63"
"""Quotation marks and brackets that may follow the mark of a sentence or clause."""


def _compile_break_pattern(marks: str, certain: str) -> re.Pattern[str]:
    # A break has marks, then closing characters such as quotes, then one space. After a mark in `certain` the
    # space may be missing. The next character must then be neither a mark nor a closing character. Marks that
    # are no break match without the group `end` and are skipped later, so that no mark is scanned twice.
    closing = re.escape(CLOSING_MARKS)
    return re.compile(
        rf"(?P<marks>[{marks}]++)(?P<certain>(?<=[{certain}]))?[{closing}]*+"
        rf"(?P<end>\s|(?(certain)(?=[^\s{marks}{closing}])|(?!)))?"
        r"|\n"
    )


_BREAK_PATTERNS = {
    PredictiveChunking.STRICT: _compile_break_pattern(SENTENCE_MARKS, _SPACELESS_SENTENCE_MARKS),
    PredictiveChunking.LENIENT: _compile_break_pattern(
        f"{SENTENCE_MARKS}{CLAUSE_MARKS}", f"{_SPACELESS_SENTENCE_MARKS}{_SPACELESS_CLAUSE_MARKS}"
    ),
}

# Words before a full stop that does not end a sentence, in lower case and without the last stop.
_ABBREVIATION_LINES = """
    dr mr mrs ms mx prof st jr sr rev hon gen col capt lt sgt gov sen rep messrs mt ft vs approx ca cf al fig
    figs no nos vol vols pp ch sec ed eds dept univ inc ltd corp co bros e.g i.e a.m p.m ph.d u.s u.k
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    bzw usw evtl ggf inkl bspw vgl str hr fr nr abs z.b d.h u.a
    mme mlle mm av bd env p.ex sra srta ud uds vd n\u00fam p\u00e1g p.ej dra sig dott ing avv ecc
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LINES.split())
_OPENING_MARKS = "\"'([{\u201c\u2018\u00ab\u201e"
_TOKEN_PATTERN = re.compile(rf"[^\s{re.escape(_OPENING_MARKS)}]*")
_MAX_TOKEN_CHARACTERS = 40
"""Number of characters before a full stop that may belong to an abbreviation."""
_MAX_ORDINAL_DIGITS = 2
"""Largest number of digits of an ordinal number before a full stop, such as the 3 in ``3. Mai``."""

_MAX_MARKER_CHARACTERS = 48
"""Largest length of an unfinished pause marker. The chunker looks for one only so far from the end."""


class Chunker:
    r"""Buffer that receives text in pieces and returns chunks for synthesis.

    The joined chunks equal the joined text. No character is lost, added or moved.

    Parameters
    ----------
    min_buffer_size
        Smallest number of characters in a chunk, except after a flush.
    mode
        STRICT cuts after sentences, LENIENT also after clauses.
    longest
        Largest number of characters in a chunk. Longer text without punctuation is cut between words.

    Examples
    --------
    >>> chunker = Chunker(min_buffer_size=0)
    >>> chunker.add("Dr. Who is in. He s"), chunker.add("aw 3.14 "), chunker.flush()
    (['Dr. Who is in. '], [], 'He saw 3.14 ')
    """

    def __init__(
        self,
        *,
        min_buffer_size: int = BUFFER_SIZE.default or 0,
        mode: PredictiveChunking = PredictiveChunking.STRICT,
        longest: int = MAX_TEXT_CHARACTERS,
    ) -> None:
        self.min_buffer_size = min_buffer_size
        self.mode = mode
        self.longest = longest
        self._buffer = ""

    @property
    def waiting(self) -> str:
        """Text in the buffer."""
        return self._buffer

    @property
    def is_in_marker(self) -> bool:
        """Whether the buffer contains only the beginning of a pause marker."""
        return (
            len(self._buffer) <= _MAX_MARKER_CHARACTERS and UNFINISHED_MARKER.match(self._buffer) is not None
        )

    def add(self, text: str) -> list[str]:
        """Add text, and return the chunks that are complete now, in order."""
        self._buffer += text
        return self.take_ready_chunks()

    def take_ready_chunks(self) -> list[str]:
        """Return the chunks that are complete, in order. Call this method after a change of settings."""
        chunks: list[str] = []
        start = 0
        # Shorten the buffer only once, because a long text may have many short sentences.
        while (end := self._find_next_cut(start)) is not None:
            chunks.append(self._buffer[start:end])
            start = end
        self._buffer = self._buffer[start:]
        return chunks

    def take_expired_text(self) -> str:
        """Return the text in the buffer, except an unfinished pause marker at its end. Its delay is over.

        If the buffer contains only an unfinished marker, the method returns it as text.
        """
        marker = UNFINISHED_MARKER.search(self._buffer, max(0, len(self._buffer) - _MAX_MARKER_CHARACTERS))
        if marker is None or self.is_in_marker:
            return self.flush()
        chunk, self._buffer = self._buffer[: marker.start()], self._buffer[marker.start() :]
        return chunk

    def flush(self) -> str:
        """Return the whole buffer, and empty it."""
        chunk, self._buffer = self._buffer, ""
        return chunk

    def _find_next_cut(self, start: int) -> int | None:
        bound = start + self.longest
        at_least = start + max(1, min(self.min_buffer_size, self.longest))
        spoken = find_first_spoken(self._buffer, start, bound)
        if spoken is not None:
            at_least = max(at_least, spoken + 1)
            for end in self._find_breaks(start, bound):
                if end >= at_least:
                    return end
        return self._find_forced_cut(start, bound) if len(self._buffer) > bound else None

    def _find_breaks(self, start: int, bound: int) -> Iterator[int]:
        # Search one character further than the chunk may reach, because some breaks need the next character.
        for match in _BREAK_PATTERNS[self.mode].finditer(self._buffer, start, bound + 1):
            if match["marks"] and match["end"] is None:
                continue
            if (
                match.end() <= bound
                and not self._is_not_a_stop(match, start)
                and not self._is_in_marker(match.end())
            ):
                yield match.end()

    def _is_in_marker(self, end: int) -> bool:
        """Return whether a cut would fall inside a pause marker, such as after the colon of `[pause: 1s]`."""
        return UNFINISHED_MARKER.search(self._buffer[max(0, end - _MAX_MARKER_CHARACTERS) : end]) is not None

    def _is_not_a_stop(self, match: re.Match[str], start: int) -> bool:
        """Return whether a full stop belongs to an abbreviation, an initial or a number."""
        if match["marks"] != "." or match.end() - match.start() > len(". "):
            return False
        # Check for an initial first, because this is fast. A frame may contain nothing but initials, and the
        # check blocks the event loop.
        at = match.start() - 1
        if at >= start and self._buffer[at].isalpha():
            opener = self._buffer[at - 1] if at > start else " "
            if opener.isspace() or opener in _OPENING_MARKS:
                return True
        before = self._buffer[max(start, match.start() - _MAX_TOKEN_CHARACTERS) : match.start()]
        # Match backwards, because a forward search would try each position as the start of the token.
        found = _TOKEN_PATTERN.match(before[::-1])
        token = before[len(before) - found.end() :] if found else ""
        return token.lower() in _ABBREVIATIONS or (token.isdecimal() and len(token) <= _MAX_ORDINAL_DIGITS)

    def _find_forced_cut(self, start: int, bound: int) -> int:
        # Read only the longest chunk and one more character, because later text must not change the cut.
        text = self._buffer[start : bound + 1]
        in_markers: set[int] = set()
        for match in PAUSE_MARKERS.finditer(text):
            in_markers.update(range(match.start() + 1, match.end()))
        if (begun := UNFINISHED_MARKER.search(text, max(0, len(text) - _MAX_MARKER_CHARACTERS))) is not None:
            in_markers.update(range(begun.start() + 1, len(text) + 1))
        places = range(self.longest, self.longest // 2, -1)
        spaces = (at for at in places if text[at - 1].isspace() and at not in in_markers)
        # Do not separate combining marks from their letter, unless there are far too many.
        letters = (at for at in places if not unicodedata.combining(text[at]) and at not in in_markers)
        return start + next(spaces, next(letters, self.longest))
