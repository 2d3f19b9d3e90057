"""The most memory a process had. Not `ru_maxrss`: a process that is spawned begins with the peak of its parent."""

from contextlib import suppress
from pathlib import Path


def peak_kb(pid="self"):
    """Return the peak of a process, this one by default, since it began, or since it was forgotten."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0])


def forget_peak(pid="self"):
    """Let the peak begin anew, for a process that has done other things before; where the kernel lets it."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
