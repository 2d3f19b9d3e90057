"""Who answers a session's sockets, as a test scripts it, and remembers what was sent."""

import asyncio
import base64
import json
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

PATH = "/v1/speech/stream-input"
HALF = {"voice": "ivy", "format": "PCM", "sample_rate": 8000}


def frame(**fields):
    return json.dumps({"trace_id": "t-1", **fields})


def audio(data, context_id):
    return frame(audio=base64.b64encode(data).decode(), context_id=context_id)


@dataclass
class Desk:
    """Who answers the sockets: each in its order by one of `acts`, the last of them by all further ones."""

    acts: list = field(default_factory=list)
    frames: list = field(default_factory=list)
    own: dict = field(default_factory=dict)
    sockets: int = 0

    async def step(self, request):
        act = self.acts[min(self.sockets, len(self.acts) - 1)]
        self.sockets += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.own[id(socket)] = []
        self.frames.append(self.own[id(socket)])
        await act(self, socket)
        return socket

    async def next(self, socket):
        message = await socket.receive()
        if message.type is not WSMsgType.TEXT:
            return None
        found = json.loads(message.data)
        self.own[id(socket)].append(found)
        return found

    async def ended(self, socket):
        """Read to the end of a turn; return its id and text."""
        while (found := await self.next(socket)) is not None:
            if found.get("end"):
                wire_id = found["context_id"]
                own = [one for one in self.own[id(socket)] if one["context_id"] == wire_id]
                return wire_id, "".join(one.get("text", "") for one in own)
        return None, ""

    def texts(self, socket=-1):
        return [found["text"] for found in self.frames[socket] if "text" in found]

    def ends(self, socket=-1):
        return [found["context_id"] for found in self.frames[socket] if found.get("end")]


async def speak(desk, socket):
    """Say every turn as its text."""
    while True:
        wire_id, text = await desk.ended(socket)
        if wire_id is None:
            return
        await socket.send_str(audio(text.encode(), wire_id))
        await socket.send_str(frame(final=True, context_id=wire_id))


def closing(code, message=b"", after=0):
    async def act(desk, socket):
        for _ in range(after):
            await desk.next(socket)
        await socket.close(code=code, message=message)

    return act


async def until(condition):
    """Wait for what is seen at the desk, which is in another thread."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the desk is in another thread
            await asyncio.sleep(0.01)
