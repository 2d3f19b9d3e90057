"""Sum up the spending of runs from their ledgers.

A ledger contains one row for each attempt (one try of a call). The rows are summed while they are read, so
memory does not grow with the ledger. The module computes with whole thousandths of a credit, so all groupings
add up to the same total.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import AnalysisError, suggest_name
from speechframe.extras import get_figure, provide_axes, set_date_axis
from speechframe.settings.spending import Prices, read_prices
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT
from speechframe.spec.codes import HttpErrorCode, Status
from speechframe.spending.ledger import NO_VALUE, Ledgers, describe_window, open_ledgers, parse_window
from speechframe.store.ledger import are_amounts, convert_to_millicredits
from speechframe.store.schema import LEDGER_SCHEMA
from speechframe.writing.words import replace_unprintable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUP_COLUMNS = {
    "run": "run_id", "operation": "operation", "model": "model", "locale": "locale", "voice": "voice_id",
    "user": "user", "host": "host", "status": "status", "lane": "lane", "service": "service",
    "key": "key_fingerprint",
}  # fmt: skip
"""Column of the ledger for each name that `group_by` accepts."""

_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
"""Colours by Okabe and Ito, which colour-blind people can distinguish."""
_MOST_GROUPS = 10
"""Number of groups with a colour of their own. All other groups share one."""
_HATCHES = ("", "//", "xx")
"""Patterns of bars. When all colours are used, the next pattern begins with the first colour again."""
TAG_PREFIX = "tag:"
"""Prefix of a tag in `group_by`."""
COUNT_COLUMNS = ("attempts", "answered", "cached", "retries", "refusals", "failed", "odd")
"""Columns of a usage table that are numbers."""
AMOUNT_COLUMNS = (
    "credits", "computed", "reported", "charged_unknown", "undelivered", "suspect", "retakes", "wasted",
    "saved",
)  # fmt: skip
"""Columns of a usage table that are amounts of credits."""
_FACT_COLUMNS = ("status", "credits_basis", "error_code", "operation", "service")
"""Columns of the ledger by which attempts are grouped in every table."""
_BILLED_COLUMNS = ("credits", "computed", "reported", "saved")
"""Amounts of credits in the ledger."""
_SUMMED_COLUMNS = ("rows", "odd", *_BILLED_COLUMNS, "characters", "audio_millis")
"""Numbers of an attempt that are summed."""
_LEDGER_COLUMNS = ("time", "take", "audio_seconds", "characters", *_BILLED_COLUMNS, *_FACT_COLUMNS)
"""Columns that are read from the ledger for every table."""
_ROWS_AT_ONCE = 64_000
"""Number of rows that are summed at a time, enough to make the cost of one sum small."""
_LIMIT_STATUSES = (Status.TOO_MANY_REQUESTS, Status.SERVICE_UNAVAILABLE)
_REFUSAL_CODES = [code.value for code in HttpErrorCode if code.status in _LIMIT_STATUSES] + [
    "RateLimited",
    "Unavailable",
]
"""Values of ``error_code`` of refusals because of a limit: codes of the service, or names of our errors."""
_PERIOD_DAYS = {"1h": 1 / 24, "1d": 1, "1w": 7, "1mo": 28, "1y": 365}
"""Days of the shortest period for each value of `every`, which are the widths of bars."""
_MOST_SINGLE_BARS = 60
"""Largest number of periods whose bars have gaps between them and whose waste has marks."""
_PANDAS_PERIODS = {"1h": "h", "1d": "D", "1w": "W", "1mo": "M", "1y": "Y"}
"""Period in pandas for each value of `every`."""


class UsageTable(pd.DataFrame):
    """The result of :func:`usage`, a DataFrame.

    `covers` is a text below the table: the window, the time until which the ledgers are complete, and their
    folders. `every` is the period of a line, such as ``"1d"``.
    """

    _metadata = ("covers", "every")
    covers: str = ""
    every: str | None = None

    @property
    def _constructor(self) -> type["UsageTable"]:
        return UsageTable

    def __repr__(self) -> str:
        """Return the table and `covers` as text."""
        return replace_unprintable(f"{super().__repr__()}\n{self.covers}")

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
    """Return a table of the spending of runs, and of the answers that it paid for.

    Parameters
    ----------
    source
        A run, the folder of a run, a ledger folder, or a list of these. The default is the ledger folder of
        all runs (``SPEECHFRAME_LEDGER``).
    group_by
        One or several of ``run``, ``operation``, ``model``, ``locale``, ``voice``, ``user``, ``host``,
        ``status``, ``lane`` (the region that got the call), ``service``, ``key`` (its fingerprint) and
        ``tag:NAME``. Attempts without the tag count as ``(none)``.
    every
        Period of a line: ``"1h"``, ``"1d"`` (default), ``"1w"``, ``"1mo"`` or ``"1y"``. None makes one line
        for each group.
    tz
        Time zone of the periods, and of `start` and `end`.
    start, end
        The window, as dates or times. The window does not include `end`.

    Returns
    -------
    UsageTable
        A DataFrame. The counts are ``attempts``, ``answered`` (answered attempts), ``cached`` (calls that the
        cache answered), ``retries`` (attempts that were repeated), ``refusals`` (attempts refused because of
        a limit), ``failed`` (calls that failed for good), and ``odd`` (attempts without a valid amount).

        The amounts are in credits: ``credits`` (billed, or likely billed), ``computed`` (price by the service
        document) and ``reported`` (by the service). ``charged_unknown`` is the part of ``credits`` for
        attempts without an answer that may have been billed. ``undelivered`` was billed without an answer,
        ``suspect`` was billed for answers that a check doubts, and ``wasted`` is the sum of both.
        ``retakes`` was billed for further takes (readings of the same text). ``saved`` was not billed because
        equal rows share a call, and because of the cache.

        Further columns are ``characters``, ``audio_seconds``, ``credits_per_minute`` (of audio), ``money``
        (cost by your price list), ``currency`` and ``price_from`` (first days of the prices).

    Raises
    ------
    AnalysisError
        If a group, time or zone is unknown.
    StoreError
        If a ledger cannot be read.

    Examples
    --------
    >>> usage(group_by="tag:team", every="1mo", tz="Europe/Berlin")  # doctest: +SKIP
    """
    names = [group_by] if isinstance(group_by, str) else [*dict.fromkeys(group_by or ())]
    if every is not None and every not in _PANDAS_PERIODS:
        raise AnalysisError(f"every={every!r}; allowed: {', '.join(_PANDAS_PERIODS)}, or None")
    first, last = parse_window(start, end, tz)
    ledgers, prices = open_ledgers(source), read_prices()
    for name in names:
        if name not in GROUP_COLUMNS and not name.startswith(TAG_PREFIX):
            _check_group(name, ledgers)
    groups = ["tags" if name.startswith(TAG_PREFIX) else GROUP_COLUMNS[name] for name in names]
    wanted = [*dict.fromkeys([*_LEDGER_COLUMNS, *groups])]
    # First sum the attempts that agree in all columns of `by`. Then `_make_table` derives counts and money.
    by = ["period", "day", "is_retake", *_FACT_COLUMNS, *(f"by {name}" for name in names)]
    sums: list[pa.Table] = []
    for rows in _join_batches(ledgers.batches(wanted, first, last), wanted):
        figures = _make_figures(rows, names, every, tz).select([*by, *_SUMMED_COLUMNS])
        sums = [_sum_figures(pa.concat_tables([*sums, figures]), by)]
    places = [*(["period"] if every else []), *names]
    table = _make_table(sums[0].to_pandas(), names, places, prices)
    for name in names:
        if name.startswith(TAG_PREFIX) and len(table) and (table[name] == NO_VALUE).all():
            _check_group(name, ledgers)
    table.every = every
    table.covers = f"{describe_window(start, end, tz)}; {ledgers.describe_completeness()}; {ledgers.places}"
    return table


def drop_empty_columns(table: UsageTable) -> Any:
    """Return ``credits`` and all columns that contain a value other than 0 or an empty text."""
    return pd.DataFrame(table)[
        [name for name in table if name == "credits" or table[name].astype(bool).any()]
    ]


def _join_batches(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[Any]:
    """Join batches into tables of at least 64,000 rows, because the files of a ledger have few rows each.

    The last table may be smaller.
    """
    schema, held = pa.schema([LEDGER_SCHEMA.field(name) for name in columns]), []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(held, schema)
            held = []
    yield pa.Table.from_batches(held, schema)


def _check_group(name: str, ledgers: Ledgers) -> None:
    """Raise AnalysisError for an unknown group. Allow a tag without attempts unless it looks mistyped."""
    maps: Any = (batch.column(0) for batch in ledgers.batches(["tags"]))
    tags = {f"{TAG_PREFIX}{tag}" for tags in maps for tag in tags.keys.unique().to_pylist()}
    known = [*GROUP_COLUMNS, *sorted(tags)]
    guess = suggest_name(name, known)
    if name not in tags and (guess or not name.startswith(TAG_PREFIX)):
        raise AnalysisError(f"group_by={name!r} is unknown; {guess}allowed: {', '.join(known)}")


def _make_figures(rows: Any, names: Iterable[str], every: str | None, tz: str) -> pa.Table:
    """Return a table with the numbers of each attempt, and with the columns by which attempts are grouped."""
    get = rows.column
    figures: dict[str, Any] = {
        **_find_local_periods(get("time"), every, tz),
        "is_retake": pc.fill_null(pc.greater(get("take"), pa.scalar(0, pa.int32())), pa.scalar(False)),
        "rows": np.ones(len(rows), np.int64),
        "odd": pc.cast(pc.invert(are_amounts(get("credits"))), pa.int64()),
        "audio_millis": convert_to_millicredits(get("audio_seconds")),
        **{name: convert_to_millicredits(get(name)) for name in _BILLED_COLUMNS},
        **{name: get(name) for name in ("characters", *_FACT_COLUMNS)},
    }
    for name in names:
        tag = name.removeprefix(TAG_PREFIX)
        values: Any = (
            pc.map_lookup(get("tags"), pa.scalar(tag), "last") if tag != name else get(GROUP_COLUMNS[name])
        )
        figures[f"by {name}"] = pc.fill_null(values, pa.scalar(NO_VALUE))
    return pa.table(figures)


def _find_local_periods(times: Any, every: str | None, tz: str) -> dict[str, Any]:
    """Return the local day and the period of each time.

    The result is computed once for each quarter of an hour, because clocks change only at full quarters.
    """
    quarters = pc.floor_temporal(times, 15, "minute").combine_chunks().dictionary_encode()
    moments = pd.DatetimeIndex(quarters.dictionary.to_pandas()).tz_convert(tz)
    local = moments.tz_localize(None)
    if every == "1h":  # keep two lines for the hour that occurs twice when clocks are set back
        periods = moments - (local - local.floor("h"))
    else:
        # If clocks are set back at midnight, the day has two midnights. Use the first one. If clocks are set
        # forward at midnight, the day begins later, mostly at one o'clock.
        periods = local.to_period(_PANDAS_PERIODS[every or "1y"]).start_time.tz_localize(
            tz, ambiguous=np.ones(len(local), bool), nonexistent="shift_forward"
        )
    found = {"day": pa.array(local.normalize()), "period": pa.array(periods)}
    return {name: values.take(quarters.indices) for name, values in found.items()}


def _sum_figures(figures: Any, by: Sequence[str]) -> pa.Table:
    found = figures.group_by(list(by)).aggregate([(name, "sum") for name in _SUMMED_COLUMNS])
    table: pa.Table = found.select([*by, *(f"{name}_sum" for name in _SUMMED_COLUMNS)]).rename_columns(
        [*by, *_SUMMED_COLUMNS]
    )
    return table


def _derive_columns(found: Any) -> Any:
    """Add the counts and amounts of the usage table, which depend on status and basis of the attempts."""
    status, rows, credits = found["status"], found["rows"], found["credits"]
    answered, is_unknown = status.isin(["done", "suspect"]), found["credits_basis"] == "unknown"
    lost = status.isin(["failed", "charged_unknown", "retried"])
    derived = {
        "attempts": rows.where(status != "cached", 0),
        "answered": rows.where(answered, 0),
        "cached": rows.where(status == "cached", 0),
        "retries": rows.where(status == "retried", 0),
        "refusals": rows.where(lost & found["error_code"].isin(_REFUSAL_CODES), 0),
        "failed": rows.where(status.isin(["failed", "charged_unknown"]), 0),
        "charged_unknown": credits.where(is_unknown, 0),
        "undelivered": credits.where(lost & ~is_unknown, 0),
        "suspect": credits.where(status == "suspect", 0),
        "retakes": credits.where((status == "done") & found["is_retake"], 0),
        # Count characters and audio only for answered attempts, so that repeated attempts do not count twice.
        "characters": found["characters"].where(answered, 0),
        "audio_millis": found["audio_millis"].where(answered, 0),
    }
    found = found.assign(**derived)
    return found.assign(wasted=found["undelivered"] + found["suspect"])


def _make_table(found: Any, names: Sequence[str], places: list[str], prices: Prices) -> UsageTable:
    found = _derive_columns(found)
    costs = [_calculate_cost(one, prices) for one in found.itertuples()]
    found["money"], found["price_from"] = [cost for cost, _ in costs], [day for _, day in costs]
    found = found.drop(columns=[name for name in names if name in found]).rename(
        columns={f"by {name}": name for name in names}
    )
    # Without groups and periods, put all rows into one group.
    grouped = found.groupby(places or np.zeros(len(found)), dropna=False, sort=True)
    table: Any = grouped[[*COUNT_COLUMNS, *AMOUNT_COLUMNS, "characters", "audio_millis"]].sum()
    table["money"] = grouped["money"].agg(lambda costs: None if None in [*costs] else float(sum(costs)))
    table["price_from"] = grouped["price_from"].agg(lambda days: ", ".join(sorted({*days} - {""})) or None)
    table = table.reset_index(drop=not places)
    table[list(AMOUNT_COLUMNS)] /= MILLICREDITS_PER_CREDIT
    table["audio_seconds"] = seconds = table["audio_millis"] / 1000
    table["credits_per_minute"] = (table["credits"] * 60 / seconds.where(seconds > 0)).round(3)
    table["currency"] = prices.currency
    order = ("characters", "audio_seconds", "credits_per_minute", "money", "currency", "price_from")
    return UsageTable(table[[*places, *COUNT_COLUMNS, *AMOUNT_COLUMNS, *order]])


def _calculate_cost(sums: Any, prices: Prices) -> tuple[Decimal | None, str]:
    """Return the cost of one row of sums in money, and the day from which its price is valid.

    If there is no price, return None and an empty text.
    """
    price = prices.find_price(sums.operation, sums.service, sums.day.date())
    if price is None:
        return None, ""
    quantities = {
        "credit": Decimal(sums.credits) / MILLICREDITS_PER_CREDIT,
        "character": Decimal(sums.characters),
        "second": Decimal(sums.audio_millis) / 1000,
        "request": Decimal(sums.answered),
    }
    return price.compute_cost(quantities), str(price.valid_from)


def plot_usage(result: UsageTable, ax: "Axes | None" = None) -> "Figure":
    """Plot the credits of each period as bars, stacked by the first group, and the wasted credits as a line.

    The ten groups with the most credits have a bar and a colour each. All further groups share one.

    Parameters
    ----------
    result
        The result of :func:`usage`, with periods (`every` is not None).
    ax
        Axes of the plot. With None (default), a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. A notebook shows a new figure as a picture.

    Examples
    --------
    >>> plot_usage(usage(group_by="tag:team")).savefig("usage.svg")  # doctest: +SKIP
    """
    if "period" not in result.columns:
        raise AnalysisError("a plot over time needs a table with periods, such as usage(every='1d')")
    made = provide_axes(ax, 6.4, 3.2)
    made.set_ylabel("credits")
    made.set_title(result.covers.partition(";")[0], fontsize="small", loc="left")
    frame: Any = pd.DataFrame(result)
    wasted = frame.groupby("period")["wasted"].sum()
    if not frame["credits"].any():
        made.text(0.5, 0.5, "No credits were spent", ha="center", transform=made.transAxes)
        made.set(xticks=[], yticks=[])
        return get_figure(made)
    group = frame.columns[1] if frame.columns[1] != COUNT_COLUMNS[0] else "currency"
    credits = _join_small_groups(
        frame.fillna({"currency": ""}).pivot_table("credits", "period", group, "sum", fill_value=0)
    )
    # Matplotlib draws all times in UTC.
    starts = credits.index.tz_localize(None)
    is_dense = len(starts) > _MOST_SINGLE_BARS
    width: Any = pd.Timedelta(days=_PERIOD_DAYS[result.every or "1d"])
    bottom = np.zeros(len(starts))
    for position, (name, amounts) in enumerate(credits.items()):
        color, hatch = _COLORS[position % len(_COLORS)], _HATCHES[position // len(_COLORS) % len(_HATCHES)]
        if position == _MOST_GROUPS:
            color, hatch = "#BBBBBB", ""
        style: dict[str, Any] = {
            "label": "credits" if group == "currency" else str(name),
            "color": color,
            "hatch": hatch,
        }
        drawn = amounts.to_numpy() > 0
        step = width * (1 if is_dense else 0.9)
        made.bar(starts[drawn], amounts[drawn], step, bottom[drawn], align="edge", **style)
        bottom += amounts.to_numpy()
    if wasted.any():
        marker = "" if is_dense else "x"
        made.plot(starts + width / 2, wasted, color="black", marker=marker, linestyle=":", label="wasted")
    made.yaxis.set_major_formatter("{x:,.10g}")
    set_date_axis(made)
    made.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return get_figure(made)


def _join_small_groups(credits: Any) -> Any:
    """Return the columns of the groups with the most credits, and one column for the sum of the others."""
    if len(credits.columns) <= _MOST_GROUPS:
        return credits
    order = credits.sum().sort_values(ascending=False, kind="stable").index
    others = credits[order[_MOST_GROUPS:]].sum(axis=1).rename(f"{len(order) - _MOST_GROUPS:,} others")
    return credits[order[:_MOST_GROUPS]].join(others)
