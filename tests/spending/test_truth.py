"""The ledger of all runs equals the books of the service, to the thousandth of a credit."""

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import soundfile

import speechframe as spf
from forked import Program
from speechframe.settings import fingerprint_key
from speechframe.spending.ledger import open_ledgers
from speechframe.testing import FaultyService

KEYS = ("sk-first", "sk-second")
OPERATION = {"generate": "generate", "translate": "translate", "change_voice": "convert"}
"""What the books call what the ledger calls by its verb."""

RUNS = Program("""
import sys
import pandas as pd
import speechframe as spf
address, key, folder, clip, count = sys.argv[1:]
spf.configure(base_url=address, api_key=key)
words = [f"Line {number % (int(count) - 3)} of {key[3:]}." for number in range(int(count))]
table = pd.DataFrame({"text": words, "who": ["ann", "bob"] * (int(count) // 2)})
common = {"progress": False, "patience_s": 120, "max_attempts": 30}
tags = {"team": "ads", "who": spf.col("who")}
spf.generate(table, voice="en-US-nora", run_dir=f"{folder}/spoken", tags=tags, cache=f"{folder}/cache", **common)
spf.generate(table[:6], voice="en-US-nora", run_dir=f"{folder}/again", cache=f"{folder}/cache", **common)
spf.translate(table[:20], targets="pt-BR", run_dir=f"{folder}/translated", tags={"team": "tv, \\U0001f4fa"}, **common)
spf.change_voice([clip], voice="en-US-miles", run_dir=f"{folder}/changed", **common)
""")


@contextlib.contextmanager
def cutting(port, draw, mean_bytes):
    """Stand before a service and cut each connection off somewhere in its answers; yield the port."""

    async def pass_on(reader, writer, most):
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                writer.write(data[:most] if most is not None else data)
                await writer.drain()
                if most is not None and (most := most - len(data)) <= 0:
                    break
        writer.close()

    async def connected(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", port)
        most = round(draw.expovariate(1 / mean_bytes))
        back = asyncio.create_task(pass_on(there[0], writer, most))
        await asyncio.gather(pass_on(reader, there[1], None), back)

    async def serve():
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()
        await stopped.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    found, ready, stopped, loop = [], threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield found[0]
    loop.call_soon_threadsafe(stopped.set)
    thread.join(10)
    loop.close()


def books(data):
    """Return what the service has billed by key fingerprint, operation and day, in thousandths."""
    with contextlib.closing(sqlite3.connect(data / "service.sqlite3")) as file:
        (salt,) = file.execute("SELECT value FROM facts WHERE name LIKE '%salt%'").fetchone()
        names = {
            hashlib.blake2b(key.encode(), key=bytes(salt), digest_size=32).digest(): fingerprint_key(key)
            for key in KEYS
        }
        rows = file.execute("SELECT key_hash, operation, day, millis FROM billed").fetchall()
    return {(names[key], operation, day): millis for key, operation, day, millis in rows if millis}


def ledgered():
    """Return the same by the ledger."""
    names = ["time", "key_fingerprint", "operation", "credits"]
    frame = pa.Table.from_batches(open_ledgers().batches(names)).to_pandas()
    frame["day"] = frame["time"].dt.strftime("%Y-%m-%d")
    frame["millis"] = (1000 * frame["credits"]).round().astype(int)
    frame["operation"] = frame["operation"].map(OPERATION)
    sums = frame.groupby(["key_fingerprint", "operation", "day"])["millis"].sum()
    return {place: int(millis) for place, millis in sums.items() if millis}


def by_day(sums, took_s):
    """Return sums as they are, or without their days where midnight was on the way."""
    if time.time() % 86_400 > took_s:
        return sums
    found = {}
    for (key, operation, _), millis in sums.items():
        found[key, operation] = found.get((key, operation), 0) + millis
    return found


def soak(tmp_path, monkeypatch, count, seed, kill_at_credits, mean_bytes):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    began, draw, data = time.time(), random.Random(seed), tmp_path / "data"
    clip = tmp_path / "clip.wav"
    soundfile.write(clip, np.sin(np.arange(8000) / 5), 8000)
    keys = [f"{key}:1000000:4" for key in KEYS]
    with (
        spf.local_service(keys=keys, data=data, workers=1) as service,
        cutting(int(service.url.rpartition(":")[2]), draw, mean_bytes) as port,
    ):

        def start(key):
            words = [f"http://127.0.0.1:{port}", key, tmp_path / key, clip, str(count)]
            return subprocess.Popen([sys.executable, "-c", RUNS, *map(str, words)], stderr=subprocess.PIPE)

        runs = {key: start(key) for key in KEYS}
        while sum(books(data).values()) < 1000 * kill_at_credits:
            time.sleep(0.02)
        assert runs[KEYS[0]].poll() is None
        runs[KEYS[0]].send_signal(signal.SIGKILL)
        runs[KEYS[0]].communicate()
        runs[KEYS[0]] = start(KEYS[0])
        for run in runs.values():
            _, said = run.communicate(timeout=600)
            assert run.returncode == 0, said.decode()[-2000:]
    # A call under way at midnight (UTC) has the day of its start in the ledger, and that of its end in the books.
    assert by_day(ledgered(), time.time() - began) == by_day(books(data), time.time() - began)
    assert {operation for _, operation, _ in books(data)} == set(OPERATION.values())
    for group_by in ("key", "tag:who", "tag:team", ["operation", "status"]):
        found = spf.usage(group_by=group_by)
        assert round(1000 * found["credits"].sum()) == sum(books(data).values())
    assert (spf.usage(every=None)[["saved", "cached"]] > 0).all(axis=None)
    assert spf.usage(group_by="tag:team")["tag:team"].tolist() == ["(none)", "ads", "tv, 📺"]


def test_after_faults_kills_and_every_verb_the_ledger_equals_the_books(tmp_path, monkeypatch):
    soak(tmp_path, monkeypatch, count=24, seed=7, kill_at_credits=100, mean_bytes=1_000_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_same_over_thousands_of_rows(tmp_path, monkeypatch):
    seed = int(os.environ.get("SPEECHFRAME_SOAK_SEED") or time.time_ns())
    soak(tmp_path, monkeypatch, count=3000, seed=seed, kill_at_credits=20_000, mean_bytes=600_000)
    assert spf.usage(every=None)["retries"].item() > 0


def test_what_a_service_bills_at_another_price_is_reported_and_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    texts = [f"A line of some words, number {number}".ljust(40, ".") for number in range(20)]
    with FaultyService(billed_times=1.1, quota=100_000) as service:
        common = {"service": service.settings, "progress": False}
        spf.translate(
            texts, targets="pt-BR", source_locale="en-US", run_dir=tmp_path / "translated", **common
        )
        spf.generate(texts, voice="en-US-nora", sample_rate=8000, run_dir=tmp_path / "spoken", **common)
        billed = service.books().billed_characters
    found = spf.usage(group_by="operation", every=None).set_index("operation")
    price = sum(map(len, texts))
    assert (
        found.loc["translate", "computed"]
        == price
        < found.loc["translate", "reported"]
        == found.loc["translate", "credits"]
    )
    day = pd.Timestamp.now("UTC").normalize()
    bridge = spf.reconcile(billed, start=day, end=day + pd.Timedelta(days=2))
    assert "the service reported 1.1 times" in repr(bridge)
    assert "the balance fell by 1.1 times the computed price of each call" in repr(bridge)
    assert abs(bridge.lines.set_index("line")["credits"]["unexplained"]) < 10
