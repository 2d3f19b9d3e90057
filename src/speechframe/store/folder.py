"""The folder of a run with its run.json. Files are replaced as a whole, and one process writes at a time."""

import base64
import fcntl
import getpass
import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from speechframe.errors import NotARun, RunLocked, RunMismatch, StoreError
from speechframe.writing.files import parse_json

RUN_LAYOUT = 3
"""Number of the layout of run folders. A folder with another number is refused."""
RUN_FILE, LOCK_FILE, HOLDER_FILE = "run.json", "lock", "holder.json"
PLANNED_STATE = "planned"
"""State of a run that has sent nothing yet."""
_MAX_LOCK_WAIT_S = 0.1
"""Longest wait in seconds for the lock of a run."""


class Folder:
    """A run's folder on this machine. For a folder at an address, see `speechframe.store.remote`.

    Names of files are relative to the folder, and have ``/`` between folders and file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path  # the path or address that users see
        self.work = path  # folder on this machine for the journal, the lock and unfinished files

    def __str__(self) -> str:
        return str(self.path)

    def find_path(self, name: str | Path) -> Path:
        """Return the path of a file in the part of the folder that is on this machine.

        Use this method for each name that comes from stored data, because another person may have written the
        data.

        Raises
        ------
        StoreError
            If the name is absolute or contains ``..``, or if its path contains a link or leads to a device,
            pipe or socket.
        """
        path = self.work
        for step in self.split_name(name):
            path /= step
            try:
                mode = path.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                break
            if stat.S_ISLNK(mode):
                raise StoreError(
                    f"{path} is a link; a run's files lie in its own folder: put the file itself there"
                )
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise StoreError(f"{path} is neither a file nor a folder: remove it, and run again")
        return self.work / name

    def split_name(self, name: str | Path) -> tuple[str, ...]:
        """Return the components of a name. Raise StoreError if the name leads out of the folder."""
        steps = PurePosixPath(name)
        if steps.is_absolute() or ".." in steps.parts or "\0" in str(name):
            raise StoreError(
                f"{self.path}: {str(name)!r} leads out of the run's folder, so that file is neither read nor "
                "written. Allowed are files in the folder: ask whoever made the run, or restore a copy"
            )
        return steps.parts

    def exists(self, name: str = "") -> bool:
        """Return whether a file or folder with this name exists. An empty name means the run's folder."""
        self.split_name(name)
        with convert_os_errors(self, f"looking for {name}"):
            return (self.path / name).exists()

    def list_names(self, folder: str, suffix: str = ".parquet") -> list[str]:
        """Return the sorted names of the files in `folder` that end with `suffix`.

        Hidden files are left out. For a missing folder, return an empty list.
        """
        with convert_os_errors(self, f"reading {folder}"):
            try:
                found = self._list(folder)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name for name in found if name.endswith(suffix) and not name.startswith("."))

    def _list(self, folder: str) -> list[str]:
        return [path.name for path in self.find_path(folder).iterdir()]

    def list_numbers(self, folder: str, within: range | None = None) -> list[int]:
        """Return the sorted numbers of the Parquet files in a folder, such as 1 for ``000001.parquet``.

        With `within`, leave out all other numbers.
        """
        stems = [name.partition(".")[0] for name in self.list_names(folder)]
        numbers = sorted(map(int, filter(str.isdecimal, stems)))
        return numbers if within is None else [number for number in numbers if number in within]

    def read(self, name: str) -> bytes:
        """Return the bytes of a file. Raise FileNotFoundError if the file is missing."""
        return self.find_path(name).read_bytes()

    def get_source(self, name: str) -> Any:
        """Return what pyarrow needs to open a file, here its path."""
        return self.find_path(name)

    def make_temporary_path(self, name: str) -> Path:
        """Return the path where a file is written before :meth:`publish`, in its folder, which is created.

        The name begins with a dot, so that no glob finds an unfinished file.
        """
        final = self.find_path(name)
        final.parent.mkdir(parents=True, exist_ok=True)
        return self.find_path(Path(name).with_name(f".{final.name}.tmp"))

    def publish(self, name: str) -> None:
        """Give the temporary file its final name. Afterwards the file survives a power cut."""
        temporary = self.make_temporary_path(name)
        final = temporary.with_name(Path(name).name)
        sync_to_disk(temporary)
        temporary.replace(final)
        sync_to_disk(final.parent)

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole. Readers see either the old or the new content."""
        self.make_temporary_path(name).write_bytes(content)
        self.publish(name)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        self.find_path(name).unlink(missing_ok=True)

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove many files at once, as far as they exist."""
        for name in names:
            self.remove(name)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this writer. Raise RunLocked, naming the holder, if the lock is taken."""
        with ExitStack() as stack:
            with convert_os_errors(self, "taking the run's lock"):
                self.work.mkdir(parents=True, exist_ok=True)
                # The lock must not belong to a thread, because another thread may release it.
                lock = FileLock(
                    self.find_path(LOCK_FILE),
                    timeout=_MAX_LOCK_WAIT_S,
                    poll_interval=_MAX_LOCK_WAIT_S / 5,
                    thread_local=False,
                )
                try:
                    stack.enter_context(lock)
                except Timeout:
                    raise RunLocked(self._describe_holder()) from None
                self.find_path(HOLDER_FILE).write_text(json.dumps(describe_process()))
            yield

    @property
    def is_locked(self) -> bool:
        """True if a living process of this machine writes to the run."""
        try:
            with (self.work / LOCK_FILE).open("rb") as file:
                # Use a shared lock, so that two readers do not take each other for a writer.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False

    def _read_holder(self) -> dict[str, Any]:
        """Return the facts about the holder of the lock, or an empty dict if they cannot be read."""
        try:
            return parse_holder((self.work / HOLDER_FILE).read_bytes())
        except OSError:
            return {}

    def describe_lock(self) -> str:
        """Return a text that identifies the process that writes to the run now. Empty without one."""
        return json.dumps(self._read_holder(), sort_keys=True) if self.is_locked else ""

    def _describe_holder(self) -> str:
        who = "another process"
        with suppress(LookupError):
            holder = self._read_holder()
            who = f"process {holder['pid']} of {holder['user']} on {holder['host']} since {holder['since']}"
        return f"{self.path} is being written by {who}: wait for its end, or choose another run_dir"


def sync_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the list of names of a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def convert_os_errors(folder: Folder | Path, action: str) -> Iterator[None]:
    """Convert an OSError to a StoreError with the folder or file, what failed (`action`), and advice."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{folder}: {action} failed ({error}); repair the folder or free disk space, and run again: "
            "everything that was paid is still there. Or choose another folder"
        ) from error


DAMAGE_ADVICE = ": restore it from a copy; `speechframe runs verify` lists all damage"
"""End of the message of an error by :func:`convert_read_errors`."""


@contextmanager
def convert_read_errors(folder: Folder, name: str) -> Iterator[None]:
    """Convert the error of a damaged or missing file of a run to a StoreError that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:
        raise StoreError(f"{folder.path}/{name} cannot be read ({error}){DAMAGE_ADVICE}") from error


def parse_holder(content: bytes) -> dict[str, Any]:
    """Return the facts that the holder of a lock wrote about itself.

    Return an empty dict if the content has another format.
    """
    with suppress(ValueError):
        found = parse_json(content)
        if isinstance(found, dict) and describe_process().keys() <= found.keys():
            return found
    return {}


def get_user_name() -> str:
    """Return the name of the user who runs this process, or the user's number if there is no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def describe_process() -> dict[str, Any]:
    """Return the facts about this process for the holder file of a lock."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "user": get_user_name(), "host": socket.gethostname(), "since": since}


@dataclass
class TableEntry:
    """An entry of run.json for a table that a caller gave to the run."""

    file: str  # input/0001.parquet and so on
    rows: int
    id_column: str | None = None  # None for the index or the row's number
    names: dict[str, str] = field(default_factory=dict)
    """New names, by old name, of the columns of speechframe whose name the caller's table has, too."""
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The source of each argument: ``{"constant": value}``, ``{"column": name}``, ``{"balanced": rule}`` or
    ``{"values": true}``.

    The third form is for a list with one value per row. The list belongs to this table and is not stored."""
    hidden: list[str] = field(default_factory=list)
    """Columns of speechframe that repeat a column of the caller, such as the text. Shown only on request."""
    invalid: int = 0  # rows that cannot be sent


@dataclass
class Manifest:
    """The content of run.json. It never contains an API key."""

    run_id: str  # unique name of the run in idempotency keys and in the ledger
    operation: str  # what the backend does, in one word
    service: str  # identity of the service
    columns: str  # the backend's columns, serialised by `serialise_schema`
    key_fingerprint: str = ""  # short hash that distinguishes the API key without revealing it
    is_local: bool = False  # True if an embedded local service made the answers
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = ""  # version of speechframe that planned the run
    state: str = PLANNED_STATE  # planned, running, finished or stopped
    stopped_because: str | None = None  # reason of an early end, as a word (see `StopReason`)
    stopped_words: str | None = None  # reason of an early end, as a sentence with advice
    max_credits: float | None = None  # limit of the run in credits, over all its calls
    cache: str | None = None  # folder of answers that this run shares with other runs
    tags: dict[str, dict[str, Any]] = field(default_factory=dict)  # same format as `TableEntry.arguments`
    facts: Mapping[str, Any] = field(default_factory=dict)  # facts about the service, from the backend
    remark: str | None = None  # remark of the backend for people
    tables: list[TableEntry] = field(default_factory=list)  # the newest table is the last
    layout: int = RUN_LAYOUT

    @property
    def table(self) -> TableEntry:
        """Entry of the run's current table, which is the newest."""
        return self.tables[-1]

    @property
    def schema(self) -> pa.Schema:
        """The backend's columns."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    def write(self, folder: Folder) -> None:
        """Replace run.json. Readers see either the old or the new content."""
        with convert_os_errors(folder, f"writing {RUN_FILE}"):
            folder.write(RUN_FILE, json.dumps(asdict(self), indent=2).encode())


def serialise_schema(schema: pa.Schema) -> str:
    """Return a schema as text for :attr:`Manifest.columns`: serialised by Arrow, in Base64."""
    return base64.b64encode(schema.remove_metadata().serialize()).decode()


def read_manifest(folder: Folder) -> Manifest:
    """Read run.json and return its content.

    Raise NotARun if run.json is missing, RunMismatch if it has another layout, and StoreError if it is
    damaged.
    """
    try:
        content = parse_json(folder.read(RUN_FILE))
        layout = content.get("layout") if isinstance(content, dict) else None
        if layout == RUN_LAYOUT:
            content["tables"] = [TableEntry(**entry) for entry in content.get("tables", ())]
            found = Manifest(**{f.name: content[f.name] for f in fields(Manifest) if f.name in content})
            _check_manifest(found)
            return found
    except (FileNotFoundError, NotADirectoryError):
        raise NotARun(
            f"{folder.path} is not a run folder: it has no {RUN_FILE}; give the folder of a run"
        ) from None
    except OSError as error:
        raise StoreError(f"{folder.path}: {RUN_FILE} cannot be read ({error})") from error
    except (ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise StoreError(f"{folder.path}: {RUN_FILE} is damaged ({error}); restore it from a copy") from None
    raise RunMismatch(
        f"{folder.path} has layout {layout!r}, this version reads layout {RUN_LAYOUT}: open it with the "
        "version that made it, or make the run anew in another folder"
    )


def _check_manifest(manifest: Manifest) -> None:
    """Raise ValueError, TypeError or AttributeError if a value in run.json has the wrong type."""
    if not isinstance(manifest.schema, pa.Schema):
        raise TypeError("columns")
    tags: dict[str, Any] = {**manifest.tags}
    for name, kept in tags.items():
        if not isinstance(kept, dict) or not {"constant", "column"} & kept.keys():
            raise ValueError(f"the tag {name!r} has no value")
    for entry in manifest.tables:
        arguments: dict[str, Any] = {**entry.arguments}
        for name, kept in arguments.items():
            if not isinstance(kept, dict):
                raise TypeError(f"the argument {name!r} has no value")
