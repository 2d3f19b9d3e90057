"""The key is on the wire and nowhere else: in no repr, message, log, traceback or pickle, at no other host."""

import asyncio
import contextlib
import json
import logging
import pickle
import traceback
from urllib.parse import quote

import pytest
from aiohttp import web
from pydantic import SecretStr
from socket_desk import HALF, audio

from speechframe.client import Bounds, Client, Patience, SyncClient
from speechframe.errors import SettingsError, SpeechframeError
from speechframe.settings import Settings


def everything_shown(error):
    """What the most talkative crash report would print."""
    parts = [str(error), repr(error), repr(error.args), repr(vars(error)), repr(pickle.dumps(error))]
    while error is not None:
        captured = traceback.TracebackException.from_exception(error, capture_locals=True)
        parts += [*captured.format(), *traceback.format_exception(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(parts)


async def failure(attempt):
    # A frame of its own: those of the tests hold the bare key.
    try:
        await attempt
    except SpeechframeError as error:
        return error
    raise AssertionError("nothing was raised")


def assert_hidden(shown, key):
    spellings = {key, key[:12], key[-12:], json.dumps(key), quote(key), quote(key, safe="")}
    # Not `in` within the assertion: explaining it over megabytes of traceback takes minutes.
    found = [shown[max(0, shown.find(s) - 200) :][:300] for s in spellings if s in shown]
    assert found == []


FAILURES = {
    "json error": lambda odd, text, key: odd.answer(403, {"error_message": text, "error_code": key}, {"X-Trace-Id": key}),
    "escaped error": lambda odd, text, key: odd.answer(400, json.dumps({"message": text}).replace("/", "\\/").encode()),
    "key at the end of a long error": lambda odd, text, key: odd.answer(500, b"x" * 1960 + text.encode()),
    "page": lambda odd, text, key: odd.answer(502, f"<html><body>{text}</body>".encode()),
    "redirect": lambda odd, text, key: odd.redirect(f"https://{quote(key, safe='')}.example.com/?k={key}"),
    "bad answer": lambda odd, text, key: odd.answer(200, text.encode(), {"X-Trace-Id": key}),
    "bad encoding": lambda odd, text, key: odd.answer(200, text.encode(), {"Content-Encoding": key}),
    "no http": lambda odd, text, key: odd.raw(text.encode() + b"\r\n\r\n"),
    "truncated": lambda odd, text, key: odd.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + text.encode()),
    "reset": lambda odd, text, key: odd.reset(),
    "signed link": lambda odd, text, key: odd.spoken(encodedAudio=None, audioFile=f"{odd.url}/gone.wav?sig={key}"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
async def test_no_failure_shows_the_key(odd, settings, call, key, name, caplog):
    caplog.set_level(logging.DEBUG)
    odd.script(FAILURES[name](odd, f"no such key {key} ({quote(key)}), you sent api-key: {key}", key))
    async with Client(settings, patience=Patience(attempts=2, first_wait_s=0.001)) as client:
        for send in (client.send_once, client.call):
            assert_hidden(everything_shown(await failure(send(call))), key)
    assert odd.seen[0].headers["api-key"] == key, "the key was never sent"
    assert_hidden(caplog.text, key)


@pytest.mark.parametrize("name", ["json error", "redirect", "bad encoding", "truncated"])
async def test_no_failure_of_a_stream_shows_the_key(odd, settings, key, name):
    text = f"no such key {key} ({quote(key)}), you sent api-key: {key}"
    odd.script(FAILURES[name](odd, text, key), path="/v1/speech/stream")
    async with Client(settings, patience=Patience(attempts=2, first_wait_s=0.001)) as client:

        async def attempt():
            await (await client.stream("Hello", voice="ivy")).read()

        assert_hidden(everything_shown(await failure(attempt())), key)


@pytest.mark.parametrize("how", ["later piece", "turn"])
async def test_audio_too_large_for_its_text_shows_no_key_that_it_echoes(odd, settings, desk, key, how):
    echo = f"<{key}>".encode() * 4000

    async def flood(request):
        answer = web.StreamResponse(headers={"Content-Type": "audio/wav"})
        await answer.prepare(request)
        await answer.write(b"some audio")
        await asyncio.sleep(0.2)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(echo)

    async def flood_turn(desk, socket):
        wire_id, _ = await desk.ended(socket)
        with contextlib.suppress(ConnectionError):
            while True:
                await socket.send_str(audio(echo, wire_id))

    odd.script(flood, path="/v1/speech/stream")
    desk.acts = [flood_turn]
    async with Client(settings, bounds=Bounds(download_bytes=100_000)) as client:
        session = client.stream_session(**HALF)

        async def attempt():
            if how == "turn":
                await session.speak("Hello").read()
            else:
                await (await client.stream("Hello", voice="ivy")).read()

        error = await failure(attempt())
    assert "too large for its text" in str(error)
    assert_hidden(everything_shown(error), key)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verb", ["generate", "stream", "change_voice", "translate", "voices", "speak"])
async def test_a_call_that_is_given_up_shows_no_key_in_its_frames(odd, settings, key, verb):
    paths = (
        "speech/generate",
        "speech/stream",
        "speech/voices",
        "speech/stream-input",
        "voice-changer/convert",
    )
    for path in (*paths, "text/translate"):
        odd.script(odd.hang(), path=f"/v1/{path}")
    clip = odd.audio

    async def attempt(client):
        match verb:
            case "change_voice":
                await client.change_voice(clip, voice="nora")
            case "translate":
                await client.translate(["Hello"], target="fr")
            case "voices":
                await client.voices()
            case "speak":
                async with client.stream_session(max_contexts=1, **HALF) as session:
                    await session.speak("Hello").read()
            case _:
                await getattr(client, verb)("Hello", voice="nora")

    async def given_up(client):
        try:
            async with asyncio.timeout(0.2):
                await attempt(client)
        except TimeoutError as error:
            return error

    async with Client(settings) as client:
        shown = everything_shown(await given_up(client))
    assert odd.seen[0].headers["api-key"] == key
    assert_hidden(shown, key)


async def test_no_listing_failure_shows_key_or_token(odd, client, key):
    token, path = "tok-0123456789-abcdef", "/v1/speech/voices"
    for answer in (
        odd.answer(403, {"message": f"{key} {token}"}),
        odd.answer(200, {"voices": []}, headers={"X-Trace-Id": f"for {token}"}),
    ):
        odd.script(answer, path=path)
        shown = everything_shown(await failure(client.voices(token=token)))
        for secret in (token, key):
            assert_hidden(shown, secret)


async def test_no_good_answer_shows_the_key(odd, client, call, key):
    words = [{"word": f"<{key}>", "startMs": 0, "endMs": 1}]
    heads = {"X-Speech-Warning": key, "X-Trace-Id": f"t-{key}"}
    odd.script(odd.spoken(warning=f"weak key {key}", wordDurations=words, headers=heads))
    spoken = await client.send_once(call)
    assert (spoken.trace_id, set(spoken.warnings), spoken.words) == (
        "t-***",
        {"weak key ***", "***"},
        [("<***>", 0, 1)],
    )
    texts = [{"source_text": "Hi", "translated_text": f"Salut {key}"}]
    odd.script(odd.answer(200, {"translations": texts, "metadata": {}}), path="/v1/text/translate")
    assert (await client.translate(["Hi"], target="fr-FR")).translations == ("Salut ***",)
    odd.script(
        odd.answer(200, {"service": "speechframe", "identities": {key: [f"<{key}>"]}}), path="/v1/limits"
    )
    assert (await client.limits())["identities"] == {"***": ["<***>"]}
    voice = {"voiceId": f"en-US-{key}", "displayName": key, "locale": key}
    odd.script(odd.answer(200, [voice]), path="/v1/speech/voices")
    assert_hidden(repr([spoken, *await client.voices()]), key)


async def test_a_key_as_short_as_a_word_changes_nothing_that_is_paid_for(odd, settings, call):
    odd.script(odd.spoken(wordDurations=[{"word": "demo", "startMs": 0, "endMs": 9}]))
    texts = [{"source_text": "Hi", "translated_text": "une demo"}]
    odd.script(odd.answer(200, {"translations": texts}), path="/v1/text/translate")
    async with Client(settings, api_key="demo") as client:
        assert (await client.call(call)).words == [("demo", 0, 9)]
        assert (await client.translate(["Hi"], target="fr-FR")).translations == ("une demo",)


@pytest.mark.parametrize("kind", [Client, SyncClient])
async def test_reprs_and_clients_that_cannot_be_made_show_no_key(kind, settings, call, key, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_BASE_URL", raising=False)
    for shown in (kind(settings), settings, call):
        assert_hidden(repr(shown) + str(shown), key)

    async def make(**given):
        return kind(**given)

    wrong = [
        {"base_url": "http://far.example.com"},
        {"base_url": None},
        {"base_url": "https://a.example", "regions": ("mars",)},
    ]
    for given in wrong:
        assert_hidden(everything_shown(await failure(make(api_key=SecretStr(key), **given))), key)
    error = await failure(
        make(api_key=SecretStr("sk-secret\r\nX-Evil: 1"), base_url="https://far.example.com")
    )
    assert isinstance(error, SettingsError)
    assert_hidden(everything_shown(error), "sk-secret")


def test_a_client_without_await_shows_no_bare_key_or_token_in_its_frames(odd, settings, key):
    def frames_of(error):
        stack = traceback.TracebackException.from_exception(error, capture_locals=True).stack
        # Those of tests hold what they hand over.
        return repr([frame.locals for frame in stack if frame.filename != __file__])

    token = "tok-0123456789-abcdef"
    odd.script(odd.answer(403), path="/v1/speech/voices")
    with SyncClient(settings) as client, pytest.raises(SpeechframeError) as caught:
        client.voices(token=token)
    assert_hidden(frames_of(caught.value), token)
    with SyncClient(settings) as client, pytest.raises(SpeechframeError) as caught:
        client.dubbing.create_job(b"film", target_locales=["mars"], webhook_secret=token)
    assert_hidden(frames_of(caught.value), token)
    for given in ({"base_url": "http://far.example.com"}, {"apikey": key}):
        with pytest.raises((SettingsError, TypeError)) as refused:
            SyncClient(**{"api_key": key, **given})
        assert_hidden(frames_of(refused.value), key)


async def test_no_other_host_gets_the_key(odd, client, call, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    paths = [
        "speech/voices",
        "auth/token",
        "limits",
        "speech/generate",
        "speech/stream",
        "speech/stream-input",
    ]
    for path in paths:
        odd.script(odd.redirect(f"{odd.other_url}/v1/{path}", 307), path=f"/v1/{path}")
    async with client.stream_session(voice="ivy") as session:
        for attempt in (client.voices(), client.token(), client.send_once(call), client.stream("Hello", voice="ivy"),
                        session.speak("Hello.").read()):  # fmt: skip
            with pytest.raises(SpeechframeError, match=r"redirects to 127\.0\.0\.2"):
                await attempt
    assert all(seen.host.startswith("127.0.0.1") and "Authorization" not in seen.headers for seen in odd.seen)
    assert {seen.path.partition("?")[0] for seen in odd.seen} == {f"/v1/{path}" for path in paths}


def test_plain_http_to_another_machine_is_refused_unless_allowed(key):
    with pytest.raises(SettingsError, match="plain http"):
        Client(Settings(api_key=SecretStr(key), base_url="http://far.example.com"))
    Client(Settings(api_key=SecretStr(key), base_url="http://far.example.com", allow_http=True))
