"""Attempts that are not in the ledger folder yet, of runs that are under way or were killed.

``open/`` of the ledger folder has a note of each such run. The attempts are in the run's own journal.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from speechframe.errors import StoreError
from speechframe.store import journal, ledger, parts
from speechframe.store.folder import Folder, read_manifest
from speechframe.store.reader import open_folder
from speechframe.store.schema import LEDGER

_TRIES = 20


@dataclass
class Open:
    """Attempts of one run that the ledger folder may not have.

    Attributes
    ----------
    where
        Folder and host of the run, in words.
    since
        Time of the earliest attempt that is missing here. None if all attempts are here.
    ended
        Attempts that have ended, by the ledger file that they become.
    under_way
        Attempts without an end, with what they cost if they were billed.
    """

    where: str
    since: datetime | None
    ended: dict[str, pa.RecordBatch]
    under_way: pa.RecordBatch


def find_open(folder: Folder) -> Iterator[Open]:
    """Yield the attempts of each run in ``open/`` that the ledger folder may not have.

    List the files of the ledger afterwards. A file with a name of `ended` has the same attempts.
    """
    for run_id, note in ledger.open_runs(folder).items():
        where = f"{note.get('folder')} on {note.get('host')}"
        if ledger.is_here(note) and _is_run(run := open_folder(str(note.get("folder"))), run_id):
            yield in_journal(run, where, f"{run_id}-")
        else:
            since = datetime.fromisoformat(note["since"]).astimezone(UTC)
            yield Open(where, since, {}, parts.table_of([], LEDGER))


def in_journal(run: Folder, where: str, prefix: str = "") -> Open:
    """Return the attempts in the journal of a run. The names of their files begin with `prefix`."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # a segment became a part while the journal was read
            contents = {number: journal.read_contents(run, number) for number in journal.segments(run)}
            ended = {
                f"{prefix}{number:06d}.parquet": parts.table_of(of_segment.attempts, LEDGER)
                for number, of_segment in contents.items()
            }
            # A later segment repeats the lines of an attempt that began in an earlier one, and has its end.
            open_calls = journal.read_contents(run, *contents).open.values()
            under_way = [entry for sent, _ in open_calls for entry in journal.if_billed(sent)]
            since = min((datetime.fromtimestamp(sent["time"], UTC) for sent, _ in open_calls), default=None)
            return Open(where, since, ended, parts.table_of(under_way, LEDGER))
    raise StoreError(f"{run.path}: the journal changes faster than it can be read; try again")


def _is_run(folder: Folder, run_id: str) -> bool:
    """Return whether the folder still holds this run, and not another one."""
    with suppress(StoreError):
        return read_manifest(folder).run_id == run_id
    return False
