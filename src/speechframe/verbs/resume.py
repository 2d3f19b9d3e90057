"""The verb `resume`, which continues a run of any verb."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

from speechframe.batch.backend import Backend
from speechframe.batch.live import Run
from speechframe.batch.run import EarlierRun, read_run
from speechframe.errors import RunMismatch, SettingsError, refuse
from speechframe.scale.run import continue_run
from speechframe.verbs import RUN_VERBS


async def resume(
    run: Run | str | PathLike[str],
    table: Any = None,
    *,
    redo: str | Sequence[Any] | None = None,
    backend: Backend | None = None,
    **given: Any,
) -> Run:
    """Resume a run and return it. Finished calls are kept, and only missing and failed calls are made.

    All parameters come from the run's folder, including its tags and its budget. If ``max_credits`` stopped
    the run, pass a higher value (``float("inf")`` removes the limit).

    Parameters
    ----------
    run
        A run or its folder.
    table
        A new table for the run. Calls are made for new rows, and for rows with a changed text or parameter.
        Unchanged rows cost nothing and keep their take (their reading of the text). Rows that the new table
        lacks leave the run's table, but their answers stay on disk.
    redo
        Rows that get another take: a list of row ids, a status such as ``"suspect"``, or ``"rejected"``.
        ``"rejected"`` selects the rows that a review rejected, unless they were made again since then.
        Earlier takes stay on disk. A later call of the verb selects the take of its own argument ``take``,
        unless a review rejected this take. A good row keeps its take, at no cost, if another take would be
        the same. Failed rows are tried again without ``redo``.
    backend
        The backend of a run that :func:`run` made. For runs of other verbs, None (default) finds the backend.
    **given
        See :class:`RunOptions`. ``run_dir`` and ``take`` cannot be changed. ``id`` needs a new table.

    Raises
    ------
    NotARun, RunMismatch, RunLocked, StoreError
        If the folder cannot be used to resume the run.
    InvalidRows, SettingsError, ServiceError, ConnectionFailed
        For the same reasons as the run's verb.

    Examples
    --------
    >>> run = resume("runs/demo", table=frame)  # doctest: +SKIP
    """
    if redo is not None and table is not None:
        raise refuse("redo", "cannot be combined with table", allowed="redo= or table=, in separate calls")
    reasons = {
        "run_dir": "a run keeps its folder",
        "take": "a run keeps its takes, and redo= makes another take of some rows",
        "id": "it needs a new table, given as table=",
    }
    for name, reason in reasons.items():
        if given.get(name) is not None and not (name == "id" and table is not None):
            raise SettingsError(f"resume() takes no {name}: {reason}")
    earlier = read_run(run, given)
    backend = make_backend(earlier) if backend is None else backend
    return await continue_run(earlier, backend, table, redo)


def needs_service(run: Run | str | PathLike[str], *_: Any, **_options: Any) -> bool:
    """Return whether the verb of a run calls a service. The other arguments are those of `resume`."""
    verb = RUN_VERBS.get(read_run(run, {}).operation)
    return verb is None or verb.needs_service


def make_backend(earlier: EarlierRun) -> Backend:
    """Return the backend of a run, or raise RunMismatch if the run was made by :func:`run`."""
    if (verb := RUN_VERBS.get(earlier.operation)) is None:
        raise RunMismatch(
            f"{earlier.folder.path} contains a {earlier.operation} run, which needs its own backend; use "
            "resume(run, backend=...)"
        )
    return verb.backend().from_constants(earlier.options.service, earlier.constants)
