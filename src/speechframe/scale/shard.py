"""The data that a driver and its workers exchange.

The driver is the process that plans a run. It sends a job and a shard to a worker, and gets a report.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from speechframe.batch.backend import Backend
from speechframe.batch.options import Options
from speechframe.batch.progress import Outcome, Progress
from speechframe.batch.queue import Mask, Plan
from speechframe.errors import SpeechframeError
from speechframe.store.schema import Row
from speechframe.store.shards import get_block

DEFAULT_WIDTH = 8
"""Number of calls in flight to assume for a lane whose limit is unknown."""
COUNTER_NAMES = ("done", "suspect", "failed", "unknown", "retries", "credits_millis", "audio_seconds")
"""Counters of :class:`~speechframe.batch.progress.Progress` that a driver sums over its shards."""


@dataclass(frozen=True)
class Job:
    """The data that all shards of a run need. They contain no API key.

    Attributes
    ----------
    address
        The run's folder, as a path or an address.
    holder
        Text that identifies the driver's lock of the run.
    backend
        The backend's class if it has ``from_constants``, or else the pickled backend before it was opened.
    settings
        Settings of the service by name.
    options
        The run options that workers need.
    header
        Ledger columns with the same value for all attempts of the run.
    key_fingerprint
        Short hash that distinguishes the API key from other keys.
    is_local
        True if each worker starts a local service of its own.
    """

    address: str
    holder: str
    backend: type[Backend] | bytes
    settings: Mapping[str, Any]
    options: Options
    header: Row
    key_fingerprint: str
    is_local: bool


@dataclass(frozen=True)
class Shard:
    """Some rows of the run's table. Arrays have one element for each row of the row groups `groups`."""

    number: int  # first segment number of the shard's block
    groups: list[int]  # row groups of the table's file
    keys: bytes  # 16 bytes per row
    prices: npt.NDArray[np.int64]  # in thousandths of a credit
    sharers: npt.NDArray[np.uint32]  # number of rows of the whole table with the same call
    todo: Mask  # rows whose calls are to be made
    in_packs: Mask  # rows whose possibly billed call was a pack (one call for several rows)
    failed_records: dict[str, Row]  # failed records by call key, of possibly billed calls to send again
    waits: dict[str, float]  # Unix time before which a call is not sent, by call key

    @property
    def block(self) -> range:
        """The segment numbers of the shard."""
        return get_block(self.number)


@dataclass(frozen=True)
class ShardLimits:
    """The limits of one shard.

    `calls` is the largest number of calls in flight by lane, or None for the limits of the worker's own
    service. A lane with the value None has an unknown limit, which this shard learns. `millicredits` is the
    largest spending of the shard in thousandths of a credit, including its spending so far, or None without a
    limit. `had_answers` is True if the service has given usable answers to the run.
    """

    calls: Mapping[str, int | None] | None
    millicredits: int | None
    had_answers: bool


@dataclass
class Report:
    """The result of a shard.

    Attributes
    ----------
    counters
        Counters by name, from :func:`read_progress`.
    outcomes
        Outcomes of the calls, if the caller of the run reads them.
    missing
        Price of the calls that the limit forbade, in thousandths of a credit.
    segments
        Numbers of the segments with attempts.
    reason, error
        Reason of an early end as a value of ``StopReason``, and the error that caused it, or None.
    seconds, made
        Duration in seconds, and number of calls that ended in this time.
    balance
        Characters left on the key, if known.
    notes
        Messages of the backend for the user.
    learned
        Limit of calls in flight by lane, for lanes that refused calls or whose limit was unknown.
    """

    counters: dict[str, Any] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    missing: int = 0
    segments: list[int] = field(default_factory=list)
    reason: str | None = None
    error: SpeechframeError | None = None
    seconds: float = 0.0
    made: int = 0
    balance: int | None = None
    notes: list[str] = field(default_factory=list)
    learned: dict[str, int] = field(default_factory=dict)


def cut_shard(plan: Plan, number: int, places: npt.NDArray[np.int64], group_starts: Any) -> Shard:
    """Return a shard for some rows of the table.

    `places` are the positions of the rows. `group_starts` has the position of the first row of each row
    group, and ends with the number of rows of the table.
    """
    groups = np.unique(np.searchsorted(group_starts, places, side="right") - 1)
    rows = np.concatenate([np.arange(group_starts[group], group_starts[group + 1]) for group in groups])
    keys = plan.keys.take(rows)
    own = {key.hex() for key in plan.keys.take(places).to_pylist()}
    return Shard(
        number,
        groups.tolist(),
        b"".join(keys.to_pylist()),
        plan.prepared.prices[rows],
        plan.count_sharers()[rows],
        np.isin(rows, places),
        plan.in_packs[rows],
        {key: row for key, row in plan.failed_records.items() if key in own},
        {key: until for key, until in plan.waits.items() if key in own},
    )


def read_progress(progress: Progress, total: int) -> dict[str, Any]:
    """Return the counters of a shard. `total` is its planned number of calls, without retakes."""
    counters: dict[str, Any] = {name: getattr(progress, name) for name in COUNTER_NAMES}
    return {
        **counters,
        "total": progress.total,
        "retakes": progress.total - total,
        "retried_by": dict(progress.retried_by),
        "failed_by": dict(progress.failed_by),
        "warned": dict(progress.warned),
        "examples": dict(progress.examples),
    }


def add_counters(
    progress: Progress, shards: Mapping[int, Mapping[str, Any]], before: Mapping[str, Any]
) -> None:
    """Set the counters of a run: those `before` its first shard, plus the sums over its shards."""
    for name in COUNTER_NAMES:
        setattr(progress, name, before[name] + sum(counters.get(name, 0) for counters in shards.values()))
    retakes = sum(counters.get("retakes", 0) for counters in shards.values())
    progress.total = before["total"] + retakes
    for name in ("retried_by", "failed_by"):
        sums: Counter[str] = sum((Counter(each.get(name, {})) for each in shards.values()), Counter())
        setattr(progress, name, sums)
    for counters in shards.values():
        for kind, message in counters.get("examples", {}).items():
            if kind not in progress.examples:
                progress.warn(kind, message)
    progress.warned = sum((Counter(each.get("warned", {})) for each in shards.values()), Counter())
