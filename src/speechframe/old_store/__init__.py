"""Run folders: what was asked, what came back, what it cost; on disk before it counts.

Layout 1 of a run folder::

    run.json                        what the run is: RunManifest, replaced atomically
    lock, lock.json                 held by the process that writes; who that is
    input/0001.parquet ...          one file a table handed in: the caller's columns and whatever the verb
                                    put beside them (row id, request_key, ...); the newest is the run's table
    input/audio/<sha256>            clips that were handed in and have no file of their own
    log/<writer>/0001.log ...       what was sent and what came back, by one write each (store.log)
    parts/<writer>-0001.parquet     finished calls, status done, cached or suspect: PART_SCHEMA, at most 2,048
                                    rows or 128 MB, row groups of at most 64 rows and 32 MB; the footer names
                                    its keys
    parts/failed.parquet            calls that are failed or charged_unknown now, without audio, in
                                    PART_SCHEMA: a glob over parts/ shows every request_key once. As long as
                                    log/ has something, calls that are finished by now may stand here too
    attempts/<writer>-0001.parquet  the ledger: LEDGER_SCHEMA, one row an attempt
    aligned/<id>.parquet            words that were found in the audio, of calls the service told none of
                                    (store.aligned)
    reviews.parquet, reviews.lock   what people said of rows; held while that is written (store.reviews)
    .planning-<id>/                 a run in the making, here until it gets its place (store.draft)

``<writer>`` is a new short id for each :class:`RunWriter`. Names that begin
with a dot are files not yet finished.

A part holds one row a *call*: rows of a table with equal calls share it, joined
by ``request_key``. A segment of the log and the part and ledger file of the
same number belong together. The segment goes only when both files, and
``failed.parquet``, are on disk under their names; calls still in flight are
carried over into the next segment before. So at any instant, after a SIGKILL
or a power cut, :meth:`RunFolder.recover` finds every acknowledged record in the
log or in a part; a ``sent`` without an answer comes back as ``charged_unknown``.

Readers need no lock and disturb nobody. Each call sees what is acknowledged at that moment, in parts and in
the logs of a writer at work or of a dead one, every call once (store.look); a ``sent`` without an answer is
still ``pending`` to them.

A run may lie on another machine (``s3://bucket/run``, or any filesystem of fsspec or pyarrow; store.locate).
Then ``log/``, the lock and unfinished files lie on this machine, in
``$XDG_STATE_HOME/speechframe/remote/<hash>``; a part is put whole or not at all, and a segment goes only
when its part is there. So a process that dies or cannot reach the run loses nothing that was acknowledged:
the next :meth:`RunFolder.recover` on the same machine puts it. Other machines see what is there. Who may
write is said in store.holder.

What a writer does, in order::

    run = RunFolder.create(path, manifest)          # or RunFolder.open(path)
    with run.lock():                                # RunLocked if another process has it
        recovered = run.recover()                   # recovered.unknown: request_key -> SentRecord
        with run.add_table(schema, column_map=names, id_column="id") as table:
            for batch in batches:
                table.write(batch)
        finished = run.keys()                       # request_key -> status
        with run.writer() as writer:
            writer.sent(SentRecord(...))            # before every attempt
            writer.attempt(LedgerRow(...))          # after an attempt that is not the last one
            # the outcome of a call and its last attempt, in one write
            writer.answer(Record(...), LedgerRow(...))

:class:`RunFolder`
    ``create(path, manifest)``, ``open(path)``, ``exists(path)``, ``move(path)``; ``path``, ``manifest``,
    ``update_manifest(**changes)``; ``lock()``; ``recover() -> Recovered``; ``writer() -> RunWriter``;
    ``add_table(schema, ...) -> TableWriter``, ``tables()``, ``table()``;
    ``keys()``, ``index() -> KeyIndex`` (compact), ``row(key)``, ``clip_bytes(key)``;
    ``joined(columns, audio=..., batch_rows=...)``, ``ledger()``, ``standing()`` (calls in doubt and ledger,
    as ``recover()`` would leave them), ``verify()``.
:class:`RunWriter`
    ``sent``, ``attempt``, ``answer``, ``flush`` (on the disk, not only in the kernel), ``cut`` (into parts
    now, for other tools), ``close``; ``rows_written``, ``bytes_written``. Thread-safe; calls
    are cheap.

:func:`locate`
    What ``path`` means: a :class:`~pathlib.Path`, or what the store uses of one elsewhere
    (:func:`is_remote`).

Errors are :class:`~speechframe.errors.StoreError` and its kinds ``NotARun``,
``RunLocked`` and ``RunMismatch``; they name the folder and what to do.
"""

from speechframe.old_store.draft import draft_in, draft_parent, drafts_in, is_draft
from speechframe.old_store.index import KeyIndex
from speechframe.old_store.locate import is_remote, locate, shown
from speechframe.old_store.manifest import LAYOUT, RunManifest, TableEntry
from speechframe.old_store.move import is_left_over
from speechframe.old_store.recover import Recovered
from speechframe.old_store.run import RunFolder
from speechframe.old_store.schema import (
    LEDGER_SCHEMA,
    PART_SCHEMA,
    CallStatus,
    LedgerRow,
    Record,
    SentRecord,
)
from speechframe.old_store.table import TableWriter
from speechframe.old_store.verify import Problem
from speechframe.old_store.writer import RunWriter

__all__ = [
    "LAYOUT",
    "LEDGER_SCHEMA",
    "PART_SCHEMA",
    "CallStatus",
    "KeyIndex",
    "LedgerRow",
    "Problem",
    "Record",
    "Recovered",
    "RunFolder",
    "RunManifest",
    "RunWriter",
    "SentRecord",
    "TableEntry",
    "TableWriter",
    "draft_in",
    "draft_parent",
    "drafts_in",
    "is_draft",
    "is_left_over",
    "is_remote",
    "locate",
    "shown",
]
