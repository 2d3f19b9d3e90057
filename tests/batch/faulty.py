"""A speech service that fails as a test scripts it, on a real port, and keeps books of what it was sent."""

import asyncio
import base64
import functools
import json
import time
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from aiohttp import web
from pydantic import SecretStr
from served import Served

from speechframe.audio import codec
from speechframe.settings import Settings
from speechframe.spec.billing import billed_characters
from speechframe.spec.speech import Format

RATE_HZ = 8000
VOICES = [
    {
        "voiceId": "en-US-nora",
        "displayName": "Nora",
        "locale": "en-US",
        "supportedLocales": {"en-US": {"availableStyles": ["Narration"], "detail": "English"}},
    }
]


@functools.cache
def audio_of(text):
    """The audio this service has for `text`: no two texts share length and pitch, so a swapped row shows."""
    tag = zlib.crc32(text.encode())
    # As long as a voice takes for a text like this.
    frames = int(0.06 * RATE_HZ * max(len(text), 3)) + tag % 97
    samples = 0.4 * np.sin(np.arange(frames) * (0.05 + (tag >> 10) % 4001 / 4001))
    return codec.encode(samples.astype(np.float32), RATE_HZ, format=Format.FLAC, output_rate_hz=RATE_HZ)


@dataclass
class Seen:
    """One request for speech: what it asked, with which Idempotency-Key, when it came, how it was answered."""

    text: str
    key: str | None
    at: float
    step: object = "ok"


@dataclass
class Faulty(Served):
    """A service whose answers are scripted by text.

    A step is a status (``503``), a status and its Retry-After (``(429, 1.5)``), or one of ``ok``,
    ``reset`` (before the body is read), ``reset billed``, ``hang``, ``hang billed``, ``truncated``,
    ``broken json``, ``broken base64``, ``no audio``. A text plays its script once, then ``ok``;
    ``forever`` holds texts (or ``*``) that stay at their step.

    Parameters
    ----------
    idempotent
        Honour ``Idempotency-Key`` and say so; None is a service without a page of limits.
    cap
        Requests in flight above which it answers 429.
    published
        The cap it publishes.
    quota
        Characters it sells; then 402.
    delay_s
        Time an answer takes.
    held
        Texts that get no answer as long as they are in it.
    retry_after
        Of the 429 above `cap`.
    colleagues, odd_balances
        By text: what others took of the key when its answer is made, and a balance it says that is none.
    unread
        So many requests are cut off before their body is read.
    """

    idempotent: bool | None = True
    cap: int | None = None
    published: int | None = 4
    quota: int | None = None
    delay_s: float = 0.0
    held: list = field(default_factory=list)
    retry_after: str | None = None
    unread: int = 0
    identity: str = "faulty/1"
    scripts: dict = field(default_factory=dict)
    forever: dict = field(default_factory=dict)
    listed: int = 0
    seen: list = field(default_factory=list)
    billed: Counter = field(default_factory=Counter)
    paid_keys: set = field(default_factory=set)
    due: dict = field(default_factory=lambda: defaultdict(float))
    early: list = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    port: int = 0
    colleagues: dict = field(default_factory=dict)
    audio_for: dict = field(default_factory=dict)
    wrong_for: int = 10**9
    takes: bool = True
    used_by_colleagues: int = 0
    odd_balances: dict = field(default_factory=dict)
    refused: int = 0

    # -- for tests ----------------------------------------------------------------

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self):
        return Settings(api_key=SecretStr("sk-faulty"), base_url=self.url, profile="faulty")

    @property
    def characters(self):
        """What it billed."""
        return sum(billed_characters(text) * times for text, times in self.billed.items())

    def sends(self, text):
        return sum(1 for s in self.seen if s.text == text)

    # -- the service ----------------------------------------------------------------

    def routes(self):
        return (
            ("GET", "/v1/limits", self.limits),
            ("GET", "/v1/speech/voices", self.voices),
            ("POST", "/v1/speech/generate", self.generate),
        )

    async def limits(self, request):
        if self.idempotent is None:
            raise web.HTTPNotFound
        left = None if self.quota is None else self.quota - self.characters - self.used_by_colleagues
        page = {
            "service": "speechframe",
            "identity": self.identity,
            "pools": {"other": self.published},
            "idempotency": self.idempotent,
            "idempotency_seconds": 86400,
            "remaining_characters": left,
            "take_header": "X-Take" if self.takes else None,
        }
        return web.json_response(page)

    async def voices(self, request):
        self.listed += 1
        return web.json_response(VOICES)

    async def generate(self, request):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.unread:
                self.unread -= 1
                self.seen.append(Seen("", None, time.monotonic(), "unread"))
                request.transport.abort()
                return web.Response()
            return await self._play(request)
        finally:
            self.in_flight -= 1

    async def _play(self, request):
        key = request.headers.get("Idempotency-Key")
        text = json.loads(await request.read())["text"]
        seen = Seen(text, key, time.monotonic())
        self.seen.append(seen)
        if seen.at < self.due[text]:
            self.early.append((text, self.due[text] - seen.at))
        if self.cap is not None and self.in_flight > self.cap:
            seen.step = 429
            return self._error(429, self.retry_after, text)
        seen.step = step = self._step(text)
        await asyncio.sleep(self.delay_s)
        while text in self.held:  # noqa: ASYNC110 - it is another thread that lets it go on
            await asyncio.sleep(0.005)
        return await self._answer(request, step, text, key)

    def _step(self, text):
        for name in (text, "*"):
            script = self.scripts.get(name)
            if script:
                return script.pop(0)
            if name in self.forever:
                return self.forever[name]
        return "ok"

    async def _answer(self, request, step, text, key):
        if isinstance(step, tuple):
            return self._error(step[0], step[1], text)
        if isinstance(step, int):
            return self._error(step, None, text)
        if step == "reset unbilled":
            await request.read()
        if step in {"reset", "reset unbilled"}:
            request.transport.abort()
            return web.Response()
        if step == "hang":
            await asyncio.sleep(60)
        if not self._bill(text, key):
            self.refused += 1
            return self._error(402, None, text)
        if step == "reset billed":
            request.transport.abort()
            return web.Response()
        if step == "hang billed":
            await asyncio.sleep(60)
        return await self._good(request, step, text)

    def _bill(self, text, key):
        if self.idempotent and key is not None and key in self.paid_keys:
            return True
        used = self.characters + self.used_by_colleagues + billed_characters(text)
        if self.quota is not None and used > self.quota:
            return False
        self.billed[text] += 1
        self.paid_keys.add(key)
        return True

    def _error(self, status, retry_after, text):
        if isinstance(retry_after, (int, float)):
            self.due[text] = time.monotonic() + retry_after
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        return web.json_response({"error_message": "scripted"}, status=status, headers=headers)

    def _colleagues(self, text):
        self.used_by_colleagues += self.colleagues.pop(text, 0)
        return self.used_by_colleagues

    async def _good(self, request, step, text):
        spoken = self.audio_for.get(text, text) if self.sends(text) <= self.wrong_for else text
        audio = b"no audio at all" if step == "no audio" else audio_of(spoken)
        encoded = base64.b64encode(audio).decode()
        if step == "broken base64":
            encoded = encoded[:40] + "*" + encoded[41:]
        left = (self.quota or 10**6) - self.characters - self._colleagues(text)
        fields = {
            "audioFile": "",
            "encodedAudio": encoded,
            "audioLengthInSeconds": codec.inspect(audio_of(text)).audio_seconds,
            "remainingCharacterCount": self.odd_balances.get(text, left),
            "wordDurations": _words(text),
        }
        body = json.dumps(fields).encode()
        if step == "broken json":
            body = body[:-20] + b"}"
        if step != "truncated":
            return web.Response(body=body, content_type="application/json")
        request.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body[: len(body) // 2]
        )
        await asyncio.sleep(0.01)
        request.transport.close()
        return web.Response()


def _words(text):
    words, each_ms = text.split(), int(60 * len(text) / len(text.split()))
    return [{"word": w, "startMs": i * each_ms, "endMs": (i + 1) * each_ms} for i, w in enumerate(words)]


def statuses(run):
    """Status by text."""
    frame = run.to_pandas()
    return dict(zip(frame["text"], frame["status"], strict=True))


def check_audio(run):
    """Every row that is done holds the audio of its own text, and no other row any."""
    frame = run.to_pandas(audio=True)
    for row in frame.to_dict("records"):
        if row["status"] == "done":
            assert row["audio"]["bytes"] == audio_of(row["text"]), row["text"]
        else:
            assert not (row["audio"] or {}).get("bytes")
    return frame


def check_books(run, *servers):
    """The ledger has a row an attempt, and its sum is what the service billed."""
    ledger = run.ledger
    attempts = ledger[ledger["status"] != "settled"]
    assert len(attempts) == sum(len(server.seen) for server in servers)
    assert ledger["credits"].sum() == sum(server.characters for server in servers)
    assert not run._folder.verify()
    return ledger
