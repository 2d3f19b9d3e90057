"""A parser of ``multipart/form-data`` without I/O. It accepts the bytes in pieces of any size.

No library has these three properties. The parser holds only the head of a part and a piece of its content in
memory. It raises as soon as a limit is exceeded. Each error message names the fault. The reader of aiohttp
fails with an assertion if a body is cut off. It also decodes transfer encodings, which forms do not have
(RFC 7578, 4.7), and reads multiparts inside parts. The e-mail package of Python needs a tenth of a second for
a header full of semicolons.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from urllib.parse import unquote

from speechframe.spec.chosen import MAX_FORM_PARTS

__all__ = ["BrokenForm", "End", "MultipartParser", "PartHead", "read_boundary"]

MAX_HEAD_BYTES = 8192
"""Largest size of the headers of a part."""
_MAX_HEADERS = 32
"""Largest number of headers of a part, and of parameters of a header."""

_MAX_BOUNDARY_CHARACTERS = 70
"""Characters, by RFC 2046."""
_PADDING_CHARACTERS = b" \t"
"""Bytes that may stand between a boundary and the end of its line."""
_MAX_PADDING_BYTES = 256
"""Largest number of such bytes."""
_MAX_EXTENDED_CHARACTERS = 1000
"""Escaped characters of a file name that are decoded. The name is only shown to people."""
# The quantifiers are possessive, and an unclosed quote runs to the end, so no character is scanned twice.
_PARAMETER_PATTERN = re.compile(
    r';\s*+(?P<name>[^\s=;"]++)\s*+=\s*+(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"?|(?P<token>[^;]*+))'
)
_PLAIN_ENCODINGS = frozenset({"", "7bit", "8bit", "binary"})
"""Values of Content-Transfer-Encoding that leave bytes unchanged."""


class BrokenForm(Exception):
    """The bytes are not a form. The message is the reason, with the number of the part if there is one."""


@dataclass(frozen=True, slots=True)
class PartHead:
    """The head of a part, before its content.

    Parameters
    ----------
    name
        Name of the field.
    file_name
        Name that the sender gave the file. It is only shown to people. None if the part has no file name.
    content_type
        Content-Type of the part, without parameters. ``text/plain`` if it is missing or invalid.
    """

    name: str
    file_name: str | None
    content_type: str

    @property
    def is_file(self) -> bool:
        """True if the part has a file name, or a Content-Type other than text and JSON."""
        return self.file_name is not None or not self.content_type.startswith(("text/", "application/json"))


class End(Enum):
    """The event at the end of a part."""

    PART = auto()


Event = PartHead | bytes | End
"""The parser yields these: the head of a part, a piece of its content, or its end."""


def read_boundary(content_type: str) -> bytes:
    """Return the boundary in a Content-Type header.

    Raises
    ------
    BrokenForm
        The header contains no boundary, or an invalid one.

    Examples
    --------
    >>> read_boundary('multipart/form-data; boundary="a b"')
    b'a b'
    """
    boundary = _parse_header_value(content_type)[1].get("boundary")
    if not boundary:
        raise BrokenForm("its Content-Type names no boundary")
    if len(boundary) > _MAX_BOUNDARY_CHARACTERS or not (boundary.isascii() and boundary.isprintable()):
        raise BrokenForm(f"its boundary is not 1 to {_MAX_BOUNDARY_CHARACTERS} printable ASCII characters")
    return boundary.encode()


class _State(Enum):
    PREAMBLE = auto()
    AFTER_DELIMITER = auto()
    HEAD = auto()
    CONTENT = auto()
    EPILOGUE = auto()


class MultipartParser:
    r"""Parses one form from the pieces of bytes that it is fed.

    Parameters
    ----------
    boundary
        The separator of the parts, as :func:`read_boundary` returns it.

    Examples
    --------
    >>> parser = MultipartParser(b"x")
    >>> body = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'
    >>> list(parser.feed(body))
    [PartHead(name='a', file_name=None, content_type='text/plain'), b'1', <End.PART: 1>]
    >>> parser.close()
    """

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # Put a line end before the body, so that the first delimiter looks like all others.
        self._buffer = bytearray(b"\r\n")
        self._state = _State.PREAMBLE
        self._parts = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """Add bytes to the form. Yield the heads, pieces of content and ends of parts that are complete now.

        Raises
        ------
        BrokenForm
            The bytes are not a form, or exceed a limit.
        """
        if self._state is _State.EPILOGUE:
            return
        self._buffer += data
        steps = {
            _State.PREAMBLE: self._skip_preamble,
            _State.AFTER_DELIMITER: self._read_after_delimiter,
            _State.HEAD: self._read_head,
            _State.CONTENT: self._read_content,
        }
        while (step := steps.get(self._state)) is not None:
            before = self._state
            yield from step()
            if self._state is before:
                return

    def close(self) -> None:
        """Check that the form is complete. Call this after the last bytes.

        Raises
        ------
        BrokenForm
            The closing boundary is missing.
        """
        if self._state is _State.PREAMBLE:
            raise BrokenForm("it does not contain its boundary")
        if self._state is not _State.EPILOGUE:
            raise BrokenForm("it is cut off: its closing boundary is missing")

    def _skip_preamble(self) -> Iterator[Event]:
        at = self._buffer.find(self._delimiter)
        if at < 0:
            # Ignore bytes before the first delimiter, but keep the last ones: it may begin there.
            del self._buffer[: max(0, len(self._buffer) - len(self._delimiter) + 1)]
            return
        del self._buffer[: at + len(self._delimiter)]
        self._state = _State.AFTER_DELIMITER
        yield from ()

    def _read_after_delimiter(self) -> Iterator[Event]:
        if self._buffer.startswith(b"--"):
            self._state = _State.EPILOGUE
            self._buffer.clear()
            return
        end = self._buffer.find(b"\r\n", 0, _MAX_PADDING_BYTES)
        if end >= 0 and not self._buffer[:end].strip(_PADDING_CHARACTERS):
            # Keep the line end, so that a head without headers ends like all others.
            del self._buffer[:end]
            self._state = _State.HEAD
        elif end >= 0 or len(self._buffer) >= _MAX_PADDING_BYTES:
            raise BrokenForm(f"the boundary after part {self._parts} is not followed by a line end")
        yield from ()

    def _read_head(self) -> Iterator[Event]:
        end = self._buffer.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES):
            raise BrokenForm(
                f"the headers of part {self._parts + 1} are longer than {MAX_HEAD_BYTES:,} bytes"
            )
        if end < 0:
            return
        self._parts += 1
        if self._parts > MAX_FORM_PARTS:
            raise BrokenForm(f"it has more than {MAX_FORM_PARTS} parts")
        head = bytes(self._buffer[2:end])
        del self._buffer[: end + 4]
        self._state = _State.CONTENT
        yield _parse_head(head, self._parts)

    def _read_content(self) -> Iterator[Event]:
        at = self._buffer.find(self._delimiter)
        ready = at if at >= 0 else max(0, len(self._buffer) - len(self._delimiter) + 1)
        if ready:
            piece = bytes(self._buffer[:ready])
            del self._buffer[:ready]
            yield piece
        if at >= 0:
            del self._buffer[: len(self._delimiter)]
            self._state = _State.AFTER_DELIMITER
            yield End.PART


def _parse_head(head: bytes, number: int) -> PartHead:
    try:
        headers = _parse_headers(head.decode())
    except UnicodeDecodeError:
        raise BrokenForm(f"the headers of part {number} are not UTF-8") from None
    kind, parameters = _parse_header_value(headers.get("content-disposition", ""))
    name = parameters.get("name")
    if kind != "form-data" or not name:
        raise BrokenForm(f'part {number} has no name (Content-Disposition: form-data; name="...")')
    if headers.get("content-transfer-encoding", "").casefold() not in _PLAIN_ENCODINGS:
        raise BrokenForm(f"part {number} has a Content-Transfer-Encoding; send its bytes unchanged")
    content_type, _ = _parse_header_value(headers.get("content-type", ""))
    plain = content_type if content_type.count("/") == 1 else "text/plain"
    return PartHead(name, parameters.get("filename"), plain)


def _parse_headers(head: str) -> dict[str, str]:
    lines = head.split("\r\n", _MAX_HEADERS)
    if len(lines) > _MAX_HEADERS:
        raise BrokenForm(f"a part has more than {_MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name.casefold(), value.strip())
    return headers


def _parse_header_value(header: str) -> tuple[str, dict[str, str]]:
    """Return the value of a header and its parameters, by name.

    If a parameter is given plainly and in the extended form (RFC 5987, ``name*=``), the latter is used.
    """
    value, semicolon, rest = header.partition(";")
    plain: dict[str, str] = {}
    extended: dict[str, str] = {}
    for match in islice(_PARAMETER_PATTERN.finditer(semicolon + rest), _MAX_HEADERS):
        name = match["name"].casefold()
        if name.endswith("*"):
            if (decoded := _decode_extended(match["token"] or "")) is not None:
                extended.setdefault(name.removesuffix("*"), decoded)
        elif match["quoted"] is not None:
            plain.setdefault(name, match["quoted"].replace("\\\\", "\\").replace('\\"', '"'))
        else:
            plain.setdefault(name, match["token"].strip())
    return value.strip().casefold(), plain | extended


def _decode_extended(text: str) -> str | None:
    charset, _, rest = text.partition("'")
    try:
        return unquote(
            rest.partition("'")[2][:_MAX_EXTENDED_CHARACTERS].strip(), encoding=charset, errors="replace"
        )
    except LookupError:
        return None
