"""The most memory a process had. Not `ru_maxrss`: a process that is spawned begins with the peak of its parent."""

from contextlib import suppress
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_kb():
    """Return the peak of this process since it began, or since it was forgotten."""
    return int(STATUS.read_text().partition("VmHWM:")[2].split()[0])


def forget_peak():
    """Let the peak begin anew, for a process that has done other things before; where the kernel lets it."""
    with suppress(OSError):
        CLEAR.write_text("5")
