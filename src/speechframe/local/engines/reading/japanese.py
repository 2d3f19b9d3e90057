"""Convert Japanese text to its readings in kana, such as ``今日は`` to ``キョーワ``.

The readings come from pyopenjtalk-plus. If it is not installed, kana are spoken as they
are written, and kanji are left out with a warning.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

INSTALL_COMMAND = "pip install 'speechframe[japanese]'"
"""The command for error messages that installs the readings."""

_RUN_PATTERN = re.compile(
    r"(?:[^\W_]|[\u3005\u30fc%\uff05$\u20ac\u00a5@&+]|(?<=\d)[.,:](?=\d)|(?<=\d)[ \u00a0](?=[A-Za-z])"
    r"|(?<=[A-Za-z])[-\u2010\u2011](?=[A-Za-z]))+"
)
"""A run of characters that is read as a whole. It may contain a number with its unit, or hyphenated words."""
# Replacements of Latin letters that the library cannot read, and of special spaces and hyphens.
_LETTER_REPLACEMENTS = str.maketrans(
    {"\u00a0": "", " ": "", "\u2010": "-", "\u2011": "-"}
    | {
        "\u00c6": "AE",
        "\u00d8": "O",
        "\u00df": "ss",
        "\u00e6": "ae",
        "\u00f8": "o",
        "\u0141": "L",
        "\u0142": "l",
    }
    | {"\u0110": "D", "\u0111": "d", "\u0131": "i", "\u0152": "OE", "\u0153": "oe"}
)
_FIVE_GIGA_PATTERN = re.compile(r"(?<!\d)5(?=G[A-Za-z])")
_SIGN_CLASS = "記号"
"""Part of speech of a punctuation mark or sign."""
_NO_READING = "、"
"""Reading of a word for which the library lacks a reading."""
_UNREADABLE_KANA = re.compile(
    r"(?P<vowel>(?<=[\u3041-\u30fa])[アイウエオヴあいうえおゔ](?=[ァィゥェォャュョヮーぁぃぅぇぉゃゅょゎ]))"
    r"|(?<=[スズすず])[ィぃ]|(?<=[ンん])ー"
)
"""Kana that espeak-ng cannot read after certain other kana."""
_KANA_REPLACEMENTS = str.maketrans({"ィ": "イ", "ぃ": "い", "ー": ""})
"""Replacements of such kana, except for vowels, which get a space in front."""
_JOINED_FLAG = 1
"""Value of ``chain_flag`` of a word that belongs to the accent phrase of the word before."""


def is_installed() -> bool:
    """Return True if the library that reads kanji is installed. The library is not imported."""
    return find_spec("pyopenjtalk") is not None


def get_version_suffix() -> str:
    """Return a suffix for the version of an engine: ".japanese", or "" if readings are not installed.

    It is needed because readings change the sound of Japanese.
    """
    return ".japanese" if is_installed() else ""


def find_readings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start and end of each run of readable characters, and its kana.

    Spaces separate the accent phrases in the kana. If the library is not installed, nothing is yielded.

    Examples
    --------
    >>> [(start, end, kana) for start, end, kana in find_readings("今日は、雨。")]  # doctest: +SKIP
    [(0, 3, 'キョーワ'), (4, 5, 'アメ')]
    """
    if not is_installed():
        return
    library = _import_library()
    for match in _RUN_PATTERN.finditer(text):
        reading = ""
        for word in library.run_frontend(_simplify_letters(match.group()), use_vanilla=True):
            kana = _get_kana(word)
            reading += f" {kana}" if reading and word["chain_flag"] != _JOINED_FLAG else kana
        yield match.start(), match.end(), reading


def _simplify_letters(text: str) -> str:
    """Return a text without Latin letters with marks, such as é, because the library would drop them."""
    plain = "".join(map(_remove_marks, text)).translate(_LETTER_REPLACEMENTS)
    # The library reads "5G" in "5GB" as one word, so write the number as a kanji.
    return _FIVE_GIGA_PATTERN.sub("\u4e94", plain)


@lru_cache(maxsize=1024)
def _remove_marks(character: str) -> str:
    first = unicodedata.normalize("NFD", character)[0]
    return first if first.isascii() else character


def _get_kana(word: Mapping[str, Any]) -> str:
    """Return the reading of a word. Without one, a word stays unchanged, but a hyphen becomes a space."""
    if word["pos"] == _SIGN_CLASS and word["pron"] == _NO_READING:
        sign = unicodedata.normalize("NFKC", word["string"])
        return " " if sign in {"-", "\u2212"} else sign
    # Remove the mark after a devoiced vowel.
    return str(word["pron"]).replace("\u2019", "")


def insert_breaks(text: str, origins: Sequence[int]) -> tuple[str, list[int]]:
    """Return kana in a form that espeak-ng can read, with the origin of each character.

    espeak-ng lacks rules for some kana after other kana, such as ウェ after ス. It then speaks the words
    "Japanese letter" instead. A space before such kana, or a replacement, prevents this.

    Parameters
    ----------
    text
        The kana.
    origins
        Index into the caller's text for each character.
    """
    parts: list[tuple[str, int]] = []
    at = 0
    for match in _UNREADABLE_KANA.finditer(text):
        parts.extend(zip(text[at : match.start()], origins[at : match.start()], strict=True))
        found = match.group()
        written = f" {found}" if match.lastgroup == "vowel" else found.translate(_KANA_REPLACEMENTS)
        parts.extend((character, origins[match.start()]) for character in written)
        at = match.end()
    parts.extend(zip(text[at:], origins[at:], strict=True))
    return "".join(character for character, _ in parts), [origin for _, origin in parts]


@lru_cache(maxsize=1)
def _import_library() -> Any:
    import pyopenjtalk

    return pyopenjtalk
