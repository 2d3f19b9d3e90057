"""What verbs with a row for each locale share: the locales, and calls of several rows."""

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from speechframe.batch.backend import Request, packed
from speechframe.errors import InvalidRows
from speechframe.spec import locales
from speechframe.spec.billing import CREDIT
from speechframe.tables.table import problem

_SHOWN_CHARACTERS = 400


def read_targets(given: Any) -> list[str]:
    """Return locales in the house spelling, each once; commas may stand between them.

    Raises
    ------
    InvalidRows
        For each that is none, or when there is none at all.
    """
    tags = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    tags = [part.strip() for tag in tags for part in (tag.split(",") if isinstance(tag, str) else [str(tag)])]
    found, problems = [], []
    for tag in tags:
        try:
            found.append(locales.normalise(tag))
        except ValueError:
            allowed = "a code or locale, such as fr-FR"
            problems.append(problem("targets", "is no language", value=tag, allowed=allowed))
    if not tags:
        problems.append(problem("targets", "is empty", allowed="at least one language, such as fr-FR"))
    if problems:
        raise InvalidRows(problems)
    return list(dict.fromkeys(found))


def refuse_targets(unknown: Iterable[str], known: Sequence[str], words: str) -> None:
    """Raise InvalidRows with a problem, in these words, for each target that is not known."""
    problems = [
        problem("targets", words, value=one, allowed=listed([*locales.nearest(one, known), *known]))
        for one in unknown
    ]
    if problems:
        raise InvalidRows(problems)


def listed(tags: Iterable[str]) -> str:
    """Return locales in words, as far as there is room."""
    known = textwrap.shorten(", ".join(dict.fromkeys(tags)), _SHOWN_CHARACTERS, placeholder=" ...")
    return known or "no language at all: the service has none"


def packed_rows(rows: Iterable[Request]) -> Request:
    """Return one call for several rows; a single row is its own."""
    # In the order of their keys: the same rows are the same call again, wherever they came from.
    parts = sorted(rows, key=lambda row: row.key)
    return packed(parts, b"") if len(parts) > 1 else parts[0]


def shares(weights: Sequence[int], credits_used: float) -> list[int]:
    """Return what each row costs, in thousandths of a credit, of what the service says a call has cost."""
    # Cut at rounded sums: the parts add up to the whole.
    sums = itertools.accumulate(weights, initial=0)
    ends = [round(credits_used * CREDIT * each / (sum(weights) or 1)) for each in sums]
    return [end - start for start, end in itertools.pairwise(ends)]
