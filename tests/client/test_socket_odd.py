"""What a session makes of closes, failures, unknown frames and silence: decided by code, every turn ended."""

import asyncio

import pytest
from socket_desk import HALF, PATH, audio, closing, frame, speak, until

from speechframe.audio import codec
from speechframe.errors import (
    BadAnswer,
    ConnectionFailed,
    PermissionDenied,
    RateLimited,
    ServerError,
    ServiceError,
    StreamBroken,
)
from speechframe.old_client import Bounds, Client, Patience, Timeouts, _line, turn
from speechframe.spec.codes import INVALID_KEY_REASON
from speechframe.wire.client_contexts import Audio, Ended, Odd, Retried, Warned


async def vanish(desk, socket):
    """Leave without a word, when the first frames are there."""
    await desk.next(socket)
    await desk.next(socket)
    socket._req.transport.abort()


def failing(code, *, fatal=True, times=1, heard=b"", error="it failed"):
    """Fail turns with a code, after some audio; then speak."""

    async def act(desk, socket):
        for _ in range(times):
            wire_id, _ = await desk.ended(socket)
            if wire_id is None:
                return
            if heard:
                await socket.send_str(audio(heard, wire_id))
            await socket.send_str(frame(error=error, error_code=code, fatal=fatal, context_id=wire_id))
            # The end of what was given up.
            await desk.ended(socket)
        await speak(desk, socket)

    return act


async def failing_within(manager, work, *args):
    """Do something within a block that then fails."""

    async def block():
        async with manager:
            await work(*args)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()


@pytest.fixture
async def hasty(settings, quick):
    """A client that waits for little: a healthy turn may take it too long, beside other tests."""
    timeouts = Timeouts(base_s=0.5, per_character_s=0)
    async with Client(settings, patience=quick, timeouts=timeouts) as made:
        yield made


async def test_what_goes_over_the_wire(odd, desk, session, key):
    stream = session.speak(["Hello ", "there."], voice="cole", rate=3, min_buffer_size=0)
    assert await stream.read() == b"Hello there."
    assert desk.frames == [
        [
            {"voice_config": {"voiceId": "cole", "rate": 3}, "context_id": "1.1", "min_buffer_size": 0},
            {"text": "Hello ", "context_id": "1.1"},
            {"text": "there.", "context_id": "1.1"},
            {"end": True, "context_id": "1.1"},
        ]
    ]
    (upgrade,) = odd.gets(PATH)
    assert upgrade.headers["api-key"] == key
    assert sorted(upgrade.path.removeprefix(f"{PATH}?").split("&")) == ["format=PCM", "sample_rate=8000"]
    assert stream.summary.trace_id == "t-1"


@pytest.mark.parametrize("reason", [INVALID_KEY_REASON, "", "the plan has ended", "KEY"])
async def test_1008_is_a_denial_whatever_its_reason(desk, session, reason, key):
    desk.acts = [closing(1008, reason.replace("KEY", key).encode())]
    with pytest.raises(PermissionDenied) as caught:
        await session.speak("Hello.").read()
    assert reason.replace("KEY", "***") in str(caught.value)
    assert key not in str(caught.value)
    assert desk.sockets == 1


@pytest.mark.rule("socket.error-internal", "socket.decide-by-code")
@pytest.mark.parametrize("fatal", [True, False])
async def test_a_turn_that_fails_before_it_is_heard_is_sent_again_from_its_beginning(desk, session, fatal):
    desk.acts = [failing("INTERNAL_ERROR", fatal=fatal, error="your voice is invalid")]
    context = await session.open()
    await context.send("Hello ")
    await context.send("there.")
    await context.end()
    events = [event async for event in context]
    assert events == [
        Retried(1, "INTERNAL_ERROR"),
        Audio(1, b"Hello there.", "t-1"),
        Ended(1, "t-1"),
    ]
    assert desk.texts() == ["Hello ", "there."] * 2
    assert desk.ends() == ["1.1", "1.1", "1.2"]
    assert context.audio().summary.attempts == 2


async def test_a_turn_that_always_fails_fails_with_the_services_code(desk, session):
    desk.acts = [failing("INTERNAL_ERROR", times=9)]
    with pytest.raises(ServerError) as caught:
        await session.speak("Hello.").read()
    assert (caught.value.code, caught.value.trace_id) == ("INTERNAL_ERROR", "t-1")
    assert desk.texts() == ["Hello."] * 3


async def test_a_turn_that_was_heard_is_not_sent_again(desk, session):
    desk.acts = [failing("INTERNAL_ERROR", heard=b"heard")]
    stream = session.speak("Hello.")
    with pytest.raises(ServerError):
        await stream.read()
    assert stream.audio == b"heard"
    assert desk.texts() == ["Hello."]


async def test_an_unknown_code_that_is_fatal_is_an_error_with_that_code(desk, session):
    desk.acts = [failing("NEW_THING", times=1)]
    with pytest.raises(ServiceError) as caught:
        await session.speak("Hello.").read()
    assert caught.value.code == "NEW_THING"
    assert await session.speak("Next.").read() == b"Next."


@pytest.mark.rule("socket.error-context-limit")
async def test_a_turn_that_is_refused_for_its_number_waits_and_is_sent_again(desk, session):
    desk.acts = [failing("ACTIVE_CONTEXT_LIMIT_EXCEEDED")]
    assert await session.speak("Hello.").read() == b"Hello."
    assert desk.texts() == ["Hello."] * 2


async def test_what_nobody_knows_survives(desk, session):
    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        for message in (
            "no json",
            "[]",
            frame(audio="%%%", context_id="of nobody"),
            frame(audio="AAAA", context_id="of nobody"),
            frame(progress=1, context_id=wire_id),
            frame(warning="a new word", warning_code="NEW_WARNING", context_id=wire_id),
            frame(error="hm", error_code="NEW_ERROR", fatal=False, context_id=wire_id),
            frame(error="hm", error_code="NEW_ERROR", fatal=True),
        ):
            await socket.send_str(message)
        await socket.send_bytes(b"\0\1")
        await socket.send_str(audio(b"heard", wire_id))
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act]
    context = await session.open()
    await context.send("Hello.")
    await context.end()
    events = [event async for event in context]
    assert [type(event) for event in events] == [Odd, Warned, Odd, Audio, Ended]
    assert context.audio().summary.warnings == ("NEW_WARNING: a new word",)
    assert await context.audio().read() == b"heard"


@pytest.mark.rule("socket.close-1000-idle")
async def test_after_1000_in_the_middle_a_turn_goes_on_when_it_has_text(client, desk, odd, tmp_path):
    wav = codec.with_length(odd.audio)

    async def first(desk, socket):
        while "text" not in (found := await desk.next(socket)):
            pass
        await socket.send_str(audio(wav, found["context_id"]))
        # Sooner it would not have been idle.
        await asyncio.sleep(0.6)
        await socket.close(code=1000)

    async def second(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await socket.send_str(audio(wav[:100], wire_id))
        await socket.send_str(audio(wav[100:], wire_id))
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [first, second]
    async with client.stream_session(voice="ivy", sample_rate=44100) as session:
        context = await session.open()
        stream = context.audio()
        await context.send("Hello.")
        assert await anext(stream) == wav
        await until(lambda: session.sockets == 0)
        assert desk.sockets == 1
        await context.send("Again.")
        await context.end()
        await stream.read()
    assert (desk.texts(0), desk.texts(1)) == (["Hello."], ["Again."])
    # Two files came, one is made of them.
    assert stream.audio == wav + wav
    assert len(stream.samples()) == 2 * 22050
    path = await stream.save(tmp_path / "said.wav")
    assert codec.inspect(path.read_bytes()).audio_seconds == pytest.approx(1.0)
    assert stream.summary.audio_seconds == pytest.approx(1.0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("act", [vanish, closing(1000, after=2), closing(1013, after=2), closing(1011)])
async def test_a_socket_that_is_lost_before_anything_was_heard_is_made_again(desk, session, act):
    desk.acts = [act, speak]
    stream = session.speak("Hello.")
    assert await stream.read() == b"Hello."
    assert desk.sockets == 2
    assert desk.texts(1) == ["Hello."]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("act", [vanish, closing(1000), closing(1000, after=2), closing(1013, after=1)])
async def test_a_socket_that_is_lost_again_and_again_is_given_up(desk, session, act):
    desk.acts = [act]
    with pytest.raises(ConnectionFailed):
        await session.speak("Hello.").read()
    assert desk.sockets <= 5


@pytest.mark.sampled(2)
@pytest.mark.parametrize("code", [None, 1000, 1013])
async def test_a_socket_that_is_lost_after_something_was_heard_breaks_the_turn(desk, session, code):
    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await socket.send_str(audio(b"heard", wire_id))
        await asyncio.sleep(0.05)
        if code is None:
            socket._req.transport.abort()
        else:
            await socket.close(code=code)

    desk.acts = [act, speak]
    stream = session.speak("Hello.")
    with pytest.raises(StreamBroken) as caught:
        await stream.read()
    assert (caught.value.received_bytes, stream.audio) == (5, b"heard")
    # The session goes on.
    assert await session.speak("Next.").read() == b"Next."


async def test_a_close_with_1000_in_the_middle_of_the_audio_breaks_the_turn(desk, session):
    async def act(desk, socket):
        while "text" not in (found := await desk.next(socket)):
            pass
        await socket.send_str(audio(b"One. ", found["context_id"]))
        await socket.close(code=1000)

    desk.acts = [act, speak]
    context = await session.open()
    stream = context.audio()
    await context.send("One. Two. Three. ")
    assert await anext(stream) == b"One. "
    await until(lambda: session.sockets == 0)
    await context.end()
    with pytest.raises(StreamBroken, match="lost before all of the audio had come"):
        await stream.read()
    assert not stream.is_complete


async def test_a_turn_without_its_end_goes_on_after_1000_alone(desk, session):
    async def act(desk, socket):
        while "text" not in (found := await desk.next(socket)):
            pass
        await socket.send_str(audio(b"heard", found["context_id"]))
        await asyncio.sleep(0.05)
        socket._req.transport.abort()

    desk.acts = [act, speak]
    context = await session.open()
    await context.send("Hello.")
    # A connection that just ends is no close with 1000, whatever the library says.
    async with asyncio.timeout(60):
        with pytest.raises(StreamBroken, match="lost"):
            await context.audio().read()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("status", "kind"), [(403, PermissionDenied), (429, RateLimited), (500, ServerError)]
)
async def test_an_upgrade_that_is_refused_is_the_error_of_its_status(odd, desk, session, status, kind):
    odd.script(odd.answer(status, {"error_message": "no"}), path=PATH)
    with pytest.raises(kind):
        await session.speak("Hello.").read()
    assert len(odd.gets(PATH)) == (1 if status == 403 else 5)


async def test_an_upgrade_is_tried_again_while_it_is_refused_for_now(odd, desk, session):
    odd.script(odd.answer(503), odd.answer(429), desk.step, path=PATH)
    assert await session.speak("Hello.").read() == b"Hello."


async def test_no_redirect_of_an_upgrade_is_followed(odd, desk, session, key):
    odd.script(odd.redirect(odd.other_url + PATH, 307), desk.step, path=PATH)
    with pytest.raises(ServiceError, match=r"redirects to 127\.0\.0\.2; that is not followed"):
        await session.speak("Hello.").read()
    assert desk.sockets == 0
    assert len(odd.gets(PATH)) == 1


async def test_an_answer_that_is_no_upgrade_is_no_connection(odd, desk, session):
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n"
    odd.script(odd.raw(head), path=PATH)
    with pytest.raises(ConnectionFailed) as caught:
        await session.speak("Hello.").read()
    assert not caught.value.sent


@pytest.mark.quiet
async def test_a_service_that_says_nothing_is_not_waited_for_for_ever(desk, hasty):
    async def silent(desk, socket):
        await desk.ended(socket)
        await desk.ended(socket)

    desk.acts = [silent]
    async with hasty.stream_session(**HALF) as session:
        with pytest.raises(StreamBroken, match=r"nothing came for 0\.5 s"):
            await session.speak("Hello.").read()
    assert desk.ends() == ["1.1"]


@pytest.mark.quiet
async def test_before_its_end_a_turn_may_be_silent(desk, hasty):
    async with hasty.stream_session(**HALF) as session:
        context = await session.open()
        await context.send("Hello")
        reading = asyncio.create_task(context.audio().read())
        await asyncio.sleep(0.8)
        assert not reading.done()
        await context.end()
        assert await reading == b"Hello"


@pytest.mark.quiet
async def test_a_turn_that_waits_for_a_slot_of_another_session_is_not_silent(hasty, desk):
    one, two = hasty.stream_session(**HALF, max_contexts=1), hasty.stream_session(**HALF)
    async with one, two, asyncio.timeout(60):
        holder = await one.open()
        await holder.send("First.")
        waiting = asyncio.create_task(two.speak("Second.").read())
        await asyncio.sleep(0.8)
        assert not waiting.done()
        assert sum(desk.texts(socket) == [] for socket in range(desk.sockets)) == desk.sockets - 1
        await holder.end()
        assert await waiting == b"Second."


@pytest.mark.parametrize("how", ["break", "cancel", "error", "close"])
async def test_whoever_leaves_a_turn_ends_it(desk, session, how):
    async def act(desk, socket):
        found = await desk.next(socket)
        await socket.send_str(audio(b"heard", found["context_id"]))
        await desk.ended(socket)

    def sent():
        return desk.frames and desk.texts()

    desk.acts = [act]
    context = await session.open()
    await context.send("Hello.")
    if how == "break":
        async for _ in context.audio():
            break
    elif how == "cancel":
        task = asyncio.create_task(context.audio().read())
        await until(lambda: context.audio().audio)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    elif how == "error":
        await failing_within(context, until, sent)
    else:
        await until(sent)
        await context.close()
    await until(desk.ends)
    assert desk.frames[0][-2:] == [
        {"clear": True, "context_id": "1.1"},
        {"end": True, "context_id": "1.1"},
    ]


async def test_a_session_that_is_left_ends_its_turns(client, desk):
    async def speak_a_little():
        nonlocal context
        context = await session.open()
        await context.send("Hello.")
        await until(lambda: desk.frames and desk.texts())

    context, session = None, client.stream_session(**HALF)
    await failing_within(session, speak_a_little)
    await until(desk.ends)
    assert desk.ends() == ["1.1"]
    with pytest.raises(RuntimeError, match="closed"):
        await session.open()


async def test_whoever_does_not_listen_stops_the_socket_and_not_the_memory(desk, session, monkeypatch):
    monkeypatch.setattr(_line, "MOST_WAITING_BYTES", 100_000)
    sent = 0

    async def act(desk, socket):
        nonlocal sent
        wire_id, _ = await desk.ended(socket)
        for _ in range(3000):
            await socket.send_str(audio(bytes(10_000), wire_id))
            sent += 1
        await socket.send_str(frame(final=True, context_id=wire_id))
        await desk.next(socket)

    desk.acts = [act]
    context = await session.open()
    # Long enough for all of the audio.
    await context.send("Hello. " * 30)
    await context.end()
    before = -1
    async with asyncio.timeout(60):
        # What the kernels and the libraries hold fills up first.
        while sent != before or not sent:
            before = sent
            await asyncio.sleep(0.3)
    assert sent < 3000
    assert context.waiting_bytes <= 110_000
    assert len(await context.audio().read()) == 30_000_000


async def test_a_message_that_is_too_large_ends_the_connection(desk, session, monkeypatch):
    monkeypatch.setattr(_line, "MAX_MESSAGE_BYTES", 10_000)

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await socket.send_str(audio(bytes(20_000), wire_id))
        await desk.next(socket)

    desk.acts = [act]
    with pytest.raises(ConnectionFailed):
        await session.speak("Hello.").read()


async def test_the_writers_mistakes_come_out_of_the_stream(session):
    with pytest.raises(TypeError, match="a piece of text is a str, not int"):
        await session.speak(["Hello", 3]).read()
    with pytest.raises(TypeError, match="not NoneType"):
        await session.speak(None).read()


async def test_an_async_writer_is_closed_when_nobody_listens(desk, session):
    closed = asyncio.Event()

    async def writer():
        try:
            while True:
                yield "Word. "
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    async def act(desk, socket):
        found = await desk.next(socket)
        await socket.send_str(audio(b"heard", found["context_id"]))
        await desk.ended(socket)

    desk.acts = [act]
    async for _ in session.speak(writer()):
        break
    await asyncio.wait_for(closed.wait(), 30)


async def test_the_cap_is_what_the_service_publishes(odd, client, desk):
    page = {"service": "speechframe", "pools": {"streaming": 3}}
    odd.script(odd.answer(200, page), path="/v1/limits")
    async with client.stream_session(**HALF) as session:
        contexts = [await session.open() for _ in range(5)]
        for number, context in enumerate(contexts):
            await context.send(f"{number}.")
        await until(lambda: desk.frames and len(desk.texts()) == 3)
        await asyncio.sleep(0.1)
        assert desk.texts() == ["0.", "1.", "2."]
        for context in contexts:
            await context.end()
        assert [await context.audio().read() for context in contexts] == [b"0.", b"1.", b"2.", b"3.", b"4."]
    assert len(odd.gets("/v1/limits")) == 1


def test_a_cap_is_at_least_one(settings):
    with pytest.raises(ValueError, match="max_contexts is 1 or more"):
        Client(settings, patience=Patience()).stream_session(voice="ivy", max_contexts=0)


# What a service may fill a turn with.


async def until_given_up(desk, socket, *messages, pause_s=0.01):
    """Send messages over and over, until the client closes."""
    while not socket.closed:
        for message in messages:
            await socket.send_str(message)
        await asyncio.sleep(pause_s)


async def test_a_turn_takes_no_more_audio_than_its_text_can_fill(settings, quick, desk):
    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await until_given_up(desk, socket, audio(bytes(10_000), wire_id), pause_s=0)

    desk.acts = [act, speak]
    client = Client(settings, patience=quick, bounds=Bounds(download_bytes=95_000))
    async with client, client.stream_session(**HALF) as session:
        stream = session.speak("Hello.")
        with pytest.raises(StreamBroken, match="too large for its text: more than 95,000 bytes"):
            await stream.read()
        assert len(stream.audio) == 90_000
        # What is endless is not listened to any longer.
        assert session.sockets == 0
        assert await session.speak("Next.").read() == b"Next."


@pytest.mark.parametrize(("more_bytes", "is_kept"), [(100_000, True), (20_000, False)])
async def test_a_turn_with_too_much_audio_fails_alone_unless_there_is_no_end_to_it(
    settings, quick, desk, monkeypatch, more_bytes, is_kept
):
    monkeypatch.setattr(turn, "_MOST_MORE_BYTES", more_bytes)

    async def act(desk, socket):
        ids = {}
        while len(ids) < 2:
            found = await desk.next(socket)
            if "text" in found:
                ids[found["text"]] = found["context_id"]
        await socket.send_str(audio(b"go", ids["Good."]))
        for _ in range(15):
            await socket.send_str(audio(bytes(10_000), ids["Bad."]))
        while set(desk.ends()) != set(ids.values()):
            if await desk.next(socket) is None:
                return
        await socket.send_str(frame(audio="AAAA", final=True, context_id=ids["Bad."]))
        await socket.send_str(audio(b"od", ids["Good."]))
        await socket.send_str(frame(final=True, context_id=ids["Good."]))
        await speak(desk, socket)

    desk.acts = [act, speak]
    client = Client(settings, patience=quick, bounds=Bounds(download_bytes=95_000))
    async with client, client.stream_session(**HALF, max_contexts=2) as session, asyncio.timeout(60):
        good, bad = await session.open(), await session.open()
        for context, text in ((good, "Good."), (bad, "Bad.")):
            await context.send(text)
        with pytest.raises(StreamBroken, match="too large for its text: more than 95,000 bytes"):
            await bad.audio().read()
        assert len(bad.audio().audio) == 90_000
        await good.end()
        if is_kept:
            assert await good.audio().read() == b"good"
        else:
            with pytest.raises(StreamBroken, match="the connection was lost"):
                await good.audio().read()
        # Both slots are free again.
        nexts = [session.speak(text).read() for text in ("One.", "Two.")]
        assert await asyncio.gather(*nexts) == [b"One.", b"Two."]
        assert desk.sockets == (1 if is_kept else 2)


async def test_all_waits_for_a_turn_last_no_longer_than_its_speech(desk, session, monkeypatch):
    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await until_given_up(desk, socket, audio(bytes(2), wire_id))

    desk.acts = [act]
    monkeypatch.setattr(Timeouts, "speech_s", lambda self, text: 0.3)
    with pytest.raises(StreamBroken, match="longer than any speech of its text"):
        await asyncio.wait_for(session.speak("Hello.").read(), 60)


async def test_what_is_no_audio_fills_neither_memory_nor_log_and_is_silence(
    desk, session, key, monkeypatch, caplog
):
    def others(wire_id, number):
        return (
            frame(warning="w" * 480 + key + "z" * 9000, warning_code="c" * 9000, context_id=wire_id),
            frame(progress="p" * 9000, context_id=wire_id),
            frame(audio="", context_id=wire_id),
            frame(audio="AAAA", context_id=f"of nobody {number}\n"),
        )

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        for number in range(30):
            for message in others(wire_id, number):
                await socket.send_str(message)
        await socket.send_str(audio(b"heard", wire_id))
        await until_given_up(desk, socket, *others(wire_id, 0))

    desk.acts = [act]
    monkeypatch.setattr(Timeouts, "attempt_s", lambda self, characters: 0.3)
    context = await session.open()
    await context.send("Hello.")
    await context.end()
    await until(lambda: context.received_bytes)
    # Of each of them so many are told, and the audio.
    events = [await context.event() for _ in range(41)]
    with pytest.raises(StreamBroken, match=r"nothing came for 0\.3 s"):
        await asyncio.wait_for(context.event(), 60)
    assert [type(event) for event in events].count(Warned) == 20
    assert [type(event) for event in events].count(Odd) == 20
    warnings = context.audio().summary.warnings
    assert len(warnings) == 20
    assert all(len(words) == 500 and words.startswith("www") for words in warnings)
    assert key[:12] not in repr(events) + caplog.text
    lines = [record.getMessage() for record in caplog.records if record.name == "speechframe"]
    assert len(lines) == 20
    assert lines[-1].endswith("further ones are not logged")
    assert all(line.isprintable() and len(line) < 300 for line in lines)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("fields", "words", "code"),
    [
        ({"error": "", "error_code": ""}, "the service gave no reason", None),
        ({"error": {"a": 1}, "error_code": ["x"]}, "the service gave no reason", None),
        ({"fatal": True}, "the service gave no reason", None),
        ({"error": "a\nb\x1b[31m\0", "error_code": "A\nB"}, "a b\ufffd[31m\ufffd", None),
        ({"error": "KEY", "error_code": "C" * 65}, "x" * 400, None),
        ({"error": "KEY", "error_code": "C" * 64}, "x" * 400, "C" * 64),
    ],
)
async def test_an_error_of_any_shape_is_told_in_some_words(desk, session, key, fields, words, code):
    cut = "x" * (500 - len(key) + 1) + key + "z" * 100_000
    said = {name: cut if value == "KEY" else value for name, value in fields.items()}
    long = "t" * (128 - len(key) + 1) + key + "z" * 100_000

    async def act(desk, socket):
        wire_id, _ = await desk.ended(socket)
        await socket.send_str(frame(**{"fatal": True, **said, "context_id": wire_id, "trace_id": long}))
        await desk.ended(socket)

    desk.acts = [act]
    with pytest.raises(ServerError) as caught:
        await session.speak("Hello.").read()
    error = caught.value
    assert words in error.message
    assert (len(error.message) <= 500, len(error.trace_id) <= 128, error.code) == (True, True, code)
    assert str(error).isprintable()
    assert key[:12] not in f"{error} {vars(error)!r}"


async def test_a_turn_that_lacks_a_piece_or_all_of_its_audio_has_failed(desk, session):
    async def act(desk, socket):
        for heard, message in (
            (b"heard", {"audio": "AAA@"}),
            (b"heard", {"audio": 5}),
            (b"", {"audio": "AAA"}),
            (b"", {"final": True}),
            (b"", {"final": True, "audio": ""}),
        ):
            wire_id, _ = await desk.ended(socket)
            if heard:
                await socket.send_str(audio(heard, wire_id))
            await socket.send_str(frame(**message, context_id=wire_id))
            # Too late: it was given up.
            await socket.send_str(audio(b"more", wire_id))
            await socket.send_str(frame(final=True, context_id=wire_id))
            if "audio" in message and not message.get("final"):
                await desk.ended(socket)
        await speak(desk, socket)

    desk.acts = [act]
    for heard, words in [
        (5, "no Base64"),
        (5, "no Base64"),
        (0, "no Base64"),
        (0, "no audio"),
        (0, "no audio"),
    ]:
        stream = session.speak("Hello.")
        with pytest.raises(BadAnswer, match=words) as caught:
            await stream.read()
        assert (caught.value.received_bytes, len(stream.audio), stream.is_complete) == (heard, heard, False)
    assert await session.speak("Next.").read() == b"Next."
    assert desk.texts() == ["Hello."] * 5 + ["Next."]
