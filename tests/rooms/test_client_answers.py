"""What a client makes of answers, asked of a real server that writes the bytes a test gives it."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import numpy as np
import pytest

from speechframe.audio import codec
from speechframe.client import Call, Client
from speechframe.errors import BadAnswer
from speechframe.spec.speech import Format, GenerateRequest
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.translate import encode_translate

KEY = "sk-0123456789/very+secret"
AUDIO = codec.encode(np.zeros(40_000, np.float32), 8000, format=Format.WAV)
CALL = Call.of(GenerateRequest(text="Hello", voice_id="nora", sample_rate=8000))


def http(body, *headers, status=200):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def spoken(**changes):
    fields = {"encodedAudio": base64.b64encode(AUDIO).decode(), "audioLengthInSeconds": 5.0} | changes
    return http({"audioFile": "", "remainingCharacterCount": 7, "wordDurations": [], **fields})


@asynccontextmanager
async def served(*answers):
    """A client of a server that gives `answers` in turn, and a list of (connection, request line)."""
    left, seen = list(answers), []

    async def serve(reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = head.partition("Content-Length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length or 0))
                seen.append((writer.get_extra_info("peername"), head.partition("\r\n")[0]))
                answer = left.pop(0)
                for piece in answer if isinstance(answer, list) else [answer]:
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Client(base_url=url, api_key=KEY) as client:
        yield client, seen
    server.close()


@pytest.mark.parametrize(
    ("body", "words"), [(f"<html>{KEY}</html>{'x' * 200}".encode(), "<html>***</html>"), (b"", "it is empty")]
)
async def test_an_answer_that_is_no_json_object_says_what_it_is(body, words):
    async with served(http(body, "Content-Type: text/html")) as (client, _):
        with pytest.raises(BadAnswer) as caught:
            CALL.decode(await client.send_raw(CALL))
    said = str(caught.value)
    assert "status 200" in said
    assert "text/html" in said
    assert words in said
    assert "x" * 81 not in said
    assert KEY not in said


async def test_room_is_asked_for_before_bytes_are_read_and_that_wait_is_no_timeout():
    answer, asked = spoken(), []

    async def admit(count):
        asked.append(count)
        await asyncio.sleep(0.5)

    async with served(answer) as (client, _):
        raw = await client.send_raw(CALL, deadline_s=0.3, admit=admit)
    assert asked == [len(raw.body)]


async def test_a_connection_is_not_used_again_after_an_answer_that_cannot_be_decoded():
    async with served(spoken(encodedAudio="AAAA"), spoken(), spoken()) as (client, seen):
        with pytest.raises(BadAnswer):
            await asyncio.to_thread(CALL.decode, await client.send_raw(CALL))
        for _ in range(2):
            CALL.decode(await client.send_raw(CALL))
    first, second, third = [peer for peer, _ in seen]
    assert first != second == third


async def test_what_is_stored_of_an_answer_holds_no_key():
    request = TranslateRequest(target_language="fr-FR", texts=["Hi"])
    body = {"translations": [{"source_text": "Hi", "translated_text": f"Salut {KEY}"}], "metadata": {}}
    call = Call("translate", request, encode_translate(request))
    async with served(http(body, f"X-Speech-Warning: weak key {KEY}")) as (client, _):
        raw = await client.send_raw(call)
    assert KEY not in f"{raw.body.decode()} {dict(raw.headers)}"
    assert "Salut ***" in raw.body.decode()


async def test_a_download_that_breaks_is_fetched_again_and_the_call_is_not_made_again():
    link = spoken(encodedAudio="", audioFile="/a.wav")
    half = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(AUDIO) + AUDIO[:100], None]
    async with served(link, half, http(AUDIO)) as (client, seen):
        found = await client.call(CALL)
    assert found.audio == AUDIO
    assert [line.split()[0] for _, line in seen] == ["POST", "GET", "GET"]
