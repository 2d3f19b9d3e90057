"""Words for rows of which the service told none: found in their audio afterwards, on this machine.

What listens is not known here: whoever knows engines provides it, see :func:`provide`. Audio is on disk, and
paid for, before anything is listened to; whatever goes wrong costs a row its words and nothing else.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from speechframe.errors import InvalidRows, SettingsError, SpeechframeError
from speechframe.old_batch.outcome import HEARD
from speechframe.old_batch.progress import counted
from speechframe.old_batch.table import problem
from speechframe.old_batch.threads import in_thread
from speechframe.old_store import RunFolder
from speechframe.spec.check import shown
from speechframe.spec.speech import Format

__all__ = ["ALIGN", "WORDS", "Aligned", "Aligner", "align", "aligner_for", "provide"]

log = logging.getLogger(__name__)

WORDS = "words"
"""The argument of verbs that can align."""

ALIGN = "align"

_AT_ONCE = 64
"""Rows whose words are kept together: what is lost when the process is killed."""

Word = tuple[str, int, int]


class Aligner(Protocol):
    """Finds the words of a text in its audio."""

    name: str
    """What people know it by, with its version."""

    def align(
        self,
        audio: bytes,
        *,
        text: str,
        locale: str | None,
        format: Format,
        sample_rate_hz: int,
        channels: int,
    ) -> Sequence[Word]:
        """Return the words of `text`, each with start and end in milliseconds.

        Raises
        ------
        SpeechframeError
            When they cannot be found.
        """


_makers: list[Callable[[], Aligner]] = []


def provide(make: Callable[[], Aligner]) -> None:
    """Say what makes aligners; it raises SettingsError with what to install where nothing listens."""
    _makers[:] = [make]


async def aligner_for(asked: Any) -> Aligner | None:
    """Return what aligns the words of a run; None where that is not asked for.

    Parameters
    ----------
    asked
        The argument ``words``.

    Raises
    ------
    InvalidRows
        For another value than ``"align"`` or None.
    SettingsError
        When there is nothing to listen.
    """
    if asked is None:
        return None
    if asked != ALIGN:
        allowed = f"{ALIGN!r} for the whole table, or nothing"
        raise InvalidRows([problem(WORDS, "is no way to words", value=shown(asked), allowed=allowed)])
    if not _makers:
        raise SettingsError("nothing is provided that could align words: import speechframe, not its rooms")
    # Looking for models may read files.
    return await asyncio.to_thread(_makers[0])


@dataclass(frozen=True)
class Aligned:
    """What came of aligning.

    Attributes
    ----------
    found, failed
        Rows with and without words now, of those that had none.
    words
        Why the first of `failed` has none.
    """

    found: int = 0
    failed: int = 0
    words: str = ""

    def line(self, aligner: str) -> str:
        """Return it on one line."""
        said = f"words of {counted(self.found, 'row')} aligned by {aligner}"
        return said + (f", {self.failed:,} left without: {self.words}" if self.failed else "")


async def align(folder: RunFolder, aligner: Aligner, *, is_stopped: Callable[[], bool]) -> Aligned:
    """Find the words of every row that has audio and no words, and keep them; in a thread.

    Parameters
    ----------
    folder
        The run, whose lock is free.
    aligner
        What listens.
    is_stopped
        Asked between two rows; what was found by then is kept.
    """
    told = threading.Event()
    with folder.lock():
        return await in_thread(_align, folder, aligner, lambda: told.is_set() or is_stopped(), tell=told.set)


def _align(folder: RunFolder, aligner: Aligner, is_stopped: Callable[[], bool]) -> Aligned:
    if not any(_waits(row) for row in _rows(folder, "status", "word_durations")):
        return Aligned()
    found: dict[str, Sequence[Word]] = {}
    seen: set[bytes] = set()
    count, failed, words = 0, 0, ""
    for row in _rows(folder, *_NEEDED):
        key = bytes.fromhex(row["request_key"] or "")
        if is_stopped():
            break
        if not _waits(row) or key in seen:
            continue
        seen.add(key)
        try:
            found[row["request_key"]] = _words_of(row, aligner)
        except SpeechframeError as error:
            failed += 1
            words = words or str(error)
            log.warning("no words for the call %s: %s", row["request_key"], error)
        if len(found) >= _AT_ONCE:
            folder.keep_aligned(found, by=aligner.name)
            count += len(found)
            found = {}
    folder.keep_aligned(found, by=aligner.name)
    return Aligned(count + len(found), failed, words)


_NEEDED = (
    "request_key",
    "status",
    "word_durations",
    "audio",
    "text",
    "locale",
    "format",
    "sample_rate",
    "channels",
)


def _rows(folder: RunFolder, *columns: str) -> Iterator[dict[str, Any]]:
    entry = folder.tables()[-1]
    for batch in folder.joined([entry.name_of(column) for column in columns]):
        for i in range(batch.num_rows):
            # One at a time: a clip may be large.
            yield {column: batch.column(at)[i].as_py() for at, column in enumerate(columns)}


def _waits(row: dict[str, Any]) -> bool:
    return row["status"] in HEARD and row["word_durations"] is None


def _words_of(row: dict[str, Any], aligner: Aligner) -> Sequence[Word]:
    return aligner.align(
        row["audio"]["bytes"],
        text=row["text"] or "",
        locale=row["locale"],
        format=Format(row["format"]),
        sample_rate_hz=row["sample_rate"],
        channels=row["channels"] or 1,
    )
