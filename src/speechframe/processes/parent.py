"""A child process that ends with its parent, even if the parent is killed."""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends. If the parent has ended already, exit at once.

    Parameters
    ----------
    parent
        Process id of the parent.
    """
    # Only Linux has prctl.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)
