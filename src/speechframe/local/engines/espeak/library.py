"""Call the espeak-ng library with a fresh copy for every text, for speech, word events and phonemes.

espeak-ng keeps global state that leaks from one text into the next. So the same
words sound different the second time. If the library is loaded, used for one text
and unloaded, equal input gives equal bytes in any process. This costs half a
millisecond.
"""

import _ctypes
import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speechframe.errors import EngineError, EngineFault

__all__ = [
    "INSTALL",
    "TIE",
    "Rendered",
    "Setting",
    "WordEvent",
    "engine_version",
    "ipa",
    "phoneme_names",
    "render",
]

INSTALL = "pip install 'speechframe[local]'"

# From speak_lib.h.
_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1
_PHONEMES = 0x100
_IPA = 2
TIE = "^"
"""Joins the letters of one sound in the result of :func:`ipa`, as in ``t^\u0283``."""
_TIED_IPA = _IPA | 0x80 | ord(TIE) << 8
_RATE, _VOLUME, _PITCH, _RANGE, _WORD_GAP = 1, 2, 3, 4, 7
_EVENT_END, _EVENT_WORD = 0, 1
_FROM_CHARACTER = 1
_OK = 0

# From dlfcn.h. With this flag, dlopen fails unless the library is loaded already.
_RTLD_NOLOAD = 4

_HALF_VOLUME = 50
"""Half of the full volume, because some voices are distorted at full volume. A gain levels them later."""

_LONGEST_S = 3600
"""Longest audio in seconds. No allowed text is that long, so an engine that gets there is stuck."""

WORDS_PER_MINUTE = range(80, 451)
"""Speeds that the library supports. It clamps other values."""

_one_at_a_time = threading.Lock()


class _EventId(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    ]


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of the library, in its own units.

    ``voice`` is an identifier of its voice list with an optional variant, such as
    ``gmw/en-US+f3``. Pitch and range go from 0 to 99, and 50 is normal. The gap
    between words counts in units of 10 ms at normal speed.
    """

    voice: str
    words_per_minute: int
    pitch: int = 50
    pitch_range: int = 50
    word_gap: int = 0


@dataclass(frozen=True, slots=True)
class WordEvent:
    """The begin of a word, as character index in the text and as frame index in the audio."""

    position: int
    frame: int


@dataclass(frozen=True, eq=False, slots=True)
class Rendered:
    """Speech of a text: float32 samples ``(frames,)``, their rate, and the begin of each word."""

    samples: NDArray[np.float32]
    sample_rate_hz: int
    words: tuple[WordEvent, ...]


def render(text: str, setting: Setting, *, phoneme_input: bool = False, seed: int = 1) -> Rendered:
    """Return a text as speech. Equal arguments give equal bytes.

    Parameters
    ----------
    text
        Plain text without control characters. Markup is not interpreted.
    setting
        Voice, speed and pitch.
    phoneme_input
        Read ``[[...]]`` as phoneme names of the voice's language.
    seed
        Seed of the noise in breathy voices.

    Raises
    ------
    EngineError
        The library is not installed, or refuses the voice or the text.
    """
    pieces: list[bytes] = []
    events: list[WordEvent] = []
    with _fresh_image() as (library, rate_hz):
        room = _LONGEST_S * rate_hz

        def collect(wave: Any, frames: int, event: Any) -> int:
            nonlocal room
            if wave and frames > 0:
                pieces.append(ctypes.string_at(wave, frames * 2))
                room -= frames
            index = 0
            while event[index].type != _EVENT_END:
                if event[index].type == _EVENT_WORD:
                    events.append(WordEvent(event[index].text_position - 1, event[index].sample))
                index += 1
            return int(room < 0)

        callback = _Callback(collect)
        library.espeak_SetSynthCallback(callback)
        library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
        _set_up(library, setting)
        flags = _CHARS_UTF8 | (_PHONEMES if phoneme_input else 0)
        _synthesise(library, text, flags)
    if room < 0:
        raise EngineError(f"espeak did not come to an end within {_LONGEST_S} s of audio")
    samples = np.frombuffer(b"".join(pieces), np.int16).astype(np.float32) / np.float32(32768)
    return Rendered(samples, rate_hz, tuple(events))


@lru_cache(maxsize=1)
def engine_version() -> str:
    """Return the library's version, such as ``1.52.0``."""
    with _fresh_image() as (library, _):
        library.espeak_Info.restype = ctypes.c_char_p
        told: bytes = library.espeak_Info(None)
    return told.decode().split()[0]


def ipa(texts: Sequence[str], voice: str) -> list[list[str]]:
    """Return the IPA of each text as a list of clauses. The library splits the clauses.

    Parameters
    ----------
    texts
        Plain text, without ``[[...]]``.
    voice
        The library's identifier of a language, such as ``gmw/en-US``.
    """
    with _fresh_image() as (library, _):
        _set_up(library, Setting(voice, WORDS_PER_MINUTE.start))
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        return [list(_clauses(library, text)) for text in texts]


def _clauses(library: ctypes.CDLL, text: str) -> Iterator[str]:
    buffer = ctypes.create_string_buffer(text.encode())
    rest = ctypes.c_void_p(ctypes.addressof(buffer))
    while rest.value:
        told = library.espeak_TextToPhonemes(ctypes.byref(rest), _CHARS_UTF8, _TIED_IPA)
        if clause := (told or b"").decode().strip():
            yield clause


def phoneme_names(voice: str, spellings: tuple[str, ...]) -> list[str]:
    """Return the IPA of each phoneme spelling, such as ``[[tS]]``, or an empty text if it is unknown."""
    with _fresh_image() as (library, _):
        _set_up(library, Setting(voice, WORDS_PER_MINUTE.start))
        # A first text in phoneme mode switches this mode on for the calls below.
        deaf = _Callback(lambda _wave, _frames, _event: 0)  # this name keeps the callback alive
        library.espeak_SetSynthCallback(deaf)
        _synthesise(library, " ", _CHARS_UTF8 | _PHONEMES)
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        found = []
        for spelling in spellings:
            buffer = ctypes.create_string_buffer(spelling.encode())
            rest = ctypes.c_void_p(ctypes.addressof(buffer))
            told = library.espeak_TextToPhonemes(ctypes.byref(rest), _CHARS_UTF8, _IPA)
            found.append((told or b"").decode().strip())
    return found


def data_path() -> str:
    """Return the folder of the library's dictionaries and voices."""
    return _paths()[1]


def files() -> tuple[Path, ...]:
    """Return the library and the folder of its data; raises EngineFault if they are not installed."""
    return tuple(map(Path, _paths()))


@lru_cache(maxsize=1)
def _paths() -> tuple[str, str]:
    try:
        import espeakng_loader
    except ModuleNotFoundError as error:
        raise EngineFault(f"espeak-ng is not installed: {INSTALL}") from error
    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path()


@contextmanager
def _fresh_image() -> Iterator[tuple[ctypes.CDLL, int]]:
    """Load and start the library, and unload it at the end. A lock admits one caller at a time."""
    path, data = _paths()
    with _one_at_a_time:
        _refuse_loaded(path)
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise EngineFault(f"espeak-ng cannot be loaded ({error}); reinstall it: {INSTALL}") from error
        try:
            rate_hz = library.espeak_Initialize(_SYNCHRONOUS, 0, data.encode(), _DONT_EXIT)
            if rate_hz <= 0:
                raise EngineFault(f"espeak-ng finds no data in {data}; reinstall it: {INSTALL}")
            yield library, rate_hz
        finally:
            library.espeak_Terminate()
            _ctypes.dlclose(library._handle)  # noqa: SLF001  (ctypes has no public way to unload)


def _refuse_loaded(path: str) -> None:
    try:
        handle = _ctypes.dlopen(path, _RTLD_NOLOAD)
    except OSError:
        return
    _ctypes.dlclose(handle)
    raise EngineFault(
        "another library of this process uses espeak-ng, so speech would not be reproducible: "
        "let the engine speak in a process of its own, as the local service does"
    )


def _set_up(library: ctypes.CDLL, setting: Setting) -> None:
    if library.espeak_SetVoiceByName(setting.voice.encode()) != _OK:
        raise EngineFault(f"this espeak-ng has no voice {setting.voice!r}; reinstall it: {INSTALL}")
    for parameter, value in (
        (_RATE, setting.words_per_minute),
        (_VOLUME, _HALF_VOLUME),
        (_PITCH, setting.pitch),
        (_RANGE, setting.pitch_range),
        (_WORD_GAP, setting.word_gap),
    ):
        library.espeak_SetParameter(parameter, value, 0)


def _synthesise(library: ctypes.CDLL, text: str, flags: int) -> None:
    data = text.encode() + b"\0"
    status = library.espeak_Synth(data, ctypes.c_size_t(len(data)), 0, _FROM_CHARACTER, 0, flags, None, None)
    if status != _OK:
        raise EngineError(f"espeak refused the text (status {status})")
