"""The exit codes of commands, and the errors and reasons that lead to each code."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from speechframe import errors

OK = 0
ROWS_FAILED = 1
USAGE = 2
INVALID = 3
STOPPED = 4
SERVICE = 5
FOLDER = 6
ALERT = 8
RUNNING = 9
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        OK: "everything was done",
        ROWS_FAILED: "some rows failed or lack audio (doctor, runs verify, quality: a check found a fault)",
        USAGE: "wrong usage",
        INVALID: "rows are invalid. Nothing was sent and nothing was spent",
        STOPPED: "the key's quota, --max-credits or a budget stopped the run. Finished rows are kept",
        SERVICE: "the service cannot be used, because of the key, the address, the settings or the network",
        FOLDER: "a run's folder, cache or --out is unusable (no run, in use, of another service, read-only)",
        ALERT: "usage --check: a budget has reached an alert (4 if it is exceeded)",
        RUNNING: "dub --no-wait, jobs: dubbing jobs still run at the service",
        INTERRUPTED: "interrupted. Finished rows are kept",
        PIPE_CLOSED: "the reader of the output closed it early",
    }
)
"""The meaning of each exit code, as ``speechframe --help`` prints it."""

_BY_ERROR: tuple[tuple[type[errors.SpeechframeError], int], ...] = (
    (errors.InvalidRows, INVALID),
    (errors.BudgetExceeded, STOPPED),
    (errors.PaymentRequired, STOPPED),
    # A refused single call counts like a failed row of a run.
    (errors.BadRequest, ROWS_FAILED),
    (errors.ServiceError, SERVICE),
    (errors.ConnectionFailed, SERVICE),
    (errors.SettingsError, SERVICE),
    (errors.StoreError, FOLDER),
    (errors.SpeechframeError, ROWS_FAILED),
)
"""Exit code of each class of errors. The first class that matches counts."""

_BY_REASON: Mapping[str, int] = MappingProxyType(
    {
        "quota": STOPPED,
        "budget": STOPPED,
        "refused": SERVICE,
        "unreachable": SERVICE,
        "unusable": SERVICE,
        "stopped": INTERRUPTED,
        "interrupted": INTERRUPTED,
    }
)
"""Exit code of each value of ``run.stopped_because``."""

_HAS_AUDIO = frozenset({"done", "cached", "suspect"})


def code_of_error(error: errors.SpeechframeError) -> int:
    """Return the exit code of an error that ended a command.

    Examples
    --------
    >>> code_of_error(errors.RunLocked("in use"))
    6
    """
    return next(code for kind, code in _BY_ERROR if isinstance(error, kind))


def code_of_run(stopped_because: str | None, rows_by_status: Mapping[str, int]) -> int:
    """Return the exit code of a run that came to its end.

    Parameters
    ----------
    stopped_because
        ``run.stopped_because``.
    rows_by_status
        Number of rows of each status.

    Examples
    --------
    >>> code_of_run(None, {"done": 3}), code_of_run(None, {"done": 2, "failed": 1}), code_of_run("budget", {})
    (0, 1, 4)
    """
    if stopped_because is not None:
        return _BY_REASON.get(stopped_because, ROWS_FAILED)
    return ROWS_FAILED if any(n for status, n in rows_by_status.items() if status not in _HAS_AUDIO) else OK


def epilog() -> str:
    """Return the table as ``--help`` shows it."""
    return "exit codes:\n" + "\n".join(f"  {code:<5}{meaning}" for code, meaning in EXIT_CODES.items())


def as_json(error: errors.SpeechframeError) -> dict[str, Any]:
    """Return an error as plain values, for ``--json``."""
    facts: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
    for name in ("problems", "status", "code", "trace_id", "sent"):
        value = getattr(error, name, None)
        if value is not None:
            facts[name] = value
    return {**facts, "exit_code": code_of_error(error)}
