"""Split a text at its pause markers, count its billed characters, and find its faults (section 2.1).

The rules are our choices in :mod:`speechframe.spec.chosen` with these ids: pause-marker, billed-characters,
maximum-text, empty-text, ssml and codes.
"""

import re
import sys
from dataclasses import dataclass

from speechframe.spec.chosen import MAX_TEXT_CHARACTERS, PAUSE_SECONDS_RANGE
from speechframe.spec.placeholders import UNSPEAKABLE_KINDS, find_code

# A marker as in the document has one blank, a plain decimal number and the unit `s`. Other markers are not
# valid, because another service would speak and bill them. The number of digits keeps float() finite.
_PAUSE_MARKER = r"\[pause ([0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15})s\]"
# Misspelled markers are also not spoken. They are the word pause or break in square brackets, alone or with a
# time.
_TIME_AMOUNT = (
    r"[-+]?(?:[0-9]{1,15}(?:[.,][0-9]{1,15})?|[.,][0-9]{1,15})\s{0,3}"
    r"(?:ms|msecs?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?)?\.?"
)
_MISSPELLED_MARKER = (
    r"(?i:\[\s{0,3}(?:pause|break)(?![^\W\d_])[\s:=,]{0,3}"
    rf"(?:(?:(?:for|of)\s)?{_TIME_AMOUNT})?\s{{0,3}}\])"
)
PAUSE_MARKERS = re.compile(f"{_PAUSE_MARKER}|{_MISSPELLED_MARKER}")
"""Pattern of valid and misspelled markers, which are not spoken. Its only group has the pause in seconds."""
UNFINISHED_MARKER = re.compile(
    r"\[\s{0,3}(?:p(?:a(?:us?)?)?|b(?:r(?:ea?)?)?|(?:pause|break)[^\[\]\n]{0,39})?\Z", re.IGNORECASE
)
"""Pattern of an unfinished marker at the end of a text. It matches at most 48 characters."""
_MARKER_OR_SPOKEN = re.compile(rf"{PAUSE_MARKERS.pattern}|(?P<spoken>[^\W_])")
_MARKER_LIKE_TEXT = re.compile(r"\[\s*pause\b[^\[\]\n]{0,40}\]?", re.IGNORECASE)
_HALF_SURROGATE_PAIR = re.compile("[\\ud800-\\udfff]")
# Repetitions are possessive if two parts could share characters, so that matching takes linear time.
_CERTAIN_SSML_TAG = (
    r"</?(?:(?:speak|prosody|break|say-as|emphasis|phoneme)\b|(?:amazon|mstts|google):\w)[^<>]*+>"
)
# A tag such as `<voice>` may be a placeholder. With an attribute or a slash it is SSML.
_POSSIBLE_SSML_TAG = (
    r"<(?:voice|audio|sub|mark|lang|p|s|w)\s[^<>=]*+=[^<>]*+>|</(?:voice|audio|sub|lang|p|s|w)\s*>"
)
_SSML_TAG = re.compile(f"{_CERTAIN_SSML_TAG}|{_POSSIBLE_SSML_TAG}|^\\s*<speak\\b", re.IGNORECASE)


SCRIPTS_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts without spaces between words, as the Unicode names of their characters begin."""

_MAX_SHOWN_CODES, _MAX_SHOWN_CODE_CHARACTERS = 3, 40
"""Number of codes that a warning contains, and largest number of shown characters of each."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in a text. `seconds` is its length, and `asked_seconds` is the length in the marker."""

    seconds: float
    asked_seconds: float

    @property
    def warning(self) -> str | None:
        """A warning if the length in the marker is outside the allowed range, else None."""
        if self.seconds == self.asked_seconds:
            return None
        return (
            f"pause of {self.asked_seconds:g} s was set to {self.seconds:g} s "
            f"(allowed: {PAUSE_SECONDS_RANGE} s)"
        )


def split_pauses(text: str) -> tuple[str | Pause, ...]:
    """Return a text as pieces to speak and pauses between them, in order.

    Parameters
    ----------
    text : str
        Text with any number of markers. Misspelled markers are dropped (chosen: pause-marker).

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
    for index, piece in enumerate(PAUSE_MARKERS.split(text)):
        if piece is None:
            continue
        if index % 2:
            asked_s = float(piece)
            pieces.append(Pause(PAUSE_SECONDS_RANGE.clamp(asked_s), asked_s))
        elif piece:
            pieces.append(piece)
    return tuple(pieces)


def strip_pauses(text: str) -> str:
    """Return the text without its valid and misspelled pause markers. This text is spoken and billed.

    Examples
    --------
    >>> strip_pauses("Wait. [pause 1.5s]Now! [pause for 2 seconds][pause for effect]")
    'Wait. Now! [pause for effect]'
    """
    return PAUSE_MARKERS.sub("", text) if "[" in text else text


def count_billed_characters(text: str) -> int:
    """Return the number of characters outside of pause markers, including whitespace. These are billed.

    Characters are Unicode code points, as everywhere in Python and in JSON schema lengths.

    Examples
    --------
    >>> count_billed_characters("Wait. [pause 1.5s]Now!")
    10
    """
    return len(strip_pauses(text))


def has_speech(text: str) -> bool:
    """Return whether a text has a letter or digit outside of its pause markers.

    Examples
    --------
    >>> has_speech("[pause 2s] ..."), has_speech("Да")
    (False, True)
    """
    return find_first_spoken(text) is not None


def find_first_spoken(text: str, start: int = 0, end: int = sys.maxsize) -> int | None:
    """Return the index of the first letter or digit outside of pause markers, or None.

    Examples
    --------
    >>> find_first_spoken("[pause 2s] ... Now")
    15
    """
    found = (match.start() for match in _MARKER_OR_SPOKEN.finditer(text, start, end) if match["spoken"])
    return next(found, None)


def find_pause_warnings(text: str) -> tuple[str, ...]:
    """Return a warning for each clamped pause, each misspelled marker, and each text that resembles a marker.

    Examples
    --------
    >>> find_pause_warnings("Wait [pause 9s] and [pause 500ms] go.")  # doctest: +NORMALIZE_WHITESPACE
    ('pause of 9 s was set to 5 s (allowed: 0.1 to 5 s)',
     "'[pause 500ms]' is not a pause marker and was left out; write [pause 1.5s]")
    """
    if "[" not in text:
        return ()
    clamped = (piece.warning for piece in split_pauses(text) if isinstance(piece, Pause))
    meant = (match.group() for match in PAUSE_MARKERS.finditer(text) if match[1] is None)
    nearly = (match.group() for match in _MARKER_LIKE_TEXT.finditer(strip_pauses(text)))
    return (
        *(warning for warning in clamped if warning),
        *(f"{piece!r} is not a pause marker and was left out; write [pause 1.5s]" for piece in meant),
        *(f"{piece!r} is not a pause marker and is spoken as text; write [pause 1.5s]" for piece in nearly),
    )


def find_code_warnings(text: str) -> tuple[str, ...]:
    """Return a warning with the tags and placeholders in a text, because a voice speaks them (chosen: codes).

    Examples
    --------
    >>> find_code_warnings("Hello <b>{name}</b>")  # doctest: +NORMALIZE_WHITESPACE
    ("'<b>', '{name}', '</b>' look like markup or code and are spoken as text; remove them, or write the words
    to speak",)
    >>> find_code_warnings("Salt & pepper, 50 % off")
    ()
    """
    codes = dict.fromkeys(text[start:end] for start, end in find_code(text, UNSPEAKABLE_KINDS))
    if not codes:
        return ()
    named = ", ".join(
        f"'{' '.join(code.split())[:_MAX_SHOWN_CODE_CHARACTERS]}'" for code in list(codes)[:_MAX_SHOWN_CODES]
    )
    more = f" and {len(codes) - _MAX_SHOWN_CODES} more" if len(codes) > _MAX_SHOWN_CODES else ""
    verbs = ("looks", "is", "it") if len(codes) == 1 else ("look", "are", "them")
    warning = f"{named}{more} {verbs[0]} like markup or code and {verbs[1]} spoken as text"
    return (f"{warning}; remove {verbs[2]}, or write the words to speak",)


def find_text_warnings(text: str) -> tuple[str, ...]:
    """Return the warnings about pauses, tags and placeholders in a text."""
    return (*find_pause_warnings(text), *find_code_warnings(text))


def find_text_fault(text: str) -> tuple[str, str] | None:
    """Return the fault of a text that cannot be spoken and the allowed text, or None for a valid text.

    The choices maximum-text, empty-text and ssml apply.

    Examples
    --------
    >>> find_text_fault("Hello"), find_text_fault("  ")
    (None, ('has only whitespace', 'text to speak'))
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        return (
            f"is too long ({len(text):,} characters)",
            f"at most {MAX_TEXT_CHARACTERS:,} characters per request",
        )
    if not text or text.isspace():
        return "is empty" if not text else "has only whitespace", "text to speak"
    if fault := find_sending_fault(text):
        return fault
    if "<" in text and _SSML_TAG.search(text):
        return (
            "contains SSML",
            "plain text; use [pause 1s] for a pause and the fields rate and pitch for prosody",
        )
    if "[" in text and not strip_pauses(text).strip():
        return "has only pauses", "text to speak beside the pauses"
    return None


def find_sending_fault(text: str) -> tuple[str, str] | None:
    """Return the fault of a text that cannot be sent as JSON and the allowed text, or None."""
    # Half a surrogate pair comes from broken decoding. It cannot be encoded as UTF-8.
    if not text.isascii() and _HALF_SURROGATE_PAIR.search(text):
        return (
            "is not valid Unicode text (it contains half a surrogate pair)",
            "text that can be encoded as UTF-8",
        )
    return ("contains a NUL character", "text without NUL") if "\0" in text else None
