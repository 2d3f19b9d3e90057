"""List the voices of the espeak engine, with their sounds, locales and styles.

espeak has one pronunciation of each language, and some hundred variants of the
voice. A voice here is a language, a variant and a pitch. Unclear variants, and
variants that clip or add an echo, are not used.

The two catalogues have different voices. gen2 has every locale, up to five voices
in each, and all styles. Its voices also speak other languages. falcon-2 has fewer
locales, two plain voices in each, and two styles. Its voices speak only one
language.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from speechframe.engines.base import EngineVoice
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.spec.locales import get_display_name, get_language
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind


@dataclass(frozen=True, slots=True)
class Timbre:
    """The sound of a voice.

    Attributes
    ----------
    variant
        espeak's name of the variant. Empty for the default.
    gender
        Gender of the voice.
    pitch, pitch_range
        Pitch and liveliness from 0 to 99. 50 is that of the variant.
    lufs
        Loudness before levelling in LUFS (ITU-R BS.1770), the median of lines in five languages.
    sounds
        Adjectives for the description, such as "clear".
    """

    variant: str
    gender: Gender
    pitch: int
    pitch_range: int
    lufs: float
    sounds: str


@dataclass(frozen=True, slots=True)
class Style:
    """A style of speech: factors of speed and liveliness, change of pitch, and word gap in units of 10 ms."""

    speed: float = 1.0
    pitch: int = 0
    liveliness: float = 1.0
    word_gap: int = 0


@dataclass(frozen=True, slots=True)
class EspeakVoice:
    """A voice of a catalogue."""

    locale: str
    name: str
    timbre: Timbre
    model: Model
    supported_locales: tuple[str, ...]

    @property
    def voice_id(self) -> str:
        """The full id, such as ``en-US-nora``."""
        return f"{self.locale}-{self.name}"

    def list_styles(self, locale: str) -> tuple[str, ...]:
        """Return the styles in a locale. Only gen2 voices have all styles, and only in their own language."""
        at_home = get_language(locale) == get_language(self.locale)
        return tuple(STYLES) if at_home and self.model is Model.GEN2 else PLAIN_STYLES


STYLES = MappingProxyType(
    {
        "Conversational": Style(),
        "Narration": Style(speed=0.9, pitch=-4, liveliness=0.8, word_gap=1),
        "Newscast": Style(speed=1.12, pitch=-1, liveliness=1.25),
        "Promo": Style(speed=1.2, pitch=9, liveliness=1.7),
        "Cheerful": Style(speed=1.05, pitch=14, liveliness=1.6),
        "Storytelling": Style(speed=0.84, pitch=4, liveliness=1.75, word_gap=1),
        "Calm": Style(speed=0.78, pitch=-7, liveliness=0.5, word_gap=2),
        "Sad": Style(speed=0.88, pitch=-14, liveliness=0.35),
    }
)
"""All styles, the default first."""

_LICENCE = "GPL-3.0-or-later"
_OUTPUT_TERMS = "The licence of espeak-ng covers the program, not the audio made with it."
_BANDWIDTH_HZ = 11_000
""":attr:`EngineVoice.bandwidth_hz` of all voices. The timbres reach 10,300 to 11,000 Hz, most 11,000."""
_CLEARER_VOICES = MappingProxyType(
    {"es": "es-ES-dora", "it": "it-IT-sara", "ja": "ja-JP-kumo", "pt": "pt-BR-alex"}
)
"""Language in which a recogniser gets a third or more of espeak's words wrong, to a clear native voice."""

PLAIN_STYLES = ("Conversational", "Narration")
"""Styles of gen2 voices in other languages than their own, and of falcon-2 voices."""

_WOMAN, _MAN, _NEITHER = Gender.FEMALE, Gender.MALE, Gender.NON_BINARY

_CLEAR_WOMAN = Timbre("steph", _WOMAN, 52, 50, -26.5, "clear")
_SOFT_WOMAN = Timbre("steph", _WOMAN, 40, 44, -27.4, "soft, rather low")
_FRESH_WOMAN = Timbre("steph", _WOMAN, 62, 56, -25.7, "fresh, rather high")
_BRIGHT_WOMAN = Timbre("linda", _WOMAN, 54, 52, -23.6, "bright")
_LIVELY_WOMAN = Timbre("Annie", _WOMAN, 50, 42, -26.0, "lively, high")
_EVEN_MAN = Timbre("", _MAN, 50, 50, -26.7, "even")
_WARM_MAN = Timbre("m3", _MAN, 58, 50, -26.3, "warm")
_LIGHT_MAN = Timbre("edward2", _MAN, 64, 48, -27.5, "light, rather high")
_DEEP_MAN = Timbre("m8", _MAN, 44, 52, -31.9, "deep")
_FULL_MAN = Timbre("Mike", _MAN, 46, 50, -30.1, "full, rather low")
_FIRM_MAN = Timbre("Denis", _MAN, 48, 54, -31.7, "firm")
_MIDDLE_VOICE = Timbre("Nguyen", _NEITHER, 50, 46, -28.2, "neither high nor low")
_PLAIN_WOMAN = Timbre("steph3", _WOMAN, 56, 46, -20.3, "plain")
_PLAIN_MAN = Timbre("klatt4", _MAN, 54, 46, -25.3, "plain")
_LOWER_WOMAN = Timbre("steph2", _WOMAN, 43, 46, -22.9, "plain, rather low")
_LOWER_MAN = Timbre("john", _MAN, 50, 46, -21.6, "plain, rather low")

_EXTRA_LOUDNESS_DB = MappingProxyType(
    {
        "be": -1.6,
        "bg": -1.3,
        "cy": 1.5,
        "es": -0.5,
        "fr": -1.4,
        "ga": 1.6,
        "it": -0.9,
        "ja": 1.3,
        "kn": 1.1,
        "ky": 1.2,
        "mi": 3.6,
        "or": 1.9,
        "ru": -1.4,
        "te": 1.5,
    }
)
"""Language to the dB by which espeak speaks it louder than most languages, with any voice."""

_GEN2_VOICES = {
    "en-US": {
        "nora": _CLEAR_WOMAN,
        "miles": _LIGHT_MAN,
        "ruby": _LIVELY_WOMAN,
        "hank": _DEEP_MAN,
        "robin": _MIDDLE_VOICE,
    },
    "en-GB": {"edith": _SOFT_WOMAN, "oscar": _EVEN_MAN},
    "es-ES": {"lucia": _CLEAR_WOMAN, "mateo": _WARM_MAN, "alba": _BRIGHT_WOMAN, "bruno": _DEEP_MAN},
    "es-MX": {"ximena": _FRESH_WOMAN, "diego": _LIGHT_MAN},
    "fr-FR": {"camille": _SOFT_WOMAN, "hugo": _LIGHT_MAN, "elise": _LIVELY_WOMAN, "remi": _FULL_MAN},
    "de-DE": {"greta": _CLEAR_WOMAN, "jonas": _LIGHT_MAN, "frieda": _BRIGHT_WOMAN, "emil": _DEEP_MAN},
    "pt-BR": {"larissa": _CLEAR_WOMAN, "caio": _WARM_MAN, "bianca": _LIVELY_WOMAN, "davi": _DEEP_MAN},
    "it-IT": {"giulia": _CLEAR_WOMAN, "marco": _LIGHT_MAN, "chiara": _BRIGHT_WOMAN, "dante": _FULL_MAN},
    "hi-IN": {"asha": _SOFT_WOMAN, "rohan": _LIGHT_MAN, "meera": _LIVELY_WOMAN, "vikram": _DEEP_MAN},
    "zh-CN": {"mei": _CLEAR_WOMAN, "wei": _LIGHT_MAN, "lan": _BRIGHT_WOMAN, "jun": _DEEP_MAN},
    "af-ZA": {"anke": _CLEAR_WOMAN, "pieter": _EVEN_MAN},
    "am-ET": {"selam": _SOFT_WOMAN, "dawit": _WARM_MAN},
    "ar-SA": {"layla": _CLEAR_WOMAN, "omar": _FULL_MAN},
    "az-AZ": {"aysel": _FRESH_WOMAN, "elchin": _EVEN_MAN},
    "be-BY": {"alesia": _CLEAR_WOMAN, "yanka": _FIRM_MAN},
    "bg-BG": {"rada": _SOFT_WOMAN, "boyan": _FULL_MAN},
    "bn-BD": {"nasrin": _FRESH_WOMAN, "arif": _WARM_MAN},
    "bs-BA": {"amila": _CLEAR_WOMAN, "tarik": _LIGHT_MAN},
    "ca-ES": {"montse": _BRIGHT_WOMAN, "jordi": _WARM_MAN},
    "cs-CZ": {"zdenka": _CLEAR_WOMAN, "radek": _EVEN_MAN},
    "cy-GB": {"carys": _FRESH_WOMAN, "emrys": _DEEP_MAN},
    "da-DK": {"freja": _CLEAR_WOMAN, "mads": _LIGHT_MAN},
    "el-GR": {"eleni": _BRIGHT_WOMAN, "nikos": _FULL_MAN},
    "et-EE": {"liis": _SOFT_WOMAN, "tanel": _EVEN_MAN},
    "eu-ES": {"nerea": _CLEAR_WOMAN, "iker": _FIRM_MAN},
    "fa-IR": {"shirin": _FRESH_WOMAN, "darius": _WARM_MAN},
    "fi-FI": {"aino": _CLEAR_WOMAN, "eero": _LIGHT_MAN},
    "fr-BE": {"maelle": _FRESH_WOMAN, "quentin": _WARM_MAN},
    "fr-CH": {"noemie": _CLEAR_WOMAN, "lucien": _EVEN_MAN},
    "ga-IE": {"aoife": _FRESH_WOMAN, "cormac": _FULL_MAN},
    "gd-GB": {"mairi": _SOFT_WOMAN, "calum": _DEEP_MAN},
    "gu-IN": {"hetal": _CLEAR_WOMAN, "jignesh": _LIGHT_MAN},
    "hr-HR": {"ivana": _FRESH_WOMAN, "tomislav": _FIRM_MAN},
    "hu-HU": {"zsofia": _CLEAR_WOMAN, "gergo": _EVEN_MAN},
    "hy-AM": {"anahit": _SOFT_WOMAN, "vahan": _FULL_MAN},
    "id-ID": {"dewi": _BRIGHT_WOMAN, "bagus": _LIGHT_MAN},
    "is-IS": {"sigrun": _CLEAR_WOMAN, "gunnar": _DEEP_MAN},
    "ja-JP": {"sakura": _LIVELY_WOMAN, "haruto": _LIGHT_MAN},
    "ka-GE": {"nino": _SOFT_WOMAN, "giorgi": _FIRM_MAN},
    "kk-KZ": {"aigul": _CLEAR_WOMAN, "nurlan": _WARM_MAN},
    "kn-IN": {"kavya": _FRESH_WOMAN, "girish": _EVEN_MAN},
    "ko-KR": {"minji": _CLEAR_WOMAN, "donghyun": _LIGHT_MAN},
    "ky-KG": {"aizada": _SOFT_WOMAN, "bakyt": _FULL_MAN},
    "lt-LT": {"ruta": _FRESH_WOMAN, "mantas": _EVEN_MAN},
    "lv-LV": {"ilze": _LIVELY_WOMAN, "janis": _WARM_MAN},
    "mi-NZ": {"aroha": _SOFT_WOMAN, "tane": _DEEP_MAN},
    "mk-MK": {"biljana": _BRIGHT_WOMAN, "goran": _FIRM_MAN},
    "ml-IN": {"sreeja": _CLEAR_WOMAN, "vishnu": _LIGHT_MAN},
    "mr-IN": {"ketaki": _FRESH_WOMAN, "sachin": _WARM_MAN},
    "ms-MY": {"aisyah": _CLEAR_WOMAN, "hafiz": _EVEN_MAN},
    "mt-MT": {"marija": _BRIGHT_WOMAN, "karm": _FULL_MAN},
    "nb-NO": {"ingrid": _CLEAR_WOMAN, "eirik": _LIGHT_MAN},
    "ne-NP": {"sunita": _SOFT_WOMAN, "bishal": _EVEN_MAN},
    "nl-NL": {"sanne": _CLEAR_WOMAN, "daan": _WARM_MAN},
    "or-IN": {"lopa": _FRESH_WOMAN, "bikash": _EVEN_MAN},
    "pa-IN": {"simran": _CLEAR_WOMAN, "harjit": _DEEP_MAN},
    "pl-PL": {"agnieszka": _BRIGHT_WOMAN, "kuba": _LIGHT_MAN},
    "pt-PT": {"leonor": _SOFT_WOMAN, "tiago": _FIRM_MAN},
    "ro-RO": {"ioana": _CLEAR_WOMAN, "radu": _WARM_MAN},
    "ru-RU": {"olga": _SOFT_WOMAN, "maxim": _FULL_MAN},
    "si-LK": {"nadeesha": _FRESH_WOMAN, "kasun": _EVEN_MAN},
    "sk-SK": {"katka": _CLEAR_WOMAN, "juraj": _FIRM_MAN},
    "sl-SI": {"maja": _BRIGHT_WOMAN, "gregor": _EVEN_MAN},
    "sq-AL": {"drita": _CLEAR_WOMAN, "arben": _WARM_MAN},
    "sr-RS": {"jelena": _SOFT_WOMAN, "milos": _LIGHT_MAN},
    "sv-SE": {"astrid": _FRESH_WOMAN, "nils": _EVEN_MAN},
    "sw-KE": {"zuri": _CLEAR_WOMAN, "juma": _DEEP_MAN},
    "ta-IN": {"malar": _BRIGHT_WOMAN, "kumaran": _LIGHT_MAN},
    "te-IN": {"sravani": _CLEAR_WOMAN, "kiran": _WARM_MAN},
    "tr-TR": {"elif": _FRESH_WOMAN, "emre": _FIRM_MAN},
    "tt-RU": {"alsu": _SOFT_WOMAN, "timur": _EVEN_MAN},
    "uk-UA": {"oksana": _CLEAR_WOMAN, "taras": _FULL_MAN},
    "ur-PK": {"zara": _FRESH_WOMAN, "bilal": _WARM_MAN},
    "uz-UZ": {"gulnora": _CLEAR_WOMAN, "sardor": _EVEN_MAN},
    "vi-VN": {"linh": _BRIGHT_WOMAN, "quang": _LIGHT_MAN},
    "yue-HK": {"waiyee": _CLEAR_WOMAN, "kalok": _LIGHT_MAN},
}
_FALCON_2_VOICES = {
    "en-US": {"ivy": _PLAIN_WOMAN, "cole": _PLAIN_MAN},
    "en-GB": {"poppy": _LOWER_WOMAN, "alfie": _LOWER_MAN},
    "es-ES": {"noa": _PLAIN_WOMAN, "hector": _PLAIN_MAN},
    "es-MX": {"renata": _LOWER_WOMAN, "emiliano": _LOWER_MAN},
    "fr-FR": {"manon": _PLAIN_WOMAN, "basile": _PLAIN_MAN},
    "de-DE": {"lotte": _PLAIN_WOMAN, "moritz": _PLAIN_MAN},
    "pt-BR": {"yasmin": _PLAIN_WOMAN, "otavio": _PLAIN_MAN},
    "it-IT": {"aurora": _PLAIN_WOMAN, "tommaso": _PLAIN_MAN},
    "hi-IN": {"diya": _PLAIN_WOMAN, "kabir": _PLAIN_MAN},
    "zh-CN": {"xia": _PLAIN_WOMAN, "bo": _PLAIN_MAN},
    "ar-SA": {"noor": _PLAIN_WOMAN, "karim": _PLAIN_MAN},
    "id-ID": {"putri": _PLAIN_WOMAN, "adi": _PLAIN_MAN},
    "ja-JP": {"hina": _PLAIN_WOMAN, "ren": _PLAIN_MAN},
    "ko-KR": {"sora": _PLAIN_WOMAN, "joon": _PLAIN_MAN},
    "nl-NL": {"fenna": _PLAIN_WOMAN, "bram": _PLAIN_MAN},
    "pl-PL": {"hania": _PLAIN_WOMAN, "igor": _PLAIN_MAN},
    "ru-RU": {"vera": _PLAIN_WOMAN, "anton": _PLAIN_MAN},
    "sv-SE": {"ebba": _PLAIN_WOMAN, "axel": _PLAIN_MAN},
    "tr-TR": {"defne": _PLAIN_WOMAN, "kaan": _PLAIN_MAN},
    "uk-UA": {"solomiya": _PLAIN_WOMAN, "bohdan": _PLAIN_MAN},
    "vi-VN": {"mai": _LIVELY_WOMAN, "khoa": _PLAIN_MAN},
}

_POLYGLOT_LOCALES = ("en-US", "es-ES", "fr-FR", "de-DE", "pt-BR", "it-IT", "hi-IN", "zh-CN")
"""Each gen2 voice of these languages speaks all these locales. All other gen2 voices also speak en-US."""


@lru_cache(maxsize=1)
def list_espeak_voices() -> MappingProxyType[str, EspeakVoice]:
    """Return all voices by full id, gen2 first.

    Examples
    --------
    >>> list_espeak_voices()["en-US-nora"].timbre.sounds
    'clear'
    """
    return MappingProxyType(
        {voice.voice_id: voice for voice in (*_build_gen2_voices(), *_build_falcon_2_voices())}
    )


@lru_cache(maxsize=1)
def list_engine_voices() -> tuple[EngineVoice, ...]:
    """Return the catalogue entries of all voices."""
    return tuple(_build_entry(voice) for voice in list_espeak_voices().values())


def compute_lufs(voice: EspeakVoice, locale: str) -> float:
    """Return the loudness of a voice in a locale before levelling, in LUFS."""
    return voice.timbre.lufs + _EXTRA_LOUDNESS_DB.get(get_language(locale), 0.0)


def _build_gen2_voices() -> Iterator[EspeakVoice]:
    polyglots = {get_language(locale) for locale in _POLYGLOT_LOCALES}
    for locale, voices in _GEN2_VOICES.items():
        others = _POLYGLOT_LOCALES if get_language(locale) in polyglots else ("en-US",)
        supported = tuple(dict.fromkeys((locale, *_list_same_language(locale, _GEN2_VOICES), *others)))
        for name, timbre in voices.items():
            yield EspeakVoice(locale, name, timbre, Model.GEN2, supported)


def _build_falcon_2_voices() -> Iterator[EspeakVoice]:
    for locale, voices in _FALCON_2_VOICES.items():
        supported = tuple(dict.fromkeys((locale, *_list_same_language(locale, _FALCON_2_VOICES))))
        for name, timbre in voices.items():
            yield EspeakVoice(locale, name, timbre, Model.FALCON_2, supported)


def _list_same_language(locale: str, catalogue: Mapping[str, object]) -> list[str]:
    return [other for other in LOCALES if other in catalogue and get_language(other) == get_language(locale)]


def _build_entry(voice: EspeakVoice) -> EngineVoice:
    clearer = _CLEARER_VOICES.get(get_language(voice.locale))
    unclear = f" A formant voice of low clarity; {clearer} (Kokoro) is clear." if clearer else ""
    who = {_WOMAN: "female voice", _MAN: "male voice", _NEITHER: "voice"}[voice.timbre.gender]
    language = get_display_name(voice.locale)
    return EngineVoice(
        voice_id=voice.voice_id,
        display_name=voice.name.title(),
        description=f"A {who}, {voice.timbre.sounds}, for {language} (espeak-ng).{unclear}",
        gender=voice.timbre.gender,
        locale=voice.locale,
        supported_locales=MappingProxyType(
            {locale: _build_details(locale, voice.list_styles(locale)) for locale in voice.supported_locales}
        ),
        models=frozenset({voice.model}),
        kind=VoiceKind.FORMANT,
        licence=_LICENCE,
        output_terms=_OUTPUT_TERMS,
        bandwidth_hz=_BANDWIDTH_HZ,
    )


@lru_cache(maxsize=512)
def _build_details(locale: str, styles: tuple[str, ...]) -> StyleDetails:
    return StyleDetails(available_styles=list(styles), detail=get_display_name(locale))
