"""What a drive of a run has to make, after what earlier drives left."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from speechframe.errors import StoreError
from speechframe.old_batch.allowance import finite
from speechframe.old_batch.books import Before, read_before
from speechframe.old_batch.connection import Connection, settings_of
from speechframe.old_batch.keys import Keys, among, as_keys
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.options import Options
from speechframe.old_batch.outcome import HEARD
from speechframe.old_batch.packs import sent_together
from speechframe.old_batch.plan import Plan
from speechframe.old_batch.planner import Planner
from speechframe.old_batch.prepared import Prepared
from speechframe.old_batch.progress import counted
from speechframe.old_store import RunFolder
from speechframe.old_store.cache import Cache, open_cache
from speechframe.old_store.schema import SentRecord
from speechframe.settings.rules import cache_rules, spending_rules
from speechframe.spec.billing import CREDIT

LATENCY_KEY = "mean_latency_ms"


@dataclass(frozen=True)
class Ahead:
    """What a drive has to make.

    Attributes
    ----------
    plan
        The calls, and what they cost.
    before
        What earlier drives left behind.
    together
        Packs that are to be sent again as they were, by each of their calls.
    """

    plan: Plan
    before: Before
    together: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Outlook:
    """Looks at what is ahead of a run, recovered or not; nothing is sent or written.

    Parameters
    ----------
    run_id, prepared
        The run, and its table as it was checked.
    operation, connection, options
        The verb, the service, the run options.
    cache
        Answers of other runs; None for none.
    remark
        What people are to know of the run beside what it does and costs.
    """

    run_id: str
    prepared: Prepared
    operation: Operation
    connection: Connection
    options: Options
    cache: Cache | None
    remark: str | None

    def ahead(self) -> Ahead:
        """Return what is to be made, after what earlier drives left.

        Of a run that is live, or was killed: what would be, if it ended now.
        """
        folder = self.prepared.folder
        # First: what a live run makes from here on may be in the ledger alone, and never in the index alone.
        index = folder.index()
        standing = folder.standing()
        before = read_before(
            folder.path,
            standing,
            key_fingerprint=self.connection.key_fingerprint,
            # A margin, so that the service's memory does not end between this look and the repeat.
            remembered=timedelta(seconds=self.connection.repeat_seconds * 0.9),
            index=None if self.limit is None else index,
        )
        finished = index.packed(HEARD)
        together = self._packs(standing.unknown, before, finished) if self.operation.packs else {}
        if self.operation.packs:
            # Nothing else of a pack is free.
            before = replace(before, paid=frozenset(together))
        latency_ms = folder.manifest.extra.get(LATENCY_KEY)
        width = self.connection.width(self.operation.pool, self.options.max_concurrency)
        plan = Plan.of(
            self.prepared.keys,
            self.prepared.costs,
            finished,
            invalid=self.prepared.invalid,
            unknown=as_keys(self._not_sent_again(before)),
            paid=as_keys(before.paid),
            cached=None if self.cache is None else self.cache.holds,
            balance=self.connection.balance,
            concurrency=width,
            budget=self._budget_left(before),
            identical_retakes=self.prepared.identical_retakes,
            unit=self.operation.unit,
            remark=self.remark,
        )
        if plan.estimate.calls:
            self._check_ledger(before)
        amount = self.operation.amount(round(plan.estimate.credits * CREDIT))
        plan = replace(plan, estimate=replace(plan.estimate, amount=amount))
        if latency_ms:
            seconds = plan.estimate.calls * latency_ms / 1000 / width
            plan = replace(plan, estimate=replace(plan.estimate, seconds_at_cap=seconds))
        return Ahead(plan, before, together)

    def _packs(
        self, unknown: Mapping[str, SentRecord], before: Before, finished: Keys
    ) -> Mapping[str, tuple[str, ...]]:
        """Return the packs that can be sent again as they were, by each of their calls."""
        paid = as_keys(sorted(before.paid))
        still_here = among(paid, self.prepared.keys) & ~among(paid, finished)
        return sent_together(
            unknown,
            run_id=self.run_id,
            repeatable={bytes(key).hex() for key in paid[still_here]},
        )

    def _check_ledger(self, before: Before) -> None:
        """Raise StoreError where a limit would be passed because the ledger has lost what was spent."""
        if before.unbooked:
            raise StoreError(
                f"{self.prepared.folder.path}: of {counted(before.unbooked, 'call')} no attempt is in the "
                "ledger, so nobody knows what is left of max_credits; nothing was sent. Restore attempts/ "
                "from a copy of the folder, or lift the limit: max_credits=float('inf')"
            )

    @property
    def limit(self) -> float | None:
        """What the run may spend; None where no limit is set."""
        return finite(spending_rules(settings_of(self.options)).of_run(self.options.max_credits))

    def _budget_left(self, before: Before) -> float | None:
        limit = self.limit
        return None if limit is None else max(0.0, limit - before.spent_millis / CREDIT)

    def _not_sent_again(self, before: Before) -> frozenset[str]:
        """Return the calls that may have been billed and whose repeat might be billed too."""
        if self.options.on_unknown == "retry":
            return frozenset()
        return before.unknown - before.paid


def check_ledger(
    folder: RunFolder, planner: Planner, operation: Operation, connection: Connection, options: Options
) -> None:
    """Raise StoreError where a drive of a new table would: the one that the run has then stays in place.

    Parameters
    ----------
    folder
        The run, with the table that it has so far.
    planner
        Of the new one, read to its end.
    operation, connection, options
        The verb, the service, the run options.
    """
    planned = Prepared(folder, planner.sources, planner.keys.to_array(), planner.costs, None, planner.invalid)
    cache = open_cache(options.cache, **cache_rules(settings_of(options)))
    outlook = Outlook(folder.manifest.run_id, planned, operation, connection, options, cache, remark=None)
    if outlook.limit is not None:
        outlook.ahead()
