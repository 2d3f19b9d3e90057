"""The commands about what was spent."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.spending.ledgers import at, make_ledger

from speechframe.cli.app import main

BUDGETS = '[[budget]]\nname = "ads"\nmatch = {team = "ads"}\nmax_credits = %d\n[[budget]]\nname = "none"\nmatch = {team = "x"}\nmax_credits = 1\n'


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"time": at(0), "tags": [("team", "ads")]}, {"time": at(1), "tags": [("team", "tv, 📺")]}]
    return make_ledger(tmp_path / "ledger", rows)


def test_usage_is_a_table_with_its_window_or_csv(ledger, capsys):
    assert main(["usage", str(ledger), "--group-by", "tag:team", "--every", "all"]) == 0
    said = capsys.readouterr().out
    assert "tv, 📺" in said
    assert "Window: all times (UTC); complete until" in said
    assert main(["usage", str(ledger), "--group-by", "tag:team", "--csv"]) == 0
    assert '"tv, 📺",1,1,0' in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["usage", str(ledger), "--group-by", "tags"])
    assert "tag:team" in capsys.readouterr().err


@pytest.mark.parametrize(("limit", "code", "word"), [(100, 0, "fine"), (12, 8, "alert"), (9, 4, "over")])
def test_budgets_are_checked_for_cron(ledger, tmp_path, capsys, limit, code, word):
    (tmp_path / "budgets.toml").write_text(
        (BUDGETS % limit).replace("max_credits", 'period = "total"\nmax_credits')
    )
    assert main(["usage", "--check", "budgets.toml", str(ledger)]) == code
    said = capsys.readouterr().out
    assert f"ads: 10 of {limit} in all, {word}" in said
    assert "none: 0 of 1 in all, fine, and it matches no call of the ledger" in said


def test_only_the_period_of_today_counts_in_a_budget(tmp_path, capsys):
    now = datetime.now(UTC)
    rows = [{"time": now - timedelta(days=days), "tags": [("team", "ads")]} for days in (0, 400)]
    budgets = (BUDGETS % 12).replace("max_credits", 'period = "year"\nmax_credits')
    (tmp_path / "budgets.toml").write_text(budgets)
    ledger = make_ledger(tmp_path / "ledger", rows)
    assert main(["usage", "--check", str(tmp_path / "budgets.toml"), str(ledger)]) == 8
    said = capsys.readouterr().out
    assert f"ads: 10 of 12 since {now.year}-01-01 (UTC), alert" in said
    assert f"since {now.year}-01-01 (UTC), fine, and it matches no call of the ledger since then" in said


def test_a_bill_is_reconciled_and_a_page_written(ledger, tmp_path, capsys):
    window = ["--start", "2026-11-01", "--end", "2026-12-01", "--source", str(ledger)]
    assert main(["reconcile", "25", *window]) == 0
    assert "unexplained" in capsys.readouterr().out
    (tmp_path / "bill.csv").write_text("date,credits\n2026-11-01,x\n")
    with pytest.raises(SystemExit, match="2"):
        main(["reconcile", "bill.csv", *window])
    assert "line 2" in capsys.readouterr().err
    (tmp_path / "budgets.toml").write_text(BUDGETS % 9)
    assert main(["report", "page.html", *window]) == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert all(words in page for words in ("<svg", "tv, 📺", "complete until", "No forecast", "ads: "))
    assert (tmp_path / "page.csv").read_text("utf-8").count("\n") == 3
