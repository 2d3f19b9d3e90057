"""run.json: what a run is, and which tables it was given."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speechframe.errors import NotARun, RunMismatch, StoreError
from speechframe.old_store import files
from speechframe.old_store.remote import Remote

LAYOUT = 1
"""The layout of run folders this version writes, and the newest it reads."""

FILE_NAME = "run.json"

_KEY_NAMES = frozenset({"api_key", "api-key", "token"})
_OF_THE_CALLER = "constant"
"""What holds a value as the caller gave it: a pronunciation dictionary may have any word."""


@dataclass(frozen=True)
class TableEntry:
    """A table handed to the run.

    Parameters
    ----------
    file
        Below the run folder, ``input/0001.parquet``.
    rows
        Number of rows.
    added_at
        UTC, ISO 8601.
    id_column
        The caller's column of row ids; None for the index.
    column_map
        Our column name to its name in this table, where the caller has a column of that name.
    hidden
        Columns that are the verb's working notes: :meth:`RunFolder.joined` leaves them out unless named.
    """

    file: str
    rows: int
    added_at: str
    id_column: str | None = None
    column_map: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    def name_of(self, column: str) -> str:
        """Return the name our `column` has beside the caller's columns."""
        return self.column_map.get(column, column)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it stands in run.json."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "TableEntry":
        """Return the entry of run.json; keys of a later version of the same layout are ignored."""
        known = {f.name: entry[f.name] for f in fields(cls) if f.name in entry}
        known["hidden"] = tuple(known.get("hidden", ()))
        return cls(**known)


@dataclass(frozen=True)
class RunManifest:
    """What a run is: the content of run.json.

    Parameters
    ----------
    run_id
        Unique; enters idempotency keys and the ledger.
    operation
        The verb.
    created_at
        UTC, ISO 8601.
    speechframe_version
        The version that created the run.
    options
        The verb's arguments, as JSON values. Never a key.
    service
        Identity of the service: a profile, a host name, or ``local/<engine>-<version>``.
    local
        The run was made by the embedded local service.
    key_fingerprint
        Tells keys apart without being one.
    catalogue_hash
        Of the service's voices.
    audio_format
        The format the run's audio is stored in.
    column_map
        Our column name to its name in the run's table, where they differ.
    tables
        Tables handed in, the newest last.
    layout
        Of the folder.
    extra
        Keys of run.json this version does not know; they are kept.
    """

    run_id: str
    operation: str
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    speechframe_version: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    service: str | None = None
    local: bool = False
    key_fingerprint: str | None = None
    catalogue_hash: str | None = None
    audio_format: str | None = None
    column_map: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[TableEntry, ...] = ()
    layout: int = LAYOUT
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = sorted(_KEY_NAMES & _names_within(self.options) | _KEY_NAMES & _names_within(self.extra))
        if named:
            raise ValueError(f"a run folder never holds a key: leave {', '.join(named)} out of the options")

    def to_json(self) -> dict[str, Any]:
        """Return the content of run.json."""
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in {"tables", "extra"}}
        content["tables"] = [table.to_json() for table in self.tables]
        return {"layout": self.layout, **content, **self.extra}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunManifest":
        """Return the manifest that `content` states."""
        known_names = {f.name for f in fields(cls)} - {"extra"}
        known = {name: value for name, value in content.items() if name in known_names}
        known["tables"] = tuple(TableEntry.from_json(entry) for entry in known.get("tables", ()))
        extra = {name: value for name, value in content.items() if name not in known_names}
        return cls(**known, extra=extra)


def read_manifest(folder: Path) -> RunManifest:
    """Return the manifest of the run in `folder`.

    Raises
    ------
    NotARun
        When there is none.
    RunMismatch
        When the folder's layout is newer than this version.
    StoreError
        When run.json cannot be read.
    """
    path = folder / FILE_NAME
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise NotARun(
            f"{folder} is no run folder: it has no {FILE_NAME}; give the folder a run was made in"
        ) from None
    except OSError as error:
        raise files.store_error(folder, f"reading {FILE_NAME}", error) from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}); restore it from a copy of the folder") from None
    layout = content.get("layout") if isinstance(content, dict) else None
    if not isinstance(layout, int):
        raise NotARun(f"{folder} is no run folder: {FILE_NAME} names no layout")
    if layout > LAYOUT:
        writer = content.get("speechframe_version") or "a newer version"
        raise RunMismatch(
            f"{folder} has layout {layout} (speechframe {writer}); this version reads layouts up to {LAYOUT}:"
            " upgrade speechframe to open it"
        )
    try:
        return RunManifest.from_json(content)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}); restore it from a copy of the folder") from None


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Replace run.json; a reader sees the old or the new one."""
    with files.storing(folder, f"writing {FILE_NAME}"):
        files.write_whole(folder / FILE_NAME, content_of(manifest))


def claim_manifest(folder: Path, manifest: RunManifest) -> bool:
    """Write the run.json of a new run; return False when a remote folder has one already."""
    if not isinstance(folder, Remote):
        write_manifest(folder, manifest)
        return True
    with files.storing(folder, f"writing {FILE_NAME}"):
        return (folder / FILE_NAME).claim(content_of(manifest))


def content_of(manifest: RunManifest) -> bytes:
    """Return the bytes of run.json."""
    content = json.dumps(manifest.to_json(), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    return content.encode("ascii")


def with_table(manifest: RunManifest, entry: TableEntry) -> RunManifest:
    """Return `manifest` with one more table, which becomes the run's."""
    return replace(manifest, tables=(*manifest.tables, entry), column_map=entry.column_map)


def _names_within(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        ours = [inner for name, inner in value.items() if name != _OF_THE_CALLER]
        return set(value) | {name for inner in ours for name in _names_within(inner)}
    if isinstance(value, (list, tuple)):
        return {name for inner in value for name in _names_within(inner)}
    return set()
