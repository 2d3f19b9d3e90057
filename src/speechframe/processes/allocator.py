"""Tune the memory allocator of the C library for large buffers that are allocated and freed all the time.

An answer needs a few buffers of 50 to 500 KB, each for about a millisecond. By default the C library glibc
returns such buffers to the kernel. It gets the next buffers from the kernel, zeroed page by page. This takes
more time than all the decoding. After the tuning glibc keeps and reuses the pages. The larger the answers,
the more time this saves.
"""

import ctypes
import ctypes.util
import functools
import platform
import sys
from typing import Final

MEBIBYTE: Final = 1 << 20

# From <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3

MMAP_THRESHOLD_BYTES: Final = 32 * MEBIBYTE
"""Size below which buffers come from the heap and can be reused. This is the largest size that glibc
accepts."""

TRIM_THRESHOLD_BYTES: Final = 64 * MEBIBYTE
"""Free memory at the end of a heap that glibc keeps. It returns more than this to the kernel. So each thread
that allocates keeps at most this much free memory."""

TOP_PAD_BYTES: Final = 4 * MEBIBYTE
"""Memory that glibc requests from the kernel in addition to the current need."""


@functools.cache
def tune_allocator() -> bool:
    """Set the allocator to reuse buffers of up to 32 MiB. Return whether it accepted the settings.

    The setting applies to the whole process, other libraries included, until the process ends. A second call
    changes nothing. Each thread that allocates may then keep up to 64 MiB of free memory. The commands and
    the worker processes of speechframe call this function when they start. Other programs must decide for
    themselves.

    Only glibc on Linux has these settings. On other systems this function does nothing and returns False.

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
