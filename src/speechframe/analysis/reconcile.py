"""Whether a bill agrees with the ledger: a bridge from what runs have spent to what the service reports.

Amounts are whole thousandths of a credit until they are shown, so the lines of a bridge add up exactly.
"""

import csv
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.analysis.ledger import Ledgers, open_ledgers, shown_window, window
from speechframe.errors import AnalysisError
from speechframe.settings import fingerprint
from speechframe.spec.billing import CREDIT, to_credits
from speechframe.store.schema import DONE, LEDGER, SUSPECT

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

NONE = "(none)"
OURS, FAILED, UNKNOWN = "ours", "billed but failed", "charged_unknown"
OTHERS, PRICE, UNEXPLAINED = "other users of the key", "billed at another price", "unexplained"
_ANSWERED = (DONE, SUSPECT, "cached")
_COLUMNS = (
    "time", "run_id", "request_key", "attempt", "operation", "voice_id", "locale", "status", "credits",
    "credits_basis", "computed", "reported", "balance_after", "latency_ms", "error_code", "trace_id", "user",
    "host", "key_fingerprint", "tags",
)  # fmt: skip
_PRICED_ROWS, _PRICED_SHARE, _PRICE_MARGIN, _LEAST_COST = 10, 0.8, 0.02, 10 * CREDIT
"""A price is told by at least so many calls, of which this share agree within the margin; by those that
cost enough, for balances are whole characters."""

Millis = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(eq=False)
class Bridge:
    """What leads from the ledger to the amount that the service reports; made by :func:`reconcile`.

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

    lines: "pd.DataFrame"
    days: "pd.DataFrame | None"
    heading: str
    _table: pa.Table = field(repr=False)
    _kinds: npt.NDArray[np.str_] = field(repr=False)
    _teams: npt.NDArray[np.object_] = field(repr=False)

    def rows(self, line: str, team: str | None = None) -> "pd.DataFrame":
        """Return the rows of the ledger behind a line, of one team where it is given.

        Raises
        ------
        AnalysisError
            For a line that no rows of the ledger stand behind.
        """
        if line not in {OURS, FAILED, UNKNOWN}:
            raise AnalysisError(f"no rows stand behind {line!r}; they do behind {OURS}, {FAILED}, {UNKNOWN}")
        chosen = (self._kinds == line) & (True if team is None else self._teams == team)
        found: pd.DataFrame = self._table.filter(pa.array(chosen)).to_pandas(maps_as_pydicts="strict")
        return found

    def __repr__(self) -> str:
        """Return the lines as a table, below its window."""
        return f"{self.heading}\n{self.lines.to_string(index=False, na_rep='')}"

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
    """Return what leads from the ledger to the amount that the service has billed.

    Parameters
    ----------
    reported
        Credits, or the path of a CSV with the columns ``date``, ``credits`` and perhaps ``operation``.
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
    by_day = None if isinstance(reported, (int, float, Decimal)) else _read_report(Path(reported))
    total = _millis(reported) if by_day is None else sum(by_day.values())
    ledgers = open_ledgers(source)
    schema = pa.schema([LEDGER.field(name) for name in _COLUMNS])
    table = pa.Table.from_batches(ledgers.batches(_COLUMNS, first, last), schema).sort_by("time")
    table, keys = _of_key(table, key, f"from {start} to {end} ({tz})")
    rows = _Rows.of(table, by)
    lines = [*_ours(rows)]
    unknown = int(rows.millis[rows.kinds == UNKNOWN].sum())
    found = [line for name in keys for line in _balance_lines(rows, rows.keys == name)]
    if len(keys) > 1:
        words = f"{len(keys)} keys count: {', '.join(keys)}; key= takes one"
        found.append(_Line("keys", 0, note=words))
    known = sum(line.millis for line in (*lines, *found))
    left = max(0, min(unknown, total - known))
    is_unknown = rows.kinds == UNKNOWN
    if is_unknown.any():
        lines.append(_Line.of(UNKNOWN, rows, is_unknown, millis=left, low=0, high=unknown))
    lines += found
    lines.append(_Line(UNEXPLAINED, total - known - left))
    days = None if by_day is None else _days(rows, by_day, tz)
    if days is not None and len(rows.millis) and not (days["reported"] * days["ours"]).any():
        lines.append(_Line("report", 0, note="no day of the report has calls of ours: is it of another key?"))
    return Bridge(_frame(lines), days, _heading(ledgers, start, end, tz), table, rows.kinds, rows.teams)


@dataclass
class _Line:
    line: str
    millis: int
    team: str | None = None
    rows: int | None = None
    computed: int | None = None
    reported: int | None = None
    low: int | None = None
    high: int | None = None
    note: str = ""

    @classmethod
    def of(cls, line: str, rows: "_Rows", chosen: Mask, **more: Any) -> "_Line":
        sums = {name: int(getattr(rows, name)[chosen].sum()) for name in ("millis", "computed", "reported")}
        if not rows.is_reported[chosen].any():
            sums.pop("reported")
        return cls(line, rows=int(chosen.sum()), **{**sums, **more})


@dataclass
class _Rows:
    """The columns of the ledger that a bridge needs, and the line each row belongs to."""

    millis: Millis
    computed: Millis
    reported: Millis
    is_reported: Mask
    kinds: npt.NDArray[np.str_]
    teams: npt.NDArray[np.object_]
    keys: npt.NDArray[np.object_]
    hosts: npt.NDArray[np.object_]
    sent: Millis  # microseconds since 1970
    ended: Millis
    balance: npt.NDArray[np.float64]  # in credits; NaN where the answer told none
    times: Any
    operations: npt.NDArray[np.object_]

    @classmethod
    def of(cls, table: Any, by: str) -> "_Rows":
        teams = pc.map_lookup(table.column("tags"), pa.scalar(by), "last")
        status, basis, calls = map(table.column, ("status", "credits_basis", "request_key"))
        millis = _column_millis(table, "credits")
        answered = _mask(pc.is_in(status, pa.array(_ANSWERED)))
        # A lost call whose free repeat brought the answer was billed, once.
        is_cached = _mask(pc.equal(status, pa.scalar("cached")))
        repeated = table.filter(pa.array(answered & (millis == 0) & ~is_cached))
        is_repeated = _mask(pc.is_in(calls, repeated.column("request_key").combine_chunks()))
        unknown = _mask(pc.equal(basis, pa.scalar("unknown"))) & ~is_repeated
        ours = answered | (_mask(pc.equal(basis, pa.scalar("unknown"))) & is_repeated)
        kinds = np.where(unknown, UNKNOWN, np.where(ours, OURS, np.where(millis != 0, FAILED, "")))
        sent = table.column("time").cast(pa.int64()).to_numpy()
        latency = np.nan_to_num(table.column("latency_ms").to_numpy())
        return cls(
            millis=millis,
            computed=_column_millis(table, "computed"),
            reported=_column_millis(table, "reported"),
            is_reported=table.column("reported").is_valid().to_numpy(),
            kinds=kinds,
            teams=_texts(teams),
            keys=_texts(table.column("key_fingerprint")),
            hosts=_texts(table.column("host")),
            sent=sent,
            ended=sent + (1000 * latency).astype(np.int64),
            balance=table.column("balance_after").cast(pa.float64()).to_numpy(),
            times=table.column("time"),
            operations=_texts(table.column("operation")),
        )


def _ours(rows: _Rows) -> Iterator[_Line]:
    for team in sorted({*rows.teams[rows.kinds == OURS]}):
        yield _Line.of(OURS, rows, (rows.kinds == OURS) & (rows.teams == team), team=team)
    if (failed := rows.kinds == FAILED).any():
        yield _Line.of(FAILED, rows, failed)
    told = rows.is_reported & (rows.computed > 0)
    computed, reported = int(rows.computed[told].sum()), int(rows.reported[told].sum())
    if computed != reported:
        words = f"the service reported {reported / computed:.4g} times what was computed for these calls"
        yield _Line.of("reported differs from computed", rows, told, millis=0, note=words)


# -- what the balance tells ---------------------------------------------------------------


def _balance_lines(rows: _Rows, of_key: Mask) -> Iterator[_Line]:
    """Yield what the balances of a key tell: what others used, another price, resets, clocks that differ."""
    told = of_key & ~np.isnan(rows.balance)
    resets = _resets(rows, told)
    for at, amount in resets:
        when = pa.scalar(int(at), pa.timestamp("us", tz="UTC")).as_py()
        words = (
            f"the balance went up by {amount:,.0f} or more at {when:%Y-%m-%d %H:%M} UTC: new cycle or top-up"
        )
        yield _Line("balance", 0, note=words)
    edges = [np.iinfo(np.int64).min, *(at for at, _ in resets), np.iinfo(np.int64).max]
    others = _Line(OTHERS, 0, note="the balance fell by more than our calls cost")
    price, clocks = _Line(PRICE, 0), ""
    for low, high in itertools.pairwise(edges):
        span = of_key & (rows.sent >= low) & (rows.sent < high)
        more, ratio = _beyond_ours(rows, span)
        (others if ratio is None else price).millis += more
        if ratio is not None:
            price.note = f"the balance fell by {ratio:.3g} times what was computed for each call"
        clocks = clocks or _clocks(rows, span & told)
    yield from (line for line in (price, others) if line.millis)
    if clocks:
        yield _Line("clocks", 0, note=clocks)


def _resets(rows: _Rows, told: Mask) -> list[tuple[int, float]]:
    """Return when the balance went up, in microseconds, and by how much: as seen by one host at a time."""
    found: list[tuple[int, int, float]] = []
    for host in {*rows.hosts[told]}:
        places = np.flatnonzero(told & (rows.hosts == host))
        places = places[np.argsort(rows.ended[places], kind="stable")]
        while (rise := _first_rise(rows, places)) is not None:
            lowest, at = places[rise[0]], places[rise[1]]
            amount = float(rows.balance[at] - rows.balance[lowest])
            found.append((int(rows.ended[lowest]), int(rows.sent[at]), amount))
            places = places[rows.sent[places] >= rows.sent[at]]
    # Two hosts see one reset each at its own time, within overlapping gaps.
    merged: list[tuple[int, int, float]] = []
    for low, high, amount in sorted(found):
        if merged and low <= merged[-1][1]:
            merged[-1] = low, min(high, merged[-1][1]), max(amount, merged[-1][2])
        else:
            merged.append((low, high, amount))
    return [(high, amount) for _, high, amount in merged]


def _first_rise(rows: _Rows, places: Millis) -> tuple[int, int] | None:
    """Return where the balance was lowest before it went up, and where it was first seen higher.

    A call that overlaps in time with the one of the lowest balance may have been billed before it.
    """
    balance = rows.balance[places]
    if len(balance) == 0:
        return None
    lowest = np.minimum.accumulate(balance)
    is_new = np.r_[True, balance[1:] < lowest[:-1]]
    where = np.maximum.accumulate(np.where(is_new, np.arange(len(balance)), 0))
    is_rise = (balance > lowest) & (rows.sent[places] >= rows.ended[places][where])
    at = int(np.argmax(is_rise))
    return (int(where[at]), at) if is_rise[at] else None


def _beyond_ours(rows: _Rows, span: Mask) -> tuple[int, float | None]:
    """Return what the balance fell by beyond our calls within a span without a reset, and why.

    The balance only falls there, so that of two calls the one with the higher balance was billed first,
    whatever clocks say. With a ratio the calls themselves cost so many times more than was computed; without
    one others used the rest.
    """
    places = np.flatnonzero(span & ~np.isnan(rows.balance))
    if len(places) < 2:  # noqa: PLR2004 - a fall needs two balances
        return 0, None
    places = places[np.lexsort((rows.ended[places], -rows.balance[places]))]
    first = places[0]
    silent = span & np.isnan(rows.balance) & (rows.sent >= rows.sent[first])
    drop = round(CREDIT * float(rows.balance[first] - rows.balance[places[-1]]))
    more = drop - int(rows.millis[places[1:]].sum()) - int(rows.millis[silent].sum())
    if more < CREDIT:  # balances are whole characters
        return 0, None
    drops = -CREDIT * np.diff(rows.balance[places])
    costs = rows.millis[places[1:]]
    telling = (costs >= _LEAST_COST) & ~rows.is_reported[places[1:]]
    ratios = drops[telling] / costs[telling]
    if len(ratios) >= _PRICED_ROWS:
        ratio = float(np.median(ratios))
        agree = np.abs(ratios - ratio) <= _PRICE_MARGIN + CREDIT / costs[telling]
        if abs(ratio - 1) > _PRICE_MARGIN and agree.mean() >= _PRICED_SHARE:
            return more, ratio
    return more, None


def _clocks(rows: _Rows, told: Mask) -> str:
    """Return which two hosts disagree about the time, and by how much; nothing where none do."""
    places = np.flatnonzero(told)
    places = places[np.argsort(rows.ended[places], kind="stable")]
    rise = _first_rise(rows, places)
    if rise is None:
        return ""
    one, other = (str(rows.hosts[places[at]]) for at in rise)
    order = places[np.argsort(-rows.balance[places], kind="stable")]
    # In the order of billing, the time between two neighbours is what passed, more or less the difference.
    steps, before, after = np.diff(rows.ended[order]), rows.hosts[order[:-1]], rows.hosts[order[1:]]
    forth = steps[(before == one) & (after == other)]
    back = steps[(before == other) & (after == one)]
    differ_s = abs(np.median(forth) - np.median(back)) / 2e6 if len(forth) and len(back) else 0.0
    by = f" by about {differ_s / 60:,.0f} minutes" if differ_s else ""
    return f"the clocks of {one} and {other} differ{by}: days and hours of their calls are not comparable"


# -- reports, keys and frames -------------------------------------------------------------


def _of_key(table: Any, key: Any, words: str) -> tuple[Any, list[str]]:
    """Return the rows of a key, or all, and the fingerprints of the keys that have some."""
    column = table.column("key_fingerprint").fill_null(NONE)
    keys = sorted(column.unique().to_pylist())
    if key is None:
        return table, keys
    wanted = key if key in keys else fingerprint(key)
    if wanted not in keys:
        raise AnalysisError(
            f"the ledger has no call of this key {words}; it has calls of the keys with the fingerprints "
            f"{', '.join(keys) or '(none)'}: is the report of another key, or are its runs elsewhere?"
        )
    return table.filter(pc.equal(column, pa.scalar(wanted))), [wanted]


def _read_report(path: Path) -> dict[tuple[date, str], int]:
    """Return thousandths of a credit by day and operation (empty where the report has none)."""
    found: dict[tuple[date, str], int] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            if missing := {"date", "credits"} - {*(reader.fieldnames or ())}:
                raise AnalysisError(
                    f"{path} has no column {' and '.join(sorted(missing))}; a report has date, credits and "
                    "perhaps operation"
                )
            for row in reader:
                try:
                    day = date.fromisoformat((row["date"] or "").strip()[:10])
                    place = day, (row.get("operation") or "").strip()
                    found[place] = found.get(place, 0) + _millis((row["credits"] or "").strip())
                except ValueError as error:
                    raise AnalysisError(
                        f"{path}, line {reader.line_num}: {error}; a line has a date such as 2026-11-25 and "
                        "a number of credits"
                    ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise AnalysisError(f"{path} cannot be read: {error}") from error
    return found


def _millis(credits: Any) -> int:
    try:
        amount = Decimal(str(credits)) * CREDIT
        return int(amount.to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        raise ValueError(f"{credits!r} is no number of credits") from None


def _days(rows: _Rows, by_day: Mapping[tuple[date, str], int], tz: str) -> "pd.DataFrame":
    import pandas as pd

    local: Any = pc.assume_timezone(pc.local_timestamp(rows.times.cast(pa.timestamp("us", tz))), "UTC")
    days = local.cast(pa.timestamp("us")).cast(pa.date32(), safe=False).to_pylist()
    has_operations = any(operation for _, operation in by_day)
    ours: dict[tuple[date, str], int] = {}
    for day, operation, amount in zip(days, rows.operations, rows.millis.tolist(), strict=True):
        place = day, operation if has_operations else ""
        ours[place] = ours.get(place, 0) + amount
    lines = [
        (*place, to_credits(by_day.get(place, 0)), to_credits(ours.get(place, 0)),
         to_credits(by_day.get(place, 0) - ours.get(place, 0)))
        for place in sorted({*by_day, *ours})
    ]  # fmt: skip
    frame = pd.DataFrame(lines, columns=["date", "operation", "reported", "ours", "difference"])
    return frame if has_operations else frame.drop(columns="operation")


def _frame(lines: list[_Line]) -> "pd.DataFrame":
    import pandas as pd

    amounts = ("computed", "reported", "millis", "low", "high")
    found = [
        {
            "line": line.line,
            "team": line.team,
            "rows": line.rows,
            **{name: None if (n := getattr(line, name)) is None else to_credits(n) for name in amounts},
            "note": line.note,
        }
        for line in lines
    ]
    frame = pd.DataFrame(found).rename(columns={"millis": "credits"})
    amounts_of = {"credits": float, **dict.fromkeys(("computed", "reported", "low", "high"), float)}
    return frame.astype({"rows": "Int64", **amounts_of}).fillna({"team": ""})


def _heading(ledgers: Ledgers, start: Any, end: Any, tz: str) -> str:
    return f"{shown_window(start, end, tz)}; {ledgers.completeness()}"


def _mask(values: Any) -> Mask:
    found: Mask = pc.fill_null(values, False).to_numpy()
    return found


def _texts(values: Any) -> npt.NDArray[np.object_]:
    found: npt.NDArray[np.object_] = pc.fill_null(values, NONE).to_numpy()
    return found


def _column_millis(table: pa.Table, name: str) -> Millis:
    found: Millis = np.round(CREDIT * np.nan_to_num(table.column(name).to_numpy())).astype(np.int64)
    return found
