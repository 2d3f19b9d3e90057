"""The verb `changes`, which compares a table with the table of a run."""

from os import PathLike
from typing import Any

from speechframe.batch.backend import Backend
from speechframe.batch.changes import Changes, find_changes
from speechframe.batch.live import Run
from speechframe.batch.run import read_run
from speechframe.verbs.resume import make_backend


async def changes(
    run: Run | str | PathLike[str], table: Any, *, backend: Backend | None = None, **given: Any
) -> Changes:
    """Return the differences between `table` and a run's table, and their cost. Nothing is sent.

    Parameters
    ----------
    run
        A run or its folder.
    table
        The new table, as for :func:`resume`.
    backend
        As for :func:`resume`.
    **given
        ``id``, ``service`` and ``on_invalid`` of :class:`RunOptions`.

    Raises
    ------
    InvalidRows
        If rows of the table cannot be sent.
    NotARun, RunMismatch, StoreError
        If the folder contains no run, or a run of another service, verb or version, or cannot be read.
    """
    earlier = read_run(run, given)
    backend = make_backend(earlier) if backend is None else backend
    return await find_changes(earlier, backend, table)
