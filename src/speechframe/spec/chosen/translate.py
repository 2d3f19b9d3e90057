"""Choices for translation."""

import re
from collections.abc import Iterable

from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import WARNING_HEADER

MAX_TEXTS_PER_CALL = 200
"""Largest number of texts of a translation call."""
MAX_TRANSLATE_CHARACTERS = 100_000
"""Largest number of characters of all texts of a translation call."""
ROUTE_WARNING_START = "route: "
"""Beginning of a warning about the route of a translation, which :func:`make_route_warning` returns."""


def make_route_warning(route: str, texts: Iterable[int]) -> str:
    """Return the warning with a route and the texts that were translated by it.

    Parameters
    ----------
    route
        Languages of the translation in order, such as ``en>pt-BR>es``.
    texts
        Positions of the texts in the request, from 0.

    Examples
    --------
    >>> make_route_warning("en>pt-BR>es", [0, 1, 2, 5])
    'route: en>pt-BR>es; texts 0-2,5'
    """
    return f"{ROUTE_WARNING_START}{route}; texts {format_ranges(texts)}"


def read_route(warning: str) -> tuple[str, list[int]] | None:
    """Return the route and the positions in a warning of :func:`make_route_warning`, else None.

    Examples
    --------
    >>> read_route("route: en>pt-BR>es; texts 0-2,5")
    ('en>pt-BR>es', [0, 1, 2, 5])
    """
    found = _ROUTE_PATTERN.fullmatch(warning)
    if found is None:
        return None
    texts: list[int] = []
    for item in found[2].split(","):
        first, _, last = item.partition("-")
        # Limit the range, because a service may send any numbers.
        texts += range(int(first), min(int(last or first), MAX_TEXTS_PER_CALL - 1) + 1)
    return found[1], texts


_ROUTE_PATTERN = re.compile(
    rf"{ROUTE_WARNING_START}([^\s;]+); texts (\d{{1,9}}(?:-\d{{1,9}})?(?:,\d{{1,9}}(?:-\d{{1,9}})?)*)"
)


def format_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text with format_ranges, in ascending order.

    Examples
    --------
    >>> format_ranges([0, 1, 2, 5])
    '0-2,5'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in runs)


TRANSLATION_POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "texts-per-translate",
        "Texts per translation call",
        f"1 to {MAX_TEXTS_PER_CALL}, and {MAX_TRANSLATE_CHARACTERS:,} characters together.",
        "The limits keep the memory of a call small.",
        "guess",
    ),
    OpenPoint(
        "source-language",
        "Language of the texts to translate",
        "The value of sourceLanguage, or else the detected language of each text. An uncertain text counts "
        "as the language of most texts of the call. A text that is already in the target language is "
        "returned unchanged with a warning, and is billed.",
        "The document has only a target language. The language of a single word often cannot be detected.",
    ),
    OpenPoint(
        "translation-route",
        "Translation through a third language",
        f"The service uses the best route. {WARNING_HEADER} reports each route as "
        f"{ROUTE_WARNING_START}en>pt-BR>es; texts 0-2,5 (positions in the list, from 0). If the service has "
        "no translation into a region, it uses another region of the language, with a warning.",
        "A translation through a third language is worse, and a reader cannot see its route.",
    ),
)
