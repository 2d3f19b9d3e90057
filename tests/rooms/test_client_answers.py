"""What a client asks before it reads an answer, of a real server that writes the bytes a test gives it."""

import asyncio

from speechframe.client import Client, PreparedCall
from speechframe.spec.speech import GenerateRequest

CALL = PreparedCall.from_request(GenerateRequest(text="Hello", voice_id="nora", sample_rate=8000))
BODY = b"{" + b" " * 70_000 + b"}"


async def test_room_is_asked_for_before_bytes_are_read_and_that_wait_is_no_timeout():
    asked = []

    async def admit(count):
        asked.append(count)
        await asyncio.sleep(0.5)

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Client(base_url=url, api_key="a key") as client:
        raw = await client.send_raw(CALL, deadline_s=0.3, admit=admit)
    assert raw.body == BODY
    assert asked == [len(BODY)]
