"""Find the times of words in the audio of a finished run, for rows whose answers contain none.

The audio is on disk before alignment begins. If alignment fails, a row lacks its word times and nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.batch.run import run_in_thread
from speechframe.errors import SpeechframeError, refuse
from speechframe.spec.check import shorten_value
from speechframe.spec.speech import Format
from speechframe.store.folder import Folder, convert_os_errors
from speechframe.store.reader import StoredRun
from speechframe.store.records import WORDS_FOLDER, WORDS_SCHEMA
from speechframe.store.rows import Rows, Selection
from speechframe.store.schema import AUDIO_COLUMN, FINISHED_STATUSES, WORDS_COLUMN, WORDS_TYPE

if TYPE_CHECKING:
    from speechframe.recognition.alignment import WordAligner

_log = logging.getLogger(__name__)

# Number of rows whose words are written to one file. A killed process loses the words of fewer rows.
_CALLS_A_FILE = 64
# Columns of a run that the aligner needs.
_NEEDED_COLUMNS = ("request_key", "text", "locale", "format", "sample_rate", "channels", AUDIO_COLUMN)


async def load_aligner(method: Any) -> "WordAligner":
    """Return the aligner for the argument ``words`` of a run, and load its recogniser.

    Raises InvalidRows for another value than ``"align"``, and SettingsError if no recogniser works.
    """
    if method != "align":
        allowed = "'align' for the whole table, or nothing"
        raise refuse("words", "is not a known method", value=shorten_value(method), allowed=allowed)
    from speechframe.recognition.alignment import WordAligner

    # Use a thread, because loading the model of a recogniser takes long.
    return await asyncio.to_thread(WordAligner.find_installed)


async def align(run: StoredRun, aligner: "WordAligner", is_stopped: Callable[[], bool]) -> None:
    """Find and store the words of each row that has audio and no words. The caller holds the run's lock."""
    # When `run_in_thread` is cancelled, it waits for its thread. So the caller holds the lock until all found
    # words are on disk.
    await run_in_thread(
        lambda is_cancelled: _align_in_thread(run, aligner, lambda: is_cancelled() or is_stopped())
    )


def _align_in_thread(run: StoredRun, aligner: "WordAligner", is_stopped: Callable[[], bool]) -> None:
    """Find and store the words in this thread, until `is_stopped`."""
    rows = enumerate(_iterate_rows(run, run, ("status", "request_key", WORDS_COLUMN)))
    # Rows with the same request key share a call and its audio, so align one row of each call.
    positions = {
        row["request_key"]: position
        for position, row in rows
        if row["status"] in FINISHED_STATUSES and row[WORDS_COLUMN] is None
    }
    found: dict[str, Sequence[tuple[str, int, int]]] = {}
    for row in _iterate_rows(run, Selection(run, sorted(positions.values())), _NEEDED_COLUMNS):
        if is_stopped():
            break
        key = row["request_key"]
        try:
            found[key] = aligner.align(
                row[AUDIO_COLUMN]["bytes"],
                text=row["text"] or "",
                locale=row["locale"],
                format=Format(row["format"]),
                sample_rate_hz=row["sample_rate"],
                channels=row["channels"] or 1,
            )
        except SpeechframeError as error:
            found[key] = ()
            _log.info("no words for the call %s: %s", key, error)
        if len(found) >= _CALLS_A_FILE:
            _store_words(run.folder, found)
            found = {}
    _store_words(run.folder, found)
    _log.info("words of %d calls aligned by %s, run folder %s", len(positions), aligner.name, run.path)


def _iterate_rows(run: StoredRun, rows: Rows, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the columns `names` of some rows of a run, one row at a time, because a clip may be large."""
    columns = {name: run.name_of(name) for name in names}
    for batch in rows.batches(list(columns.values())):
        for position in range(batch.num_rows):
            yield {name: batch.column(column)[position].as_py() for name, column in columns.items()}


def _store_words(folder: Folder, found: Mapping[str, Sequence[Any]]) -> None:
    """Write the words of some calls to a new file of the run. Write nothing if `found` is empty."""
    if not found:
        return
    names = [field.name for field in WORDS_TYPE.value_type]
    words = [[dict(zip(names, word, strict=True)) for word in words] for words in found.values()]
    with convert_os_errors(folder, "keeping aligned words"):
        name = f"{WORDS_FOLDER}/{max([0, *folder.list_numbers(WORDS_FOLDER)]) + 1:04d}.parquet"
        pq.write_table(
            pa.table({"request_key": list(found), WORDS_COLUMN: words}, WORDS_SCHEMA),
            folder.make_temporary_path(name),
        )
        folder.publish(name)
