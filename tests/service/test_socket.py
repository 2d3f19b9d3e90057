"""Text in frames, audio in frames: contexts on real sockets, their rules, faults and bills."""

import asyncio
import base64
import time

import aiohttp
import pytest
from aiohttp import WSMsgType
from socket_lab import (
    FALCON,
    MOODY,
    PATH,
    THREE,
    Talk,
    all_free,
    at_work,
    free_slots,
    in_order,
    own_bytes,
    talking,
)

from speechframe.spec import chosen
from speechframe.spec.codes import INVALID_KEY_REASON
from speechframe.spec.speech import Format


@pytest.fixture(scope="module")
def wide(start):
    """Give a service for many contexts at once."""
    with start(concurrency=200, workers=2, options=["--job-timeout-s", "60"]) as running:
        yield running


@pytest.mark.rule("auth.socket-upgrade-then-1008")
@pytest.mark.parametrize(("query", "key"), [("?format=NO", None), ("", "wrong"), ("?api-key=wrong", None)])
async def test_a_missing_or_bad_key_is_told_after_the_upgrade(http, query, key):
    headers = {} if key is None else {chosen.API_KEY_HEADER: key}
    async with http.session.ws_connect(http.url + PATH + query, headers=headers) as socket:
        message = await socket.receive(timeout=60)
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 1008, INVALID_KEY_REASON)


@pytest.mark.rule("auth.socket-upgrade-then-1008")
async def test_the_key_may_be_in_the_query(http):
    async with http.session.ws_connect(f"{http.url}{PATH}?api-key=main&origin=elsewhere") as socket:
        talk = Talk(socket)
        await talk.say("Hello.")
        await talk.finals(1)
        assert talk.audio()


async def test_a_query_that_is_wrong_and_a_call_without_an_upgrade_are_400(http):
    for query in ("format=AAC", "sample_rate=x", "model=gen3"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with talking(http, query):
                pass
        assert caught.value.status == 400
    answer = await http.get(PATH)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")


@pytest.mark.rule("socket.audio-frames", "socket.final-frame", "socket.trace-id", "context.default")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("audio_format", [Format.WAV, *(one for one in Format if one is not Format.WAV)])
async def test_a_context_is_one_continuous_file_with_one_header(http, audio_format):
    async with talking(http, f"format={audio_format}") as talk:
        for turn in (1, 2):
            talk.frames.clear()
            await talk.say(THREE)
            await talk.finals(1)
            assert talk.audio() == own_bytes(audio_format=audio_format), turn
        if audio_format is Format.WAV:
            chunks = [base64.b64decode(one["audio"]) for one in talk.frames if "audio" in one]
            assert len(chunks) > 2
            assert [chunk.startswith(b"RIFF") for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
        last = talk.frames[-1]
        assert last["final"] is True
        assert "audio" not in last


# A pause between two frames of more than a second, which is the most, would be one of the text.
@pytest.mark.quiet
async def test_how_text_is_split_over_frames_changes_nothing(http):
    async with talking(http) as talk:
        await talk.send(voice_config=FALCON, context_id="a", max_buffer_delay_in_ms=1000)
        for start in range(0, len(THREE), 5):
            await talk.send(context_id="a", text=THREE[start : start + 5])
        await talk.send(context_id="a", end=True)
        await talk.finals(1)
        assert talk.audio("a") == own_bytes()


@pytest.mark.quiet
async def test_audio_comes_while_the_context_still_takes_text(http):
    async with talking(http, "format=PCM&model=gen2") as talk:
        await talk.send(voice_config=MOODY, text="Hello there. sleep 0.6 long. More ", min_buffer_size=0)
        started = time.monotonic()
        await talk.frame()
        assert time.monotonic() - started < 0.5
        await talk.send(text="comes.", end=True)
        await talk.finals(1)
    assert "audio" in talk.frames[0]


async def test_pauses_of_a_text_are_heard_also_where_they_come_alone(http):
    async with talking(http) as talk:
        await talk.say("Hello there. ", "plain")
        await talk.finals(1)
        plain = len(talk.audio("plain"))
        for name, frames in {
            "before": ["[pause 1s]", "Hello there. "],
            "after": ["Hello there. ", "[pause 1s]"],
        }.items():
            talk.frames.clear()
            await talk.send(voice_config=FALCON, context_id=name, min_buffer_size=0, max_buffer_delay_in_ms=0)
            for text in frames:
                await talk.send(context_id=name, text=text)
                await asyncio.sleep(0.2)
            await talk.send(context_id=name, end=True)
            await talk.finals(1)
            assert len(talk.audio(name)) - plain == pytest.approx(48000, abs=10)


@pytest.mark.rule(
    "context.created-within-limit",
    "context.refused-over-limit",
    "context.end-frees-slot",
    "context.counted-not-sockets",
)
async def test_active_contexts_are_counted_over_all_sockets_and_http_streams(http, hold):
    sent = {"text": f"Hello. {hold.text} long.", "voiceId": "en-US-moody", "model": "gen2"}
    headers = {chosen.API_KEY_HEADER: "second"}
    async with talking(http, key="second") as one, talking(http, key="second") as two:
        await one.send(context_id="a", voice_config=FALCON)
        await two.send(context_id="a", voice_config=FALCON)
        await in_order(one)
        await in_order(two)
        async with http.session.post(http.url + "/v1/speech/stream", json=sent, headers=headers) as answer:
            assert answer.status == 200
            await two.say("Hello.", "b")
            refused = await two.frame()
            assert refused["error_code"] == "ACTIVE_CONTEXT_LIMIT_EXCEEDED"
            assert refused["fatal"] is False
            await one.send(context_id="a", end=True)
            await one.finals(1)
            await two.say("Hello.", "b")
            await two.finals(1)
            await one.send(context_id="c", voice_config=FALCON)
            hold.let_go()
            await answer.content.read()
            assert (await http.ask("POST", "/v1/speech/stream", json=sent, key="second")).status == 200
    await all_free(http, "second", 3)


@pytest.mark.quiet
@pytest.mark.parametrize("how", ["close", "abort", "half"])
async def test_a_socket_that_goes_away_frees_its_contexts_and_stops_their_work(http, how, tools, service):
    before = await http.remaining("second")
    async with talking(http, "model=gen2&format=PCM", key="second") as talk:
        for name in "abc":
            await talk.send(context_id=name, voice_config=MOODY, min_buffer_size=0)
            await talk.send(context_id=name, text="Hello there. sleep 2.5 long. Never.")
        await talk.until(lambda one: "audio" in one)
        transport = talk.socket._response.connection.transport
        if how == "close":
            await talk.socket.close()
        elif how == "abort":
            transport.abort()
        else:
            transport.get_extra_info("socket").shutdown(1)
        started = time.monotonic()
        assert await free_slots(http, "second", 3) == 3
        assert time.monotonic() - started < 1.0
        await asyncio.sleep(0.7)
        spent = before - await http.remaining("second")
        # What was spoken is paid for: one sentence of each at most, and of one for certain.
        assert spent in {len("Hello there. ") * count for count in (1, 2, 3)}


@pytest.mark.rule("socket.warning-frame", "context.warning-continues", "socket.config-before-text")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"min_buffer_size": 1001}, "INVALID_BUFFER_SIZE"),
        ({"max_buffer_delay_in_ms": "soon"}, "INVALID_BUFFER_DELAY"),
        ({"predictive_chunking": "wild"}, "INVALID_PREDICTIVE_CHUNKING"),
        ({"text": 7}, "INVALID_FIELD_TYPE"),
        ({"voice_config": {"rate": 3}}, "NO_VOICE_ID"),
        ({"clear": True, "text": "Never."}, "TEXT_IGNORED_WITH_CLEAR"),
        ({"voice_config": {**FALCON, "style": "Nonesuch"}, "text": "Hello. "}, chosen.VOICE_WARNING_CODE),
        ({"voice_config": {**FALCON, "variation": 2}, "text": "Hello. "}, chosen.VOICE_WARNING_CODE),
        ({"text": "Привет, everybody out there. "}, chosen.TEXT_WARNING_CODE),
    ],
)
async def test_what_is_ignored_is_a_warning_and_synthesis_goes_on(http, frame, code):
    async with talking(http) as talk:
        await talk.send(context_id="a", voice_config=FALCON, min_buffer_size=0)
        await talk.send(context_id="a", **frame)
        await talk.send(context_id="a", voice_config=FALCON, text="Hello there. ", end=True)
        await talk.finals(1)
        assert talk.codes() == [code]
        assert all(one.get("context_id") == "a" for one in talk.frames)
        assert talk.audio("a")


async def test_words_of_a_dictionary_that_a_turn_has_not_are_named_behind_it(http):
    spoken = {word: {"type": "SAY_AS", "pronunciation": "tea"} for word in ("hello", "there", "Quux")}
    async with talking(http) as talk:
        await talk.say("Hello. Well, are you there? ", voice={**FALCON, "pronunciationDictionary": spoken})
        await talk.finals(1)
        assert talk.codes() == [chosen.VOICE_WARNING_CODE]
        (warning,) = [one["warning"] for one in talk.frames if "warning" in one]
        assert warning.endswith("not in the text: 'Quux'")
        assert talk.frames[-1]["final"]


async def test_a_turn_that_begins_with_what_cannot_be_spoken_is_refused_and_costs_nothing(http):
    before = await http.remaining("spare")
    async with talking(http, key="spare") as talk:
        await talk.say("東京は日本の首都です。", voice={"voiceId": "en-US-ivy"}, context_id="a")
        # Later all that can be heard is; what cannot is not paid for.
        await talk.say("Hello there, everybody. Привет. Bye. ", context_id="b", min_buffer_size=0)
        await talk.finals(2)
        (error,) = [one for one in talk.frames if "error" in one]
        assert (error["error_code"], error["fatal"], error["context_id"]) == ("INVALID_REQUEST", True, "a")
        assert "東 京 は 日 本" in error["error"]
        assert not talk.audio("a")
        assert "П" in next(one["warning"] for one in talk.frames if "warning" in one)
    assert await http.remaining("spare") == before - len("Hello there, everybody. Bye. ")


@pytest.mark.rule("socket.config-not-inherited", "socket.warn-no-voice-config")
async def test_a_named_context_does_not_inherit_and_the_default_voice_speaks(http):
    async with talking(http) as talk:
        await talk.say("Hello there. ", voice={"voiceId": "en-US-cole"})
        await talk.send(context_id="a", text="Hello there. ", end=True)
        await talk.finals(2)
        assert talk.codes() == ["NO_VOICE_CONFIG"]
        assert talk.audio("a")
        assert talk.audio("a") != talk.audio()


# They are too many within a second.
@pytest.mark.quiet
async def test_too_many_generation_requests_are_a_warning(http):
    async with talking(http) as talk:
        await talk.send(voice_config=FALCON, min_buffer_size=0)
        for number in range(9):
            await talk.send(text=f"Sentence {number} is here. ")
        await talk.send(end=True)
        await talk.finals(1)
        assert talk.codes() == ["TOO_MANY_GENERATION_REQUESTS"]


@pytest.mark.rule("context.fatal-ends", "socket.fatal-is-last")
async def test_an_unknown_voice_ends_its_context_and_no_other(http):
    async with talking(http) as talk:
        await talk.say(THREE, "good")
        await talk.say(THREE, "bad", {"voiceId": "en-US-ruby"})
        await talk.say(THREE, "bare", {"voiceId": "ivy"})
        await talk.finals(3)
        (error,) = [one for one in talk.frames if "error" in one]
        assert (error["error_code"], error["context_id"], error["fatal"]) == ("INVALID_VOICE", "bad", True)
        assert talk.audio("good") == talk.audio("bare") == own_bytes()
        assert not talk.audio("bad")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verb", ["crash now", "raise it"])
async def test_an_engine_that_fails_ends_its_context_alone_and_the_context_can_be_tried_again(http, verb):
    before = await http.remaining("spare")
    async with talking(http, "model=gen2&format=PCM", "spare") as talk:
        text = f"Hello there. {verb} please. Never."
        await talk.say(text, "bad", MOODY, min_buffer_size=0)
        await talk.say("Hello there. Well done.", "good", MOODY)
        await talk.finals(2)
        bad = [one for one in talk.frames if one["context_id"] == "bad"]
        assert bad[-1]["error_code"] == "INTERNAL_ERROR"
        assert bad[-1]["fatal"] is True
        assert "please" not in bad[-1]["error"]
        assert talk.audio("bad")
        assert any(one.get("final") and one["context_id"] == "good" for one in talk.frames)
        talk.frames.clear()
        await talk.say("Hello there.", "bad", MOODY)
        await talk.finals(1)
        assert talk.audio("bad")
    assert before - await http.remaining("spare") == len("Hello there. Hello there. Well done.Hello there.")


async def test_no_characters_left_is_a_fatal_error_of_its_own(http):
    async with talking(http, key="tiny-socket") as talk:
        await talk.send(voice_config=FALCON, context_id="a", min_buffer_size=0)
        await talk.send(context_id="a", text="Hi you. ")
        await talk.frame()
        await talk.send(context_id="a", text="This is too much. ")
        await talk.finals(1)
        assert talk.codes() == ["QUOTA_EXHAUSTED"]
    assert await http.remaining("tiny-socket") == 10 - len("Hi you. ")


@pytest.mark.rule("socket.clear-without-text")
async def test_clear_drops_what_is_not_being_spoken(http, hold):
    async with talking(http, "model=gen2&format=PCM") as talk:
        await talk.send(
            voice_config=MOODY,
            context_id="a",
            text=f"{hold.text} long. Never said. And no more. ",
            min_buffer_size=0,
        )
        await at_work(http, 1)
        await talk.send(context_id="a", clear=True)
        await in_order(talk)
        hold.let_go()
        await talk.send(context_id="a", end=True)
        await talk.finals(1)
        alone = talk.audio("a")
        await talk.say(f"{hold.text} long. ", "b", MOODY)
        await talk.finals(2)
        assert len(alone) == len(talk.audio("b"))


@pytest.mark.slow
async def test_two_hundred_contexts_at_once_all_come_whole(wide, http_to):
    http, count = http_to(wide), 200
    async with talking(http) as talk:
        for number in range(count):
            await talk.say("Hello there.", f"context {number}")
        await talk.finals(count)
        assert {talk.audio(f"context {number}") for number in range(count)} == {own_bytes("Hello there.")}
        assert talk.codes() == []


async def test_who_ends_more_contexts_than_can_be_spoken_is_read_no_further(http):
    async with talking(http, "model=gen2&format=PCM") as talk:
        await talk.say("sleep 0.5 long.", "a", MOODY)
        for _ in range(chosen.MAX_WAITING_SOCKET_TURNS + 100):
            await talk.send(context_id="a", text=" ", end=True)
        await talk.socket.send_str("no JSON")
        await talk.until(lambda one: "error" in one)
        assert sum("final" in one for one in talk.frames) > 50
        await talk.finals(1 + chosen.MAX_WAITING_SOCKET_TURNS + 100)


async def test_others_are_heard_while_a_key_has_many_more_contexts_spoken_than_may_be_active(http, hold):
    many = 150
    async with talking(http, "model=gen2&format=PCM", key="second") as flood, talking(http) as talk:
        for number in range(many):
            # Each takes a moment until all are let go.
            await flood.say(f"nap {hold.path} long.", f"c{number}", MOODY)
        reading = asyncio.create_task(flood.finals(many))
        await talk.say(THREE, "a")
        await talk.finals(1)
        assert talk.audio("a") == own_bytes()
        assert sum("final" in one for one in flood.frames) < many / 2
        hold.let_go()
        await reading
        assert flood.codes() == []


@pytest.mark.quiet
@pytest.mark.rule("limit.socket-idle")
async def test_a_silent_socket_is_closed_with_1000_and_one_at_work_is_not(start, http_to):
    with start(workers=1, options=["--socket-idle-s", "0.6"]) as service:
        http = http_to(service)
        async with talking(http, "model=gen2&format=PCM") as talk:
            await talk.send(voice_config=MOODY, context_id="a")
            await talk.say("sleep 1.2 long.", "b", MOODY)
            await talk.finals(1)
            started = time.monotonic()
            message = await talk.socket.receive(timeout=60)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1000)
            assert 0.3 < time.monotonic() - started < 3
        cap = chosen.DEFAULT_CONCURRENCY
        assert await free_slots(http, service.api_key.get_secret_value(), cap) == cap


async def once_there_is_room(http):
    """Open a socket when the service knows that another was closed."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await http.session.ws_connect(f"{http.url}{PATH}?format=PCM&api-key={http.key}")
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 429:
                    raise
            await asyncio.sleep(0.02)


async def test_open_sockets_of_a_key_are_counted(service, http_to):
    # No other test opens sockets of this key.
    http, most = http_to(service, "a-secret"), chosen.SOCKETS_PER_CONCURRENCY
    opened = [await http.session.ws_connect(f"{http.url}{PATH}?api-key={http.key}") for _ in range(most)]
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await http.session.ws_connect(f"{http.url}{PATH}?api-key={http.key}")
    assert caught.value.status == 429
    await opened.pop().close()
    opened.append(await once_there_is_room(http))
    talk = Talk(opened[-1])
    await talk.say("Hello.")
    await talk.finals(1)
    for socket in opened:
        await socket.close()
