"""The function `coverage`, which counts the rows of a run of `translate` by locale and state."""

from collections import Counter
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from speechframe.backends.translations import STALE, UNCHECKED
from speechframe.errors import RunMismatch
from speechframe.store.reader import StoredRun
from speechframe.store.rows import ROW_ID_COLUMN
from speechframe.store.schema import CACHED, DONE, PENDING, SKIPPED, SUSPECT

if TYPE_CHECKING:
    import pandas as pd

_HUMAN, _ENGINE, _FAILED = "human", "engine", "failed"
_STATES = (_HUMAN, UNCHECKED, STALE, "source", _ENGINE, SUSPECT, PENDING, _FAILED, SKIPPED)
_TOTAL = "total"
"""Name of the column and of the line with the sums."""


def coverage(run: StoredRun | str | PathLike[str]) -> "pd.DataFrame":
    """Return the number of rows of a run of :func:`translate` by locale and state.

    The frame has a line for each locale and the line ``total``. Its columns are:

    - ``human``: translated by people, from the source text of now
    - ``unchecked``: translated by people, and nothing shows from which source text
    - ``stale``: translated by people, but the source text has changed since then
    - ``source``: left in the source language
    - ``engine``: translated by the service
    - ``suspect``: translated by the service, but doubtful
    - ``pending``, ``failed``, ``skipped``: without a translation (``failed`` includes invalid rows)
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
    counts = Counter(_read_states(opened))
    found = list(dict.fromkeys(locale for locale, _ in counts))
    lines = [[counts[locale, state] for state in _STATES] for locale in found]
    frame = pd.DataFrame(lines, index=pd.Index(found, name="locale"), columns=list(_STATES), dtype="int64")
    frame[_TOTAL] = frame.sum(axis=1)
    frame.loc[_TOTAL] = frame.sum()
    return frame


def _read_states(run: StoredRun) -> Iterator[tuple[str, str]]:
    """Yield the locale and the state of each row."""
    names = [run.name_of(name) for name in (ROW_ID_COLUMN, "status", "origin", "translation_state")]
    for batch in run.batches(names):
        values: list[list[Any]] = [column.to_pylist() for column in batch.columns]
        for row_id, status, origin, state in zip(*values, strict=True):
            yield row_id.rpartition("/")[2], _find_state(status, origin, state)


def _find_state(status: str, origin: str | None, state: str | None) -> str:
    """Return the column of a row in the table of :func:`coverage`."""
    if status in {DONE, CACHED}:
        return UNCHECKED if state == UNCHECKED else origin or _ENGINE
    if status == SKIPPED and state == STALE:
        return STALE
    return status if status in {SUSPECT, PENDING, SKIPPED} else _FAILED
