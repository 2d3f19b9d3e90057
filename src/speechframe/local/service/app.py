"""The aiohttp application: the table of addresses and their handlers."""

from collections.abc import AsyncIterator, Mapping

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.dubbing import calls as dub_calls
from speechframe.local.service.dubbing import create as dub_create
from speechframe.local.service.http import auth, middleware
from speechframe.local.service.speech import (
    audio,
    convert,
    generate,
    limits,
    socket,
    stream,
    translate,
    voices,
)
from speechframe.local.service.state import STATE, open_state
from speechframe.spec.endpoints import get_endpoint

# Handler of each endpoint, by the endpoint's name in `spec.endpoints`.
HANDLERS: dict[str, Handler] = {
    "generate": generate.generate,
    "stream": stream.stream,
    "stream_input": socket.stream_input,
    "translate": translate.translate,
    "convert": convert.convert,
    "list_destination_languages": dub_calls.list_destination_languages,
    "list_source_languages": dub_calls.list_source_languages,
    "create_job": dub_create.create_job,
    "create_job_with_project": dub_create.create_job_with_project,
    "job_status": dub_calls.show_job_status,
    "create_project": dub_calls.create_project,
    "list_projects": dub_calls.list_projects,
    "update_project": dub_calls.update_project,
    "utterances": dub_calls.list_utterances,
    "update_utterances": dub_calls.update_utterances,
    "voices": voices.list_voices,
    "token": auth.issue_token,
    "limits": limits.show_limits,
    "openapi": limits.send_openapi,
    "health": limits.show_health,
}


# HTTP methods of a route, by the endpoint's method. A method that is not listed here stands for itself.
_ROUTE_METHODS = {hdrs.METH_GET: (hdrs.METH_GET, hdrs.METH_HEAD), "WebSocket": (hdrs.METH_GET,)}


def make_app(config: ServiceConfig) -> web.Application:
    """Return the service as an aiohttp application, not started yet.

    The start of the application opens the data folder and starts the workers.

    Parameters
    ----------
    config
        The configuration of the service.
    """
    # 0 switches off aiohttp's size limit, because `http.body` and `http.forms` limit the size of bodies.
    app = web.Application(middlewares=[middleware.handle_request], client_max_size=0)
    handlers: dict[str, dict[str, Handler]] = {
        audio.AUDIO_ROUTE: {hdrs.METH_GET: audio.send_audio},
        dub_calls.FILE_ROUTE: {hdrs.METH_GET: dub_calls.send_file},
    }
    for name, handler in HANDLERS.items():
        endpoint = get_endpoint(name)
        handlers.setdefault(endpoint.path, {})[endpoint.method] = handler
    for path, by_method in handlers.items():
        _add_routes(app, path, by_method)
    app.on_response_prepare.append(middleware.add_common_headers)

    async def keep_state_open(app: web.Application) -> AsyncIterator[None]:
        async with open_state(config) as keep_state_open:
            app[STATE] = keep_state_open
            yield

    app.cleanup_ctx.append(keep_state_open)
    return app


def _add_routes(app: web.Application, path: str, by_method: Mapping[str, Handler]) -> None:
    resource = app.router.add_resource(path)
    methods = []
    for method, handler in by_method.items():
        for each in _ROUTE_METHODS.get(method, (method,)):
            resource.add_route(each, handler, expect_handler=_confirm_expect)
            methods.append(each)

    async def answer_options(request: web.Request) -> web.Response:
        del request
        return web.Response(status=204, headers={hdrs.ALLOW: ", ".join((*methods, hdrs.METH_OPTIONS))})

    resource.add_route(hdrs.METH_OPTIONS, answer_options, expect_handler=_confirm_expect)


async def _confirm_expect(request: web.Request) -> None:
    # Confirm "Expect: 100-continue" at once. Ignore any other Expect header.
    if request.headers.get(hdrs.EXPECT, "").casefold() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
