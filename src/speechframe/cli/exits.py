"""The exit codes of commands, and the errors and stop reasons that lead to each code."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from speechframe import errors

OK = 0
ROWS_FAILED = 1
WRONG_USAGE = 2
ROWS_INVALID = 3
LIMIT_REACHED = 4
SERVICE_UNUSABLE = 5
FOLDER_UNUSABLE = 6
ROWS_OPEN = 7
BUDGET_ALERT = 8
JOBS_RUNNING = 9
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        OK: "everything was done",
        ROWS_FAILED: "some rows failed or lack audio (doctor, quality, runs verify: a fault was found)",
        WRONG_USAGE: "wrong usage",
        ROWS_INVALID: "rows are invalid. Nothing was sent and nothing was spent",
        LIMIT_REACHED: "the key's quota, --max-credits or a budget stopped the run. Finished rows are kept",
        SERVICE_UNUSABLE: "the service cannot be used, because of the key, address, settings or network",
        FOLDER_UNUSABLE: "run folder, cache or --out is unusable (no run, in use, other service, read-only)",
        ROWS_OPEN: "every row ended, and some are needs_shortening, stale or in conflict",
        BUDGET_ALERT: "usage --check: a budget has reached an alert (4 if it is exceeded)",
        JOBS_RUNNING: "dub --no-wait, jobs: dubbing jobs still run at the service",
        INTERRUPTED: "interrupted. Finished rows are kept",
        PIPE_CLOSED: "the reader of the output closed it early",
    }
)
"""Meaning of each exit code, in the words of ``speechframe --help``."""

_CODE_BY_ERROR: tuple[tuple[type[errors.SpeechframeError], int], ...] = (
    (errors.InvalidRows, ROWS_INVALID),
    (errors.BudgetExceeded, LIMIT_REACHED),
    (errors.PaymentRequired, LIMIT_REACHED),
    # A single call that the service refuses counts like a failed row of a run.
    (errors.BadRequest, ROWS_FAILED),
    (errors.ServiceError, SERVICE_UNUSABLE),
    (errors.ConnectionFailed, SERVICE_UNUSABLE),
    (errors.SettingsError, SERVICE_UNUSABLE),
    (errors.StoreError, FOLDER_UNUSABLE),
    (errors.ExportError, FOLDER_UNUSABLE),
    (errors.SpeechframeError, ROWS_FAILED),
)
"""Exit code of each class of errors. The first class in this list to which an error belongs decides."""

_CODE_BY_REASON: Mapping[str, int] = MappingProxyType(
    {
        "quota": LIMIT_REACHED,
        "budget": LIMIT_REACHED,
        "refused": SERVICE_UNUSABLE,
        "unreachable": SERVICE_UNUSABLE,
        "unusable": SERVICE_UNUSABLE,
        "stopped": INTERRUPTED,
        "interrupted": INTERRUPTED,
    }
)
"""Exit code for each value of ``run.stopped_because``."""

_STATUSES_WITH_ANSWER = frozenset({"done", "cached", "suspect"})
"""Statuses of rows that have an answer (audio or a translation)."""


def find_error_code(error: errors.SpeechframeError) -> int:
    """Return the exit code of an error that ended a command.

    Examples
    --------
    >>> find_error_code(errors.RunLocked("in use"))
    6
    """
    return next(code for kind, code in _CODE_BY_ERROR if isinstance(error, kind))


def find_run_code(stopped_because: str | None, rows_by_status: Mapping[str, int]) -> int:
    """Return the exit code of a run that has finished or stopped.

    Parameters
    ----------
    stopped_because
        The attribute of the run: the reason why it stopped early, or None.
    rows_by_status
        Number of rows of each status.

    Examples
    --------
    >>> find_run_code(None, {"done": 3}), find_run_code(None, {"done": 2, "failed": 1})
    (0, 1)
    >>> find_run_code("budget", {})
    4
    """
    if stopped_because is not None:
        return _CODE_BY_REASON.get(stopped_because, ROWS_FAILED)
    return (
        ROWS_FAILED
        if any(n for status, n in rows_by_status.items() if status not in _STATUSES_WITH_ANSWER)
        else OK
    )


def make_epilog() -> str:
    """Return the table of exit codes for the end of ``--help``."""
    return "exit codes:\n" + "\n".join(f"  {code:<5}{meaning}" for code, meaning in EXIT_CODES.items())


def convert_error_to_json(error: errors.SpeechframeError) -> dict[str, Any]:
    """Return an error as a dictionary for ``--json``: its class, message, data and exit code."""
    facts: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
    for name in ("problems", "status", "code", "trace_id", "sent"):
        value = getattr(error, name, None)
        if value is not None:
            facts[name] = value
    return {**facts, "exit_code": find_error_code(error)}
