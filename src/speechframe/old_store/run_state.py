"""How far a run is, and why it ended early: what ``extra`` of ``run.json`` says of it."""

from enum import StrEnum

STATE_KEY, STOP_KEY = "state", "stopped_because"

PLANNED, RUNNING, FINISHED, STOPPED = "planned", "running", "finished", "stopped"


class StopReason(StrEnum):
    """Why a run ended before every row had an outcome."""

    QUOTA = "quota"
    """The key has no characters left for the next call."""
    KEY = "key"
    """The service refuses the key."""
    BUDGET = "budget"
    """The next call may cost more than is left of what the caller or the settings allow."""
    UNREACHABLE = "unreachable"
    """No region gives any answer."""
    UNAVAILABLE = "unavailable"
    """Every call is put off (503, 429), for longer than a run waits."""
    STOPPED = "stopped"
    """``run.stop()``, or the button of its dashboard."""
    INTERRUPTED = "interrupted"
    """Ctrl-C, SIGTERM, a cancellation, the end of its program; or its process died."""
