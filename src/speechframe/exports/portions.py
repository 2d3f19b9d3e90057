"""Send clips of runs in portions to the workers of an executor. The workers read the runs themselves."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from speechframe._version import __version__
from speechframe.errors import ExportError, SettingsError, StoreError
from speechframe.exports.chosen_rows import ChosenRows
from speechframe.processes.executors import open_executor
from speechframe.store import journal
from speechframe.store.folder import Folder, Manifest
from speechframe.store.reader import StoredRun
from speechframe.store.rows import Selection

B = TypeVar("B")

Workers = tuple[Executor, int]
"""An executor, and the number of its workers."""

_PORTION_CLIPS, _PORTIONS_PER_WORKER = 32, 2
"""Largest number of clips of a portion, and of portions of each worker in flight: one in work, one next."""
_TICK_S = 0.2
"""Time in seconds between two checks for a cancellation."""
_opened: dict[str, StoredRun] = {}
"""The run that this worker opened last. Its next portion is probably of the same run."""


def find_workers(given: Any, count: int | None, runs: Sequence[Selection]) -> Workers | None:
    """Return the workers of an executor, or None if no executor was given.

    Raise SettingsError if the executor cannot be used, or if other processes cannot read one of the runs.
    """
    if given is None:
        if count is not None:
            raise SettingsError(f"executor_workers={count} needs executor=: give both, or leave both out")
        return None
    for folder in (rows.run.folder for rows in runs):
        advice = ""
        if str(folder).startswith("memory:"):
            advice = "it is in the memory of this process, so copy it to a folder"
        elif folder.work != folder.path and journal.list_segments(folder):
            advice = "its last answers are only on this machine, so resume() the run to its end"
        if advice:
            raise SettingsError(
                f"workers of executor= cannot read {folder}: {advice}, or leave executor= out"
            )
    return open_executor(given, count)


def map_on_workers(
    function: Callable[[ChosenRows], Iterable[B]],
    chosen: Sequence[ChosenRows],
    workers: Workers,
    is_cancelled: Callable[[], bool],
) -> Generator[B]:
    """Yield the results of `function` for portions of the rows, in order.

    Raise ExportError if a worker died, if the executor was closed, or once `is_cancelled` returns True.
    """
    executor, count = workers
    waiting: deque[Future[list[B]]] = deque()
    try:
        for rows in chosen:
            size = max(1, min(_PORTION_CLIPS, -(-len(rows.places) // count)))
            for start in range(0, len(rows.places), size):
                if len(waiting) == _PORTIONS_PER_WORKER * count:
                    yield from _wait_for(waiting[0], is_cancelled)
                    waiting.popleft()
                some = slice(start, start + size)
                portion = ChosenRows(None, rows.places[some], rows.splits[some], rows.paths[some])
                source = rows.run.folder, rows.run.manifest, rows.run.shows_last_kept, __version__
                with _explain_loss():
                    waiting.append(executor.submit(_work, function, source, portion))
        while waiting:
            yield from _wait_for(waiting[0], is_cancelled)
            waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()


def _work(
    function: Callable[[ChosenRows], Iterable[B]], source: tuple[Any, ...], portion: ChosenRows
) -> list[B]:
    """Return the results of `function` for a portion. Workers call this function."""
    portion.run = _open_run(*source)
    return list(function(portion))


def _open_run(folder: Folder, manifest: Manifest, shows_last_kept: bool, version: str) -> StoredRun:  # noqa: FBT001
    """Return the caller's run, as this worker reads it. Raise SettingsError if it cannot."""
    if version != __version__:
        raise SettingsError(
            f"a worker has speechframe {__version__} and the caller {version}: install the same version"
        )
    key = f"{folder} {manifest.run_id} {manifest.table.file} {shows_last_kept}"
    if (run := _opened.get(key)) is None:
        try:
            run = StoredRun(folder)
            if run.run_id != manifest.run_id:
                raise StoreError(f"{folder} contains another run")  # noqa: TRY301 - the advice is the same
        except StoreError as error:
            advice = "put the run on a disk that all workers share, or at an address such as s3://"
            raise SettingsError(f"a worker cannot read the run ({error}): {advice}") from error
        # Rows are positions in the caller's table, and the run may have a newer table by now.
        run.manifest, run.shows_last_kept = manifest, shows_last_kept
        _opened.clear()
        _opened[key] = run
    return run


def _wait_for(future: Future[list[B]], is_cancelled: Callable[[], bool]) -> list[B]:
    while not wait([future], _TICK_S).done:
        if is_cancelled():
            raise ExportError("the work was stopped")
    with _explain_loss():
        return future.result()


@contextmanager
def _explain_loss() -> Iterator[None]:
    """Convert the errors of executors whose workers died, or that are closed, to ExportError."""
    try:
        yield
    except Exception as error:
        # The name of the module, because Dask, which raises KilledWorker and more, may not be installed.
        is_of_dask = type(error).__module__.partition(".")[0] == "distributed"
        if is_of_dask or isinstance(error, (BrokenExecutor, CancelledError)):
            raise ExportError(
                f"the workers of executor= are lost ({type(error).__name__}: {error}); no result was kept. "
                "Call again with a new executor, or with fewer workers if memory ran out"
            ) from error
        raise
