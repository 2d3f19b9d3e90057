"""Find attempts that are not in the ledger folder yet, because their runs are under way or were killed.

The folder ``open/`` in the ledger folder has a note of each of these runs. Their attempts are in the journal
of the run, which is a sequence of files, the segments. A full segment becomes a part (a Parquet file), and
its attempts go to the ledger.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from speechframe.errors import StoreError
from speechframe.store import journal, ledger, parts
from speechframe.store.folder import Folder, read_manifest
from speechframe.store.reader import open_folder
from speechframe.store.schema import LEDGER_SCHEMA

_MAX_TRIES = 20
"""Number of times to read a journal from the start, if segments become parts meanwhile."""


@dataclass
class OpenAttempts:
    """Attempts of one run that may be missing in the ledger folder.

    Attributes
    ----------
    where
        Folder and host of the run, as text for people.
    since
        If this machine can read the journal, the time of the earliest attempt without an end, or None.
        Otherwise the start of the run, because all later attempts may be missing.
    ended
        Attempts that have ended, by the name of the ledger file that will contain them.
    under_way
        Attempts without an end, each with the cost that it has if it was billed.
    """

    where: str
    since: datetime | None
    ended: dict[str, pa.RecordBatch]
    under_way: pa.RecordBatch


def find_open_attempts(folder: Folder) -> Iterator[OpenAttempts]:
    """Yield the attempts of each run in ``open/`` that may be missing in the ledger folder.

    List the files of the ledger only afterwards. If a file has a name from `ended`, the file contains the
    same attempts, so count them once.
    """
    for run_id, note in ledger.read_open_notes(folder).items():
        where = f"{note.get('folder')} on {note.get('host')}"
        is_here = note.get("host") == socket.gethostname()
        if is_here and _is_run(run := open_folder(str(note.get("folder"))), run_id):
            yield read_journal(run, where, f"{run_id}-")
        else:
            since = datetime.fromisoformat(note["since"]).astimezone(UTC)
            yield OpenAttempts(where, since, {}, parts.convert_to_arrow([], LEDGER_SCHEMA))


def read_journal(run: Folder, where: str, prefix: str = "") -> OpenAttempts:
    """Return the attempts in the journal of a run. Names in `ended` begin with `prefix`."""
    for _ in range(_MAX_TRIES):
        with suppress(FileNotFoundError):  # a segment became a part while the journal was read
            contents = {number: journal.read_contents(run, number) for number in journal.list_segments(run)}
            ended = {
                f"{prefix}{number:06d}.parquet": parts.convert_to_arrow(of_segment.attempts, LEDGER_SCHEMA)
                for number, of_segment in contents.items()
            }
            # Read all segments together to find the open attempts. An attempt may begin in one segment and
            # end in a later segment.
            open_calls = journal.read_contents(run, *contents).open.values()
            under_way = [entry for sent, _ in open_calls for entry in journal.make_unended_entries(sent)]
            since = min((datetime.fromtimestamp(sent["time"], UTC) for sent, _ in open_calls), default=None)
            return OpenAttempts(where, since, ended, parts.convert_to_arrow(under_way, LEDGER_SCHEMA))
    raise StoreError(f"{run.path}: the journal changes faster than it can be read; try again")


def _is_run(folder: Folder, run_id: str) -> bool:
    """Return whether the folder contains the run with this id."""
    with suppress(StoreError):
        return read_manifest(folder).run_id == run_id
    return False
