"""``GET /v1/audio/<id>.<ext>``: the audio of an ``audioFile`` link, for whoever has the link, for 24 hours.

Our address: the document only says that ``audioFile`` is a URL. Ids have 128
random bits; nothing lists them, and the path comes from the index.
"""

import re

from aiohttp import web

from speechframe.service.answers import Refusal
from speechframe.service.database import now
from speechframe.service.shelf import Clip
from speechframe.service.state import STATE
from speechframe.spec.codes import HttpErrorCode

PATH = "/v1/audio/{name:[^/]+}"

_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def address(request: web.Request, clip: Clip) -> str:
    """Return the URL of a clip, on the address the caller knows this service by."""
    # Without a usable Host header: the socket's own end, which is where the caller got through.
    named = request.headers.get("Host", "")
    host = named if _HOST.fullmatch(named) else _socket_words(request)
    return f"http://{host}/v1/audio/{clip.file_name}"


def _socket_words(request: web.Request) -> str:
    transport = request.transport
    host, port = (transport.get_extra_info("sockname") if transport is not None else ("127.0.0.1", 0))[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def audio(request: web.Request) -> web.StreamResponse:
    """Answer with the bytes of a clip, or a part of them (``Range``)."""
    state = request.app[STATE]
    name = request.match_info["name"]
    found = await state.database.run(lambda connection: state.shelf.find(connection, name))
    if found is None or not found.path.is_file():
        raise Refusal(HttpErrorCode.NOT_FOUND, "there is no such audio, or its 24 hours are over")
    return web.FileResponse(
        found.path,
        headers={
            "Content-Type": found.content_type,
            "Cache-Control": f"private, immutable, max-age={max(0, int(found.expires_at - now()))}",
        },
    )
