"""What is wrong with a text before it is sent or spoken: the problem and what is allowed, in words."""

import re

from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.spec.pauses import strip_pauses

_SURROGATE = re.compile("[\\ud800-\\udfff]")
# Possessive where two parts could share characters: texts of thousands of them are looked at as they come in.
_ALWAYS_SSML = r"</?(?:(?:speak|prosody|break|say-as|emphasis|phoneme)\b|(?:amazon|mstts|google):\w)[^<>]*+>"
# These are also ordinary words of placeholders (`<voice>`); with an attribute or a slash they are markup.
_SOMETIMES_SSML = (
    r"<(?:voice|audio|sub|mark|lang|p|s|w)\s[^<>=]*+=[^<>]*+>|</(?:voice|audio|sub|lang|p|s|w)\s*>"
)
_SSML = re.compile(f"{_ALWAYS_SSML}|{_SOMETIMES_SSML}|^\\s*<speak\\b", re.IGNORECASE)


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
