"""Find the characters that a translation model can read, from its SentencePiece vocabulary.

A model replaces a character outside its vocabulary by something likely. For
example, "Hello 😀" becomes a name, and £5 becomes euros. With the characters of
the vocabulary a caller can keep such words from the model.
"""

import unicodedata
from collections.abc import Iterator

from speechframe.errors import EngineFault

_PIECE_FIELD = 1
"""Number of the field of SentencePiece's ModelProto that contains a piece (an entry of the vocabulary)."""
_TEXT_FIELD, _TYPE_FIELD = 1, 3
"""Numbers of the fields of a piece: its text and its type."""
_NORMAL_TYPE, _USER_DEFINED_TYPE, _BYTE_TYPE = 1, 4, 6
"""Types of pieces."""
_SPACE_CHARACTER = "\u2581"
"""The character that stands for a space in pieces."""

# Typewriter spellings of characters that many vocabularies lack. A spelling may be empty, or longer.
_TYPEWRITER_SPELLINGS = str.maketrans(
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
        The characters. None means that the model can read any character except emoji and other symbols of
        Unicode's category So, and characters that are private (Co), unassigned (Cn) or surrogates (Cs).
    """

    def __init__(self, characters: frozenset[str] | None) -> None:
        self._characters = characters

    def can_read(self, text: str) -> bool:
        """Return True if the model can read every character. Whitespace is always readable.

        Examples
        --------
        >>> Alphabet(frozenset("abc")).can_read("a cab"), Alphabet(frozenset("abc")).can_read("a café")
        (True, False)
        """
        if self._characters is None:
            return not any(unicodedata.category(c) in {"So", "Co", "Cn", "Cs"} for c in text)
        return all(c in self._characters or c.isspace() for c in text)

    def respell(self, text: str) -> str | None:
        r"""Return the words in a spelling that the model can read, or None if it can read no spelling.

        First the words themselves are tried, then their compatibility form (NFKC) with typewriter quotes and
        dashes, then that form in lower case, because vocabularies lack many accented capitals.

        Examples
        --------
        >>> alphabet = Alphabet(frozenset("Nabcdefnotão'"))
        >>> alphabet.respell("don\u2019t"), alphabet.respell("NÃO"), alphabet.respell("😀")
        ("don't", 'não', None)
        """
        if self.can_read(text):
            return text
        plain = unicodedata.normalize("NFKC", text.translate(_TYPEWRITER_SPELLINGS))
        for candidate in (plain, plain.lower()):
            if candidate and self.can_read(candidate):
                return candidate
        return None


def read_alphabet(data: bytes) -> Alphabet:
    """Return the alphabet of a SentencePiece vocabulary.

    Parameters
    ----------
    data
        The bytes of a ``vocab.*.spm``.

    Raises
    ------
    EngineFault
        The bytes are not a SentencePiece vocabulary.
    """
    characters: set[str] = set()
    reads_bytes = False
    try:
        for number, value in _read_fields(data):
            if number != _PIECE_FIELD or not isinstance(value, bytes):
                continue
            piece = dict(_read_fields(value))
            kind = piece.get(_TYPE_FIELD, _NORMAL_TYPE)
            reads_bytes |= kind == _BYTE_TYPE
            piece_text = piece.get(_TEXT_FIELD, b"")
            if kind in {_NORMAL_TYPE, _USER_DEFINED_TYPE} and isinstance(piece_text, bytes):
                characters.update(piece_text.decode())
    except (IndexError, ValueError, TypeError):
        characters.clear()
    if not characters:
        raise EngineFault("the vocabulary is not a SentencePiece model")
    return Alphabet(None if reads_bytes else frozenset(characters - {_SPACE_CHARACTER}))


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer message, in order."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        value: int | bytes
        match key & 7:
            case 0:
                value, position = _read_varint(data, position)
            case 2:
                size, position = _read_varint(data, position)
                value, position = _take_bytes(data, position, size)
            case 1:
                value, position = _take_bytes(data, position, 8)
            case 5:
                value, position = _take_bytes(data, position, 4)
            case other:
                raise ValueError(f"wire type {other}")
        yield key >> 3, value


def _take_bytes(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    if position + size > len(data):
        raise ValueError("cut short")
    return data[position : position + size], position + size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the highest bit means that more bytes follow
            return value, position
        shift += 7
