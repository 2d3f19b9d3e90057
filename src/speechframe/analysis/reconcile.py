"""Compare a bill with the ledger: a bridge from the spending of runs to the report of the service.

Amounts are whole thousandths of a credit until they are shown, so the lines of a bridge add up exactly.
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

from speechframe._words import counted, printable
from speechframe.analysis.ledger import (
    NONE,
    key_among,
    moment,
    open_ledgers,
    shown_window,
    thousandths,
    window,
)
from speechframe.errors import AnalysisError
from speechframe.spec.billing import CREDIT
from speechframe.store.ledger import millis
from speechframe.store.schema import DONE, LEDGER, SUSPECT

OURS, FAILED, UNKNOWN = "ours", "billed but failed", "charged_unknown"
OTHERS, PRICE, UNEXPLAINED = "other users of the key", "billed at another price", "unexplained"
_COLUMNS = (
    "time", "run_id", "request_key", "attempt", "operation", "voice_id", "locale", "status", "credits",
    "credits_basis", "computed", "reported", "balance_after", "latency_ms", "error_code", "trace_id", "user",
    "host", "key_fingerprint", "tags",
)  # fmt: skip
_AMOUNTS = ["computed", "reported", "credits", "low", "high"]
_PRICED_ROWS, _PRICED_SHARE, _PRICE_MARGIN, _LEAST_COST = 10, 0.8, 0.02, 10 * CREDIT
"""Least number of calls that show another price, the share of them that must agree, and within which margin.
Only calls of at least this cost count, because balances are whole characters."""
_MOST_APART_US = 12 * 3600 * 10**6
"""No two clocks differ by more: a balance that was lower so long before went up meanwhile."""


@dataclass(eq=False)
class Bridge:
    """The lines from the ledger to the amount that the service reports. Made by :func:`reconcile`.

    Attributes
    ----------
    lines
        One line each for ours by team, billed but failed, charged_unknown, other users, what else was found,
        and what stays unexplained; columns ``line``, ``team``, ``rows``, ``computed``, ``reported``,
        ``credits``, ``low``, ``high``, ``note``. Its ``credits`` add up to the amount reported.
    days
        Of a CSV: ``date``, ``operation`` where it has one, ``reported`` by the service, ``ours`` and
        ``difference``, in credits. None for a number.
    heading
        The window, its time zone, and until when the ledger is complete.
    """

    lines: pd.DataFrame
    days: pd.DataFrame | None
    heading: str
    _table: pa.Table = field(repr=False)
    _calls: pd.DataFrame = field(repr=False)

    def rows(self, line: str, team: str | None = None) -> pd.DataFrame:
        """Return the rows of the ledger behind a line, of one team where it is given.

        Raises
        ------
        AnalysisError
            For a line that no rows of the ledger stand behind.
        """
        if line not in {OURS, FAILED, UNKNOWN}:
            raise AnalysisError(f"no rows stand behind {line!r}; they do behind {OURS}, {FAILED}, {UNKNOWN}")
        chosen: Any = (self._calls["line"] == line) & (team is None or self._calls["team"] == team)
        found: pd.DataFrame = self._table.filter(pa.array(chosen)).to_pandas(maps_as_pydicts="strict")
        return found

    def __repr__(self) -> str:
        """Return the lines as a table, below its window."""
        return printable(f"{self.heading}\n{self.lines.to_string(index=False, na_rep='')}")

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
    """Return the lines from the ledger to the amount that the service has billed.

    Parameters
    ----------
    reported
        Credits, or the path of a CSV with the columns ``date``, ``credits`` and perhaps ``operation``. A text
        that is a number, such as ``"1_204_331"``, is one. A date may have a time, and a time an offset.
    start, end
        The window, as dates or times; `end` is not in it.
    key
        Of a ledger with several keys: the one that the report is of, or its fingerprint.
    tz
        Time zone of the window and of the report's days.
    source
        As for :func:`usage`; by default the ledger folder of all runs.
    by
        The tag that tells teams apart.

    Returns
    -------
    Bridge
        Calls that got no answer count with as much of the remainder as they can have cost. What others used
        is seen where the balance fell by more than our own calls cost between the first and the last of them.

    Raises
    ------
    AnalysisError
        For a report that cannot be read, or a key that has no calls in the window.

    Examples
    --------
    >>> reconcile(1_204_331, start="2026-11-01", end="2026-12-01")  # doctest: +SKIP
    """
    first, last = window(start, end, tz)
    report, found = None, []
    try:
        total = thousandths(reported)
    except AnalysisError:
        if not isinstance(reported, (str, PathLike)):
            raise
        report = _read_report(Path(reported), ZoneInfo(tz))
        is_inside = _is_inside(report["date"], first, last, tz)
        if others := int((~is_inside).sum()):
            found.append(
                _line("report", note=f"{counted(others, 'line')} outside of the window, which do not count")
            )
        report = report[is_inside]
        total = int(report["reported"].sum())
    ledgers = open_ledgers(source)
    schema = pa.schema([LEDGER.field(name) for name in _COLUMNS])
    table = pa.Table.from_batches(ledgers.batches(_COLUMNS, first, last), schema).sort_by("time")
    if key is not None:
        column = table.column("key_fingerprint")
        table = table.filter(pc.equal(column, pa.scalar(key_among(column, key))))
    calls = _calls(table, by)
    keys: Any = calls.groupby("key_fingerprint")
    lines = [*_ours(calls)]
    found += [line for _, of_key in keys for line in _balance_lines(of_key)]
    if len(keys) > 1:
        found.append(_line("keys", note=f"{len(keys)} keys count: {', '.join(keys.groups)}; key= takes one"))
    days = None if report is None else _days(calls, report, tz)
    if days is not None and len(calls) and not (days["reported"] * days["ours"]).any():
        found.append(_line("report", note="no day of the report has calls of ours: is it of another key?"))
    left = total - sum(line["credits"] for line in (*lines, *found))
    if len(unknown := calls[calls["line"] == UNKNOWN]):
        high = int(unknown["credits"].sum())
        billed = max(0, min(high, left))
        lines.append(_line(UNKNOWN, unknown, credits=billed, low=0, high=high))
        left -= billed
    lines += [*found, _line(UNEXPLAINED, credits=left)]
    frame = pd.DataFrame(lines, columns=["line", "team", "rows", *_AMOUNTS, "note"])
    frame[_AMOUNTS] = frame[_AMOUNTS].astype(float) / CREDIT
    frame = frame.astype({"rows": "Int64"})
    return Bridge(frame, days, f"{shown_window(start, end, tz)}; {ledgers.completeness()}", table, calls)


def _line(name: str, calls: Any = None, **more: Any) -> dict[str, Any]:
    """Return a line of a bridge, with the sums of the calls behind it."""
    line: dict[str, Any] = {"line": name, "team": "", "credits": 0, "note": ""}
    if calls is not None:
        line |= {"rows": len(calls), **{name: int(calls[name].sum()) for name in ("credits", "computed")}}
        line["reported"] = int(calls["reported"].sum()) if calls["is_reported"].any() else None
    return line | more


def _calls(table: Any, by: str) -> pd.DataFrame:
    """Return the columns of attempts for a bridge, and the line of each. Times are in microseconds."""
    get = table.column
    columns: dict[str, Any] = {
        **{name: pc.fill_null(get(name), NONE) for name in ("operation", "host", "key_fingerprint")},
        **{name: get(name) for name in ("request_key", "status", "credits_basis")},
        **{name: millis(get(name)) for name in ("credits", "computed", "reported")},
        "is_reported": get("reported").is_valid(),
        "team": pc.fill_null(pc.map_lookup(get("tags"), pa.scalar(by), "last"), NONE),
        "sent": get("time").cast(pa.int64()),
        "took": millis(get("latency_ms")),
        "balance": get("balance_after").cast(pa.float64()),
    }
    calls = pa.table(columns).to_pandas()
    calls["ended"] = calls["sent"] + calls["took"]
    is_unknown, is_free = calls["credits_basis"] == "unknown", calls["credits"] == 0
    is_answered, is_cached = calls["status"].isin([DONE, SUSPECT]), calls["status"] == "cached"
    # A lost call whose free repeat brought the answer was billed, once.
    is_repeated = calls["request_key"].isin(calls["request_key"][is_answered & is_free])
    which = [is_unknown & ~is_repeated, is_answered | is_cached | is_unknown, ~is_free]
    calls["line"] = np.select(which, [UNKNOWN, OURS, FAILED], "")
    return calls


def _ours(calls: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for team, of_team in calls[calls["line"] == OURS].groupby("team"):
        yield _line(OURS, of_team, team=team)
    if len(failed := calls[calls["line"] == FAILED]):
        yield _line(FAILED, failed)
    told = calls[calls["is_reported"] & (calls["computed"] > 0)]
    computed, reported = told["computed"].sum(), told["reported"].sum()
    if computed != reported:
        words = f"the service reported {reported / computed:.4g} times what was computed for these calls"
        yield _line("reported differs from computed", told, credits=0, note=words)


# -- the balances of a key ---------------------------------------------------------------------


def _balance_lines(calls: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield lines for other users, another price, resets, and clocks that differ."""
    resets = _resets(calls.dropna(subset="balance"))
    for reset in resets:
        when, rise = pd.Timestamp(reset.sent, unit="us"), reset.balance - reset.balance_before
        words = f"the balance went up by {rise:,.0f} or more at {when:%Y-%m-%d %H:%M} UTC"
        yield _line("balance", note=f"{words}: new cycle or top-up")
    passed = 0 * calls["sent"]
    for reset in resets:
        passed += _is_after(reset, calls["sent"], calls["balance"])
    clocks: list[dict[str, Any]] = []
    for _, span in calls.groupby(passed):
        yield from _beyond_ours(span)
        clocks += _clocks(span.dropna(subset="balance"))
    yield from clocks[:1]


def _pairs(told: Any, by: str | None = None) -> Any:
    """Return each answer beside the last one that came before it was sent, so was billed before it."""
    before = told.sort_values("ended")[["ended", "sent", "balance", "host"]]
    pairs = pd.merge_asof(
        told.sort_values("sent"), before, left_on="sent", right_on="ended", by=by, suffixes=("", "_before")
    )
    return pairs[pairs["balance"] > pairs["balance_before"]]


def _resets(told: pd.DataFrame) -> list[Any]:
    """Return the first answer after each rise of the balance, beside one before it."""
    # Clocks of hosts may differ. So count a rise that one host sees, or one too late for any clock.
    late = _pairs(told)
    late = late[late["sent"] - late["ended_before"] > _MOST_APART_US]
    found: list[Any] = []
    for rise in pd.concat([_pairs(told, "host"), late]).sort_values("sent").itertuples():
        # Others, under way at the same time or of other hosts, see the same one.
        if not found or _is_after(found[-1], rise.sent_before, rise.balance_before):
            found.append(rise)
    return found


def _is_after(reset: Any, sent: Any, balance: Any) -> Any:
    """Return which calls were billed after a reset. Balances decide while its first answer was under way."""
    return (sent >= reset.ended) | ((sent >= reset.sent) & (balance > reset.balance_before))


def _beyond_ours(span: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the fall of the balance beyond our calls, within a span without a reset.

    The balance only falls there. So of two calls the one with the higher balance was billed first, even if
    clocks differ.
    """
    told = span.dropna(subset="balance").sort_values(["balance", "ended"], ascending=[False, True])
    if told.empty:
        return
    silent = span[span["balance"].isna() & (span["sent"] >= told["sent"].iloc[0])]
    billed = (-CREDIT * told["balance"].diff()).iloc[1:]
    costs, is_reported = told["credits"].iloc[1:], told["is_reported"].iloc[1:]
    more = round(billed.sum()) - int(costs.sum() + silent["credits"].sum())
    if more < CREDIT:  # balances are whole characters
        return
    telling = (costs >= _LEAST_COST) & ~is_reported
    ratios = billed[telling] / costs[telling]
    ratio = ratios.median()
    agree = (ratios - ratio).abs() <= _PRICE_MARGIN + CREDIT / costs[telling]
    if len(ratios) >= _PRICED_ROWS and abs(ratio - 1) > _PRICE_MARGIN and agree.mean() >= _PRICED_SHARE:
        words = f"the balance fell by {ratio:.3g} times what was computed for each call"
        yield _line(PRICE, credits=more, note=words)
    else:
        yield _line(OTHERS, credits=more, note="the balance fell by more than our calls cost")


def _clocks(told: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a line about hosts that disagree about the time, and by how much."""
    odd = _pairs(told)
    odd = odd[odd["host"] != odd["host_before"]]
    if odd.empty:
        return
    # In the order of billing, the time between two hosts is the time that passed plus the difference.
    order: Any = told.sort_values("balance", ascending=False, kind="stable")
    passed = order["ended"].diff()[order["host"] != order["host"].shift()].groupby(order["host"]).median()
    minutes = (passed.max() - passed.min()) / 2 / 60e6
    hosts = " and ".join(sorted({*odd["host"], *odd["host_before"]}))
    by = f" by about {minutes:,.0f} minutes" if minutes >= 1 else ""
    yield _line(
        "clocks", note=f"the clocks of {hosts} differ{by}: days and hours of their calls are not comparable"
    )


# -- reports -------------------------------------------------------------------------------------


def _read_report(path: Path, zone: ZoneInfo) -> pd.DataFrame:
    """Return the thousandths of each line, its day in `zone`, and its operation (empty if it has none)."""
    found = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="more")
            if missing := {"date", "credits"} - {*(reader.fieldnames or ())}:
                raise AnalysisError(
                    f"{path} has no column {' and '.join(sorted(missing))}; a report has date, credits and "
                    "perhaps operation"
                )
            for row in reader:
                try:
                    day = moment((row["date"] or "").strip(), zone).astimezone(zone).date()
                    # 1,204 without quotes are two fields.
                    credits = ",".join([str(row["credits"]), *row.get("more", [])])
                    found.append((day, (row.get("operation") or "").strip(), thousandths(credits)))
                except (ValueError, AnalysisError) as error:
                    raise AnalysisError(
                        f"{path}, line {reader.line_num}: {error}; a line has a date such as 2026-11-25 and "
                        "a number of credits"
                    ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnalysisError(f"{path} cannot be read: {error}") from error
    return pd.DataFrame(found, columns=["date", "operation", "reported"])


def _is_inside(days: Any, first: Any, last: Any, tz: str) -> Any:
    """Return which days have a part in the window."""
    zone = ZoneInfo(tz)
    return days.between(first.astimezone(zone).date(), (last - timedelta.resolution).astimezone(zone).date())


def _days(calls: pd.DataFrame, report: pd.DataFrame, tz: str) -> pd.DataFrame:
    days = pd.to_datetime(calls["sent"], unit="us", utc=True).dt.tz_convert(tz).dt.date
    names = ["date", "operation"] if report["operation"].any() else ["date"]
    amounts = {
        "reported": report.groupby(names)["reported"].sum(),
        "ours": calls.assign(date=days).groupby(names)["credits"].sum(),
    }
    frame = pd.DataFrame(amounts).fillna(0).sort_index()
    frame["difference"] = frame["reported"] - frame["ours"]
    return (frame / CREDIT).reset_index()
