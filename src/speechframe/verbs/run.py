"""The verb `run`, which makes a run with a backend of the user."""

from typing import Any

from speechframe.batch.backend import Backend
from speechframe.batch.live import Run
from speechframe.scale.run import make_run


async def run(backend: Backend, table: Any, **options: Any) -> Run:
    """Make a call of a backend for each row of a table, store the answers, and return the :class:`Run`.

    Parameters
    ----------
    backend
        The object that converts rows to calls and answers to records. See :class:`Backend`.
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
    return await make_run(backend, table, {}, options)
