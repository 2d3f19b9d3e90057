"""The client without await."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest

from speechframe.client import (
    Client,
    Dubbing,
    Stream,
    StreamContext,
    StreamSession,
    SyncClient,
    SyncDubbing,
    SyncStream,
    SyncStreamContext,
    SyncStreamSession,
)
from speechframe.errors import RateLimited, SettingsError

_TWINS = {
    Dubbing: SyncDubbing,
    Stream: SyncStream,
    StreamSession: SyncStreamSession,
    StreamContext: SyncStreamContext,
}


INNER = {
    "ask", "url", "make_headers", "redactor_of", "exchange", "send_with_retries", "redactor", "timeouts", "bounds", "patience",
    "open", "call_at_end", "send_raw", "create_job_from_request", "read", "read_list", "fetch", "next_audio", "add_event",
}  # fmt: skip
"""What other modules of the room call, and no user."""


@pytest.mark.parametrize(("kind", "twin"), [(Client, SyncClient), *_TWINS.items()])
def test_every_method_has_its_twin(kind, twin):
    for name, ours in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in INNER:
            theirs = getattr(twin, name)
            assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters, name
            assert not inspect.iscoroutinefunction(theirs)


def test_it_speaks_from_several_threads(odd, settings):
    with SyncClient(settings) as client, ThreadPoolExecutor(4) as pool:
        spoken = list(pool.map(lambda n: client.generate(f"Hello {n}", voice="nora"), range(12)))
    assert [one.audio for one in spoken] == [odd.audio] * 12
    assert len(odd.posts()) == 12


def test_it_lists_and_tells(odd, settings):
    odd.script(odd.answer(200, [{"voiceId": "a"}]), path="/v1/speech/voices")
    odd.script(odd.answer(200, {"token": "t"}), path="/v1/auth/token")
    with SyncClient(settings) as client:
        assert [voice.voice_id for voice in client.voices()] == ["a"]
        assert client.token().token == "t"
        assert client.limits() is None
        assert client.regions == ("global",)
        assert client.settings == settings


def test_errors_come_through(odd, settings, call, quick):
    odd.script(odd.answer(429))
    with SyncClient(settings, patience=quick) as client:
        with pytest.raises(RateLimited):
            client.send_once(call)
        with pytest.raises(RateLimited) as caught:
            client.call(call)
    assert caught.value.attempts == 5


async def test_it_works_inside_a_running_loop(odd, settings):
    # As in a notebook cell: the caller's loop is running and cannot be awaited on.
    assert asyncio.get_running_loop().is_running()
    with SyncClient(settings) as client:
        assert client.generate("Hello", voice="nora").audio == odd.audio


@pytest.mark.parametrize("kind", [Client, SyncClient])
def test_without_address_and_key_it_says_what_to_do(kind, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("API_KEY", "BASE_URL", "REGIONS", "PROFILE"):
        monkeypatch.delenv(f"SPEECHFRAME_{name}", raising=False)
    with pytest.raises(SettingsError, match=r"SPEECHFRAME_BASE_URL and SPEECHFRAME_API_KEY.*local_service"):
        kind()
