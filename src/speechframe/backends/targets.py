"""Shared parts of the verbs `translate` and `dub`, which make a row for each locale."""

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from speechframe.batch.backend import Request, make_pack
from speechframe.errors import InvalidRows, make_problem
from speechframe.spec import locales
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT

# Longest list of locales in an error.
_MAX_SHOWN_CHARACTERS = 400


def read_targets(given: Any) -> list[str]:
    """Return locales as BCP 47 tags such as ``fr-FR``, each once.

    `given` is a list, or a text with commas between the locales. Raises InvalidRows with a problem for each
    unknown locale, or if `given` is empty.
    """
    tags = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    tags = [part.strip() for tag in tags for part in (tag.split(",") if isinstance(tag, str) else [str(tag)])]
    found, problems = [], []
    for tag in tags:
        try:
            found.append(locales.normalise(tag))
        except ValueError:
            allowed = "a code or locale, such as fr-FR"
            problems.append(make_problem("targets", "is not a language", value=tag, allowed=allowed))
    if not tags:
        problems.append(make_problem("targets", "is empty", allowed="at least one language, such as fr-FR"))
    if problems:
        raise InvalidRows(problems)
    return list(dict.fromkeys(found))


def refuse_targets(unknown: Iterable[str], known: Sequence[str], fault: str) -> None:
    """Raise InvalidRows if there are unknown targets, all with the same `fault`."""
    problems = []
    for one in unknown:
        allowed = f"{format_locales([*locales.find_nearest(one, known), *known])}; see `speechframe models`"
        problems.append(make_problem("targets", fault, value=one, allowed=allowed))
    if problems:
        raise InvalidRows(problems)


def format_locales(tags: Iterable[str]) -> str:
    """Return locales as a text with commas, shortened if there are many, for an error."""
    known = textwrap.shorten(", ".join(dict.fromkeys(tags)), _MAX_SHOWN_CHARACTERS, placeholder=" ...")
    return known or "none, because the service lists no languages"


def pack_rows(rows: Iterable[Request]) -> Request:
    """Return a pack, which is one call for several rows. A single row is returned unchanged."""
    # Sort by key, because the same rows in another order must give the same call.
    parts = sorted(rows, key=lambda row: row.key)
    return make_pack(parts, b"") if len(parts) > 1 else parts[0]


def share_cost(weights: Sequence[int], credits_used: float) -> list[int]:
    """Return the share of each row in the reported cost of a call, in thousandths of a credit.

    The shares are in proportion to `weights`.
    """
    # Round the running sums instead of the shares, so that the shares add up to the cost.
    sums = itertools.accumulate(weights, initial=0)
    ends = [round(credits_used * MILLICREDITS_PER_CREDIT * each / (sum(weights) or 1)) for each in sums]
    return [end - start for start, end in itertools.pairwise(ends)]
