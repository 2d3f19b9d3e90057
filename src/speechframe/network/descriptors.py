"""Limit of the file descriptors (open files and connections) of this process."""

import contextlib
import sys
from pathlib import Path

if sys.platform != "win32":
    import resource

MAX_DESCRIPTORS = 8192
"""Number of descriptors to which our commands and servers raise the soft limit of their process."""
_RESERVED_DESCRIPTORS = 64
"""Number of descriptors that a run needs for files."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process to :data:`MAX_DESCRIPTORS`, or as far as the hard limit allows.

    A higher limit stays unchanged. On Windows the function does nothing.
    """
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def count_free_descriptors() -> int:
    """Return the number of connections that this process may open now, after a reserve for files."""
    if sys.platform == "win32":
        return MAX_DESCRIPTORS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    try:
        used = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:  # not even this folder can be opened
        used = soft
    return max(0, soft - used - _RESERVED_DESCRIPTORS)
