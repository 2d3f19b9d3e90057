"""A service that speaks bytes, not HTTP: whatever a server can do on a connection, by the text it is sent."""

import asyncio
import base64
import contextlib
import functools
import gzip
import io
import json
import struct
import threading
import wave
import zlib
from dataclasses import dataclass, field

KEY = "sk-0123456789-whatever"
BALANCE = 990
RATE_HZ = 8000
VOICES = [{"voiceId": "en-US-nora", "displayName": "Nora", "locale": "en-US"}]


@functools.cache
def audio_of(text):
    """Audio that only this text has."""
    tag = zlib.crc32(text.encode())
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(struct.pack("<I", tag) * (RATE_HZ // 4) + bytes(2 * (tag % 999)))
    return buffer.getvalue()


def seconds_of(text):
    return (len(audio_of(text)) - 44) / 2 / RATE_HZ


def fields(text, **changes):
    """The fields of a good answer; None removes one."""
    found = {
        "audioFile": "",
        "encodedAudio": base64.b64encode(audio_of(text)).decode(),
        "audioLengthInSeconds": seconds_of(text),
        "remainingCharacterCount": BALANCE,
        "wordDurations": [{"word": "Hello", "startMs": 0, "endMs": 400}],
    } | changes
    return {name: value for name, value in found.items() if value is not None}


def body(text, **changes):
    return json.dumps(fields(text, **changes)).encode()


def http(status, content=b"", headers=(), reason="Odd"):
    lines = [f"HTTP/1.1 {status} {reason}", *headers, f"Content-Length: {len(content)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + content


def good(text, *headers):
    return http(200, body(text), headers)


class Closed(Exception):
    """The connection is over."""


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    service: "Service"
    closed: threading.Event = field(default_factory=threading.Event)

    def write(self, data):
        self.writer.write(data)

    async def slowly(self, data, piece=1, pause_s=0.02):
        for at in range(0, len(data), piece):
            self.writer.write(data[at : at + piece])
            await self.writer.drain()
            await asyncio.sleep(pause_s)

    async def endlessly(self, data, pause_s=0.0):
        while not self.writer.is_closing():
            self.writer.write(data)
            await self.writer.drain()
            await asyncio.sleep(pause_s)

    def close(self):
        self.writer.close()
        raise Closed

    def reset(self):
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: a reset instead of an end
        self.writer.transport.abort()
        raise Closed

    async def hang(self, seconds=20):
        await asyncio.sleep(seconds)
        raise Closed


@dataclass
class Service:
    """Answers each text by its step, or well; notes what it was sent, and what a stranger was sent."""

    odd: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    seen: list = field(default_factory=list)
    strange: list = field(default_factory=list)
    port: int = 0
    latest: Connection | None = None
    """On which the last question came."""
    _writers: set = field(default_factory=set)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def stranger(self):
        """The same port under an address that is another host."""
        return f"http://127.0.0.2:{self.port}"

    def up(self):
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()

        def run():
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._listen())
            ready.set()
            self._loop.run_forever()
            self._loop.run_until_complete(self._close())
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def down(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _listen(self):
        limit = 1 << 20
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=limit)
        self.port = server.sockets[0].getsockname()[1]
        stranger = await asyncio.start_server(self._serve_stranger, "127.0.0.2", self.port, limit=limit)
        self._servers = (server, stranger)

    async def _close(self):
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0.01)

    async def _serve_stranger(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            self.strange.append(await reader.read(65536))
        writer.close()

    async def _serve(self, reader, writer):
        connection = Connection(reader, writer, self)
        self._writers.add(writer)
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, Closed, asyncio.CancelledError
        ):
            while True:
                await self._answer(connection)
        writer.close()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()
        self._writers.discard(writer)
        connection.closed.set()

    async def _answer(self, connection):
        head = (await connection.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        length = next(
            (
                int(v)
                for n, _, v in (h.partition(":") for h in head.split("\r\n"))
                if n.lower() == "content-length"
            ),
            0,
        )
        content = await connection.reader.readexactly(length)
        self.seen.append((method, path, head, content))
        self.latest = connection
        if method == "GET":
            await self._get(connection, path)
            return
        text = json.loads(content)["text"]
        step = self.odd.get(text)
        if step is None:
            connection.write(good(text))
        elif isinstance(step, bytes):
            connection.write(step)
        else:
            done = step(connection, text)
            if done is not None:
                await done

    async def _get(self, connection, path):
        if path.startswith("/v1/speech/voices"):
            connection.write(http(200, json.dumps(VOICES).encode()))
        elif path in self.files:
            done = self.files[path](connection, path)
            if done is not None:
                await done
        else:
            connection.write(http(404, b"{}"))


@dataclass(frozen=True)
class Kind:
    """A kind of answer, and what must become of its row.

    `error` is the name of the client's error, None where the answer is used; `charge` is what the ledger says.
    """

    name: str
    step: object
    error: str | None
    charge: str
    words: str = ""

    @property
    def status(self):
        return "done" if self.error is None else "charged_unknown" if self.charge == "unknown" else "failed"


def _says(make):
    """A step that writes what `make` returns for the text."""
    return lambda connection, text: connection.write(make(text))


def _then(make, end):
    def step(connection, text):
        connection.write(make(text))
        return getattr(connection, end)()

    return step


def _fields(name, error, words="", charge="computed", **changes):
    return Kind(name, _says(lambda text: http(200, body(text, **changes))), error, charge, words)


def _at(name, address, words):
    """An answer whose audio lies at an address; `{service}` and `{stranger}` are filled in."""

    def step(connection, text):
        url = address.format(service=connection.service.url, stranger=connection.service.stranger)
        connection.write(http(200, body(text, encodedAudio=None, audioFile=url)))

    return Kind(name, step, "BadAnswer", "computed", words)


def _framed(name, make, error="ConnectionFailed", charge="unknown", words="", end="close"):
    return Kind(name, _then(make, end), error, charge, words)


def _chunked(text):
    content = body(text)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(content),
        content,
    )


def _head(text, *lines):
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode("latin-1") + body(text)


_LONE = '[{"word": "\\ud83d", "startMs": 0, "endMs": 1}]'
_WORDS = {
    "negative times": [{"word": "a", "startMs": -5, "endMs": -1}],
    "times beyond any": [{"word": "a", "startMs": 0, "endMs": 2**70}],
    "times that run back": [{"word": "a", "startMs": 9, "endMs": 1}, {"word": "b", "startMs": 0, "endMs": 1}],
    "times as text": [{"word": "a", "startMs": "0", "endMs": "1"}],
    "no list": {"word": "a"},
    "junk": [None, 5, "a", [], {}, {"word": None}],
    "more than the text has": [{"word": "a", "startMs": 0, "endMs": 1}] * 50_000,
    "one of a megabyte": [{"word": "a" * 200_000, "startMs": 0, "endMs": 1}],
}

USED = [
    Kind("chunked", _says(_chunked), None, "computed"),
    Kind("to the end of the connection", _then(lambda t: b"HTTP/1.1 200 OK\r\n\r\n" + body(t), "close"), None, "computed"),
    Kind("a byte order mark", _says(lambda t: http(200, b"\xef\xbb\xbf" + body(t))), None, "computed"),
    Kind("a wrong charset", _says(lambda t: http(200, body(t), ["Content-Type: text/html; charset=utf-16"])), None, "computed"),
    Kind("interim answers", _says(lambda t: b"HTTP/1.1 102 Soon\r\n\r\nHTTP/1.1 103 Hint\r\n\r\n" + good(t)), None, "computed"),
    Kind("status 206", _says(lambda t: http(206, body(t))), None, "computed"),
    Kind("packed unasked", _says(lambda t: http(200, gzip.compress(body(t)), ["Content-Encoding: gzip"])), None, "computed"),
    Kind("a second answer", _says(lambda t: good(t) + good("stray")), None, "computed"),
    Kind("closed at once", _then(lambda t: good(t, "Connection: keep-alive"), "close"), None, "computed"),
    Kind("text that is no UTF-8", _says(lambda t: http(200, body(t)[:-1] + b', "warning": "\xff\xfe"}')), None, "computed"),
    Kind("a lone surrogate", _says(lambda t: http(200, body(t, wordDurations=json.loads(_LONE)))), None, "computed"),
    Kind("NaN beside it", _says(lambda t: http(200, body(t)[:-1] + b', "x": NaN, "y": -Infinity}')), None, "computed"),
    Kind("an integer of 5,000 digits beside it", _says(lambda t: http(200, body(t)[:-1] + b', "x": ' + b"9" * 5000 + b"}")), None, "computed"),
    Kind("names twice", _says(lambda t: http(200, b'{"encodedAudio": "AAAA", ' + body(t)[1:])), None, "computed"),
    Kind("cookies and hints", _says(lambda t: good(t, "Set-Cookie: a=b", 'Alt-Svc: h2=":1"', "Refresh: 0")), None, "computed"),
    *[_fields(f"words: {name}", None, wordDurations=words) for name, words in _WORDS.items()],
    *[_fields(f"balance {value!r:.20}", None, remainingCharacterCount=value) for value in (-5, 1.5, 2**70, "9", True, [1])],
    *[_fields(f"warning {value!r:.20}", None, warning=value) for value in (5, ["a"], {"a": 1}, "w" * 100_000)],
]  # fmt: skip

UNUSABLE = [
    Kind("status 204", _says(lambda t: b"HTTP/1.1 204 None\r\n\r\n"), "BadAnswer", "computed"),
    Kind("status 205", _says(lambda t: http(205)), "BadAnswer", "computed"),
    Kind("nothing", _says(lambda t: http(200)), "BadAnswer", "computed", "no JSON"),
    Kind("a page", _says(lambda t: http(200, b"<html>Welcome</html>")), "BadAnswer", "computed", "no JSON"),
    Kind("null", _says(lambda t: http(200, b"null")), "BadAnswer", "computed", "no JSON object"),
    Kind("a list", _says(lambda t: http(200, b"[" + body(t) + b"]")), "BadAnswer", "computed", "no JSON object"),
    Kind("nested", _says(lambda t: http(200, b"[" * 200_000)), "BadAnswer", "computed"),
    Kind("UTF-16", _says(lambda t: http(200, body(t).decode().encode("utf-16"))), "BadAnswer", "computed", "no JSON"),
    _fields("no audio at all", "BadAnswer", "neither", encodedAudio=None, audioFile=None),
    _fields("Base64 that is none", "BadAnswer", "no Base64", encodedAudio="AAA*"),
    _fields("audio that is none", "BadAnswer", "cannot be read", encodedAudio=base64.b64encode(b"no audio" * 99).decode()),
    _fields("no length", "BadAnswer", "audioLengthInSeconds is missing", audioLengthInSeconds=None),
    _fields("a length of 400 digits", "BadAnswer", "out of range", audioLengthInSeconds=10**400),
    _fields("a length below 0", "BadAnswer", "audioLengthInSeconds", audioLengthInSeconds=-1),
    _fields("a length that is a list", "BadAnswer", "an array", audioLengthInSeconds=[[[1]]]),
    Kind("a length that is NaN", _says(lambda t: http(200, body(t, audioLengthInSeconds=float("nan")))), "BadAnswer", "computed"),
    Kind("countless values", _says(lambda t: http(200, body(t)[:-1] + b', "more": [' + b"[]," * 200_000 + b"0]}")), "BadAnswer", "computed", "values of JSON"),
    Kind("a length nested deep", _says(lambda t: http(200, body(t)[:-1] + b', "audioLengthInSeconds": ' + b"[" * 1000 + b"]" * 1000 + b"}")), "BadAnswer", "computed"),
    Kind("truncated", _then(lambda t: good(t)[:-40], "close"), "BadAnswer", "computed", "truncated"),
    Kind("reset within", _then(lambda t: good(t)[:-40], "reset"), "BadAnswer", "computed", "truncated"),
    Kind("a chunk cut short", _then(lambda t: _chunked(t)[:-50], "close"), "BadAnswer", "computed", "truncated"),
    Kind("too long by its header", _then(lambda t: b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", "hang"), "BadAnswer", "computed", "too large"),
    Kind("endless", lambda c, t: (c.write(b"HTTP/1.1 200 OK\r\n\r\n"), c.endlessly(b" " * 65536))[1], "BadAnswer", "computed", "too large"),
    Kind("a bomb", _says(lambda t: http(200, _bomb(), ["Content-Encoding: gzip"])), "BadAnswer", "computed"),
    Kind("a bomb of deflate", _says(lambda t: http(200, _bomb_of_deflate(), ["Content-Encoding: deflate"])), "BadAnswer", "computed"),
    Kind("no gzip", _says(lambda t: http(200, body(t), ["Content-Encoding: gzip"])), "BadAnswer", "computed", "not gzip"),
    Kind("br", _says(lambda t: http(200, body(t), ["Content-Encoding: br"])), "BadAnswer", "computed", "not asked for"),
    _at("at a file", "file:///etc/passwd", "neither http nor https"),
    _at("in itself", "data:audio/wav;base64,UklGRg==", "neither http nor https"),
    _at("at an ftp host", "ftp://127.0.0.1/x", "neither http nor https"),
    _at("at a stranger", "{stranger}/audio.wav", "plain http"),
    _at("behind a user", "http://a:b@127.0.0.1/x", "user name"),
    _at("at a cloud's secrets", "http://169.254.169.254/latest/meta-data/", "plain http"),
    _at("at a cloud's secrets behind TLS", "https://169.254.169.254/latest/", "private network"),
    _at("in a private network", "https://10.0.0.1/x", "private network"),
    _at("at a number", "https://2130706433/x", "a number and no host"),
    _at("at a mail server", "http://127.0.0.1:25/x", "port 25"),
    _at("nowhere", "http://[::1", "no URL"),
    _at("gone", "{service}/gone.wav", "may have expired"),
    _at("away by a redirect", "{service}/away.wav", "plain http"),
    _at("round and round", "{service}/loop.wav", "more than 5 redirects"),
    _at("a part", "{service}/part.wav", "answered 206"),
    _at("endless behind an address", "{service}/endless.wav", "too large"),
    _at("a page behind an address", "{service}/page.wav", "cannot be read"),
]  # fmt: skip

SILENT = [
    _framed("closed", lambda t: b"", words="closed the connection"),
    _framed("reset", lambda t: b"", end="reset"),
    _framed("half a status line", lambda t: b"HTTP/1.1 2"),
    _framed("half a head", lambda t: b"HTTP/1.1 200 OK\r\nContent-Le"),
    _framed("no HTTP", lambda t: b"SSH-2.0-OpenSSH_9.6\r\n", words="no HTTP answer"),
    _framed("TLS where none was asked", lambda t: b"\x15\x03\x01\x00\x02\x02\x28", words="no HTTP answer"),
    _framed("zeros", lambda t: bytes(5000), words="no HTTP answer"),
    _framed("a header of 100 KB", lambda t: _head(t, "X: " + "x" * 100_000), words="too large"),
    _framed("10,000 headers", lambda t: _head(t, *["X: y"] * 10_000), words="no HTTP answer"),
    _framed("two lengths", lambda t: _head(t, "Content-Length: 5", "Content-Length: 6"), words="no HTTP answer"),
    _framed("a length below 0", lambda t: _head(t, "Content-Length: -5"), words="no HTTP answer"),
    _framed("a length in words", lambda t: _head(t, "Content-Length: many"), words="no HTTP answer"),
    _framed("interim answers only", lambda t: b"HTTP/1.1 103 Hint\r\n\r\n" * 5000, words="interim answers", end="hang"),
    Kind("interim answers without end", lambda c, t: c.endlessly(b"HTTP/1.1 100 Go on\r\n\r\n" * 100), "ConnectionFailed", "unknown", "interim"),
    # aiohttp's parser takes the bytes as a whole: with what follows, the answer before it is lost.
    _framed("bytes after it", lambda t: good(t) + b"and more\r\n\r\n", words="no HTTP answer", end="hang"),
    _framed("a body where none may be", lambda t: http(204, b"{}"), words="no HTTP answer", end="hang"),
    _framed("a chunk of no size", lambda t: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", words="no HTTP answer"),
    Kind("silence", lambda c, t: c.hang(), "TimedOut", "unknown", "no answer from"),
    Kind("a head without end", lambda c, t: (c.write(b"HTTP/1.1 200 OK\r\n"), c.slowly(b"X: y\r\n" * 9999))[1], "TimedOut", "unknown"),
    Kind("a byte now and then", lambda c, t: c.slowly(good(t)), "TimedOut", "unknown", "no answer from"),
    Kind("half of it, then silence", _then(lambda t: good(t)[:-100], "hang"), "TimedOut", "unknown"),
]  # fmt: skip


HASTY = "closed at once"
"""Whoever takes its connection next cannot know that it is about to close, and is answered by nobody."""


def _refused(status, error, charge):
    return Kind(f"status {status}", _says(lambda t: http(status, b'{"error_message": "no"}')), error, charge)


REFUSED = [
    *[_refused(s, "ServiceError", "none") for s in (300, 307, 404, 405, 410, 413, 418, 451)],
    _refused(400, "BadRequest", "none"),
    _refused(408, "RequestTimeout", "none"),
    _refused(500, "ServerError", "none"),
    # What a proxy on the way says: the service may have done, and billed, the work all the same.
    *[_refused(s, "ServiceError", "unknown") for s in (501, 502, 504, 505, 511, 520, 524, 599)],
    Kind("status 304", _says(lambda t: b"HTTP/1.1 304 Same\r\n\r\n"), "ServiceError", "none"),
    Kind("status 101", _then(lambda t: b"HTTP/1.1 101 Now\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\x00\x01", "hang"), "ServiceError", "none"),
    Kind("an error of 10 MB", _says(lambda t: http(400, b"<script" * (10 << 17))), "BadRequest", "none"),
    Kind("an error that is a bomb", _says(lambda t: http(400, _bomb(), ["Content-Encoding: gzip"])), "BadRequest", "none"),
    Kind("a redirect to a stranger", lambda c, t: c.write(http(307, b"", [f"Location: {c.service.stranger}/x"])), "ServiceError", "none", "not followed"),
]  # fmt: skip


@functools.cache
def _bomb():
    return gzip.compress(bytes(64 << 20))


@functools.cache
def _bomb_of_deflate():
    return zlib.compress(bytes(64 << 20))


def install_files(service):
    """What lies behind the addresses of `UNUSABLE`."""
    wav = audio_of("a file")
    # Made beforehand: it takes longer than some calls may.
    _bomb(), _bomb_of_deflate()
    service.files |= {
        "/away.wav": lambda c, p: c.write(http(302, b"", [f"Location: {service.stranger}/audio.wav"])),
        "/loop.wav": lambda c, p: c.write(http(302, b"", ["Location: /loop.wav"])),
        "/part.wav": lambda c, p: c.write(http(206, wav[:500])),
        "/page.wav": lambda c, p: c.write(http(200, b"<html>")),
        "/endless.wav": lambda c, p: (c.write(b"HTTP/1.1 200 OK\r\n\r\n"), c.endlessly(bytes(65536)))[1],
        "/whole.wav": lambda c, p: c.write(http(200, wav)),
    }
