"""An odd server on a real port: it answers whatever a test scripts, and remembers what it was sent."""

import asyncio
import base64
import contextlib
import functools
import gzip
import json
import ssl
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import trustme
from aiohttp import web
from pydantic import SecretStr

sys.path.insert(0, str(Path(__file__).parent))

from socket_desk import HALF, PATH, Desk, speak

from served import LoopThread
from speechframe.audio import codec
from speechframe.client import Client, Patience, PreparedCall
from speechframe.settings import Settings
from speechframe.spec.speech import Format, GenerateRequest

KEY = "sk-0123456789-very-secret/and+odd"
NAME = "speech.test"


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict
    body: bytes
    host: str
    peer: tuple


@dataclass
class OddServer:
    """Steps are coroutines of a request; each path plays its script once and stays at the last step."""

    port: int = 0
    tls_port: int = 0
    ca_file: str = ""
    seen: list = field(default_factory=list)
    scripts: dict = field(default_factory=dict)
    audio: bytes = b""
    connections: int = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def other_url(self):
        """The same server under an address that counts as another host."""
        return f"http://127.0.0.2:{self.port}"

    @property
    def tls_url(self):
        return f"https://localhost:{self.tls_port}"

    def script(self, *steps, path="/v1/speech/generate"):
        self.scripts[path] = list(steps)

    async def until_seen(self):
        """Wait for the first request."""
        async with asyncio.timeout(60):
            while not self.seen:  # noqa: ASYNC110 - the server runs in another thread
                await asyncio.sleep(0.01)

    def posts(self):
        return [s for s in self.seen if s.method == "POST"]

    def gets(self, path):
        return [s for s in self.seen if s.method == "GET" and s.path.partition("?")[0] == path]

    def fields(self, **changes):
        """The fields of a good answer; None removes one."""
        fields = {
            "audioFile": "",
            "encodedAudio": base64.b64encode(self.audio).decode(),
            "audioLengthInSeconds": 0.5,
            "remainingCharacterCount": 990,
            "wordDurations": [{"word": "Hello", "startMs": 0, "endMs": 400}],
        } | changes
        return {name: value for name, value in fields.items() if value is not None}

    def spoken(self, headers=None, **changes):
        return self.answer(200, self.fields(**changes), {"X-Trace-Id": "trace-1", **(headers or {})})

    @staticmethod
    def answer(status=200, body=b"", headers=None):
        async def step(request):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            return web.Response(status=status, body=data, headers=headers)

        return step

    @staticmethod
    def redirect(location, status=302):
        return OddServer.answer(status, b"", {"Location": location})

    @staticmethod
    def hang(seconds=30.0):
        async def step(request):
            await asyncio.sleep(seconds)
            return web.Response()

        return step

    @staticmethod
    def raw(data, then="abort", pause_s=0.0):
        """Write bytes past the HTTP library; afterwards abort the connection, or leave it open."""

        async def step(request):
            request.transport.write(data)
            await asyncio.sleep(pause_s)
            if then == "abort":
                request.transport.close()
            await asyncio.sleep(30)

        return step

    @staticmethod
    def reset():
        async def step(request):
            request.transport.abort()
            await asyncio.sleep(30)

        return step

    @staticmethod
    def dribble(status=200, piece=b" ", pause_s=0.02):
        """An answer that never ends, a few bytes at a time."""

        async def step(request):
            response = web.StreamResponse(status=status)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                while True:
                    await response.write(piece)
                    await asyncio.sleep(pause_s)

        return step

    @staticmethod
    def endless(status=200):
        return OddServer.dribble(status, b"x" * 65536, 0)

    @staticmethod
    def bomb(status=200):
        return OddServer.answer(status, _bomb(), {"Content-Encoding": "gzip"})

    async def start(self):
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        await web.TCPSite(runner, "127.0.0.2", self.port).start()
        ca = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("localhost", "127.0.0.1", NAME).configure_cert(context)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self.tls_port = runner.addresses[-1][1]
        self.ca = ca
        return runner

    async def handle(self, request):
        path = request.rel_url.raw_path
        script = self.scripts.get(path)
        step = (
            script[0] if script and len(script) == 1 else script.pop(0) if script else self.answer(404, b"{}")
        )
        body = b"" if getattr(step, "unread", False) else await request.read()
        self.seen.append(
            Seen(
                request.method,
                str(request.raw_path),
                dict(request.headers),
                body,
                request.host,
                request.transport.get_extra_info("peername"),
            )
        )
        return await step(request)


@functools.cache
def _bomb(megabytes=64):
    return gzip.compress(bytes(megabytes << 20))


@pytest.fixture(scope="session")
def _server(tmp_path_factory):
    samples = (0.3 * np.sin(np.arange(22050) * 2 * np.pi * 220 / 44100)).astype(np.float32)
    server = OddServer(audio=codec.encode(samples, 44100, format=Format.WAV))
    thread = LoopThread(server.start)
    ca_file = tmp_path_factory.mktemp("ca") / "ca.pem"
    server.ca.cert_pem.write_to_path(ca_file)
    server.ca_file = ca_file
    yield server
    thread.stop()


@pytest.fixture
def odd(_server):
    _server.seen.clear()
    _server.scripts.clear()
    _server.script(_server.spoken())
    return _server


@pytest.fixture
def key():
    return KEY


@pytest.fixture
def settings(odd):
    return Settings(api_key=SecretStr(KEY), base_url=odd.url)


@pytest.fixture
def quick():
    """Patience that does not wait."""
    return Patience(first_wait_s=0.001, longest_wait_s=0.002, patience_s=60)


@pytest.fixture
async def client(settings, quick):
    async with Client(settings, patience=quick) as made:
        yield made


@pytest.fixture
def call():
    return PreparedCall.from_request(GenerateRequest(text="Hello", voice_id="nora", encode_as_base64=True))


@pytest.fixture
def desk(odd):
    found = Desk([speak])
    odd.script(found.step, path=PATH)
    return found


@pytest.fixture
async def session(client, desk):
    async with client.stream_session(**HALF) as made:
        yield made
