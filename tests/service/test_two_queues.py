"""Calls of a fast engine do not wait behind a slow one, and who waits learns that the call is worked on."""

import asyncio
import itertools
import json
import os

import pytest
from socket_lab import at_work

import speechframe as spf
from speechframe.client import Client, PreparedCall, Timeouts
from speechframe.errors import TimedOut
from speechframe.spec import chosen
from speechframe.spec.speech import GenerateRequest

TARDY = """
from dataclasses import replace
from moody_speech import Moody
from speechframe.spec.speech import VoiceKind


class Tardy(Moody):
    name = "tardy"

    def voices(self):
        return [replace(voice, voice_id="en-US-tardy", display_name="Tardy", kind=VoiceKind.NEURAL)
                for voice in super().voices()]
"""
SLOW = {"voiceId": "en-US-tardy"}


@pytest.fixture(scope="module")
def service(start_with, plugins, tmp_path_factory):
    """Give a service with a fast and a slow engine, which reports each call every tenth of a second."""
    folder = tmp_path_factory.mktemp("tardy")
    info = folder / "tardy_speech-1.0.dist-info"
    info.mkdir()
    (folder / "tardy_speech.py").write_text(TARDY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tardy-speech\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[speechframe.speakers]\ntardy = tardy_speech:Tardy\n")
    path = os.pathsep.join([str(folder), str(plugins)])
    with start_with(path, keys=["main"], workers=2, options=["--progress-s", "0.1"]) as running:
        yield running


async def test_a_fast_call_passes_slow_ones_that_hold_every_worker(service, http_to, hold):
    http = http_to(service, "main")
    slow = [asyncio.ensure_future(http.generate(hold.text, **SLOW)) for _ in range(4)]
    await at_work(http, 2, waiting=2)
    assert (await http.generate("hello")).status == 200
    assert not any(call.done() for call in slow)
    hold.let_go()
    assert [answer.status for answer in await asyncio.gather(*slow)] == [200] * 4


def test_a_run_sends_as_many_calls_as_each_engine_takes_and_fast_rows_pass_slow_ones(service, tmp_path, hold):
    # Every other row is slow. Two slow rows are under way, and none of the others may hold up a fast row.
    lines = [f"line {number}" if number % 2 else f"{hold.text} {number}" for number in range(40)]
    voices = ["tardy", "moody"] * 20
    # The engine's audio does not fit its text.
    options = {"service": service.settings, "progress": False, "truth_checks": False}
    slow_alone = spf.generate(lines, voice="tardy", dry_run=True, run_dir=tmp_path / "slow", **options)
    assert slow_alone.estimate.concurrency == 2
    assert slow_alone.estimate.seconds > 0
    both = spf.generate(lines, voice=voices, dry_run=True, run_dir=tmp_path / "both", **options)
    assert both.estimate.concurrency == chosen.DEFAULT_CONCURRENCY
    run = spf.generate(lines, voice=voices, run_dir=tmp_path / "run", wait=False, **options)
    ended = list(itertools.islice(run.outcomes(), 20))
    assert {int(outcome.row_id) % 2 for outcome in ended} == {1}
    hold.let_go()
    rows = run.wait().to_pandas()
    assert set(rows.status) == {"done"}, rows.error_message.tolist()
    assert set(rows.attempts) == {1}


async def test_a_call_that_is_worked_on_outlives_every_time_limit_but_the_callers_own(service, hold, http_to):
    hasty = Timeouts(base_s=1.0, per_character_s=0.0)
    call = PreparedCall.from_request(GenerateRequest(text=hold.text, voice_id="en-US-tardy"))
    async with Client(service.settings, timeouts=hasty) as client:
        waiting = [asyncio.ensure_future(client.generate(hold.text, voice="tardy")) for _ in range(3)]
        await asyncio.sleep(1.6)
        assert not any(call.done() for call in waiting)
        with pytest.raises(TimedOut):
            await client.send_once(call, timeout_s=0.5)
        hold.let_go()
        assert all(spoken.audio for spoken in await asyncio.gather(*waiting))


async def test_interim_answers_give_the_state_and_go_to_who_asks_alone(service, hold, tools):
    silent = asyncio.ensure_future(exchange(service, hold.text))
    asking = asyncio.ensure_future(exchange(service, hold.text, chosen.PROGRESS_HEADER))
    await tools.until(hold.begun)
    await asyncio.sleep(0.7)
    hold.let_go()
    plain, told = await asyncio.gather(silent, asking)
    assert [status for status, _ in plain] == [200]
    *interim, (last, _) = told
    assert last == 200
    assert len(interim) >= 2
    assert {status for status, _ in interim} == {102}
    assert interim[-1][1][chosen.CALL_STATE_HEADER.lower()] == "working"
    assert float(interim[-1][1][chosen.CALL_CPU_HEADER.lower()]) >= 0


async def exchange(service, text, *headers):
    """Return the status and headers of every answer to one request, interim ones included."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"text": text, "encodeAsBase64": True, **SLOW}).encode()
    lines = ["POST /v1/speech/generate HTTP/1.1", "Host: x", "api-key: main", f"Content-Length: {len(body)}"]
    lines += [f"{name}: 102" for name in headers]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    found = []
    while not found or found[-1][0] == 102:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        found.append((int(head[0].split()[1]), fields))
    writer.close()
    return found
