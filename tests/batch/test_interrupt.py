"""Stopping a run: Ctrl-C in a real process, cancellation in an async program, `stop()` of a live run."""

import asyncio
import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest
from faulty import RATE_HZ, check_audio, check_books, statuses

import speechframe as spf
from speechframe import aio
from speechframe._loop import background_loop
from speechframe.local import local_service
from speechframe.old_client import SyncClient
from speechframe.old_store import RunFolder, RunWriter
from speechframe.old_store.lock import is_held
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i}." for i in range(24)]


@pytest.fixture
def spawn(lab, tmp_path):
    """Start a client as a process of its own, as a person does in a terminal."""
    clients = []

    def start(settings, texts=LINES, **options):
        clients.append(lab.start(texts, settings, tmp_path / "run", **options))
        return clients[-1]

    yield start
    for client in clients:
        client.signal(signal.SIGKILL)
        client.end()


def test_the_first_ctrl_c_lets_calls_in_flight_finish_and_returns_the_partial_run(faulty, spawn, speak):
    faulty.delay_s, faulty.held = 0.3, LINES[2:]
    process = spawn(faulty.settings)
    faulty.until(lambda s: len(s.seen) >= 6 and s.in_flight >= 4)
    process.signal(signal.SIGINT)
    process.until_caught(signal.SIGINT)
    time.sleep(0.5)
    faulty.held = []
    out, err, code = process.end()
    assert (code, err) == (0, "")
    sent = len(faulty.seen)
    assert 6 <= sent <= 12
    # All that was sent is kept: nothing is in doubt.
    assert json.loads(out) == {
        "status": "stopped",
        "because": "interrupted",
        "pending": 24 - sent,
        "done": sent,
    }
    faulty.delay_s = 0
    run = speak(faulty, LINES)
    assert (run.estimate.finished, run.status) == (sent, "finished")
    assert set(faulty.billed.values()) == {1}
    check_audio(run)
    check_books(run, faulty)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("idempotent", [True, None])
def test_the_second_ctrl_c_cancels_and_what_was_in_flight_is_known(make_faulty, spawn, speak, idempotent):
    server = make_faulty(idempotent=idempotent)
    server.forever = dict.fromkeys(LINES[8:12], "hang billed")
    process = spawn(server.settings)
    server.until(lambda s: len(s.seen) == 12 and s.in_flight == 4)
    process.signal(signal.SIGINT)
    process.until_caught(signal.SIGINT)
    time.sleep(0.5)
    assert process.lives
    process.signal(signal.SIGINT)
    out, err, code = process.end()
    assert (code, err) == (0, "")
    counts = {"pending": 12, "done": 8, "charged_unknown": 4}
    assert json.loads(out) == {"status": "stopped", "because": "interrupted", **counts}
    server.forever = {}
    run = speak(server, LINES)
    ended = statuses(run)
    if idempotent:
        assert set(ended.values()) == {"done"}
        assert set(server.billed.values()) == {1}
    else:
        assert [t for t, s in ended.items() if s == "charged_unknown"] == LINES[8:12]
        assert all(server.sends(text) == 1 for text in LINES)
    check_audio(run)
    check_books(run, server)


def test_a_third_ctrl_c_waits_for_nothing_and_loses_nothing(faulty, spawn, speak):
    faulty.forever = dict.fromkeys(LINES[8:12], "hang billed")
    process = spawn(faulty.settings)
    faulty.until(lambda s: len(s.seen) == 12 and s.in_flight == 4)
    for _ in range(3):
        process.signal(signal.SIGINT)
        process.until_caught(signal.SIGINT)
        time.sleep(0.02)
    process.end()
    faulty.forever = {}
    run = speak(faulty, LINES)
    assert set(statuses(run).values()) == {"done"}
    assert set(faulty.billed.values()) == {1}
    check_books(run, faulty)


def test_ctrl_c_while_the_table_is_checked_sends_nothing(faulty, spawn, speak):
    process = spawn(faulty.settings, [f"row {i}" for i in range(60_000)])
    faulty.until(lambda s: s.listed)
    time.sleep(0.05)
    process.signal(signal.SIGINT)
    _, err, code = process.end()
    assert (code, faulty.seen) == (-signal.SIGINT, [])
    assert "KeyboardInterrupt" in err
    assert speak(faulty, ["one"]).status == "finished"


@pytest.mark.slow
def test_ctrl_c_and_resume_on_the_embedded_service_bill_each_character_once(spawn, tmp_path):
    texts = [f"This is line {i}." for i in range(60)]
    with local_service(keys=["k:1000000:4"], workers=1, data=tmp_path / "service") as service:
        settings = replace(service.settings, profile="faulty")
        with SyncClient(settings) as client:
            process = spawn(settings, texts, signalled_at=(10, signal.SIGINT))
            out, err, code = process.end()
            assert (code, err) == (0, "")
            assert json.loads(out)["status"] == "stopped"
            run = spf.generate(
                texts, voice="nora", sample_rate=RATE_HZ, service=settings,
                run_dir=tmp_path / "run", progress=False,
            )  # fmt: skip
            assert 0 < run.estimate.finished < 60
            assert set(statuses(run).values()) == {"done"}
            cost = sum(map(billed_characters, texts))
            assert client.limits()["remaining_characters"] == 1_000_000 - cost
            assert run.ledger["credits"].sum() == cost


# -- async programs ---------------------------------------------------------------------


@pytest.fixture
def options(tmp_path):
    def of(server, **more):
        fixed = {"voice": "nora", "sample_rate": RATE_HZ, "progress": False, "max_concurrency": 4}
        return {**fixed, "service": server.settings, "run_dir": tmp_path / "run", **more}

    return of


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", ["ok", "hang billed"])
def test_sigterm_drains_within_its_limit_and_then_ends_the_process(faulty, spawn, speak, step):
    faulty.delay_s = 0.3
    faulty.forever = {LINES[2]: step}
    # Long enough for what does not hang, however slow this machine is.
    texts = [*LINES, *(f"And this is line {i}." for i in range(72))]
    process = spawn(faulty.settings, texts, term_drain_s=60.0 if step == "ok" else 3.0)
    faulty.until(lambda s: len(s.seen) >= 6 and s.in_flight >= 4)
    process.signal(signal.SIGTERM)
    out, err, code = process.end()
    assert (out, err, code) == ("", "", 143)
    sent = len(faulty.seen)
    assert 6 <= sent < len(texts)
    run = spf.open_run(speak.folder)
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    states = list(statuses(run).values())
    unknown = int(step != "ok")
    assert (states.count("done"), states.count("charged_unknown")) == (sent - unknown, unknown)
    assert set(states) <= {"done", "pending", "charged_unknown"}


async def test_cancellation_drains_and_is_raised_again(faulty, options, speak):
    faulty.delay_s = 0.2
    faulty.held = LINES[2:]
    task = asyncio.create_task(aio.generate(LINES, **options(faulty)))
    await asyncio.to_thread(faulty.until, lambda s: len(s.seen) >= 6)
    task.cancel()
    await asyncio.sleep(0.1)
    faulty.held = []
    with pytest.raises(asyncio.CancelledError):
        await task
    sent = len(faulty.seen)
    assert sent <= 12
    assert faulty.in_flight == 0
    run = spf.open_run(options(faulty)["run_dir"])
    assert list(statuses(run).values()).count("done") == sent == faulty.billed.total()
    check_books(run, faulty)


async def test_a_timeout_around_a_verb_is_a_timeout(faulty, options):
    faulty.delay_s = 0.1

    async def soon(limit):
        await asyncio.to_thread(faulty.until, lambda s: len(s.seen) >= 6)
        limit.reschedule(asyncio.get_running_loop().time())

    async def timed():
        async with asyncio.timeout(60) as limit, asyncio.TaskGroup() as beside:
            beside.create_task(soon(limit))
            await aio.generate([f"row {i}" for i in range(200)], **options(faulty))

    with pytest.raises(TimeoutError):
        await timed()
    run = spf.open_run(options(faulty)["run_dir"])
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    assert len(faulty.seen) == faulty.billed.total() == len(run.ledger)


@pytest.mark.quiet
async def test_cancelled_twice_it_does_not_wait_for_the_calls(faulty, options):
    faulty.forever = {"*": "hang"}
    task = asyncio.create_task(aio.generate(LINES, **options(faulty)))
    await asyncio.to_thread(faulty.until, lambda s: s.in_flight == 4)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.1)
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 3
    run = spf.open_run(options(faulty)["run_dir"])
    assert sorted(statuses(run).values()) == ["charged_unknown"] * 4 + ["pending"] * 20
    assert run.status == "stopped"


async def test_cancelled_while_it_plans_it_sends_nothing_and_frees_the_folder(faulty, options):
    table = [f"row {i}" for i in range(60_000)]
    task = asyncio.create_task(aio.generate(table, **options(faulty)))
    await asyncio.to_thread(faulty.until, lambda s: s.listed)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert faulty.seen == []
    # Whatever a thread of it was still doing, the folder can be used again.
    end = time.monotonic() + 60
    while True:
        try:
            run = await aio.generate(["one"], **options(faulty))
            break
        except (spf.errors.RunLocked, spf.errors.StoreError):
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
    assert statuses(run) == {"one": "done"}


async def test_cancelled_while_it_recovers_it_sends_nothing_and_leaves_the_folder_free(
    faulty, options, monkeypatch
):
    begun, go_on, real = threading.Event(), threading.Event(), RunFolder.recover

    def slow(folder):
        begun.set()
        assert go_on.wait(60)
        return real(folder)

    monkeypatch.setattr(RunFolder, "recover", slow)
    task = asyncio.create_task(aio.generate(LINES, **options(faulty)))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    threading.Timer(0.3, go_on.set).start()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert faulty.seen == []
    run = spf.open_run(options(faulty)["run_dir"])
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    with run._folder.lock():
        assert set(statuses(run).values()) == {"pending"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "name"), [(RunFolder, "recover"), (RunWriter, "close")])
async def test_the_lock_is_held_until_the_thread_that_writes_has_ended(
    faulty, options, monkeypatch, kind, name
):
    begun, go_on, real = threading.Event(), threading.Event(), getattr(kind, name)

    def slow(it):
        begun.set()
        assert go_on.wait(60)
        return real(it)

    monkeypatch.setattr(kind, name, slow)
    caller = asyncio.create_task(aio.generate(LINES, **options(faulty)))
    assert await asyncio.to_thread(begun.wait, 60)
    (run,) = (task for task in asyncio.all_tasks() if task.get_name().startswith("speechframe-run-"))
    folder = options(faulty)["run_dir"]
    # As a loop does that is being shut down, and somebody who is impatient.
    for _ in range(2):
        run.cancel()
        await asyncio.sleep(0.05)
    held = is_held(folder), run.done()
    go_on.set()
    await asyncio.wait({run, caller})
    assert held == (True, False)
    assert run.cancelled()
    assert not is_held(folder)


async def test_a_program_that_ends_with_a_live_run_loses_nothing(faulty, options):
    faulty.delay_s = 0.1

    async def program():
        await aio.generate(LINES, wait=False, **options(faulty))
        await asyncio.to_thread(faulty.until, lambda s: len(s.seen) >= 6)

    await asyncio.to_thread(lambda: asyncio.run(program()))
    faulty.delay_s = 0
    run = await aio.generate(LINES, **options(faulty))
    assert set(statuses(run).values()) == {"done"}
    assert set(faulty.billed.values()) == {1}
    check_books(run, faulty)


# -- wait=False ---------------------------------------------------------------------------


def test_a_live_run_from_sync_code(faulty, speak):
    faulty.delay_s, faulty.held = 0.05, LINES[8:]
    run = speak(faulty, LINES, wait=False)
    assert run.status == "running"
    assert run.progress.total == 24
    with pytest.raises(TimeoutError):
        run.wait(0.01)
    faulty.until(lambda s: len(s.seen) >= 8 and run.progress.ended)
    assert 0 < run.progress.ended < 24
    assert run.progress.rate > 0
    assert run.progress.eta_s > 0
    faulty.held = []
    assert run.wait(60) is run
    assert (run.status, run.stopped_because) == ("finished", None)
    assert run.progress.to_dict()["done"] == 24
    assert run.progress.to_dict()["credits"] == faulty.characters
    assert run.progress.balance == 10**6 - faulty.characters
    assert run.progress.eta_s == 0
    check_audio(run)


def test_stop_lets_calls_in_flight_finish(faulty, speak):
    faulty.delay_s, faulty.held = 0.1, LINES[4:]
    run = speak(faulty, LINES, wait=False)
    faulty.until(lambda s: len(s.seen) >= 8)
    run.stop()
    faulty.held = []
    run.wait(60)
    assert (run.status, run.stopped_because) == ("stopped", "stopped")
    assert run.progress.done == len(faulty.seen) == list(statuses(run).values()).count("done")
    # Stopping what has ended does nothing.
    run.stop()
    run.stop(drain=False)
    assert set(statuses(speak(faulty, LINES)).values()) == {"done"}


def test_stop_without_drain_cancels_calls_in_flight(faulty, speak):
    faulty.forever = {"*": "hang"}
    run = speak(faulty, LINES, wait=False)
    faulty.until(lambda s: s.in_flight == 4)
    run.stop(drain=False)
    run.wait(60)
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    assert sorted(statuses(run).values()) == ["charged_unknown"] * 4 + ["pending"] * 20
    assert run.progress.unknown == 4


def test_a_stop_of_the_last_rows_is_no_finish(faulty, speak):
    faulty.forever = {"*": "hang"}
    run = speak(faulty, LINES[:3], wait=False)
    faulty.until(lambda s: s.in_flight == 3)
    run.stop(drain=False)
    run.wait(60)
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")


async def test_a_live_run_in_an_async_program(faulty, options):
    faulty.delay_s = 0.05
    run = await aio.generate(LINES, wait=False, **options(faulty))
    assert run.status == "running"
    with pytest.raises(RuntimeError, match="await run"):
        run.wait()
    async with asyncio.timeout(60):
        while not run.progress.ended:  # noqa: ASYNC110 - nothing tells of it but the figure
            await asyncio.sleep(0.01)
    assert await run is run
    assert run.status == "finished"
    assert await run is run
    check_audio(run)


async def test_a_sync_verb_within_a_running_loop_as_in_a_notebook(faulty, speak):
    # The cell blocks its own loop; the run lives in another thread's.
    run = speak(faulty, LINES)
    assert run.status == "finished"
    live = speak(faulty, [*LINES, "one more"], wait=False)
    assert await live is live
    assert faulty.sends("one more") == 1


def test_a_live_run_is_awaited_and_stopped_from_other_loops_and_threads(faulty, speak):
    faulty.delay_s, faulty.held = 0.1, LINES[4:]
    run = speak(faulty, LINES, wait=False)
    ended = []

    def elsewhere():
        async def wait():
            ended.append(await run)

        asyncio.run(wait())

    threads = [threading.Thread(target=elsewhere) for _ in range(3)]
    for thread in threads:
        thread.start()
    run.stop()
    faulty.held = []
    for thread in threads:
        thread.join(60)
    assert ended == [run] * 3
    assert run.status == "stopped"


def test_a_sync_verb_in_the_packages_own_loop_is_refused_and_not_hung(faulty, speak):
    async def inside():
        return speak(faulty, LINES)

    with pytest.raises(RuntimeError, match="await its async twin"):
        asyncio.run_coroutine_threadsafe(inside(), background_loop()).result(60)


def test_errors_of_a_live_run_reach_whoever_waits(faulty, speak, tmp_path):
    faulty.held = LINES
    first = speak(faulty, LINES, wait=False)
    with pytest.raises(spf.errors.RunLocked, match="this very process"):
        speak(faulty, LINES, wait=False)
    faulty.held = []
    assert first.wait(60).status == "finished"


@pytest.mark.slow
def test_many_live_runs_share_the_loop(faulty, tmp_path):
    live = [
        spf.generate(
            [f"run {i} {line}" for line in LINES], voice="nora", sample_rate=RATE_HZ, progress=False,
            service=faulty.settings, run_dir=tmp_path / str(i), wait=False,
        )
        for i in range(6)
    ]  # fmt: skip
    for run in live:
        check_audio(run.wait(60))
        assert run.status == "finished"
    assert faulty.billed.total() == 6 * 24


def test_a_forked_child_makes_its_own_loop(faulty, speak, tmp_path):
    speak(faulty, LINES)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run = speak(faulty, ["in the child"], run_dir=tmp_path / "child")
            os.write(writer, run.status.encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    assert os.read(reader, 100) == b"finished"
    os.close(reader)
