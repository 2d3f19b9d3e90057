"""Whatever a server answers ends in one clear outcome, in bounded time and memory, and goes to nobody else."""

import asyncio
import json
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as budget
from hypothesis import strategies as st
from pydantic import SecretStr

sys.path.insert(0, str(Path(__file__).parent))

import odd_answers
from odd_answers import (
    BALANCE,
    HASTY,
    KEY,
    REFUSED,
    SILENT,
    UNUSABLE,
    USED,
    audio_of,
    body,
    good,
    http,
    seconds_of,
)

from speechframe import errors
from speechframe.old_client import Bounds, Call, Client, Timeouts
from speechframe.old_client.limits import MIB
from speechframe.settings import Settings
from speechframe.spec.codes import Status
from speechframe.spec.speech import GenerateRequest
from speechframe.wire.bodies import decode_generate

TEXT = "Hello, whatever comes"
TIMEOUT_S = 60.0
SHORT_S = 0.5
"""For what is to run into its time limit."""


@pytest.fixture(scope="module")
def service():
    made = odd_answers.Service()
    made.up()
    odd_answers.install_files(made)
    yield made
    made.down()


@pytest.fixture
async def client(service):
    service.seen.clear()
    service.strange.clear()
    settings = Settings(api_key=SecretStr(KEY), base_url=service.url, trust_env=False)
    async with Client(settings, timeouts=Timeouts(download_s=TIMEOUT_S)) as made:
        yield made


def call_of(text):
    return Call.of(GenerateRequest(text=text, voice_id="nora", encode_as_base64=True, sample_rate=8000))


async def outcome(client, text=TEXT, timeout_s=TIMEOUT_S):
    """The answer or the error; anything else than these two fails the test, and so does a long wait."""
    async with asyncio.timeout(100):
        try:
            return await client.send_once(call_of(text), timeout_s=timeout_s)
        except errors.SpeechframeError as error:
            return error


async def check_next(client, service):
    """The next call on this client gets its own audio: nothing of the odd answer is left on a connection."""
    service.odd.clear()
    assert (await client.send_once(call_of("the next one"))).audio == audio_of("the next one")


def check_strangers(service):
    for data in service.strange:
        assert KEY.encode() not in data
        assert TEXT.encode() not in data


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.quiet) if kind.error == "TimedOut" else kind
        for kind in (*USED, *UNUSABLE, *SILENT, *REFUSED)
    ],
    ids=lambda kind: kind.name,
)
async def test_every_kind_of_answer_has_its_outcome(service, client, kind):
    service.odd[TEXT] = kind.step
    found = await outcome(client, timeout_s=SHORT_S if kind.error == "TimedOut" else TIMEOUT_S)
    if kind.error is None:
        assert getattr(found, "audio", found) == audio_of(TEXT)
    else:
        assert type(found).__name__ == kind.error, repr(found)
        assert kind.words in str(found)
        assert len(str(found)) < 1500
    if isinstance(found, errors.ConnectionFailed):
        assert found.sent
    assert sum(method == "POST" for method, *_ in service.seen) == 1
    if kind.name == HASTY:
        # It must have happened, or the next call cannot know of it.
        assert await asyncio.to_thread(service.latest.closed.wait, 60)
    await check_next(client, service)
    check_strangers(service)
    assert service.strange == []


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", UNUSABLE, ids=lambda kind: kind.name)
async def test_the_balance_is_known_wherever_it_can_be_read(service, client, kind):
    """Of a body that came, or came in part; not of one that is none or is packed."""
    without = {"status 204", "status 205", "nothing", "a page", "null", "a list", "nested", "UTF-16", "endless",
               "too long by its header", "a bomb", "a bomb of deflate"}  # fmt: skip
    service.odd[TEXT] = kind.step
    found = await outcome(client)
    assert found.remaining_characters == (None if kind.name in without else BALANCE)


async def test_every_status_is_an_error_with_its_number_or_an_answer(service, client):
    for status in range(200, 600):
        bare = status in {204, 304}
        service.odd[TEXT] = (
            b"HTTP/1.1 %d X\r\n\r\n" % status if bare else http(status, b'{"error_message": "x"}')
        )
        found = await outcome(client)
        if status < 300:
            assert isinstance(found, errors.BadAnswer), status
            continue
        assert isinstance(found, errors.ServiceError), status
        assert type(found) is errors.BY_STATUS.get(status, errors.ServiceError)
        assert found.status == status
        assert found.retryable is bool((known := Status.of(status)) and known.retryable)
    await check_next(client, service)


async def test_statuses_that_are_none_are_no_answer(service, client):
    for status in ("000", "099", "600", "999", "2000", "20", "abc", "-200"):
        service.odd[TEXT] = lambda c, t, status=status: (c.write(http(status, b"{}")), c.close())
        found = await outcome(client)
        assert isinstance(found, (errors.ConnectionFailed, errors.ServiceError)), status
    await check_next(client, service)


async def test_an_answer_before_the_question_was_heard_leaves_no_connection_behind(service, client):
    """The rest of the question would be read as the next one."""
    heads, over, ended = [], asyncio.Event(), []

    async def answer_early(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        # So small a window that a long question cannot have left as a whole.
        writer.write(http(503, b"{}"))
        ended.append(asyncio.current_task())
        await over.wait()
        writer.transport.abort()

    server = await asyncio.start_server(answer_early, "127.0.0.1", 0, limit=1 << 12)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(api_key=SecretStr(KEY), base_url=f"http://127.0.0.1:{port}", trust_env=False)
    long = Call("generate", call_of("x").request, b" " * (16 << 20))
    async with Client(settings) as other:
        for number in (1, 2):
            with pytest.raises(errors.Unavailable):
                await other.send_once(long)
            assert len(heads) == number
    over.set()
    await asyncio.gather(*ended)
    server.close()


async def test_neighbours_in_flight_keep_their_own_answers(service, client):
    kinds = [kind for kind in (*USED, *UNUSABLE, *REFUSED) if kind.name != HASTY]
    texts = [f"neighbour {n}" for n in range(len(kinds))]
    service.odd |= {f"odd {n}": kind.step for n, kind in enumerate(kinds)}
    odd = [outcome(client, f"odd {n}") for n in range(len(kinds))]
    mixed = [job for pair in zip(odd, [outcome(client, text) for text in texts], strict=True) for job in pair]
    found = await asyncio.gather(*mixed)
    assert [spoken for spoken in found[1::2] if isinstance(spoken, Exception)] == []
    assert [spoken.audio for spoken in found[1::2]] == [audio_of(text) for text in texts]
    await check_next(client, service)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["endless", "a bomb", "too long by its header", "endless behind an address",
                                  "words: more than the text has", "an error of 10 MB", "nested"])  # fmt: skip
async def test_memory_stays_within_what_the_text_can_fill(service, client, kind):
    (found,) = [k for k in [*USED, *UNUSABLE, *REFUSED] if k.name == kind]
    service.odd[TEXT] = found.step
    await outcome(client)
    bound = Bounds().answer_bytes_for(call_of(TEXT).request)
    assert bound < 24 * MIB
    # The server's own buffers are in this process, too: they are made before.
    tracemalloc.start()
    try:
        await outcome(client)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * bound


@pytest.mark.parametrize("after", ["the connection ends", "a second answer comes"])
async def test_what_the_loop_was_too_busy_to_see_is_seen_before_a_connection_is_used_again(
    service, client, after
):
    """Sent on a connection that has ended, a call is perhaps billed; the second answer would be taken for its own."""

    held_up, over = threading.Event(), threading.Event()

    async def step(connection, text):
        connection.write(good(text))
        await asyncio.to_thread(held_up.wait, 60)
        if after == "the connection ends":
            connection.close()
        connection.write(good("stray"))
        over.set()

    service.odd[TEXT] = step
    assert (await outcome(client)).audio == audio_of(TEXT)
    # The loop is held up on purpose while the other end goes on.
    held_up.set()
    assert (service.latest.closed if after == "the connection ends" else over).wait(60)
    assert (await client.send_once(call_of("the next one"))).audio == audio_of("the next one")


async def test_a_large_answer_is_taken_apart_aside_while_the_loop_goes_on(service, client, monkeypatch):
    threads = []

    def noted(*args, **options):
        threads.append(threading.current_thread())
        return decode_generate(*args, **options)

    monkeypatch.setattr("speechframe.old_client.chapters.decode_generate", noted)
    more = b', "more": "' + b"text" * 1_750_000 + b'"}'
    service.odd[TEXT] = lambda c, t: c.write(http(200, body(TEXT)[:-1] + more))
    for text in (TEXT, "a small one"):
        assert (await outcome(client, text, 60)).audio == audio_of(text)
    large, small = threads
    assert large is not threading.current_thread()
    assert small is threading.current_thread()


def test_a_longer_text_may_have_a_longer_answer():
    bounds = Bounds()
    sizes = [bounds.answer_bytes_for(call_of("a" * n).request) for n in (1, 100, 1000)]
    assert sizes == sorted(set(sizes))
    paused = bounds.answer_bytes_for(call_of("a" + "[pause 5s]" * 10).request)
    assert paused > bounds.answer_bytes_for(call_of("a" * 101).request)
    asked = GenerateRequest(text="a", voice_id="nora", audio_duration=600.0)
    assert bounds.download_bytes_for(asked) > 600 * 44100 * 2
    endless = GenerateRequest(text="a", voice_id="nora", audio_duration=1e300)
    assert bounds.answer_bytes_for(endless) == bounds.answer_bytes
    assert Bounds(answer_bytes=1000).answer_bytes_for(asked) == 1000
    # As slowly as a script with a syllable a character is spoken, in Base64.
    longest = GenerateRequest(text="語" * 5000, voice_id="nora", sample_rate=48000.0)
    assert bounds.answer_bytes_for(longest) > 5000 * 0.25 * 48000 * 4 * 4 / 3


# Answers nobody thought of.

_GOOD = good(TEXT, "X-Trace-Id: t", "X-Speech-Warning: w")


@st.composite
def mutations(draw):
    """A good answer with some of its bytes changed, cut out, doubled or moved."""
    data = bytearray(_GOOD)
    head = data.index(b"\r\n\r\n") + 200
    for _ in range(draw(st.integers(1, 4))):
        # Most of the body is Base64; what is read closely stands before and after it.
        low, high = draw(st.sampled_from([(0, head), (len(data) - 250, len(data)), (0, len(data))]))
        at = draw(st.integers(max(0, min(low, len(data))), max(0, min(high, len(data)))))
        size = draw(st.integers(0, 12))
        new = draw(st.binary(max_size=8) | st.sampled_from([b"\r\n", b"\r\n\r\n", b'"', b"{", b"null", b"1e999", b"\\ud800",
                   b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n", b"Content-Length: 3\r\n", b"\x00"]))  # fmt: skip
        data[at : at + size] = new
    return bytes(data)


@pytest.fixture(scope="module")
def loop_and_client(service):
    loop = asyncio.new_event_loop()
    settings = Settings(api_key=SecretStr(KEY), base_url=service.url, trust_env=False)
    made = Client(settings, timeouts=Timeouts(download_s=0.3))
    yield loop, made
    loop.run_until_complete(made.close())
    loop.close()


@budget(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=mutations())
def test_any_answer_is_an_outcome_and_the_next_call_is_untouched(service, loop_and_client, answer):
    loop, client = loop_and_client

    async def both():
        service.odd[TEXT] = lambda c, t: (c.write(answer), c.close())
        found = await outcome(client)
        if isinstance(found, errors.SpeechframeError):
            assert str(found)
        else:
            assert found.audio_seconds > 0
            json.dumps(found.words, ensure_ascii=False).encode()
        assert await asyncio.to_thread(service.latest.closed.wait, 60)
        assert (await client.send_once(call_of("next"))).audio_seconds == pytest.approx(seconds_of("next"))

    loop.run_until_complete(asyncio.wait_for(both(), 100))
