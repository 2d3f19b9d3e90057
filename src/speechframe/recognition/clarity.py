"""Look up the word error rate of voices, as measured with a recogniser by ``make bench ARGS=sound``.

The table ``clarity.csv`` is a copy of ``datasets/clarity.csv``. The spoken texts
are in ``datasets/clarity_lines.csv``.
"""

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

TABLE_PATH = Path(__file__).with_name("clarity.csv")
"""Path of the table, with the columns ``voice_id locale unit lines error note``."""


def find_error_rates(voice_id: str) -> dict[str, float]:
    """Return the error rate of a voice by locale. The dict is empty if the voice was not measured.

    Examples
    --------
    >>> sorted(find_error_rates("pt-BR-joaquim"))[:2]
    ['en-US', 'es-ES']
    """
    return dict(_read_table().get(voice_id, {}))


@lru_cache(maxsize=1)
def _read_table() -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with TABLE_PATH.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["voice_id"], {})[row["locale"]] = float(row["error"])
    return found
