"""Send audio: as Base64 in an answer, or behind an ``audioFile`` link that works for 24 hours.

Both are sent from disk in pieces. So an answer of any length takes little memory, even if a client reads
slowly.

The document (the service's specification) only requires that ``audioFile`` is a URL. The service uses
``GET /v1/audio/<id>.<ext>``. An id has 128 random bits, and no call lists the ids. The path of a file comes
from the index, not from the caller.
"""

import base64
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from speechframe.local.service.books.database import now
from speechframe.local.service.http.answers import JSON_TYPE, Refusal, add_warnings
from speechframe.local.service.http.threads import KeyThreads
from speechframe.local.service.state import STATE
from speechframe.spec.codes import HttpErrorCode

AUDIO_ROUTE = "/v1/audio/{name:[^/]+}"
"""Route of the audio files."""

_PIECE_BYTES = 3 << 16
"""Bytes that are encoded at once. A multiple of three, so that the encoded pieces can be joined."""

# A Host header with a plain host name or IP address, and perhaps a port.
_HOST_PATTERN = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def build_url(request: web.Request, clip: Path) -> str:
    """Return the URL of an audio file on this service."""
    return f"{build_base_url(request)}/v1/audio/{clip.name}"


def build_base_url(request: web.Request) -> str:
    """Return the ``http://`` address at which the caller reached this service."""
    # Without a valid Host header, use the IP address and port of the connection.
    named = request.headers.get("Host", "")
    host = named if _HOST_PATTERN.fullmatch(named) else _format_socket_address(request)
    return f"http://{host}"


def _format_socket_address(request: web.Request) -> str:
    transport = request.transport
    host, port = (transport.get_extra_info("sockname") if transport is not None else ("127.0.0.1", 0))[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def send_audio(request: web.Request) -> web.StreamResponse:
    """Answer ``GET /v1/audio/<id>.<ext>`` with an audio file, or with a part of the file (``Range``)."""
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


async def send_json(
    request: web.Request,
    body: bytes,
    warnings: Iterable[str],
    *,
    audio: BinaryIO | None,
    field: str,
    threads: KeyThreads,
) -> web.StreamResponse:
    """Return a JSON answer. An answer with audio is already sent when this function returns.

    Parameters
    ----------
    request
        The request to answer.
    body
        The JSON object of the answer, without the audio. It must have at least one field.
    warnings
        Warnings for the headers.
    audio
        The audio file, open at its beginning. None for an answer without audio.
    field
        Name of the JSON field for the audio.
    threads
        Threads of the caller's key. They read the file.
    """
    response = web.Response(body=body) if audio is None else web.StreamResponse()
    response.headers.update({"Content-Type": JSON_TYPE, "Cache-Control": "no-store"})
    add_warnings(response, warnings)
    if audio is None:
        return response
    piece, end = body[:-1] + b',"%b":"' % field.encode(), b'"}'
    response.content_length = len(piece) + -(-os.fstat(audio.fileno()).st_size // 3) * 4 + len(end)
    await response.prepare(request)
    # Base64 contains no character that JSON must escape.
    while data := await threads.run(audio.read, _PIECE_BYTES):
        await response.write(piece + base64.b64encode(data))
        piece = b""
    await response.write_eof(end)
    return response
