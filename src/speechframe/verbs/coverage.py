"""The function `coverage`, which counts the rows of a run of `translate` by locale and state."""

from collections import Counter, defaultdict
from os import PathLike
from typing import TYPE_CHECKING, Any

from speechframe.backends.translations import STALE, UNCHECKED
from speechframe.errors import RunMismatch
from speechframe.store.reader import StoredRun
from speechframe.store.rows import ROW_ID_COLUMN
from speechframe.store.schema import CACHED, DONE, PENDING, SKIPPED, SUSPECT

if TYPE_CHECKING:
    import pandas as pd

_STATES = ["human", UNCHECKED, STALE, "source", "engine", SUSPECT, PENDING, "failed", SKIPPED]


def coverage(run: StoredRun | str | PathLike[str]) -> "pd.DataFrame":
    """Return the number of rows of a run of :func:`translate` by locale and state.

    The frame has a line for each locale and the line ``total``. Its columns are:

    - ``human``, ``unchecked``, ``stale``: translated by people from the source text of now, from an unknown
      one, and from one that has changed since then
    - ``source``: left in the source language
    - ``engine``, ``suspect``: translated by the service; a suspect translation is doubtful
    - ``pending``, ``failed`` (with invalid rows), ``skipped``: without a translation
    - ``total``: all rows

    Parameters
    ----------
    run
        A run of :func:`translate`, or its folder.

    Raises
    ------
    RunMismatch
        If another verb made the run.
    NotARun, StoreError
        If the folder contains no run, or cannot be read.

    Examples
    --------
    >>> spf.coverage("runs/translated")  # doctest: +SKIP
    """
    import pandas as pd

    opened = run if isinstance(run, StoredRun) else StoredRun.open(run)
    if opened.operation != "translate":
        raise RunMismatch(f"{opened.path} is a run of {opened.operation}; coverage() needs one of translate")
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    names = [opened.name_of(name) for name in (ROW_ID_COLUMN, "status", "origin", "translation_state")]
    for batch in opened.batches(names):
        columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
        for row_id, *values in zip(*columns, strict=True):
            lines[row_id.rpartition("/")[2]][_find_state(*values)] += 1
    counts = [[line[state] for state in _STATES] for line in lines.values()]
    frame = pd.DataFrame(counts, pd.Index([*lines], name="locale"), _STATES, dtype="int64")
    frame["total"] = frame.sum(axis=1)
    frame.loc["total"] = frame.sum()
    return frame


def _find_state(status: str, origin: str | None, state: str | None) -> str:
    """Return the column of a row in the table of :func:`coverage`."""
    if status in {DONE, CACHED}:
        return UNCHECKED if state == UNCHECKED else origin or "engine"
    if status == SKIPPED and state == STALE:
        return STALE
    return status if status in {SUSPECT, PENDING, SKIPPED} else "failed"
