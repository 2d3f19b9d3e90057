"""What a run would cost: by any column, in money, until where a budget lasts, and how long it takes."""

import pandas as pd
import pytest
from tests.rooms.scripted import make

import speechframe as spf

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
    assert "before row 3" in estimate.line()
    assert "4.50 EUR by the price of 2026-01-01" in estimate.line()
    run = make(tmp_path / "run", TABLE, max_credits=3)
    assert run.progress.to_dict()["money"] == "4.50 EUR"
    assert run.progress.to_dict()["budget"] == 3


def test_the_time_at_the_cap_follows_from_what_calls_took_before(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    assert planned(tmp_path).lanes == ("here: 3 rows at cap 1",)
    make(tmp_path / "before", list("xyz"))
    estimate = planned(tmp_path)
    assert 0 < estimate.seconds < 5
    assert estimate.lanes == (f"here: 3 rows at cap 1 = {estimate.seconds:,.1f} s",)
