"""Reports of engine faults. The log gets one warning for each, and callers of the service get no path."""

import logging
import os
import re
from functools import lru_cache
from pathlib import Path

from speechframe.errors import EngineFault

FAULT_WORDS_FOR_CALLERS = (
    "its model or a file of it cannot be used; the log of the service names the file and the reason"
)
"""The reason that a caller of the service gets for an :class:`EngineFault`."""

_log = logging.getLogger("speechframe")

# Number of warnings that are remembered. An older warning may be logged again.
_MAX_REMEMBERED_WARNINGS = 4096
# Matches an absolute path. `first` is the first name in the path.
_ABSOLUTE_PATH = re.compile(r"(?<![\w/.:])/(?P<first>[^\s/'\"<>()]+)(?:/[^\s/'\"<>()]+)*/?")
# Checks of a path that is not a file, each with words for an error.
_OTHER_FILE_KINDS = (
    (Path.is_dir, "is a folder"),
    (Path.is_fifo, "is a named pipe"),
    (Path.is_socket, "is a socket"),
)


@lru_cache(maxsize=_MAX_REMEMBERED_WARNINGS)
def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged the same words lately."""
    _log.warning("%s", "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message))


def shorten_paths(text: str) -> str:
    """Return a message in which each absolute path of this machine is replaced by its last name.

    Examples
    --------
    >>> shorten_paths("the file /tmp/voices/anna.onnx: see https://example.com/tmp/x and/or a/b")
    'the file anna.onnx: see https://example.com/tmp/x and/or a/b'
    """
    return _ABSOLUTE_PATH.sub(_get_last_name, text)


def _get_last_name(match: re.Match[str]) -> str:
    """Return the last name of a path, or the whole match if its first folder does not exist here."""
    if not os.path.lexists(f"/{match['first']}"):
        return match[0]
    return match[0].rstrip("/").rpartition("/")[2]


def read_file_facts(path: Path) -> os.stat_result:
    """Return the `stat` facts of a readable file. Do not open the file, because a named pipe would block.

    Raises
    ------
    EngineFault
        If the path is missing, unreadable, or neither a file nor a link to a file.
    """
    try:
        facts = path.stat()
    except OSError as error:
        if path.is_symlink():
            raise EngineFault(f"{path} is a link to a file that is missing") from None
        raise EngineFault(f"{path} cannot be read: {error.strerror}") from None
    if not path.is_file():
        kind = next((fault for is_kind, fault in _OTHER_FILE_KINDS if is_kind(path)), "is not a file")
        raise EngineFault(f"{path} {kind}, not a file")
    if not os.access(path, os.R_OK):
        raise EngineFault(f"{path} cannot be read: permission denied")
    return facts
