"""What was spent, by whom and on what: every grouping adds up, over time zones, bad rows and damaged files."""

import itertools
import math
import re
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spending.ledgers import at, make_ledger

import speechframe as spf

GROUPINGS = [
    (),
    "run",
    "voice",
    "status",
    "tag:team",
    "tag:client",
    ["key", "tag:team"],
    ["operation", "host"],
]
PRICES = """
currency = "EUR"
[[price]]
from = 2026-10-01
unit = "credit"
price = "0.001"
[[price]]
from = 2026-11-02
unit = "credit"
price = 2
per = 1000
[[price]]
from = 2026-10-01
operation = "translate"
unit = "character"
price = 0.0005
"""


def thousandths(amounts):
    return (1000 * amounts).round().astype(int)


attempt = st.fixed_dictionaries(
    {
        "time": st.integers(-9_000_000, 9_000_000).map(at),
        "credits": st.one_of(
            st.none(), st.just(math.nan), st.integers(-5000, 900_000).map(lambda n: n / 1000)
        ),
        "status": st.sampled_from(["done", "suspect", "failed", "retried", "charged_unknown", "cached"]),
        "credits_basis": st.sampled_from(["computed", "unknown", "none"]),
        "tags": st.sampled_from([[], [("team", "ads")], [("team", 'tv, "📺"'), ("client", "x")]]),
        "voice_id": st.sampled_from([None, "v", "w"]),
        "take": st.sampled_from([None, 0, 1]),
    }
)


@settings(max_examples=40)
@given(
    st.lists(attempt, max_size=12),
    st.sampled_from(GROUPINGS),
    st.sampled_from([None, "1h", "1d", "1w", "1mo", "1y"]),
)
def test_every_grouping_sums_to_the_total(tmp_path_factory, rows, group_by, every):
    folder = make_ledger(tmp_path_factory.mktemp("ledger"), rows)
    known = [row["credits"] for row in rows if row["credits"] is not None and not math.isnan(row["credits"])]
    total = sum(round(1000 * credits) for credits in known)
    found = spf.usage(folder, group_by, every=every, tz="Europe/Berlin")
    assert thousandths(found["credits"]).sum() == total
    assert (found["attempts"] + found["cached"]).sum() == len(rows)
    assert found["odd"].sum() == len(rows) - len(known)
    wasted = found["undelivered"] + found["suspect"]
    assert (thousandths(found["wasted"]) == thousandths(wasted)).all()


def test_what_failed_was_wasted_and_was_saved_stands_beside_what_was_spent(tmp_path):
    rows = [
        {"time": at(0), "saved": 20.0},
        {"time": at(1), "take": 1},
        {"time": at(2), "status": "suspect"},
        {
            "time": at(3),
            "status": "retried",
            "credits": 0.0,
            "credits_basis": "none",
            "error_code": "CONCURRENCY_LIMIT",
        },
        {"time": at(4), "status": "failed", "credits": 4.0},
        {"time": at(5), "status": "charged_unknown", "credits_basis": "unknown", "credits": 5.0},
        {"time": at(6), "status": "cached", "credits": 0.0, "saved": 10.0, "audio_seconds": None},
    ]
    (found,) = spf.usage(make_ledger(tmp_path, rows), every=None).to_dict("records")
    wanted = {
        "attempts": 6, "answered": 3, "cached": 1, "retries": 1, "refusals": 1, "failed": 2, "odd": 0,
        "credits": 39, "charged_unknown": 5, "undelivered": 4, "suspect": 10, "retakes": 10, "wasted": 14,
        "saved": 30, "audio_seconds": 3, "credits_per_minute": 780,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


def test_days_are_those_of_the_time_zone_in_a_month_with_a_time_change(tmp_path):
    # 25 October has 25 hours in Berlin: from 22:00 UTC of the day before to 23:00 UTC.
    times = pd.date_range("2026-10-24T21:00", "2026-10-25T23:00", freq="h", tz="UTC")
    folder = make_ledger(tmp_path, [{"time": time, "credits": 1.0} for time in times])
    found = spf.usage(folder, tz="Europe/Berlin")
    assert dict(zip(found["period"].dt.strftime("%d"), found["credits"], strict=True)) == {
        "24": 1,
        "25": 25,
        "26": 1,
    }
    inside = spf.usage(folder, every="1mo", tz="Europe/Berlin", start="2026-10-25", end="2026-10-26")
    assert inside["credits"].tolist() == [25]
    assert "2026-10-25 to 2026-10-26 (Europe/Berlin), without the end; complete until" in repr(inside)
    assert "without the end; complete until" in inside._repr_html_()


def test_money_follows_the_price_of_the_day_and_is_null_without_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    day = 86_400
    rows = [
        {"time": at(0)},
        {"time": at(day)},
        {"time": at(day), "operation": "translate", "characters": 40},
    ]
    folder = make_ledger(tmp_path / "ledger", rows)
    assert spf.usage(folder, every=None)["money"].isna().all()
    (tmp_path / "prices.toml").write_text(PRICES)
    found = spf.usage(folder, "operation", every=None).set_index("operation")
    assert found["money"].to_dict() == {"generate": 0.01 + 0.02, "translate": 0.02}
    assert found["price_from"].to_dict() == {"generate": "2026-10-01, 2026-11-02", "translate": "2026-10-01"}
    assert set(found["currency"]) == {"EUR"}
    early = make_ledger(tmp_path / "early", [{"time": at(-60 * day)}, {"time": at(0)}])
    assert spf.usage(early, every=None)["money"].isna().all()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'unit = "credit"\nprice = 2',
            'unit = "word"\nprice = 2',
            "price 2: unit: 'word' is not allowed: Input should be 'credit'",
        ),
        ('currency = "EUR"', "", "currency: Field required"),
        ("from = 2026-11-02", "from = 2026-10-01", "two prices from 2026-10-01"),
        ("from = 2026-11-02", "from = 2026-11-02T00:00:00-08:00", "price 2: from: .* a day without a time"),
        ("per = 1000", "pre = 1000", "price 2: pre: no such name; did you mean"),
        (
            '"translate"',
            '"translation"',
            "price 3: operation: 'translation' is not allowed: .*did you mean 'translate'",
        ),
    ],
)
def test_a_price_file_that_is_none_is_refused(old, new, words, tmp_path):
    (tmp_path / "prices.toml").write_text(PRICES.replace(old, new, 1))
    spf.configure(prices=tmp_path / "prices.toml")
    with pytest.raises(spf.SettingsError, match=words):
        spf.usage(make_ledger(tmp_path / "ledger", [{"time": at(0)}]))


def test_what_cannot_be_asked_and_damaged_files_are_named(tmp_path):
    folder = make_ledger(tmp_path, [{"time": at(0), "tags": [("team", "ads")]}])
    for asked, words in (
        ({"group_by": "voise"}, "did you mean 'voice'.*tag:team"),
        ({"every": "1 day"}, "allowed: 1h, 1d"),
        ({"tz": "Berlin"}, "the time zone 'Berlin' is unknown"),
        ({"start": "2026-12-01", "end": "2026-11-01"}, "is not after"),
        ({"start": "soon"}, "'soon' is not a time"),
        ({"start": "0001-01-01", "tz": "Europe/Berlin"}, "'0001-01-01' is not a time"),
    ):
        with pytest.raises(spf.AnalysisError, match=words):
            spf.usage(folder, **asked)
    with pytest.raises(spf.StoreError, match="the list of runs and ledgers is empty"):
        spf.usage([])
    with pytest.raises(spf.StoreError, match="neither a run nor a ledger"):
        spf.usage(tmp_path / "nothing")
    file = make_ledger(tmp_path, [{"time": at(0)}], "cut-000001") / "attempts" / "cut-000001.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(spf.StoreError, match=r"cut-000001.parquet.*restore it"):
        spf.usage(folder)


@pytest.mark.parametrize(
    ("zone", "start", "hours"),
    [
        ("Europe/Berlin", "2026-10-24T22:00", 25),
        ("Africa/Cairo", "2026-04-23T22:00", 23),
    ],
)
def test_hours_and_days_of_a_time_change_are_counted_once(zone, start, hours, tmp_path):
    times = pd.date_range(start, periods=hours, freq="h", tz="UTC")
    folder = make_ledger(tmp_path, [{"time": time, "credits": 1.0} for time in times])
    assert spf.usage(folder, every="1h", tz=zone)["credits"].tolist() == [1.0] * hours
    assert spf.usage(folder, every="1d", tz=zone)["credits"].tolist() == [hours]


def test_huge_amounts_older_files_and_mistyped_tags(tmp_path):
    rows = [{"time": at(0), "credits": 1e300}, {"time": at(1), "tags": [("team", "ads")]}]
    folder = make_ledger(tmp_path, rows)
    file = next(folder.glob("attempts/*"))
    pq.write_table(pq.read_table(file).drop_columns(["saved", "reported"]), file)
    (found,) = spf.usage([folder, folder], every=None).to_dict("records")
    assert (found["credits"], found["odd"], found["attempts"], found["saved"]) == (10, 1, 2, 0)
    with pytest.raises(spf.AnalysisError, match="did you mean 'tag:team'"):
        spf.usage(folder, "tag:teem")


def test_a_ledger_of_another_layout_is_refused(tmp_path):
    file = next(make_ledger(tmp_path, [{"time": at(0)}]).glob("attempts/*"))
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({"speechframe:ledger": "2"}), file)
    with pytest.raises(spf.StoreError, match="its layout is 2, this version reads 1"):
        spf.usage(tmp_path)


def test_more_rows_than_are_summed_at_once_add_up(tmp_path):
    rows = [{"time": at(n), "tags": [("team", "ab"[n % 2])]} for n in range(20_000)]
    (file,) = make_ledger(tmp_path, rows).glob("attempts/*")
    for number in range(3):
        shutil.copy(file, file.with_name(f"other-{number:06d}.parquet"))
    found = spf.usage(tmp_path, "tag:team", every=None)
    assert found[["attempts", "credits"]].to_numpy().tolist() == [[40_000, 400_000]] * 2


def test_a_plot_shows_itself_in_a_notebook_and_is_legible_over_a_year_of_many_groups(tmp_path):
    from IPython.core.formatters import DisplayFormatter

    teams = [("team", f"team {number:02}") for number in range(14)]
    rows = [
        {"time": at(-86_400 * day), "credits": 10.0 * (day % 14 + 1), "tags": [teams[day % 14]]}
        for day in range(365)
    ]
    folder = make_ledger(tmp_path / "year", rows)
    found = spf.usage(folder, "tag:team")
    figure = spf.plot_usage(found)
    assert DisplayFormatter().format(figure)[0]["image/png"].startswith(b"\x89PNG")
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert 3 <= len(labels) <= 9
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes)), labels
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == [f"team {number:02}" for number in range(13, 3, -1)] + ["4 others"]
    drawn = sum(bar.get_height() for bars in axes.containers for bar in bars)
    assert drawn == pytest.approx(found["credits"].sum())
    # Days without calls are gaps between the bars.
    days = make_ledger(tmp_path / "few", [{"time": at(0)}, {"time": at(-30 * 86_400)}])
    low, high = spf.plot_usage(spf.usage(days)).axes[0].get_xlim()
    assert high - low > 30
    (empty,) = spf.plot_usage(spf.usage(folder, end="2020-01-01")).axes
    assert [text.get_text() for text in empty.texts] == ["No credits were spent"]


def test_a_report_has_units_and_plain_names_and_no_columns_of_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.toml").write_text(PRICES)
    rows = [
        {"time": at(n), "credits": 1234.5, "tags": [("team", "ads")], "status": "suspect"} for n in range(2)
    ]
    page = spf.report("november.html", make_ledger(tmp_path / "ledger", rows)).read_text()
    heads = {*re.findall("<th>([^<]*)</th>", page)}
    assert {"team", "day", "credits", "suspect answers (credits)", "audio (min)", "cost (EUR)"} <= heads
    assert not [head for head in heads if "_" in head or ":" in head]
    assert "<td>2,469</td>" in page
    # Each table scrolls by itself, and also with the keyboard.
    assert page.count("<table") == page.count('<div class=wide tabindex=0 role=region aria-label="')
