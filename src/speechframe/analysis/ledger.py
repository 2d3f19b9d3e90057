"""Any number of ledgers as one: of runs, and the ledger folder into which all of them put theirs."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from os import PathLike
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import AnalysisError, StoreError
from speechframe.settings import fingerprint, read
from speechframe.settings.spending import spending_rules
from speechframe.spec.billing import CREDIT, MOST_CREDITS
from speechframe.store import journal, ledger, parts
from speechframe.store.folder import RUN_FILE, Folder, read_manifest
from speechframe.store.reader import StoredRun, open_folder
from speechframe.store.schema import LEDGER

NONE = "(none)"
"""What tables say of a row without a tag, or without a fact."""


@dataclass
class Ledgers:
    """What some ledgers hold at one moment.

    Attributes
    ----------
    places
        Where they are, in words.
    complete_until
        Every attempt that was sent before is in it.
    waits_for
        The runs whose later attempts are not, in words.
    """

    folders: list[Folder] = field(default_factory=list)
    files: list[list[str]] = field(default_factory=list)  # of each folder, at that moment
    recent: list[pa.RecordBatch] = field(default_factory=list)  # attempts that are still in journals
    complete_until: datetime = field(default_factory=lambda: datetime.now(UTC))
    waits_for: list[str] = field(default_factory=list)
    places: str = "all runs"

    def batches(
        self, columns: Sequence[str], start: datetime | None = None, end: datetime | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all attempts sent from `start` on and before `end`, in no order."""
        for folder, files in zip(self.folders, self.files, strict=True):
            yield from ledger.scan(folder, columns, start, end, files=files)
        for batch in self.recent:
            yield batch.filter(ledger.within(start, end)).select(list(columns))

    def completeness(self) -> str:
        """Return until when everything is counted, and which runs it waits for, in words."""
        until = f"complete until {self.complete_until:%Y-%m-%d %H:%M:%S} UTC"
        return until + (f" (more is to come from {', '.join(self.waits_for)})" if self.waits_for else "")

    def add(self, folder: Folder) -> None:
        """Add a run folder or a ledger folder."""
        # First the journals: what leaves one of them later is in a file of the ledger then.
        recent: dict[str, pa.RecordBatch] = {}
        if folder.exists(RUN_FILE):
            recent = self._journal(folder, str(folder.path))
        else:
            for run_id, note in ledger.open_runs(folder).items():
                where = f"{note.get('folder')} on {note.get('host')}"
                if ledger.is_here(note) and _is_run(run := open_folder(str(note.get("folder"))), run_id):
                    recent |= self._journal(run, where, f"{run_id}-")
                else:
                    self._waits(datetime.fromisoformat(note["since"]).astimezone(UTC), where)
        files = folder.names(ledger.ATTEMPTS)
        self.recent += [batch for name, batch in recent.items() if name not in files]
        self.folders.append(folder)
        self.files.append(files)

    def _journal(self, folder: Folder, where: str, prefix: str = "") -> dict[str, pa.RecordBatch]:
        """Return the attempts that have ended of each segment in a run's journal, by the file they become."""
        found = {}
        for number in journal.segments(folder):
            with suppress(FileNotFoundError):  # it became a part meanwhile
                contents = journal.read_contents(folder, number)
                found[f"{prefix}{number:06d}.parquet"] = parts.table_of(contents.attempts, LEDGER)
                for sent, _ in contents.open.values():
                    self._waits(datetime.fromtimestamp(sent["time"], UTC), where)
        return found

    def _waits(self, since: datetime, where: str) -> None:
        self.complete_until = min(self.complete_until, since)
        if where not in self.waits_for:
            self.waits_for.append(where)


def _is_run(folder: Folder, run_id: str) -> bool:
    """Return whether the run is still in its folder: another one may be there now."""
    with suppress(StoreError):
        return read_manifest(folder).run_id == run_id
    return False


def window(start: Any, end: Any, tz: str) -> tuple[datetime | None, datetime | None]:
    """Return two times of people in UTC: dates, times or texts of them, in the zone `tz` unless they say it.

    Raises
    ------
    AnalysisError
        For what is no time or no zone, or an end that is not after the start.

    Examples
    --------
    >>> [str(moment) for moment in window("2026-07-01", "2026-08-01", "Europe/Berlin")]
    ['2026-06-30 22:00:00+00:00', '2026-07-31 22:00:00+00:00']
    """
    try:
        zone = ZoneInfo(tz)
    except (KeyError, ValueError, OSError, TypeError):
        raise AnalysisError(f"there is no time zone {tz!r}; one is called Europe/Berlin or UTC") from None
    first, last = (None if one is None else _moment(one, zone) for one in (start, end))
    if first is not None and last is not None and last <= first:
        raise AnalysisError(f"end={end} is not after start={start}; the end itself is not in the window")
    return first, last


def shown_window(start: Any, end: Any, tz: str) -> str:
    """Return a window in words, for the line below a table."""
    if start is None and end is None:
        return f"Window: all times ({tz})"
    return f"Window: {start or 'the beginning'} to {end or 'now'} ({tz}), without the end"


def _moment(given: Any, zone: ZoneInfo) -> datetime:
    try:
        found = datetime.fromisoformat(str(given))
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise AnalysisError(f"{given!r} is no time; one is 2026-11-25 or 2026-11-25T08:30") from None


def key_among(fingerprints: Any, key: Any) -> str:
    """Return the fingerprint of a key, or of what is one already, among those of some calls.

    AnalysisError where it is not among them.
    """
    keys = sorted(pc.unique(fingerprints).drop_null().to_pylist())
    wanted = key if key in keys else fingerprint(key)
    if wanted not in keys:
        raise AnalysisError(
            "the ledger has no call of this key in this window; it has calls of the keys with the "
            f"fingerprints {', '.join(keys) or NONE}: is another key meant, or are its runs elsewhere?"
        )
    return str(wanted)


def thousandths(credits: Any) -> int:
    """Return thousandths of credits that somebody has typed; AnalysisError where they are no number."""
    try:
        amount = Decimal(str(credits).strip())
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or abs(amount) > MOST_CREDITS:
        raise AnalysisError(f"{credits!r} is no number of credits")
    return int((amount * CREDIT).to_integral_value())


def open_ledgers(source: Any = None) -> Ledgers:
    """Return the ledgers of runs and folders; of the ledger folder of all runs where nothing is given.

    Parameters
    ----------
    source
        A run, the folder of a run, a ledger folder, or a list of such; None for ``SPEECHFRAME_LEDGER``.

    Raises
    ------
    StoreError
        When a folder holds neither a run nor a ledger, or cannot be read.
    """
    if isinstance(source, Ledgers):
        return source
    found = Ledgers()
    if source is None:
        found.add(open_folder(str(spending_rules(read()).ledger)))
        return found
    several = isinstance(source, Iterable) and not isinstance(source, (str, PathLike, StoredRun))
    for one in source if several else [source]:
        folder = one.folder if isinstance(one, StoredRun) else open_folder(one)
        if not any(map(folder.exists, (RUN_FILE, ledger.ATTEMPTS, ledger.OPEN))):
            raise StoreError(
                f"{folder.path} holds neither a run nor a ledger: give the folder of a run, or a ledger "
                "folder (SPEECHFRAME_LEDGER)"
            )
        if str(folder.path) not in {str(known.path) for known in found.folders}:
            found.add(folder)
    if not found.folders:
        raise StoreError("the list of runs and ledgers is empty; leave it out to take the ledger of all runs")
    found.places = ", ".join(str(folder.path) for folder in found.folders)
    if len({folder.exists(RUN_FILE) for folder in found.folders}) > 1:
        raise StoreError(
            "runs and ledgers were given together, and a ledger has the attempts of runs: give one kind"
        )
    return found
