"""The locales that espeak-ng speaks well, with its identifiers and the scripts that it can read.

Languages that espeak-ng cannot read well are left out. It speaks Hebrew and Thai
without their vowels and Burmese letter by letter, and lacks a dictionary for
Faroese. It reads Japanese only in kana, so kanji are first converted to kana by
:mod:`speechframe.local.engines.reading.japanese`. Arabic sounds better with vowel
marks.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

__all__ = ["LOCALES", "READ_EVERYWHERE", "EspeakLocale", "script_of"]

_KANA = frozenset({"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"})

# Latin is read as English or spelled. Greek is read as words or letter by letter. For a word in another of
# these scripts, espeak switches to a language of the script.
_SCRIPTS_READ_EVERYWHERE = (
    "LATIN GREEK ARMENIAN BENGALI DEVANAGARI GEORGIAN GUJARATI GURMUKHI "
    "HANGUL KANNADA MALAYALAM SINHALA TAMIL"
)
# First words of the Unicode names of ordinal letters, the micro sign, accents and emoji selectors.
_OF_NO_SCRIPT = frozenset(["FEMININE", "MASCULINE", "MICRO", "MODIFIER", "COMBINING", "VARIATION"])
READ_EVERYWHERE = frozenset(_SCRIPTS_READ_EVERYWHERE.split()) | _OF_NO_SCRIPT
"""Scripts that are spoken in every locale, by their names in :func:`script_of`."""

_LONG_CLAUSE = 100
"""Characters of the longest clause in Chinese, Cantonese and Korean. espeak drops the rest of a clause."""


@dataclass(frozen=True, slots=True)
class EspeakLocale:
    """A locale of espeak, and the properties of its writing.

    Attributes
    ----------
    language
        espeak's identifier, such as ``gmw/en-US``.
    own_scripts
        Scripts of the locale, by their names in :func:`script_of`.
    characters_are_words
        True for scripts without spaces in which each character counts as a word.
    longest_clause
        Largest number of characters without punctuation, or None. espeak drops the rest of a longer clause.
    has_readings
        True for Japanese, whose kanji are converted to their readings in kana.
    """

    language: str
    own_scripts: frozenset[str] = frozenset({"LATIN"})
    characters_are_words: bool = False
    longest_clause: int | None = None
    has_readings: bool = False

    def reads(self, character: str) -> bool:
        """Return True if espeak reads a letter as a part of a word, and not as "Chinese letter" or a number.

        Examples
        --------
        >>> LOCALES["en-US"].reads("é"), LOCALES["en-US"].reads("世"), LOCALES["zh-CN"].reads("世")
        (True, False, True)
        """
        script = script_of(character)
        return script in READ_EVERYWHERE or script in self.own_scripts

    def is_written_with(self, character: str) -> bool:
        """Return True if a letter belongs to a script of the locale, or to no script.

        Examples
        --------
        >>> LOCALES["en-US"].is_written_with("é"), LOCALES["en-US"].is_written_with("न")
        (True, False)
        """
        script = script_of(character)
        own = script in self.own_scripts or (self.has_readings and script == "CJK")
        return own or script in _OF_NO_SCRIPT


@lru_cache(maxsize=8192)
def script_of(character: str) -> str:
    r"""Return the script of a letter: the first word of its Unicode name, or "" if it has no name.

    Examples
    --------
    >>> script_of("ж"), script_of("漢"), script_of("\ue000")
    ('CYRILLIC', 'CJK', '')
    """
    return unicodedata.name(character, "").partition(" ")[0]


def _locale(language: str, *own_scripts: str) -> EspeakLocale:
    return EspeakLocale(language, frozenset(own_scripts or {"LATIN"}))


def _syllabic(language: str) -> EspeakLocale:
    return EspeakLocale(language, frozenset({"CJK"}), characters_are_words=True, longest_clause=_LONG_CLAUSE)


LOCALES = MappingProxyType(
    {
        "af-ZA": _locale("gmw/af"),
        "am-ET": _locale("sem/am", "ETHIOPIC"),
        "ar-SA": _locale("sem/ar", "ARABIC"),
        "az-AZ": _locale("trk/az"),
        "be-BY": _locale("zle/be", "CYRILLIC"),
        "bg-BG": _locale("zls/bg", "CYRILLIC"),
        "bn-BD": _locale("inc/bn", "BENGALI"),
        "bs-BA": _locale("zls/bs", "LATIN", "CYRILLIC"),
        "ca-ES": _locale("roa/ca"),
        "cs-CZ": _locale("zlw/cs"),
        "cy-GB": _locale("cel/cy"),
        "da-DK": _locale("gmq/da"),
        "de-DE": _locale("gmw/de"),
        "el-GR": _locale("grk/el", "GREEK"),
        "en-GB": _locale("gmw/en"),
        "en-US": _locale("gmw/en-US"),
        "es-ES": _locale("roa/es"),
        "es-MX": _locale("roa/es-419"),
        "et-EE": _locale("urj/et"),
        "eu-ES": _locale("eu"),
        "fa-IR": _locale("ira/fa", "ARABIC"),
        "fi-FI": _locale("urj/fi"),
        "fr-BE": _locale("roa/fr-BE"),
        "fr-CH": _locale("roa/fr-CH"),
        "fr-FR": _locale("roa/fr"),
        "ga-IE": _locale("cel/ga"),
        "gd-GB": _locale("cel/gd"),
        "gu-IN": _locale("inc/gu", "GUJARATI"),
        "hi-IN": _locale("inc/hi", "DEVANAGARI"),
        "hr-HR": _locale("zls/hr", "LATIN", "CYRILLIC"),
        "hu-HU": _locale("urj/hu"),
        "hy-AM": _locale("ine/hy", "ARMENIAN"),
        "id-ID": _locale("poz/id"),
        "is-IS": _locale("gmq/is"),
        "it-IT": _locale("roa/it"),
        "ja-JP": EspeakLocale("jpx/ja", _KANA, has_readings=True),
        "ka-GE": _locale("ccs/ka", "GEORGIAN"),
        "kk-KZ": _locale("trk/kk", "CYRILLIC"),
        "kn-IN": _locale("dra/kn", "KANNADA"),
        "ko-KR": EspeakLocale("ko", frozenset({"HANGUL"}), longest_clause=_LONG_CLAUSE),
        "ky-KG": _locale("trk/ky", "CYRILLIC"),
        "lt-LT": _locale("bat/lt"),
        "lv-LV": _locale("bat/lv"),
        "mi-NZ": _locale("poz/mi"),
        "mk-MK": _locale("zls/mk", "CYRILLIC"),
        "ml-IN": _locale("dra/ml", "MALAYALAM"),
        "mr-IN": _locale("inc/mr", "DEVANAGARI"),
        "ms-MY": _locale("poz/ms"),
        "mt-MT": _locale("sem/mt"),
        "nb-NO": _locale("gmq/nb"),
        "ne-NP": _locale("inc/ne", "DEVANAGARI"),
        "nl-NL": _locale("gmw/nl"),
        "or-IN": _locale("inc/or", "ORIYA"),
        "pa-IN": _locale("inc/pa", "GURMUKHI"),
        "pl-PL": _locale("zlw/pl"),
        "pt-BR": _locale("roa/pt-BR"),
        "pt-PT": _locale("roa/pt"),
        "ro-RO": _locale("roa/ro"),
        "ru-RU": _locale("zle/ru", "CYRILLIC"),
        "si-LK": _locale("inc/si", "SINHALA"),
        "sk-SK": _locale("zlw/sk"),
        "sl-SI": _locale("zls/sl"),
        "sq-AL": _locale("ine/sq"),
        "sr-RS": _locale("zls/sr", "LATIN", "CYRILLIC"),
        "sv-SE": _locale("gmq/sv"),
        "sw-KE": _locale("bnt/sw"),
        "ta-IN": _locale("dra/ta", "TAMIL"),
        "te-IN": _locale("dra/te", "TELUGU"),
        "tr-TR": _locale("trk/tr"),
        "tt-RU": _locale("trk/tt", "CYRILLIC"),
        "uk-UA": _locale("zle/uk", "CYRILLIC"),
        "ur-PK": _locale("inc/ur", "ARABIC"),
        "uz-UZ": _locale("trk/uz", "LATIN", "CYRILLIC"),
        "vi-VN": _locale("aav/vi"),
        "yue-HK": _syllabic("sit/yue"),
        "zh-CN": _syllabic("sit/cmn"),
    }
)
"""Locale to its properties in espeak."""
