"""Serve a listening test to people without a notebook. Each listener gets a page under a secret link.

A link contains a token of 192 random bits. It gives access to the page of its listener, to the sounds of this
page, and to the endpoint for votes. The names of sounds do not reveal their conditions. Every other address,
such as a wrong link, gets a 404. A vote is on disk before the page gets the reply. A reloaded page continues
with the next trial.
"""

import asyncio
import contextlib
import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from speechframe.errors import SettingsError
from speechframe.listening.opaque import read_or_make_secret
from speechframe.listening.test import MAX_LISTENERS, Test, resolve_test
from speechframe.listening.votes import BEGIN, VOTE
from speechframe.network.connections import RETRY_AFTER_S, Connections, collapse_repeats
from speechframe.page.arguments import check_text, check_whole_number
from speechframe.page.assets import build_script, read_style
from speechframe.page.html import LINKED_POLICY, SCRIPT_NAME, STYLE_NAME, make_linked_page
from speechframe.processes.loop import run_sync
from speechframe.settings import is_loopback
from speechframe.wire.encoding import decompress
from speechframe.writing.words import format_count

log = logging.getLogger("speechframe.listening")

_TOKEN_CHARACTERS = 48
"""Length of a link's token in hexadecimal digits. 192 bits cannot be guessed."""

_MAX_BODY_BYTES = 64 * 1024
"""Largest accepted message of a page."""

_HEADER_TIMEOUT_S = _BODY_TIMEOUT_S = 20.0
"""Longest times in seconds in which the header section and the body of a request may arrive."""

_CLOSING_TIMEOUT_S = 5.0
"""Longest time in seconds that a closing server waits for requests in flight."""

_MAX_PORT = 65_535
_RESPONSE_HEADERS = {
    "Content-Security-Policy": LINKED_POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
    # The empty header hides the server software.
    "Server": "",
}
"""Headers of all responses."""


class ServedTest:
    """A listening test that is being served. :func:`serve_test` makes it.

    Attributes
    ----------
    url
        Address of the server. Only the secret links work, and every other path gets a 404.
    links
        Secret link of each listener, by name.
    """

    def __init__(self, test: Test, *, listeners: Sequence[str], host: str, port: int) -> None:
        self._test = test
        self._address = (host, port)
        self._runner: web.AppRunner | None = None
        self._open = contextlib.AsyncExitStack()
        self._lock = asyncio.Lock()
        self._all_done = threading.Event()
        self._progress: dict[str, tuple[int, int]] = {}
        self._unfinished = set(listeners)
        # The last stored message and the reply to it, by listener.
        self._taken: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        secret = read_or_make_secret(test.folder)
        # Tokens depend only on the folder's secret, so a test that is served again has the same links.
        self._tokens = {name: secret.make_key("link", name)[:_TOKEN_CHARACTERS] for name in listeners}
        self._names = {token: name for name, token in self._tokens.items()}
        self.url = ""

    @property
    def links(self) -> dict[str, str]:
        """Secret link of each listener, by name."""
        return {name: f"{self.url}/{token}/" for name, token in self._tokens.items()}

    @property
    def progress(self) -> dict[str, tuple[int, int]]:
        """Number of trials with a vote and number of all trials, by listener."""
        return dict(self._progress)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the test."""
        return is_loopback(self._address[0])

    def __repr__(self) -> str:
        # The repr omits the links, because anybody with a link can vote as its listener.
        finished = sum(done == total for done, total in self._progress.values())
        state = self.url if self._runner is not None else "closed"
        return f"<ServedTest {state}: {finished} of {format_count(len(self._tokens), 'listener')} finished>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Start the server. :func:`serve_test` calls this."""
        # The plans are made before the server starts, so that the caller gets their errors.
        for name in self._tokens:
            self._update_progress(name, self._test.plan(name))
        run_sync(self._start_server())
        return self

    def close(self) -> None:
        """Stop the server, after up to 5 s for requests in flight. A second call does nothing."""
        if self._runner is not None:
            self._runner = None
            run_sync(self._open.aclose())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all listeners have finished. Return False if the timeout ends first.

        Parameters
        ----------
        timeout_s
            Longest wait in seconds. None waits without end.
        """
        if timeout_s is not None:
            return self._all_done.wait(timeout_s)
        # On some platforms Ctrl-C does not interrupt a wait without a limit. So the loop repeats short waits.
        while not self._all_done.wait(0.2):
            pass
        return True

    async def _start_server(self) -> None:
        app = web.Application(middlewares=[self._handle_errors], client_max_size=_MAX_BODY_BYTES)
        app.router.add_get("/{token}", self._redirect_to_slash)
        app.router.add_get("/{token}/", self._send_page)
        app.router.add_get(f"/{{token}}/{SCRIPT_NAME}", self._send_script)
        app.router.add_get(f"/{{token}}/{STYLE_NAME}", self._send_style)
        app.router.add_get("/{token}/clips/{clip}", self._send_clip)
        app.router.add_post("/{token}/messages", self._receive_message)
        # There is no access log, because addresses contain the secret links.
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_CLOSING_TIMEOUT_S, handle_signals=False
        )
        async with contextlib.AsyncExitStack() as stack:
            listener = stack.enter_context(_open_listener(*self._address))
            self.url = f"http://{_find_reachable_host(self._address[0])}:{listener.getsockname()[1]}"
            stack.enter_context(collapse_repeats("asyncio", log.name))
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            assert runner.server is not None  # noqa: S101 - setup makes it
            connections = Connections(
                runner.server, refusal=_refuse_connection, header_timeout_s=_HEADER_TIMEOUT_S, log=log
            )
            stack.callback((await connections.listen(listener)).close)
            self._open = stack.pop_all()
        self._runner = runner

    @web.middleware
    async def _handle_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Convert errors of a handler to refusals, and add the headers of all responses."""
        response: web.StreamResponse
        try:
            response = await handler(request)
        except web.HTTPException as refused:
            response = _make_refusal(refused.status)
        except Exception:
            # After a 500, the page keeps its vote and sends it again.
            log.exception("a request of a listener's page failed")
            response = _make_refusal(500)
        response.headers.update(_RESPONSE_HEADERS)
        return response

    def _find_listener(self, request: web.Request) -> str:
        """Return the listener of a request's link, or raise a 404 if the link is wrong."""
        # The time reveals nothing about a link, because the table compares hashes of the links first.
        if (name := self._names.get(request.match_info["token"])) is None:
            raise web.HTTPNotFound
        return name

    async def _redirect_to_slash(self, request: web.Request) -> web.Response:
        """Redirect a link without its last slash, because the page uses relative addresses."""
        self._find_listener(request)
        return web.Response(status=308, headers={hdrs.LOCATION: f"{request.path}/"})

    async def _send_page(self, request: web.Request) -> web.Response:
        listener = self._find_listener(request)
        async with self._lock:
            plan = await asyncio.to_thread(self._test.plan, listener)
        page = make_linked_page(
            {"plan": plan},
            title=plan["title"],
            lang=plan["locale"],
            direction=plan["direction"],
        )
        return web.Response(text=page, content_type="text/html")

    async def _send_script(self, request: web.Request) -> web.Response:
        self._find_listener(request)
        text = build_script("listening", as_page=True, model="served")
        return web.Response(text=text, content_type="text/javascript")

    async def _send_style(self, request: web.Request) -> web.Response:
        self._find_listener(request)
        return web.Response(text=read_style(), content_type="text/css")

    async def _send_clip(self, request: web.Request) -> web.Response:
        listener = self._find_listener(request)
        try:
            data, mime = await asyncio.to_thread(self._test.read_audio, listener, request.match_info["clip"])
        except KeyError:
            raise web.HTTPNotFound from None
        return web.Response(body=data, content_type=mime)

    async def _receive_message(self, request: web.Request) -> web.Response:
        listener = self._find_listener(request)
        message = await _read_message(request)
        return web.json_response(await self._store_message(listener, message))

    async def _store_message(self, listener: str, message: dict[str, Any]) -> dict[str, Any]:
        """Store a message and return the reply. A message that is sent again gets the same reply."""
        async with self._lock:
            taken, reply = self._taken.get(listener, (None, {}))
            if message != taken:
                reply = await asyncio.to_thread(self._test.reply, listener, message)
                if reply.get("try_again"):
                    # After a 503, the page keeps its message, and sends it again until the server accepts it.
                    raise web.HTTPServiceUnavailable
                if reply["kind"] != "refused":
                    self._taken[listener] = (message, reply)
                    self._update_progress(listener, await asyncio.to_thread(self._test.plan, listener))
        return reply

    def _update_progress(self, listener: str, plan: Mapping[str, Any]) -> None:
        """Store the progress of a listener. If all listeners have finished, end :meth:`wait`."""
        done, total = self._progress[listener] = (len(plan["done"]), len(plan["trials"]))
        if done == total:
            self._unfinished.discard(listener)
        if not self._unfinished:
            self._all_done.set()


def serve_test(test: Any, port: int = 0, host: str = "127.0.0.1", listeners: int = 20) -> ServedTest:
    """Serve a listening test to people without a notebook. Each listener gets a secret link.

    This process serves the test in the background until the test is closed. Votes are written to the test's
    folder as they arrive, so ``test.votes`` contains them at any time. If a test is served again on the same
    port, its links are the same. Each listener then continues at the next trial.

    Parameters
    ----------
    test
        A test from :func:`listening_test`, or the folder of a test.
    port
        Port to listen on. 0 selects a free port. Choose a port if links must work again later.
    host
        Address to listen on. By default only this machine can reach the test. With ``"0.0.0.0"``, everyone on
        the network with a link can vote, without encryption. On the internet, use a proxy with TLS.
    listeners
        Number of links.

    Returns
    -------
    ServedTest
        A context manager with ``links``, ``progress``, ``wait()`` and ``close()``.

    Raises
    ------
    SettingsError
        The port is taken, or an argument is not valid.
    ListeningError, StoreError
        `test` is not a test, or the folder cannot be used.

    Examples
    --------
    >>> with serve_test(test, port=8080) as served:  # doctest: +SKIP
    ...     print(served.links)
    ...     served.wait()
    """
    port = check_whole_number("port", port, low=0, high=_MAX_PORT, error=SettingsError)
    host = check_text("host", host, error=SettingsError)
    listeners = check_whole_number("listeners", listeners, high=MAX_LISTENERS, error=SettingsError)
    found = resolve_test(test)
    served = ServedTest(found, listeners=found.invite(listeners), host=host, port=port).start()
    if not served.is_local:
        log.warning(
            "the listening test is served at %s without encryption, and everyone on the network with a link "
            "can vote",
            served.url,
        )
    return served


async def _read_message(request: web.Request) -> dict[str, Any]:
    """Return the message in a request, or raise an HTTP error if the body is not a message of a page."""
    # The header is parsed here, because request.content_type takes half a second for one full of semicolons.
    if request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().casefold() != "application/json":
        raise web.HTTPUnsupportedMediaType
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            data = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    try:
        packing = request.headers.get(hdrs.CONTENT_ENCODING, "")
        message = json.loads(decompress(data, packing, max_bytes=_MAX_BODY_BYTES))
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest from None
    if not isinstance(message, dict) or message.get("kind") not in {BEGIN, VOTE}:
        raise web.HTTPBadRequest
    return message


def _refuse_connection(status: HTTPStatus, message: str) -> web.Response:
    """Return the response to a request that could not be read. `message` is not sent to the client."""
    del message
    response = _make_refusal(status)
    response.headers.update(_RESPONSE_HEADERS)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers[hdrs.RETRY_AFTER] = f"{RETRY_AFTER_S:.0f}"
    return response


def _make_refusal(status: int) -> web.Response:
    return web.Response(status=status, text=f"{status}\n", headers={hdrs.CONNECTION: "close"})


def _open_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With "::", accept IPv4, too, because many networks have no IPv6.
    takes_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=takes_both)
    except OSError as error:
        raise SettingsError(
            f"a listening test cannot be served at {host} port {port}: {error.strerror}; "
            "choose another port, or 0 for a free one"
        ) from error


def _find_reachable_host(host: str) -> str:
    """Return the host for links. For a wildcard address, return the address or name of this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        # The addresses are reserved for documentation.
        own = None
        if address.version == 6:  # noqa: PLR2004 - of the protocol
            own = _find_own_address(socket.AF_INET6, "2001:db8::1")
        own = own or _find_own_address(socket.AF_INET, "192.0.2.1")
        if own is None:
            return socket.gethostname()
        address = ipaddress.ip_address(own)
    return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - of the protocol


def _find_own_address(family: socket.AddressFamily, other: str) -> str | None:
    """Return the address of this machine on the route to `other`, or None without a route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Connecting a UDP socket only looks up the route and sends nothing.
            probe.connect((other, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None
