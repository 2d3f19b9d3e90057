"""Clips and texts that are sent: what goes over the wire, what comes back, and files that change on the way."""

import asyncio
import base64
import json
import threading
import tracemalloc

import numpy as np
import pytest

from speechframe.audio import codec
from speechframe.client import Client, Timeouts
from speechframe.client.calls import prepare_convert
from speechframe.errors import AudioError, BadAnswer, BadRequest, InvalidRows, TimedOut
from speechframe.spec.chosen import make_route_warning
from speechframe.spec.speech import Format

CONVERT, TRANSLATE = "/v1/voice-changer/convert", "/v1/text/translate"


def clip(seconds=0.5, rate_hz=8000):
    frames = np.arange(round(seconds * rate_hz))
    return codec.encode((0.4 * np.sin(frames / 9)).astype(np.float32), rate_hz, format=Format.WAV)


@pytest.fixture
def changed(odd):
    """Script an answer of the voice changer; `...` leaves a field out."""

    def script(status=200, **changes):
        fields = {"audio_file": "", "encoded_audio": base64.b64encode(odd.audio).decode(),
                  "audio_length_in_seconds": 0.5, "remaining_character_count": 70, **changes}  # fmt: skip
        fields = {name: value for name, value in fields.items() if value is not ...}
        odd.script(odd.answer(status, fields), path=CONVERT)

    script()
    return script


@pytest.mark.parametrize("kind", ["path", "text", "integers"])
async def test_a_clip_is_bytes_a_path_or_an_array(odd, client, changed, key, tmp_path, kind):
    path = tmp_path / "clip.wav"
    path.write_bytes(clip())
    given = {"path": path, "text": str(path), "integers": (np.frombuffer(clip()[44:], "<i2"), 8000)}[kind]  # fmt: skip
    changed(transcription="Hello", warning="slow")
    spoken = await client.change_voice(
        given, voice="nora", take=2, idempotency_key="k1", return_transcription=True
    )
    assert (spoken.audio, spoken.transcription, spoken.warnings) == (odd.audio, "Hello", ("slow",))
    assert (spoken.billed_characters, spoken.remaining_characters) == (8, 70)
    (seen,) = odd.posts()
    assert clip()[44:] in seen.body
    assert (seen.headers["api-key"], seen.headers["Idempotency-Key"], seen.headers["X-Take"]) == (
        key,
        "k1",
        "2",
    )


@pytest.mark.parametrize(
    ("audio", "fields", "field"),
    [(b"no audio", {}, "audio"), ("/no/such.wav", {}, "audio"), (clip(), {"format": "OGG"}, "format"),
     (clip(), {"colour": 1}, "colour")],
)  # fmt: skip
async def test_what_is_wrong_with_a_clip_is_said_before_anything_is_sent(
    odd, client, changed, audio, fields, field
):
    with pytest.raises(InvalidRows) as caught:
        await client.change_voice(audio, **{"voice": "nora", **fields})
    assert [line["field"] for line in caught.value.problems] == [field]
    with pytest.raises(TypeError, match="not int"):
        await client.change_voice(5, voice="nora")
    assert odd.seen == []


async def test_changed_audio_may_lie_behind_a_path_and_a_bad_answer_tells_the_balance(odd, client, changed):
    odd.script(odd.answer(200, odd.audio), path="/files/a.wav")
    changed(encoded_audio=..., audio_file="/files/a.wav")
    assert (await client.change_voice(clip(), voice="nora")).audio == odd.audio
    changed(encoded_audio="AAAA")
    with pytest.raises(BadAnswer) as caught:
        await client.change_voice(clip(), voice="nora")
    assert caught.value.remaining_characters == 70


async def test_a_large_file_is_sent_piece_by_piece_and_a_refusal_amid_it_is_heard(
    odd, client, changed, tmp_path
):
    path = tmp_path / "large.wav"
    path.write_bytes(clip(120.0, 96_000))

    async def refuse(request):
        return await odd.answer(400, {"error_message": "too large"})(request)

    refuse.unread = True
    odd.script(refuse, path=CONVERT)
    tracemalloc.start()
    with pytest.raises(BadRequest, match="too large"):
        await client.change_voice(path, voice="nora")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 3
    changed()
    # And the connection was not used again.
    assert (await client.change_voice(clip(), voice="nora")).audio == odd.audio


async def test_a_file_that_changes_while_it_is_sent_is_not_carried_out(odd, client, changed, tmp_path):
    path = tmp_path / "large.wav"
    path.write_bytes(clip(120.0, 96_000))
    reading = asyncio.Event()

    async def stall(request):
        loop.call_soon_threadsafe(reading.set)
        await asyncio.to_thread(changed_now.wait, 60)
        await request.read()

    loop, changed_now = asyncio.get_running_loop(), threading.Event()
    stall.unread = True
    odd.script(stall, path=CONVERT)
    sending = asyncio.create_task(client.change_voice(path, voice="nora"))
    await asyncio.wait_for(reading.wait(), 60)
    with path.open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"\x55\x55")
    changed_now.set()
    with pytest.raises(AudioError, match="has changed"):
        await sending


async def test_of_a_file_that_has_grown_no_whole_request_leaves(tmp_path):
    path = tmp_path / "recording.wav"
    path.write_bytes(clip())
    body, sent = prepare_convert(path, voice="nora").body, 0

    async def send():
        nonlocal sent
        async for piece in body.read_pieces():
            sent += len(piece)

    with path.open("ab") as file:
        file.write(bytes(10_000))
    with pytest.raises(AudioError, match="has changed"):
        await send()
    # As many bytes as Content-Length says would be a request to a service, whatever they are.
    assert sent < body.size_bytes


@pytest.mark.quiet
async def test_a_service_that_stops_reading_ends_in_a_time_limit(odd, settings, tmp_path):
    path = tmp_path / "large.wav"
    path.write_bytes(clip(120.0, 96_000))
    stall = odd.hang()
    stall.unread = True
    odd.script(stall, path=CONVERT)
    limits = Timeouts(base_s=0.3, per_clip_second_s=0, upload_bytes_a_second=1 << 40)
    async with Client(settings, timeouts=limits) as client:
        with pytest.raises(TimedOut) as caught:
            await client.change_voice(path, voice="nora")
    assert caught.value.sent


# Translations.


def translated(*texts, **metadata):
    pairs = [
        {"source_text": source, "translated_text": text}
        for source, text in zip(["Hello", "Good morning"], texts, strict=False)
    ]
    return {"translations": pairs, "metadata": {"target_language": "fr-FR", "credits_used": 17.0, **metadata}}


async def test_texts_come_back_in_their_order_with_what_was_said_of_each(odd, client, key):
    heads = [("X-Trace-Id", "trace-7"), ("X-Speech-Warning", "already in fr and returned as they are: texts 1"),
             ("X-Speech-Warning", "the moon is full: texts and all"),
             ("X-Speech-Warning", make_route_warning("en>de>fr", [1]))]  # fmt: skip
    odd.script(odd.answer(200, translated("Salut", "Bonjour"), heads), path=TRANSLATE)
    found = await client.translate(["Hello", "Good morning"], target="fr_fr", idempotency_key="k-1")
    assert (found.translations, found.billed_characters, found.trace_id) == (
        ("Salut", "Bonjour"),
        17,
        "trace-7",
    )
    assert found.text_warnings == ((), ("already in fr and returned as they are",))
    assert found.routes == (None, "en>de>fr")
    assert found.warnings == ("the moon is full: texts and all",)
    (seen,) = odd.posts()
    assert json.loads(seen.body) == {"targetLanguage": "fr-FR", "texts": ["Hello", "Good morning"]}
    assert (seen.headers["api-key"], seen.headers["Idempotency-Key"]) == (key, "k-1")


@pytest.mark.parametrize("takes", [True, None])
async def test_the_language_of_the_texts_is_told_only_to_a_service_that_takes_it(odd, client, takes):
    page = odd.answer(200, {"service": "speechframe", "source_language": True}) if takes else odd.answer(404)
    odd.script(page, path="/v1/limits")
    odd.script(odd.answer(200, translated("Salut", "Bonjour")), path=TRANSLATE)
    for _ in range(2):
        await client.translate(["Hello", "Good morning"], target="fr", source="en_us")
    assert json.loads(odd.posts()[-1].body).get("sourceLanguage") == ("en-US" if takes else None)
    assert len(odd.gets("/v1/limits")) == 1


async def test_another_price_or_language_than_expected_is_said(odd, client):
    odd.script(
        odd.answer(200, translated("Salut", "Bonjour", credits_used=20.0, target_language="es-ES")),
        path=TRANSLATE,
    )
    found = await client.translate(["Hello", "Good morning"], target="fr-FR")
    assert set(found.warnings) == {
        "the service reports a cost of 20 credits, expected 17", "the answer states the language es-ES, requested fr-FR"
    }  # fmt: skip
