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

_KANA_SCRIPTS = frozenset({"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"})

# Latin is read as English or spelled. Greek is read as words or letter by letter. For a word in another of
# these scripts, espeak switches to a language of the script.
_COMMON_SCRIPT_NAMES = (
    "LATIN GREEK ARMENIAN BENGALI DEVANAGARI GEORGIAN GUJARATI GURMUKHI "
    "HANGUL KANNADA MALAYALAM SINHALA TAMIL"
)
# First words of the Unicode names of ordinal letters, the micro sign, accents and emoji selectors.
_SCRIPTLESS_NAMES = frozenset(["FEMININE", "MASCULINE", "MICRO", "MODIFIER", "COMBINING", "VARIATION"])
COMMON_SCRIPTS = frozenset(_COMMON_SCRIPT_NAMES.split()) | _SCRIPTLESS_NAMES
"""Scripts that are spoken in every locale, by their names in :func:`find_script`."""

_MAX_CLAUSE_CHARACTERS = 100
"""Characters of the longest clause in Chinese, Cantonese and Korean. espeak drops the rest of a clause."""


@dataclass(frozen=True, slots=True)
class EspeakLocale:
    """A locale of espeak, and the properties of its writing.

    Attributes
    ----------
    language
        espeak's identifier, such as ``gmw/en-US``.
    own_scripts
        Scripts of the locale, by their names in :func:`find_script`.
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

    def can_read(self, character: str) -> bool:
        """Return True if espeak reads a letter as a part of a word, and not as "Chinese letter" or a number.

        Examples
        --------
        >>> LOCALES["en-US"].can_read("é"), LOCALES["en-US"].can_read("世"), LOCALES["zh-CN"].can_read("世")
        (True, False, True)
        """
        script = find_script(character)
        return script in COMMON_SCRIPTS or script in self.own_scripts

    def is_written_with(self, character: str) -> bool:
        """Return True if a letter belongs to a script of the locale, or to no script.

        Examples
        --------
        >>> LOCALES["en-US"].is_written_with("é"), LOCALES["en-US"].is_written_with("न")
        (True, False)
        """
        script = find_script(character)
        own = script in self.own_scripts or (self.has_readings and script == "CJK")
        return own or script in _SCRIPTLESS_NAMES


@lru_cache(maxsize=8192)
def find_script(character: str) -> str:
    r"""Return the script of a letter: the first word of its Unicode name, or "" if it has no name.

    Examples
    --------
    >>> find_script("ж"), find_script("漢"), find_script("\ue000")
    ('CYRILLIC', 'CJK', '')
    """
    return unicodedata.name(character, "").partition(" ")[0]


def _build_locale(language: str, *own_scripts: str) -> EspeakLocale:
    return EspeakLocale(language, frozenset(own_scripts or {"LATIN"}))


def _build_syllabic(language: str) -> EspeakLocale:
    return EspeakLocale(
        language, frozenset({"CJK"}), characters_are_words=True, longest_clause=_MAX_CLAUSE_CHARACTERS
    )


LOCALES = MappingProxyType(
    {
        "af-ZA": _build_locale("gmw/af"),
        "am-ET": _build_locale("sem/am", "ETHIOPIC"),
        "ar-SA": _build_locale("sem/ar", "ARABIC"),
        "az-AZ": _build_locale("trk/az"),
        "be-BY": _build_locale("zle/be", "CYRILLIC"),
        "bg-BG": _build_locale("zls/bg", "CYRILLIC"),
        "bn-BD": _build_locale("inc/bn", "BENGALI"),
        "bs-BA": _build_locale("zls/bs", "LATIN", "CYRILLIC"),
        "ca-ES": _build_locale("roa/ca"),
        "cs-CZ": _build_locale("zlw/cs"),
        "cy-GB": _build_locale("cel/cy"),
        "da-DK": _build_locale("gmq/da"),
        "de-DE": _build_locale("gmw/de"),
        "el-GR": _build_locale("grk/el", "GREEK"),
        "en-GB": _build_locale("gmw/en"),
        "en-US": _build_locale("gmw/en-US"),
        "es-ES": _build_locale("roa/es"),
        "es-MX": _build_locale("roa/es-419"),
        "et-EE": _build_locale("urj/et"),
        "eu-ES": _build_locale("eu"),
        "fa-IR": _build_locale("ira/fa", "ARABIC"),
        "fi-FI": _build_locale("urj/fi"),
        "fr-BE": _build_locale("roa/fr-BE"),
        "fr-CH": _build_locale("roa/fr-CH"),
        "fr-FR": _build_locale("roa/fr"),
        "ga-IE": _build_locale("cel/ga"),
        "gd-GB": _build_locale("cel/gd"),
        "gu-IN": _build_locale("inc/gu", "GUJARATI"),
        "hi-IN": _build_locale("inc/hi", "DEVANAGARI"),
        "hr-HR": _build_locale("zls/hr", "LATIN", "CYRILLIC"),
        "hu-HU": _build_locale("urj/hu"),
        "hy-AM": _build_locale("ine/hy", "ARMENIAN"),
        "id-ID": _build_locale("poz/id"),
        "is-IS": _build_locale("gmq/is"),
        "it-IT": _build_locale("roa/it"),
        "ja-JP": EspeakLocale("jpx/ja", _KANA_SCRIPTS, has_readings=True),
        "ka-GE": _build_locale("ccs/ka", "GEORGIAN"),
        "kk-KZ": _build_locale("trk/kk", "CYRILLIC"),
        "kn-IN": _build_locale("dra/kn", "KANNADA"),
        "ko-KR": EspeakLocale("ko", frozenset({"HANGUL"}), longest_clause=_MAX_CLAUSE_CHARACTERS),
        "ky-KG": _build_locale("trk/ky", "CYRILLIC"),
        "lt-LT": _build_locale("bat/lt"),
        "lv-LV": _build_locale("bat/lv"),
        "mi-NZ": _build_locale("poz/mi"),
        "mk-MK": _build_locale("zls/mk", "CYRILLIC"),
        "ml-IN": _build_locale("dra/ml", "MALAYALAM"),
        "mr-IN": _build_locale("inc/mr", "DEVANAGARI"),
        "ms-MY": _build_locale("poz/ms"),
        "mt-MT": _build_locale("sem/mt"),
        "nb-NO": _build_locale("gmq/nb"),
        "ne-NP": _build_locale("inc/ne", "DEVANAGARI"),
        "nl-NL": _build_locale("gmw/nl"),
        "or-IN": _build_locale("inc/or", "ORIYA"),
        "pa-IN": _build_locale("inc/pa", "GURMUKHI"),
        "pl-PL": _build_locale("zlw/pl"),
        "pt-BR": _build_locale("roa/pt-BR"),
        "pt-PT": _build_locale("roa/pt"),
        "ro-RO": _build_locale("roa/ro"),
        "ru-RU": _build_locale("zle/ru", "CYRILLIC"),
        "si-LK": _build_locale("inc/si", "SINHALA"),
        "sk-SK": _build_locale("zlw/sk"),
        "sl-SI": _build_locale("zls/sl"),
        "sq-AL": _build_locale("ine/sq"),
        "sr-RS": _build_locale("zls/sr", "LATIN", "CYRILLIC"),
        "sv-SE": _build_locale("gmq/sv"),
        "sw-KE": _build_locale("bnt/sw"),
        "ta-IN": _build_locale("dra/ta", "TAMIL"),
        "te-IN": _build_locale("dra/te", "TELUGU"),
        "tr-TR": _build_locale("trk/tr"),
        "tt-RU": _build_locale("trk/tt", "CYRILLIC"),
        "uk-UA": _build_locale("zle/uk", "CYRILLIC"),
        "ur-PK": _build_locale("inc/ur", "ARABIC"),
        "uz-UZ": _build_locale("trk/uz", "LATIN", "CYRILLIC"),
        "vi-VN": _build_locale("aav/vi"),
        "yue-HK": _build_syllabic("sit/yue"),
        "zh-CN": _build_syllabic("sit/cmn"),
    }
)
"""Locale to its properties in espeak."""
