"""What runs have spent, on what, and what came of it: sums over any number of ledgers.

Batches are summed as they are read, so memory does not grow with the ledger; amounts are whole thousandths of
a credit until they are shown, so every grouping adds up to the same total.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.analysis._libraries import axes
from speechframe.analysis.ledger import Ledgers, open_ledgers, shown_window, window
from speechframe.errors import AnalysisError, nearest
from speechframe.settings.prices import Prices, prices_in_force
from speechframe.spec.billing import CREDIT, MOST_CREDITS
from speechframe.spec.codes import HttpErrorCode, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUPS = {
    "run": "run_id", "operation": "operation", "model": "model", "locale": "locale", "voice": "voice_id",
    "user": "user", "host": "host", "status": "status", "lane": "lane", "service": "service",
    "key": "key_fingerprint",
}  # fmt: skip
"""What `group_by` calls a column of the ledger."""

# Okabe and Ito's colours, told apart by everyone; when they are used up, hatches do.
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_HATCHES = ("", "//", "xx")
TAG, NONE = "tag:", "(none)"
COUNTS = ("attempts", "answered", "cached", "retries", "refusals", "failed", "odd")
AMOUNTS = (
    "credits", "computed", "reported", "charged_unknown", "undelivered", "suspect", "retakes", "wasted",
    "saved",
)  # fmt: skip
_FACTS = ("status", "credits_basis", "error_code", "operation", "service")
_SUMS = ("rows", "odd", "credits", "computed", "reported", "saved", "characters", "audio_millis")
_COLUMNS = (
    "time",
    "take",
    "credits",
    "computed",
    "reported",
    "saved",
    "characters",
    "audio_seconds",
    *_FACTS,
)
_NO_TAKE = pa.scalar(0, pa.int32())
_QUARTER_US = 15 * 60 * 1_000_000
_ROWS_AT_ONCE, _SUMS_KEPT = 64_000, 50
_LIMITS = (Status.TOO_MANY_REQUESTS, Status.SERVICE_UNAVAILABLE)
_REFUSED = tuple(
    [code.value for code in HttpErrorCode if code.status in _LIMITS] + ["RateLimited", "Unavailable"]
)
"""Codes of the service for refusals because of a limit, and the errors of answers without a code."""
_UNITS = {"h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}


class UsageTable(pd.DataFrame):
    """A table of :func:`usage`, which says below itself what it covers."""

    _metadata = ("covers",)
    covers: str = ""

    @property
    def _constructor(self) -> type["UsageTable"]:
        return UsageTable

    def __repr__(self) -> str:
        """Return the table, and what it covers."""
        return f"{super().__repr__()}\n{self.covers}"

    def _repr_html_(self) -> str:
        from html import escape

        table: Any = pd.DataFrame(self)
        return f"{table._repr_html_()}<p>{escape(self.covers)}</p>"


def usage(
    source: Any = None,
    group_by: str | Sequence[str] = (),
    every: str | None = "1d",
    tz: str = "UTC",
    start: Any = None,
    end: Any = None,
) -> UsageTable:
    """Return what runs have spent, and what came of it.

    Parameters
    ----------
    source
        A run, the folder of one, a ledger folder, or a list of such; by default the ledger folder of all
        runs (``SPEECHFRAME_LEDGER``).
    group_by
        ``run``, ``operation``, ``model``, ``locale``, ``voice``, ``user``, ``host``, ``status``, ``lane``,
        ``service``, ``key`` (its fingerprint) and ``tag:NAME``. What has no such tag counts under ``(none)``.
    every
        A line for each ``"1h"``, ``"1d"``, ``"1w"``, ``"1mo"`` or ``"1y"``; None for all time in one.
    tz
        Time zone of days and of `start` and `end`.
    start, end
        The window, as dates or times; `end` is not in it.

    Returns
    -------
    UsageTable
        A DataFrame. Counts: ``attempts``, ``answered`` and ``cached`` rows, ``retries`` (attempts that were
        made again), ``refusals`` (those because of a limit), ``failed`` calls, ``odd`` (attempts without an
        amount). Credits: ``credits`` (billed, as far as is known), ``computed``, ``reported``;
        ``charged_unknown`` (in ``credits``: of attempts that were lost, so not billed perhaps, unless a free
        repeat brought the answer); ``undelivered`` (billed without an answer), ``suspect`` (billed for an
        answer that is not as it should be), ``retakes`` (good further takes), and ``wasted``, their sum;
        ``saved`` by shared calls and the cache. ``characters``, ``audio_seconds``, ``credits_per_minute`` of
        audio, ``money``, ``currency`` and ``price_from``.

    Raises
    ------
    AnalysisError
        For an unknown group, time or zone.
    StoreError
        When a ledger cannot be read.

    Examples
    --------
    >>> usage(group_by="tag:team", every="1mo", tz="Europe/Berlin")  # doctest: +SKIP
    """
    names = [group_by] if isinstance(group_by, str) else [*dict.fromkeys(group_by)]
    step = _step(every)
    first, last = window(start, end, tz)
    ledgers = open_ledgers(source)
    prices = prices_in_force()
    wanted = [*dict.fromkeys([*_COLUMNS, *(_column_of(name, ledgers) for name in names)])]
    sums: list[Any] = []
    # Equal attempts of a day are summed; what their sums mean, and cost in money, is found afterwards.
    by = ["period", "day", "is_retake", *_FACTS, *(f"by {name}" for name in names)]
    for rows in _together(ledgers.batches(wanted, first, last)):
        sums.append(_summed(_figures(rows, names, step, tz), by))
        if len(sums) > _SUMS_KEPT:
            sums = [_summed(pa.concat_tables(sums), by)]
    found = _summed(pa.concat_tables(sums), by).to_pandas() if sums else _nothing(by)
    table = _table(found, names, prices, has_periods=step is not None)
    where = "all runs" if source is None else ledgers.places
    for name in names:
        if name.startswith(TAG) and len(table) and (table[name] == NONE).all():
            _check_tag(name, ledgers)
    table.covers = f"{shown_window(start, end, tz)}; {ledgers.completeness()}; {where}"
    return table


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Yield rows some ten thousand at a time: files of a ledger have few."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(held).combine_chunks()
            held = []
    if any(batch.num_rows for batch in held):
        yield pa.Table.from_batches(held).combine_chunks()


def _step(every: str | None) -> tuple[int, str] | None:
    if every is None:
        return None
    match = re.fullmatch(r"(\d*)(h|d|w|mo|y)", str(every))
    if match is None or match[1] == "0":
        raise AnalysisError(f"every={every!r}; allowed: 1h, 1d, 1w, 1mo, 1y, multiples of them, or None")
    return int(match[1] or 1), _UNITS[match[2]]


def _column_of(name: str, ledgers: Ledgers) -> str:
    if name.startswith(TAG):
        return "tags"
    if name not in GROUPS:
        tags = sorted({key for batch in ledgers.batches(["tags"]) for key in _tag_names(batch)})
        known = [*GROUPS, *(f"{TAG}{tag}" for tag in tags)]
        raise AnalysisError(f"group_by has no {name!r}; {nearest(name, known)}allowed: {', '.join(known)}")
    return GROUPS[name]


def _check_tag(name: str, ledgers: Ledgers) -> None:
    tags = sorted({f"{TAG}{key}" for batch in ledgers.batches(["tags"]) for key in _tag_names(batch)})
    if name not in tags and (meant := nearest(name, tags)):
        raise AnalysisError(f"no call has {name!r}; {meant}there are {', '.join(tags)}")


def _tag_names(batch: Any) -> list[str]:
    names: list[str] = batch.column("tags").keys.unique().to_pylist()
    return names


def _figures(rows: Any, names: Iterable[str], step: tuple[int, str] | None, tz: str) -> pa.Table:
    """Return the amounts of each attempt, beside what they are summed by."""
    get = rows.column
    day, period = _local(get("time"), step, tz)
    is_number = _is_amount(get("credits"))
    figures: dict[str, Any] = {
        "period": period,
        "day": day,
        "is_retake": pc.greater(pc.fill_null(get("take"), _NO_TAKE), _NO_TAKE),
        "rows": np.ones(len(rows), np.int64),
        "odd": pc.cast(pc.invert(is_number), pa.int64()),
        "audio_millis": _millis(get("audio_seconds")),
        **{name: _millis(get(name)) for name in ("credits", "computed", "reported", "saved")},
        **{name: get(name) for name in ("characters", *_FACTS)},
    }
    for name in names:
        tag = name.removeprefix(TAG)
        values: Any = pc.map_lookup(get("tags"), pa.scalar(tag), "last") if tag != name else get(GROUPS[name])
        figures[f"by {name}"] = pc.fill_null(values, pa.scalar(NONE))
    return pa.table(figures)


def _local(times: Any, step: tuple[int, str] | None, tz: str) -> tuple[Any, Any]:
    """Return the local day and period of each time; time zones change at quarters of an hour only."""
    quarters: Any = pc.divide(pc.cast(times, pa.int64()), pa.scalar(_QUARTER_US))
    quarters = quarters.combine_chunks().dictionary_encode()
    moments = pc.multiply(quarters.dictionary, pa.scalar(_QUARTER_US))
    zoned: Any = moments.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", tz))
    naive: Any = pc.local_timestamp(zoned)

    floor: Any = pc.floor_temporal

    def floored(count: int, unit: str) -> Any:
        start = floor(naive, count, unit)
        if unit == "hour":  # hours are told apart where the clock is put back
            passed = pc.subtract(naive, start)
            return pc.subtract(zoned.cast(pa.timestamp("us", "UTC")), passed).cast(zoned.type)
        # A day may begin at one o'clock, where midnight is left out.
        return pc.assume_timezone(start, tz, ambiguous="earliest", nonexistent="latest")

    periods = floored(*step) if step else pa.nulls(len(zoned), zoned.type)
    return floored(1, "day").take(quarters.indices), periods.take(quarters.indices)


def _is_amount(amounts: Any) -> Any:
    """Return which values are numbers whose thousandths fit into 64 bits."""
    bound: Any = pc.less(pc.abs(amounts), pa.scalar(float(MOST_CREDITS)))
    return pc.fill_null(bound, pa.scalar(False))


def _millis(amounts: Any) -> Any:
    """Return thousandths of what is a number, and 0 for what is none."""
    finite: Any = pc.if_else(_is_amount(amounts), amounts, pa.scalar(0.0))
    return pc.cast(pc.round(pc.multiply(finite, pa.scalar(float(CREDIT)))), pa.int64())


def _summed(figures: Any, by: Sequence[str]) -> pa.Table:
    found = figures.group_by(list(by)).aggregate([(name, "sum") for name in _SUMS])
    table: pa.Table = found.select([*by, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*by, *_SUMS])
    return table


def _derived(found: Any) -> Any:
    """Return the sums of equal attempts as the columns of the table."""
    status, rows, credits = found["status"], found["rows"], found["credits"]
    answered, is_unknown = status.isin(["done", "suspect"]), found["credits_basis"] == "unknown"
    lost = status.isin(["failed", "charged_unknown", "retried"])
    derived = {
        "attempts": rows.where(status != "cached", 0),
        "answered": rows.where(answered, 0),
        "cached": rows.where(status == "cached", 0),
        "retries": rows.where(status == "retried", 0),
        "refusals": rows.where(lost & found["error_code"].isin(_REFUSED), 0),
        "failed": rows.where(status.isin(["failed", "charged_unknown"]), 0),
        "charged_unknown": credits.where(is_unknown, 0),
        "undelivered": credits.where(lost & ~is_unknown, 0),
        "suspect": credits.where(status == "suspect", 0),
        "retakes": credits.where((status == "done") & found["is_retake"], 0),
        # What a call has of text and audio counts once it is answered.
        "characters": found["characters"].where(answered, 0),
        "audio_millis": found["audio_millis"].where(answered, 0),
    }
    found = found.assign(**derived)
    return found.assign(wasted=found["undelivered"] + found["suspect"] + found["retakes"])


def _nothing(by: Sequence[str]) -> Any:
    return pd.DataFrame({name: [] for name in by} | {name: np.empty(0, np.int64) for name in _SUMS})


def _table(found: Any, names: Sequence[str], prices: Prices, *, has_periods: bool) -> UsageTable:
    found = _derived(found)
    found["money"], found["price_from"] = _money(found, prices)
    found = found.drop(columns=[name for name in names if name in found]).rename(
        columns={f"by {name}": name for name in names}
    )
    places = [*(["period"] if has_periods else []), *names]
    # Without a place all of it is one line.
    grouped = found.groupby(places or np.zeros(len(found)), dropna=False, sort=True)
    table: Any = grouped[[*COUNTS, *AMOUNTS, "characters", "audio_millis"]].sum()
    table["money"] = grouped["money"].agg(_whole)
    table["price_from"] = grouped["price_from"].agg(_dates)
    table = table.reset_index(drop=not places)
    table[list(AMOUNTS)] /= CREDIT
    table["audio_seconds"] = seconds = table["audio_millis"] / 1000
    table["credits_per_minute"] = (table["credits"] * 60 / seconds.where(seconds > 0)).round(3)
    table["currency"] = prices.currency
    order = ("characters", "audio_seconds", "credits_per_minute", "money", "currency", "price_from")
    return UsageTable(table[[*places, *COUNTS, *AMOUNTS, *order]])


def _money(found: Any, prices: Prices) -> tuple[list[Decimal | None], list[Any]]:
    """Return what each sum of a day, a service and an operation costs in money, and the date of the price."""
    amounts: list[Decimal | None] = []
    dates: list[Any] = []
    columns = ("operation", "service", "day", "credits", "characters", "audio_millis", "answered")
    for operation, service, day, credits, characters, audio, answered in zip(
        *(found[name] for name in columns), strict=True
    ):
        price = prices.of(operation, service, day.date())
        dates.append(None if price is None else price.valid_from)
        quantities: Mapping[str, Decimal] = {
            "credit": Decimal(int(credits)) / CREDIT,
            "character": Decimal(int(characters)),
            "second": Decimal(int(audio)) / 1000,
            "request": Decimal(int(answered)),
        }
        amounts.append(None if price is None else price.amount(quantities))
    return amounts, dates


def _whole(amounts: Iterable[Decimal | None]) -> float | None:
    """Return a sum of money; None where a price is missing."""
    known = [*amounts]
    return None if not known or None in known else float(sum(filter(None, known), Decimal()))


def _dates(dates: Iterable[Any]) -> str | None:
    return ", ".join(sorted({str(day) for day in dates if day is not None})) or None


def plot_usage(result: UsageTable, ax: "Axes | None" = None) -> "Axes":
    """Return the credits over time, stacked by the first group, and what of them was wasted.

    Parameters
    ----------
    result
        What :func:`usage` returned for periods.
    ax
        Where to draw; None makes a figure.

    Examples
    --------
    >>> plot_usage(usage(group_by="tag:team")).figure.savefig("usage.svg")  # doctest: +SKIP
    """
    if "period" not in result.columns:
        raise AnalysisError("a plot over time takes a table with periods: usage(every='1d')")
    made = axes(ax, 6.4, 3.2)
    frame: Any = pd.DataFrame(result)
    groups = frame.columns[1] if frame.columns[1] != COUNTS[0] else None
    credits = frame.pivot_table("credits", "period", groups or "currency", "sum", dropna=False).fillna(0)
    days = [f"{period:%Y-%m-%d}" for period in credits.index]
    bottom = np.zeros(len(days))
    for place, name in enumerate(credits.columns):
        made.bar(
            days, credits[name], bottom=bottom, label=str(name) if groups else "credits",
            color=_COLORS[place % len(_COLORS)], hatch=_HATCHES[place // len(_COLORS) % len(_HATCHES)],
        )  # fmt: skip
        bottom += credits[name].to_numpy()
    wasted = frame.groupby("period")["wasted"].sum()
    if wasted.any():
        made.plot(days, wasted.to_numpy(), color="black", marker="x", linestyle=":", label="wasted")
    made.set_ylabel("credits")
    made.set_title(result.covers.partition(";")[0], fontsize="small", loc="left")
    made.tick_params(axis="x", rotation=45)
    if days:
        made.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return made
