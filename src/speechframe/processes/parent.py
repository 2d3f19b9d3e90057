"""A child process that ends with its parent, even where the parent is killed."""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone; end at once where it is gone already.

    Parameters
    ----------
    parent
        The parent's process id.
    """
    # Only Linux has prctl.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)
