"""The C library's allocator, told that large buffers come and go all the time.

An answer is a few buffers of 50 to 500 KB that live for a millisecond. glibc hands such buffers back to the
kernel each time and gets them again, zeroed page by page, which costs more than all the decoding. Told to
keep them, it reuses the same pages, the more to the client's good the larger its answers are.
"""

import ctypes
import ctypes.util
import functools
import platform
import sys
from typing import Final

MIB: Final = 1 << 20

# From <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3

MMAP_THRESHOLD_BYTES: Final = 32 * MIB
"""Smaller buffers come from the heap; the largest value glibc takes."""

TRIM_THRESHOLD_BYTES: Final = 64 * MIB
"""Free memory at the end of a heap above which it goes back to the kernel: what tuning may keep, at most, of
each thread that allocates."""

TOP_PAD_BYTES: Final = 4 * MIB
"""What is asked of the kernel beyond the need of the moment."""


@functools.cache
def tune_allocator() -> bool:
    """Return whether the allocator of this process was told to keep buffers of up to 32 MiB.

    It holds for the whole process, other libraries included, until the process ends; a second call changes
    nothing. Kept in return is at most 64 MiB of free memory a thread that allocates. Programs that are
    ours alone (the commands, the workers) call it at their start; inside a program of others it is theirs
    to choose.

    Only glibc on Linux has these settings; anywhere else nothing is done and False is returned.

    Examples
    --------
    >>> tune_allocator() == tune_allocator()
    True

    Source: mallopt(3).
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    settings = (
        (_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
        (_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
        (_M_TOP_PAD, TOP_PAD_BYTES),
    )
    return all(mallopt(name, value) == 1 for name, value in settings)
