"""A voice changer that answers as it is told and keeps books, on a real port, for tests of the client's side.

What it changes about a clip is its sign: so every answer is audio of the clip's length, and tells whose it is.
"""

import asyncio
import base64
import hashlib
import json
import threading
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from aiohttp import web
from pydantic import SecretStr

from speechframe.audio import codec
from speechframe.settings import Settings
from speechframe.spec.billing import CREDIT, convert_millicredits
from speechframe.spec.speech import ChannelType, Format

KEY = "changer-key"
QUOTA = 1_000_000
RATE_HZ = 8000
VOICES = [
    {"voiceId": "en-US-nora", "displayName": "Nora", "gender": "Female", "locale": "en-US",
     "supportedLocales": {"en-US": {"availableStyles": ["Calm"], "detail": "English"},
                          "de-DE": {"availableStyles": [], "detail": "German"}}},
    {"voiceId": "en-GB-finley", "displayName": "Finley", "gender": "Male", "locale": "en-GB",
     "supportedLocales": {"en-GB": {"availableStyles": [], "detail": "English"}}},
]  # fmt: skip


def clip(number=0, seconds=0.5, *, format=Format.WAV, rate_hz=RATE_HZ):
    """A clip like no other: a voice-like tone with some noise."""
    frames = np.arange(round(seconds * rate_hz))
    noise = np.random.default_rng(number).normal(0, 0.05, len(frames))
    samples = 0.4 * np.sin(frames * 2 * np.pi * (110 + number) / rate_hz) + noise
    return codec.encode(samples.astype(np.float32), rate_hz, format=format)


@dataclass
class Request:
    """One call as it arrived."""

    fields: dict
    sha256: str
    headers: dict
    name: str
    content_type: str
    seconds: float


@dataclass
class Changer:
    """The service; `script` is what happens to the next calls, then all goes well.

    Steps: a status (503), "reset" (billed, no answer), "reset_before" (closed without reading), "cut" (half an
    answer), "url" (audio behind a link), "path" (the same as a path), "long" (twice the length), "silent",
    "lies" (another length is claimed), "wait" (until `go` is set).
    """

    script: list = field(default_factory=list)
    idempotent: bool = True
    limits: dict = field(default_factory=dict)
    seen: list = field(default_factory=list)
    billed: Counter = field(default_factory=Counter)
    answered: int = 0
    balance_millis: int = QUOTA * CREDIT
    files: dict = field(default_factory=dict)
    fetched: list = field(default_factory=list)
    pages: dict = field(default_factory=dict)

    def up(self):
        self._keys, started = {}, threading.Event()
        self.go = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(60)
        return self

    def down(self):
        self.go.set()
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self):
        return Settings(api_key=SecretStr(KEY), base_url=self.url, profile="changer")

    @property
    def spent(self):
        return (QUOTA * CREDIT - self.balance_millis) / CREDIT

    def _serve(self, started):
        asyncio.run(self._main(started))

    async def _main(self, started):
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/v1/limits", self._limits)
        app.router.add_get("/v1/speech/voices", self._voices)
        app.router.add_post("/v1/voice-changer/convert", self._convert)
        app.router.add_get("/files/{name}", self._file)
        app.router.add_get("/{page:.*}", self._page)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        started.set()
        await self._end.wait()
        await runner.cleanup()

    async def _limits(self, request):
        page = {"service": "speechframe", "identity": "test/changer", "idempotency": self.idempotent,
                "idempotency_seconds": 3600, "take_header": "X-Take", "pools": {"other": 4},
                "remaining_characters": self.balance_millis // CREDIT, **self.limits}  # fmt: skip
        return web.json_response(page)

    async def _voices(self, request):
        return web.json_response(VOICES)

    async def _file(self, request):
        self.fetched.append(request.match_info["name"])
        assert "api-key" not in request.headers or request.headers["api-key"] != KEY
        return web.Response(body=self.files[request.match_info["name"]])

    async def _page(self, request):
        """Whatever lies at a URL that a table names."""
        assert KEY not in str(request.headers)
        found = self.pages.get(request.path, 404)
        self.fetched.append(request.path)
        if isinstance(found, int):
            return web.Response(status=found)
        if isinstance(found, str):
            return web.Response(status=302, headers={"Location": found})
        return web.Response(body=found, content_type="audio/wav")

    async def _convert(self, request):
        step = self.script.pop(0) if self.script else "ok"
        if step == "reset_before":
            request.transport.abort()
            return web.Response()
        fields, data, name, content_type = await _read(request)
        info = codec.inspect(data)
        seen = Request(fields, hashlib.sha256(data).hexdigest(), dict(request.headers), name, content_type,
                       info.audio_seconds)  # fmt: skip
        self.seen.append(seen)
        if step == "wait":
            await asyncio.to_thread(self.go.wait, 60)
        if isinstance(step, int):
            return web.json_response({"error_message": "as told"}, status=step, headers={"Retry-After": "0"})
        self._bill(seen, request.headers.get("Idempotency-Key") if self.idempotent else None)
        if step == "reset":
            request.transport.abort()
            return web.Response()
        return await self._answer(request, seen, data, step)

    def _bill(self, seen, key):
        if key is None or key not in self._keys:
            self.billed[seen.sha256] += 1
            self.balance_millis -= convert_millicredits(seen.seconds)
        self._keys[key] = seen.sha256

    async def _answer(self, request, seen, data, step):
        wanted = codec.decode(data)
        samples = -wanted.samples
        if step == "long":
            samples = np.concatenate([samples, samples])
        if step == "silent":
            samples = samples * 0
        asked = float(seen.fields.get("audio_duration", 0))
        if asked:
            samples = np.resize(samples, round(asked * wanted.sample_rate_hz))
        rate_hz = int(float(seen.fields.get("sample_rate", 44100)))
        audio = codec.encode(
            samples, wanted.sample_rate_hz, format=Format(seen.fields.get("format", "WAV")),
            channel_type=ChannelType(seen.fields.get("channel_type", "MONO")), output_rate_hz=rate_hz,
        )  # fmt: skip
        seconds = len(samples) / wanted.sample_rate_hz
        answer = {
            "audio_file": "", "audio_length_in_seconds": seconds + (9 if step == "lies" else 0),
            "remaining_character_count": self.balance_millis // CREDIT,
        }  # fmt: skip
        if step in {"url", "path"}:
            self.files[f"{self.answered}"] = audio
            at = f"/files/{self.answered}"
            answer["audio_file"] = at if step == "path" else self.url + at
        else:
            answer["encoded_audio"] = base64.b64encode(audio).decode()
        if seen.fields.get("return_transcription") == "true":
            answer["transcription"] = f"{seen.seconds:.1f} seconds of tone"
        self.answered += 1
        body = json.dumps(answer).encode()
        if step == "cut":
            response = web.StreamResponse(headers={"Content-Length": str(len(body))})
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            request.transport.abort()
            return response
        return web.Response(body=body, content_type="application/json", headers={"X-Trace-Id": "t"})


async def _read(request):
    fields, data, name, content_type = {}, b"", "", ""
    async for part in await request.multipart():
        if part.filename is not None:
            data, name, content_type = bytes(await part.read()), part.filename, part.headers["Content-Type"]
        else:
            assert part.name not in fields
            fields[part.name] = await part.text()
    return fields, data, name, content_type
