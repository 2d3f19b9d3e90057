"""How clear voices are: what share of words a recogniser hears wrong, as ``make bench ARGS=sound`` found it.

The table, ``clarity.csv``, is also ``datasets/clarity.csv``; what was spoken is
in ``datasets/clarity_lines.csv``.
"""

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

__all__ = ["TABLE", "of_voice"]

TABLE = Path(__file__).with_name("clarity.csv")
"""Columns ``voice_id locale unit lines error note``."""


def of_voice(voice_id: str) -> dict[str, float]:
    """Return the error of a voice by locale; empty for one that nobody measured.

    Examples
    --------
    >>> sorted(of_voice("pt-BR-joaquim"))[:2]
    ['en-US', 'es-ES']
    """
    return dict(_table().get(voice_id, {}))


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["voice_id"], {})[row["locale"]] = float(row["error"])
    return found
