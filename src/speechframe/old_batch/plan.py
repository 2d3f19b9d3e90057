"""What a run would do and cost, and the calls it makes."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from speechframe.old_batch.columns import Source
from speechframe.old_batch.keys import NO_KEYS, Keys, Mask, among, first_of_each
from speechframe.old_batch.operation import Operation, Todo
from speechframe.old_batch.progress import counted, credits_in_words
from speechframe.old_batch.row_calls import checked, row_values
from speechframe.spec.billing import to_credits

_LEAST_PERCENT = 0.01

_AT_ONCE_ROWS = 32
"""Calls made in one go. One by one, between the answers of others, each would take several times as long:
whatever the processor keeps at hand of this code, it would have lost by then."""


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
    unknown
        Calls that may have been billed without an answer, and are not sent again unasked.
    cached
        Calls whose answer is in the cache: they cost nothing either.
    invalid
        Rows that cannot be sent.
    calls
        Calls still to make, cached ones left out.
    paid
        Those among them that were billed, or perhaps, and whose repeat is free.
    credits
        Price of the others.
    balance
        Characters left on the key; None if the service does not say.
    budget
        Credits that the run's limit leaves for them; None without a limit.
    amount
        What those credits are paid for, in words, where they do not say it themselves.
    unit
        What a call is to people who count them: a text, where several go in one request.
    remark
        What else people are to know of the run, if anything.
    seconds_at_cap
        Rough time at the concurrency allowed, from the time a call took so far; None before any call.
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
        """Return the one line a run opens with."""
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
class Plan:
    """A table's rows as keys, and which of them are still to be made, which of these at no cost."""

    keys: Keys
    todo: Mask
    cached: Mask
    paid: Mask
    estimate: Estimate

    @classmethod
    def of(
        cls,
        keys: Keys,
        costs: Sequence[int],
        finished: Keys,
        *,
        invalid: int,
        unknown: Keys = NO_KEYS,
        paid: Keys = NO_KEYS,
        cached: Callable[[Keys], Mask] | None = None,
        **known: Any,
    ) -> "Plan":
        """Return the plan for `keys`, leaving out what is `finished` or `unknown`.

        Parameters
        ----------
        keys
            One a row.
        costs
            Thousandths of a credit, one a row.
        finished
            Keys that need no call.
        invalid
            Rows without a call.
        unknown
            Keys that may have been billed, and are not to be sent again.
        paid
            Keys whose call costs nothing more.
        cached
            Says which keys the cache has.
        **known
            Further fields of :class:`Estimate`.
        """
        first = first_of_each(keys)
        before = among(keys, finished)
        todo = first & ~before & ~among(keys, unknown)
        held = np.zeros(len(keys), dtype=bool)
        if cached is not None:
            held[todo] = cached(keys[todo])
        to_call = todo & ~held
        free = to_call & among(keys, paid)
        total = int(np.asarray(costs, dtype=np.int64)[to_call & ~free].sum()) if len(keys) else 0
        estimate = Estimate(
            rows=len(keys),
            unique=int(first.sum()),
            finished=int((first & before).sum()),
            invalid=invalid,
            calls=int(to_call.sum()),
            credits=to_credits(total),
            cached=int(held.sum()),
            unknown=int((first & ~before & ~todo).sum()),
            paid=int(free.sum()),
            **known,
        )
        return cls(keys, todo, held, free, estimate)


def calls(
    batches: Iterable[pa.RecordBatch],
    sources: Mapping[str, Source],
    operation: Operation,
    plan: Plan,
    *,
    row_id: str,
    retaken: Mapping[str, int] = MappingProxyType({}),
    cached_only: Callable[[], bool] = bool,
) -> Generator[Todo, None, None]:
    """Yield the calls to make, reading the spooled table lazily.

    Parameters
    ----------
    batches, sources, operation
        The table, where the verb's arguments come from, the verb.
    plan
        Which rows are to be made.
    row_id
        The table's column of row ids.
    retaken
        Calls that another take stands for, and which.
    cached_only
        Says whether, from now on, only those are still wanted that cost nothing: the cache has them, or they
        were paid before.
    """
    start, free = 0, plan.cached | plan.paid
    for batch in batches:
        if cached_only() and not free[start:].any():
            return
        wanted = np.flatnonzero(plan.todo[start : start + batch.num_rows])
        for first in range(0, len(wanted), _AT_ONCE_ROWS):
            some = wanted[first : first + _AT_ONCE_ROWS]
            if cached_only():
                some = some[free[start + some]]
            rows = batch.take(pa.array(some, pa.int64()))
            ids = rows.column(row_id).to_pylist()
            cached = plan.cached[start + some].tolist()
            made = []
            for values, name, is_cached in zip(row_values(rows, sources), ids, cached, strict=True):
                take = int(values.pop("take", 0))
                planned = checked(operation, values, take, retaken).planned
                if planned is not None:
                    made.append(Todo(planned, (str(name),), is_cached))
            yield from made
        start += batch.num_rows
