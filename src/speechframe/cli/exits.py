"""How a command ends: one table of exit codes, and what leads to which."""

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
        ROWS_FAILED: "some rows failed or have no audio (doctor, runs verify: something is not right)",
        USAGE: "wrong usage",
        INVALID: "rows are invalid; nothing was sent, nothing was spent",
        STOPPED: "stopped by the key's quota, --max-credits or a budget; what was made is kept",
        SERVICE: "the service cannot be used: key, address, settings, not reachable",
        FOLDER: "a run's folder, cache or --out is unusable: no run, in use, another service's, not writable",
        ALERT: "usage --check: a budget is at an alert (4: it is over)",
        RUNNING: "dub --no-wait, jobs: dubbing jobs are still under way at the service",
        INTERRUPTED: "interrupted; what was made is kept",
        PIPE_CLOSED: "whoever read the output closed it early",
    }
)
"""Exit code to its meaning: what ``speechframe --help`` prints."""

_BY_ERROR: tuple[tuple[type[errors.SpeechframeError], int], ...] = (
    (errors.InvalidRows, INVALID),
    (errors.BudgetExceeded, STOPPED),
    (errors.PaymentRequired, STOPPED),
    # One refused call is what one failed row is to a run.
    (errors.BadRequest, ROWS_FAILED),
    (errors.ServiceError, SERVICE),
    (errors.ConnectionFailed, SERVICE),
    (errors.SettingsError, SERVICE),
    (errors.StoreError, FOLDER),
    (errors.SpeechframeError, ROWS_FAILED),
)
"""The first class that fits decides."""

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
"""``run.stopped_because`` to exit code."""

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
        How many rows have which status.

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
    said: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
    for name in ("problems", "status", "code", "trace_id", "sent"):
        value = getattr(error, name, None)
        if value is not None:
            said[name] = value
    return {**said, "exit_code": code_of_error(error)}
