"""max_credits: in our own count never passed, whatever fails and however much is under way; and all of it used."""

import asyncio
import base64
import json
import os
import random
import tempfile
import threading
from pathlib import Path

import pytest
from faulty import RATE_HZ, VOICES, audio_of, check_audio, check_books, statuses
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from tenacity import wait_random_exponential

import speechframe as spf
from speechframe.errors import BudgetExceeded, ConnectionFailed
from speechframe.old_batch import retry
from speechframe.old_batch.accounts import Accounts
from speechframe.old_batch.books import Identity
from speechframe.old_batch.budget import Budget
from speechframe.old_batch.cap import Cap
from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.engine import Engine
from speechframe.old_batch.generate import GenerateOperation
from speechframe.old_batch.job import Ways
from speechframe.old_batch.limiter import Lane
from speechframe.old_batch.plan import Todo
from speechframe.old_batch.progress import Bar, Progress
from speechframe.old_client import Client
from speechframe.old_client.transport import Reply
from speechframe.old_store import RunFolder, RunManifest
from speechframe.settings import Settings
from speechframe.spec.billing import billed_characters
from speechframe.spec.speech import Voice

LINES = [f"This is line {i:03d}." for i in range(30)]
EACH = billed_characters(LINES[0])


# -- the arithmetic -------------------------------------------------------------------


@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 60)), max_size=40),
)
def test_settled_and_reserved_never_pass_the_limit(limit, events):
    budget = Budget(limit=limit)
    under_way = []
    for amount, settles, spent in events:
        if settles and under_way:
            reserved = under_way.pop(0)
            budget.settle(reserved=reserved, spent=min(spent, reserved))
        elif budget.reserve(amount):
            under_way.append(amount)
        else:
            # What does not fit is refused, and what fits never is.
            assert budget.left < amount
        assert budget.settled + budget.reserved + budget.left == limit
        assert budget.left >= 0
    assert budget.reserved == sum(under_way)


def test_without_a_limit_everything_fits():
    budget = Budget()
    assert budget.reserve(10**15)
    assert budget.left is None


# -- the engine, with every kind of failure --------------------------------------------

QUOTA = 10**6
BILLED = {"ok", "cut", "lost"}
FATES = ("ok", "ok", 429, 500, 503, 400, "cut", "lost", "unsent")


class Scripted:
    """Exchanges bytes with nobody: answers by a script, and keeps a service's books."""

    def __init__(self, draw, *, idempotent, limit):
        self.draw, self.idempotent, self.limit = draw, idempotent, limit
        self.billed = self.exposed = 0
        self.paid = set()
        self.sends = 0

    async def exchange(self, method, url, *, headers, body, timeout_s, max_bytes, max_error_bytes):
        text = json.loads(body)["text"]
        key = headers.get("Idempotency-Key") if self.idempotent else None
        price = 0 if key is not None and key in self.paid else 1000 * billed_characters(text)
        self.sends += 1
        self.exposed += price
        # The worst that can come of what is under way now is paid for.
        assert self.limit is None or self.billed + self.exposed <= self.limit
        fate = self.draw.choice(FATES)
        for _ in range(self.draw.randrange(3)):
            await asyncio.sleep(0)
        self.exposed -= price
        if fate in BILLED:
            self.billed += price
            self.paid.add(key)
        if fate == "unsent":
            raise ConnectionFailed("nobody there", sent=False)
        if fate == "lost":
            raise ConnectionFailed("lost", sent=True)
        if isinstance(fate, int):
            return Reply(fate, {}, b"{}")
        left = QUOTA - self.billed // 1000
        return Reply(200, {}, _answer(text, left) if fate == "ok" else b'{"encodedAudio": "AAA')

    async def close(self):
        pass


def _answer(text, left):
    fields = {
        "audioFile": "",
        "encodedAudio": base64.b64encode(audio_of(text)).decode(),
        "audioLengthInSeconds": 0.1,
        "remainingCharacterCount": left,
        "wordDurations": [],
    }
    return json.dumps(fields).encode()


def _engine(folder, transport, lengths, limit, width, writer, retry_unknown):
    book = VoiceBook([Voice.model_validate(voice) for voice in VOICES])
    operation = GenerateOperation(book, "scripted")
    texts = [f"{i:04d}" + "x" * length for i, length in enumerate(lengths)]
    planned = [operation.check({"text": t, "voice": "nora", "format": "FLAC"}, 0).planned for t in texts]
    progress = Progress(total=len(planned), planned_millis=sum(p.millicredits for p in planned))
    accounts = Accounts(
        operation,
        Identity(folder.manifest.run_id, "generate", "scripted", "f00"),
        Ways(3, 30.0, transport.idempotent, retry_unknown),
        Budget(limit=limit),
        writer,
        progress,
    )
    engine = Engine(
        Client(Settings(api_key=SecretStr("sk-x"), base_url="http://127.0.0.1:1"), transport=transport),
        [Lane("global", Cap(width, width))],
        accounts,
        bar=Bar(progress, name="generate", shown=False),
    )
    return engine, planned


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=25),
    width=st.integers(1, 6),
    share=st.one_of(st.none(), st.floats(0, 1.5)),
    idempotent=st.booleans(),
    retry_unknown=st.booleans(),
    seed=st.integers(0, 2**32),
)
# A call that was perhaps billed does not fit once more, and ends so.
@example(
    lengths=[36, 18, 2, 13, 11],
    width=5,
    share=0.6616026232846656,
    idempotent=False,
    retry_unknown=True,
    seed=2946163882,
)
@settings(max_examples=50)
def test_whatever_fails_the_budget_is_never_passed(lengths, width, share, idempotent, retry_unknown, seed):
    asyncio.run(_scenario(lengths, width, share, idempotent, retry_unknown, seed))


async def _scenario(lengths, width, share, idempotent, retry_unknown, seed):
    total = sum(1000 * (4 + length) for length in lengths)
    limit = None if share is None else int(total * share)
    transport = Scripted(random.Random(seed), idempotent=idempotent, limit=limit)
    with tempfile.TemporaryDirectory() as temp:
        folder = RunFolder.create(Path(temp) / "run", RunManifest("r1", "generate"))
        with folder.lock(), folder.writer() as writer:
            engine, planned = _engine(folder, transport, lengths, limit, width, writer, retry_unknown)
            async with asyncio.timeout(60):
                await engine.run(Todo(p, str(i), is_cached=False) for i, p in enumerate(planned))
        keys, ledger = folder.keys(), folder.ledger().to_pandas()
    budget, progress = engine.accounts.budget, engine.accounts.progress
    spent = round(1000 * ledger["credits"].sum())
    assert budget.reserved == 0
    assert budget.settled == progress.credits_millis == spent
    assert limit is None or spent <= limit
    # What was surely billed is in the books; what may have been, at most as if it was.
    assert transport.billed <= spent
    if not (ledger["status"] == "charged_unknown").any():
        assert transport.billed == spent
    assert (ledger["status"] != "settled").sum() == transport.sends
    states = [keys.get(p.request_key) for p in planned]
    if engine.stopped_because is None:
        assert None not in states
        assert progress.ended == len(planned)
    elif engine.stopped_because == "budget":
        # It did not give up early: the error says what is left, and that is too little for a row.
        left = limit - spent
        assert any(p.millicredits > left for p, s in zip(planned, states, strict=True) if s != "done")
        assert engine.stopped_by.spent_credits == spent / 1000
        assert isinstance(engine.stopped_by, BudgetExceeded)
        # Nothing that was paid is left undelivered where its repeat is free, nor in the price of the rest.
        due = [p for p, s in zip(planned, states, strict=True) if s is None]
        assert not {f"r1-{p.request_key}" for p in due} & transport.paid
        assert engine.stopped_by.needed_credits == sum(p.millicredits for p in due) / 1000
    else:
        assert engine.stopped_because in {"unreachable", "unavailable"}


@pytest.fixture(autouse=True, scope="module")
def _no_waits():
    """Short waits, and none for the disk, in this whole module: hypothesis takes no fixture of a function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "_backoff", wait_random_exponential(multiplier=0.001, max=0.002))
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


# -- on a real port ------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 4])
def test_a_run_stops_where_the_budget_ends_and_says_what_is_left(make_faulty, speak, width, capsys):
    server = make_faulty(delay_s=0.002)
    run = speak(server, LINES, max_credits=10 * EACH + 3, max_concurrency=width, progress=True)
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    assert server.characters == 10 * EACH
    assert list(statuses(run).values()).count("done") == 10
    said = capsys.readouterr().err
    assert f"max_credits={10 * EACH + 3}: {10 * EACH} are spent, 3 are left" in said
    assert f"the 20 calls to come would cost {20 * EACH}" in said
    with pytest.raises(BudgetExceeded) as caught:
        speak(server, LINES, max_credits=10 * EACH + 3, on_error="raise")
    assert caught.value.needed_credits == 20 * EACH
    assert server.characters == 10 * EACH


def test_the_budget_counts_over_all_calls_of_a_folder(make_faulty, speak):
    server = make_faulty()
    for most, rows in ((5, 5), (5, 5), (12.5, 12), (30, 30)):
        run = speak(server, LINES, max_credits=most * EACH)
        assert server.characters == rows * EACH
    assert run.status == "finished"
    check_audio(run)
    check_books(run, server)


def test_a_budget_that_is_just_enough_is_enough_whatever_has_to_be_repeated(make_faulty, speak):
    server = make_faulty(delay_s=0.002)
    server.scripts = {text: [500, 503, 429, "reset billed", "truncated"] for text in LINES[::3]}
    run = speak(server, LINES, max_credits=30 * EACH)
    assert (run.status, run.stopped_because) == ("finished", None)
    assert server.characters == 30 * EACH
    check_books(run, server)


def test_a_row_waiting_for_its_repeat_keeps_its_place_in_the_budget(make_faulty, speak):
    # Room for one call: while its repeat is due, the next one must neither start nor end the run.
    server = make_faulty()
    server.scripts = {LINES[0]: [500, (500, 0.2)]}
    run = speak(server, LINES[:3], max_credits=EACH, max_concurrency=2)
    assert statuses(run) == {LINES[0]: "done", LINES[1]: "pending", LINES[2]: "pending"}
    assert run.stopped_because == "budget"
    run = speak(server, LINES[:3], max_credits=2 * EACH, max_concurrency=1)
    assert list(statuses(run).values()) == ["done", "done", "pending"]


def test_a_row_that_fails_gives_its_share_to_the_next(make_faulty, speak):
    server = make_faulty()
    server.scripts = {LINES[0]: [500, (400, 0)]}
    run = speak(server, LINES[:2], max_credits=EACH, max_concurrency=2)
    assert statuses(run) == {LINES[0]: "failed", LINES[1]: "done"}
    assert run.stopped_because is None


def test_what_may_have_been_billed_counts(make_faulty, speak):
    server = make_faulty(idempotent=None)
    server.scripts = {LINES[0]: ["reset billed"], LINES[1]: ["truncated"]}
    run = speak(server, LINES, max_credits=10 * EACH, max_concurrency=1)
    assert server.characters == 10 * EACH
    assert list(statuses(run).values()).count("done") == 8
    again = speak(server, LINES, max_credits=10 * EACH)
    assert server.characters == 10 * EACH
    assert again.progress.ended == 0


def test_with_on_unknown_retry_every_attempt_counts(make_faulty, speak):
    server = make_faulty(idempotent=None)
    server.scripts = {LINES[0]: ["reset billed"] * 4}
    run = speak(server, LINES, max_credits=8 * EACH, max_concurrency=1, on_unknown="retry")
    assert server.characters == 8 * EACH
    assert list(statuses(run).values()).count("done") == 4


def test_zero_credits_send_nothing(make_faulty, speak):
    server = make_faulty()
    run = speak(server, LINES, max_credits=0)
    assert (run.stopped_because, server.seen) == ("budget", [])
    with pytest.raises(spf.errors.SettingsError, match="max_credits"):
        speak(server, LINES, max_credits=-1)


def test_a_limit_is_never_rounded_up_and_the_sum_of_a_column_is_enough(make_faulty, speak, tmp_path):
    server = make_faulty()
    run = speak(server, ["ten chars."], max_credits=9.9996, run_dir=tmp_path / "less")
    assert (run.stopped_because, server.seen) == ("budget", [])
    run = speak(server, ["ten chars."], max_credits=sum([0.1] * 100), run_dir=tmp_path / "enough")
    assert (run.status, server.characters) == ("finished", 10)


def test_it_holds_for_many_runs_at_once_each_with_its_own(make_faulty, tmp_path):
    server = make_faulty(published=8, delay_s=0.002)
    runs = []

    def one(i):
        texts = [f"run {i} {line}" for line in LINES]
        each = billed_characters(texts[0])
        options = {"voice": "nora", "sample_rate": RATE_HZ, "service": server.settings, "progress": False}
        run = spf.generate(texts, **options, run_dir=tmp_path / str(i), max_credits=7 * each + i)
        runs.append((run, 7 * each))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(runs) == 4
    for run, cost in runs:
        assert run.ledger["credits"].sum() == cost
        assert run.stopped_because == "budget"
    assert server.characters == sum(cost for _, cost in runs)


def test_a_dry_run_says_that_a_budget_would_not_do(make_faulty, speak, capsys):
    server = make_faulty()
    run = speak(server, LINES, max_credits=10 * EACH, dry_run=True, progress=True)
    assert run.estimate.budget == 10 * EACH
    assert f"more than the {10 * EACH} that its budget leaves" in run.estimate.line()
    assert "its budget leaves" in capsys.readouterr().err
    enough = speak(server, LINES, max_credits=30 * EACH, dry_run=True)
    assert "budget" not in enough.estimate.line()


def test_a_stop_by_the_house_rule_says_whose_rule_it_is(make_faulty, speak):
    server = make_faulty()
    spf.configure(max_credits_per_run=10.0 * EACH)
    run = speak(server, LINES)
    assert run.stopped_because == "budget"
    assert (run.stopped_by.limit, run.stopped_by.left_credits) == ("run", 0)
    assert "max_credits_per_run=" in run.summary()
    assert repr(run).endswith("stopped (budget)>")
    assert "resume(run, max_credits=...)" in spf.open_run(run.path).summary()
    with pytest.raises(
        BudgetExceeded, match=r"max_credits_per_run=.*have the rule changed \(configure\(\)\)"
    ):
        speak(server, LINES, on_error="raise")
