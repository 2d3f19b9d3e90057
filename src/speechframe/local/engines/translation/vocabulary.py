"""The characters that a translation model can read, from its SentencePiece vocabulary.

A character that the vocabulary lacks is "unknown" to the model. The model then
writes something likely in its place: "Hello 😀" becomes a name, and £5 becomes
euros. A caller that has this list can keep such words from the model.
"""

import unicodedata
from collections.abc import Iterator

from speechframe.errors import EngineFault

__all__ = ["Alphabet", "readable_characters"]

# Fields of SentencePiece's ModelProto, and the kinds of its pieces.
_PIECES = 1
_WORDS, _KIND = 1, 3
_NORMAL, _USER_DEFINED, _BYTE = 1, 4, 6
_SPACE = "\u2581"

# The typewriter's spelling of signs that the models have not learnt. The lengths may differ.
_TYPEWRITER = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u2032": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2033": '"', "«": '"', "»": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2212": "-",
        "\u2026": "...", "\u00a0": " ", "\u202f": " ", "\u00ad": "", "\u200b": "",
    }
)  # fmt: skip


class Alphabet:
    """The characters that a model can read.

    Parameters
    ----------
    characters
        All characters. None means that the model reads every byte, except symbols and pictures.
    """

    def __init__(self, characters: frozenset[str] | None) -> None:
        self._characters = characters

    def knows(self, words: str) -> bool:
        """Return whether every character can be read. Whitespace always can.

        Examples
        --------
        >>> Alphabet(frozenset("abc")).knows("a cab"), Alphabet(frozenset("abc")).knows("a café")
        (True, False)
        """
        if self._characters is None:
            return not any(unicodedata.category(c) in {"So", "Co", "Cn", "Cs"} for c in words)
        return all(c in self._characters or c.isspace() for c in words)

    def spelled(self, words: str) -> str | None:
        r"""Return the words in a spelling that can be read; None if no spelling can.

        The spellings are the words, their compatibility form with the quotes and dashes of a typewriter,
        and that form in small letters, because vocabularies lack many capitals with accents.

        Examples
        --------
        >>> alphabet = Alphabet(frozenset("Nabcdefnotão'"))
        >>> alphabet.spelled("don\u2019t"), alphabet.spelled("NÃO"), alphabet.spelled("😀")
        ("don't", 'não', None)
        """
        if self.knows(words):
            return words
        plain = unicodedata.normalize("NFKC", words.translate(_TYPEWRITER))
        for candidate in (plain, plain.lower()):
            if candidate and self.knows(candidate):
                return candidate
        return None


def readable_characters(data: bytes) -> Alphabet:
    """Return the alphabet of a SentencePiece vocabulary.

    Parameters
    ----------
    data
        The bytes of a ``vocab.*.spm``.

    Raises
    ------
    EngineFault
        The bytes are not such a vocabulary.
    """
    characters: set[str] = set()
    reads_bytes = False
    try:
        for number, value in _fields(data):
            if number != _PIECES or not isinstance(value, bytes):
                continue
            piece = dict(_fields(value))
            kind = piece.get(_KIND, _NORMAL)
            reads_bytes |= kind == _BYTE
            words = piece.get(_WORDS, b"")
            if kind in {_NORMAL, _USER_DEFINED} and isinstance(words, bytes):
                characters.update(words.decode())
    except (IndexError, ValueError, TypeError):
        characters.clear()
    if not characters:
        raise EngineFault("the vocabulary is not a SentencePiece model")
    return Alphabet(None if reads_bytes else frozenset(characters - {_SPACE}))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer message, in order."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        value: int | bytes
        match key & 7:
            case 0:
                value, place = _varint(data, place)
            case 2:
                size, place = _varint(data, place)
                value, place = _take(data, place, size)
            case 1:
                value, place = _take(data, place, 8)
            case 5:
                value, place = _take(data, place, 4)
            case other:
                raise ValueError(f"wire type {other}")
        yield key >> 3, value


def _take(data: bytes, place: int, size: int) -> tuple[bytes, int]:
    if place + size > len(data):
        raise ValueError("cut short")
    return data[place : place + size], place + size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the sign that more bytes follow
            return value, place
        shift += 7
