"""Locales in every spelling, normalised in one place (chosen: dubbing-locales)."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from speechframe.spec.chosen import MAX_LOCALE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langcodes import Language


_MOST_KEPT = 20_000
"""Tags that langcodes may keep in memory."""
_NEAR = 5
"""A distance of languages, by the tables of CLDR: those that go by each other's names are this near."""


@lru_cache(maxsize=4096)
def normalise(tag: str) -> str:
    """Return a locale in the house spelling: hyphen, language small, script titled, region capital.

    Only the spelling changes. `en-UK` stays `en-UK`, because the voice list of a service may contain `en-UK`.

    Parameters
    ----------
    tag : str
        A language code or locale, with hyphen or underscore, in any case.

    Raises
    ------
    ValueError
        The tag is not a registered language, or too long.

    Examples
    --------
    >>> normalise("fr_fr"), normalise("FR-fr"), normalise("zh_hans_cn")
    ('fr-FR', 'fr-FR', 'zh-Hans-CN')
    """
    stripped = tag.strip()
    is_registered = False
    if len(stripped) <= MAX_LOCALE_CHARACTERS:
        with suppress(ValueError):
            language = _read(stripped, normalize=False)
            is_registered = bool(language.language) and _read(stripped).is_valid()
    if not is_registered:
        shown = tag if len(tag) <= 40 else tag[:40] + "…"  # noqa: PLR2004  (long enough for any real tag)
        raise ValueError(f"{shown!r} is no locale; write language and region, such as fr-FR")
    return language.to_tag()


def dubbing_spelling(tag: str) -> str:
    """Return a locale as the dubbing interface spells it, with underscores.

    Examples
    --------
    >>> dubbing_spelling("fr-fr")
    'fr_FR'
    """
    return normalise(tag).replace("-", "_")


def language_of(tag: str) -> str:
    """Return the language of a locale alone.

    Examples
    --------
    >>> language_of("pt_BR")
    'pt'
    """
    return normalise(tag).partition("-")[0]


def is_within(tag: str, wanted: str) -> bool:
    """Return whether a locale is the one asked for, or of the language asked for.

    Examples
    --------
    >>> [is_within("fr-FR", wanted) for wanted in ("fr", "FR_fr", "fr-CH", "f")]
    [True, True, False, False]
    """
    low, sought = _folded(tag), _folded(wanted)
    return low == sought or low.startswith(f"{sought}-")


@lru_cache(maxsize=4096)
def is_another(tag: str, wanted: str) -> bool:
    """Return whether a locale is surely not the one wanted: of another language, or of another region.

    What is no locale at all ("French") is not surely another one, nor is what names many countries at once
    (`es-419`, the Spanish of Latin America).

    Examples
    --------
    >>> [is_another(tag, "pt-BR") for tag in ("pt", "PT_br", "por", "pt-PT", "es", "Portuguese")]
    [False, False, False, True, True, False]
    """
    if is_within(tag, wanted) or is_within(wanted, tag):
        return False
    try:
        one, other = _read(normalise(tag)), _read(normalise(wanted))
    except ValueError:
        return False
    languages = [_read(each.language or "und") for each in (one, other)]
    regions = {each.territory for each in (one, other) if each.territory and each.territory.isalpha()}
    # Bokmål is as near to Norwegian as can be, and Mandarin to Chinese.
    is_far = languages[0].distance(languages[1]) > _NEAR
    return is_far or len(regions) > 1


@lru_cache(maxsize=4096)
def script_of(tag: str) -> str:
    """Return the script that a locale is written in, said or understood.

    Examples
    --------
    >>> script_of("pt-BR"), script_of("zh-TW"), script_of("zh")
    ('Latn', 'Hant', 'Hans')
    """
    return _read(normalise(tag)).maximize().script or ""


def shortest(code: str) -> str:
    """Return a language code in its shortest form: two letters where there are two.

    Raises
    ------
    ValueError
        The code is no language.

    Examples
    --------
    >>> shortest("por"), shortest("ast")
    ('pt', 'ast')
    """
    return normalise(_read(normalise(code)).to_tag())


@lru_cache(maxsize=4096)
def three_letters(tag: str, *, bibliographic: bool = False) -> str:
    """Return the language of a locale as media files name it: ISO 639-2, ``und`` where it has no such code.

    Parameters
    ----------
    tag
        A language code or locale.
    bibliographic
        The code of libraries, as Matroska has it: ``ger`` where everybody else says ``deu``.

    Examples
    --------
    >>> three_letters("pt_BR"), three_letters("de"), three_letters("de", bibliographic=True)
    ('por', 'deu', 'ger')
    """
    try:
        return _read(normalise(tag)).to_alpha3(variant="B" if bibliographic else "T")
    except LookupError:
        return "und"


def display_name(tag: str) -> str:
    """Return what a locale is called in English.

    Examples
    --------
    >>> display_name("fr-FR"), display_name("hi")
    ('French (France)', 'Hindi')
    """
    return _read(normalise(tag)).display_name()


def nearest(tag: str, options: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the options a caller most likely meant: the same language first, then similar spelling.

    Parameters
    ----------
    tag : str
        What was asked for; it may be nonsense.
    options : iterable of str
        What there is.
    count : int
        How many are returned at most.

    Examples
    --------
    >>> nearest("fr_BE", ["de-DE", "fr-CA", "fr-FR"])
    ['fr-CA', 'fr-FR']
    """
    known = {_folded(option): option for option in options}
    asked = _folded(tag)
    language = asked.partition("-")[0]
    same = [key for key in known if key == asked or key.partition("-")[0] == language]
    same.sort(key=lambda key: key != asked)
    alike = [key for key in get_close_matches(asked, known, n=count, cutoff=0.6) if key not in same]
    return [known[key] for key in (*same, *alike)][:count]


def _folded(tag: str) -> str:
    return tag.strip().replace("_", "-").casefold()


def _read(tag: str, *, normalize: bool = True) -> Language:
    # Its tables take a tenth of the start of a process, and few of them read a locale.
    import langcodes

    found = langcodes.Language.get(tag, normalize=normalize)
    # langcodes keeps every tag for ever, and tags come from outside.
    for kept in (langcodes.Language._PARSE_CACHE, langcodes.Language._INSTANCES):  # noqa: SLF001 - no other way
        if len(kept) > _MOST_KEPT:
            kept.clear()
    return found
