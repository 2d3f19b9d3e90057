"""The speech engine that comes with the local service: espeak-ng, in 70 and more locales.

Not a beautiful voice, but a fast and steady one: three milliseconds for a
second of speech, word times, exact lengths, and the same bytes for the same
request. It is GPL-3 and keeps global state, so the service runs it in worker
processes; see :mod:`speechframe.engines.espeak_library`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from speechframe.audio import measure
from speechframe.audio.codec import Samples, seconds_to_frames
from speechframe.engines import espeak_library
from speechframe.engines.base import Capabilities, EngineVoice, Speech, Utterance, Word
from speechframe.engines.espeak_chunks import SAMPLE_RATE_HZ, SPARE_S, Chunk, Piece, speak_pieces
from speechframe.engines.espeak_locales import LOCALES
from speechframe.engines.espeak_phonemes import phoneme_input
from speechframe.engines.espeak_prosody import Reading, reading
from speechframe.engines.espeak_text import SpokenText, spoken_text
from speechframe.engines.espeak_voices import EspeakVoice, engine_voices, espeak_voices
from speechframe.engines.word_times import Heard
from speechframe.engines.words import Token, original_tokens, spoken_tokens
from speechframe.errors import EngineError
from speechframe.spec.locales import display_name, language_of, nearest
from speechframe.spec.pauses import Pause, pause_warnings, split_pauses

__all__ = ["EspeakSpeaker"]

_LOUDNESS_DB = -23.0
_PEAK = 0.9
"""Every text comes out equally loud, with room for what a lossy format adds."""

_ROUNDS = 3
_CLOSE_ENOUGH = 0.004
_SHORTEST_SPEECH_S = 0.05
_SLOWEST_STRETCH = 2.0
_FASTEST_STRETCH = 0.5
_NAMED_LETTERS = 10

REVISION = 1
"""Goes up whenever an equal request sounds different: a run never mixes two ways of speaking."""


class EspeakSpeaker:
    """The espeak-ng engine; see :class:`speechframe.engines.base.Speaker`.

    Examples
    --------
    >>> speech = EspeakSpeaker().speak(Utterance("Hello there", voice_id="en-US-nora", locale="en-US"))
    >>> [word.word for word in speech.words]
    ['Hello', 'there']
    """

    name = "espeak"
    capabilities = Capabilities(
        variation=True, audio_duration=True, pronunciations=True, original_text=True, streaming=True
    )

    @property
    def version(self) -> str:
        """The library's version and our :data:`REVISION`; raises EngineError when it is not installed."""
        return f"{espeak_library.engine_version()}+{REVISION}"

    def voices(self) -> Sequence[EngineVoice]:
        """Return every voice of both catalogues."""
        return engine_voices()

    def speak(self, utterance: Utterance) -> Speech:
        """Return an utterance as speech at 22050 Hz; equal utterances give equal bytes.

        Raises
        ------
        EngineError
            A voice, locale or style that does not exist together; a text without anything speakable; a
            pronunciation in unknown symbols; a length that the pauses alone exceed.
        """
        voice, style = _found(utterance)
        warnings = list(pause_warnings(utterance.text))
        parts = _parts(utterance, warnings)
        read = reading(utterance, voice.timbre, style)
        chunks = _speech_and_silence(parts, utterance, read, warnings)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        return Speech(_levelled(samples), SAMPLE_RATE_HZ, tuple(_words(chunks)), tuple(warnings))


def _found(utterance: Utterance) -> tuple[EspeakVoice, str]:
    """Return the voice and the style's name, or say what there is instead."""
    voice = espeak_voices().get(utterance.voice_id)
    if voice is None:
        raise EngineError(f"espeak has no voice {utterance.voice_id!r}")
    if utterance.locale not in voice.supported_locales:
        near = nearest(utterance.locale, voice.supported_locales) or voice.supported_locales
        raise EngineError(
            f"voice {voice.voice_id} does not speak {utterance.locale!r}; it speaks {', '.join(near)}"
        )
    styles = voice.styles(utterance.locale)
    if utterance.style is None:
        return voice, styles[0]
    for style in styles:
        if style.casefold() == utterance.style.casefold():
            return voice, style
    raise EngineError(
        f"voice {voice.voice_id} has no style {utterance.style!r} in {utterance.locale}; "
        f"it has {', '.join(styles)}"
    )


def _parts(utterance: Utterance, warnings: list[str]) -> list[Piece | Pause]:
    """Return the text as pieces to speak and pauses between, and add what the caller should know."""
    locale = LOCALES[utterance.locale]
    as_written = utterance.words_as_original_text
    if as_written and language_of(utterance.locale) != "en":
        warnings.append("wordDurationsAsOriginalText is for English only and was ignored")
        as_written = False
    parts: list[Piece | Pause] = []
    for part in split_pauses(utterance.text):
        if isinstance(part, Pause):
            parts.append(part)
            continue
        spoken = spoken_text(
            part, locale, utterance.pronunciations, lambda ipa: phoneme_input(ipa, locale.language)
        )
        sounding = spoken.sounding
        if as_written:
            tokens = original_tokens(part)
        else:
            tokens = spoken_tokens(part, characters_are_words=locale.characters_are_words)
        parts.append(Piece(tuple(_certain(token, sounding) for token in tokens), spoken))
    spoken_parts = [part.spoken for part in parts if isinstance(part, Piece)]
    _refuse_unspeakable(spoken_parts, utterance.locale)
    _warn_of_left_out(spoken_parts, utterance.locale, warnings)
    return parts


def _certain(token: Token, sounding: frozenset[int]) -> Token:
    """Return a token as heard for certain only if something of it is really handed to the engine."""
    sounds = not sounding.isdisjoint(range(token.start, token.end))
    return token if sounds else replace(token, certain=False)


def _refuse_unspeakable(parts: Sequence[SpokenText], locale: str) -> None:
    if any(part.speakable for part in parts):
        return
    why = _letters("".join(part.left_out for part in parts))
    raise EngineError(
        f"the text has no character that a voice can speak in {locale} ({display_name(locale)})"
        + (f": {why} belong to another script" if why else "")
    )


def _warn_of_left_out(parts: Sequence[SpokenText], locale: str, warnings: list[str]) -> None:
    if left_out := _letters("".join(part.left_out for part in parts)):
        hint = "; Japanese is spoken from kana: give readings in pronunciationDictionary" * (
            locale == "ja-JP"
        )
        warnings.append(
            f"left out, because {display_name(locale)} is not written with them: {left_out}{hint}"
        )


def _letters(left_out: str) -> str:
    letters = list(dict.fromkeys(left_out))
    more = f" and {len(letters) - _NAMED_LETTERS} more" if len(letters) > _NAMED_LETTERS else ""
    return " ".join(letters[:_NAMED_LETTERS]) + more


def _speech_and_silence(
    parts: Sequence[Piece | Pause], utterance: Utterance, read: Reading, warnings: list[str]
) -> list[Chunk]:
    """Return every part as audio, in order, of the asked length if one is asked."""
    pieces = [part for part in parts if isinstance(part, Piece)]
    silences = [seconds_to_frames(part.seconds, SAMPLE_RATE_HZ) for part in parts if isinstance(part, Pause)]
    if utterance.audio_duration_s:
        spoken = _fitted(pieces, read, utterance.audio_duration_s, sum(silences), warnings)
    else:
        spoken = speak_pieces(pieces, read, 1.0)
    if not any(len(chunk.samples) for chunk in spoken):
        _refuse_unspeakable((), utterance.locale)
    chunks = []
    for part in parts:
        queue = spoken if isinstance(part, Piece) else None
        chunks.append(queue.pop(0) if queue else _silence(silences.pop(0)))
    return chunks


def _silence(frames: int) -> Chunk:
    return Chunk(np.zeros(frames, np.float32), ())


def _fitted(
    pieces: Sequence[Piece], read: Reading, seconds: float, silent_frames: int, warnings: list[str]
) -> list[Chunk]:
    """Return the pieces spoken in exactly the frames that the pauses leave.

    The speed is solved in a few rounds, because the engine's pauses do not
    follow it; the rest, below one per cent as a rule, is stretched.
    """
    room = seconds_to_frames(seconds, SAMPLE_RATE_HZ) - silent_frames
    if room < seconds_to_frames(_SHORTEST_SPEECH_S, SAMPLE_RATE_HZ):
        pauses_s = silent_frames / SAMPLE_RATE_HZ
        raise EngineError(
            f"audioDuration of {seconds:g} s leaves no time to speak"
            + (
                f": the pauses alone take {pauses_s:g} s"
                if pauses_s
                else f"; at least {_SHORTEST_SPEECH_S:g} s"
            )
        )
    speed = 1.0
    best = speak_pieces(pieces, read, speed)
    for _ in range(_ROUNDS):
        ratio = _frames(best) / room
        if not ratio or abs(ratio - 1) < _CLOSE_ENOUGH or read.setting(speed * ratio) == read.setting(speed):
            break
        speed *= ratio
        spoken = speak_pieces(pieces, read, speed)
        if abs(_frames(spoken) / room - 1) >= abs(ratio - 1):
            break
        best = spoken
    return _stretched(best, room, warnings) if _frames(best) else best


def _stretched(chunks: list[Chunk], room: int, warnings: list[str]) -> list[Chunk]:
    """Return the chunks in exactly ``room`` frames: stretched, unless their last silence can spare that."""
    factor = room / _frames(chunks)
    if factor > _SLOWEST_STRETCH:
        warnings.append(
            f"audioDuration is {factor:.1f} times what the slowest speech takes: the rest of it is silence"
        )
    elif factor < _FASTEST_STRETCH:
        warnings.append(
            f"audioDuration is {1 / factor:.1f} times shorter than the fastest clear speech, "
            "which may not be understood"
        )
    fitted = list(chunks)
    if abs(room - _frames(chunks)) > seconds_to_frames(SPARE_S, SAMPLE_RATE_HZ):
        applied = min(factor, _SLOWEST_STRETCH)
        bounds = np.rint(np.cumsum([0, *(len(chunk.samples) for chunk in chunks)]) * applied).astype(int)
        lengths = np.diff(bounds).tolist()
        fitted = [chunk.stretched(length) for chunk, length in zip(chunks, lengths, strict=True)]
    last = max(index for index, chunk in enumerate(fitted) if len(chunk.samples))
    fitted[last] = fitted[last].with_silence(room - _frames(fitted))
    return fitted


def _frames(chunks: Sequence[Chunk]) -> int:
    return sum(len(chunk.samples) for chunk in chunks)


def _levelled(samples: Samples) -> Samples:
    """Return samples at the loudness all speech has here."""
    wanted = 10 ** ((_LOUDNESS_DB - measure.loudness_db(samples, SAMPLE_RATE_HZ)) / 20)
    return samples * np.float32(min(wanted, _PEAK / measure.peak(samples)))


def _words(chunks: Sequence[Chunk]) -> list[Word]:
    words: list[Word] = []
    offset = 0
    for chunk in chunks:
        words.extend(_word(heard, offset) for heard in chunk.words if _is_entry(heard))
        offset += len(chunk.samples)
    return words


def _is_entry(heard: Heard) -> bool:
    return heard.token.always or heard.token.certain or heard.end > heard.start


def _word(heard: Heard, offset: int) -> Word:
    start_ms, end_ms = (round(1000 * (offset + frame) / SAMPLE_RATE_HZ) for frame in (heard.start, heard.end))
    return Word(heard.token.shown, start_ms, end_ms)
