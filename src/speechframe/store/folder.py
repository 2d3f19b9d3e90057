"""The folder of a run, with whole files, one writer at a time, and run.json."""

import base64
import fcntl
import getpass
import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from speechframe.errors import NotARun, RunLocked, RunMismatch, StoreError
from speechframe.writing.files import parse_json

LAYOUT = 3
RUN_FILE, LOCK, HOLDER = "run.json", "lock", "holder.json"
PLANNED = "planned"
"""State of a run that has sent nothing yet."""
_LOOK_S = 0.1


class Folder:
    """A run's folder on this machine. `speechframe.store.remote` has the folder at an address.

    Names of files are relative, with ``/`` between them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path  # its public name
        self.work = path  # the folder of journal, lock and unfinished files, on this machine

    def __str__(self) -> str:
        return str(self.path)

    def inside(self, name: str | Path) -> Path:
        """Return the path of a file of the folder on this machine.

        Every name that comes out of stored data goes through here. Whoever handed the run over may have
        written it.

        Raises
        ------
        StoreError
            The name is absolute or has ``..`` in it, or leads over a link, or to a device, pipe or socket.
        """
        path = self.work
        for step in self.steps(name):
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

    def steps(self, name: str | Path) -> tuple[str, ...]:
        """Return the parts of a name below the folder; StoreError if it leads out of the folder."""
        steps = PurePosixPath(name)
        if steps.is_absolute() or ".." in steps.parts or "\0" in str(name):
            raise StoreError(
                f"{self.path}: {str(name)!r} leads out of the run's folder, so that file is neither read nor "
                "written. Allowed are files in the folder: ask whoever made the run, or restore a copy"
            )
        return steps.parts

    def exists(self, name: str = "") -> bool:
        """Return whether a file or folder is there."""
        self.steps(name)
        with storing(self, f"looking for {name}"):
            return (self.path / name).exists()

    def names(self, folder: str, suffix: str = ".parquet") -> list[str]:
        """Return the sorted names of the files of a kind in a folder. A missing folder has none."""
        with storing(self, f"reading {folder}"):
            try:
                found = self._list(folder)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name for name in found if name.endswith(suffix) and not name.startswith("."))

    def _list(self, folder: str) -> list[str]:
        return [path.name for path in self.inside(folder).iterdir()]

    def numbers(self, folder: str) -> list[int]:
        """Return the numbers that are the names of Parquet files in a folder, such as ``000001.parquet``."""
        stems = [name.partition(".")[0] for name in self.names(folder)]
        return list(map(int, filter(str.isdecimal, stems)))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file. A missing file raises FileNotFoundError."""
        return self.inside(name).read_bytes()

    def source(self, name: str) -> Any:
        """Return the source of a file for pyarrow."""
        return self.inside(name)

    def temporary(self, name: str) -> Path:
        """Return the path of a file until :meth:`publish`. A dot keeps that path out of every glob."""
        final = self.inside(name)
        final.parent.mkdir(parents=True, exist_ok=True)
        return self.inside(Path(name).with_name(f".{final.name}.tmp"))

    def publish(self, name: str) -> None:
        """Give the temporary file its name. Afterwards it survives a power cut."""
        temporary = self.temporary(name)
        final = temporary.with_name(Path(name).name)
        sync(temporary)
        temporary.replace(final)
        sync(final.parent)

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole. Readers see the old or the new content."""
        self.temporary(name).write_bytes(content)
        self.publish(name)

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""
        self.inside(name).unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this writer. RunLocked names the process that has the lock."""
        with ExitStack() as stack:
            with storing(self, "taking the run's lock"):
                self.work.mkdir(parents=True, exist_ok=True)
                # The thread that ends a run is often another than the one that began it.
                lock = FileLock(
                    self.inside(LOCK), timeout=_LOOK_S, poll_interval=_LOOK_S / 5, thread_local=False
                )
                try:
                    stack.enter_context(lock)
                except Timeout:
                    raise RunLocked(self._held_by()) from None
                self.inside(HOLDER).write_text(json.dumps(this_process()))
            yield

    @property
    def is_locked(self) -> bool:
        """Whether a living process of this machine writes to it."""
        try:
            with (self.work / LOCK).open("rb") as file:
                # A shared lock, so that two readers do not see each other.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False

    def _holder(self) -> dict[str, Any]:
        """Return the facts about the holder of the lock, or nothing if they cannot be read."""
        try:
            return holder_in((self.work / HOLDER).read_bytes())
        except OSError:
            return {}

    def _held_by(self) -> str:
        who = "another process"
        with suppress(LookupError):
            holder = self._holder()
            who = f"process {holder['pid']} of {holder['user']} on {holder['host']} since {holder['since']}"
        return f"{self.path} is being written by {who}: wait for its end, or choose another run_dir"


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storing(place: Folder | Path, doing: str) -> Iterator[None]:
    """Turn an OSError into a StoreError with the folder or file and advice."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{place}: {doing} failed ({error}); mend it or make room, and run again: everything that was "
            "paid is still there. Or choose another folder"
        ) from error


@contextmanager
def reading(folder: Folder, name: str) -> Iterator[None]:
    """Turn any error from a damaged or missing file of the run into a StoreError that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:
        raise StoreError(
            f"{folder.path}/{name} cannot be read ({error}): restore it from a copy; "
            "speechframe runs verify says what else is damaged"
        ) from error


def holder_in(content: bytes) -> dict[str, Any]:
    """Return what the holder of a lock has written of itself; nothing if another program wrote the file."""
    with suppress(ValueError):
        found = parse_json(content)
        if isinstance(found, dict) and this_process().keys() <= found.keys():
            return found
    return {}


def user_name() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def this_process() -> dict[str, Any]:
    """Return the facts about this process for the holder file of a lock."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "user": user_name(), "host": socket.gethostname(), "since": since}


@dataclass
class TableEntry:
    """A table that was handed in."""

    file: str  # input/0001.parquet and so on
    rows: int
    id_column: str | None = None  # None for the index or the row's number
    names: dict[str, str] = field(default_factory=dict)
    """Our columns whose name the caller has too, with their names in this run."""
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The source of each argument: ``{"constant": value}``, ``{"column": name}``, ``{"balanced": rule}`` or
    ``{"values": true}``.

    The last one is a list with a value for each row. Only this table has it."""
    hidden: list[str] = field(default_factory=list)
    """Our columns that the caller's table has already, under any name. They are shown on request alone."""
    invalid: int = 0  # rows that cannot be sent


@dataclass
class Manifest:
    """The content of run.json. Never a key."""

    run_id: str  # unique, in idempotency keys and in the ledger
    operation: str
    service: str
    columns: str  # the backend's, as `described` returns them
    key_fingerprint: str = ""  # tells the key apart without being one
    is_local: bool = False  # made by an embedded local service
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = ""
    state: str = PLANNED  # or running, finished, stopped
    stopped_because: str | None = None  # why it ended early, as a word and as a sentence
    stopped_words: str | None = None
    max_credits: float | None = None  # over all its calls
    cache: str | None = None  # folder of the answers that it shares with other runs
    tags: dict[str, dict[str, Any]] = field(default_factory=dict)  # as `TableEntry.arguments`
    facts: Mapping[str, Any] = field(default_factory=dict)  # facts of the service, from the backend
    remark: str | None = None  # a note about such runs, for people
    tables: list[TableEntry] = field(default_factory=list)
    layout: int = LAYOUT

    @property
    def table(self) -> TableEntry:
        """The newest table that was handed in."""
        return self.tables[-1]

    @property
    def schema(self) -> pa.Schema:
        """The backend's columns."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    def write(self, folder: Folder) -> None:
        """Replace run.json. A reader sees the old or the new one."""
        with storing(folder, f"writing {RUN_FILE}"):
            folder.write(RUN_FILE, json.dumps(asdict(self), indent=2).encode())


def described(schema: pa.Schema) -> str:
    """Return a schema for :attr:`Manifest.columns`, serialised by Arrow, in Base64."""
    return base64.b64encode(schema.remove_metadata().serialize()).decode()


def read_manifest(folder: Folder) -> Manifest:
    """Return run.json. NotARun if it is missing, RunMismatch if it has another layout."""
    try:
        content = parse_json(folder.read(RUN_FILE))
        layout = content.get("layout") if isinstance(content, dict) else None
        if layout == LAYOUT:
            content["tables"] = [TableEntry(**entry) for entry in content.get("tables", ())]
            found = Manifest(**{f.name: content[f.name] for f in fields(Manifest) if f.name in content})
            _check(found)
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
        f"{folder.path} has layout {layout!r}, this version reads layout {LAYOUT}: open it with the version "
        "that made it, or make the run anew in another folder"
    )


def _check(manifest: Manifest) -> None:
    """Raise ValueError, TypeError or AttributeError if a part of run.json is another kind of value."""
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
