"""When a quota ends: by the pace of four weeks, refused where there are less than two."""

import datetime as dt

import pytest
from tests.spending.ledgers import at, make_ledger

import speechframe as spf


def history(folder, days, cost=lambda day: 100.0):
    rows, left = [], 10_000
    for day in range(days, 0, -1):
        left -= int(cost(day))
        rows.append({"time": at(-86_400 * day), "credits": cost(day), "balance_after": left})
    return make_ledger(folder, rows)


def test_an_even_pace_ends_on_the_day_that_division_says(tmp_path):
    found = spf.forecast(history(tmp_path, 28), now="2026-11-01T15:00", planned=8000)
    assert (found.balance, set(found.per_day), len(found.per_day)) == (7200, {100.0}, 28)
    assert found.early == found.likely == found.late == dt.date(2026, 11, 1) + dt.timedelta(days=72)
    assert found.left == -800
    assert "it does not fit" in str(found)
    assert "2026-10-04 to 2026-10-31 (UTC)" in str(found)


def test_an_uneven_pace_has_an_interval_around_its_mean_and_is_the_same_each_time(tmp_path):
    folder = history(tmp_path, 28, cost=lambda day: 280.0 if day % 2 else 0.0)
    found = spf.forecast(folder, now="2026-11-01T15:00", balance=14_000)
    assert found.early < found.likely < found.late
    assert abs((found.likely - found.today).days - 100) <= 3
    again = spf.forecast(folder, now="2026-11-01T15:00", balance=14_000)
    assert (again.early, again.likely, again.late) == (found.early, found.likely, found.late)
    spf.plot_burn_down(found).figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_days_without_calls_count_and_an_unused_key_never_ends(tmp_path):
    rows = [{"time": at(-86_400 * day), "credits": 1400.0, "balance_after": 5000} for day in (28, 20)]
    found = spf.forecast(make_ledger(tmp_path, rows), now="2026-11-01T15:00")
    assert (len(found.per_day), found.per_day[0], found.per_day[8], sum(found.per_day)) == (
        28,
        1400,
        1400,
        2800,
    )
    assert (
        spf.forecast(history(tmp_path / "none", 28, cost=lambda _: 0.0), now="2026-11-01T15:00").likely
        is None
    )


@pytest.mark.parametrize("days", [0, 13])
def test_under_two_weeks_no_forecast_is_made_and_the_reason_is_said(tmp_path, days):
    with pytest.raises(spf.AnalysisError, match=f"has {days} whole days before 2026-11-01.*at least 14"):
        spf.forecast(history(tmp_path, days), now="2026-11-01T15:00")


def test_amounts_and_keys_that_are_none_are_named(tmp_path):
    folder = history(tmp_path, 28)
    for asked, words in (
        ({"balance": float("nan")}, "nan is not a number of credits"),
        ({"planned": "much"}, "'much' is not a number of credits"),
        ({"key": "sk-secret"}, "no calls of this key.*k1"),
    ):
        with pytest.raises(spf.AnalysisError, match=words):
            spf.forecast(folder, now="2026-11-01T15:00", **asked)
