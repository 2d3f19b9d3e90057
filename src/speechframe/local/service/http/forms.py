"""Read forms into fields and files. A form is multipart, or urlencoded if it contains no file.

The document (the service's specification) leaves some points open. The service follows these rules:

- Files are written to disk while they arrive. Each file has a size limit. All other fields share a second
  limit.
- An empty text counts as not given. So does a file without name and content, which a browser sends for an
  empty field.
- The content of a file in a field for text, or in an unknown field, is skipped. A file in a field for text is
  refused later, when the fields are checked. An unknown field only gives a warning.
- A field that is given twice is refused with 400, unless the field is a list.
- Texts are UTF-8. A ``charset`` is ignored.
- A body that stalls or is cut off is refused with 400, because section 7.2 of the service
  document lists no 408 for these calls.
"""

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from aiohttp import web
from aiohttp.client_exceptions import ClientPayloadError
from aiohttp.http_exceptions import HttpProcessingError
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from speechframe.local.service.config import MEBIBYTE, ServiceConfig
from speechframe.local.service.http.answers import Refusal, refuse
from speechframe.local.service.http.body import decompress_body
from speechframe.local.service.http.uploads import (
    FileNotWritten,
    ReceivedFile,
    Receiver,
    TooLarge,
    TooSlow,
    UploadPace,
)
from speechframe.local.service.state import State
from speechframe.spec.check import shorten_value
from speechframe.spec.chosen import MAX_FORM_PARTS
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.endpoints import FORM_TYPE

URLENCODED_TYPE = "application/x-www-form-urlencoded"
"""Content-Type of forms without files."""
_MAX_BOUNDARY_CHARACTERS = 70
"""Largest length of the separator of parts, by RFC 2046."""
_MAX_HEADERS, _MAX_HEADER_BYTES = 8, 8192
"""Largest number of headers of a part, and largest size of each."""
_PLAIN_ENCODINGS = frozenset({"7bit", "8bit", "binary"})
"""Values of Content-Transfer-Encoding that leave bytes unchanged."""
_SIZE_HINT = "send shorter fields"
"""End of the message that refuses a large form."""


@dataclass(frozen=True, slots=True)
class ReceivedForm:
    """The fields and files of a request.

    Parameters
    ----------
    texts
        Text values of each field, in the order of the form. No value is empty.
    files
        The file of each field.
    passed_over
        Names of fields that contained a file but are not fields for files. The content was skipped.
    """

    texts: Mapping[str, tuple[str, ...]]
    files: Mapping[str, ReceivedFile] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()

    def collect_fields(self, *, lists: Collection[str] = ()) -> dict[str, Any]:
        """Return the values by field, for :func:`~speechframe.spec.check.check`.

        The value of a file is empty bytes.

        Parameters
        ----------
        lists
            Names of the fields that may be repeated. Their values are lists.

        Raises
        ------
        Refusal
            400 if any other field is given more than once.
        """
        for name, values in self.texts.items():
            if len(values) > 1 and name not in lists:
                refuse(f"{_show_name(name)} is given {len(values)} times; allowed: once")
        texts = {name: list(values) if name in lists else values[0] for name, values in self.texts.items()}
        return {**texts, **dict.fromkeys((*self.files, *self.passed_over), b"")}


@contextlib.asynccontextmanager
async def receive_form(
    request: web.Request, state: State, key_hash: bytes, *, files: Collection[str]
) -> AsyncIterator[ReceivedForm]:
    """Read a request's form. Its files are removed when the block ends.

    Parameters
    ----------
    state
        Its configuration contains the limits: ``max_upload_bytes`` for each file, ``max_body_bytes`` for all
        other fields together, and ``body_timeout_s`` for the longest pause.
    key_hash
        Hash of the sending key. Threads of this key write the files.
    files
        Names of the fields that are files.

    Raises
    ------
    Refusal
        400 if the body is not a form, has a text in a field for a file, has a file twice, is too large,
        stalls or is cut off. 500 if a file cannot be written, for example because the disk is full.
    """
    with contextlib.ExitStack() as stack:
        reader = _FormReader(state, key_hash, files, stack)
        yield await _read_form(request, state, reader)


async def _read_form(request: web.Request, state: State, reader: "_FormReader") -> ReceivedForm:
    config = state.config
    # request.content_type takes half a second for a header full of semicolons, so the header is read here.
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().casefold()
    if kind == URLENCODED_TYPE:
        return await _read_urlencoded(request, config)
    if kind != FORM_TYPE:
        refuse(
            f"the Content-Type is {shorten_value(kind) if kind else 'missing'}; allowed: {FORM_TYPE}, "
            f"or {URLENCODED_TYPE} without a file"
        )
    if request.headers.get("Content-Encoding", "identity").casefold() != "identity":
        refuse("a form with files may not be compressed as a whole (Content-Encoding)")
    limit_bytes = config.max_upload_bytes + config.max_body_bytes
    if (request.content_length or 0) > limit_bytes:
        _refuse_too_large(config)
    parser = make_parser(request.headers["Content-Type"])
    try:
        async for data in _read_pieces(request, config, limit_bytes):
            await state.wait_for_turn(len(data))
            for event in parser.parse(data):
                await reader.process_event(event)
        parser.close()
    except MultipartError as error:
        refuse(
            f"the body is not a form, or is cut off: {error.args[0]}; allowed: at most {MAX_FORM_PARTS} "
            f"parts, each with at most {_MAX_HEADERS} headers of {_MAX_HEADER_BYTES:,} bytes"
        )
    except TooLarge:
        _refuse_too_large(config)
    except FileNotWritten as error:
        message = f"the service cannot write the upload: {error.reason}; nothing was billed"
        raise Refusal(HttpErrorCode.INTERNAL_ERROR, message, close=True) from None
    return reader.build_form()


def make_parser(content_type: str) -> PushMultipartParser:
    """Return a parser of the form with this Content-Type.

    Raises
    ------
    Refusal
        400 if the header contains no boundary, or an invalid one.
    """
    boundary = parse_options_header(content_type)[1].get("boundary", "")
    if not (boundary.isascii() and 0 < len(boundary) <= _MAX_BOUNDARY_CHARACTERS):
        refuse(f"the Content-Type names no boundary of 1 to {_MAX_BOUNDARY_CHARACTERS} ASCII characters")
    return PushMultipartParser(
        boundary,
        max_header_size=_MAX_HEADER_BYTES,
        max_header_count=_MAX_HEADERS,
        max_segment_count=MAX_FORM_PARTS,
    )


async def _read_pieces(request: web.Request, config: ServiceConfig, limit_bytes: int) -> AsyncIterator[bytes]:
    pace = UploadPace(config.body_timeout_s)
    size_bytes = 0
    try:
        async for data in pace.read_pieces(request.content):
            size_bytes += len(data)
            if size_bytes > limit_bytes:
                raise TooLarge
            yield data
    except TooSlow:
        waited = f"{config.body_timeout_s:g} s"
        message = f"the body stalled: nothing arrived for {waited}, or it arrives too slowly"
        raise Refusal(HttpErrorCode.INVALID_REQUEST, message, close=True) from None
    except (web.RequestPayloadError, ClientPayloadError, HttpProcessingError) as error:
        message = f"the body cannot be read: {type(error).__name__}"
        raise Refusal(HttpErrorCode.INVALID_REQUEST, message, close=True) from None


class _FormReader:
    """Collects the parts of a form as texts and files."""

    def __init__(
        self, state: State, key_hash: bytes, files: Collection[str], stack: contextlib.ExitStack
    ) -> None:
        self._state = state
        self._threads = state.threads.get_threads(key_hash)
        self._wanted = files
        self._stack = stack
        self._texts: dict[str, list[str]] = {}
        self._files: dict[str, ReceivedFile] = {}
        self._passed_over: dict[str, None] = {}
        self._text = bytearray()
        self._text_bytes = 0
        self._receiver: Receiver | None = None

    async def process_event(self, event: MultipartSegment | bytes | None) -> None:
        """Process one event of the parser: the head of a part, a piece of its content, or its end (None)."""
        if event is None:
            await self._end_part()
        elif isinstance(event, bytes):
            await self._add_content(event)
        else:
            self._begin_part(event)

    def build_form(self) -> ReceivedForm:
        """Return the fields and files of the parts so far."""
        texts = {name: tuple(values) for name, values in self._texts.items()}
        return ReceivedForm(texts, self._files, tuple(self._passed_over))

    def _begin_part(self, part: MultipartSegment) -> None:
        if not part.name:
            refuse('a part of the form has no name (Content-Disposition: form-data; name="...")')
        if part.header("Content-Transfer-Encoding", "binary").casefold() not in _PLAIN_ENCODINGS:
            refuse(f"{_show_name(part.name)} has a Content-Transfer-Encoding; send its bytes unchanged")
        kind = part.content_type or ""
        self._is_file = part.filename is not None or (
            "/" in kind and not kind.startswith(("text/", "application/json"))
        )
        self._part, self._receiver = part, None
        self._text.clear()
        if part.name not in self._wanted:
            return
        if not self._is_file:
            refuse(
                f"{_show_name(part.name)} is a text; allowed: a file, sent with a file name (filename=...) "
                "or a Content-Type of its own"
            )
        if part.name in self._files:
            refuse(f"{_show_name(part.name)} is given more than once; allowed: once")
        path = self._stack.enter_context(self._state.uploads.lend_path())
        self._receiver = Receiver(path, self._state.config.max_upload_bytes, self._threads)
        self._stack.callback(self._receiver.close)

    async def _add_content(self, data: bytes) -> None:
        if self._receiver is not None:
            await self._receiver.write(data)
        elif not self._is_file:
            self._text_bytes += len(data)
            if self._text_bytes > self._state.config.max_body_bytes:
                raise TooLarge
            self._text += data

    async def _end_part(self) -> None:
        part = self._part
        if self._receiver is not None:
            upload = await self._receiver.finish()
            # A browser sends a file without name and content for an empty field.
            if upload.size_bytes or part.filename:
                self._files[part.name] = replace(upload, file_name=part.filename or "")
        elif self._is_file:
            self._passed_over[part.name] = None
        elif text := _decode_text(part.name, bytes(self._text)):
            self._texts.setdefault(part.name, []).append(text)


def _decode_text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        refuse(f"{_show_name(name)} is not UTF-8 (byte {error.start})")


async def _read_urlencoded(request: web.Request, config: ServiceConfig) -> ReceivedForm:
    data = bytearray()
    try:
        async for piece in _read_pieces(request, config, config.max_body_bytes):
            data += piece
        text = decompress_body(request, bytes(data), config.max_body_bytes, _SIZE_HINT).decode()
        pairs = parse_qsl(text, encoding="utf-8", errors="strict", max_num_fields=MAX_FORM_PARTS)
    except TooLarge:
        _refuse_too_large(config)
    except ValueError as error:
        refuse(f"the body is not a {URLENCODED_TYPE} form: {error}")
    texts: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        texts[name] = (*texts.get(name, ()), value)
    return ReceivedForm(texts)


def _refuse_too_large(config: ServiceConfig) -> NoReturn:
    raise Refusal(
        HttpErrorCode.PAYLOAD_TOO_LARGE,
        f"the upload is too large; allowed: a file of at most {config.max_upload_bytes / MEBIBYTE:,g} MB, "
        f"and {config.max_body_bytes:,} bytes of other fields",
    )


def _show_name(name: str) -> str:
    return shorten_value(name)[1:-1]
