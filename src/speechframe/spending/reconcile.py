"""Compare a bill of the service with the ledger, and explain the difference line by line.

The result is a bridge: a table whose lines add up to the billed amount. The module computes with whole
thousandths of a credit, so the sums are exact.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import AnalysisError
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT
from speechframe.spending.ledger import (
    NO_VALUE,
    convert_to_thousandths,
    describe_window,
    find_fingerprint,
    open_ledgers,
    parse_moment,
    parse_window,
)
from speechframe.store.ledger import convert_to_millicredits
from speechframe.store.schema import DONE, LEDGER_SCHEMA, SUSPECT
from speechframe.writing.words import format_count, replace_unprintable

OURS_LINE, FAILED_LINE, UNKNOWN_LINE = "ours", "billed but failed", "charged_unknown"
OTHERS_LINE, PRICE_LINE, UNEXPLAINED_LINE = "other users of the key", "billed at another price", "unexplained"
_LEDGER_COLUMNS = (
    "time", "run_id", "request_key", "attempt", "operation", "voice_id", "locale", "status", "credits",
    "credits_basis", "computed", "reported", "balance_after", "latency_ms", "error_code", "trace_id", "user",
    "host", "key_fingerprint", "tags",
)  # fmt: skip
_AMOUNT_COLUMNS = ["computed", "reported", "credits", "low", "high"]
_MIN_PRICED_CALLS, _MIN_AGREEING_SHARE, _PRICE_MARGIN = 10, 0.8, 0.02
_MIN_PRICED_COST = 10 * MILLICREDITS_PER_CREDIT
"""Conditions for the line `PRICE_LINE`. They are the smallest number of calls, the share of these calls whose
price ratios must agree, the largest relative difference of ratios that agree, and the smallest cost of these
calls in thousandths of a credit. Cheaper calls give no exact ratio, because balances are whole characters."""
_MAX_CLOCK_DIFFERENCE_US = 12 * 3600 * 10**6
"""Assumed largest difference between the clocks of two hosts, in microseconds."""


@dataclass(eq=False)
class Bridge:
    """The lines that explain a billed amount, the result of :func:`reconcile`.

    Attributes
    ----------
    lines
        A DataFrame with a line for the calls of each team, for calls that were billed but failed, for
        ``charged_unknown`` (calls without an answer that may have been billed), for other users of the key,
        for each further finding, and for the unexplained rest. The columns are ``line``, ``team``, ``rows``,
        ``computed``, ``reported``, ``credits``, ``low``, ``high`` and ``note``. The ``credits`` add up to the
        billed amount.
    days
        A DataFrame with the days of a CSV report. The columns are ``date``, ``operation`` if the report
        contains operations, ``reported``, ``ours`` and ``difference``, in credits. None if the report is a
        number.
    heading
        Text with the window, its time zone, and the time until which the ledger is complete.
    """

    lines: pd.DataFrame
    days: pd.DataFrame | None
    heading: str
    _table: pa.Table = field(repr=False)
    _calls: pd.DataFrame = field(repr=False)

    def rows(self, line: str, team: str | None = None) -> pd.DataFrame:
        """Return the rows of the ledger that a line sums up, for all teams or for one team.

        Raises
        ------
        AnalysisError
            If the line does not sum up rows of the ledger.
        """
        if line not in {OURS_LINE, FAILED_LINE, UNKNOWN_LINE}:
            raise AnalysisError(
                f"the line {line!r} has no rows; allowed: {OURS_LINE}, {FAILED_LINE}, {UNKNOWN_LINE}"
            )
        chosen: Any = (self._calls["line"] == line) & (team is None or self._calls["team"] == team)
        found: pd.DataFrame = self._table.filter(pa.array(chosen)).to_pandas(maps_as_pydicts="strict")
        return found

    def __repr__(self) -> str:
        """Return the heading and the lines as text."""
        return replace_unprintable(f"{self.heading}\n{self.lines.to_string(index=False, na_rep='')}")

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(self.heading)}</p>{self.lines.to_html(index=False, na_rep='')}"


def reconcile(
    reported: "float | str | PathLike[str]",
    *,
    start: Any,
    end: Any,
    key: Any = None,
    tz: str = "UTC",
    source: Any = None,
    by: str = "team",
) -> Bridge:
    """Explain the amount that the service has billed, with the calls of the ledger.

    Parameters
    ----------
    reported
        Billed credits, or the path of a CSV file with the columns ``date``, ``credits`` and optionally
        ``operation``. A text such as ``"1_204_331"`` is a number. A date may contain a time and an offset.
    start, end
        The window, as dates or times. The window does not include `end`.
    key
        The API key that the bill is for, or its fingerprint. Set it if the ledger contains calls of several
        keys. Otherwise the calls of all keys count.
    tz
        Time zone of the window and of the days in the CSV file.
    source
        Runs or ledgers, as for :func:`usage`. The default is the ledger folder of all runs.
    by
        Name of the tag that contains the team.

    Returns
    -------
    Bridge
        Calls without an answer get the part of the amount that the other lines do not explain, up to their
        full price. There is a line for other users of the key if the balance fell by more than the cost of
        our calls.

    Raises
    ------
    AnalysisError
        If the report cannot be read, or the key has no calls in the window.

    Examples
    --------
    >>> reconcile(1_204_331, start="2026-11-01", end="2026-12-01")  # doctest: +SKIP
    """
    first, last = parse_window(start, end, tz)
    report, found = None, []
    try:
        total = convert_to_thousandths(reported)
    except AnalysisError:
        if not isinstance(reported, (str, PathLike)):
            raise
        report = _read_report(Path(reported), ZoneInfo(tz))
        is_inside = _is_inside(report["date"], first, last, tz)
        if others := int((~is_inside).sum()):
            found.append(
                _make_line("report", note=f"{format_count(others, 'line')} outside the window, not counted")
            )
        report = report[is_inside]
        total = int(report["reported"].sum())
    ledgers = open_ledgers(source)
    schema = pa.schema([LEDGER_SCHEMA.field(name) for name in _LEDGER_COLUMNS])
    table = pa.Table.from_batches(ledgers.batches(_LEDGER_COLUMNS, first, last), schema).sort_by("time")
    if key is not None:
        column = table.column("key_fingerprint")
        table = table.filter(pc.equal(column, pa.scalar(find_fingerprint(column, key))))
    calls = _classify_calls(table, by)
    keys: Any = calls.groupby("key_fingerprint")
    lines = [*_make_own_lines(calls)]
    found += [line for _, of_key in keys for line in _make_balance_lines(of_key)]
    if len(keys) > 1:
        found.append(
            _make_line(
                "keys", note=f"calls of {len(keys)} keys: {', '.join(keys.groups)}; choose one with key="
            )
        )
    days = None if report is None else _sum_days(calls, report, tz)
    if days is not None and len(calls) and not (days["reported"] * days["ours"]).any():
        found.append(_make_line("report", note="the ledger has no calls on the report's days; check its key"))
    left = total - sum(line["credits"] for line in (*lines, *found))
    if len(unknown := calls[calls["line"] == UNKNOWN_LINE]):
        high = int(unknown["credits"].sum())
        billed = max(0, min(high, left))
        lines.append(_make_line(UNKNOWN_LINE, unknown, credits=billed, low=0, high=high))
        left -= billed
    lines += [*found, _make_line(UNEXPLAINED_LINE, credits=left)]
    frame = pd.DataFrame(lines, columns=["line", "team", "rows", *_AMOUNT_COLUMNS, "note"])
    frame[_AMOUNT_COLUMNS] = frame[_AMOUNT_COLUMNS].astype(float) / MILLICREDITS_PER_CREDIT
    frame = frame.astype({"rows": "Int64"})
    return Bridge(
        frame, days, f"{describe_window(start, end, tz)}; {ledgers.describe_completeness()}", table, calls
    )


def _make_line(name: str, calls: Any = None, **columns: Any) -> dict[str, Any]:
    """Return a line of a bridge. With `calls`, the line contains their number and their sums."""
    line: dict[str, Any] = {"line": name, "team": "", "credits": 0, "note": ""}
    if calls is not None:
        line |= {"rows": len(calls), **{name: int(calls[name].sum()) for name in ("credits", "computed")}}
        line["reported"] = int(calls["reported"].sum()) if calls["is_reported"].any() else None
    return line | columns


def _classify_calls(table: Any, by: str) -> pd.DataFrame:
    """Return a DataFrame of attempts with the name of the line to which each attempt belongs.

    The columns ``sent``, ``took`` and ``ended`` are in microseconds.
    """
    get = table.column
    columns: dict[str, Any] = {
        **{name: pc.fill_null(get(name), NO_VALUE) for name in ("operation", "host", "key_fingerprint")},
        **{name: get(name) for name in ("request_key", "status", "credits_basis")},
        **{name: convert_to_millicredits(get(name)) for name in ("credits", "computed", "reported")},
        "is_reported": get("reported").is_valid(),
        "team": pc.fill_null(pc.map_lookup(get("tags"), pa.scalar(by), "last"), NO_VALUE),
        "sent": get("time").cast(pa.int64()),
        "took": convert_to_millicredits(get("latency_ms")),
        "balance": get("balance_after").cast(pa.float64()),
    }
    calls = pa.table(columns).to_pandas()
    calls["ended"] = calls["sent"] + calls["took"]
    is_unknown, is_free = calls["credits_basis"] == "unknown", calls["credits"] == 0
    is_answered, is_cached = calls["status"].isin([DONE, SUSPECT]), calls["status"] == "cached"
    # If a call got no answer and its repeat was free, the first call was billed. It then counts as failed.
    is_repeated = calls["request_key"].isin(calls["request_key"][is_answered & is_free])
    which = [is_unknown & ~is_repeated, is_answered | is_cached | is_unknown, ~is_free]
    calls["line"] = np.select(which, [UNKNOWN_LINE, OURS_LINE, FAILED_LINE], "")
    return calls


def _make_own_lines(calls: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for team, of_team in calls[calls["line"] == OURS_LINE].groupby("team"):
        yield _make_line(OURS_LINE, of_team, team=team)
    if len(failed := calls[calls["line"] == FAILED_LINE]):
        yield _make_line(FAILED_LINE, failed)
    priced = calls[calls["is_reported"] & (calls["computed"] > 0)]
    computed, reported = priced["computed"].sum(), priced["reported"].sum()
    if computed != reported:
        remark = f"the service reported {reported / computed:.4g} times the computed price of these calls"
        yield _make_line("reported differs from computed", priced, credits=0, note=remark)


# -- the balances of a key ---------------------------------------------------------------------


def _make_balance_lines(calls: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield lines for other users of the key, another price, resets (rises of the balance), and wrong clocks.

    `calls` are the calls of one key.
    """
    resets = _find_resets(calls.dropna(subset="balance"))
    for reset in resets:
        when, rise = pd.Timestamp(reset.sent, unit="us"), reset.balance - reset.balance_before
        remark = f"the balance rose by at least {rise:,.0f} at {when:%Y-%m-%d %H:%M} UTC"
        yield _make_line("balance", note=f"{remark}, by a new cycle or a top-up")
    passed = 0 * calls["sent"]
    for reset in resets:
        passed += _is_after(reset, calls["sent"], calls["balance"])
    clocks: list[dict[str, Any]] = []
    for _, span in calls.groupby(passed):
        yield from _find_unexplained_fall(span)
        clocks += _find_clock_differences(span.dropna(subset="balance"))
    yield from clocks[:1]


def _find_rises(calls: Any, by: str | None = None) -> Any:
    """Pair each call with the last call that ended before it was sent. Return pairs whose balance rose.

    With `by`, both calls of a pair have the same value in this column.
    """
    before = calls.sort_values("ended")[["ended", "sent", "balance", "host"]]
    pairs = pd.merge_asof(
        calls.sort_values("sent"), before, left_on="sent", right_on="ended", by=by, suffixes=("", "_before")
    )
    return pairs[pairs["balance"] > pairs["balance_before"]]


def _find_resets(calls: pd.DataFrame) -> list[Any]:
    """Return, for each rise of the balance, the first call after it, paired with a call before it."""
    # The clocks of hosts may differ. So use only pairs of calls on one host, and pairs of calls that are
    # further apart than clocks may differ.
    late = _find_rises(calls)
    late = late[late["sent"] - late["ended_before"] > _MAX_CLOCK_DIFFERENCE_US]
    found: list[Any] = []
    for rise in pd.concat([_find_rises(calls, "host"), late]).sort_values("sent").itertuples():
        # Skip pairs of concurrent calls and of other hosts that show a rise that was found already.
        if not found or _is_after(found[-1], rise.sent_before, rise.balance_before):
            found.append(rise)
    return found


def _is_after(reset: Any, sent: Any, balance: Any) -> Any:
    """Return which calls were billed after a reset, a rise of the balance.

    For calls in flight at the same time as the first call after the reset, the balance decides.
    """
    return (sent >= reset.ended) | ((sent >= reset.sent) & (balance > reset.balance_before))


def _find_unexplained_fall(span: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a line if the balance fell by more than the cost of our calls.

    `span` contains calls between two resets, so the balance only falls. So a call with a higher balance was
    billed earlier, even if the clocks of hosts differ.
    """
    known = span.dropna(subset="balance").sort_values(["balance", "ended"], ascending=[False, True])
    if known.empty:
        return
    unknown = span[span["balance"].isna() & (span["sent"] >= known["sent"].iloc[0])]
    billed = (-MILLICREDITS_PER_CREDIT * known["balance"].diff()).iloc[1:]
    costs, is_reported = known["credits"].iloc[1:], known["is_reported"].iloc[1:]
    unexplained = round(billed.sum()) - int(costs.sum() + unknown["credits"].sum())
    # Smaller differences are rounding, because balances are whole characters.
    if unexplained < MILLICREDITS_PER_CREDIT:
        return
    is_clear = (costs >= _MIN_PRICED_COST) & ~is_reported
    ratios = billed[is_clear] / costs[is_clear]
    ratio = ratios.median()
    agree = (ratios - ratio).abs() <= _PRICE_MARGIN + MILLICREDITS_PER_CREDIT / costs[is_clear]
    if (
        len(ratios) >= _MIN_PRICED_CALLS
        and abs(ratio - 1) > _PRICE_MARGIN
        and agree.mean() >= _MIN_AGREEING_SHARE
    ):
        remark = f"the balance fell by {ratio:.3g} times the computed price of each call"
        yield _make_line(PRICE_LINE, credits=unexplained, note=remark)
    else:
        yield _make_line(
            OTHERS_LINE, credits=unexplained, note="the balance fell by more than our calls cost"
        )


def _find_clock_differences(calls: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a line that names hosts whose clocks differ, and the difference if it is at least a minute."""
    odd = _find_rises(calls)
    odd = odd[odd["host"] != odd["host_before"]]
    if odd.empty:
        return
    # Sort calls by balance, which is the order of billing. Where the host changes between two calls, the
    # difference of their times is the passed time plus the difference of the clocks.
    order: Any = calls.sort_values("balance", ascending=False, kind="stable")
    passed = order["ended"].diff()[order["host"] != order["host"].shift()].groupby(order["host"]).median()
    minutes = (passed.max() - passed.min()) / 2 / 60e6
    hosts = " and ".join(sorted({*odd["host"], *odd["host_before"]}))
    by = f" by about {minutes:,.0f} minutes" if minutes >= 1 else ""
    yield _make_line(
        "clocks", note=f"the clocks of {hosts} differ{by}, so days and hours of calls are not comparable"
    )


# -- reports -------------------------------------------------------------------------------------


def _read_report(path: Path, zone: ZoneInfo) -> pd.DataFrame:
    """Return a CSV report as a DataFrame with ``date``, ``operation`` and ``reported``.

    ``date`` is the day in `zone`, ``operation`` may be empty, and ``reported`` is in thousandths of a credit.
    """
    found = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="more")
            if missing := {"date", "credits"} - {*(reader.fieldnames or ())}:
                raise AnalysisError(
                    f"{path} lacks the column {' and '.join(sorted(missing))}; a report needs date and "
                    "credits, and may have operation"
                )
            for row in reader:
                try:
                    day = parse_moment((row["date"] or "").strip(), zone).astimezone(zone).date()
                    # The reader splits an unquoted 1,204 into two fields. Join them, so that it is refused.
                    credits = ",".join([str(row["credits"]), *row.get("more", [])])
                    found.append((day, (row.get("operation") or "").strip(), convert_to_thousandths(credits)))
                except (ValueError, AnalysisError) as error:
                    raise AnalysisError(
                        f"{path}, line {reader.line_num}: {error}; a line needs a date such as 2026-11-25 "
                        "and a number of credits"
                    ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnalysisError(f"{path} cannot be read: {error}") from error
    return pd.DataFrame(found, columns=["date", "operation", "reported"])


def _is_inside(days: Any, first: Any, last: Any, tz: str) -> Any:
    """Return for each day whether it overlaps the window."""
    zone = ZoneInfo(tz)
    return days.between(first.astimezone(zone).date(), (last - timedelta.resolution).astimezone(zone).date())


def _sum_days(calls: pd.DataFrame, report: pd.DataFrame, tz: str) -> pd.DataFrame:
    days = pd.to_datetime(calls["sent"], unit="us", utc=True).dt.tz_convert(tz).dt.date
    names = ["date", "operation"] if report["operation"].any() else ["date"]
    amounts = {
        "reported": report.groupby(names)["reported"].sum(),
        "ours": calls.assign(date=days).groupby(names)["credits"].sum(),
    }
    frame = pd.DataFrame(amounts).fillna(0).sort_index()
    frame["difference"] = frame["reported"] - frame["ours"]
    return (frame / MILLICREDITS_PER_CREDIT).reset_index()
