"""Words that were found in the audio of a run: beside its parts, which hold what the service said.

A call's words are in one file of the folder ``aligned``; files have their names when they are whole, and none
is changed afterwards. So aligning can end at any instant, and go on where it ended.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from speechframe.old_store import files
from speechframe.old_store.index import KeyIndex
from speechframe.old_store.locate import is_remote
from speechframe.old_store.parts import PartFile, open_part
from speechframe.old_store.schema import WORDS_TYPE, CallStatus, Record

__all__ = ["FOLDER_NAME", "SCHEMA", "AlignedWords", "aligned_files", "write_aligned"]

FOLDER_NAME = "aligned"

WORDS = "word_durations"

SCHEMA = pa.schema([(WORDS, WORDS_TYPE), ("status", pa.string()), ("request_key", pa.string())])
"""A row: the words of one call."""

_KEPT_FILES = 8

Words = Sequence[tuple[str, int, int]]


def write_aligned(folder: Path, found: Mapping[str, Words]) -> None:
    """Keep words by request_key; they are on disk, all of them, when it returns.

    Raises
    ------
    StoreError
        When the folder takes no more.
    """
    records = [Record(key, CallStatus.DONE.value, word_durations=list(words)) for key, words in found.items()]
    if not records:
        return
    with files.storing(folder, "keeping aligned words"):
        place = folder / FOLDER_NAME
        if not is_remote(folder):
            place.mkdir(parents=True, exist_ok=True)
        file = PartFile(place / f"{secrets.token_hex(6)}.parquet", SCHEMA)
        file.write(records)
        file.publish()


def aligned_files(folder: Path) -> list[Path]:
    """Return the files of aligned words, in a stable order."""
    return sorted((folder / FOLDER_NAME).glob("[!.]*.parquet"))


class AlignedWords:
    """The aligned words of a run, as they were when this was made; for any thread.

    Parameters
    ----------
    paths
        The files of a run, as :func:`aligned_files` finds them.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._index = KeyIndex.read(self.paths)
        self._columns: OrderedDict[int, pa.ChunkedArray[Any]] = OrderedDict()
        self._reading = threading.Lock()

    def take(self, request_keys: "Sequence[str | None] | pa.Array[Any]") -> "pa.Array[Any]":
        """Return the words of each call; null for a call without."""
        positions = self._index.find(request_keys)
        found = np.flatnonzero(positions >= 0)
        file_numbers, rows = self._index.place(positions[found])
        pieces, order = [pa.array([], WORDS_TYPE)], np.full(len(positions), -1, np.int64)
        taken = 0
        for number in np.unique(file_numbers).tolist():
            here = np.flatnonzero(file_numbers == number)
            pieces += self._column(number).take(rows[here]).chunks
            order[found[here]] = np.arange(taken, taken + len(here))
            taken += len(here)
        words: pa.Array[Any] = pa.concat_arrays(pieces).take(pa.array(order, pa.int64(), mask=order < 0))
        return words

    def _column(self, number: int) -> "pa.ChunkedArray[Any]":
        with self._reading:
            if number not in self._columns:
                with open_part(self._index.paths[number]) as file:
                    self._columns[number] = file.read(columns=[WORDS]).column(0)
                if len(self._columns) > _KEPT_FILES:
                    self._columns.popitem(last=False)
            self._columns.move_to_end(number)
            return self._columns[number]
