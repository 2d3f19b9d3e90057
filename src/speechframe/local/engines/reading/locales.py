"""The locales espeak-ng speaks well: its own name for each, and the scripts it reads there.

Left out are languages whose text it cannot turn into words: Hebrew and Thai
come out without their vowels, Burmese letter by letter, Faroese has no
dictionary. Japanese is read in kana (:mod:`speechframe.local.engines.reading.japanese` has
them of kanji), Arabic better with vowel marks.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

__all__ = ["LOCALES", "READ_EVERYWHERE", "EspeakLocale", "script_of"]

_KANA = frozenset({"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"})

# Latin is read as English or spelled; Greek letters by name or as words; for the rest espeak switches to a
# language of that script for the word.
_SCRIPTS_READ_EVERYWHERE = (
    "LATIN GREEK ARMENIAN BENGALI DEVANAGARI GEORGIAN GUJARATI GURMUKHI "
    "HANGUL KANNADA MALAYALAM SINHALA TAMIL"
)
# Ordinal letters, the micro sign, accents, emoji selectors.
_OF_NO_SCRIPT = frozenset(["FEMININE", "MASCULINE", "MICRO", "MODIFIER", "COMBINING", "VARIATION"])
READ_EVERYWHERE = frozenset(_SCRIPTS_READ_EVERYWHERE.split()) | _OF_NO_SCRIPT
"""Scripts that are spoken in every locale, by their names in :func:`script_of`."""

_LONG_CLAUSE = 100


@dataclass(frozen=True, slots=True)
class EspeakLocale:
    """One locale: espeak's identifier for it, and what its writing asks of us.

    ``characters_are_words`` is for scripts without spaces in which a character is a syllable with a meaning.
    ``longest_clause`` is how many characters without punctuation espeak can hold; it drops the rest.
    ``has_readings`` is for Japanese, whose kanji are spoken by their readings.
    """

    language: str
    own_scripts: frozenset[str] = frozenset({"LATIN"})
    characters_are_words: bool = False
    longest_clause: int | None = None
    has_readings: bool = False

    def reads(self, character: str) -> bool:
        """Return whether a letter is spoken as part of a word, and not as "Chinese letter" or a number.

        Examples
        --------
        >>> LOCALES["en-US"].reads("é"), LOCALES["en-US"].reads("世"), LOCALES["zh-CN"].reads("世")
        (True, False, True)
        """
        script = script_of(character)
        return script in READ_EVERYWHERE or script in self.own_scripts

    def is_written_with(self, character: str) -> bool:
        """Return whether a letter is of the locale's own script, or of none.

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
    r"""Return the script a letter belongs to, by the first word of its Unicode name; empty when it has none.

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
"""Locale to what espeak knows about it."""
