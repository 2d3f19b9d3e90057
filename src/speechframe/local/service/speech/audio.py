"""Audio in answers: as Base64, or behind an ``audioFile`` link that lives for 24 hours.

Both are sent from disk in pieces. So an answer of any length takes little memory, even if a client reads
slowly.

``GET /v1/audio/<id>.<ext>`` is our choice, because the document only requires a URL. Ids have 128 random bits
and nothing lists them. The path of a file comes from the index, not from the caller.
"""

import base64
import os
import re
from collections.abc import Iterable
from typing import BinaryIO

from aiohttp import web

from speechframe.local.service.books.database import now
from speechframe.local.service.books.shelf import ShelvedFile
from speechframe.local.service.http.answers import JSON, Refusal, add_warnings
from speechframe.local.service.http.threads import KeyThreads
from speechframe.local.service.state import STATE
from speechframe.spec.codes import HttpErrorCode

PATH = "/v1/audio/{name:[^/]+}"

_PIECE_BYTES = 3 << 16
"""A multiple of three, so that the Base64 of the pieces is that of the whole."""

_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def address(request: web.Request, clip: ShelvedFile) -> str:
    """Return the URL of a clip."""
    return f"{base_url(request)}/v1/audio/{clip.file_name}"


def base_url(request: web.Request) -> str:
    """Return the address under which the caller reached this service."""
    # Without a usable Host header, use the address of the socket that the caller reached.
    named = request.headers.get("Host", "")
    host = named if _HOST.fullmatch(named) else _socket_words(request)
    return f"http://{host}"


def _socket_words(request: web.Request) -> str:
    transport = request.transport
    host, port = (transport.get_extra_info("sockname") if transport is not None else ("127.0.0.1", 0))[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def audio(request: web.Request) -> web.StreamResponse:
    """Answer with the bytes of a clip, or a part of them (``Range``)."""
    state = request.app[STATE]
    name = request.match_info["name"]
    found = await state.database.read(lambda connection: state.shelf.find(connection, name))
    if found is None or not found.path.is_file():
        raise Refusal(HttpErrorCode.NOT_FOUND, "there is no such audio, or its 24 hours are over")
    return web.FileResponse(
        found.path,
        headers={
            "Content-Type": found.content_type,
            "Cache-Control": f"private, immutable, max-age={max(0, int(found.expires_at - now()))}",
        },
    )


async def json_answer(
    request: web.Request,
    body: bytes,
    warnings: Iterable[str],
    *,
    audio: BinaryIO | None,
    field: str,
    threads: KeyThreads,
) -> web.StreamResponse:
    """Return a JSON answer. An answer with audio is already sent when this returns.

    Parameters
    ----------
    request
        What is answered.
    body
        A JSON object, without the audio.
    warnings
        For the headers.
    audio
        A file, open at its beginning; None for an answer without.
    field
        Name of the field that holds the audio.
    threads
        Read the file. They belong to the key that is answered.
    """
    response = web.Response(body=body) if audio is None else web.StreamResponse()
    response.headers.update({"Content-Type": JSON, "Cache-Control": "no-store"})
    add_warnings(response, warnings)
    if audio is None:
        return response
    piece, end = body[:-1] + b',"%b":"' % field.encode(), b'"}'
    response.content_length = len(piece) + -(-os.fstat(audio.fileno()).st_size // 3) * 4 + len(end)
    await response.prepare(request)
    # Base64 holds nothing that JSON would escape.
    while data := await threads.run(audio.read, _PIECE_BYTES):
        await response.write(piece + base64.b64encode(data))
        piece = b""
    await response.write_eof(end)
    return response
