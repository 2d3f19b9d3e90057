"""Japanese text to the kana it is read as, such as ``今日は`` to ``キョーワ``: by pyopenjtalk-plus.

Where that is not installed, only kana are spoken, as they are written, and
kanji are left out with a warning.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

__all__ = ["INSTALL", "is_installed", "readings", "version_mark"]

INSTALL = "pip install 'speechframe[japanese]'"

_RUN = re.compile(r"(?:[^\W_]|[\u3005\u30fc%\uff05$\u20ac\u00a5@&+]|(?<=\d)[.,:](?=\d))+")
"""What is read together: letters and digits, without the punctuation that parts them."""
_SIGN = "記号"
_JOINED = 1
"""A word that belongs to the accent phrase of the one before."""


def is_installed() -> bool:
    """Return whether kanji can be read; nothing is imported."""
    return find_spec("pyopenjtalk") is not None


def version_mark() -> str:
    """Return what ends the version of an engine that speaks Japanese: with readings it speaks otherwise."""
    return ".japanese" if is_installed() else ""


def readings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start and end of what is read, and its kana with a space before each accent phrase.

    Examples
    --------
    >>> [(start, end, kana) for start, end, kana in readings("今日は、雨。")]  # doctest: +SKIP
    [(0, 3, 'キョーワ'), (4, 5, 'アメ')]
    """
    if not is_installed():
        return
    library = _library()
    for match in _RUN.finditer(text):
        said = ""
        for word in library.run_frontend(match.group(), use_vanilla=True):
            kana = _kana(word)
            said += f" {kana}" if said and word["chain_flag"] != _JOINED else kana
        yield match.start(), match.end(), said


def _kana(word: Mapping[str, Any]) -> str:
    """Return how a word is read; a word that has no reading as it is."""
    if word["pos"] == _SIGN:
        return unicodedata.normalize("NFKC", word["string"])
    # The mark of a devoiced vowel is no sound.
    return str(word["pron"]).replace("\u2019", "")


@lru_cache(maxsize=1)
def _library() -> Any:
    import pyopenjtalk

    return pyopenjtalk
