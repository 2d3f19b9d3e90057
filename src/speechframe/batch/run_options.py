"""The run options of all verbs, such as the run's folder and its budget.

This module imports neither pydantic nor Arrow, so that the help pages of the commands open fast.
"""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Literal, TypedDict

OnInvalid = Literal["raise", "skip"]
OnError = Literal["column", "raise"]
OnUnknown = Literal["skip", "retry"]
Quoting = Literal["none"]


class RunOptions(TypedDict, total=False):
    """Options of a whole run. They are the same for every verb.

    Parameters
    ----------
    run_dir
        The run's folder (default ``./speechframe-runs/<verb>-<hash>``).
    id
        The column of row ids (default: the index, or the row's number).
    sep
        Character between two fields of a CSV or TSV file (default: detected from the file).
    quoting
        ``"none"`` reads quotes in a CSV or TSV file as ordinary characters (default: detected from the file).
    max_concurrency
        Largest number of calls in flight, in each region.
    max_credits
        The run's budget in credits for all its calls, resumes included. A call that would exceed the budget
        is not made.
    take
        Number of the take (the rendering of the same content) of every row. 0 is the first take (default: 0,
        or a later take if a review rejected take 0).
    truth_checks
        Check the audio and words of every answer (default). An implausible answer gets the status
        ``suspect``, with a reason. False accepts all answers unchecked, and caches none of them.
    max_retakes
        Largest number of further takes that the run makes by itself if an answer is suspect. Each is billed
        (default 0).
    tags
        Tags for every attempt in the ledger (the table of attempts and costs). They map a name to a value, or
        to a column with a value for each row, as in ``{"team": "ads", "character": col("speaker")}``.
    on_alert
        A function that gets an :class:`Alert` when 80 % and 100 % of ``max_credits`` are spent or reserved.
        Budgets shared by many runs send alerts at the shares in their ``alerts``.
    cache
        Folder of answers that runs share. A call whose answer is in the folder costs nothing. True means the
        folder in the settings, or else a folder of your user. False means no folder (default: the folder in
        the settings, if they name one).
    max_attempts
        Largest number of attempts for a row (default 6).
    patience_s
        Largest number of seconds for a row, retries included (default 900). A row fails at once if the
        service requires a longer wait (Retry-After). The next run observes the rest of that wait, up to one
        day, and sends the row only if its own ``patience_s`` allows the wait. A run also stops if the service
        is unreachable for this time, or for one minute if that is shorter.
    timeout_s
        Timeout of one attempt in seconds, download included. The default depends on the length of the text or
        clip (:class:`speechframe.client.Timeouts`).
    max_answer_mb
        Largest size of one row's answer in megabytes (default: depends on its text, format and duration).
    on_invalid
        What to do if rows cannot be sent: ``raise`` (default) raises an error and sends no row. ``skip``
        sends the other rows.
    on_error
        What to do if a row fails: ``column`` (default) writes the error beside the row. ``raise`` ends the
        run with the first error.
    on_unknown
        What to do with rows that may have been billed without an answer: ``skip`` (default) leaves them,
        ``retry`` sends them again.
    progress
        Show a progress bar (default), or without a terminal a line every 15 seconds. ``"dashboard"`` shows
        the run's dashboard in a notebook (see :func:`speechframe.watch`), and the bar elsewhere. False shows
        nothing.
    wait
        True (default) waits for the end of the run. False returns the live run at once.
    dry_run
        Plan and price every row, but send nothing. A run that has begun keeps its table. A run that was only
        planned gets this table.
    service
        The service to use (default: the service in the settings, or else the local service).
    executor
        Executor whose workers make the calls: a ``concurrent.futures.Executor`` such as
        ``ProcessPoolExecutor(4)``, or a client of Dask. All workers must reach the run's folder. They read
        the API key from their own environment. Without a key, each worker starts a local service of its own.
        By default this process makes the calls.
    executor_workers
        Number of workers of the executor (default: read from the executor).
    """

    run_dir: str | PathLike[str] | None
    id: str | None
    sep: str | None
    quoting: Quoting | None
    max_concurrency: int | None
    max_credits: float | None
    take: Any
    truth_checks: bool
    max_retakes: int
    tags: Mapping[str, Any]
    on_alert: Callable[[Any], None] | None
    cache: str | PathLike[str] | bool | None
    max_attempts: int
    patience_s: float
    timeout_s: float | None
    max_answer_mb: float | None
    on_invalid: OnInvalid
    on_error: OnError
    on_unknown: OnUnknown
    progress: bool | Literal["dashboard"]
    wait: bool
    dry_run: bool
    service: Any
    executor: Any
    executor_workers: int | None
