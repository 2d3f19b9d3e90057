"""What a run would cost: by any column, in money, until where a budget lasts, and how long it takes."""

import json
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace

import pandas as pd
import pytest
from tests.rooms.scripted import Scripted, make

import speechframe as spf
from speechframe.batch.backend import make_pack
from speechframe.testing import FaultyService

TABLE = pd.DataFrame({"text": ["a", "b", "a", "c"], "who": ["ann", "bob", "bob", "ann"]})


def planned(tmp_path, **options):
    return make(tmp_path / "run", TABLE, dry_run=True, **options).estimate


def test_the_price_by_any_column_adds_up_also_when_the_plan_is_gone(tmp_path):
    estimate = planned(tmp_path)
    (found,) = [estimate.by("who").set_index("who")]
    assert found["credits"].to_dict() == {"ann": 2, "bob": 1}
    assert found["calls"].sum() == estimate.calls == 3
    make(tmp_path / "run", TABLE[:1])
    # A look at a run that exists: its table lies elsewhere, and is removed.
    assert planned(tmp_path).by("who")["credits"].sum() == 2
    with pytest.raises(spf.SettingsError, match="did you mean 'who'"):
        estimate.by("whom")


def test_it_says_the_row_at_which_the_budget_ends_and_the_money(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.toml").write_text(
        'currency = "EUR"\n[[price]]\nfrom = 2026-01-01\nunit = "credit"\nprice = "1.5"\n'
    )
    estimate = planned(tmp_path, max_credits=2)
    assert (estimate.ends_at, estimate.money, estimate.currency, str(estimate.price_from)) == (
        "3",
        4.5,
        "EUR",
        "2026-01-01",
    )
    assert "3 credits, " in estimate.line()
    assert "more than the 2 that its budget leaves, with row 3 as the first beyond it" in estimate.line()
    assert "it would stop" not in estimate.line(), "a shorter row may still be sent"
    assert "4.50 EUR by the price of 2026-01-01" in estimate.line()
    run = make(tmp_path / "run", TABLE, max_credits=3)
    assert run.progress.to_dict()["money"] == "4.50 EUR"
    assert run.progress.to_dict()["budget"] == 3


def test_the_credits_and_the_balance_are_one_phrase():
    estimate = spf.Estimate(rows=1, unique=1, finished=0, invalid=0, calls=1, credits=44, balance=10_000_000)
    assert ", 44 credits of the 10,000,000 left (0.00044 %)" in estimate.line()


def test_the_time_at_the_cap_follows_from_what_calls_took_before(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    assert planned(tmp_path).lanes == ("here: 3 rows at cap 1",)
    make(tmp_path / "before", list("xyz"))
    estimate = planned(tmp_path)
    assert 0 < estimate.seconds < 5
    assert estimate.lanes == (f"here: 3 rows at cap 1 = {estimate.seconds:,.1f} s",)


def prices(tmp_path, unit):
    file = tmp_path / f"{unit}.toml"
    file.write_text(f'currency = "EUR"\n[[price]]\nfrom = 2026-01-01\nunit = "{unit}"\nprice = "0.0125"\n')
    return file


@pytest.mark.parametrize("unit", ["credit", "character", "request"])
def test_every_verb_says_by_column_what_adds_up_to_its_price(unit, tmp_path):
    frame = pd.DataFrame({"text": ["Hello.", "Good day.", "Hello."], "who": [["ann"], ["bob"], None]})
    with FaultyService(quota=1_000_000) as service:
        given = {
            "service": replace(service.settings, prices=prices(tmp_path, unit)),
            "progress": False,
        }
        spoken = spf.generate(frame, voice="nora", run_dir=tmp_path / "a", **given)
        plans = (
            spoken,
            spf.translate(frame, targets="es", run_dir=tmp_path / "b", dry_run=True, **given),
            spf.change_voice(spoken, voice="nora", run_dir=tmp_path / "c", dry_run=True, **given),
        )
        for estimate in (run.estimate for run in plans):
            found = estimate.by("locale", "model", "who")
            assert len(found) == estimate.calls == 2
            assert found["calls"].sum() == estimate.calls
            assert found["characters"].sum() == estimate.characters
            assert found["credits"].sum() == estimate.credits > 0
            assert found["money"].sum() == pytest.approx(estimate.money)
            amount = {"credit": "credits", "character": "characters", "request": "calls"}[unit]
            assert estimate.money == pytest.approx(0.0125 * getattr(estimate, amount))
            assert estimate.balance_share == estimate.credits / estimate.balance
    assert spoken.progress.to_dict()["money"] == f"{spoken.estimate.money:.2f} EUR"


def test_calls_that_are_paid_already_cost_no_money(tmp_path):
    with FaultyService(idempotent=True, scripts={"Two.": ["reset_after", "ok"]}) as service:
        given = {"service": replace(service.settings, prices=prices(tmp_path, "request")), "max_attempts": 1}
        run = spf.generate(["One.", "Two."], voice="nora", run_dir=tmp_path / "run", progress=False, **given)
        assert run.stats["charged_unknown"] == 1
        again = spf.resume(run, dry_run=True, progress=False, **given).estimate
    assert (again.calls, again.paid, again.credits, again.money) == (1, 1, 0, 0)
    assert again.by()[["calls", "characters", "credits", "money"]].to_numpy().tolist() == [[1, 4, 0, 0]]


class Packing(Scripted):
    """Sends all rows in one call, which takes a while."""

    def pack(self, requests):
        yield make_pack(requests, b"")

    async def send(self, request, attempt):
        return spf.Answer([json.loads(part.body)["text"] for part in request.rows], latency_ms=8000.0)

    def records(self, request, answer):
        return [spf.Record({"text": text}, audio=b"-", audio_name="a.wav") for text in answer.data]


def test_rows_that_share_a_call_share_its_time_and_a_smaller_cap_takes_longer(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    lane = spf.LaneSpec("here", "packing", published=4)
    make(tmp_path / "before", list("wxyz"), backend=Packing(lane))
    assert planned(tmp_path, backend=Packing(lane)).lanes == ("here: 3 rows at cap 4 = 1.5 s",)
    slow = planned(tmp_path, backend=Packing(lane), max_concurrency=1)
    assert (slow.concurrency, slow.seconds) == (1, 6.0)


class Own(Packing):
    """A backend with a service of its own on each machine."""

    async def open(self):
        return spf.Opened(self.lanes, is_local=True)


class Elsewhere(Executor):
    """An executor whose workers run on unknown machines."""


@pytest.mark.parametrize(
    ("executor", "workers", "seconds", "bound"),
    [
        (
            ProcessPoolExecutor(3),
            None,
            1.5,
            "CPU of the workers",
        ),  # on this machine, whose cores are busy already
        (Elsewhere(), 3, 0.5, "calls in flight"),
        (Elsewhere(), 10**6, 75e-6, "this process"),
    ],
)
def test_with_an_executor_it_names_what_bounds_the_time(
    tmp_path, monkeypatch, executor, workers, seconds, bound
):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    lane = spf.LaneSpec("here", "packing", published=4)
    make(tmp_path / "before", list("wxyz"), backend=Packing(lane))
    found = planned(tmp_path, backend=Own(lane), executor=executor, executor_workers=workers)
    assert (found.bound, found.seconds) == (bound, pytest.approx(seconds))
    # One call takes 2 s of the lane, which has 4 calls in flight on 2 cores.
    assert (found.workers, found.call_cpu_s) == (workers or 3, pytest.approx(1.0))
    assert f", by {found.workers:,} workers, bound by {bound}" in found.line()
    assert bound in found._repr_html_()


def test_the_cpu_of_a_call_is_unknown_for_a_hosted_service(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    with FaultyService(latency=0.05, cap=4, publish_cap=True) as service:
        given = {"voice": "nora", "service": service.settings, "progress": False}
        spf.generate([f"Line {number}." for number in range(4)], run_dir=tmp_path / "before", **given)
        lines = [f"Row {number}." for number in range(100, 500)]
        found = spf.generate(
            lines, run_dir=tmp_path / "a", dry_run=True, executor=ProcessPoolExecutor(3), **given
        )
        alone = spf.generate(lines, run_dir=tmp_path / "b", dry_run=True, **given).estimate
    assert (found.estimate.bound, found.estimate.call_cpu_s) == ("calls in flight", None)
    assert found.estimate.seconds == alone.seconds > 400 * 0.05 / 4
    assert "3 workers, bound by calls in flight, CPU of a call unknown" in found.estimate.line()
    assert (alone.bound, alone.workers) == (None, None)
