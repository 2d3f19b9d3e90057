"""Find the encoding of a text file, and decode a file so that it can be written back byte for byte."""

import codecs
import re
from pathlib import Path
from typing import NamedTuple

from speechframe.errors import refuse

_BLOCK_CHARACTERS = 1 << 20
"""Number of characters that are decoded at a time."""
_WESTERN_ENCODING = "cp1252"
"""Python's name of Windows-1252, the encoding of Western European Windows."""
_NOT_WESTERN_TEXT = re.compile(r"[^\W\d_a-zA-Z]{3}|[^\W\d_][¡-¦¨-³¶¸-¿×÷†‡‰][^\W\d_]")  # noqa: RUF001
"""Pattern of text that is not Western European: three letters with accents in a row, or a sign inside a word.
Text in another Windows code page, such as 1251 for Russian, looks like this if it is read as Windows-1252."""
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Decoded(NamedTuple):
    """The text of a file without its byte order mark, and what is needed to encode the text again."""

    text: str
    mark: bytes
    encoding: str

    def encode(self, text: str) -> bytes:
        """Return another text in the encoding of this file. Raise UnicodeEncodeError if impossible."""
        return self.mark + text.encode(self.encoding)


def decode_file(path: Path, notes: list[str], declared: re.Pattern[bytes] | None = None) -> Decoded:
    """Return the text of a file. The pattern `declared` finds the encoding that the file itself declares.

    Raise InvalidRows if the text cannot be decoded, or cannot be encoded to the same bytes again.
    """
    data = path.read_bytes()
    mark, encoding = next((one for one in _BYTE_ORDER_MARKS if data.startswith(one[0])), (b"", "utf-8"))
    if declared is not None and not mark and (found := declared.search(data[:4096])):
        encoding = found[1].decode("ascii", "ignore")
    try:
        text = data[len(mark) :].decode(encoding)
    except (LookupError, UnicodeError):  # an unknown encoding, or a wrong one
        encoding = detect_encoding(path, notes).removesuffix("-sig")
        text = data[len(mark) :].decode(encoding, "replace")
    decoded = Decoded(text, mark, encoding)
    if decoded.encode(text) != data:
        fault = f"is in {encoding}, in which its bytes cannot be written back exactly"
        raise refuse(path.name, fault, "UTF-8: save the file again")
    return decoded


def detect_encoding(path: Path, notes: list[str]) -> str:
    """Return the encoding of a text file. If the encoding is a guess, append a remark to `notes`.

    A file with a byte order mark of UTF-16 is in UTF-16. Otherwise the encoding is UTF-8, or Windows-1252 if
    the file is not valid UTF-8. Raise InvalidRows if the text would not look Western European in
    Windows-1252.
    """
    with path.open("rb") as file:
        if file.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
            return "utf-16"
    if can_be_decoded(path, "utf-8-sig"):
        return "utf-8-sig"
    if not can_be_decoded(path, _WESTERN_ENCODING, _NOT_WESTERN_TEXT):
        allowed = "UTF-8, which Excel calls CSV UTF-8: save it again"
        raise refuse("table", f"{path.name} is not in UTF-8", allowed)
    notes.append(
        f"{path.name} is not in UTF-8: read as Windows-1252 (Western Europe), which is a guess. If letters "
        "are wrong, save it again in UTF-8"
    )
    return _WESTERN_ENCODING


def can_be_decoded(path: Path, encoding: str, refused: re.Pattern[str] | None = None) -> bool:
    """Return whether a file can be decoded, and contains no match of the pattern `refused`."""
    try:
        with path.open(encoding=encoding) as file:
            while block := file.read(_BLOCK_CHARACTERS):
                if refused is not None and refused.search(block):
                    return False
    except UnicodeDecodeError:
        return False
    return True
