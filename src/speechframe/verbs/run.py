"""The verb `run` makes a run of any backend."""

from typing import Any

from speechframe.batch.backend import Backend
from speechframe.batch.live import Run
from speechframe.batch.run import make


async def run(backend: Backend, table: Any, **options: Any) -> Run:
    """Make one call of a backend for each row of a table, and store the answers.

    Parameters
    ----------
    backend
        Converts rows to calls and answers to records. See :class:`Backend`.
    table
        The same kinds of table as for :func:`speechframe.generate`. :meth:`Backend.check` gets the columns of
        each row.
    **options
        See :class:`RunOptions`.

    Raises
    ------
    InvalidRows
        If rows cannot be sent. Nothing was sent then.
    RunMismatch, RunLocked, StoreError
        If the folder cannot be used for this run.

    Examples
    --------
    >>> run = spf.run(MyBackend(), frame, run_dir="runs/mine", max_credits=500)  # doctest: +SKIP
    """
    return await make(backend, table, {}, options)
