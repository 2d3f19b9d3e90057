"""Texts: pause markers, ``[pause 1.5s]``, what is billed, and what is wrong with a text (section 2.1).

What the document leaves open is in chosen: pause-marker, billed-characters, maximum-text, empty-text, ssml.
"""

import re
import sys
from dataclasses import dataclass

from speechframe.spec.chosen import MAX_TEXT_CHARACTERS, PAUSE_SECONDS

# One blank, a plain decimal number, the unit `s`: the document's shape and nothing looser, because a marker
# that only we understand would be read aloud, and billed, by another service. Digits are bounded so that
# float() stays finite.
_PAUSE = r"\[pause ([0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15})s\]"
# What else is clearly meant as one, and nobody wants to hear: the word pause or break alone in square
# brackets, or with an amount of time.
_AMOUNT = (
    r"[-+]?(?:[0-9]{1,15}(?:[.,][0-9]{1,15})?|[.,][0-9]{1,15})\s{0,3}"
    r"(?:ms|msecs?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?)?\.?"
)
_MEANT = (
    rf"(?i:\[\s{{0,3}}(?:pause|break)(?![^\W\d_])[\s:=,]{{0,3}}(?:(?:(?:for|of)\s)?{_AMOUNT})?\s{{0,3}}\])"
)
MARKERS = re.compile(f"{_PAUSE}|{_MEANT}")
"""What is not spoken of a text; the seconds of a pause are its only group."""
UNFINISHED_MARKER = re.compile(
    r"\[\s{0,3}(?:p(?:a(?:us?)?)?|b(?:r(?:ea?)?)?|(?:pause|break)[^\[\]\n]{0,39})?\Z", re.IGNORECASE
)
"""The end of a text that may become a marker when more of it comes: 48 characters of it at most."""
_MARKER_OR_SPOKEN = re.compile(rf"{MARKERS.pattern}|(?P<spoken>[^\W_])")
_NEARLY = re.compile(r"\[\s*pause\b[^\[\]\n]{0,40}\]?", re.IGNORECASE)
_SURROGATE = re.compile("[\\ud800-\\udfff]")
# Possessive where two parts could share characters: texts of thousands of them are looked at as they come in.
_ALWAYS_SSML = r"</?(?:(?:speak|prosody|break|say-as|emphasis|phoneme)\b|(?:amazon|mstts|google):\w)[^<>]*+>"
# These are also ordinary words of placeholders (`<voice>`); with an attribute or a slash they are markup.
_SOMETIMES_SSML = (
    r"<(?:voice|audio|sub|mark|lang|p|s|w)\s[^<>=]*+=[^<>]*+>|</(?:voice|audio|sub|lang|p|s|w)\s*>"
)
_SSML = re.compile(f"{_ALWAYS_SSML}|{_SOMETIMES_SSML}|^\\s*<speak\\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pause:
    """A silence inside a text: what will be heard (`seconds`) and what was asked for (`asked_seconds`)."""

    seconds: float
    asked_seconds: float

    @property
    def clamped(self) -> bool:
        """True when the asked length lies outside the range that is served."""
        return self.seconds != self.asked_seconds

    @property
    def warning(self) -> str | None:
        """Words for the caller when the pause was clamped."""
        if not self.clamped:
            return None
        return f"pause of {self.asked_seconds:g} s was set to {self.seconds:g} s (allowed: {PAUSE_SECONDS} s)"


def split_pauses(text: str) -> tuple[str | Pause, ...]:
    """Return a text as pieces to speak and pauses between them, in order.

    Parameters
    ----------
    text : str
        Text with any number of markers. What is only meant as one is left out; see chosen, pause-marker.

    Returns
    -------
    tuple of str or Pause
        No piece of text is empty; the pieces joined are `strip_pauses(text)`.

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
    """Return the text without its pause markers: what is spoken, and billed.

    Examples
    --------
    >>> strip_pauses("Wait. [pause 1.5s]Now! [pause for 2 seconds][pause for effect]")
    'Wait. Now! [pause for effect]'
    """
    return MARKERS.sub("", text) if "[" in text else text


def billed_characters(text: str) -> int:
    """Return how many characters of a text are billed: all but those of pause markers; whitespace counts.

    Characters are Unicode code points, as everywhere in Python and in JSON schema lengths.

    Examples
    --------
    >>> billed_characters("Wait. [pause 1.5s]Now!")
    10
    """
    return len(strip_pauses(text))


def speaks(text: str) -> bool:
    """Whether there is a letter or a digit in a text, beside its pause markers.

    Examples
    --------
    >>> speaks("[pause 2s] ..."), speaks("Да")
    (False, True)
    """
    return first_spoken(text) is not None


def first_spoken(text: str, start: int = 0, end: int = sys.maxsize) -> int | None:
    """Return where the first letter or digit of a text stands, beside its pause markers; None without one.

    Examples
    --------
    >>> first_spoken("[pause 2s] ... Now")
    15
    """
    found = (match.start() for match in _MARKER_OR_SPOKEN.finditer(text, start, end) if match["spoken"])
    return next(found, None)


def pause_warnings(text: str) -> tuple[str, ...]:
    """Return words about every pause that is clamped and every piece that looks like a marker but is none.

    Examples
    --------
    >>> pause_warnings("Wait [pause 9s] and [pause 500ms] go.")  # doctest: +NORMALIZE_WHITESPACE
    ('pause of 9 s was set to 5 s (allowed: 0.1 to 5 s)',
     "'[pause 500ms]' is no pause marker and was left out; write [pause 1.5s]")
    """
    if "[" not in text:
        return ()
    clamped = (piece.warning for piece in split_pauses(text) if isinstance(piece, Pause))
    meant = (match.group() for match in MARKERS.finditer(text) if match[1] is None)
    nearly = (match.group() for match in _NEARLY.finditer(strip_pauses(text)))
    return (
        *(words for words in clamped if words),
        *(f"{piece!r} is no pause marker and was left out; write [pause 1.5s]" for piece in meant),
        *(f"{piece!r} is no pause marker and is spoken as text; write [pause 1.5s]" for piece in nearly),
    )


def fault_of(text: str) -> tuple[str, str] | None:
    """Return why no voice can speak a text (chosen: maximum-text, empty-text, ssml); None where one can.

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
    """Return why a text cannot be sent as JSON; None where it can."""
    # Halves of surrogate pairs come from broken decoding; they cannot be encoded, so they cannot be sent.
    if not text.isascii() and _SURROGATE.search(text):
        return (
            "is no valid Unicode text (it contains half a surrogate pair)",
            "text that can be encoded as UTF-8",
        )
    return ("contains a NUL character", "text without NUL") if "\0" in text else None
