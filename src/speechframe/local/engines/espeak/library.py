"""Call a fresh copy of the espeak-ng library for each text, for speech, word events and phonemes.

espeak-ng keeps global state that leaks from one text into the next, so the same
words would sound different the second time. If the library is loaded for one text
and then unloaded, equal input gives equal bytes in any process. This costs half a
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

INSTALL_COMMAND = "pip install 'speechframe[local]'"
"""The command for error messages that installs espeak-ng."""

# Constants of the C interface, from speak_lib.h.
_SYNCHRONOUS_OUTPUT = 2
_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1
_PHONEMES_FLAG = 0x100
_IPA_FLAG = 2
TIE_CHARACTER = "^"
"""Character that joins the letters of one sound in the result of :func:`convert_to_ipa`, as in
``t^\u0283``."""
_TIED_IPA = _IPA_FLAG | 0x80 | ord(TIE_CHARACTER) << 8
_RATE_PARAMETER, _VOLUME_PARAMETER, _PITCH_PARAMETER, _RANGE_PARAMETER, _WORD_GAP_PARAMETER = 1, 2, 3, 4, 7
_EVENT_END, _EVENT_WORD = 0, 1
_POSITION_IN_CHARACTERS = 1
_STATUS_OK = 0

# From dlfcn.h. With this flag, dlopen fails unless the library is loaded already.
_RTLD_NOLOAD = 4

_HALF_VOLUME = 50
"""Volume in per cent. Some voices are distorted at full volume. A gain levels them later."""

_MAX_AUDIO_S = 3600
"""Longest audio in seconds. No allowed text is so long, so longer audio means that the library is stuck."""

WORDS_PER_MINUTE = range(80, 451)
"""Speeds that the library supports. It clamps other values."""

_library_lock = threading.Lock()


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
class EspeakSetting:
    """Settings of the library, in the units of the library.

    Attributes
    ----------
    voice
        Identifier of a language with an optional variant of the voice, such as ``gmw/en-US+f3``.
    words_per_minute
        Speed, within :data:`WORDS_PER_MINUTE`.
    pitch, pitch_range
        Pitch and liveliness from 0 to 99. 50 is normal.
    word_gap
        Pause between words in units of 10 ms at normal speed.
    """

    voice: str
    words_per_minute: int
    pitch: int = 50
    pitch_range: int = 50
    word_gap: int = 0


@dataclass(frozen=True, slots=True)
class WordEvent:
    """The beginning of a word, as a character index in the text and as a frame index in the audio."""

    position: int
    frame: int


@dataclass(frozen=True, eq=False, slots=True)
class RenderedSpeech:
    """The speech of a text: mono float32 samples ``(frames,)``, sample rate, and beginnings of words."""

    samples: NDArray[np.float32]
    sample_rate_hz: int
    words: tuple[WordEvent, ...]


def render_speech(
    text: str, setting: EspeakSetting, *, phoneme_input: bool = False, seed: int = 1
) -> RenderedSpeech:
    """Return the speech of a text. Equal arguments give equal bytes.

    Parameters
    ----------
    text
        Plain text without control characters. Markup is not interpreted.
    setting
        Voice, speed and pitch.
    phoneme_input
        True to read ``[[...]]`` as phoneme names of the voice's language. Default: False.
    seed
        Seed of the noise in breathy voices.

    Raises
    ------
    EngineError
        The library is not installed, is used elsewhere in this process, or refuses the voice or the text.
    """
    pieces: list[bytes] = []
    events: list[WordEvent] = []
    with _load_library() as (library, rate_hz):
        room = _MAX_AUDIO_S * rate_hz

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
        _apply_setting(library, setting)
        flags = _CHARS_UTF8 | (_PHONEMES_FLAG if phoneme_input else 0)
        _synthesise(library, text, flags)
    if room < 0:
        raise EngineError(f"espeak did not come to an end within {_MAX_AUDIO_S} s of audio")
    samples = np.frombuffer(b"".join(pieces), np.int16).astype(np.float32) / np.float32(32768)
    return RenderedSpeech(samples, rate_hz, tuple(events))


@lru_cache(maxsize=1)
def find_engine_version() -> str:
    """Return the version of the library, such as ``1.52.0``."""
    with _load_library() as (library, _):
        library.espeak_Info.restype = ctypes.c_char_p
        version_bytes: bytes = library.espeak_Info(None)
    return version_bytes.decode().split()[0]


def convert_to_ipa(texts: Sequence[str], voice: str) -> list[list[str]]:
    """Return the IPA of each text, as a list of clauses. The library splits a text into clauses.

    Parameters
    ----------
    texts
        Plain text, without ``[[...]]``.
    voice
        The library's identifier of a language, such as ``gmw/en-US``.
    """
    with _load_library() as (library, _):
        _apply_setting(library, EspeakSetting(voice, WORDS_PER_MINUTE.start))
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        return [list(_convert_clauses(library, text)) for text in texts]


def _convert_clauses(library: ctypes.CDLL, text: str) -> Iterator[str]:
    buffer = ctypes.create_string_buffer(text.encode())
    rest = ctypes.c_void_p(ctypes.addressof(buffer))
    while rest.value:
        ipa_bytes = library.espeak_TextToPhonemes(ctypes.byref(rest), _CHARS_UTF8, _TIED_IPA)
        if clause := (ipa_bytes or b"").decode().strip():
            yield clause


def find_phoneme_ipa(voice: str, spellings: tuple[str, ...]) -> list[str]:
    """Return the IPA of each phoneme spelling, such as ``[[tS]]``, or an empty text if it is unknown."""
    with _load_library() as (library, _):
        _apply_setting(library, EspeakSetting(voice, WORDS_PER_MINUTE.start))
        # Speak a first text in phoneme mode, because this also switches the mode on for the calls below.
        discard_audio = _Callback(lambda _wave, _frames, _event: 0)  # this name keeps the callback alive
        library.espeak_SetSynthCallback(discard_audio)
        _synthesise(library, " ", _CHARS_UTF8 | _PHONEMES_FLAG)
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        found = []
        for spelling in spellings:
            buffer = ctypes.create_string_buffer(spelling.encode())
            rest = ctypes.c_void_p(ctypes.addressof(buffer))
            ipa_bytes = library.espeak_TextToPhonemes(ctypes.byref(rest), _CHARS_UTF8, _IPA_FLAG)
            found.append((ipa_bytes or b"").decode().strip())
    return found


def find_data_path() -> str:
    """Return the folder of the library's dictionaries and voices."""
    return _find_paths()[1]


def find_files() -> tuple[Path, ...]:
    """Return the library and the folder of its data. Raises EngineFault if espeak-ng is not installed."""
    return tuple(map(Path, _find_paths()))


@lru_cache(maxsize=1)
def _find_paths() -> tuple[str, str]:
    try:
        import espeakng_loader
    except ModuleNotFoundError as error:
        raise EngineFault(f"espeak-ng is not installed: {INSTALL_COMMAND}") from error
    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path()


@contextmanager
def _load_library() -> Iterator[tuple[ctypes.CDLL, int]]:
    """Yield the freshly loaded library and its sample rate in Hz. Unload the library at the end.

    Other threads wait meanwhile. Raise EngineFault if the library is already loaded in this process.
    """
    path, data = _find_paths()
    with _library_lock:
        _refuse_loaded(path)
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise EngineFault(
                f"espeak-ng cannot be loaded ({error}); reinstall it: {INSTALL_COMMAND}"
            ) from error
        try:
            rate_hz = library.espeak_Initialize(_SYNCHRONOUS_OUTPUT, 0, data.encode(), _DONT_EXIT)
            if rate_hz <= 0:
                raise EngineFault(f"espeak-ng finds no data in {data}; reinstall it: {INSTALL_COMMAND}")
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


def _apply_setting(library: ctypes.CDLL, setting: EspeakSetting) -> None:
    if library.espeak_SetVoiceByName(setting.voice.encode()) != _STATUS_OK:
        raise EngineFault(f"this espeak-ng has no voice {setting.voice!r}; reinstall it: {INSTALL_COMMAND}")
    for parameter, value in (
        (_RATE_PARAMETER, setting.words_per_minute),
        (_VOLUME_PARAMETER, _HALF_VOLUME),
        (_PITCH_PARAMETER, setting.pitch),
        (_RANGE_PARAMETER, setting.pitch_range),
        (_WORD_GAP_PARAMETER, setting.word_gap),
    ):
        library.espeak_SetParameter(parameter, value, 0)


def _synthesise(library: ctypes.CDLL, text: str, flags: int) -> None:
    data = text.encode() + b"\0"
    status = library.espeak_Synth(
        data, ctypes.c_size_t(len(data)), 0, _POSITION_IN_CHARACTERS, 0, flags, None, None
    )
    if status != _STATUS_OK:
        raise EngineError(f"espeak refused the text (status {status})")
