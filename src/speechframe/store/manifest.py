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
    """A table that was handed in."""

    file: str  # input/0001.parquet and so on
    rows: int
    id_column: str | None = None  # None for the index or the row's number
    names: dict[str, str] = field(default_factory=dict)
    """Our columns whose name the caller has too, and what they are called beside it."""
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Argument to where its values come from: ``{"constant": value}`` or ``{"column": name}``; of a list
    with a value for each row, ``{"values": true}``: it is known of this table only."""
    hidden: list[str] = field(default_factory=list)
    """Our columns that the caller's table has already, under whatever name: shown only when asked for."""
    invalid: int = 0  # rows that cannot be sent

    def name_of(self, column: str) -> str:
        """Return what our column is called in this table."""
        return self.names.get(column, column)


@dataclass
class Manifest:
    """The content of run.json. Never a key."""

    run_id: str  # unique; stands in idempotency keys and in the ledger
    operation: str
    service: str
    columns: str  # the backend's, as `described` returns them
    key_fingerprint: str = ""  # tells the key apart without being one
    is_local: bool = False  # made by an embedded local service
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = ""
    state: str = "planned"  # or running, finished, stopped
    stopped_because: str | None = None  # why it ended early, as a word and as a sentence
    stopped_words: str | None = None
    max_credits: float | None = None  # over all its calls
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the backend found out about its service
    remark: str | None = None  # what people are to know of such a run
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
    """Return a schema as :attr:`Manifest.columns` holds it: as Arrow writes it, in Base64."""
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
        layout = content.get("layout") if isinstance(content, dict) else None
        if layout == LAYOUT:
            content["tables"] = [TableEntry(**entry) for entry in content.get("tables", ())]
            return Manifest(**{f.name: content[f.name] for f in fields(Manifest) if f.name in content})
    except (FileNotFoundError, NotADirectoryError):
        raise NotARun(f"{folder.path} is no run folder: it has no {FILE}; give the folder of a run") from None
    except OSError as error:
        raise StoreError(f"{folder.path}: {FILE} cannot be read ({error})") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{folder.path}: {FILE} is damaged ({error}); restore it from a copy") from None
    raise RunMismatch(
        f"{folder.path} has layout {layout!r}, this version reads layout {LAYOUT}: open it with the version "
        "that made it, or make the run anew in another folder"
    )
