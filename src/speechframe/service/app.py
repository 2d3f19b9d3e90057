"""The application: which address is answered by which handler, over one state."""

from collections.abc import AsyncIterator

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from speechframe.service import (
    audio,
    auth,
    convert,
    generate,
    limits,
    middleware,
    socket,
    stream,
    translate,
    voices,
)
from speechframe.service.config import ServiceConfig
from speechframe.service.state import STATE, opened
from speechframe.spec.endpoints import by_name

# Name of an endpoint to its handler. What the document has and this does not is 404 until its issue comes.
HANDLERS: dict[str, Handler] = {
    "generate": generate.generate,
    "stream": stream.stream,
    "stream_input": socket.stream_input,
    "translate": translate.translate,
    "convert": convert.convert,
    "voices": voices.voices,
    "token": auth.token,
    "limits": limits.limits,
    "openapi": limits.openapi,
    "health": limits.health,
}


_METHODS = {hdrs.METH_GET: (hdrs.METH_GET, hdrs.METH_HEAD), "WebSocket": (hdrs.METH_GET,)}


def make_app(config: ServiceConfig) -> web.Application:
    """Return the service as an aiohttp application; its data folder and workers open when it starts.

    Parameters
    ----------
    config
        What the service is told.
    """
    # Sizes are bounded where bodies are read.
    app = web.Application(middlewares=[middleware.around], client_max_size=0)
    for name, handler in HANDLERS.items():
        endpoint = by_name(name)
        _add(app, endpoint.method, endpoint.path, handler)
    _add(app, hdrs.METH_GET, audio.PATH, audio.audio)
    app.on_response_prepare.append(middleware.mark_answer)

    async def state(app: web.Application) -> AsyncIterator[None]:
        async with opened(config) as state:
            app[STATE] = state
            yield

    app.cleanup_ctx.append(state)
    return app


def _add(app: web.Application, method: str, path: str, handler: Handler) -> None:
    resource = app.router.add_resource(path)
    methods = _METHODS.get(method, (method,))
    for each in methods:
        resource.add_route(each, handler, expect_handler=_expected)

    async def options(request: web.Request) -> web.Response:
        del request
        return web.Response(status=204, headers={hdrs.ALLOW: ", ".join((*methods, hdrs.METH_OPTIONS))})

    resource.add_route(hdrs.METH_OPTIONS, options, expect_handler=_expected)


async def _expected(request: web.Request) -> None:
    # "100-continue" is granted at once; anything else somebody expects is not our concern.
    if request.headers.get(hdrs.EXPECT, "").casefold() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
