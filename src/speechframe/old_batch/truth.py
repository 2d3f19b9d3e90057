"""Whether an answer can be true: its audio, its words and its length against its text and each other.

A service may answer 200 and still be wrong: the audio of another row, half of
it, silence. Each check here is cheap and errs on the side of the answer; what
it finds is told in figures, and the row is called suspect, not failed.
"""

from collections.abc import Sequence

from speechframe.audio.levels import levels
from speechframe.errors import AudioError
from speechframe.old_batch.doubt import Doubt, Reason
from speechframe.old_batch.operation import Planned
from speechframe.old_batch.pace import Load, Pace, load_of
from speechframe.old_batch.wording import Coverage, WordHabits, coverage
from speechframe.old_client import Spoken
from speechframe.old_client.changer import upload_in
from speechframe.old_store import Record
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import read_clamped
from speechframe.spec.speech import Format, GenerateRequest

__all__ = ["ClipTruth", "Doubt", "Suspicion", "Truth"]

_LOSSY = frozenset({Format.MP3, Format.OGG})
_LENGTH_TOLERANCE = 0.01
_LENGTH_TOLERANCE_S = 0.05
_LOSSY_TOLERANCE_S = 0.15
"""Lossy encoders fill up their last frame and the delay of their filters: up to 0.14 s at 8000 Hz."""
_WORDS_TOLERANCE_MS = 100.0
_AFTER_WORDS_S = 1.0
_AFTER_WORDS = 0.2
"""Of the audio: signs and emoji at the end of a text may have no entry."""
_ASKED_TOLERANCE = 0.1
_ASKED_TOLERANCE_S = 0.25
_CLIP_TOLERANCE = 0.05
_CLIP_TOLERANCE_S = 0.15
_EXACT_TOLERANCE_S = 0.05
"""A length that was asked of the voice changer is kept to the sample; encoders add a frame."""
_COVERED = 0.65
_FEWEST_MISSING = 6
"""Letters; fewer may be a matter of spelling ("OK", "Dr.")."""
_SILENT_PEAK_DB = -40.0
_SILENT_RMS_DB = -60.0
_NOISE_CORRELATION = 0.05
_CLIPPED_FRACTION = 0.0003
_MOST_SAMPLES = 1 << 26
"""Of one answer: 25 minutes at 44100 Hz. Its audio is looked at while other calls wait."""
_MOST_ODD_SAMPLES = 1 << 22
"""Of an answer whose length alone makes it suspect: a minute and a half. A megabyte can stand for hours."""


class Suspicion(Reason):
    """Why an answer is suspect, each with what it means.

    Examples
    --------
    >>> Suspicion("silent").meaning
    'the audio is silent though there is something to say'
    """

    UNDECODABLE = "undecodable", "the audio is damaged or ends before its header says so"
    LENGTH = "length", "the answer says another length than the audio has"
    WORDS_OUTSIDE = "words_outside", "words begin or end outside the audio"
    WORDS_MISSING = "words_missing", "the words of the answer are not those of the text"
    PACE = "pace", "the audio is too short or too long for the text or clip"
    SILENT = "silent", "the audio is silent though there is something to say"
    NOISE = "noise", "the samples are noise, not a voice"
    CLIPPED = "clipped", "the audio was made too loud and its peaks are cut off"


MAY_BE_ANOTHER_S = frozenset({Suspicion.WORDS_MISSING, Suspicion.PACE})
"""What speaks against the answer of another row: in itself that is as good as any."""

_LENGTHS = frozenset({Suspicion.LENGTH, Suspicion.PACE})


class Truth:
    """Looks at the answers of one run, one after the other.

    What is usual for a voice is learned from the answers in which nothing was
    found; so the same answers in the same order give the same doubts. Memory
    does not grow with rows. Not thread-safe.

    Examples
    --------
    >>> truth = Truth()
    >>> truth.doubts(planned, answer)  # doctest: +SKIP
    (Doubt(code=<Suspicion.LENGTH: 'length'>, words='the answer says 3.20 s, the audio holds 1.10 s'),)
    """

    def __init__(self) -> None:
        self._pace = Pace()
        self._habits = WordHabits()

    def doubts(self, planned: Planned, answer: Spoken, record: Record | None = None) -> tuple[Doubt, ...]:
        """Return everything that speaks against an answer; nothing as a rule.

        Parameters
        ----------
        planned
            What was asked for.
        answer
            What came.
        record
            Not looked at: it says the same.
        """
        del record
        request = planned.call.request
        load = load_of(planned.text)
        locale = (planned.model, planned.locale)
        keys = (
            (planned.model, planned.voice_id, planned.locale, request.style, request.rate),
            (planned.model, planned.locale, request.rate),
        )
        covered = coverage(planned.text, answer.words, except_for=request.pronunciation_dictionary or ())
        # Streams know no length that could be asked for.
        asked_s = _asked_s(request, answer) if isinstance(request, GenerateRequest) else None
        found = [
            _of_length(answer),
            _of_word_times(answer),
            self._of_words(covered, answer, locale),
            _of_asked_length(answer, asked_s) if asked_s else _of_last_word(load, answer),
            None if asked_s else self._of_pace(load, answer, keys, request.rate),
        ]
        doubts = _with_sound(found, answer)
        if not doubts:
            if not asked_s:
                self._pace.learn(load, keys, answer.audio_seconds)
            if covered.letters:
                self._habits.learn(locale, matched=covered.covered > 0)
        return doubts

    def _of_words(self, covered: Coverage, answer: Spoken, locale: object) -> Doubt | None:
        missing = covered.letters - covered.covered
        if missing < _FEWEST_MISSING or covered.covered >= _COVERED * covered.letters:
            return None
        if (covered.foreign or not answer.words) and not self._habits.usual(locale):
            return None
        return Doubt(
            Suspicion.WORDS_MISSING,
            f"{missing} of the text's {covered.letters} letters are not in the answer's words"
            if answer.words
            else "the answer has no words; others of this locale had some",
        )

    def _of_pace(
        self, load: Load, answer: Spoken, keys: tuple[object, ...], rate: int | None
    ) -> Doubt | None:
        low_s, high_s = self._pace.bounds_s(load, keys, rate=rate or 0)
        if low_s <= answer.audio_seconds <= high_s:
            return None
        return Doubt(
            Suspicion.PACE,
            f"the audio lasts {answer.audio_seconds:.2f} s; "
            f"such a text takes this voice {low_s:.2f} to {high_s:.2f} s",
        )


class ClipTruth:
    """Looks at the answers of the voice changer: each against its clip."""

    @staticmethod
    def doubts(planned: Planned, answer: Spoken, record: Record | None = None) -> tuple[Doubt, ...]:
        """Return everything that speaks against an answer; see :meth:`Truth.doubts`."""
        del record
        clip_seconds = upload_in(planned.call).audio_seconds
        return _with_sound([_of_length(answer), _of_clip(answer, planned.call.request, clip_seconds)], answer)


def _with_sound(found: Sequence[Doubt | None], answer: Spoken) -> tuple[Doubt, ...]:
    """Return the doubts that were found, and the one that the audio itself gives."""
    doubts = [doubt for doubt in found if doubt is not None]
    is_odd = not _LENGTHS.isdisjoint([doubt.code for doubt in doubts])
    of_sound = _of_sound(answer, _MOST_ODD_SAMPLES if is_odd else _MOST_SAMPLES)
    return (*doubts, of_sound) if of_sound is not None else tuple(doubts)


def _of_clip(answer: Spoken, request: ConvertRequest, clip_seconds: float) -> Doubt | None:
    """Doubt audio that is not as long as its clip, or as was asked."""
    lossy_s = _LOSSY_TOLERANCE_S if answer.format in _LOSSY else 0.0
    if asked_s := _asked_s(request, answer):
        wanted_s, why = asked_s, "were asked for"
        tolerance_s = _EXACT_TOLERANCE_S
    elif request.rate:
        return None
    else:
        wanted_s, why = clip_seconds, "is the length of the clip"
        tolerance_s = _CLIP_TOLERANCE_S + _CLIP_TOLERANCE * clip_seconds
    if abs(answer.audio_seconds - wanted_s) <= tolerance_s + lossy_s:
        return None
    return Doubt(Suspicion.PACE, f"{wanted_s:.2f} s {why}, the audio lasts {answer.audio_seconds:.2f} s")


def _asked_s(request: GenerateRequest | ConvertRequest, answer: Spoken) -> float | None:
    """Return the length that was asked for, or what the service says it was set to."""
    clamped = (read_clamped(warning) for warning in answer.warnings)
    return next((seconds for seconds in clamped if seconds), request.audio_duration)


def _of_length(answer: Spoken) -> Doubt | None:
    said_s, audio_s = answer.said_seconds, answer.audio_seconds
    if said_s is None:
        return None
    tolerance_s = _LOSSY_TOLERANCE_S if answer.format in _LOSSY else _LENGTH_TOLERANCE_S
    if abs(said_s - audio_s) <= tolerance_s + _LENGTH_TOLERANCE * audio_s:
        return None
    return Doubt(Suspicion.LENGTH, f"the answer says {said_s:.2f} s, the audio holds {audio_s:.2f} s")


def _of_asked_length(answer: Spoken, asked_s: float) -> Doubt | None:
    if abs(asked_s - answer.audio_seconds) <= _ASKED_TOLERANCE_S + _ASKED_TOLERANCE * asked_s:
        return None
    return Doubt(
        Suspicion.PACE, f"{asked_s:.2f} s were asked for, the audio lasts {answer.audio_seconds:.2f} s"
    )


def _of_word_times(answer: Spoken) -> Doubt | None:
    audio_ms = 1000 * answer.audio_seconds
    limit_ms = (1 + _LENGTH_TOLERANCE) * audio_ms + _WORDS_TOLERANCE_MS
    outside = [word for word in answer.words if word[1] < 0 or word[2] > limit_ms or word[1] > limit_ms]
    if not outside:
        return None
    word, start_ms, end_ms = outside[0]
    return Doubt(
        Suspicion.WORDS_OUTSIDE,
        f"{len(outside)} of {len(answer.words)} words lie outside the audio of {audio_ms:.0f} ms, "
        f"such as {word[:40]!r} from {start_ms} to {end_ms} ms",
    )


def _of_last_word(load: Load, answer: Spoken) -> Doubt | None:
    """Doubt audio that goes on long after its last word."""
    if not answer.words:
        return None
    last_s = max([end_ms for _, _, end_ms in answer.words]) / 1000
    allowed_s = _AFTER_WORDS_S + _AFTER_WORDS * answer.audio_seconds + load.pause_s
    if answer.audio_seconds - last_s <= allowed_s:
        return None
    return Doubt(
        Suspicion.WORDS_MISSING,
        f"the last word ends at {last_s:.2f} s, the audio at {answer.audio_seconds:.2f} s",
    )


def _of_sound(answer: Spoken, most_samples: int) -> Doubt | None:
    try:
        found = levels(
            answer.audio, format=answer.format, channels=answer.channels, most_samples=most_samples
        )
    except AudioError as error:
        return Doubt(Suspicion.UNDECODABLE, str(error))
    if found.peak_db < _SILENT_PEAK_DB or found.rms_db < _SILENT_RMS_DB:
        return Doubt(
            Suspicion.SILENT,
            f"the loudest sample is at {found.peak_db:.0f} dB, the mean level at {found.rms_db:.0f} dB",
        )
    if abs(found.correlation) < _NOISE_CORRELATION:
        return Doubt(
            Suspicion.NOISE,
            f"no sample says anything about the next (correlation {found.correlation:.2f}), as in noise",
        )
    if found.clipped_fraction > _CLIPPED_FRACTION:
        return Doubt(
            Suspicion.CLIPPED,
            f"{found.clipped_fraction:.2%} of the samples stand in rows of three or more at full scale",
        )
    return None
