"""End a child process with its parent, even if the parent is killed."""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>


def end_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends. If the parent has already ended, exit at once.

    On systems other than Linux, only the second part works.

    Parameters
    ----------
    parent
        Process id of the parent.
    """
    # Systems other than Linux have no prctl.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)
