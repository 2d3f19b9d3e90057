"""What a run would do and cost, and how a table differs from a run's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from speechframe.batch.progress import counted, credits_in_words

if TYPE_CHECKING:
    import pandas as pd

_LEAST_PERCENT = 0.01


@dataclass(frozen=True)
class Estimate:
    """What a run would do and cost.

    Attributes
    ----------
    rows
        Rows of the table.
    unique
        Different calls among them.
    finished
        Calls that an earlier run of this folder has made: they cost nothing.
    invalid
        Rows that cannot be sent.
    calls
        Calls still to make, cached ones left out.
    credits
        Price of those that were not paid before.
    balance
        Characters left on the key; None if the service does not say.
    concurrency
        Calls in flight at most, as far as it is known before the first call.
    identical_retakes
        Rows whose further take would be the same as the first: they are not billed again.
    seconds_at_cap
        Rough time at the concurrency allowed, from the time a call took so far; None before any call.
    cached
        Calls whose answer is in the cache: they cost nothing either.
    budget
        Credits that the run's limit leaves; None without a limit.
    amount
        What those credits are paid for, in words, where they do not say it themselves.
    unit
        What a call is to people who count them: a text, where several go in one request.
    remark
        What else people are to know of the run, if anything.
    unknown
        Calls that may have been billed without an answer, and are not sent again unasked.
    paid
        Calls still to make that were billed, or perhaps, and whose repeat is free.
    """

    rows: int
    unique: int
    finished: int
    invalid: int
    calls: int
    credits: float
    balance: int | None = None
    concurrency: int | None = None
    identical_retakes: int = 0
    seconds_at_cap: float | None = None
    cached: int = 0
    budget: float | None = None
    amount: str | None = None
    unit: str = "call"
    remark: str | None = None
    unknown: int = 0
    paid: int = 0

    def line(self) -> str:
        """Return the one line a run begins with."""
        parts = [counted(self.rows, "row"), f"{self.unique:,} unique"]
        others = (
            (self.finished, "done before"),
            (self.unknown, "perhaps billed and not sent again"),
            (self.cached, "cached"),
            (self.invalid, "invalid"),
        )
        parts += [f"{number:,} {what}" for number, what in others if number]
        parts.append(counted(self.calls, self.unit))
        if self.paid:
            parts.append(f"{self.paid:,} of them paid before")
        if self.amount is not None and self.calls:
            parts.append(self.amount)
        parts.append(credits_in_words(self.credits))
        if self.balance is not None:
            parts.append(f"of {self.balance:,} left{self._share()}")
        if self.budget is not None and self.credits > self.budget:
            parts.append(f"more than the {self.budget:,.10g} that its budget leaves: it would stop there")
        if self.concurrency and self.calls:
            parts.append(f"{self.concurrency} at a time")
        if self.seconds_at_cap is not None and self.calls:
            parts.append(f"about {self.seconds_at_cap:,.0f} s")
        if self.identical_retakes:
            parts.append(f"{self.identical_retakes:,} rows cannot vary: retake_identical, not billed again")
        return ", ".join(parts) + (f"; {self.remark}" if self.remark else "")

    def _share(self) -> str:
        if not self.balance or not self.credits:
            return ""
        percent = 100 * self.credits / self.balance
        return f" ({percent:,.3g} %)" if percent >= _LEAST_PERCENT else f" (under {_LEAST_PERCENT} %)"


@dataclass(frozen=True)
class Changes:
    """How a table differs from a run's own.

    Attributes
    ----------
    new, changed, removed, unchanged
        Row ids by what became of them.
    columns
        For each changed row id, the arguments that differ.
    credits
        What resuming the run with the table would cost.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    credits: float = 0.0

    def to_pandas(self) -> "pd.DataFrame":
        """Return one line a row: ``row_id``, ``change`` and, where it changed, ``columns``."""
        import pandas as pd

        lines = [
            (row_id, change, ", ".join(self.columns.get(row_id, ())))
            for change in ("new", "changed", "removed", "unchanged")
            for row_id in getattr(self, change)
        ]
        return pd.DataFrame(lines, columns=["row_id", "change", "columns"])

    def __str__(self) -> str:
        """Return the counts and the price on one line."""
        return (
            f"{len(self.new):,} new, {len(self.changed):,} changed, {len(self.removed):,} removed, "
            f"{len(self.unchanged):,} unchanged: {credits_in_words(self.credits)}"
        )
