"""Find the calls of a run's table that still have no result, and estimate their price and duration.

All data is read from the run's own files, so a resume needs no data from the caller.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.batch.backend import Backend, Opened
from speechframe.batch.lanes import LONGEST_RETRY_AFTER_S, compute_max_calls
from speechframe.batch.options import Options
from speechframe.batch.prepare import Prepared
from speechframe.batch.progress import describe_duration, describe_money
from speechframe.batch.queue import Mask, Plan
from speechframe.errors import SettingsError, suggest_name
from speechframe.settings.spending import DatedPrice, read_prices
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT
from speechframe.store import parts
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder, Manifest, convert_os_errors
from speechframe.store.journal import load_json
from speechframe.store.ledger import measure_seconds_by_voice
from speechframe.store.records import Snapshot, find_senders, read_snapshot, read_spending
from speechframe.store.schema import (
    CHARGED_UNKNOWN,
    COLUMN_PREFIX,
    FINISHED_STATUSES,
    KEY_BYTES,
    NOTED,
    PACK,
    PRICE,
    REQUEST,
    ROW_ID,
    WAIT_UNTIL,
    Row,
)
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

FREE_REPEAT_SHARE = 0.9
"""Share of the service's time for free repeats within which a repeat is planned as free. The rest is a
margin, because a repeat must reach the service before this time ends."""

_CALL_PROPERTIES = ("model", "locale", "voice_id", "format")
"""Properties of a call by which :meth:`Estimate.by` can group, beside the columns of the table."""
_COUNTS = ("finished", "cached", "unknown", "rejected", "waiting", "invalid", "identical_retakes")
"""Numbers of calls and rows that a notebook shows unless they are 0."""
_ROWS_AT_ONCE = 4096
"""Number of rows of the table in memory at a time."""
_SHORTEST_SHOWN_S = 60
"""Shortest duration in seconds that the plan's line contains."""
_CPU_UNKNOWN = "CPU of a call unknown"
DRIVER_CALL_S = 25e-6
"""Seconds of work of this process for each call of the workers of an executor, as measured."""
BOUND_BY_CPU, BOUND_BY_CALLS, BOUND_BY_DRIVER = "CPU of the workers", "calls in flight", "this process"
"""What bounds the speed of a run with the workers of an executor."""


@dataclass(slots=True)
class Sums:
    """Sums over some calls. Calls that were already paid count only in `calls` and `characters`."""

    calls: int = 0
    characters: int = 0
    millicredits: int = 0
    charged_calls: int = 0
    charged_characters: int = 0

    def add(self, characters: int, millicredits: int, *, is_paid: bool) -> None:
        """Add one call to the sums. `is_paid` is True if an earlier attempt paid for the call."""
        self.calls += 1
        self.characters += characters
        if not is_paid:
            self.millicredits += millicredits
            self.charged_calls += 1
            self.charged_characters += characters

    def money(self, price: DatedPrice | None) -> float | None:
        """Return the cost of the calls in money.

        Return None without a price, or if the price depends on the length of the audio, which is unknown.
        """
        quantities = {
            "credit": Decimal(self.millicredits) / MILLICREDITS_PER_CREDIT,
            "character": Decimal(self.charged_characters),
            "request": Decimal(self.charged_calls),
        }
        money = None if price is None else price.compute_cost(quantities)
        return None if money is None else float(money)


Breakdown = Callable[[Sequence[str]], dict[tuple[Any, ...], Sums]]
"""Function that groups the calls to make by the values of some columns, and returns the sums of each
group."""


@dataclass(frozen=True)
class ExecutorWorkers:
    """The workers of an executor, which make the calls of a run in other processes.

    `cores` is the number of cores of their machines, or None if unknown. `have_own_services` returns whether
    each worker has a service of its own, with engines of its own. `make_engine` makes a
    :class:`~speechframe.batch.engine.CallMaker` from its parts.
    """

    count: int
    cores: int | None
    have_own_services: Callable[[Opened, Options], bool]
    make_engine: Callable[..., Any]


@dataclass(frozen=True)
class Estimate:
    """The calls that a run still has to make, with their price and duration.

    Attributes
    ----------
    rows, unique, invalid
        Number of rows in the table, of different calls, and of rows that cannot be sent.
    finished, cached
        Number of calls with a result in this folder, and of calls with an answer in the cache. These calls
        cost nothing.
    calls, credits
        Number of calls still to make, and the price of the unpaid calls among them.
    paid
        Number of calls still to make that cost nothing, because an earlier attempt was or may have been
        billed and the repeat is free.
    unknown
        Number of calls that may have been billed and got no answer. They are not sent again by default.
    rejected
        Number of rows whose take (rendering of the content) a review rejected.
        ``resume(run, redo="rejected")`` makes another take.
    waiting
        Number of calls that this run does not send, because the service's Retry-After exceeds ``patience_s``.
    identical_retakes
        Number of rows that request a further take which would equal the first. These rows keep the first take
        and are not billed again.
    balance, budget
        Characters left on the key (None if unknown), and credits left of the run's limit (None without a
        limit).
    concurrency
        Largest number of calls in flight, or None if unknown before the first call.
    amount
        Billed amount in words, such as seconds of audio. None if the credits suffice.
    unit
        The word for one call, for example "text" if several texts share a request.
    possible_credits
        Largest price of second calls, which fit lines to their slots. They are known after the first calls.
    remark
        Remark on the run for people, or None.
    money, currency, price_from
        Cost of the calls at today's price, its currency, and the first day of that price. None without a
        price.
    ends_at
        Id of the first row that the budget does not cover. None if the budget covers all rows.
    seconds, lanes
        Duration of the calls in seconds at the concurrency cap, and a text for each lane (one address that
        takes calls). The duration is None if the speed of a voice is unknown.
    workers, bound
        Number of workers of the option ``executor``, and what bounds their speed: ``calls in flight``,
        ``CPU of the workers`` or ``this process``. None without an executor, or if the speed is unknown.
    call_cpu_s
        Seconds of CPU of a call at the workers. None if unknown, as it is for a hosted service.
    price, breakdown
        Data for :meth:`by`.
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
    rejected: int = 0
    waiting: int = 0
    paid: int = 0
    money: float | None = None
    currency: str | None = None
    price_from: date | None = None
    ends_at: str | None = None
    seconds: float | None = None
    lanes: tuple[str, ...] = ()
    workers: int | None = None
    bound: str | None = None
    call_cpu_s: float | None = None
    possible_credits: float = 0.0
    price: DatedPrice | None = field(default=None, repr=False)
    breakdown: Breakdown = field(default=lambda _: {}, repr=False, compare=False)

    @property
    def characters(self) -> int:
        """Number of characters of the calls still to make. Each access reads the run's table."""
        return sum(sums.characters for sums in self.breakdown(()).values())

    @property
    def balance_share(self) -> float | None:
        """Share of the balance that the calls cost. None if the balance is unknown or 0."""
        return self.credits / self.balance if self.balance else None

    def by(self, *columns: str) -> "pd.DataFrame":
        """Return the cost of the calls still to make, grouped by some columns.

        Parameters
        ----------
        *columns
            ``locale``, ``voice_id``, ``model``, ``format``, or any column of the table, such as the speaker.
            A call that several rows share counts in the group of the first of these rows.

        Returns
        -------
        pandas.DataFrame
            The columns, and ``calls``, ``characters``, ``credits`` and ``money`` (None without a price). The
            most expensive group comes first.

        Raises
        ------
        SettingsError
            If a column does not exist.

        Examples
        --------
        >>> run = generate(frame, voice="en-US-nora", dry_run=True)  # doctest: +SKIP
        >>> run.estimate.by("speaker", "locale")  # doctest: +SKIP
        """
        import pandas as pd

        rows = [
            (*group, each.calls, each.characters, each.millicredits / 1000, each.money(self.price))
            for group, each in self.breakdown(columns).items()
        ]
        frame = pd.DataFrame(rows, columns=[*columns, "calls", "characters", "credits", "money"])
        return frame.sort_values("credits", ascending=False, ignore_index=True)

    def line(self, most_characters: int | None = None) -> str:
        """Return the estimate as one line of text, which a run shows at its start.

        Facts that matter least are left out while the line has more than `most_characters`.
        """
        left = self.budget or 0.0
        share = f" ({100 * self.balance_share:,.3g} %)" if self.balance_share else ""
        of_balance = "" if self.balance is None else f" of the {self.balance:,} left{share}"
        in_short = share.replace(" %)", " % of the balance)")
        in_money = describe_money(self.money or 0.0, self.currency)
        identical = (
            f"{format_count(self.identical_retakes, 'row')} cannot vary: retake_identical, not billed again"
        )
        passes_budget = self.budget is not None and self.credits > left
        unique, calls = f"{self.unique:,} unique", format_count(self.calls, self.unit)
        at_once = f"{self.concurrency} at a time"
        phrases = (
            (True, format_count(self.rows, "row")),
            (True, unique),
            (self.finished, f"{self.finished:,} done before"),
            (self.unknown, f"{self.unknown:,} perhaps billed and not sent again"),
            (self.rejected, f"{self.rejected:,} with an answer that a review rejected"),
            (self.waiting, f"{self.waiting:,} not sent yet, because the service requires a wait"),
            (self.cached, f"{self.cached:,} cached"),
            (self.invalid, f"{self.invalid:,} invalid"),
            (True, calls),
            (self.paid, f"{self.paid:,} of them paid before"),
            (self.amount and self.calls, self.amount or ""),
            (True, format_count(self.credits, "credit") + of_balance),
            (
                self.possible_credits,
                f"at most {format_count(self.possible_credits, 'credit')} more for second calls",
            ),
            (self.money, f"{in_money} by the price of {self.price_from}"),
            (passes_budget, f"more than the {left:,.10g} that its budget leaves"),
            (passes_budget and self.ends_at, f"with row {self.ends_at} as the first beyond it"),
            (self.concurrency and self.calls, at_once),
            (self.workers, f"by {format_count(self.workers or 0, 'worker')}"),
            (
                self.seconds and self.seconds >= _SHORTEST_SHOWN_S,
                f"about {describe_duration(self.seconds or 0.0)} at that",
            ),
            (self.bound, f"bound by {self.bound}"),
            (self.workers and self.call_cpu_s is None, _CPU_UNKNOWN),
            (self.identical_retakes, identical),
        )
        remark = f"; {self.remark}" if self.remark else ""
        line = ", ".join(phrase for is_said, phrase in phrases if is_said) + remark
        least = [
            (f", {_CPU_UNKNOWN}", ""),
            (f", {at_once}", ""),
            (f", {unique}", ""),
            (of_balance, in_short),
            (in_short, ""),
        ]
        if self.calls == self.rows:
            least.append((f", {calls}", ""))
        for phrase, shorter in least:
            if most_characters is not None and len(line) > most_characters:
                line = line.replace(phrase, shorter, 1)
        return line

    def __repr__(self) -> str:
        return f"<Estimate: {self.line()}>"

    def _repr_html_(self) -> str:
        of_balance = "" if self.balance is None else f" of the {self.balance:,} left"
        rows = [
            ["rows", f"{self.rows:,}"],
            [f"{self.unit}s to make", f"{self.calls:,}"],
            ["credits", f"{self.credits:,.10g}{of_balance}"],
            ["money", describe_money(self.money, self.currency) if self.money else ""],
            ["duration", "" if self.seconds is None else f"about {describe_duration(self.seconds)}"],
            ["workers", "" if self.workers is None else f"{self.workers:,}"],
            ["bound by", self.bound or ""],
            ["CPU of a call", self._describe_cpu()],
            *([name.replace("_", " "), f"{number:,}"] for name in _COUNTS if (number := getattr(self, name))),
            ["budget left", "" if self.budget is None else f"{self.budget:,.10g}"],
            ["first row beyond the budget", self.ends_at or ""],
            ["remark", self.remark or ""],
        ]
        return format_table(["estimate", "value"], [row for row in rows if row[1]])

    def _describe_cpu(self) -> str:
        if self.workers is None:
            return ""
        return "unknown" if self.call_cpu_s is None else f"{self.call_cpu_s:,.2g} s"


def make_breakdown(prepared: Prepared, todo: Mask, free: Mask) -> Breakdown:
    """Return a function that groups and sums up the rows of `todo`. Rows in `free` are already paid.

    Later changes of `todo` do not affect the function.
    """
    folder, name, todo = prepared.table_folder, prepared.entry.file, todo.copy()
    # The table of a preview is removed before the function is called. An open file stays readable after that.
    held = None if folder is prepared.folder else pa.OSFile(str(folder.find_path(name)), "rb")

    def sum_by_columns(columns: Sequence[str]) -> dict[tuple[Any, ...], Sums]:
        found: dict[tuple[Any, ...], Sums] = {}
        start = 0
        with (
            convert_os_errors(folder, "reading the table"),
            pq.ParquetFile(held or folder.get_source(name)) as table,
        ):
            known = [name for name in table.schema_arrow.names if not name.startswith(COLUMN_PREFIX)]
            _check_columns(columns, known)
            read = [REQUEST, PRICE, *(name for name in known if name in columns)]
            for batch in table.iter_batches(_ROWS_AT_ONCE, columns=read):
                here = slice(start, start + batch.num_rows)
                start += batch.num_rows
                rows = batch.filter(pa.array(todo[here])).to_pylist()
                for row, is_paid in zip(rows, free[here][todo[here]].tolist(), strict=True):
                    characters, _, facts = load_json(row[REQUEST].partition(b"\n")[0])
                    group = tuple(_make_hashable(facts.get(name, row.get(name))) for name in columns)
                    found.setdefault(group, Sums()).add(characters, row[PRICE], is_paid=is_paid)
        return found

    return sum_by_columns


def _check_columns(columns: Iterable[str], known: Iterable[str]) -> None:
    known = [*dict.fromkeys([*_CALL_PROPERTIES, *known])]
    for name in columns:
        if name not in known:
            raise SettingsError(
                f"the table has no column {name!r}; {suggest_name(name, known)}there are {', '.join(known)}"
            )


def _make_hashable(value: Any) -> Any:
    """Return `value`, or its text if a dict key must not have this type."""
    return str(value) if isinstance(value, (list, dict)) else value


def estimate_time(
    backend: Backend,
    opened: Opened,
    options: Options,
    calls: int,
    breakdown: Breakdown,
    manifest: Manifest,
    ledger: Folder | None,
    workers: ExecutorWorkers | None = None,
) -> dict[str, Any]:
    """Return the fields of the estimate about concurrency and duration.

    Only lanes with a published cap count. The speed of a voice comes from the ledger (earlier attempts), or
    else from the throughput that the service publishes. The duration is unknown if both lack the speed of a
    voice.

    With `workers`, the duration is the largest of three: the time of the calls in flight, the CPU of the
    engines on the cores of the workers, and the time of this process. The CPU is that of a local service on a
    machine such as this one, which uses a core for each call in flight, as far as there are cores.
    """
    is_service_own = workers is not None and workers.have_own_services(opened, options)
    services = workers.count if workers is not None and is_service_own else 1
    facts: dict[str, Any] = {} if workers is None else {"workers": workers.count}
    most = compute_max_calls(len(opened.lanes)) * (1 if workers is None else workers.count)
    most = min(most, options.max_concurrency or most)
    published = {
        lane.name: lane.published for lane in opened.lanes if lane.published and not lane.is_fallback
    }
    caps = {name: min(cap * services, most) for name, cap in published.items()}
    if not calls or not caps:
        return {"concurrency": sum(caps.values()) or None, **facts}
    learned = {} if ledger is None else measure_seconds_by_voice(ledger, manifest.service, manifest.operation)
    if not (learned or opened.throughputs):
        return {"concurrency": sum(caps.values()), **_describe_lanes(caps, calls, None), **facts}
    characters_of = {
        voice: sums.characters + sums.calls for (voice,), sums in breakdown(("voice_id",)).items()
    }
    works = {voice: backend.work_of({"voice_id": voice}) for voice in characters_of}
    paces = {work: pace for work in works.values() if (pace := opened.throughputs.get(work)) is not None}
    if len(paces) == len(set(works.values())):
        at_once = sum(pace.calls_at_once for pace in paces.values())
        caps = {name: min(cap, at_once * services) for name, cap in caps.items()}
    total_cap = sum(caps.values())
    seconds: float | None = 0.0
    cpu_s = 0.0  # of the engines of local services
    for voice, characters in characters_of.items():
        pace, each_s = paces.get(works[voice]), learned.get(voice)
        at_once = total_cap if pace is None else min(total_cap, len(caps) * services * pace.calls_at_once)
        if seconds is None or (pace is None and each_s is None):
            seconds = None
            continue
        if each_s is not None:
            more_s = characters * each_s / at_once
        elif pace is not None:
            more_s = characters / pace.characters_per_second / len(caps) / services
        seconds += more_s
        cpu_s += more_s * services * min(at_once / services, os.cpu_count() or 1)
    if workers is not None and seconds is not None:
        times = {BOUND_BY_CALLS: seconds, BOUND_BY_DRIVER: calls * DRIVER_CALL_S}
        if is_service_own:
            facts["call_cpu_s"] = cpu_s / calls
            # The CPU comes first, because busy cores are the bound even with as many engines as cores.
            times = {BOUND_BY_CPU: cpu_s / workers.cores if workers.cores else 0.0, **times}
        facts["bound"] = max(times, key=lambda name: times[name])
        seconds = times[facts["bound"]]
    return {"concurrency": total_cap, "seconds": seconds, **_describe_lanes(caps, calls, seconds), **facts}


def _describe_lanes(caps: Mapping[str, int], calls: int, seconds: float | None) -> dict[str, Any]:
    """Return the field of the estimate that describes each lane."""
    total_cap = sum(caps.values())
    took = "" if seconds is None else f" = {describe_duration(seconds)}"
    descriptions = [
        f"{name}: {format_count(round(calls * cap / total_cap), 'row')} at cap {cap}{took}"
        for name, cap in caps.items()
    ]
    return {"lanes": tuple(descriptions)}


def compute_money_fields(
    manifest: Manifest, charged: Sums, breakdown: Breakdown, service: Any
) -> dict[str, Any]:
    """Return the cost of the calls in money, as fields of the estimate. Empty without a price."""
    prices = read_prices(service)
    price = prices.find_price(manifest.operation, manifest.service, datetime.now(UTC).date())
    if price is not None and price.unit == "character":
        charged = breakdown(()).get((), charged)
    money = charged.money(price)
    if price is None or money is None:
        return {}
    return {"money": money, "currency": prices.currency, "price_from": price.valid_from, "price": price}


def find_first_row_beyond(prepared: Prepared, charged: Mask, limit: int) -> str | None:
    """Return the id of the first row, in the table's order, at which the total price exceeds `limit`.

    Return None if the total price of all rows does not exceed `limit`.
    """
    sums = np.cumsum(np.where(charged, prepared.prices, 0))
    position = int(np.searchsorted(sums, limit, side="right"))
    if position == len(sums):
        return None
    folder = prepared.table_folder
    with convert_os_errors(folder, "reading the table"):
        ids = pq.read_table(folder.get_source(prepared.entry.file), columns=[ROW_ID]).column(0)
    return str(ids[position].as_py())


def plan_calls(
    prepared: Prepared,
    backend: Backend,
    opened: Opened,
    options: Options,
    cache: Cache | None = None,
    limit: int | None = None,
    ledger: Folder | None = None,
    workers: ExecutorWorkers | None = None,
) -> tuple[Plan, Estimate]:
    """Return the plan of the calls to make, and its estimate.

    `cache` contains answers of other runs. `limit` is the run's limit in thousandths of a credit. `ledger`
    contains the durations of earlier calls. `workers` make the calls of a run with an executor. Each of them
    may be None.
    """
    folder, keys = prepared.folder, make_key_array(prepared.keys)
    ended = find_ended(folder, keys, opened, options)
    snapshot, failures, failed_records = ended.snapshot, ended.failures, ended.failed_records
    is_done, is_kept = ended.is_done, ended.is_kept
    first = mark_first_of_each(keys)
    is_rejected = mark_known_keys(keys, snapshot.index.keys[snapshot.find_rejections()].tobytes())
    todo = first & ~is_done & ~is_kept
    cached = np.zeros(len(first), dtype=bool)
    if cache is not None and todo.any():
        cached[todo] = cache.has([key.hex() for key in keys.filter(pa.array(todo)).to_pylist()])
    todo &= ~cached
    waits, late_reason = find_wait_ends(failures), ""
    too_late = [key for key, until in waits.items() if until - time.time() > options.patience_s]
    if waiting := int((is_late := todo & mark_known_keys(keys, too_late)).sum()):
        todo &= ~is_late
        at = datetime.fromtimestamp(min(waits[key] for key in too_late)).astimezone()
        late_reason = (
            f"the service accepts {format_count(waiting, 'row')} only from {at:%Y-%m-%d %H:%M:%S} on, later "
            "than patience_s allows: run again then"
        )
    free = todo & mark_known_keys(keys, failed_records)
    calls, charged = int(todo.sum()), todo & ~free
    price = int(prepared.prices[charged].sum())
    left = None if limit is None else max(0, limit - read_spending(folder))
    breakdown = make_breakdown(prepared, todo, free)
    sums = Sums(millicredits=price, charged_calls=int(charged.sum()))
    estimate = Estimate(
        rows=prepared.entry.rows,
        unique=int(first.sum()),
        finished=int((first & is_done).sum()),
        invalid=prepared.entry.invalid,
        calls=calls,
        credits=price / 1000,
        balance=opened.balance,
        identical_retakes=prepared.identical_retakes,
        cached=int(cached.sum()),
        budget=None if left is None else left / 1000,
        amount=backend.describe(price) if calls else None,
        unit=backend.unit,
        remark=backend.remark,
        unknown=int((first & is_kept & ~is_done).sum()),
        rejected=int(is_rejected.sum()),
        waiting=waiting,
        paid=int(free.sum()),
        ends_at=None if left is None else find_first_row_beyond(prepared, charged, left),
        breakdown=breakdown,
        possible_credits=backend.possible_millicredits / MILLICREDITS_PER_CREDIT,
        **estimate_time(backend, opened, options, calls, breakdown, prepared.manifest, ledger, workers),
        **compute_money_fields(prepared.manifest, sums, breakdown, options.service),
    )
    in_packs = mark_known_keys(keys, [key for key, row in failed_records.items() if row[PACK] is not None])
    return Plan(prepared, keys, todo, free, cached, failed_records, in_packs, waits, late_reason), estimate


@dataclass(frozen=True)
class EndedCalls:
    """The outcomes so far of the calls of a table.

    A mask has one bool for each row. `is_kept` marks rows that stay ``charged_unknown``. `failures` are the
    last failed records by key. `failed_records` are those of possibly billed calls to send again.
    """

    snapshot: Snapshot
    is_done: Mask
    is_kept: Mask
    failures: dict[str, Row]
    failed_records: dict[str, Row]


def find_ended(
    folder: Folder, keys: Any, opened: Opened, options: Options, within: range | None = None
) -> EndedCalls:
    """Return the outcomes of the calls with these keys. With `within`, read only segments with these numbers.

    A possibly billed call is sent again if its repeat is free, or if the options say so.
    """
    snapshot, failures = read_snapshot(folder, within=within), parts.read_failures(folder, within)
    unknown = {key: row for key, row in failures.items() if row["status"] == CHARGED_UNKNOWN}
    until = time.time() - FREE_REPEAT_SHARE * opened.repeats_free_s
    # A repeat is free only with the API key that sent the call.
    sent_by = find_senders(snapshot, unknown)
    failed_records = {
        key: row
        for key, row in unknown.items()
        if row[NOTED] is not None
        or (sent_by.get(key) == opened.key_fingerprint and row["finished_at"].timestamp() > until)
    }
    stays = [] if options.on_unknown == "retry" else unknown.keys() - failed_records.keys()
    finished = snapshot.index.keys[snapshot.index.find_with_status(FINISHED_STATUSES)]
    is_done = mark_known_keys(keys, finished.tobytes())
    is_kept = mark_known_keys(keys, stays)
    return EndedCalls(snapshot, is_done, is_kept, failures, failed_records)


def make_key_array(keys: bytes | bytearray) -> Any:
    """Return the concatenated bytes of keys as an Arrow array."""
    kind = pa.binary(KEY_BYTES)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(keys) // KEY_BYTES, [None, pa.py_buffer(keys)])


def find_wait_ends(failures: Mapping[str, Row]) -> dict[str, float]:
    """Return the end of each Retry-After that is not over, as Unix time by call key.

    An end that is more than a day from now becomes a day from now.
    """
    now = time.time()
    found = {key: row.get(WAIT_UNTIL) or 0.0 for key, row in failures.items()}
    return {key: min(until, now + LONGEST_RETRY_AFTER_S) for key, until in found.items() if until > now}


def mark_first_of_each(keys: Any) -> Mask:
    """Return a mask that is True for the first row with each key, and False for keys of zeros (no call)."""
    # Arrow numbers the codes in the order in which the keys first appear.
    codes = keys.dictionary_encode().indices.to_numpy()
    first = np.ones(len(codes), dtype=bool)
    first[1:] = codes[1:] > np.maximum.accumulate(codes)[:-1]
    return first & ~mark_known_keys(keys, bytes(KEY_BYTES))


def mark_known_keys(keys: Any, known: bytes | Iterable[str]) -> Mask:
    """Return a mask that is True for each of `keys` that is in `known`.

    `known` are the concatenated bytes of keys, or keys of 32 hex digits.
    """
    packed = known if isinstance(known, bytes) else bytes.fromhex("".join(known))
    is_known: Any = pc.is_in(keys, make_key_array(packed))
    found: Mask = is_known.to_numpy(zero_copy_only=False)
    return found
