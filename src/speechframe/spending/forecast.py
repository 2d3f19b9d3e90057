"""Forecast the day on which the quota of a key is used up, from the spending of the last days."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import AnalysisError
from speechframe.extras import get_figure, provide_axes, set_date_axis
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT, convert_to_credits
from speechframe.spending.ledger import (
    Ledgers,
    convert_to_thousandths,
    find_fingerprint,
    open_ledgers,
    parse_window,
)
from speechframe.spending.usage import usage
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORECAST_DAYS, MIN_DAYS = 28, 14
"""Number of past days that a forecast uses, and the smallest number of past days that it needs."""
_FUTURE_COUNT, _MAX_DAYS, _SEED = 2000, 3650, 28
"""Number of simulated futures, largest number of days of a future (ten years), and seed of the draws."""


@dataclass(frozen=True)
class Forecast:
    """The expected end of a quota, the result of :func:`forecast`.

    Attributes
    ----------
    balance
        Credits left on the key.
    per_day
        Credits spent on each past day that the forecast uses, the oldest first.
    early, likely, late
        Days by which the quota is used up in 10, 50 and 90 % of the simulated futures. None if the quota
        lasts for more than ten years.
    today
        The day of the forecast.
    left
        Credits left after the planned table. Negative if the balance is too small for the table. None without
        a planned table.
    heading
        Text with the past days, their time zone, and the time until which the ledger is complete.
    paths
        Balance at the end of each coming day in thousandths of a credit, shape (3, days). The rows are the
        10, 50 and 90 % quantiles.
    """

    balance: float
    per_day: tuple[float, ...]
    early: date | None
    likely: date | None
    late: date | None
    today: date
    left: float | None
    heading: str
    paths: npt.NDArray[np.int64] = field(repr=False)

    def __str__(self) -> str:
        """Return the forecast in a sentence or two."""
        mean = sum(self.per_day) / len(self.per_day)
        if self.likely is None:
            summary = (
                f"{format_count(self.balance, 'credit')} last for more than ten years at {mean:,.1f} a day"
            )
        else:
            late = self.late or "later than in ten years"
            days = f"about {self.likely} (10 %: {self.early}, 90 %: {late})"
            summary = f"{format_count(self.balance, 'credit')} at {mean:,.1f} a day end {days}"
        if self.left is not None:
            summary += f"; the planned table leaves {self.left:,.10g}"
            summary += "" if self.left >= 0 else ": it does not fit"
        return f"{summary}. {self.heading}"

    def __repr__(self) -> str:
        return f"<Forecast: {self}>"

    def _repr_html_(self) -> str:
        names = "used up at the earliest (10 %)", "most likely (50 %)", "at the latest (90 %)"
        ends = [day or "after more than ten years" for day in (self.early, self.likely, self.late)]
        per_day = f"{sum(self.per_day) / len(self.per_day):,.1f}"
        rows: list[tuple[str, Any]] = [("credits left", f"{self.balance:,.10g}"), ("credits a day", per_day)]
        rows += zip(names, ends, strict=True)
        if self.left is not None:
            rows.append(("credits left after the planned table", f"{self.left:,.10g}"))
        return format_table(["forecast", "value"], rows, caption=self.heading)


def forecast(
    source: Any = None,
    *,
    balance: float | None = None,
    key: Any = None,
    planned: Any = None,
    tz: str = "UTC",
    now: Any = None,
) -> Forecast:
    """Return a forecast of the day on which the quota of a key is used up.

    A simulated future repeats random days of the last 28 whole days until the balance is used up. Days
    without calls are among them. The forecast consists of 2,000 futures. Equal calls give equal forecasts,
    because the seed is fixed.

    Parameters
    ----------
    source
        Runs or ledgers, as for :func:`usage`. The default is the ledger folder of all runs.
    balance
        Credits left. The default is the last balance that the service reported.
    key
        The API key or its fingerprint. Required if the ledger contains calls of several keys.
    planned
        A dry run, its estimate, or an amount of credits. The forecast then contains the credits left after
        the planned table.
    tz
        Time zone of the days.
    now
        Date or time of the forecast. The default is the present.

    Raises
    ------
    AnalysisError
        If the ledger covers less than 14 days, lacks a balance, or has calls of several keys.

    Examples
    --------
    >>> print(forecast(planned=generate(frame, dry_run=True)))  # doctest: +SKIP
    """
    moment = parse_window(now, None, tz)[0] or datetime.now(UTC)
    today = moment.astimezone(ZoneInfo(tz)).date()
    ledgers = open_ledgers(source)
    days = usage(ledgers, "key", tz=tz, end=moment)
    keys = [*days["key"].unique()]
    if key is not None:
        days = days[days["key"] == find_fingerprint(pa.array(keys, pa.string()), key)]
    elif len(keys) > 1:
        raise AnalysisError(
            f"the ledger has calls of {len(keys)} keys, {', '.join(keys)}; choose one with key="
        )
    sums = days.groupby(days["period"].dt.date)["credits"].sum()
    known = min(FORECAST_DAYS, (today - min(sums.index, default=today)).days)
    if known < MIN_DAYS:
        raise AnalysisError(
            f"the ledger has {known} whole days before {today} ({tz}); a forecast needs at least {MIN_DAYS}"
        )
    span = [today - timedelta(days=n) for n in range(known, 0, -1)]
    spent = np.array([round(MILLICREDITS_PER_CREDIT * sums.get(day, 0.0)) for day in span], np.int64)
    left = _find_last_balance(ledgers, moment, days["key"].iloc[0]) if balance is None else balance
    start = convert_to_thousandths(left)
    ends, paths = _simulate_futures(spent, start)
    early, likely, late = (None if n > _MAX_DAYS else today + timedelta(days=int(n)) for n in ends)
    credits = getattr(getattr(planned, "estimate", planned), "credits", planned)
    return Forecast(
        balance=convert_to_credits(start),
        per_day=tuple(map(convert_to_credits, spent.tolist())),
        early=early,
        likely=likely,
        late=late,
        today=today,
        left=None if credits is None else convert_to_credits(start - convert_to_thousandths(credits)),
        heading=f"Based on the days from {span[0]} to {span[-1]} ({tz}); {ledgers.describe_completeness()}.",
        paths=paths,
    )


def _find_last_balance(ledgers: Ledgers, moment: datetime, key: str) -> float:
    """Return the last balance of a key before `moment`, in credits. Raise AnalysisError if none is known."""
    columns = ["time", "balance_after", "key_fingerprint"]
    of_key: Any = pc.field("key_fingerprint") == key
    with_balance = of_key & pc.field("balance_after").is_valid()
    last: tuple[Any, float] | None = None
    for batch in ledgers.batches(columns, None, moment):
        for row in batch.filter(with_balance).sort_by([("time", "descending")]).slice(0, 1).to_pylist():
            last = max(last or (row["time"], 0), (row["time"], row["balance_after"]))
    if last is None:
        raise AnalysisError("the ledger contains no balance of this key; give it as balance=")
    return last[1]


def _simulate_futures(
    spent: npt.NDArray[np.int64], balance: int
) -> tuple[list[float], npt.NDArray[np.int64]]:
    """Return the 10, 50 and 90 % quantiles of the days until a balance is used up, and of the daily balances.

    All amounts are thousandths of a credit.
    """
    draws = np.random.default_rng(_SEED)
    if not spent.any():
        return [_MAX_DAYS + 1] * 3, np.full((3, 2), balance)
    # In nearly every future the balance is used up within three times the mean duration and 84 days.
    length = int(min(_MAX_DAYS, 3 * balance / spent.mean() + 3 * FORECAST_DAYS))
    left = balance - np.cumsum(draws.choice(spent, (_FUTURE_COUNT, length)), axis=1)
    is_over = left <= 0
    ends = np.where(is_over.any(axis=1), is_over.argmax(axis=1) + 1, _MAX_DAYS + 1)
    paths = np.maximum(0, np.quantile(left, [0.1, 0.5, 0.9], axis=0)).astype(np.int64)
    return np.quantile(ends, [0.1, 0.5, 0.9], method="higher").tolist(), paths


def plot_burn_down(forecast: Forecast, ax: "Axes | None" = None) -> "Figure":
    """Plot the balance on the past days and its forecast, with the range from the 10 to the 90 % quantile.

    Parameters
    ----------
    forecast
        The result of :func:`forecast`.
    ax
        Axes of the plot. With None (default), a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. A notebook shows a new figure as a picture.

    Examples
    --------
    >>> plot_burn_down(forecast()).savefig("burn-down.svg")  # doctest: +SKIP
    """
    made = provide_axes(ax, 6.4, 3.2)
    spent = np.array(forecast.per_day)
    before = forecast.balance + np.r_[np.cumsum(spent[::-1])[::-1], 0]
    past: Any = [forecast.today - timedelta(days=n) for n in range(len(spent), -1, -1)]
    made.plot(past, before, color="#0072B2", label="left on the key")
    late = forecast.late or forecast.likely
    shown = (late - forecast.today).days + 2 if late else FORECAST_DAYS
    low, middle, high = (
        np.r_[forecast.balance, path[:shown] / MILLICREDITS_PER_CREDIT] for path in forecast.paths
    )
    days: Any = [forecast.today + timedelta(days=n) for n in range(len(middle))]
    made.plot(days, middle, color="#A34700", linestyle="--", label="at this pace")
    made.fill_between(days, low, high, color="#A34700", alpha=0.2, linewidth=0, label="10 to 90 %")
    made.set_ylim(bottom=0)
    made.yaxis.set_major_formatter("{x:,.10g}")
    made.set_ylabel("credits")
    made.set_title(forecast.heading, fontsize="small", loc="left", wrap=True)
    set_date_axis(made)
    made.legend(frameon=False)
    return get_figure(made)
