"""A client of a socket that is as plain as it can be, and what a context should have said."""

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager
from functools import cache

import numpy as np
from aiohttp import WSMsgType

from speechframe.audio.streams import StreamEncoder
from speechframe.engines.base import Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.spec import chosen
from speechframe.spec.speech import ChannelType, Format

PATH = "/v1/speech/stream-input"
FALCON = {"voiceId": "en-US-ivy"}
MOODY = {"voiceId": "en-US-moody"}
THREE = "The boat is small. It went through the harbour! Nobody saw it."
LONG = " ".join(f"This is sentence number {number} of a text that takes its time." for number in range(70))


class Talk:
    """An open socket, and the frames that came, by context."""

    def __init__(self, socket):
        self.socket = socket
        self.frames = []

    async def send(self, **frame):
        await self.socket.send_str(json.dumps(frame))

    async def say(self, text, context_id=None, voice=FALCON, **more):
        named = {} if context_id is None else {"context_id": context_id}
        await self.send(voice_config=voice, text=text, end=True, **named, **more)

    async def frame(self, limit_s=60.0):
        message = await self.socket.receive(timeout=limit_s)
        assert message.type is WSMsgType.TEXT, message
        found = json.loads(message.data)
        assert found["trace_id"], "every frame has a trace id"
        self.frames.append(found)
        return found

    async def until(self, condition):
        while not condition(found := await self.frame()):
            pass
        return found

    async def finals(self, count):
        """Read until so many contexts are over, well or not."""
        while sum(1 for one in self.frames if one.get("final") or one.get("fatal")) < count:
            await self.frame()

    def audio(self, context_id=None):
        parts = [
            one["audio"] for one in self.frames if "audio" in one and one.get("context_id") == context_id
        ]
        return b"".join(base64.b64decode(part, validate=True) for part in parts)

    def codes(self):
        return [one[name] for one in self.frames for name in ("error_code", "warning_code") if name in one]


@asynccontextmanager
async def talking(http, query="format=PCM", key=..., **options):
    headers = {chosen.API_KEY_HEADER: http.key if key is ... else key}
    url = f"{http.url}{PATH}?{query}"
    async with http.session.ws_connect(url, headers=headers, max_msg_size=0, **options) as socket:
        yield Talk(socket)


@cache
def own_bytes(text=THREE, audio_format=Format.PCM):
    pieces = list(EspeakSpeaker().stream(Utterance(text, FALCON["voiceId"], "en-US")))
    encoder = StreamEncoder(audio_format, ChannelType.MONO, pieces[0].sample_rate_hz, 24000)
    return encoder.add(np.concatenate([piece.samples for piece in pieces])) + encoder.finish()


async def free_slots(http, key, cap):
    """Return how many contexts a key could open now."""
    async with talking(http, key=key) as talk:
        for number in range(cap + 1):
            await talk.send(context_id=str(number))
        found = await talk.until(lambda one: one.get("error_code") == "ACTIVE_CONTEXT_LIMIT_EXCEEDED")
        return int(found["context_id"])


async def all_free(http, key, cap):
    """Wait until a key has all its slots, those of sockets that were just closed too."""
    end = time.monotonic() + 60
    while (free := await free_slots(http, key, cap)) != cap:
        assert time.monotonic() < end, f"{free} of {cap} slots are free"
        await asyncio.sleep(0.05)


async def in_order(talk):
    """Wait until all that was sent has been read: frames are, one after the other."""
    await talk.socket.send_str("no JSON")
    await talk.until(lambda one: one.get("error_code") == "INVALID_JSON")


async def at_work(http, busy, waiting=0):
    """Wait until so many workers are at work, and so many jobs wait for one."""
    end = time.monotonic() + 60
    while True:
        workers = (await http.get("/healthz")).json["workers"]
        if workers["busy"] >= busy and workers["waiting"] >= waiting:
            return
        assert time.monotonic() < end, workers
        await asyncio.sleep(0.01)


async def healthy(http):
    """Wait until every worker is there again."""
    end = time.monotonic() + 60
    while True:
        answer = await http.get("/healthz")
        # 503 while there is none at all.
        if answer.status == 200 and answer.json["workers"]["alive"] == answer.json["workers"]["count"]:
            return
        assert time.monotonic() < end, answer.body
        await asyncio.sleep(0.02)


async def replaced(http, tools, service, killed):
    """Wait until there are others for all workers that were killed: nobody gives them a job any more."""
    await tools.until(lambda: len(set(tools.worker_pids(service.pid)) - set(killed)) >= len(killed))
    await healthy(http)
