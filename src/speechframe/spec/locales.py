"""Read locales in any spelling, and convert them to a normal spelling (chosen: dubbing-locales)."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from speechframe.spec.chosen import MAX_LOCALE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langcodes import Language


_MAX_CACHED_TAGS = 20_000
"""Largest size of a cache of langcodes, in tags. A larger cache is emptied."""
_MAX_NEAREST = 3
_MAX_NEAR_DISTANCE = 5
"""Largest CLDR distance between two languages that share a name, such as Norwegian and Bokmål."""


@lru_cache(maxsize=4096)
def normalise(tag: str) -> str:
    """Return a locale in the normal spelling, such as `fr-FR` or `zh-Hans-CN`.

    Only the spelling changes. `en-UK` stays `en-UK`, because the voice list of a service may contain `en-UK`.

    Parameters
    ----------
    tag : str
        A language code or locale with hyphens or underscores, in upper or lower case.

    Raises
    ------
    ValueError
        The tag is too long, or its language is not registered.

    Examples
    --------
    >>> normalise("fr_fr"), normalise("FR-fr"), normalise("zh_hans_cn")
    ('fr-FR', 'fr-FR', 'zh-Hans-CN')
    """
    stripped = tag.strip()
    is_registered = False
    if len(stripped) <= MAX_LOCALE_CHARACTERS:
        with suppress(ValueError):
            language = _read_tag(stripped, normalize=False)
            is_registered = bool(language.language) and _read_tag(stripped).is_valid()
    if not is_registered:
        shown = tag if len(tag) <= 40 else tag[:40] + "…"  # noqa: PLR2004  (long enough for any real tag)
        raise ValueError(f"{shown!r} is not a locale; write language and region, such as fr-FR")
    return language.to_tag()


def convert_to_dubbing_spelling(tag: str) -> str:
    """Return a locale as the dubbing interface spells it, with underscores.

    Examples
    --------
    >>> convert_to_dubbing_spelling("fr-fr")
    'fr_FR'
    """
    return normalise(tag).replace("-", "_")


def get_language(tag: str) -> str:
    """Return the language code of a locale, without script and region.

    Examples
    --------
    >>> get_language("pt_BR")
    'pt'
    """
    return normalise(tag).partition("-")[0]


def is_within(tag: str, wanted: str) -> bool:
    """Return whether a locale equals the wanted locale or belongs to the wanted language.

    Examples
    --------
    >>> [is_within("fr-FR", wanted) for wanted in ("fr", "FR_fr", "fr-CH", "f")]
    [True, True, False, False]
    """
    low, sought = _fold_tag(tag), _fold_tag(wanted)
    return low == sought or low.startswith(f"{sought}-")


@lru_cache(maxsize=4096)
def is_certainly_different(tag: str, wanted: str) -> bool:
    """Return whether a locale certainly differs from the wanted locale in language or region.

    An invalid locale ("French") does not certainly differ. The same applies to a region of many countries
    (`es-419`, the Spanish of Latin America).

    Examples
    --------
    >>> [is_certainly_different(tag, "pt-BR") for tag in ("pt", "PT_br", "por", "pt-PT", "es", "Portuguese")]
    [False, False, False, True, True, False]
    """
    if is_within(tag, wanted) or is_within(wanted, tag):
        return False
    try:
        one, other = _read_tag(normalise(tag)), _read_tag(normalise(wanted))
    except ValueError:
        return False
    languages = [_read_tag(each.language or "und") for each in (one, other)]
    regions = {each.territory for each in (one, other) if each.territory and each.territory.isalpha()}
    # Bokmål counts as Norwegian, and Mandarin as Chinese.
    is_far = languages[0].distance(languages[1]) > _MAX_NEAR_DISTANCE
    return is_far or len(regions) > 1


@lru_cache(maxsize=4096)
def get_script(tag: str) -> str:
    """Return the script of a locale, or the usual script of its language. Return "" if none is known.

    Examples
    --------
    >>> get_script("pt-BR"), get_script("zh-TW"), get_script("zh")
    ('Latn', 'Hant', 'Hans')
    """
    return _read_tag(normalise(tag)).maximize().script or ""


def shorten_language_code(code: str) -> str:
    """Return the shortest code of a language. It has two letters if such a code exists.

    Raises
    ------
    ValueError
        The code is not a language code.

    Examples
    --------
    >>> shorten_language_code("por"), shorten_language_code("ast")
    ('pt', 'ast')
    """
    return normalise(_read_tag(normalise(code)).to_tag())


@lru_cache(maxsize=4096)
def get_three_letter_code(tag: str, *, bibliographic: bool = False) -> str:
    """Return the ISO 639-2 code of a locale's language, as in media files. Return ``und`` without a code.

    Parameters
    ----------
    tag
        A language code or locale.
    bibliographic
        Return the bibliographic code, as in Matroska files: ``ger`` instead of ``deu``.

    Examples
    --------
    >>> get_three_letter_code("pt_BR"), get_three_letter_code("de")
    ('por', 'deu')
    >>> get_three_letter_code("de", bibliographic=True)
    'ger'
    """
    try:
        return _read_tag(normalise(tag)).to_alpha3(variant="B" if bibliographic else "T")
    except LookupError:
        return "und"


def get_display_name(tag: str) -> str:
    """Return the English name of a locale.

    Examples
    --------
    >>> get_display_name("fr-FR"), get_display_name("hi")
    ('French (France)', 'Hindi')
    """
    return _read_tag(normalise(tag)).display_name()


def find_nearest(tag: str, options: Iterable[str]) -> list[str]:
    """Return at most three options that a caller most likely meant.

    Options of the same language come first, then similar spellings.

    Parameters
    ----------
    tag : str
        The requested value, which may be invalid.
    options : iterable of str
        The available values.

    Examples
    --------
    >>> find_nearest("fr_BE", ["de-DE", "fr-CA", "fr-FR"])
    ['fr-CA', 'fr-FR']
    """
    known = {_fold_tag(option): option for option in options}
    asked = _fold_tag(tag)
    language = asked.partition("-")[0]
    same = [key for key in known if key == asked or key.partition("-")[0] == language]
    same.sort(key=lambda key: key != asked)
    alike = [key for key in get_close_matches(asked, known, n=_MAX_NEAREST, cutoff=0.6) if key not in same]
    return [known[key] for key in (*same, *alike)][:_MAX_NEAREST]


def _fold_tag(tag: str) -> str:
    return tag.strip().replace("_", "-").casefold()


def _read_tag(tag: str, *, normalize: bool = True) -> Language:
    # Import the package here, because its tables take a tenth of the start time of a process. Few processes
    # read a locale.
    import langcodes

    found = langcodes.Language.get(tag, normalize=normalize)
    # langcodes caches each tag forever. Tags come from callers, so limit the caches.
    for kept in (langcodes.Language._PARSE_CACHE, langcodes.Language._INSTANCES):  # noqa: SLF001 - no other way
        if len(kept) > _MAX_CACHED_TAGS:
            kept.clear()
    return found
