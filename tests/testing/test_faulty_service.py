"""The service as a whole: a real process, the real client, and books that are exact."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import psutil
import pytest

import speechframe as spf
from speechframe import errors
from speechframe.audio import codec
from speechframe.client import Client
from speechframe.spec.chosen import IDEMPOTENCY_SECONDS, TAKE_HEADER
from speechframe.spec.speech import Format
from speechframe.testing import Billed, FaultyService, Fixed, Lognormal, tag_in, tag_of

HELLO = {"text": "Hello", "voiceId": "nora", "encodeAsBase64": True}


def until(holds, limit_s=60.0):
    end = time.monotonic() + limit_s
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.02)
    assert held


@pytest.fixture(scope="module")
def plain():
    """A service without knobs, for what changes nothing in it."""
    with FaultyService() as service:
        yield service


# -- what it says ----------------------------------------------------------------


def test_answers_are_those_of_the_document(faulty, tools):
    service = faulty()
    status, headers, body = tools.post(service, HELLO)
    assert (status, headers["content-type"]) == (200, "application/json")
    fields = json.loads(body)
    assert {
        "audioFile",
        "audioLengthInSeconds",
        "remainingCharacterCount",
        "wordDurations",
        "encodedAudio",
        "consumedCharacterCount",
    } == set(fields)
    assert fields["consumedCharacterCount"] == 5
    assert fields["audioFile"] == ""
    spoken = tools.outcome(
        service,
        tools.call(
            "Good morning, [pause 0.5s]Erika!", format=Format.FLAC, sample_rate=8000, channel_type="STEREO"
        ),
    )
    assert (spoken.format, spoken.sample_rate_hz, spoken.channels) == (Format.FLAC, 8000, 2)
    assert spoken.warnings == ()
    assert [word for word, _, _ in spoken.words] == ["Good", "morning,", "Erika!"]
    assert spoken.words[-1][2] == pytest.approx(spoken.audio_seconds * 1000, abs=1)
    assert spoken.billed_characters == service.books().billed_characters - 5 == 20


@pytest.mark.parametrize("format", [Format.WAV, Format.FLAC])
def test_a_url_answer_is_the_same_audio_as_base64(plain, tools, format):
    by_url, by_value = tools.outcomes(
        plain, *(tools.call("Hello", format=format, encode_as_base64=asked) for asked in (None, True))
    )
    assert by_url.audio == by_value.audio
    assert tag_in(by_url.audio) == tag_of("Hello")
    for path, status in (("/audio/x", 404), ("/audio/expired/1", 410)):
        assert tools.post(plain, method="GET", path=path)[0] == status


def test_a_format_it_does_not_have_comes_as_wav_with_a_warning(plain, tools):
    spoken = tools.outcome(plain, tools.call("Hello", format=Format.OGG))
    assert spoken.format is Format.WAV
    assert any("has no OGG" in words for words in spoken.warnings)


def test_another_take_is_other_audio_with_the_same_tag_unless_takes_are_off(faulty, tools):
    service = faulty()
    calls = [tools.call("Hello", take=take) for take in (0, 1, 1)]
    first, second, again = (spoken.audio for spoken in tools.outcomes(service, *calls))
    assert np.abs(codec.decode(first).samples - codec.decode(second).samples).max() > 0.1
    assert second == again
    assert tag_in(first) == tag_in(second) == tag_of("Hello")
    service.set(takes=False)
    assert tools.outcome(service, calls[1]).audio == first


@pytest.mark.parametrize("model", ["gen2", "falcon-2"])
async def test_each_model_has_voices_in_several_locales(plain, model):
    async with Client(plain.settings) as client:
        voices = await client.voices(model)
    assert len(voices) >= 2
    assert len({locale for voice in voices for locale in voice.supported_locales}) >= 3
    assert all(voice.locale in voice.supported_locales for voice in voices)


def test_the_page_of_limits_tells_what_it_is_told_to_tell_or_is_not_there(faulty):
    def page(**knobs):
        async def read():
            async with Client(faulty(**knobs).settings) as client:
                return await client.limits()

        return asyncio.run(read())

    told = page(cap=7, publish_cap=True, quota=99)
    assert told == {
        "service": "speechframe", "identity": "faulty-0", "region": "global", "pools": {"other": 7, "streaming": 7}, "idempotency": True,
        "idempotency_seconds": IDEMPOTENCY_SECONDS, "take_header": TAKE_HEADER, "remaining_characters": 99,
    }  # fmt: skip
    secret = page(cap=7, idempotent=False, takes=False, seed=3)
    assert (secret["pools"], secret["idempotency"], secret["take_header"], secret["identity"]) == (
        {},
        False,
        None,
        "faulty-3",
    )
    assert page(limits_page=False) is None


@pytest.mark.parametrize(
    ("body", "says"),
    [(b"{", "not JSON"), (b"[]", "not a JSON object"), ({}, "text"), (HELLO | {"text": "  "}, "text"), ({"text": "a"}, "voiceId"), (HELLO | {"format": "AIFF"}, "format"), (HELLO | {"sampleRate": 1}, "sampleRate"), (HELLO | {"channelType": 5}, "channelType")],
)  # fmt: skip
def test_a_bad_request_is_400_and_free(plain, tools, body, says):
    before = plain.books().billed
    status, _, answer = tools.post(plain, body)
    assert status == 400
    assert says in json.loads(answer)["error_message"]
    assert plain.books().billed == before


def test_a_wrong_key_is_403_everywhere_and_each_key_has_its_own_account(faulty, tools):
    service = faulty(keys=["one", "two"], quota=5)
    for method, path in (
        ("POST", "/v1/speech/generate"),
        ("GET", "/v1/speech/voices"),
        ("GET", "/v1/limits"),
        ("GET", "/books"),
        ("POST", "/control"),
    ):
        status, _, body = tools.post(service, HELLO, key="three", method=method, path=path)
        assert (status, json.loads(body)["error_code"]) == (403, "INVALID_KEY")
    assert [tools.post(service, HELLO, key=key)[0] for key in ("one", "two", "one")] == [200, 200, 402]
    assert sorted(service.books().remaining.values()) == [0, 0]
    assert tools.post(service, method="PUT", path="/books")[0] == 405
    assert tools.post(service, method="GET", path="/")[0] == 404


def test_requests_sent_in_one_go_are_answered_in_order(plain):
    async def talk(service):
        host, port = service.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        one = b"GET /v1/limits HTTP/1.1\r\nAPI-Key:  faulty-key \r\n\r\n"
        two = b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n"
        for byte in (one + two)[:30]:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write((one + two)[30:])
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    answer = asyncio.run(talk(plain))
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"404"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"nonsense\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"), (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"), (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"), (b"x" * 70_000, b"431")],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_the_connection_closed(plain, sent, status):
    async def talk(service):
        host, port = service.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    assert asyncio.run(talk(plain)).split()[1] == status


# -- cap, rate, quota, regions -----------------------------------------------------


def test_one_above_the_cap_is_refused_until_it_is_changed_and_the_books_tell_the_most_in_flight(
    faulty, tools
):
    service = faulty(cap=3, latency=Fixed(2.0))
    ended = tools.outcomes(service, *(f"Text {number}" for number in range(8)))
    refused = [e for e in ended if isinstance(e, errors.RateLimited)]
    books = service.books()
    assert len(refused) == books.refused == books.statuses[429] == 5
    assert refused[0].code == "CONCURRENCY_LIMIT"
    assert books.most_in_flight == books.most_in_flight_of["global"] == 3
    assert books.answered == 3
    assert 0.9 < books.utilisation["global"] <= 1
    assert books.last_at - books.started_at >= 1.9
    service.set(cap=6, latency=0.5)
    assert sum(not isinstance(e, Exception) for e in tools.outcomes(service, *"abcdefgh")) == 6


@pytest.mark.slow
def test_the_cap_changes_by_plan(faulty, tools):
    service = faulty(cap=1, cap_plan=[(4.0, 4)], latency=1.0)

    def accepted():
        return sum(not isinstance(e, Exception) for e in tools.outcomes(service, *"abcdef"))

    assert accepted() == 1
    time.sleep(3.1)
    assert accepted() == 4


def test_above_the_rate_it_refuses_until_time_has_passed(faulty, tools):
    service = faulty(rate=0.5, burst=3)
    ended = tools.outcomes(service, *"abcdef")
    assert sum(isinstance(e, errors.RateLimited) for e in ended) in {1, 2, 3}
    until(lambda: not isinstance(tools.outcome(service, "g"), errors.RateLimited))
    assert service.books().refused >= 1


def test_the_quota_holds_to_the_character_under_concurrency(faulty, tools):
    service = faulty(quota=95, latency=0.05)
    ended = tools.outcomes(service, *(f"Ten chars{number}" for number in "0123456789abcdef"), "12345")
    short = [e for e in ended if isinstance(e, Exception)]
    assert {type(e) for e in short} == {errors.PaymentRequired}
    books = service.books()
    assert books.billed_characters == 95
    assert list(books.remaining.values()) == [0]
    assert min(e.remaining_characters for e in ended if not isinstance(e, Exception)) == 0
    assert isinstance(tools.outcome(service, "a"), errors.PaymentRequired)
    service.set(quota=96)
    assert tools.outcome(service, "a").remaining_characters == 0


def test_regions_have_their_own_port_and_cap_and_one_can_be_down(faulty, tools):
    regions = ("us-east", "eu-central", "global")
    service = faulty(regions=regions, cap=1, latency=2.5, down_regions={"eu-central"})
    assert service.settings.addresses() == service.region_urls
    assert len(set(service.region_urls.values())) == 3

    async def everywhere():
        async with Client(service.settings) as client:
            sent = (
                client.send_once(tools.call(f"{region} {n}"), region=region)
                for region in regions
                for n in range(2)
            )
            return await asyncio.gather(*sent, return_exceptions=True)

    kinds = [type(e).__name__ for e in asyncio.run(everywhere())]
    assert kinds[2:4] == ["Unavailable"] * 2
    assert sorted(kinds[:2]) == sorted(kinds[4:]) == ["RateLimited", "Spoken"]
    books = service.books()
    assert books.most_in_flight == 2
    assert books.most_in_flight_of == {"us-east": 1, "eu-central": 0, "global": 1}
    assert set(books.utilisation) == {"us-east", "global"}
    service.set(down_regions=[], latency=0)
    assert tools.outcome(service, "back", region="eu-central").region == "eu-central"


@pytest.mark.quiet
def test_latencies_are_drawn_by_seed_and_take_their_time(faulty, tools):
    service = faulty(latency=Lognormal(mean_s=0.1, sigma=1.0))

    def latencies_ms():
        return [spoken.latency_ms for spoken in tools.outcomes(service, *"abcdefghij", at_once=False)]

    first = latencies_ms()
    service.restart()
    again = latencies_ms()
    assert np.corrcoef(first, again)[0, 1] > 0.5
    assert np.mean(first) > 25
    assert np.std(first) > 5


# -- Retry-After ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "least_s", "most_s"), [("seconds", 2, 2), ("float", 1.5, 1.5), ("date", 1.5, 3.5)]
)
def test_retry_after_comes_in_its_form_and_the_client_understands_it(faulty, tools, form, least_s, most_s):
    service = faulty(retry_after=form, retry_after_s=1.5, scripts={"a": ["429"], "b": ["503"]})
    assert all(least_s <= e.retry_after_s <= most_s for e in tools.outcomes(service, "a", "b"))


def test_without_retry_after_or_with_one_of_its_own(faulty, tools):
    service = faulty(retry_after=None, scripts={"a": ["429"], "b": ["503:junk"], "c": ["429:0.25"]})
    assert [e.retry_after_s for e in tools.outcomes(service, "a", "b", "c")] == [None, None, 0.25]
    service.set(retry_after="mixed", scripts={"*": ["503", "..."]})
    seen = {tools.post(service, HELLO)[1].get("retry-after", "none")[:3] for _ in range(40)}
    assert {"1", "1.0", "non"} < seen
    assert len(seen) in {4, 5}, "and dates, which may begin with another day at midnight"


@pytest.mark.slow
def test_a_text_that_comes_before_its_wait_is_over_is_an_early_retry_and_later_it_is_none(faulty, tools):
    service = faulty(
        retry_after="float", retry_after_s=3.0, scripts={"a": ["429"], "b": ["503"], "c": ["429:3.0"]}
    )
    tools.outcomes(service, "a", "b", "c")
    assert service.books().early_retries == 0
    tools.outcomes(service, "a", "c", "a", "d")
    assert service.books().early_retries == 3, "each time that it comes too early"
    time.sleep(3.1)
    tools.outcomes(service, "a", "b", "c")
    assert service.books().early_retries == 3


def test_what_one_region_tells_to_wait_counts_for_that_region_alone(faulty, tools):
    service = faulty(regions=["us-east", "uk"], scripts={"a": ["503"]}, retry_after="float", retry_after_s=30)
    for region in ("us-east", "uk"):
        tools.outcome(service, "a", region=region)
    assert service.books().early_retries == 0
    tools.outcome(service, "a", region="us-east")
    assert service.books().early_retries == 1


# -- bills, kills ----------------------------------------------------------------------


def test_a_repeat_with_its_key_is_answered_and_costs_nothing(faulty, tools, tmp_path):
    service = faulty(data=tmp_path)
    marked = tools.call("Hello", idempotency_key="run-1")
    first, again = tools.outcomes(service, marked, marked, at_once=False)
    assert first.audio == again.audio
    assert first.remaining_characters == again.remaining_characters
    assert isinstance(
        tools.outcome(service, tools.call("Hello", idempotency_key="run-1", take=1)), errors.BadRequest
    )
    assert isinstance(tools.outcome(service, tools.call("Hullo", idempotency_key="run-1")), errors.BadRequest)
    by_url = tools.outcome(service, tools.call("Hello", idempotency_key="run-1", encode_as_base64=None))
    assert by_url.audio == first.audio, "how the audio comes is no part of what was asked"
    books = service.books()
    assert (books.billed_characters, books.repeats, books.duplicates) == (5, 2, {})
    assert len((tmp_path / "billed.journal").read_bytes().splitlines()) == 1
    service.set(idempotent=False)
    tools.outcome(service, marked)
    assert service.books().duplicates == {tag_of("Hello"): 2}


def test_books_are_exact_under_concurrency(faulty, tools):
    service = faulty(
        latency=Lognormal(0.02, 1.0),
        faults={"500": 0.1, "reset_after": 0.1, "reset_before": 0.1, "truncated": 0.1},
    )
    texts = [f"Number {number % 75} of many." for number in range(200)]
    ended = tools.outcomes(service, *texts)
    books = service.books()
    assert books.requests == 200
    assert books.answered == books.statuses[200] == sum(not isinstance(e, Exception) for e in ended)
    assert (
        books.statuses.get(500, 0)
        == books.faults["500"]
        == sum(isinstance(e, errors.ServerError) for e in ended)
    )
    paid = books.answered + books.faults["reset_after"] + books.faults["truncated"]
    assert sum(billed.times for billed in books.billed.values()) == paid
    assert books.billed_characters == sum(billed.characters for billed in books.billed.values())
    good = [(text, e) for text, e in zip(texts, ended, strict=True) if not isinstance(e, Exception)]
    assert all(tag_in(spoken.audio) == tag_of(text) for text, spoken in good)
    assert all(
        books.billed[tag_of(text)].characters == len(text) * books.billed[tag_of(text)].times
        for text, _ in good
    )
    assert books.in_flight == 0
    assert 10 < books.most_in_flight <= 256


def test_a_kill_in_the_middle_loses_no_bill_and_no_key(faulty, tools, tmp_path):
    # One hangs: however late the kill comes, it comes in the middle.
    scripts = {"Text number 119.": ["hang"]}
    service = faulty(data=tmp_path, quota=10**6, latency=Lognormal(0.2, 1.0), scripts=scripts)
    url, pid = service.url, service.pid
    calls = [tools.call(f"Text number {number:03}.", idempotency_key=f"k{number}") for number in range(120)]

    async def killed_in_the_middle():
        async with Client(service.settings) as client:
            pending = [asyncio.ensure_future(client.send_once(call)) for call in calls]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.03)
            service.kill()
            return await asyncio.gather(*pending, return_exceptions=True)

    ended = asyncio.run(killed_in_the_middle())
    answered = {
        call.request.text for call, e in zip(calls, ended, strict=True) if not isinstance(e, Exception)
    }
    assert 0 < len(answered) < len(calls)
    assert not service.is_running
    assert not psutil.pid_exists(pid)
    with pytest.raises(errors.ConnectionFailed):
        service.books()
    service.restart()
    assert service.url == url
    assert service.pid != pid
    books = service.books()
    assert set(books.billed) >= {tag_of(text) for text in answered}
    assert books.requests == 0
    before = books.billed_characters
    assert list(books.remaining.values()) == [10**6 - before]
    service.set(scripts={})
    good = tools.outcomes(service, *calls)
    assert not any(isinstance(e, Exception) for e in good)
    books = service.books()
    assert books.duplicates == {}
    assert books.billed == {tag_of(call.request.text): Billed(1, 16) for call in calls}
    assert books.repeats * 16 == before
    assert len((tmp_path / "billed.journal").read_bytes().splitlines()) == len(calls)


def test_a_client_that_goes_away_is_billed_all_the_same(faulty, tools):
    service = faulty(latency=2.5, cap=1)
    assert isinstance(tools.outcome(service, "Hello", timeout_s=0.8), errors.TimedOut)
    books = service.books()
    assert (books.in_flight, books.billed_characters) == (1, 0)
    assert isinstance(tools.outcome(service, "another"), errors.RateLimited)
    until(lambda: service.books().in_flight == 0)
    assert service.books().billed_characters == 5


# -- its life ---------------------------------------------------------------------------


def test_it_ends_with_its_block_and_its_folder_with_it(tools):
    service = FaultyService()
    with pytest.raises(errors.SettingsError, match="context manager"):
        _ = service.settings
    with service:
        assert service.is_running
        pid, folder = service.pid, service._temporary.name
        assert service.settings.profile == "faulty-0"
        with pytest.raises(errors.SettingsError, match="running already"):
            service.start()
    assert not psutil.pid_exists(pid)
    assert not os.path.exists(folder)  # noqa: PTH110
    service.stop()


async def test_it_is_an_async_context_manager_too():
    async with FaultyService() as service, Client(service.settings) as client:
        assert (await client.generate("Hello", voice="nora", encode_as_base64=True)).remaining_characters
    assert not service.is_running


@pytest.mark.fresh
def test_its_key_is_hidden_and_stays_the_same(faulty):
    service = faulty(keys=["very-secret"])
    assert "very-secret" not in repr(service) + repr(service.settings) + repr(service.__dict__)
    assert "very-secret" not in " ".join(psutil.Process(service.pid).cmdline())
    assert service.settings.api_key.get_secret_value() == "very-secret"
    assert FaultyService().api_key == FaultyService(seed=5).api_key


def test_it_dies_with_its_parent(tmp_path):
    script = textwrap.dedent(
        """
        import time
        from speechframe.testing import FaultyService
        print(FaultyService().start().pid, flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        os.kill(parent.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(
    ("knobs", "says"),
    [({"faults": {"flood": 0.1}}, "not a step"), ({"faults": {"500": 2}}, "share"), ({"cap": 0}, "cap"), ({"latency": -1}, "latency"), ({"retry_after": "weeks"}, "retry_after"), ({"regions": ["moon"]}, "moon"), ({"scripts": {"a": ["200"]}}, "not a step"), ({"quota": -1}, "quota"), ({"keys": []}, "key"),
     ({"colour": 1}, "no 'colour'; it has .*cap_plan"), ({"cap_plan": 5}, r"cap_plan: .*allowed: .*\(seconds, cap\)"),
     ({"cap_plan": [5]}, r"cap_plan: .*allowed: .*\(seconds, cap\)"), ({"faults": 5}, "faults: .*allowed: .*'500'"),
     ({"scripts": {"a": "ok"}}, "scripts: .*allowed: .*'503'"), ({"latency": "x"}, "latency: .*allowed: .*Fixed"),
     ({"keys": ["a\nb"]}, "header"), ({"keys": ["ä"]}, "header"), ({"keys": [""]}, "empty"), ({"keys": "abc"}, "list of keys"),
     ({"keys": 5}, "list of keys"), ({"keys": [5]}, "list of keys"), ({"data": 5}, "a folder"),
     ({"regions": "us-east"}, "regions: .*list of names"), ({"regions": 5}, "regions: .*list of names"),
     ({"regions": ["us-east", "uk", "us-east"]}, "us-east twice"), ({"down_regions": 5}, "down_regions: .*list of names"),
     ({"regions": ["us-east"], "down_regions": ["uk"]}, "uk is not a region of this service; it has us-east"),
     ({"down_regions": ["uk"]}, "uk is not a region of this service; it has global")],
)  # fmt: skip
def test_a_knob_that_cannot_be_set_so_is_refused_at_once(knobs, says):
    with pytest.raises(errors.SettingsError, match=says):
        FaultyService(**knobs)


def test_knobs_are_checked_while_it_runs_too(faulty, tools):
    service = faulty(cap=2)
    for knobs, says in (
        ({"cap": "many"}, "cap"),
        ({"colour": 1}, "no 'colour'"),
        ({"seed": 1}, "cannot change"),
        ({"keys": ["a"]}, "cannot change"),
    ):
        with pytest.raises(errors.SettingsError, match=says):
            service.set(**knobs)
    for body in (b"{", b"[]", b'{"cap": 0}', b'{"keys": ["a"]}'):
        assert tools.post(service, body, path="/control")[0] == 400
    service.set(latency=Fixed(0.0), faults={"500": 1.0})
    service.restart()
    assert isinstance(tools.outcome(service, "a"), errors.ServerError), "knobs survive a restart"


def test_what_keeps_it_from_starting_is_said(tmp_path):
    (tmp_path / "file").touch()
    service = FaultyService(data=tmp_path / "file")
    with pytest.raises(errors.SettingsError, match="cannot start"):
        service.start()
    assert not service.is_running


# -- with the whole toolkit ----------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_over_many_faults_gets_every_row_its_own_audio_and_a_ledger_that_agrees(faulty, tmp_path):
    shares = dict.fromkeys(("500", "503", "408", "429", "reset_before", "broken_json", "truncated"), 0.04)
    service = faulty(
        faults=shares, cap=4, latency=Fixed(0.005), retry_after="float", retry_after_s=0.05, audio_bytes=3000
    )
    spf.configure(**{name: getattr(service.settings, name) for name in ("api_key", "base_url", "profile")})
    texts = [f"Sentence number {number}." for number in range(80)]
    run = spf.generate(
        texts, voice="en-US-nora", run_dir=tmp_path / "run", max_concurrency=6, truth_checks=False
    )
    frame = run.to_pandas(audio=True)
    assert set(frame["status"]) == {"done"}
    assert [tag_in(audio["bytes"]) for audio in frame["audio"]] == list(map(tag_of, texts))
    books = service.books()
    assert books.duplicates == {}, "idempotency keys"
    assert run.ledger["credits"].sum() == books.billed_characters == sum(map(len, texts))
    assert len(run.ledger) == books.requests
    assert sum(books.faults.values()) > 5
