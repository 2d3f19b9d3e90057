"""Split a text at its pause markers, count its billed characters, and find its faults (section 2.1).

The choices of :mod:`speechframe.spec.chosen` apply: pause-marker, billed-characters, maximum-text,
empty-text, ssml and codes.
"""

import re
import sys
from dataclasses import dataclass

from speechframe.spec.chosen import MAX_TEXT_CHARACTERS, PAUSE_SECONDS
from speechframe.spec.placeholders import SPOKEN_KINDS, find

# The document's shape only: one blank, a plain decimal number, the unit `s`. Another service would speak and
# bill a marker that only we understand. Digits are bounded so that float() stays finite.
_PAUSE = r"\[pause ([0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15})s\]"
# The word pause or break in square brackets, alone or with a time, is clearly meant as a marker. Nobody wants
# to hear it.
_AMOUNT = (
    r"[-+]?(?:[0-9]{1,15}(?:[.,][0-9]{1,15})?|[.,][0-9]{1,15})\s{0,3}"
    r"(?:ms|msecs?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?)?\.?"
)
_MEANT = (
    rf"(?i:\[\s{{0,3}}(?:pause|break)(?![^\W\d_])[\s:=,]{{0,3}}(?:(?:(?:for|of)\s)?{_AMOUNT})?\s{{0,3}}\])"
)
MARKERS = re.compile(f"{_PAUSE}|{_MEANT}")
"""The parts of a text that are not spoken. The only group has the seconds of a pause."""
UNFINISHED_MARKER = re.compile(
    r"\[\s{0,3}(?:p(?:a(?:us?)?)?|b(?:r(?:ea?)?)?|(?:pause|break)[^\[\]\n]{0,39})?\Z", re.IGNORECASE
)
"""The end of a text that may become a marker when more text comes. It has at most 48 characters."""
_MARKER_OR_SPOKEN = re.compile(rf"{MARKERS.pattern}|(?P<spoken>[^\W_])")
_NEARLY = re.compile(r"\[\s*pause\b[^\[\]\n]{0,40}\]?", re.IGNORECASE)
_SURROGATE = re.compile("[\\ud800-\\udfff]")
# Possessive if two parts could share characters, so that the time is linear for any text.
_ALWAYS_SSML = r"</?(?:(?:speak|prosody|break|say-as|emphasis|phoneme)\b|(?:amazon|mstts|google):\w)[^<>]*+>"
# These are also ordinary words of placeholders (`<voice>`); with an attribute or a slash they are markup.
_SOMETIMES_SSML = (
    r"<(?:voice|audio|sub|mark|lang|p|s|w)\s[^<>=]*+=[^<>]*+>|</(?:voice|audio|sub|lang|p|s|w)\s*>"
)
_SSML = re.compile(f"{_ALWAYS_SSML}|{_SOMETIMES_SSML}|^\\s*<speak\\b", re.IGNORECASE)


SCRIPTS_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts without spaces between words, as the Unicode names of their characters begin."""

_NAMED_CODES, _LONGEST_CODE = 3, 40


@dataclass(frozen=True, slots=True)
class Pause:
    """A silence inside a text, with its length (`seconds`) and the requested length (`asked_seconds`)."""

    seconds: float
    asked_seconds: float

    @property
    def clamped(self) -> bool:
        """True when the asked length lies outside the range that is served."""
        return self.seconds != self.asked_seconds

    @property
    def warning(self) -> str | None:
        """A warning if the pause was clamped, else None."""
        if not self.clamped:
            return None
        return f"pause of {self.asked_seconds:g} s was set to {self.seconds:g} s (allowed: {PAUSE_SECONDS} s)"


def split_pauses(text: str) -> tuple[str | Pause, ...]:
    """Return a text as pieces to speak and pauses between them, in order.

    Parameters
    ----------
    text : str
        Text with any number of markers. Misspelled markers are left out (chosen: pause-marker).

    Returns
    -------
    tuple of str or Pause
        No piece of text is empty. The joined pieces are `strip_pauses(text)`.

    Examples
    --------
    >>> split_pauses("Wait. [pause 1.5s]Now!")
    ('Wait. ', Pause(seconds=1.5, asked_seconds=1.5), 'Now!')
    """
    if "[" not in text:
        return (text,) if text else ()
    pieces: list[str | Pause] = []
    for index, piece in enumerate(MARKERS.split(text)):
        if piece is None:
            continue
        if index % 2:
            asked_s = float(piece)
            pieces.append(Pause(PAUSE_SECONDS.clamp(asked_s), asked_s))
        elif piece:
            pieces.append(piece)
    return tuple(pieces)


def strip_pauses(text: str) -> str:
    """Return the text without its pause markers. The rest is spoken and billed.

    Examples
    --------
    >>> strip_pauses("Wait. [pause 1.5s]Now! [pause for 2 seconds][pause for effect]")
    'Wait. Now! [pause for effect]'
    """
    return MARKERS.sub("", text) if "[" in text else text


def billed_characters(text: str) -> int:
    """Return the number of billed characters, which are all but those of pause markers. Whitespace counts.

    Characters are Unicode code points, as everywhere in Python and in JSON schema lengths.

    Examples
    --------
    >>> billed_characters("Wait. [pause 1.5s]Now!")
    10
    """
    return len(strip_pauses(text))


def speaks(text: str) -> bool:
    """Return whether a text has a letter or digit outside of its pause markers.

    Examples
    --------
    >>> speaks("[pause 2s] ..."), speaks("Да")
    (False, True)
    """
    return first_spoken(text) is not None


def first_spoken(text: str, start: int = 0, end: int = sys.maxsize) -> int | None:
    """Return the index of the first letter or digit outside of pause markers, or None.

    Examples
    --------
    >>> first_spoken("[pause 2s] ... Now")
    15
    """
    found = (match.start() for match in _MARKER_OR_SPOKEN.finditer(text, start, end) if match["spoken"])
    return next(found, None)


def pause_warnings(text: str) -> tuple[str, ...]:
    """Return a warning for every pause that is clamped, and for every text that looks like a marker.

    Examples
    --------
    >>> pause_warnings("Wait [pause 9s] and [pause 500ms] go.")  # doctest: +NORMALIZE_WHITESPACE
    ('pause of 9 s was set to 5 s (allowed: 0.1 to 5 s)',
     "'[pause 500ms]' is not a pause marker and was left out; write [pause 1.5s]")
    """
    if "[" not in text:
        return ()
    clamped = (piece.warning for piece in split_pauses(text) if isinstance(piece, Pause))
    meant = (match.group() for match in MARKERS.finditer(text) if match[1] is None)
    nearly = (match.group() for match in _NEARLY.finditer(strip_pauses(text)))
    return (
        *(words for words in clamped if words),
        *(f"{piece!r} is not a pause marker and was left out; write [pause 1.5s]" for piece in meant),
        *(f"{piece!r} is not a pause marker and is spoken as text; write [pause 1.5s]" for piece in nearly),
    )


def code_warnings(text: str) -> tuple[str, ...]:
    """Return a warning that names tags and other codes, which a voice reads aloud (chosen: codes).

    Examples
    --------
    >>> code_warnings("Hello <b>{name}</b>")  # doctest: +NORMALIZE_WHITESPACE
    ("'<b>', '{name}', '</b>' look like markup or code and are spoken as text; remove them, or write the words
    to speak",)
    >>> code_warnings("Salt & pepper, 50 % off")
    ()
    """
    codes = dict.fromkeys(text[start:end] for start, end in find(text, SPOKEN_KINDS))
    if not codes:
        return ()
    named = ", ".join(f"'{' '.join(code.split())[:_LONGEST_CODE]}'" for code in list(codes)[:_NAMED_CODES])
    more = f" and {len(codes) - _NAMED_CODES} more" if len(codes) > _NAMED_CODES else ""
    verbs = ("looks", "is", "it") if len(codes) == 1 else ("look", "are", "them")
    said = f"{named}{more} {verbs[0]} like markup or code and {verbs[1]} spoken as text"
    return (f"{said}; remove {verbs[2]}, or write the words to speak",)


def text_warnings(text: str) -> tuple[str, ...]:
    """Return the warnings about the pauses and the codes of a text."""
    return (*pause_warnings(text), *code_warnings(text))


def fault_of(text: str) -> tuple[str, str] | None:
    """Return the fault of a text that no voice can speak, or None (chosen: maximum-text, empty-text, ssml).

    Examples
    --------
    >>> fault_of("Hello"), fault_of("  ")
    (None, ('has only whitespace', 'text to speak'))
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        return (
            f"is too long ({len(text):,} characters)",
            f"at most {MAX_TEXT_CHARACTERS:,} characters per request",
        )
    if not text or text.isspace():
        return "is empty" if not text else "has only whitespace", "text to speak"
    if fault := fault_of_sending(text):
        return fault
    if "<" in text and _SSML.search(text):
        return (
            "contains SSML",
            "plain text; use [pause 1s] for a pause and the fields rate and pitch for prosody",
        )
    if "[" in text and not strip_pauses(text).strip():
        return "has only pauses", "text to speak beside the pauses"
    return None


def fault_of_sending(text: str) -> tuple[str, str] | None:
    """Return the fault of a text that cannot be sent as JSON, or None."""
    # Halves of surrogate pairs come from broken decoding. They cannot be encoded, so they cannot be sent.
    if not text.isascii() and _SURROGATE.search(text):
        return (
            "is not valid Unicode text (it contains half a surrogate pair)",
            "text that can be encoded as UTF-8",
        )
    return ("contains a NUL character", "text without NUL") if "\0" in text else None
