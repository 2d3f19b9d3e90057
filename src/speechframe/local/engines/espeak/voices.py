"""The voices of the espeak engine: who there is, how each sounds, what each can speak.

espeak has one way to say a language and some hundred variants of a voice box.
A voice here is a language, a variant and a pitch. Only variants are used that
stay clear, do not clip and leave silence silent (some carry an echo).

The two catalogues share no voice: gen2 has every locale, up to five voices in
one, all styles and voices that speak other languages too; falcon-2 has fewer
locales, two plain voices in each, two styles and no other language.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from speechframe.engines.base import EngineVoice
from speechframe.engines.streaming import LOUDNESS_LUFS
from speechframe.local.engines.reading.locales import LOCALES
from speechframe.spec.locales import display_name, language_of
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind

__all__ = ["STYLES", "EspeakVoice", "Style", "Timbre", "engine_voices", "espeak_voices", "gain_db"]


@dataclass(frozen=True, slots=True)
class Timbre:
    """How a voice sounds: espeak's variant, its pitch and liveliness (0 to 99; 50 is the variant's own).

    ``lufs`` is how loud espeak makes it: the median of lines of five languages, by ITU-R BS.1770.
    """

    variant: str
    gender: Gender
    pitch: int
    pitch_range: int
    lufs: float
    sounds: str


@dataclass(frozen=True, slots=True)
class Style:
    """How a text is read: factors of speed and liveliness, steps of pitch, pauses between words in 10 ms."""

    speed: float = 1.0
    pitch: int = 0
    liveliness: float = 1.0
    word_gap: int = 0


@dataclass(frozen=True, slots=True)
class EspeakVoice:
    """One voice of a catalogue."""

    locale: str
    name: str
    timbre: Timbre
    model: Model
    supported_locales: tuple[str, ...]

    @property
    def voice_id(self) -> str:
        """The full id."""
        return f"{self.locale}-{self.name}"

    def styles(self, locale: str) -> tuple[str, ...]:
        """Return the styles it has in a locale: all in its own language, the plain ones elsewhere."""
        at_home = language_of(locale) == language_of(self.locale)
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
"""Every style, the default first."""

_LICENCE = "GPL-3.0-or-later"
_OUTPUT_TERMS = "The licence of espeak-ng covers the program, not the audio made with it."
_BANDWIDTH_HZ = 11_000
"""The rule stands at :attr:`EngineVoice.bandwidth_hz`. The timbres reach 10,300 to 11,000 Hz, most 11,000."""
_UNCLEAR = MappingProxyType({"es": "es-ES-dora", "it": "it-IT-sara", "ja": "ja-JP-kumo", "pt": "pt-BR-alex"})
"""Languages in which a recogniser hears a third or more of espeak's words wrong, and a clear native voice."""

PLAIN_STYLES = ("Conversational", "Narration")
"""What a voice has in a language that is not its own, and every voice of falcon-2."""

_WOMAN, _MAN, _NEITHER = Gender.FEMALE, Gender.MALE, Gender.NON_BINARY

_CLEAR = Timbre("steph", _WOMAN, 52, 50, -26.5, "clear")
_SOFT = Timbre("steph", _WOMAN, 40, 44, -27.4, "soft, rather low")
_FRESH = Timbre("steph", _WOMAN, 62, 56, -25.7, "fresh, rather high")
_BRIGHT = Timbre("linda", _WOMAN, 54, 52, -23.6, "bright")
_LIVELY = Timbre("Annie", _WOMAN, 50, 42, -26.0, "lively, high")
_EVEN = Timbre("", _MAN, 50, 50, -26.7, "even")
_WARM = Timbre("m3", _MAN, 58, 50, -26.3, "warm")
_LIGHT = Timbre("edward2", _MAN, 64, 48, -27.5, "light, rather high")
_DEEP = Timbre("m8", _MAN, 44, 52, -31.9, "deep")
_FULL = Timbre("Mike", _MAN, 46, 50, -30.1, "full, rather low")
_FIRM = Timbre("Denis", _MAN, 48, 54, -31.7, "firm")
_MIDDLE = Timbre("Nguyen", _NEITHER, 50, 46, -28.2, "neither high nor low")
_PLAIN_WOMAN = Timbre("steph3", _WOMAN, 56, 46, -20.3, "plain")
_PLAIN_MAN = Timbre("klatt4", _MAN, 54, 46, -25.3, "plain")
_LOWER_WOMAN = Timbre("steph2", _WOMAN, 43, 46, -22.9, "plain, rather low")
_LOWER_MAN = Timbre("john", _MAN, 50, 46, -21.6, "plain, rather low")

_LOUDER_DB = MappingProxyType(
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
"""How much louder than most languages espeak speaks some, whoever speaks."""

_GEN2 = {
    "en-US": {"nora": _CLEAR, "miles": _LIGHT, "ruby": _LIVELY, "hank": _DEEP, "robin": _MIDDLE},
    "en-GB": {"edith": _SOFT, "oscar": _EVEN},
    "es-ES": {"lucia": _CLEAR, "mateo": _WARM, "alba": _BRIGHT, "bruno": _DEEP},
    "es-MX": {"ximena": _FRESH, "diego": _LIGHT},
    "fr-FR": {"camille": _SOFT, "hugo": _LIGHT, "elise": _LIVELY, "remi": _FULL},
    "de-DE": {"greta": _CLEAR, "jonas": _LIGHT, "frieda": _BRIGHT, "emil": _DEEP},
    "pt-BR": {"larissa": _CLEAR, "caio": _WARM, "bianca": _LIVELY, "davi": _DEEP},
    "it-IT": {"giulia": _CLEAR, "marco": _LIGHT, "chiara": _BRIGHT, "dante": _FULL},
    "hi-IN": {"asha": _SOFT, "rohan": _LIGHT, "meera": _LIVELY, "vikram": _DEEP},
    "zh-CN": {"mei": _CLEAR, "wei": _LIGHT, "lan": _BRIGHT, "jun": _DEEP},
    "af-ZA": {"anke": _CLEAR, "pieter": _EVEN},
    "am-ET": {"selam": _SOFT, "dawit": _WARM},
    "ar-SA": {"layla": _CLEAR, "omar": _FULL},
    "az-AZ": {"aysel": _FRESH, "elchin": _EVEN},
    "be-BY": {"alesia": _CLEAR, "yanka": _FIRM},
    "bg-BG": {"rada": _SOFT, "boyan": _FULL},
    "bn-BD": {"nasrin": _FRESH, "arif": _WARM},
    "bs-BA": {"amila": _CLEAR, "tarik": _LIGHT},
    "ca-ES": {"montse": _BRIGHT, "jordi": _WARM},
    "cs-CZ": {"zdenka": _CLEAR, "radek": _EVEN},
    "cy-GB": {"carys": _FRESH, "emrys": _DEEP},
    "da-DK": {"freja": _CLEAR, "mads": _LIGHT},
    "el-GR": {"eleni": _BRIGHT, "nikos": _FULL},
    "et-EE": {"liis": _SOFT, "tanel": _EVEN},
    "eu-ES": {"nerea": _CLEAR, "iker": _FIRM},
    "fa-IR": {"shirin": _FRESH, "darius": _WARM},
    "fi-FI": {"aino": _CLEAR, "eero": _LIGHT},
    "fr-BE": {"maelle": _FRESH, "quentin": _WARM},
    "fr-CH": {"noemie": _CLEAR, "lucien": _EVEN},
    "ga-IE": {"aoife": _FRESH, "cormac": _FULL},
    "gd-GB": {"mairi": _SOFT, "calum": _DEEP},
    "gu-IN": {"hetal": _CLEAR, "jignesh": _LIGHT},
    "hr-HR": {"ivana": _FRESH, "tomislav": _FIRM},
    "hu-HU": {"zsofia": _CLEAR, "gergo": _EVEN},
    "hy-AM": {"anahit": _SOFT, "vahan": _FULL},
    "id-ID": {"dewi": _BRIGHT, "bagus": _LIGHT},
    "is-IS": {"sigrun": _CLEAR, "gunnar": _DEEP},
    "ja-JP": {"sakura": _LIVELY, "haruto": _LIGHT},
    "ka-GE": {"nino": _SOFT, "giorgi": _FIRM},
    "kk-KZ": {"aigul": _CLEAR, "nurlan": _WARM},
    "kn-IN": {"kavya": _FRESH, "girish": _EVEN},
    "ko-KR": {"minji": _CLEAR, "donghyun": _LIGHT},
    "ky-KG": {"aizada": _SOFT, "bakyt": _FULL},
    "lt-LT": {"ruta": _FRESH, "mantas": _EVEN},
    "lv-LV": {"ilze": _LIVELY, "janis": _WARM},
    "mi-NZ": {"aroha": _SOFT, "tane": _DEEP},
    "mk-MK": {"biljana": _BRIGHT, "goran": _FIRM},
    "ml-IN": {"sreeja": _CLEAR, "vishnu": _LIGHT},
    "mr-IN": {"ketaki": _FRESH, "sachin": _WARM},
    "ms-MY": {"aisyah": _CLEAR, "hafiz": _EVEN},
    "mt-MT": {"marija": _BRIGHT, "karm": _FULL},
    "nb-NO": {"ingrid": _CLEAR, "eirik": _LIGHT},
    "ne-NP": {"sunita": _SOFT, "bishal": _EVEN},
    "nl-NL": {"sanne": _CLEAR, "daan": _WARM},
    "or-IN": {"lopa": _FRESH, "bikash": _EVEN},
    "pa-IN": {"simran": _CLEAR, "harjit": _DEEP},
    "pl-PL": {"agnieszka": _BRIGHT, "kuba": _LIGHT},
    "pt-PT": {"leonor": _SOFT, "tiago": _FIRM},
    "ro-RO": {"ioana": _CLEAR, "radu": _WARM},
    "ru-RU": {"olga": _SOFT, "maxim": _FULL},
    "si-LK": {"nadeesha": _FRESH, "kasun": _EVEN},
    "sk-SK": {"katka": _CLEAR, "juraj": _FIRM},
    "sl-SI": {"maja": _BRIGHT, "gregor": _EVEN},
    "sq-AL": {"drita": _CLEAR, "arben": _WARM},
    "sr-RS": {"jelena": _SOFT, "milos": _LIGHT},
    "sv-SE": {"astrid": _FRESH, "nils": _EVEN},
    "sw-KE": {"zuri": _CLEAR, "juma": _DEEP},
    "ta-IN": {"malar": _BRIGHT, "kumaran": _LIGHT},
    "te-IN": {"sravani": _CLEAR, "kiran": _WARM},
    "tr-TR": {"elif": _FRESH, "emre": _FIRM},
    "tt-RU": {"alsu": _SOFT, "timur": _EVEN},
    "uk-UA": {"oksana": _CLEAR, "taras": _FULL},
    "ur-PK": {"zara": _FRESH, "bilal": _WARM},
    "uz-UZ": {"gulnora": _CLEAR, "sardor": _EVEN},
    "vi-VN": {"linh": _BRIGHT, "quang": _LIGHT},
    "yue-HK": {"waiyee": _CLEAR, "kalok": _LIGHT},
}
_FALCON_2 = {
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
    "vi-VN": {"mai": _LIVELY, "khoa": _PLAIN_MAN},
}

_POLYGLOT = ("en-US", "es-ES", "fr-FR", "de-DE", "pt-BR", "it-IT", "hi-IN", "zh-CN")
"""The voices of these languages speak each other's; all other voices of gen2 speak English too."""


@lru_cache(maxsize=1)
def espeak_voices() -> MappingProxyType[str, EspeakVoice]:
    """Return every voice by full id, gen2 first.

    Examples
    --------
    >>> espeak_voices()["en-US-nora"].timbre.sounds
    'clear'
    """
    return MappingProxyType({voice.voice_id: voice for voice in (*_gen2(), *_falcon_2())})


@lru_cache(maxsize=1)
def engine_voices() -> tuple[EngineVoice, ...]:
    """Return every voice as the catalogue shows it."""
    return tuple(_shown(voice) for voice in espeak_voices().values())


def gain_db(voice: EspeakVoice, locale: str) -> float:
    """Return what brings a voice to the loudness that all voices have, in one of its locales."""
    return LOUDNESS_LUFS - voice.timbre.lufs - _LOUDER_DB.get(language_of(locale), 0.0)


def _gen2() -> Iterator[EspeakVoice]:
    polyglots = {language_of(locale) for locale in _POLYGLOT}
    for locale, voices in _GEN2.items():
        others = _POLYGLOT if language_of(locale) in polyglots else ("en-US",)
        supported = tuple(dict.fromkeys((locale, *_same_language(locale, _GEN2), *others)))
        for name, timbre in voices.items():
            yield EspeakVoice(locale, name, timbre, Model.GEN2, supported)


def _falcon_2() -> Iterator[EspeakVoice]:
    for locale, voices in _FALCON_2.items():
        supported = tuple(dict.fromkeys((locale, *_same_language(locale, _FALCON_2))))
        for name, timbre in voices.items():
            yield EspeakVoice(locale, name, timbre, Model.FALCON_2, supported)


def _same_language(locale: str, catalogue: Mapping[str, object]) -> list[str]:
    return [other for other in LOCALES if other in catalogue and language_of(other) == language_of(locale)]


def _shown(voice: EspeakVoice) -> EngineVoice:
    clearer = _UNCLEAR.get(language_of(voice.locale))
    unclear = f" A formant voice of low clarity; {clearer} (Kokoro) is clear." if clearer else ""
    who = {_WOMAN: "female voice", _MAN: "male voice", _NEITHER: "voice"}[voice.timbre.gender]
    return EngineVoice(
        voice_id=voice.voice_id,
        display_name=voice.name.title(),
        description=f"A {who}, {voice.timbre.sounds}, for {display_name(voice.locale)} (espeak-ng).{unclear}",
        gender=voice.timbre.gender,
        locale=voice.locale,
        supported_locales=MappingProxyType(
            {locale: _details(locale, voice.styles(locale)) for locale in voice.supported_locales}
        ),
        models=frozenset({voice.model}),
        kind=VoiceKind.FORMANT,
        licence=_LICENCE,
        output_terms=_OUTPUT_TERMS,
        bandwidth_hz=_BANDWIDTH_HZ,
    )


@lru_cache(maxsize=512)
def _details(locale: str, styles: tuple[str, ...]) -> StyleDetails:
    return StyleDetails(available_styles=list(styles), detail=display_name(locale))
