"""A job in its folder, step by step: what is there already is not made again."""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from speechframe.dubbing import hear, languages, lines, script
from speechframe.dubbing.cast import cast, is_able
from speechframe.dubbing.fit import Line, Placed, fit
from speechframe.dubbing.folder import (
    SOURCE,
    Failure,
    JsonFile,
    Outcome,
    Step,
    Task,
    failure_path,
    outcome_path,
    task_path,
    written,
)
from speechframe.dubbing.hear import Heard, HeardUtterance
from speechframe.dubbing.media import Track, extract, mux, probe
from speechframe.dubbing.mix import Spoken, mix
from speechframe.engines import registry, whisper
from speechframe.engines.registry import CatalogueEntry
from speechframe.engines.translation import Routes, UnknownPair
from speechframe.errors import EngineError, SpeechframeError
from speechframe.spec.chosen import MAX_DUB_SECONDS
from speechframe.spec.dubbing import DubbedUtterance, FailureCode
from speechframe.wire import cues

__all__ = ["work"]

_log = logging.getLogger("speechframe.dubbing")

Tell = Callable[[Step], None]
_AUDIO = "audio"
_MASK_MS = 10


class _Refused(Exception):
    """A job, or a locale of it, that cannot be done, and why."""

    def __init__(self, code: FailureCode, reason: str) -> None:
        self.failure = Failure(code=code, reason=reason)
        super().__init__(reason)


class _Speakers(JsonFile):
    """Speakers and the pitch of each in Hz."""

    registers: Mapping[str, float]


class _Translated(JsonFile):
    """What is said in a locale, an utterance each, before anybody corrects it."""

    texts: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Said:
    """What is to be dubbed: it is the same for all locales."""

    task: Task
    folder: Path
    track: Track
    heard: Heard
    registers: Mapping[str, float]


def work(folder: Path, tell: Tell) -> None:
    """Do what the task in a folder asks for; whatever fails is in the folder's files.

    Parameters
    ----------
    folder
        As :mod:`speechframe.dubbing.folder` says.
    tell
        Called when a step begins, and while it goes on.
    """
    task = Task.read(task_path(folder))
    if task is None:
        raise FileNotFoundError(f"{task_path(folder)} is missing")
    wanted = [locale for locale in task.targets if not _is_made(task, folder, locale)]
    if not wanted or failure_path(folder).exists():
        return
    try:
        _dub_all(task, folder, wanted, tell)
    except _Refused as refused:
        refused.failure.write(failure_path(folder))
    except Exception as error:  # noqa: BLE001 - the service reads the file, whatever went wrong
        _failure(error).write(failure_path(folder))
    # It is many times the size of the medium, and made again within seconds where something is corrected.
    shutil.rmtree(folder / _AUDIO, ignore_errors=True)


def _dub_all(task: Task, folder: Path, locales: Sequence[str], tell: Tell) -> None:
    said = _heard(task, folder, tell)
    for locale in locales:
        try:
            outcome = _dubbed(said, locale, tell)
        except _Refused as refused:
            outcome = Outcome(version=task.version, failure=refused.failure)
        except Exception as error:  # noqa: BLE001 - the other locales go on
            outcome = Outcome(version=task.version, failure=_failure(error))
        outcome.write(outcome_path(folder, locale))
        tell(Step(locale=locale, step="done", share=1.0))


def _failure(error: Exception) -> Failure:
    _log.exception("a job failed")
    named = getattr(error, "strerror", None) or type(error).__name__
    words = str(error) if isinstance(error, SpeechframeError) else named
    return Failure(code=FailureCode.SERVER_ERROR, reason=words)


def _is_made(task: Task, folder: Path, locale: str) -> bool:
    """Return whether the outcome is there; where nothing of it is corrected, it is of the new version too."""
    outcome = Outcome.read(outcome_path(folder, locale))
    if outcome is None:
        return False
    if outcome.version < task.version and not task.corrections.get(locale):
        outcome.model_copy(update={"version": task.version}).write(outcome_path(folder, locale))
        return True
    return outcome.version == task.version


def _heard(task: Task, folder: Path, tell: Tell) -> _Said:
    """Return who says what, as it is written down or as it is recognised."""
    tell(Step(locale=None, step="audio"))
    (folder / _AUDIO).mkdir(exist_ok=True)
    track = Track.read(folder / _AUDIO) or extract(folder / SOURCE, folder / _AUDIO)
    heard = Heard.read(folder / "heard.json")
    if heard is None:
        tell(Step(locale=None, step="recognise"))
        heard = _read(task, track) if task.script is not None else _recognised(task, track, tell)
        heard.write(folder / "heard.json")
    if not heard.utterances:
        raise _Refused(FailureCode.SPEECH_NOT_PRESENT, "nobody speaks in the medium")
    speakers = _Speakers.read(folder / "speakers.json")
    if speakers is None:
        speakers = _Speakers(registers=hear.registers_hz(track.speech, heard.utterances))
        speakers.write(folder / "speakers.json")
    return _Said(task, folder, track, heard, speakers.registers)


def _read(task: Task, track: Track) -> Heard:
    locale = task.script_locale or task.source_locale
    known = {route.locales[0].partition("-")[0] for route in Routes(registry.translators()).supported()}
    try:
        heard = script.read(task.script or "", locale=locale, languages=sorted(known))
    except ValueError as error:
        raise _Refused(FailureCode.SERVER_ERROR, f"the script cannot be read: {error}") from None
    media_ms = round(1000 * track.seconds)
    inside = (
        utterance.model_copy(update={"end_ms": min(utterance.end_ms, media_ms)})
        for utterance in heard.utterances
        if utterance.start_ms < media_ms and lines.is_speakable(utterance.text)
    )
    return Heard(locale=heard.locale, utterances=tuple(inside))


def _recognised(task: Task, track: Track, tell: Tell) -> Heard:
    recogniser = languages.recogniser(registry.recognisers())
    if recogniser is None:
        raise _Refused(
            FailureCode.LANGUAGE_NOT_SUPPORTED,
            "nothing here recognises speech: pip install 'speechframe[dub]', or give a script",
        )
    try:
        return hear.heard(
            track.speech,
            recogniser,
            locale=task.source_locale,
            progress=lambda share: tell(Step(locale=None, step="recognise", share=share)),
        )
    except hear.OtherLanguage as other:
        raise _Refused(FailureCode.SOURCE_LANGUAGE_MISMATCH, str(other)) from None
    finally:
        # Nothing is recognised any more, and the voices need the memory.
        whisper.unload()


def _dubbed(said: _Said, locale: str, tell: Tell) -> Outcome:
    """Dub into a locale; what is made on the way stays in its folder."""
    folder = said.folder / locale
    originals = said.heard.utterances
    tell(Step(locale=locale, step="translate"))
    translated = _Translated.read(folder / "translated.json")
    if translated is None:
        translated = _translated(said.heard, locale)
        translated.write(folder / "translated.json")
    wanted, warnings = _wanted(said, locale, translated.texts)
    before = _before(folder)
    naturals = []
    for place, (text, voice) in enumerate(wanted):
        tell(Step(locale=locale, step="speak", share=place / len(wanted)))
        try:
            natural = lines.speak(text, voice, locale, folder / "lines")
        except EngineError as error:
            if place not in before:
                raise
            warnings.append(f"utterance {place + 1} is as it was: {error}")
            wanted[place] = before[place]
            natural = lines.speak(*before[place], locale, folder / "lines")
        naturals.append(natural)
    tell(Step(locale=locale, step="mix"))
    placed = fit(
        [
            Line(original.start_ms / 1000, original.end_ms / 1000, natural.seconds)
            for original, natural in zip(originals, naturals, strict=True)
        ],
        said.track.seconds,
    )
    media, content_type = _mixed(said, locale, naturals, placed)
    utterances = tuple(
        _utterance(number, *facts)
        for number, facts in enumerate(zip(originals, wanted, placed, naturals, strict=True), 1)
    )
    return Outcome(
        version=said.task.version,
        media=media,
        content_type=content_type,
        srt="dub.srt",
        vtt="dub.vtt",
        utterances=utterances,
        overlap=_overlap(utterances),
        cues_over=_subtitled(utterances, folder, round(1000 * said.track.seconds)),
        warnings=(*translated.warnings, *warnings),
    )


def _translated(heard: Heard, locale: str) -> _Translated:
    sources = [utterance.text for utterance in heard.utterances]
    try:
        texts, warnings = lines.translate(sources, heard.locale or "", locale)
    except UnknownPair as unknown:
        raise _Refused(FailureCode.LANGUAGE_NOT_SUPPORTED, str(unknown)) from None
    kept = (text if lines.is_speakable(text) else source for text, source in zip(texts, sources, strict=True))
    return _Translated(texts=tuple(kept), warnings=warnings)


def _wanted(
    said: _Said, locale: str, texts: Sequence[str]
) -> tuple[list[tuple[str, CatalogueEntry]], list[str]]:
    """Return what is said by which voice, corrections among it, and what could not be done as asked."""
    known = languages.voices()
    voices = cast(said.registers, locale, known, said.task.cast)
    if not voices:
        raise _Refused(FailureCode.LANGUAGE_NOT_SUPPORTED, f"no voice here speaks {locale}")
    warnings = [
        f"{voice_id} does not speak {locale}; {voices[speaker]} speaks for {speaker}"
        for speaker, voice_id in said.task.cast.items()
        if speaker in voices and voices[speaker] != voice_id
    ]
    wanted = [
        (text, known[voices[utterance.speaker]])
        for text, utterance in zip(texts, said.heard.utterances, strict=True)
    ]
    for correction in said.task.corrections.get(locale, ()):
        place = correction.utterance_id - 1
        if not 0 <= place < len(wanted):
            warnings.append(f"there is no utterance {correction.utterance_id}")
            continue
        text, voice = wanted[place]
        if correction.text is not None:
            text = correction.text
        if correction.voice_id is not None:
            if is_able(correction.voice_id, locale, known):
                voice = known[correction.voice_id]
            else:
                warnings.append(f"{correction.voice_id} does not speak {locale}")
        wanted[place] = (text, voice)
    return wanted, warnings


def _before(folder: Path) -> dict[int, tuple[str, CatalogueEntry]]:
    """Return what the version before says, by the place of an utterance; nothing where this is the first."""
    known, outcome = languages.voices(), Outcome.read(outcome_path(folder.parent, folder.name))
    return {
        each.utterance_id - 1: (each.text, known[each.voice_id])
        for each in (outcome.utterances if outcome is not None else ())
        if each.voice_id in known
    }


def _mixed(
    said: _Said, locale: str, naturals: Sequence[lines.Natural], placed: Sequence[Placed]
) -> tuple[str, str]:
    """Write the medium with the other audio; return its name and its type."""
    folder, source = said.folder / locale, said.folder / SOURCE
    kind = probe(source, max_seconds=MAX_DUB_SECONDS)
    mixed, media = folder / "mixed.wav", f"dub.{kind.container}"
    both = list(zip(naturals, placed, strict=True))
    mix(
        said.track,
        [Spoken(place.start_s, lines.fitted(natural, place.speed)) for natural, place in both],
        mixed,
        lowered=[
            *hear.audible_spans(said.track.speech, said.heard.utterances),
            *((place.start_s, place.start_s + natural.seconds / place.speed) for natural, place in both),
        ],
        gain_db=said.task.original_gain_db,
    )
    mux(source, mixed, folder / media, language=locale, container=kind.container)
    mixed.unlink()
    return media, kind.content_type


def _utterance(
    number: int,
    original: HeardUtterance,
    wanted: tuple[str, CatalogueEntry],
    placed: Placed,
    natural: lines.Natural,
) -> DubbedUtterance:
    text, entry = wanted
    return DubbedUtterance(
        utterance_id=number,
        start_ms=original.start_ms,
        end_ms=original.end_ms,
        speaker=original.speaker,
        source_text=original.text,
        text=text,
        voice_id=entry.voice.voice_id,
        dub_start_ms=round(1000 * placed.start_s),
        dub_end_ms=round(1000 * (placed.start_s + natural.seconds / placed.speed)),
        speed=placed.speed,
        fit=placed.fit,
    )


def _subtitled(utterances: Sequence[DubbedUtterance], folder: Path, media_ms: int) -> int:
    """Write the cues of a dub; return how many of them miss the aims."""
    timed = [
        cues.Timed(each.dub_start_ms, each.dub_end_ms, each.text, speaker=each.speaker) for each in utterances
    ]
    made, over = cues.cues(timed, media_ms)
    for name, text in (("dub.srt", cues.srt(made)), ("dub.vtt", cues.vtt(made))):
        with written(folder / name) as beside:
            beside.write_text(text, encoding="utf-8")
    return over


def _overlap(utterances: Sequence[DubbedUtterance]) -> float:
    """Return the share of the time in which original or dub speak, in which both do."""
    steps = max(max(each.end_ms, each.dub_end_ms) for each in utterances) // _MASK_MS + 1
    original, dub = np.zeros(steps, bool), np.zeros(steps, bool)
    for each in utterances:
        original[each.start_ms // _MASK_MS : each.end_ms // _MASK_MS] = True
        dub[each.dub_start_ms // _MASK_MS : each.dub_end_ms // _MASK_MS] = True
    return float((original & dub).sum() / max(1, (original | dub).sum()))
