"""run.json: what a run is, and which tables it was given."""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from speechframe.errors import NotARun, RunMismatch, StoreError
from speechframe.store.folder import Folder, storing

LAYOUT = 2
FILE = "run.json"


@dataclass
class TableEntry:
    """A table that was handed in.

    Parameters
    ----------
    file
        ``input/0001.parquet`` and so on.
    rows
        How many.
    id_column
        The caller's column of row ids; None for the index or the row's number.
    names
        Our columns whose name the caller has too, and what they are called beside it.
    arguments
        Argument to where its values come from: ``{"constant": value}`` or ``{"column": name}``; of a list
        with a value for each row, ``{"values": true}``: it is known of this table only.
    hidden
        Our columns that the caller's table has already, under whatever name: shown only when asked for.
    invalid
        Rows that cannot be sent.
    """

    file: str
    rows: int
    id_column: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    invalid: int = 0

    def name_of(self, column: str) -> str:
        """Return what our column is called in this table."""
        return self.names.get(column, column)


@dataclass
class Manifest:
    """The content of run.json. Never a key.

    Parameters
    ----------
    run_id
        Unique; stands in idempotency keys and in the ledger.
    operation
        What the run does.
    service
        Identity of the service.
    columns
        The backend's columns, as an Arrow schema in Base64.
    key_fingerprint
        What tells the key apart without being one.
    is_local
        It was made by an embedded local service.
    state
        ``planned``, ``running``, ``finished`` or ``stopped``.
    stopped_because, stopped_words
        Why it ended early, as a word and as a sentence.
    max_credits
        The run's budget over all its calls; None without one.
    facts
        What the backend found out about its service.
    remark
        What people are to know of such a run.
    tables
        The newest last: it is the run's table.
    """

    run_id: str
    operation: str
    service: str
    columns: str
    key_fingerprint: str = ""
    is_local: bool = False
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = ""
    state: str = "planned"
    stopped_because: str | None = None
    stopped_words: str | None = None
    max_credits: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    remark: str | None = None
    tables: list[TableEntry] = field(default_factory=list)
    layout: int = LAYOUT

    @property
    def table(self) -> TableEntry:
        """The run's table: the newest that was handed in."""
        return self.tables[-1]

    @property
    def schema(self) -> pa.Schema:
        """The backend's columns."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    def write(self, folder: Folder) -> None:
        """Replace run.json; a reader sees the old or the new one."""
        with storing(folder, f"writing {FILE}"):
            folder.write(FILE, json.dumps(asdict(self), indent=2).encode())


def described(schema: pa.Schema) -> str:
    """Return a schema as :attr:`Manifest.columns` holds it."""
    return base64.b64encode(schema.remove_metadata().serialize()).decode()


def read_manifest(folder: Folder) -> Manifest:
    """Return what run.json says.

    Raises
    ------
    NotARun
        When there is none.
    RunMismatch
        When another version made the folder, in another layout.
    StoreError
        When it cannot be read.
    """
    try:
        content = json.loads(folder.read(FILE))
    except (FileNotFoundError, NotADirectoryError):
        raise NotARun(f"{folder.path} is no run folder: it has no {FILE}; give the folder of a run") from None
    except OSError as error:
        raise StoreError(f"{folder.path}: {FILE} cannot be read ({error})") from error
    except ValueError as error:
        raise StoreError(f"{folder.path}: {FILE} is damaged ({error}); restore it from a copy") from None
    layout = content.get("layout") if isinstance(content, dict) else None
    if layout != LAYOUT:
        raise RunMismatch(
            f"{folder.path} has layout {layout!r}, this version reads layout {LAYOUT}: open it with the "
            "version that made it, or make the run anew in another folder"
        )
    known = {f.name for f in fields(Manifest)}
    try:
        tables = [TableEntry(**entry) for entry in content.get("tables", ())]
        return Manifest(**{name: content[name] for name in known & content.keys()} | {"tables": tables})
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{folder.path}: {FILE} is damaged ({error}); restore it from a copy") from None
