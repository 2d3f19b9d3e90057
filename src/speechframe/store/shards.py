"""Shards of a run in its folder. A shard is a set of rows that one worker makes, perhaps on another machine.

The driver is the process that plans the run and holds its lock. A segment is a numbered piece of the journal
(`speechframe.store.journal`). Each shard has a block of segment numbers for itself, so no two workers write
the same file. While a worker makes a shard, it holds a lock on the shard and writes its counters to
``shards/``. The driver writes an order there to stop all workers.

For a run at an address, the journal and the locks of a worker are on the worker's machine, and other machines
do not see them. So a worker claims segment numbers at the address: only one process can create the file of a
claim. Before the worker sends calls whose repeats are not free, it also writes intents there. Intents are
copies of the ``sent`` lines of its journal. If a machine and its disk are lost, a later process reads the
intents and marks these rows as ``charged_unknown``.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pyarrow as pa

from speechframe.errors import RunLocked, StoreError
from speechframe.processes.slots import SLOT_BYTES_RANGE, Slots
from speechframe.store import parts
from speechframe.store.folder import Folder, convert_os_errors
from speechframe.store.journal import (
    LOG_FOLDER,
    MAX_SEGMENT_ROWS,
    Journal,
    dump_json,
    list_segments,
    load_json,
)
from speechframe.store.ledger import Ledger
from speechframe.store.records import Snapshot, read_snapshot
from speechframe.store.remote import RemoteFolder
from speechframe.store.schema import PENDING, TIME_TYPE, Row
from speechframe.store.schema import columns as make_schema

BLOCK_NUMBERS, CLAIMED_NUMBERS = 100_000, 2000
"""Number of segment numbers of a shard, and number of them that one worker claims at an address."""
MAX_REMOTE_SEGMENT_ROWS = 256
"""Largest number of records of a segment for a run at an address. If a machine is lost, the records of its
open segment are lost, too."""
SHARDS_FOLDER, CLAIMS_FOLDER, INTENTS_FOLDER = "shards", "claims", "intents"
"""Folders of the counters of shards, of claimed numbers, and of intents. They are empty after a run."""
DRAIN, NOW = b"drain", b"now"
"""Orders to all workers: end after the calls under way, or cancel these calls."""
LONGEST_WAIT_S, SILENT_S = 60.0, 12.0
"""Longest wait in seconds for shards of an earlier driver. For a run at an address, a worker counts as dead
if its counters stay the same for `SILENT_S` seconds."""

_END_SCHEMA = make_schema(status=pa.string(), finished_at=TIME_TYPE)
_LOCKS_FILE, _ORDER_FILE = f"{LOG_FOLDER}/shards.lock", f"{SHARDS_FOLDER}/order"


def get_block(number: int) -> range:
    """Return all segment numbers of the shard to which this segment number belongs."""
    start = number // BLOCK_NUMBERS * BLOCK_NUMBERS
    return range(start, start + BLOCK_NUMBERS)


@contextmanager
def lock_shard(folder: Folder, block: range) -> Iterator[None]:
    """Lock a shard against all processes that see its journal. The lock ends with this process.

    RunLocked is raised if another process makes the shard.
    """
    with convert_os_errors(folder, "locking a shard"):
        folder.find_path(LOG_FOLDER).mkdir(parents=True, exist_ok=True)
    locks = Slots(folder.find_path(_LOCKS_FILE))
    try:
        if not locks.take_this_slot(block.start // BLOCK_NUMBERS):
            raise RunLocked(f"{folder}: another process makes rows of the shard {block.start}")
        yield
    finally:
        locks.close()


def wait_for_shards(folder: Folder) -> None:
    """Wait until no worker makes a shard for an earlier driver.

    The workers of a dead driver end by themselves. RunLocked is raised if one still works after
    `LONGEST_WAIT_S`.
    """
    locks = Slots(folder.find_path(_LOCKS_FILE)) if folder.find_path(_LOCKS_FILE).exists() else None
    last_news: dict[str, tuple[bytes, float]] = {}
    until = time.monotonic() + LONGEST_WAIT_S
    try:
        while True:
            busy = 0 if locks is None else locks.count_others(SLOT_BYTES_RANGE)
            busy = max(busy, _count_busy_elsewhere(folder, last_news))
            if not busy:
                return
            if time.monotonic() > until:
                raise RunLocked(
                    f"{folder.path}: {busy} shards of an earlier call are still being made: wait for the end "
                    "of their workers, or end these workers"
                )
            time.sleep(0.1 if folder.work == folder.path else 1.0)
    finally:
        if locks is not None:
            locks.close()


def _count_busy_elsewhere(
    folder: Folder, last_news: dict[str, tuple[bytes, float]], within: range | None = None
) -> int:
    """Return the number of workers whose counters at an address still change.

    Pass the same dict `last_news` to each call, because it keeps the counters between calls. With `within`,
    only workers with these segment numbers count. The counters of dead workers are removed.
    """
    if not isinstance(folder, RemoteFolder):
        return 0
    busy = 0
    for name in folder.list_names(SHARDS_FOLDER, ".json"):
        if within is not None and int(name.partition(".")[0]) not in within:
            continue
        with suppress(FileNotFoundError):
            news, now = folder.read(f"{SHARDS_FOLDER}/{name}"), time.monotonic()
            if last_news.get(name, (b"", 0.0))[0] != news:
                last_news[name] = news, now
            if now - last_news[name][1] > SILENT_S:
                folder.remove(f"{SHARDS_FOLDER}/{name}")
            else:
                busy += 1
    return busy


def has_traces(folder: Folder) -> bool:
    """Return whether workers of an executor wrote to the run. Its ledger may then lack attempts."""
    return folder.exists(SHARDS_FOLDER) or folder.exists(CLAIMS_FOLDER)


# -- messages between the driver and the workers --------------------------------------------


def write_order(folder: Folder, order: bytes) -> None:
    """Write an order to all workers."""
    folder.write(_ORDER_FILE, order)


def read_order(folder: Folder, holder: str) -> bytes | None:
    """Return the order to a worker, or None. `holder` is the text that identifies its driver's lock.

    The order is `DRAIN` if another process holds the lock, because the driver is dead then.
    """
    if folder.describe_lock() != holder:
        return DRAIN
    with suppress(FileNotFoundError):
        return folder.read(_ORDER_FILE)
    return None


def write_counters(folder: Folder, numbers: range, counters: Mapping[str, Any]) -> None:
    """Write the counters of a shard for the driver. Errors are ignored, because the next counters follow."""
    # The time makes each content different, so that a driver sees that the worker lives.
    content = json.dumps({**counters, "time": time.time()}).encode()
    name = f"{SHARDS_FOLDER}/{numbers.start:06d}.json"
    with suppress(OSError, StoreError):
        if isinstance(folder, RemoteFolder):
            folder.put(name, content)
        else:
            temporary = folder.make_temporary_path(name)
            temporary.write_bytes(content)
            temporary.replace(folder.find_path(name))


def read_counters(folder: Folder) -> dict[int, dict[str, Any]]:
    """Return the counters of the shards that are being made, by the first number of their block.

    If two workers write counters of one shard, the later worker counts.
    """
    found = {}
    for name in folder.list_names(SHARDS_FOLDER, ".json"):
        block = get_block(int(name.partition(".")[0]))
        with suppress(OSError, ValueError):
            found[block.start] = json.loads(folder.read(f"{SHARDS_FOLDER}/{name}"))
    return found


def remove_counters(folder: Folder, numbers: range) -> None:
    """Remove the counters of a worker whose shard has ended."""
    with suppress(OSError, StoreError):
        folder.remove(f"{SHARDS_FOLDER}/{numbers.start:06d}.json")


# -- the journal of a worker -----------------------------------------------------------------


def claim_numbers(folder: Folder, block: range) -> tuple[range, int]:
    """Return the segment numbers that this process may write, and the largest number of records of a segment.

    For a run at an address, claim the numbers. StoreError is raised if the shard has no numbers left, because
    too many processes began it.
    """
    if not isinstance(folder, RemoteFolder):
        return block, MAX_SEGMENT_ROWS
    for start in range(block.start, block.stop, CLAIMED_NUMBERS):
        with convert_os_errors(folder, "claiming numbers"):
            if folder.claim(f"{CLAIMS_FOLDER}/{start:06d}"):
                return range(start, start + CLAIMED_NUMBERS), MAX_REMOTE_SEGMENT_ROWS
    raise StoreError(f"{folder.path}: the same rows were begun too often: find out why their workers end")


def is_superseded(folder: Folder, numbers: range) -> bool:
    """Return whether another process has claimed numbers of the same shard after this process."""
    return any(number > numbers.start for number in _list_claims(folder, get_block(numbers.start)))


def wait_for_earlier_makers(folder: Folder, numbers: range) -> None:
    """Wait until earlier makers of a shard at an address have ended. They end once they see a later claim."""
    earlier = range(get_block(numbers.start).start, numbers.start)
    last_news: dict[str, tuple[bytes, float]] = {}
    while _count_busy_elsewhere(folder, last_news, earlier):
        time.sleep(1.0)


def find_first_block(folder: Folder) -> int:
    """Return the smallest first segment number for a new shard. No process has used it or a larger number."""
    claimed = max(_list_claims(folder, None), default=0)
    return get_block(max(parts.find_next_number(folder), claimed)).stop


def _list_claims(folder: Folder, block: range | None) -> list[int]:
    claims = [int(name) for name in folder.list_names(CLAIMS_FOLDER, "")]
    return claims if block is None else [number for number in claims if number in block]


def recover_shard(folder: Folder, columns: pa.Schema, header: Row, block: range, numbers: range) -> None:
    """Convert the segments that earlier makers of a shard left. The caller holds the lock of the shard.

    For a run at an address, convert the segments of all dead workers of this machine, because no other
    machine can, and then the intents of the shard. `numbers` are the numbers of this process.
    """
    if not isinstance(folder, RemoteFolder):
        parts.recover_journal(folder, columns, header, time.time(), within=block)
        return
    for start in sorted({number // CLAIMED_NUMBERS * CLAIMED_NUMBERS for number in list_segments(folder)}):
        own = start in block
        with suppress(RunLocked), nullcontext() if own else lock_shard(folder, get_block(start)):
            # Keep the numbers of the dead process, because later records of its rows have higher numbers.
            claimed = range(start, start + CLAIMED_NUMBERS)
            parts.recover_journal(folder, columns, header, time.time(), within=claimed)
    recover_intents(folder, columns, header, None, block, numbers)


def write_intent(folder: RemoteFolder, name: str, sent: Sequence[Row]) -> None:
    """Write the ``sent`` lines of calls that are about to be sent."""
    with convert_os_errors(folder, "writing an intent"):
        folder.put(f"{INTENTS_FOLDER}/{name}.jsonl", b"\n".join(map(dump_json, sent)))


def recover_intents(
    folder: Folder,
    columns: pa.Schema,
    header: Row,
    ledger: Ledger | None,
    block: range | None = None,
    numbers: range | None = None,
) -> None:
    """Write ``charged_unknown`` for rows with an intent but without a later record. Remove the intents.

    By default for all shards. With `block`, only for one shard, in a segment with one of these `numbers`.
    """
    if not (names := _list_intents(folder, block)):
        return
    sent = [
        load_json(line) for name in names for line in folder.read(f"{INTENTS_FOLDER}/{name}").splitlines()
    ]
    if lost := _find_lost_calls(read_snapshot(folder), sent):
        log = Journal(folder, parts.find_next_number(folder, numbers), header)
        parts.write_unknown_ends(log, ((each, None) for each in lost), time.time())
        parts.convert_segment(folder, log.close(), columns, ledger)
    folder.remove_all([f"{INTENTS_FOLDER}/{name}" for name in names])


def _find_lost_calls(snapshot: Snapshot, sent: Sequence[Row]) -> list[Row]:
    """Return the ``sent`` lines of calls without a final record that is newer than the line."""
    entries = [(each["time"], entry["request_key"]) for each in sent for entry in each["entries"]]
    positions = snapshot.index.find([key for _, key in entries])
    records = snapshot.read_records(positions, _END_SCHEMA).to_pylist()
    ended = {
        key
        for (sent_at, key), record in zip(entries, records, strict=True)
        if record["finished_at"] is not None
        and record["finished_at"].timestamp() >= sent_at
        and record["status"] != PENDING
    }
    return [each for each in sent if not any(entry["request_key"] in ended for entry in each["entries"])]


def remove_intents(folder: Folder, block: range) -> None:
    """Remove the intents of a shard. Call only once all its records are written."""
    folder.remove_all([f"{INTENTS_FOLDER}/{name}" for name in _list_intents(folder, block)])


def _list_intents(folder: Folder, block: range | None) -> list[str]:
    names = folder.list_names(INTENTS_FOLDER, ".jsonl")
    return names if block is None else [name for name in names if int(name.partition("-")[0]) in block]


def clear_messages(folder: Folder) -> None:
    """Remove the files of :data:`SHARDS_FOLDER`, and all claims but the last.

    Call only once no worker makes a shard. The last claim stays, so that no later shard gets its numbers. A
    lost machine may still have files with these numbers.
    """
    names = [f"{SHARDS_FOLDER}/{name}" for name in folder.list_names(SHARDS_FOLDER, "")]
    claims = [f"{CLAIMS_FOLDER}/{number:06d}" for number in sorted(_list_claims(folder, None))[:-1]]
    folder.remove_all([*names, *claims])
