"""Read several ledgers as one.

A ledger contains one row for each attempt (one try of a call) and its cost. Each run folder contains the
ledger of its run. The ledger folder contains the attempts of all runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from os import PathLike
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import AnalysisError, StoreError
from speechframe.settings import fingerprint_key, read_settings
from speechframe.settings.spending import read_spending_rules
from speechframe.spec.billing import MAX_BUDGET_CREDITS, MILLICREDITS_PER_CREDIT
from speechframe.store import ledger
from speechframe.store.folder import RUN_FILE, Folder
from speechframe.store.open_runs import find_open_attempts, read_journal
from speechframe.store.reader import StoredRun, open_folder

NO_VALUE = "(none)"
"""Text in a table for attempts that lack the tag or the value of the column."""


@dataclass
class Ledgers:
    """The contents of several ledgers at one moment.

    Attributes
    ----------
    folders
        Run folders or ledger folders.
    files
        Names of the ledger files of each folder at the time when the folder was added.
    recent
        Attempts of open runs that are only in journals, not yet in ledger files.
    complete_until
        The ledgers contain every attempt that was sent before this time (UTC).
    waits_for
        Names of the open runs whose later attempts are still missing.
    places
        The folders as text, or ``all runs``.
    """

    folders: list[Folder] = field(default_factory=list)
    files: list[list[str]] = field(default_factory=list)
    recent: list[pa.RecordBatch] = field(default_factory=list)
    complete_until: datetime = field(default_factory=lambda: datetime.now(UTC))
    waits_for: list[str] = field(default_factory=list)
    places: str = "all runs"

    def batches(
        self, columns: Sequence[str], start: datetime | None = None, end: datetime | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the given columns of all attempts sent from `start` on and before `end`, in any order."""
        for folder, files in zip(self.folders, self.files, strict=True):
            yield from ledger.read_attempts(folder, columns, start, end, files=files)
        for batch in self.recent:
            yield batch.filter(ledger.make_time_filter(start, end)).select(list(columns))

    def describe_completeness(self) -> str:
        """Return a text with the time until which the ledgers are complete, and the runs they wait for."""
        until = f"complete until {self.complete_until:%Y-%m-%d %H:%M:%S} UTC"
        return until + (f" (more is to come from {', '.join(self.waits_for)})" if self.waits_for else "")

    def add(self, folder: Folder) -> None:
        """Add a run folder or a ledger folder, with its present files and journals."""
        # Read the journals before the list of files. An attempt that moves from a journal to a file between
        # the two steps is then found twice, not missed, and dropped below.
        recent: dict[str, pa.RecordBatch] = {}
        is_run = folder.exists(RUN_FILE)
        for run in [read_journal(folder, str(folder.path))] if is_run else find_open_attempts(folder):
            recent |= run.ended
            if run.since is not None:
                self.complete_until = min(self.complete_until, run.since)
                self.waits_for += [run.where] if run.where not in self.waits_for else []
        files = folder.list_names(ledger.ATTEMPTS_FOLDER)
        self.recent += [batch for name, batch in recent.items() if name not in files]
        self.folders.append(folder)
        self.files.append(files)


def parse_window(start: Any, end: Any, tz: str) -> tuple[datetime | None, datetime | None]:
    """Return the start and end of a window as times in UTC.

    `start` and `end` are dates, times, texts or None (no limit). They are in the time zone `tz`, unless they
    contain an offset.

    Raises
    ------
    AnalysisError
        If a time or the zone is invalid, or the end is not after the start.

    Examples
    --------
    >>> [str(moment) for moment in parse_window("2026-07-01", "2026-08-01", "Europe/Berlin")]
    ['2026-06-30 22:00:00+00:00', '2026-07-31 22:00:00+00:00']
    """
    try:
        zone = ZoneInfo(tz)
    except (KeyError, ValueError, OSError, TypeError):
        raise AnalysisError(
            f"the time zone {tz!r} is unknown; use a name such as Europe/Berlin or UTC"
        ) from None
    first, last = (None if one is None else parse_moment(one, zone) for one in (start, end))
    if first is not None and last is not None and last <= first:
        raise AnalysisError(f"end={end} is not after start={start}; the end itself is not in the window")
    return first, last


def describe_window(start: Any, end: Any, tz: str) -> str:
    """Return a window (the time range of a table) as text, for the line below the table."""
    if start is None and end is None:
        return f"Window: all times ({tz})"
    return f"Window: {start or 'the beginning'} to {end or 'now'} ({tz}), without the end"


def parse_moment(given: Any, zone: ZoneInfo) -> datetime:
    """Convert a date or time, or the text of a date or time, into a time in UTC.

    `given` is in the time zone `zone`, unless it contains an offset. Anything else raises AnalysisError.
    """
    try:
        found = datetime.fromisoformat(str(given))
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise AnalysisError(f"{given!r} is not a time; write 2026-11-25 or 2026-11-25T08:30") from None


def find_fingerprint(fingerprints: Any, key: Any) -> str:
    """Return the fingerprint of `key`, which may be a key or already a fingerprint.

    If `fingerprints` does not contain the result, raise AnalysisError.
    """
    keys = sorted(pc.unique(fingerprints).drop_null().to_pylist())
    wanted = key if key in keys else fingerprint_key(key)
    if wanted not in keys:
        raise AnalysisError(
            "the ledger contains no calls of this key in this window. It contains calls of the keys with the "
            f"fingerprints {', '.join(keys) or NO_VALUE}. Choose one of these, or the ledger of the "
            "key's runs"
        )
    return str(wanted)


def convert_to_thousandths(credits: Any) -> int:
    """Convert a number of credits, or its text, into thousandths of a credit.

    Anything else, and a number that is too large, raises AnalysisError.
    """
    try:
        amount = Decimal(str(credits).strip())
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or abs(amount) > MAX_BUDGET_CREDITS:
        raise AnalysisError(f"{credits!r} is not a number of credits; write a number such as 1500 or 12.5")
    return int((amount * MILLICREDITS_PER_CREDIT).to_integral_value())


def open_ledgers(source: Any = None) -> Ledgers:
    """Open ledgers for reading. An object of class `Ledgers` is returned unchanged.

    Parameters
    ----------
    source
        A run, the folder of a run, a ledger folder, or a list of these. None stands for the ledger folder of
        all runs (``SPEECHFRAME_LEDGER``).

    Raises
    ------
    StoreError
        If a folder contains neither a run nor a ledger, or cannot be read. Also if the list is empty, or
        contains both runs and ledgers.
    """
    if isinstance(source, Ledgers):
        return source
    found = Ledgers()
    if source is None:
        found.add(open_folder(str(read_spending_rules(read_settings()).ledger)))
        return found
    several = isinstance(source, Iterable) and not isinstance(source, (str, PathLike, StoredRun))
    for one in source if several else [source]:
        folder = one.folder if isinstance(one, StoredRun) else open_folder(one)
        if not any(map(folder.exists, (RUN_FILE, ledger.ATTEMPTS_FOLDER, ledger.OPEN_FOLDER))):
            raise StoreError(
                f"{folder.path} contains neither a run nor a ledger; give the folder of a run, or a ledger "
                "folder (SPEECHFRAME_LEDGER)"
            )
        if str(folder.path) not in {str(known.path) for known in found.folders}:
            found.add(folder)
    if not found.folders:
        raise StoreError("the list of runs and ledgers is empty; leave it out to read the ledger of all runs")
    found.places = ", ".join(str(folder.path) for folder in found.folders)
    if len({folder.exists(RUN_FILE) for folder in found.folders}) > 1:
        raise StoreError(
            "runs and ledgers were given together, so attempts could count twice; give only runs, or only "
            "ledgers"
        )
    return found
