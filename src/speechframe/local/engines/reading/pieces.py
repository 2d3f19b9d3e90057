"""The functions that speech engines share: pieces, pauses, refusals, lengths and word times.

An engine splits an utterance into pieces (texts between pause markers) and pauses, and
speaks each piece in its own way. Then functions of this module trim the speech, fit it
to a requested length and compute word times.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import measure, stretch
from speechframe.audio.codec import convert_seconds_to_frames
from speechframe.engines.base import Utterance, Word
from speechframe.engines.words import Token, original_tokens, spoken_tokens
from speechframe.errors import EngineError
from speechframe.local.engines.reading import japanese
from speechframe.local.engines.reading.locales import EspeakLocale
from speechframe.local.engines.reading.text import SpokenText, ToPhonemes, prepare_text
from speechframe.local.engines.reading.word_times import TimedToken, time_tokens
from speechframe.spec.chosen import MAX_UNSPEAKABLE_SHARE
from speechframe.spec.locales import find_nearest, get_display_name, get_language
from speechframe.spec.pronunciations import WordIndex
from speechframe.spec.texts import Pause, split_pauses, strip_pauses

Samples = NDArray[np.float32]


STEP_MS = 5.0
"""Length in ms of the steps that are classified as sound or silence."""
_SILENT_BELOW_DB = 45.0
"""Sound this many dB below the loudest step counts as silence."""
_LEAD_MS, _TAIL_MS = 10.0, 30.0
"""Silence at the start and end of a piece in ms. It is short, so that it hardly lengthens a pause."""
_SHORTEST_SPEECH_S = 0.05
"""Shortest time for speech that a caller may request, in seconds."""
_SPARE_SILENCE_S = 0.02
"""Seconds by which the silence at the end of a chunk can be shortened."""
_SLOWEST_STRETCH = 2.0
"""Speech becomes at most this many times longer."""
_FASTEST_STRETCH = 0.5
"""Speech that becomes shorter than this share of its length may not be understood."""
_SHOWN_LETTERS = 10
"""Largest number of letters or numerals in a message."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A text between pause markers: the words for word times, and the text for the engine."""

    tokens: tuple[Token, ...]
    spoken: SpokenText


@dataclass(frozen=True, eq=False, slots=True)
class Chunk:
    """The audio of a piece or pause: mono float32 samples ``(frames,)``, and words with times in frames."""

    samples: Samples
    words: tuple[TimedToken, ...]

    def stretch(self, frames: int, sample_rate_hz: int) -> "Chunk":
        """Return the chunk stretched to `frames`, with the same pitch. Word times are scaled."""
        if frames == len(self.samples) or not len(self.samples):
            return self
        factor = frames / len(self.samples)
        words = tuple(
            TimedToken(word.token, round(word.start * factor), round(word.end * factor))
            for word in self.words
        )
        return Chunk(stretch.fit_frames(self.samples, sample_rate_hz, frames), words)

    def pad_silence(self, frames: int) -> "Chunk":
        """Return the chunk with `frames` of silence appended, or shortened if `frames` is negative."""
        if frames < 0:
            return Chunk(self.samples[:frames], self.words)
        return Chunk(np.pad(self.samples, (0, frames)), self.words)


def choose_style(utterance: Utterance, supported: Sequence[str], styles: Sequence[str]) -> str:
    """Return the name of an utterance's style, or raise EngineError naming the available styles.

    Parameters
    ----------
    utterance
        The voice, locale and style. Without a style, the first is chosen.
    supported
        The locales of the voice.
    styles
        Its styles in the locale.

    Raises
    ------
    EngineError
        The voice does not have the locale or style.

    Examples
    --------
    >>> asked = Utterance("Hi", "en-US-nora", "en-US", style="calm")
    >>> choose_style(asked, ["en-US"], ["Conversational", "Calm"])
    'Calm'
    """
    voice_id, locale, asked = utterance.voice_id, utterance.locale, utterance.style
    if locale not in supported:
        near = find_nearest(locale, supported) or supported
        raise EngineError(f"voice {voice_id} does not speak {locale!r}; it speaks {', '.join(near)}")
    if asked is None:
        return styles[0]
    for style in styles:
        if style.casefold() == asked.casefold():
            return style
    raise EngineError(f"voice {voice_id} has no style {asked!r} in {locale}; it has {', '.join(styles)}")


def split_pieces(
    utterance: Utterance, locale: EspeakLocale, to_phonemes: ToPhonemes, warnings: list[str]
) -> list[Piece | Pause]:
    """Split the text of an utterance into pieces and pauses, in order.

    Parameters
    ----------
    utterance
        The text, voice and settings.
    locale
        The locale, with the scripts that espeak reads in it.
    to_phonemes
        Function that converts an IPA pronunciation to the engine's symbols.
    warnings
        Warnings for the caller are appended to this list.

    Raises
    ------
    EngineError
        No character of the text can be spoken, or a pronunciation contains an unknown symbol.
    """
    as_written = utterance.words_as_original_text
    if as_written and get_language(utterance.locale) != "en":
        warnings.append("wordDurationsAsOriginalText is for English only and was ignored")
        as_written = False
    parts: list[Piece | Pause] = []
    for part in split_pauses(utterance.text):
        if isinstance(part, Pause):
            parts.append(part)
            continue
        spoken = prepare_text(part, locale, utterance.pronunciations, to_phonemes)
        sounding_indices = spoken.sounding_indices
        if as_written:
            tokens = original_tokens(part)
        else:
            tokens = spoken_tokens(
                part, characters_are_words=locale.characters_are_words, numbers=spoken.numbers
            )
        parts.append(Piece(tuple(_mark_certainty(token, sounding_indices) for token in tokens), spoken))
    left_out = _collect_left_out(parts)
    if not any(part.spoken.is_speakable for part in parts if isinstance(part, Piece)):
        refuse_unspeakable(utterance.locale, left_out)
    if left_out:
        warnings.append(
            f"left out, because they cannot be spoken in {get_display_name(utterance.locale)}: "
            + _format_left_out(left_out, utterance.locale)
        )
    if romans := [roman for part in parts if isinstance(part, Piece) for roman in part.spoken.romans]:
        warnings.append(_warn_about_romans(romans))
    return parts


def _warn_about_romans(romans: Iterable[tuple[str, str]]) -> str:
    """Return a warning that lists Roman numerals and their spoken forms."""
    named = [f"{written} as {said!r}" for written, said in dict.fromkeys(romans)]
    more = f" and {len(named) - _SHOWN_LETTERS} more" if len(named) > _SHOWN_LETTERS else ""
    return (
        f"Roman numerals are read as numbers: {', '.join(named[:_SHOWN_LETTERS])}{more}; "
        "to hear something else, write the words, or give them in pronunciationDictionary"
    )


def check_letters(
    parts: Sequence[Piece | Pause], utterance: Utterance, locale: EspeakLocale
) -> tuple[str, ...]:
    """Return the warnings about the letters of a whole text (chosen: unspeakable-letters).

    Parameters
    ----------
    parts
        The result of :func:`split_pieces`.
    utterance
        The text, voice and settings.
    locale
        The locale, with its scripts.

    Raises
    ------
    EngineError
        The share of letters that cannot be spoken is too large.
    """
    text = strip_pauses(utterance.text)
    letters = [character for character in text if character.isalpha()]
    left_out = [character for character in _collect_left_out(parts) if character.isalpha()]
    if letters and len(left_out) >= MAX_UNSPEAKABLE_SHARE * len(letters):
        raise EngineError(
            f"{len(left_out)} of its {len(letters)} letters cannot be spoken in "
            f"{get_display_name(utterance.locale)}: {_format_left_out(left_out, utterance.locale)}"
        )
    # The script of words in the dictionary does not matter.
    covered = {
        at for start, end, _ in WordIndex(utterance.pronunciations).find(text) for at in range(start, end)
    }
    others = [
        character
        for at, character in enumerate(text)
        if character.isalpha() and at not in covered and not locale.is_written_with(character)
    ]
    if len(others) <= len(letters) / 2:
        return ()
    message = (
        f"the text is not in the script of {get_display_name(utterance.locale)}: {_format_letters(others)}"
    )
    return (f"{message}; it may be read as another language, or letter by letter",)


def _collect_left_out(parts: Sequence[Piece | Pause]) -> str:
    return "".join(part.spoken.left_out for part in parts if isinstance(part, Piece))


def _mark_certainty(token: Token, sounding_indices: frozenset[int]) -> Token:
    """Return the token, marked as not certain unless the engine gets at least one of its characters."""
    sounds = not sounding_indices.isdisjoint(range(token.start, token.end))
    return token if sounds else replace(token, certain=False)


def refuse_unspeakable(locale: str, left_out: str = "") -> NoReturn:
    """Raise the EngineError for a text without speakable characters. ``left_out`` has its letters."""
    raise EngineError(
        f"the text has no character that a voice can speak in {locale} ({get_display_name(locale)})"
        + (f": {_format_left_out(left_out, locale)}" if left_out else "")
    )


def _format_left_out(left_out: Iterable[str], locale: str) -> str:
    if locale != "ja-JP":
        return _format_letters(left_out)
    hint = "; Japanese is spoken from kana: write kana, or give readings in pronunciationDictionary"
    if not japanese.is_installed():
        hint += f", or install the reader of kanji: {japanese.INSTALL_COMMAND}"
    return _format_letters(left_out) + hint


def _format_letters(left_out: Iterable[str]) -> str:
    letters = list(dict.fromkeys(left_out))
    more = f" and {len(letters) - _SHOWN_LETTERS} more" if len(letters) > _SHOWN_LETTERS else ""
    return " ".join(letters[:_SHOWN_LETTERS]) + more


def compute_speech_frames(seconds: float, silent_frames: int, sample_rate_hz: int) -> int:
    """Return the number of frames for speech in `seconds` without the frames of the pauses.

    Raises
    ------
    EngineError
        Less than 0.05 s remain.

    Examples
    --------
    >>> compute_speech_frames(2.0, 22050, 22050)
    22050
    """
    room = convert_seconds_to_frames(seconds, sample_rate_hz) - silent_frames
    if room >= convert_seconds_to_frames(_SHORTEST_SPEECH_S, sample_rate_hz):
        return room
    pauses_s = silent_frames / sample_rate_hz
    why = f": the pauses alone take {pauses_s:g} s" if pauses_s else f"; at least {_SHORTEST_SPEECH_S:g} s"
    raise EngineError(f"audioDuration of {seconds:g} s leaves no time to speak{why}")


def count_silent_frames(parts: Sequence[Piece | Pause], sample_rate_hz: int) -> int:
    """Return the number of frames of all pauses."""
    return sum(_count_pause_frames(part, sample_rate_hz) for part in parts if isinstance(part, Pause))


def _count_pause_frames(pause: Pause, sample_rate_hz: int) -> int:
    return convert_seconds_to_frames(pause.seconds, sample_rate_hz)


def join_with_pauses(
    parts: Sequence[Piece | Pause], spoken: Sequence[Chunk], sample_rate_hz: int
) -> list[Chunk]:
    """Return the audio of all parts in order: the chunks of `spoken` for pieces, and silence for pauses."""
    chunks = iter(spoken)
    return [
        Chunk(np.zeros(_count_pause_frames(part, sample_rate_hz), np.float32), ())
        if isinstance(part, Pause)
        else next(chunks)
        for part in parts
    ]


def count_frames(chunks: Sequence[Chunk]) -> int:
    """Return the number of frames of all chunks."""
    return sum(len(chunk.samples) for chunk in chunks)


def fit_to_length(
    chunks: Sequence[Chunk], room: int, sample_rate_hz: int, warnings: list[str]
) -> list[Chunk]:
    """Return the chunks, changed to exactly `room` frames together.

    A difference of at most 20 ms changes only the silence at the end. A larger difference stretches the
    speech, at most by a factor of 2. Silence fills the rest.

    Parameters
    ----------
    chunks
        The spoken chunks. At least one must have samples.
    room
        Number of frames of the result.
    sample_rate_hz
        Sample rate in Hz.
    warnings
        A warning is appended to this list if the factor is above 2 or below 0.5.
    """
    factor = room / count_frames(chunks)
    if factor > _SLOWEST_STRETCH:
        warnings.append(
            f"audioDuration is {factor:.1f} times what the slowest speech takes: the rest of it is silence"
        )
    elif factor < _FASTEST_STRETCH:
        warnings.append(
            f"audioDuration is {1 / factor:.1f} times shorter than the fastest clear speech, "
            "which may not be understood"
        )
    filled = list(chunks)
    if abs(room - count_frames(chunks)) > convert_seconds_to_frames(_SPARE_SILENCE_S, sample_rate_hz):
        applied = min(factor, _SLOWEST_STRETCH)
        bounds = np.rint(np.cumsum([0, *(len(chunk.samples) for chunk in chunks)]) * applied).astype(int)
        lengths = np.diff(bounds).tolist()
        filled = [
            chunk.stretch(length, sample_rate_hz) for chunk, length in zip(chunks, lengths, strict=True)
        ]
    last = max(index for index, chunk in enumerate(filled) if len(chunk.samples))
    filled[last] = filled[last].pad_silence(room - count_frames(filled))
    return filled


def count_step_frames(sample_rate_hz: int) -> int:
    """Return the number of frames in a step of :data:`STEP_MS`."""
    return round(sample_rate_hz * STEP_MS / 1000)


def find_sound(samples: Samples, sample_rate_hz: int) -> NDArray[np.bool_]:
    """Return a mask of the steps with sound, that is, less than 45 dB below the loudest step."""
    level_db = measure.measure_frame_levels_db(samples, sample_rate_hz, STEP_MS)
    return np.asarray(level_db > level_db.max() - _SILENT_BELOW_DB)


def find_speech_span(samples: Samples, sample_rate_hz: int) -> slice:
    """Return the span between the silences at both ends."""
    step = count_step_frames(sample_rate_hz)
    steps = np.flatnonzero(find_sound(samples, sample_rate_hz)) * step
    return slice(int(steps[0]), min(len(samples), int(steps[-1]) + step))


def trim_silence(samples: Samples, sample_rate_hz: int) -> tuple[Samples, int]:
    """Replace the silence at both ends by 10 ms at the start and 30 ms at the end.

    Return the new samples, and the frame of the old samples at which they begin. It may be negative.
    """
    span = find_speech_span(samples, sample_rate_hz)
    lead, tail = (round(sample_rate_hz * ms / 1000) for ms in (_LEAD_MS, _TAIL_MS))
    return np.pad(samples[span], (lead, tail)), span.start - lead


def time_words(
    piece: Piece, samples: Samples, events: Sequence[tuple[int, int]], sample_rate_hz: int
) -> "Chunk":
    """Return the chunk of a piece, with word times from the engine's events and from the sound.

    Parameters
    ----------
    piece
        The spoken piece.
    samples
        Audio of the whole piece, mono float32.
    events
        Index into the text and frame of each beginning of a word that the engine reported, in order of time.
    sample_rate_hz
        Sample rate in Hz.
    """
    active = find_sound(samples, sample_rate_hz)
    words = time_tokens(piece.tokens, events, active, count_step_frames(sample_rate_hz), len(samples))
    return Chunk(samples, tuple(words))


def build_words(chunks: Sequence[Chunk], sample_rate_hz: int) -> tuple[Word, ...]:
    """Return the words of consecutive chunks with their times. Signs without sound are left out."""
    words: list[Word] = []
    offset = 0
    for chunk in chunks:
        words.extend(_build_word(token, offset, sample_rate_hz) for token in chunk.words if _is_entry(token))
        offset += len(chunk.samples)
    return tuple(words)


def _is_entry(token: TimedToken) -> bool:
    return token.token.always or token.token.certain or token.end > token.start


def _build_word(token: TimedToken, offset: int, sample_rate_hz: int) -> Word:
    start_ms, end_ms = (round(1000 * (offset + frame) / sample_rate_hz) for frame in (token.start, token.end))
    return Word(token.token.shown, start_ms, end_ms)
