"""Translation."""

import re
from collections.abc import Iterable

from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import WARNING_HEADER

MAX_TEXTS_PER_CALL = 200
"""Texts of one translation call."""
MAX_TRANSLATE_CHARACTERS = 100_000
"""Characters of all texts of one translation call together."""
ROUTE_WARNING = "route: "
"""The beginning of a warning about the route of a translation. See :func:`route_warning`."""


def route_warning(route: str, texts: Iterable[int]) -> str:
    """Return the warning that names the texts of each route.

    Parameters
    ----------
    route
        The languages on the way, such as ``en>pt-BR``.
    texts
        Places in the request's list, from 0.

    Examples
    --------
    >>> route_warning("en>pt-BR>es", [0, 1, 2, 5])
    'route: en>pt-BR>es; texts 0-2,5'
    """
    return f"{ROUTE_WARNING}{route}; texts {ranges(texts)}"


def read_route(warning: str) -> tuple[str, list[int]] | None:
    """Return what :func:`route_warning` was given; None for any other warning.

    Examples
    --------
    >>> read_route("route: en>pt-BR>es; texts 0-2,5")
    ('en>pt-BR>es', [0, 1, 2, 5])
    """
    found = _ROUTE.fullmatch(warning)
    if found is None:
        return None
    texts: list[int] = []
    for words in found[2].split(","):
        first, _, last = words.partition("-")
        # However a service came to write it: no list is longer than a call can be.
        texts += range(int(first), min(int(last or first), MAX_TEXTS_PER_CALL - 1) + 1)
    return found[1], texts


_ROUTE = re.compile(
    rf"{ROUTE_WARNING}([^\s;]+); texts (\d{{1,9}}(?:-\d{{1,9}})?(?:,\d{{1,9}}(?:-\d{{1,9}})?)*)"
)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as people write them.

    Examples
    --------
    >>> ranges([0, 1, 2, 5])
    '0-2,5'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in runs)


POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "texts-per-translate",
        "Texts per translation call",
        f"1 to {MAX_TEXTS_PER_CALL}, and {MAX_TRANSLATE_CHARACTERS:,} characters together.",
        "Bounds the memory of one call.",
        "guess",
    ),
    OpenPoint(
        "source-language",
        "Language of the texts to translate",
        "sourceLanguage, else told from each text, in doubt as most of the call's; a text that is in the "
        "target's language already comes back as it is, with a warning, and is billed.",
        "The document names the target only, and a text of one word does not tell its language.",
        "ours",
    ),
    OpenPoint(
        "translation-route",
        "Translation through a third language",
        f"The best route is taken, and told in {WARNING_HEADER} as {ROUTE_WARNING}en>pt-BR>es; texts 0-2,5 "
        "(places in the list, from 0), one for each route; a region that is not known is answered in another "
        "of its language, with a warning.",
        "What went through a third language reads differently, and nobody could see it.",
        "ours",
    ),
)
