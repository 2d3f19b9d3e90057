"""From a caller's table to a planned run: in its folder, under its lock, with nothing sent.

::

    open_folder, lock -> spool (every row checked) -> adopt (the table becomes the run's) -> Prepared

A run without ``run_dir`` is planned in a folder under a temporary name, which then gets the name of its
calls: the same calls find the same folder.
"""

import contextlib
import filecmp
import hashlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe._version import __version__
from speechframe.batch.backend import Backend, Opened
from speechframe.batch.keys import NO_KEY, Keys
from speechframe.batch.options import Options
from speechframe.batch.plan import Spooled, call_keys, spool
from speechframe.errors import RunMismatch, StoreError
from speechframe.store.folder import Folder, storing
from speechframe.store.manifest import FILE, Manifest, TableEntry, described, read_manifest
from speechframe.store.remote import open_folder
from speechframe.store.schema import BASE_KEY, PRICE, TAKE
from speechframe.tables.columns import Column, Source
from speechframe.tables.table import Table, resolve

DEFAULT_ROOT = Path("speechframe-runs")
INPUT = "input/{:04d}.parquet"
_OWN = frozenset({"lock", "holder.json", "input", "clips", "log", f".{FILE}.tmp"})
"""What a process that was killed while it planned leaves in a folder that holds no run yet."""


@dataclass
class Prepared:
    """A planned run, its folder locked.

    Attributes
    ----------
    folder, manifest
        The run.
    entry
        Its table.
    keys, prices
        Of each row: key of its call (take included) and thousandths of a credit.
    spooled
        What the check of the table found; None where the run's own table was taken as it is.
    unlock
        Gives the lock back.
    table_folder
        Where the table lies: the run's folder, or another one if it was only looked at.
    """

    folder: Folder
    manifest: Manifest
    entry: TableEntry
    keys: Keys
    prices: "npt.NDArray[np.int64]"
    unlock: contextlib.ExitStack
    spooled: Spooled | None
    table_folder: Folder


def prepare(
    table: Table,
    arguments: Mapping[str, Any],
    backend: Backend,
    opened: Opened,
    options: Options,
    *,
    sources: Mapping[str, Source] | None = None,
    is_stopped: Callable[[], bool],
) -> Prepared:
    """Check a table and make it the table of a run.

    Parameters
    ----------
    table
        The caller's, to be read once.
    arguments
        As the caller gave them; `sources` instead are those of a run that goes on.
    backend, opened, options
        The verb, what its service offers, and the run options.
    is_stopped
        Asked now and then; planning ends then with :class:`PlanningStopped`.

    Raises
    ------
    InvalidRows
        When rows cannot be sent.
    RunLocked, RunMismatch, StoreError
        When the folder cannot take this run.
    """
    given = {**arguments, "take": options.take} if sources is None else sources
    if not backend.arguments or (sources is None and not arguments):
        # Of `run`, whose caller names no arguments: they are columns.
        names = [name for name in table.schema.names if name in backend.arguments or not backend.arguments]
        given = {**{name: Column(name) for name in names}, **given}
    is_resumed = sources is not None
    resolved = resolve(given, backend.data_arguments, backend.table_arguments, table)
    tags = resolve(dict(options.tags), frozenset(), frozenset(), table)
    per_row_tags = {name: source for name, source in tags.items() if source.column or source.values}

    def spooled(folder: Folder, file: str, standing: Mapping[str, int]) -> Spooled:
        backend.folder = folder.work
        found = spool(
            table,
            resolved,
            backend,
            folder,
            file,
            tags=per_row_tags,
            standing=standing,
            is_stopped=is_stopped,
        )
        found.refuse(leaves_out=options.on_invalid == "skip" or options.dry_run)
        return found

    with contextlib.ExitStack() as stack:
        draft = None if options.run_dir is not None else DEFAULT_ROOT / f".{uuid.uuid4().hex}.draft"
        folder = open_folder(draft or options.run_dir or DEFAULT_ROOT)
        if options.dry_run and folder.exists(FILE):
            # A look at what another table would cost changes nothing in the run's folder.
            manifest = read_manifest(folder)
            check_same(folder, manifest, backend)
            scratch = Folder(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            found = spooled(scratch, INPUT.format(1), standing_takes(folder, manifest) if is_resumed else {})
            scratch.publish(found.entry.file)
            return _prepared(folder, manifest, found.entry, found, stack.pop_all(), table_folder=scratch)
        if not folder.exists(FILE):
            _check_free(folder)
            stack.callback(_remove_unplanned, folder)
        unlock = stack.enter_context(contextlib.ExitStack())
        unlock.enter_context(folder.lock())
        is_new = not folder.exists(FILE)
        manifest = _manifest(backend, opened) if is_new else read_manifest(folder)
        check_same(folder, manifest, backend)
        file = INPUT.format(next_table(manifest))
        stack.callback(lambda: folder.temporary(file).unlink(missing_ok=True))
        found = spooled(folder, file, standing_takes(folder, manifest) if is_resumed else {})
        if draft is not None:
            folder, manifest = _named_by_calls(folder, manifest, found, backend, unlock)
            backend.folder = folder.work
        entry = _adopt(folder, manifest, found.entry)
        held = unlock.pop_all()
        stack.pop_all()
        return _prepared(folder, manifest, entry, found, held)


def _prepared(
    folder: Folder,
    manifest: Manifest,
    entry: TableEntry,
    found: Spooled,
    unlock: contextlib.ExitStack,
    table_folder: Folder | None = None,
) -> Prepared:
    return Prepared(
        folder,
        manifest,
        entry,
        found.keys,
        np.concatenate(found.prices),
        unlock,
        found,
        table_folder or folder,
    )


def reopen(folder: Folder, backend: Backend, redo: "Mapping[str, int] | None" = None) -> Prepared:
    """Lock a run and return it with its own table.

    Parameters
    ----------
    folder
        The run's.
    backend
        Opened.
    redo
        Row id to the take it is to have from now on.

    Raises
    ------
    StoreError
        When the table is lost: it is to be handed in again.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.lock())
        manifest = read_manifest(folder)
        check_same(folder, manifest, backend)
        backend.folder = folder.work
        entry = manifest.table
        if not folder.exists(entry.file):
            raise StoreError(
                f"{folder.path}: {entry.file} is missing, which is the run's table: hand the table in again, "
                "as resume(run, table=...)"
            )
        if redo:
            entry = _with_takes(folder, manifest, redo)
        with storing(folder, "reading the table"):
            columns = pq.read_table(folder.source(entry.file), columns=[BASE_KEY, TAKE, PRICE])
        base_keys = bytearray(
            b"".join(NO_KEY if key is None else bytes.fromhex(key) for key in columns[BASE_KEY].to_pylist())
        )
        keys = call_keys(base_keys, columns[TAKE].to_numpy())
        prices = columns[PRICE].to_numpy()
        return Prepared(folder, manifest, entry, keys, prices, stack.pop_all(), None, folder)


def next_table(manifest: Manifest) -> int:
    """Return the number of the next table of a run."""
    return int(Path(manifest.table.file).stem) + 1 if manifest.tables else 1


def standing_takes(folder: Folder, manifest: Manifest) -> dict[str, int]:
    """Return the take of each call of the run's table that has had another take than its first."""
    if not manifest.tables or not folder.exists(manifest.table.file):
        return {}
    table = pq.read_table(folder.source(manifest.table.file), columns=[BASE_KEY, TAKE])
    retaken = table.take(np.flatnonzero(table[TAKE].to_numpy())).to_pydict()
    return dict(zip(retaken[BASE_KEY], retaken[TAKE], strict=True))


def check_same(folder: Folder, manifest: Manifest, backend: Backend) -> None:
    """Raise RunMismatch when a run is of another operation or service than what is to be added."""
    if manifest.operation != backend.operation:
        raise RunMismatch(
            f"{folder.path} holds a {manifest.operation} run, not {backend.operation}: choose another run_dir"
        )
    if manifest.service != backend.service:
        raise RunMismatch(
            f"{folder.path} was made by {manifest.service}, this service is {backend.service}: rows of two "
            "services are not mixed. Choose another run_dir, or go on with the service that made it."
        )


def _manifest(backend: Backend, opened: Opened) -> Manifest:
    return Manifest(
        run_id=uuid.uuid4().hex[:16],
        operation=backend.operation,
        service=backend.service,
        columns=described(backend.columns),
        key_fingerprint=opened.key_fingerprint,
        is_local=opened.is_local,
        version=__version__,
        facts=dict(opened.facts),
        remark=backend.remark,
    )


def _check_free(folder: Folder) -> None:
    """Raise StoreError where something lies that is no run of ours."""
    path = folder.path
    if folder.work != path:
        return
    if path.is_dir():
        others = [name.name for name in path.iterdir() if name.name not in _OWN]
        if others:
            raise StoreError(
                f"{path} holds other files and no run ({others[0]!r}): name an empty or a new folder"
            )
    elif path.exists():
        raise StoreError(f"{path} is a file: name a folder as run_dir")


def _remove_unplanned(folder: Folder) -> None:
    """Remove what planning left in a folder that holds no run."""
    if folder.exists(FILE) or not folder.work.is_dir():
        return
    for name in _OWN:
        path = folder.work / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # what else is in it is not ours
        folder.work.rmdir()


def _named_by_calls(
    draft: Folder, manifest: Manifest, found: Spooled, backend: Backend, unlock: contextlib.ExitStack
) -> tuple[Folder, Manifest]:
    """Give a draft the name of its calls; where such a run is already, hand the table over to it."""
    name = hashlib.blake2b(found.keys.tobytes(), digest_size=5).hexdigest()
    target = Folder((DEFAULT_ROOT / f"{backend.operation}-{name}").absolute())
    if not target.exists(FILE):
        with storing(target, "naming the run's folder"):
            _remove_unplanned(target)
            draft.path.rename(target.path)
        draft.path = draft.work = target.path
        return draft, manifest
    unlock.enter_context(target.lock())
    kept = read_manifest(target)
    check_same(target, kept, backend)
    mine, found.entry.file = found.entry.file, INPUT.format(next_table(kept))
    with storing(target, "handing the table over"):
        draft.temporary(mine).rename(target.temporary(found.entry.file))
        if (draft.path / "clips").is_dir():
            shutil.copytree(draft.path / "clips", target.path / "clips", dirs_exist_ok=True)
        shutil.rmtree(draft.path)
    return target, kept


def _adopt(folder: Folder, manifest: Manifest, entry: TableEntry) -> TableEntry:
    """Make a table that was spooled the run's, unless it is the one the run has."""
    written = folder.temporary(entry.file)
    if manifest.tables:
        before = manifest.table
        is_same = replace(before, file=entry.file) == entry and folder.exists(before.file)
        if (
            is_same
            and folder.work == folder.path
            and filecmp.cmp(written, folder.inside(before.file), shallow=False)
        ):
            written.unlink()
            return before
    with storing(folder, "writing the table"):
        folder.publish(entry.file)
    # A table that was lost is not asked for any more.
    manifest.tables = [*(table for table in manifest.tables if folder.exists(table.file)), entry]
    manifest.write(folder)
    return entry


def _with_takes(folder: Folder, manifest: Manifest, redo: Mapping[str, int]) -> TableEntry:
    """Write the run's table once more, with other takes for some rows."""
    before = manifest.table
    entry = replace(before, file=INPUT.format(next_table(manifest)))
    with storing(folder, "writing the table"), pq.ParquetFile(folder.source(before.file)) as file:
        schema = file.schema_arrow
        place, ids_at = schema.get_field_index(TAKE), schema.get_field_index("spf:row_id")
        with pq.ParquetWriter(
            folder.temporary(entry.file), schema, compression="zstd", use_dictionary=False
        ) as writer:
            for batch in file.iter_batches():
                ids, takes = batch.column(ids_at).to_pylist(), batch.column(place).to_numpy().tolist()
                new = [redo.get(str(row_id), take) for row_id, take in zip(ids, takes, strict=True)]
                writer.write_batch(batch.set_column(place, schema.field(place), pa.array(new, pa.int32())))
    return _adopt(folder, manifest, entry)
