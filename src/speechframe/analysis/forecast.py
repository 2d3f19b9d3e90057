"""When a key's quota ends at the pace of the last days, and what a planned table would leave."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from speechframe._words import counted
from speechframe.analysis._libraries import axes
from speechframe.analysis.ledger import Ledgers, key_among, open_ledgers, thousandths, window
from speechframe.analysis.usage import usage
from speechframe.errors import AnalysisError
from speechframe.spec.billing import CREDIT, to_credits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DAYS, LEAST_DAYS = 28, 14
"""Days that tell the pace, and how many of them there must be."""
_DRAWS, _MOST_DAYS, _SEED = 2000, 3650, 28


@dataclass(frozen=True)
class Forecast:
    """When a quota ends; made by :func:`forecast`.

    Attributes
    ----------
    balance
        Credits left on the key.
    per_day
        Credits spent on each of the days that tell the pace, the oldest first.
    early, likely, late
        Days on which the quota is used up in 10, 50 and 90 % of the draws; None after ten years.
    today
        The day of the forecast.
    left
        Credits that the planned table would leave; negative where it does not fit. None without one.
    heading
        The days that were counted, their time zone, and until when the ledger is complete.
    paths
        Thousandths of a credit that are left on the days to come, in 10, 50 and 90 % of the draws.
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
            words = f"{counted(self.balance, 'credit')} last for more than ten years at {mean:,.1f} a day"
        else:
            late = self.late or "later than in ten years"
            days = f"about {self.likely} (10 %: {self.early}, 90 %: {late})"
            words = f"{counted(self.balance, 'credit')} at {mean:,.1f} a day end {days}"
        if self.left is not None:
            words += f"; the planned table leaves {self.left:,.10g}"
            words += "" if self.left >= 0 else ": it does not fit"
        return f"{words}. {self.heading}"


def forecast(
    source: Any = None,
    *,
    balance: float | None = None,
    key: Any = None,
    planned: Any = None,
    tz: str = "UTC",
    now: Any = None,
) -> Forecast:
    """Return when the quota of a key ends at the pace of the last 28 whole days.

    Days are drawn from those 28 again and again until the balance is used up (2,000 times, the same each
    time it is asked); days without calls count as they are.

    Parameters
    ----------
    source
        As for :func:`usage`; by default the ledger folder of all runs.
    balance
        Credits left; by default what the service said last.
    key
        The key, or its fingerprint, of a ledger with several.
    planned
        A dry run, its estimate, or credits: what it would leave.
    tz
        Time zone of the days.
    now
        The moment of the forecast; by default the present one.

    Raises
    ------
    AnalysisError
        When the ledger has less than 14 days, no balance, or calls of several keys.

    Examples
    --------
    >>> print(forecast(planned=generate(frame, dry_run=True)))  # doctest: +SKIP
    """
    moment = window(now, None, tz)[0] or datetime.now(UTC)
    today = moment.astimezone(ZoneInfo(tz)).date()
    ledgers = open_ledgers(source)
    days = usage(ledgers, "key", tz=tz, end=moment)
    keys = [*days["key"].unique()]
    if key is not None:
        days = days[days["key"] == key_among(pa.array(keys, pa.string()), key)]
    elif len(keys) > 1:
        raise AnalysisError(f"the ledger has calls of {len(keys)} keys, {', '.join(keys)}: give key=")
    sums = days.groupby(days["period"].dt.date)["credits"].sum()
    known = min(DAYS, (today - min(sums.index, default=today)).days)
    if known < LEAST_DAYS:
        raise AnalysisError(
            f"the ledger has {known} whole days before {today} ({tz}); a pace takes {LEAST_DAYS} at least"
        )
    span = [today - timedelta(days=n) for n in range(known, 0, -1)]
    spent = np.array([round(CREDIT * sums.get(day, 0.0)) for day in span], np.int64)
    left = _last_balance(ledgers, moment, days["key"].iloc[0]) if balance is None else balance
    start = thousandths(left)
    ends, paths = _draw(spent, start)
    early, likely, late = (None if n > _MOST_DAYS else today + timedelta(days=int(n)) for n in ends)
    credits = getattr(getattr(planned, "estimate", planned), "credits", planned)
    return Forecast(
        balance=to_credits(start),
        per_day=tuple(map(to_credits, spent.tolist())),
        early=early,
        likely=likely,
        late=late,
        today=today,
        left=None if credits is None else to_credits(start - thousandths(credits)),
        heading=f"By the days from {span[0]} to {span[-1]} ({tz}); {ledgers.completeness()}.",
        paths=paths,
    )


def _last_balance(ledgers: Ledgers, moment: datetime, key: str) -> float:
    """Return what the service said last that is left on a key."""
    columns = ["time", "balance_after", "key_fingerprint"]
    of_key: Any = pc.field("key_fingerprint") == key
    told = of_key & pc.field("balance_after").is_valid()
    last: tuple[Any, float] | None = None
    for batch in ledgers.batches(columns, None, moment):
        for row in batch.filter(told).sort_by([("time", "descending")]).slice(0, 1).to_pylist():
            last = max(last or (row["time"], 0), (row["time"], row["balance_after"]))
    if last is None:
        raise AnalysisError("the service never said what is left on this key: give balance=")
    return last[1]


def _draw(spent: npt.NDArray[np.int64], balance: int) -> tuple[list[float], npt.NDArray[np.int64]]:
    """Return after how many days a balance is used up at 10, 50 and 90 %, and the balances until then."""
    draws = np.random.default_rng(_SEED)
    if not spent.any():
        return [_MOST_DAYS + 1] * 3, np.full((3, 2), balance)
    # Long enough for nearly every draw: three times as long as the mean pace takes.
    length = int(min(_MOST_DAYS, 3 * balance / spent.mean() + 3 * DAYS))
    left = balance - np.cumsum(draws.choice(spent, (_DRAWS, length)), axis=1)
    is_over = left <= 0
    ends = np.where(is_over.any(axis=1), is_over.argmax(axis=1) + 1, _MOST_DAYS + 1)
    paths = np.maximum(0, np.quantile(left, [0.1, 0.5, 0.9], axis=0)).astype(np.int64)
    return np.quantile(ends, [0.1, 0.5, 0.9], method="higher").tolist(), paths


def plot_burn_down(forecast: Forecast, ax: "Axes | None" = None) -> "Axes":
    """Return the balance of the counted days and where it goes, with the range of 10 to 90 %.

    Parameters
    ----------
    forecast
        What :func:`forecast` returned.
    ax
        Where to draw; None makes a figure.

    Examples
    --------
    >>> plot_burn_down(forecast()).figure.savefig("burn-down.svg")  # doctest: +SKIP
    """
    made = axes(ax, 6.4, 3.2)
    spent = np.array(forecast.per_day)
    before = forecast.balance + np.r_[np.cumsum(spent[::-1])[::-1], 0]
    past: Any = [forecast.today - timedelta(days=n) for n in range(len(spent), -1, -1)]
    made.plot(past, before, color="#0072B2", label="left on the key")
    late = forecast.late or forecast.likely
    shown = (late - forecast.today).days + 2 if late else DAYS
    low, middle, high = (np.r_[forecast.balance, path[:shown] / CREDIT] for path in forecast.paths)
    days: Any = [forecast.today + timedelta(days=n) for n in range(len(middle))]
    made.plot(days, middle, color="#A34700", linestyle="--", label="at this pace")
    made.fill_between(days, low, high, color="#A34700", alpha=0.2, linewidth=0, label="10 to 90 %")
    made.set_ylim(bottom=0)
    made.set_ylabel("credits")
    made.set_title(forecast.heading, fontsize="small", loc="left", wrap=True)
    made.tick_params(axis="x", rotation=30)
    made.legend(frameon=False)
    return made
