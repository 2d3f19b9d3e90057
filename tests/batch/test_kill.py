"""SIGKILL at random moments, of the client, of the embedded service, of both: nothing lost, nothing billed twice."""

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass, replace

import pytest
from faulty import RATE_HZ, check_audio, check_books, statuses

import speechframe as spf
from speechframe.local import local_service
from speechframe.old_client import SyncClient
from speechframe.spec.billing import billed_characters

QUOTA = 1_000_000
ROWS = 40
LINES = [f"Round and round goes line {i}, and nobody stops it." for i in range(ROWS)]
TABLE = [*LINES, *LINES[:7]]
COST = sum(map(billed_characters, LINES))
IMPATIENT = {"patience_s": 0.5, "max_attempts": 3}
"""A client whose service was killed gives up soon."""


@pytest.fixture(scope="module")
def reference(service, tmp_path_factory):
    """What each line sounds like, from a run that nobody disturbed."""
    run = spf.generate(
        LINES, voice="nora", sample_rate=RATE_HZ, service=service, progress=False,
        run_dir=tmp_path_factory.mktemp("reference") / "run",
    )  # fmt: skip
    frame = run.to_pandas(audio=True)
    assert set(frame["status"]) == {"done"}
    return {row["text"]: row["audio"]["bytes"] for row in frame.to_dict("records")}


class Mortal:
    """An embedded service over a folder that outlives it."""

    def __init__(self, folder, keys):
        self.folder, self.keys = folder, [f"{key}:{QUOTA}:4" for key in keys]
        self.start()

    def start(self):
        self.process = local_service(keys=self.keys, data=self.folder, workers=1).start()

    def settings(self, key):
        at = [line.partition(":")[0] for line in self.keys].index(key)
        return replace(self.process.settings, api_key=self.process.keys[at], profile="faulty")

    def kill(self):
        """Kill it without a word; its own workers end by themselves."""
        os.kill(self.process.pid, signal.SIGKILL)

    def revive(self):
        self.process.stop()
        self.start()

    def balance(self, key):
        with SyncClient(self.settings(key)) as client:
            return client.limits()["remaining_characters"]


@dataclass
class Round:
    """One run whose processes die a few times before it ends."""

    lab: object
    mortal: Mortal
    key: str
    folder: object
    draw: random.Random

    def play(self, victims, row_bytes):
        for i, victim in enumerate(victims):
            client = self.lab.start(TABLE, self.mortal.settings(self.key), self.folder, **IMPATIENT)
            if i:
                time.sleep(self.draw.random() ** 2 * 1.5)
            else:
                self._until_logged(client, self.draw.randrange(ROWS * 3 // 4) * row_bytes)
            if victim in {"service", "both"}:
                self.mortal.kill()
            if victim in {"client", "both"}:
                client.signal(signal.SIGKILL)
            _, err, code = client.end()
            if victim in {"service", "both"}:
                self.mortal.revive()
            assert code in ({0, 1} if victim == "service" else {0, -signal.SIGKILL}), err

    def _until_logged(self, client, wanted):
        """Wait until that many bytes are in the log: the client is in the middle of it then."""
        while client.lives:
            # A part of the log may be turned into a Parquet file and vanish at any moment.
            with contextlib.suppress(FileNotFoundError):
                if sum(path.stat().st_size for path in self.folder.glob("log/*/*.log")) > wanted:
                    return
            time.sleep(0.002)

    def finish(self, reference):
        run = spf.generate(
            TABLE, voice="nora", sample_rate=RATE_HZ, progress=False, run_dir=self.folder,
            service=self.mortal.settings(self.key),
        )  # fmt: skip
        frame = run.to_pandas(audio=True)
        assert run.status == "finished"
        assert frame["text"].tolist() == TABLE
        assert set(frame["status"]) == {"done"}
        for row in frame.to_dict("records"):
            assert row["audio"]["bytes"] == reference[row["text"]], row["text"]
        assert self.mortal.balance(self.key) == QUOTA - COST
        ledger = run.ledger
        assert ledger["credits"].sum() == COST
        assert ledger["run_id"].nunique() == 1
        assert (ledger.loc[ledger["status"] == "done"].groupby("request_key").size() == 1).all()
        assert ledger.loc[ledger["status"] == "done", "request_key"].nunique() == ROWS
        assert run._folder.verify() == []
        assert run.dataset.count_rows() == ROWS
        assert not list((run.path / "log").iterdir())
        # And once more: there is nothing left to do.
        again = spf.generate(
            TABLE, voice="nora", sample_rate=RATE_HZ, progress=False, run_dir=self.folder,
            service=self.mortal.settings(self.key),
        )  # fmt: skip
        assert (again.estimate.calls, len(again.ledger)) == (0, len(ledger))
        return run


def _rounds(tmp_path, lab, reference, plan, seed):
    draw = random.Random(seed)
    keys = [f"key-{i:03d}" for i in range(len(plan))]
    mortal = Mortal(tmp_path / "service", keys)
    doubtful = 0
    try:
        for i, (key, victims) in enumerate(zip(keys, plan, strict=True)):
            one = Round(lab, mortal, key, tmp_path / f"run-{i}", draw)
            one.play(victims, sum(map(len, reference.values())) // ROWS)
            try:
                run = one.finish(reference)
            except AssertionError as error:
                error.add_note(f"round {i} of seed {seed}, killed: {victims}")
                raise
            doubtful += (run.ledger["status"] == "charged_unknown").sum()
    finally:
        mortal.process.stop()
    return doubtful


@pytest.mark.slow
def test_killed_at_random_nothing_is_lost_and_nothing_is_billed_twice(tmp_path, lab, reference):
    plan = [["client"] * 2, ["both", "client"]]
    doubtful = _rounds(tmp_path, lab, reference, plan, time.time_ns())
    # Otherwise nobody was ever caught in the middle of a call.
    assert doubtful > 0


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_soak_killed_at_random_many_times(tmp_path, lab, reference):
    rounds = int(os.environ.get("SPEECHFRAME_SOAK_ROUNDS", "40"))
    seed = time.time_ns()
    draw = random.Random(seed)
    kinds = ["client", "client", "service", "both"]
    plan = [draw.choices(kinds, k=draw.randint(1, 5)) for _ in range(rounds)]
    assert _rounds(tmp_path, lab, reference, plan, seed) > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("at", [1, 5, 12, 24])
def test_a_client_killed_with_calls_in_flight_knows_which(make_faulty, lab, speak, tmp_path, at):
    texts = [f"This is line {i}." for i in range(24)]
    server = make_faulty(idempotent=None)
    server.forever = dict.fromkeys(texts[at - 1 :], "hang billed")
    client = lab.start(texts, server.settings, tmp_path / "run")
    flying = min(4, 24 - at + 1)
    server.until(lambda s: s.in_flight == flying and len(s.seen) == at - 1 + flying)
    client.signal(signal.SIGKILL)
    client.end()
    server.forever = {}
    run = speak(server, texts)
    # Without Idempotency-Key what was in flight is not sent again; everything else is there once.
    ended = statuses(run)
    in_doubt = [text for text, status in ended.items() if status == "charged_unknown"]
    assert set(ended.values()) <= {"done", "charged_unknown"}
    assert in_doubt[-flying:] == texts[at - 1 : at - 1 + flying]
    # Of the last rows some may have been answered without the client having seen it.
    assert len(in_doubt) == 4 if flying == 4 else flying <= len(in_doubt) <= 4
    assert all(server.sends(text) == 1 for text in texts)
    check_audio(run)
    check_books(run, server)
    run = speak(server, texts, on_unknown="retry")
    assert set(statuses(run).values()) == {"done"}
    assert server.billed.total() == 24 + len(in_doubt)
    check_books(run, server)


@pytest.mark.slow
def test_killed_again_and_again_with_the_same_calls_in_flight_they_are_in_the_books_once(
    faulty, lab, speak, tmp_path
):
    texts = [f"This is line {i}." for i in range(4)]
    for times in (1, 2, 3):
        faulty.forever = {"*": "hang billed"}
        client = lab.start(texts, faulty.settings, tmp_path / "run")
        faulty.until(lambda s, sends=4 * times: len(s.seen) == sends and s.billed.total() == 4)
        client.signal(signal.SIGKILL)
        client.end()
    faulty.forever = {}
    run = speak(faulty, texts, max_credits=sum(map(billed_characters, texts)))
    assert set(statuses(run).values()) == {"done"}
    ledger = check_books(run, faulty)
    assert ledger["status"].value_counts().to_dict() == {"charged_unknown": 12, "done": 4}


@pytest.mark.quiet
def test_a_second_process_gets_run_locked_at_once(make_faulty, lab, speak, tmp_path):
    texts = [f"This is line {i}." for i in range(8)]
    server = make_faulty(held=texts)
    client = lab.start(texts, server.settings, tmp_path / "run")
    server.until(lambda s: s.in_flight)
    for call in (speak, _resume(tmp_path)):
        began = time.monotonic()
        with pytest.raises(spf.errors.RunLocked, match=f"process {client.pid} on"):
            call(server, texts)
        assert time.monotonic() - began < 1
    assert spf.open_run(tmp_path / "run").path.exists()
    client.signal(signal.SIGKILL)
    client.end()
    # A dead process holds nothing.
    server.held = []
    assert speak(server, texts).status == "finished"
    assert set(server.billed.values()) == {1}


def _resume(tmp_path):
    return lambda server, texts: spf.resume(tmp_path / "run", service=server.settings, progress=False)
