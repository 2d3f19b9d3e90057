"""A run at a remote address: the same verbs, and nothing lost when a process dies."""

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from accounts import billed, check_audio, price, statuses
from fsspec.implementations.memory import MemoryFileSystem

import speechframe as spf
from forked import Program

SERVER = Path(__file__).parents[1] / "promises" / "s3_server.py"
PROGRAM = Program("""
import json, sys
import speechframe as spf
order = json.loads(sys.stdin.readline())
service = spf.Settings(base_url=order["url"], api_key=order["key"], profile=order["profile"])
spf.generate(order["lines"], voice="en-US-nora", sample_rate=8000, run_dir=order["folder"], progress=False,
             max_concurrency=4, service=service)
""")


@pytest.fixture(scope="module")
def service(services):
    return services(idempotent=False, limits_page=False, latency=0.03)


def test_a_remote_run_is_made_read_changed_and_gone_on_with(service, speak, lines, address):
    texts = lines(12)
    run = speak(service, texts, run_dir=address)
    assert statuses(run) == ["done"] * 12
    opened = spf.open_run(address)
    check_audio(opened)
    assert sum(batch.num_rows for batch in opened.batches()) == 12
    more = [*texts[3:], *lines(1, "new")]
    assert spf.changes(address, more, service=service.settings).credits == price(lines(1, "new"))
    run = spf.resume(address, table=more, service=service.settings, progress=False)
    assert statuses(run) == ["done"] * 10
    assert billed(service, texts + more) == price(texts + more)


def test_a_killed_remote_run_goes_on_and_pays_nothing_twice(service, speak, lines, address):
    texts = lines(60)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, text=True, env=os.environ
    )
    before = service.books().answered
    order = {"url": service.url, "key": service.api_key.get_secret_value(), "profile": service.settings.profile,
             "lines": texts, "folder": address}  # fmt: skip
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    end = time.monotonic() + 90
    while service.books().answered < before + 20:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.kill()
    process.wait(60)
    process.stdin.close()
    run = speak(service, texts, run_dir=address)
    check_audio(run)
    found = statuses(run)
    assert set(found) <= {"done", "charged_unknown"}
    assert found.count("charged_unknown") <= 8
    assert billed(service, texts) <= price(texts)


@pytest.mark.parametrize("way", ["refused", "cut short"])
def test_what_did_not_arrive_whole_is_kept_here_and_put_again(
    service, speak, lines, tmp_path, monkeypatch, way
):
    put, tried = MemoryFileSystem.put_file, set()

    def put_badly(files, local, remote, **options):
        if "/parts/" in remote and way == "refused":
            raise PermissionError("not allowed")
        put(files, local, remote, **options)
        if "/parts/" in remote and remote not in tried:
            tried.add(remote)
            files.pipe_file(remote, files.cat_file(remote)[:100])

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(MemoryFileSystem, "put_file", put_badly)
    texts, address = lines(4), f"memory://runs/{uuid.uuid4().hex}"
    if way == "refused":
        with pytest.raises(spf.StoreError, match="not allowed"):
            speak(service, texts, run_dir=address)
        monkeypatch.setattr(MemoryFileSystem, "put_file", put)
    run = speak(service, texts, run_dir=address)
    assert statuses(run) == ["done"] * 4
    check_audio(spf.open_run(address))
    assert billed(service, texts) == price(texts)


def test_an_address_that_cannot_be_reached_is_named_before_anything_is_sent(
    service, speak, lines, monkeypatch
):
    def unreachable(files, path, **options):
        raise ConnectionRefusedError("nobody answers there")

    monkeypatch.setattr(MemoryFileSystem, "info", unreachable)
    texts, address = lines(1), f"memory://runs/{uuid.uuid4().hex}"
    with pytest.raises(spf.StoreError, match=f"{address}.*nobody answers there"):
        speak(service, texts, run_dir=address)
    assert billed(service, texts) == 0
