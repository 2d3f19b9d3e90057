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
    rows, unique, invalid
        Rows of the table, different calls among them, and rows that cannot be sent.
    finished, cached
        Calls that an earlier run of this folder has made, or that are in the cache: they cost nothing.
    calls, credits
        Calls still to make, and the price of those that were not paid before.
    paid
        Calls still to make that were billed, or perhaps, and whose repeat is free.
    unknown
        Calls that may have been billed without an answer, and are not sent again unasked.
    identical_retakes
        Rows whose further take would be the same as the first: they are not billed again.
    balance, budget
        Characters left on the key, and credits that the run's limit leaves; None where nothing is said.
    concurrency
        Calls in flight at most, as far as it is known before the first call.
    amount
        What the credits are paid for, in words, where they do not say it themselves.
    unit
        What a call is to people who count them: a text, where several go in one request.
    remark
        What else people are to know of the run, if anything.
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
    cached: int = 0
    budget: float | None = None
    amount: str | None = None
    unit: str = "call"
    remark: str | None = None
    unknown: int = 0
    paid: int = 0

    def line(self) -> str:
        """Return the one line a run begins with."""
        share, left = "", 0.0 if self.budget is None else self.budget
        if self.balance and self.credits:
            percent = 100 * self.credits / self.balance
            share = f" ({percent:,.3g} %)" if percent >= _LEAST_PERCENT else f" (under {_LEAST_PERCENT} %)"
        identical = f"{self.identical_retakes:,} rows cannot vary: retake_identical, not billed again"
        passes_budget = self.budget is not None and self.credits > left
        parts = (
            (True, counted(self.rows, "row")),
            (True, f"{self.unique:,} unique"),
            (self.finished, f"{self.finished:,} done before"),
            (self.unknown, f"{self.unknown:,} perhaps billed and not sent again"),
            (self.cached, f"{self.cached:,} cached"),
            (self.invalid, f"{self.invalid:,} invalid"),
            (True, counted(self.calls, self.unit)),
            (self.paid, f"{self.paid:,} of them paid before"),
            (self.amount and self.calls, self.amount or ""),
            (True, credits_in_words(self.credits)),
            (self.balance is not None, f"of {self.balance or 0:,} left{share}"),
            (passes_budget, f"more than the {left:,.10g} that its budget leaves: it would stop there"),
            (self.concurrency and self.calls, f"{self.concurrency} at a time"),
            (self.identical_retakes, identical),
        )
        remark = f"; {self.remark}" if self.remark else ""
        return ", ".join(words for is_said, words in parts if is_said) + remark


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
