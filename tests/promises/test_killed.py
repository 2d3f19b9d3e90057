"""What a killed run has spent counts: for the key that sent each call, and in every budget that is counted anew."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from accounts import billed, price, times_billed

import speechframe as spf
from forked import Program
from speechframe.settings import fingerprint_key

PROGRAM = Program("""
import json, sys
import speechframe as spf
order = json.loads(sys.stdin.readline())
spf.configure(**order["settings"])
spf.generate(order["lines"], voice="en-US-nora", sample_rate=8000, progress=False, **order["options"])
""")
BUDGET = '[[budget]]\nname = "{}"\nmax_credits = {}\nperiod = "{}"\n'


@pytest.fixture(autouse=True)
def ledger(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    return tmp_path / "ledger"


@pytest.fixture
def kill():
    """Begin a run in a process of its own and kill the process after some answers."""
    started = []

    def make(service, lines, folder, *, after, key=None, budgets=None, **options):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, text=True)
        started.append(process)
        key = (key or service.api_key).get_secret_value()
        settings = {"base_url": service.url, "api_key": key, "profile": service.settings.profile}
        settings |= {"budgets": str(budgets)} if budgets else {}
        options = {"run_dir": str(folder), "max_concurrency": 4, **options}
        process.stdin.write(json.dumps({"lines": lines, "settings": settings, "options": options}) + "\n")
        process.stdin.flush()
        before = service.books()
        end = time.monotonic() + 60
        # A call that is noted and has not arrived would be counted as spent, and billed to nobody.
        least = min(2, options["max_concurrency"])
        while (now := service.books()).answered - before.answered < after or now.in_flight < least:
            assert time.monotonic() < end, "it did not get so far"
            assert process.poll() is None, "the run ended before the kill"
            time.sleep(0.01)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        while service.books().in_flight:
            time.sleep(0.01)

    yield make
    for process in started:
        process.kill()
        process.wait(60)
        process.stdin.close()


def test_a_row_in_flight_at_a_kill_is_booked_to_the_key_that_sent_it(services, lines, kill, tmp_path):
    texts = lines(6)
    service = services(
        keys=["the key of ann", "the key of bob"], idempotent=False, limits_page=False, latency=0.3
    )
    ann = service.settings
    bob = replace(ann, api_key="the key of bob")
    kill(service, texts, tmp_path / "run", after=1, tags={"team": "ads"}, max_concurrency=2)
    run = spf.resume(tmp_path / "run", service=bob, progress=False, tags={"team": "tv"})
    lost = run.ledger[run.ledger["status"] == "charged_unknown"]
    assert len(lost) >= 1
    assert set(lost["key_fingerprint"]) == {fingerprint_key(ann.api_key)}
    assert [dict(tags) for tags in lost["tags"]] == [{"team": "ads"}] * len(lost)
    of_key = spf.usage(every=None, group_by="key").set_index("key")["credits"]
    of_tag = spf.usage(every=None, group_by="tag:team").set_index("tag:team")["credits"]
    made_by_bob = run.ledger[run.ledger["key_fingerprint"] == fingerprint_key(bob.api_key)]
    assert of_key[fingerprint_key(bob.api_key)] == of_tag["tv"] == made_by_bob["credits"].sum() > 0
    assert of_key.sum() == run.ledger["credits"].sum() == price(texts)


def test_what_a_killed_run_has_spent_outlives_its_folder(services, lines, kill, tmp_path):
    texts = lines(8)
    service = services(latency=0.1, idempotent=False, limits_page=False)
    kill(service, texts, tmp_path / "run", after=2, max_concurrency=2)
    command = [sys.executable, "-m", "speechframe", "runs", "rm", str(tmp_path / "run"), "--yes"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert not (tmp_path / "run").exists()
    found = spf.usage(every=None)
    assert found["credits"].item() == billed(service, texts)
    assert "more is to come" not in found.covers


def test_a_repeat_is_free_for_the_key_that_sent_the_call_alone(services, lines, kill, tmp_path):
    texts = lines(8)
    service = services(keys=["the key of ann", "the key of bob"], latency=0.3)
    bob = replace(service.settings, api_key="the key of bob").api_key
    kill(service, texts, tmp_path / "run", after=1, max_concurrency=2)
    kill(service, texts, tmp_path / "run", after=1, max_concurrency=2, key=bob)
    run = spf.resume(tmp_path / "run", service=service.settings, progress=False)
    # Calls of ann were repeated for nothing. Those that bob sent would have been billed to ann, too.
    lost = run.failed
    times = {text: times_billed(service, text) for text in texts}
    assert max(times.values()) == 1
    # The kill may come between the note of a call and its arrival at the service.
    assert {text for text in texts if not times[text]} <= set(lost["text"])
    of_bob = run.ledger[run.ledger["key_fingerprint"] == fingerprint_key(bob)]
    assert len(lost) >= 1
    assert set(lost["request_key"]) <= set(of_bob["request_key"])


@pytest.mark.parametrize(("period", "how"), [("total", "moved"), ("total", "renamed"), ("month", "moved")])
def test_a_budget_that_is_counted_anew_knows_of_runs_that_were_killed(
    services, speak, lines, kill, tmp_path, ledger, period, how
):
    service = services(latency=0.1, idempotent=False, limits_page=False)
    first, second, third = lines(40, "first"), lines(40, "second"), lines(60, "third")
    limit, file = price(third), tmp_path / "budgets.toml"
    file.write_text(BUDGET.format("all", limit, period))
    for texts in (first, second):
        kill(service, texts, tmp_path / texts[0], after=12, budgets=file)
    before = billed(service, first + second)
    assert price(first[:24]) <= before < limit
    if how == "moved":
        shutil.move(ledger / "budgets.sqlite3", tmp_path / "away")
    else:
        file.write_text(BUDGET.format("everything", limit, period))
    service.set(latency=0)
    spf.configure(budgets=file)
    run = speak(service, third)
    assert run.stopped_because == "budget"
    assert limit - 8 * max(map(len, third)) < billed(service, first + second + third) <= limit
    assert run.stopped_by.spent_credits <= limit
