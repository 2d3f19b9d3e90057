"""Find the sentences of a media file, with their times and speakers.

The audio is cut at quiet places into pieces of bounded length, and each piece is
recognised. The words are joined to sentences. A change of speaker splits a
sentence into turns. Starts and ends of turns are then moved to the onset and the
end of the sound. Speakers are separated by register (median pitch), so two
speakers with the same register count as one speaker.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import measure
from speechframe.engines.base import Recogniser, Recording, Transcript
from speechframe.local.dubbing.folder import Refused
from speechframe.local.dubbing.media import SPEECH_RATE_HZ as RATE_HZ
from speechframe.spec.dubbing import FailureCode
from speechframe.spec.locales import get_language
from speechframe.wire.cues import CLOSING_MARKS, SENTENCE_MARKS, Cue

Array = NDArray[np.float64]
Samples = NDArray[np.float32]

_MIN_PIECE_S, _MAX_PIECE_S = 14.0, 28.0
"""Bounds of a piece in seconds. The recogniser's window is 30 s, and it would split a longer piece itself."""
_QUIET_WINDOW_S = 0.3
"""Length of the window whose mean level decides where the audio is cut."""
_CERTAIN_PROBABILITY = 0.8
"""Lowest probability at which a detected language contradicts the given locale."""

_LONGEST_GAP_S = 1.2
"""A longer silence ends a sentence even without punctuation. No dubbed line spans such a silence."""
_UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "km", "my", "yue"})
"""Languages that are written without spaces between words."""

_SHORTEST_TURN_S = 0.6
_SHORTEST_TURN_WORDS = 3
"""Least voiced seconds and words of a turn. A shorter change of register is intonation, not a new speaker."""
_BACKGROUND_DB = 15.0
"""Drop a sentence whose loudest word is this far below the median sentence, as music or background talk."""
_MIN_BETWEEN_VARIANCE_SHARE = 0.8
"""Split speakers only if at least this share of the pitch variance lies between the groups.

One normal distribution gives 0.64.
"""
_MIN_DISTANCE_OCTAVES = 0.33
"""Least distance between the mean pitches of two groups: 4 semitones."""
_MIN_GROUP_S = 0.8
"""Least voiced seconds of a group."""
_MAX_REGISTER_S = 30.0
"""Seconds of each speaker whose pitch is measured."""

_STEP_S = 0.01
"""Step of levels and pitches in seconds."""
_EDGE_SHARE = 0.3
"""Sound begins at this share of the way from the background level to the speech level, in dB."""
_FADED_SHARE = 0.15
"""The last sound of a word has died away below this share of the way from background to speech level."""
_FADE_S = 0.25
"""Longest time after a word in which its last sound may die away."""
_MAX_CONTRAST_DB = 35.0
"""The background level counts as at most this far below the speech level."""
_MAX_CLOSURE_S = 0.06
"""Longest silence inside the beginning of a word."""
_MAX_LAST_CLOSURE_S = 0.18
"""Longest silence before the last sound of a word, as in "asked". The recogniser may end the word at it."""
_MAX_ONSET_DELAY_S = 1.5
"""Longest time between the recogniser's start of a word and a later start of the sound."""
_MAX_ONSET_ADVANCE_S = 0.35
"""Longest time by which sound may begin before the recogniser's start of a word, or end after its end."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A word with its span, its highest level, and its pitch.

    `pitch` is in octaves above 1 Hz, one value for each voiced step of :data:`_STEP_S`.
    """

    text: str
    start_s: float
    end_s: float
    loudest_db: float
    pitch: Array

    @property
    def voiced_s(self) -> float:
        return len(self.pitch) * _STEP_S


_Sentence = Sequence[_Word]


def find_recogniser(recognisers: Mapping[str, Recogniser]) -> Recogniser | None:
    """Return the first recogniser whose model is installed, or None."""
    for each in recognisers.values():
        try:
            _ = each.version
        except Exception:  # noqa: BLE001, S112 - a plug-in may raise anything; try the next
            continue
        return each
    return None


def recognise(
    samples: Samples, recogniser: Recogniser, *, locale: str | None = None
) -> tuple[str, list[Cue]]:
    """Return the language and the sentences of a recording. If nobody speaks, the list is empty.

    The language is `locale` if it is given, otherwise the detected language.

    Parameters
    ----------
    samples
        Mono float32 in [-1, 1] at :data:`RATE_HZ`, ``(frames,)``. The array is read piece by piece, so it
        may be a memory map of a file.
    recogniser
        The recogniser to use.
    locale
        The locale of the recording. None detects the language.

    Raises
    ------
    Refused
        The recogniser detected another language than `locale`, with at least 80 % probability.
    EngineError
        The recogniser failed.
    """
    words: list[_Word] = []
    language = None
    for start, end in _split_at_quiet(samples):
        piece = np.array(samples[start:end])
        transcript = _recognise_piece(piece, recogniser, locale, language)
        if transcript.words:
            language = locale or transcript.language
            words += _time_words(transcript, piece, start / RATE_HZ)
    return language or locale or "", list(_build_utterances(words, samples, language or "")) if words else []


def measure_registers_hz(samples: Samples, utterances: Iterable[Cue]) -> dict[str, float]:
    """Return the median pitch of each speaker in Hz, in the order of their first utterances.

    The pitch is 0 for a speaker without voiced sound. About 30 seconds of each speaker are measured.
    """
    found: dict[str, list[Array]] = {}
    for each in utterances:
        pitches = found.setdefault(each.speaker, [np.zeros(0)])
        first = each.start_ms * RATE_HZ // 1000
        piece = samples[first : min(each.end_ms * RATE_HZ // 1000, first + round(_MAX_REGISTER_S * RATE_HZ))]
        if len(piece) and sum(map(len, pitches)) * _STEP_S < _MAX_REGISTER_S:
            pitches.append(_track_pitch(np.array(piece)))
    voiced = {name: np.concatenate(heard) for name, heard in found.items()}
    voiced = {name: octaves[np.isfinite(octaves)] for name, octaves in voiced.items()}
    return {name: float(2 ** np.median(one)) if len(one) else 0.0 for name, one in voiced.items()}


def find_audible_spans(samples: Samples, utterances: Iterable[Cue]) -> list[tuple[float, float]]:
    """Return start and end of utterances in seconds. An utterance ends after its last sound has died away.

    Parameters
    ----------
    samples
        As for :func:`recognise`.
    utterances
        Utterances with their times. An end may be too early, because the end of a word is often soft.
    """
    return [
        (start_s, end_s + _measure_fade_s(samples, start_s, end_s))
        for start_s, end_s in ((each.start_ms / 1000, each.end_ms / 1000) for each in utterances)
    ]


def _measure_fade_s(samples: Samples, start_s: float, end_s: float) -> float:
    levels = _SpanLevels.from_span(samples, start_s, end_s)
    if levels is None:
        return 0.0
    end = _convert_to_step(end_s - levels.from_s)
    loud = np.flatnonzero(levels.is_above(_FADED_SHARE)[end : end + round(_FADE_S / _STEP_S)])
    return (int(loud[-1]) + 1) * _STEP_S if len(loud) else 0.0


def _split_at_quiet(samples: Samples) -> Iterator[tuple[int, int]]:
    """Yield the first frame and the end (exclusive) of each piece. Pieces are cut at quiet places."""
    start = 0
    while len(samples) - start > _MAX_PIECE_S * RATE_HZ:
        first = start + round(_MIN_PIECE_S * RATE_HZ)
        last = start + round(_MAX_PIECE_S * RATE_HZ)
        level_db = measure.measure_frame_levels_db(samples[first:last], RATE_HZ, 1000 * _STEP_S)
        quiet_steps = round(_QUIET_WINDOW_S / _STEP_S)
        around_db = np.convolve(level_db, np.full(quiet_steps, 1 / quiet_steps), mode="valid")
        # Cut at the last of equally quiet places, because longer pieces need fewer calls.
        quiet_step = len(around_db) - 1 - int(np.argmin(around_db[::-1])) + quiet_steps // 2
        end = first + round(quiet_step * _STEP_S * RATE_HZ)
        yield start, end
        start = end
    if start < len(samples):
        yield start, len(samples)


def _recognise_piece(
    piece: Samples, recogniser: Recogniser, locale: str | None, known: str | None
) -> Transcript:
    """Return the transcript of a piece.

    `known` is the language of the pieces before, or None. It is used without detection. Raises Refused if
    the detected language certainly differs from `locale`.
    """
    recording = Recording(piece, RATE_HZ)
    if known is not None:
        return recogniser.recognise(recording, language=get_language(known), words=True)
    transcript = recogniser.recognise(recording, words=True)
    if locale is None or not transcript.words or transcript.language == get_language(locale):
        return transcript
    if (transcript.language_probability or 0.0) >= _CERTAIN_PROBABILITY:
        raise Refused(
            FailureCode.SOURCE_LANGUAGE_MISMATCH,
            f"the medium is in {transcript.language!r}, not in {locale!r}",
        )
    return recogniser.recognise(recording, language=get_language(locale), words=True)


def _time_words(transcript: Transcript, piece: Samples, at_s: float) -> list[_Word]:
    track = _track_pitch(piece)
    level_db = measure.measure_frame_levels_db(piece, RATE_HZ, 1000 * _STEP_S)
    words = []
    for word in transcript.words:
        start_s, end_s = word.start_ms / 1000, word.end_ms / 1000
        here = slice(_convert_to_step(start_s), _convert_to_step(end_s) + 1)
        pitch = track[here]
        loudest_db = float(level_db[here].max(initial=measure.FLOOR_DB))
        words.append(_Word(word.word, at_s + start_s, at_s + end_s, loudest_db, pitch[np.isfinite(pitch)]))
    return words


def _track_pitch(samples: Samples) -> Array:
    """Return the pitch in octaves above 1 Hz every :data:`_STEP_S`. Unvoiced steps are NaN."""
    f0_hz, _ = measure.f0_track(samples, RATE_HZ, hop_ms=1000 * _STEP_S)
    return np.where(f0_hz > 0, np.log2(np.maximum(f0_hz, 1.0)), np.nan)


def _build_utterances(words: Sequence[_Word], samples: Samples, language: str) -> Iterator[Cue]:
    sentences = list(_split_sentences(words))
    levels_db = [max(word.loudest_db for word in sentence) for sentence in sentences]
    audible_db = float(np.median(levels_db)) - _BACKGROUND_DB
    sentences = [
        sentence for sentence, level_db in zip(sentences, levels_db, strict=True) if level_db >= audible_db
    ]
    registers = _find_registers(sentences)
    turns = [turn for sentence in sentences for turn in _split_turns(sentence, registers)]
    names: dict[int, str] = {}
    spans = _find_turn_spans(turns, samples)
    joint = "" if get_language(language) in _UNSPACED_LANGUAGES else " "
    for turn, (start_s, end_s) in zip(turns, spans, strict=True):
        speaker = _find_nearest_register(turn, registers)
        name = names.setdefault(speaker, f"Speaker {len(names) + 1}")
        text = joint.join(word.text for word in turn)
        yield Cue(round(1000 * start_s), round(1000 * end_s), text, name)


def _split_sentences(words: Sequence[_Word]) -> Iterator[_Sentence]:
    first = 0
    for position, (word, following) in enumerate(pairwise(words), 1):
        is_end = word.text.rstrip(CLOSING_MARKS).endswith(tuple(SENTENCE_MARKS))
        if is_end or following.start_s - word.end_s > _LONGEST_GAP_S:
            yield words[first:position]
            first = position
    if first < len(words):
        yield words[first:]


def _find_registers(sentences: Sequence[_Sentence]) -> list[float]:
    """Return the mean pitch of each speaker in octaves above 1 Hz. There is at least one speaker."""
    spoken = [
        (_compute_median_pitch(sentence), sum(word.voiced_s for word in sentence)) for sentence in sentences
    ]
    known = sorted((pitch, voiced_s) for pitch, voiced_s in spoken if voiced_s)
    if not known:
        return [0.0]
    pitches, weights = (np.array(column) for column in zip(*known, strict=True))
    return _group_pitches(pitches, weights)


def _group_pitches(pitches: Array, weights: Array) -> list[float]:
    """Split sorted pitches into groups while two groups differ clearly. Return the mean pitch of each group.

    `weights` are the voiced seconds of each pitch.
    """
    mean = np.average(pitches, weights=weights)
    variance = np.average((pitches - mean) ** 2, weights=weights)
    best: tuple[float, int] = (0.0, 0)
    for cut in range(1, len(pitches)):
        low_s, high_s = weights[:cut].sum(), weights[cut:].sum()
        low = np.average(pitches[:cut], weights=weights[:cut])
        high = np.average(pitches[cut:], weights=weights[cut:])
        share = low_s * high_s / (low_s + high_s) ** 2 * (high - low) ** 2 / max(variance, 1e-12)
        is_group = min(low_s, high_s) >= _MIN_GROUP_S and high - low >= _MIN_DISTANCE_OCTAVES
        if is_group and share >= _MIN_BETWEEN_VARIANCE_SHARE:
            best = max(best, (float(share), cut))
    if cut := best[1]:
        return _group_pitches(pitches[:cut], weights[:cut]) + _group_pitches(pitches[cut:], weights[cut:])
    return [float(mean)]


def _split_turns(sentence: _Sentence, registers: Sequence[float]) -> list[_Sentence]:
    """Split a sentence at each change of register that lasts long enough to be another speaker."""
    marked: list[tuple[int, _Word]] = []
    for word in sentence:
        # A word without pitch belongs to the speaker of the word before it.
        takes_previous = not word.voiced_s and marked
        marked.append((marked[-1][0] if takes_previous else _find_nearest_register([word], registers), word))
    runs = [(register, [word for _, word in run]) for register, run in groupby(marked, itemgetter(0))]
    turns: list[tuple[int, list[_Word]]] = []
    for register, run in runs:
        if turns and (_is_short(run) or turns[-1][0] == register):
            turns[-1][1].extend(run)
        elif turns and _is_short(turns[-1][1]):
            turns[-1] = (register, [*turns[-1][1], *run])
        else:
            turns.append((register, run))
    return [run for _, run in turns]


def _is_short(turn: _Sentence) -> bool:
    return len(turn) < _SHORTEST_TURN_WORDS or sum(word.voiced_s for word in turn) < _SHORTEST_TURN_S


def _find_nearest_register(words: _Sentence, registers: Sequence[float]) -> int:
    pitch = _compute_median_pitch(words)
    return min(range(len(registers)), key=lambda number: abs(registers[number] - pitch))


def _compute_median_pitch(words: _Sentence) -> float:
    pitches = np.concatenate([word.pitch for word in words])
    return float(np.median(pitches)) if len(pitches) else 0.0


def _find_turn_spans(turns: Sequence[_Sentence], samples: Samples) -> list[tuple[float, float]]:
    """Return start and end of the sound of each turn, in seconds. Turns do not overlap."""
    spans: list[tuple[float, float]] = []
    end_s = 0.0
    for position, turn in enumerate(turns):
        following_s = turns[position + 1][0].start_s if position + 1 < len(turns) else len(samples) / RATE_HZ
        start_s, stop_s = _find_edges(turn, samples, end_s, max(following_s, turn[-1].end_s))
        start_s = max(start_s, end_s)
        end_s = max(stop_s, start_s + _STEP_S)
        spans.append((start_s, end_s))
    return spans


@dataclass(frozen=True, slots=True)
class _SpanLevels:
    """The levels around a span of speech, in dB.

    Attributes
    ----------
    from_s
        Time of the first step.
    level_db
        Level of each step of :data:`_STEP_S`.
    floor_db, loud_db
        Background level and speech level.
    """

    from_s: float
    level_db: Array
    floor_db: float
    loud_db: float

    @classmethod
    def from_span(cls, samples: Samples, start_s: float, end_s: float) -> Self | None:
        """Measure the levels around a span. Return None if the span has no samples."""
        from_s = max(0.0, start_s - _MAX_ONSET_DELAY_S)
        until_s = min(len(samples) / RATE_HZ, end_s + _MAX_ONSET_DELAY_S)
        around = np.array(samples[round(from_s * RATE_HZ) : round(until_s * RATE_HZ)])
        level_db = measure.measure_frame_levels_db(around, RATE_HZ, 1000 * _STEP_S)
        speech_db = level_db[_convert_to_step(start_s - from_s) : _convert_to_step(end_s - from_s) + 1]
        if not len(speech_db):
            return None
        loud_db = float(np.percentile(speech_db, 90))
        floor_db = max(float(np.percentile(level_db, 5)), loud_db - _MAX_CONTRAST_DB)
        return cls(from_s, level_db, floor_db, loud_db)

    def is_above(self, share: float) -> NDArray[np.bool_]:
        """Return a mask of the steps that exceed this share of the way from background to speech level."""
        return self.level_db > self.floor_db + share * (self.loud_db - self.floor_db)


def _find_edges(turn: _Sentence, samples: Samples, earliest_s: float, latest_s: float) -> tuple[float, float]:
    """Return start and end of the sound of a turn, by its level above the background."""
    first_s, last_s = turn[0].start_s, turn[-1].end_s
    around = _SpanLevels.from_span(samples, first_s, last_s)
    if around is None:
        return first_s, last_s
    from_s, is_loud = around.from_s, around.is_above(_EDGE_SHARE)
    start = _find_onset(
        is_loud,
        _convert_to_step(first_s - from_s),
        earliest=_convert_to_step(max(earliest_s, first_s - _MAX_ONSET_ADVANCE_S) - from_s),
        closure=_convert_to_step(_MAX_CLOSURE_S),
    )
    # Find the end by running the same search on the reversed array.
    end = len(is_loud) - _find_onset(
        is_loud[::-1],
        len(is_loud) - _convert_to_step(last_s - from_s),
        earliest=len(is_loud) - _convert_to_step(min(latest_s, last_s + _MAX_ONSET_ADVANCE_S) - from_s),
        closure=_convert_to_step(_MAX_LAST_CLOSURE_S),
    )
    return from_s + start * _STEP_S, from_s + end * _STEP_S


def _find_onset(is_loud: NDArray[np.bool_], near: int, *, earliest: int, closure: int) -> int:
    """Return the first step of the sound at `near`, or of the next sound if `near` is silent.

    Silences of at most `closure` steps do not interrupt a sound. If no sound follows in time, return `near`.
    """
    near = min(max(near, 0), len(is_loud) - 1)
    if not is_loud[near : near + closure].any():
        after = np.flatnonzero(is_loud[near : near + round(_MAX_ONSET_DELAY_S / _STEP_S)])
        return near + int(after[0]) if len(after) else near
    onset = near + int(np.flatnonzero(is_loud[near : near + closure])[0])
    for step in range(onset, max(earliest, 0) - 1, -1):
        if is_loud[step]:
            onset = step
        elif onset - step > closure:
            break
    return onset


def _convert_to_step(seconds: float) -> int:
    return max(0, round(seconds / _STEP_S))
