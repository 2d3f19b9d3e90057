"""A dubbing job in its folder, step by step. A step whose files exist is not repeated.

``python -m speechframe.local.dubbing.job FOLDER PARENT_PID`` is the process that does a job. It prints a line
of JSON for each step, with a locale and a word. The outcomes are files of the folder. The process ends with
status 0 even if locales failed. It also ends with its parent.
"""

import json
import logging
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from speechframe.engines import registry
from speechframe.engines.faults import CALLER_WORDS, without_paths
from speechframe.engines.kinds import SPEAKERS, TRANSLATORS
from speechframe.errors import EngineError, EngineFault, SpeechframeError
from speechframe.local.dubbing import hear, lines, script
from speechframe.local.dubbing.cast import cast, voices
from speechframe.local.dubbing.fit import TimedLine, fit
from speechframe.local.dubbing.folder import (
    DUB,
    OUTCOME,
    SOURCE,
    SRT,
    TASK,
    VTT,
    Failure,
    JsonFile,
    LocaleOutcome,
    Refused,
    Task,
    written,
)
from speechframe.local.dubbing.media import Track, container_of, extract, mux, warning_of
from speechframe.local.dubbing.mix import PlacedLine, mix
from speechframe.local.engines.translation.language import detected
from speechframe.local.engines.translation.routes import Routes, UnknownPair
from speechframe.local.engines.whisper import recogniser as whisper
from speechframe.processes.parent import die_with_parent
from speechframe.spec.dubbing import DubbedUtterance, FailureCode
from speechframe.wire import cues
from speechframe.wire.cues import Cue

__all__ = ["work"]

_log = logging.getLogger("speechframe.dubbing")

Tell = Callable[[str | None, str], None]
"""A function of a locale, or None for all locales, and the word for the step that begins."""
_NICE = 15
"""Niceness of the process. All other work of the machine goes first."""
_AUDIO = "audio"
_HEARD = "heard.json"
_MASK_MS = 10
_SLACK_S = 1.0
"""The service measured the medium, too, and checked the text with that length. Both may differ a little."""


class _MediumSpeech(JsonFile):
    """The locale and the utterances of a medium, the pitch of each speaker in Hz, and warnings."""

    locale: str
    utterances: tuple[Cue, ...]
    registers: Mapping[str, float]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _DubInput:
    """The input of a dub, the same for all locales."""

    task: Task
    folder: Path
    track: Track
    heard: _MediumSpeech


def work(folder: Path, tell: Tell) -> None:
    """Do the task of a folder, and write an outcome for each locale, failed or not.

    Parameters
    ----------
    folder
        The folder of a job, see :mod:`speechframe.local.dubbing.folder`.
    tell
        Called when a step begins.
    """
    task = Task.read(folder / TASK)
    if task is None:
        raise FileNotFoundError(f"{folder / TASK} is missing")
    said = None
    # A locale at which a process died comes last, so that it takes no other locale with it.
    for locale in sorted(task.targets, key=lambda locale: (folder / locale).exists()):
        path = folder / locale / OUTCOME
        before = LocaleOutcome.read(path)
        if task.is_done(locale, before):
            continue
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            said = said or _recognise(task, folder, tell)
            _dub(said, locale, before, tell)
        except Exception as error:  # noqa: BLE001 - the other locales go on
            kept = before or LocaleOutcome(version=task.version)
            kept.model_copy(update={"version": task.version, "failure": _failure(error)}).write(path)
        tell(locale, "done")
    # The audio is many times the size of the medium. A correction extracts it again within seconds.
    shutil.rmtree(folder / _AUDIO, ignore_errors=True)


def _failure(error: Exception) -> Failure:
    if isinstance(error, Refused):
        return error.failure
    _log.exception("a dub failed")
    if isinstance(error, soundfile.LibsndfileError):
        # The library does not pass on why the system refused.
        words = f"a sound file cannot be written or read ({error.error_string}): the disk may be full"
    elif isinstance(error, EngineFault):
        words = f"an engine failed: {CALLER_WORDS}"
    elif isinstance(error, SpeechframeError):
        words = without_paths(str(error))
    else:
        words = getattr(error, "strerror", None) or type(error).__name__
    return Failure(code=FailureCode.SERVER_ERROR, reason=words)


def _recognise(task: Task, folder: Path, tell: Tell) -> _DubInput:
    """Return the utterances of the medium, from the script or from the recogniser."""
    tell(None, "audio")
    (folder / _AUDIO).mkdir(exist_ok=True)
    track = extract(folder / SOURCE, folder / _AUDIO, locale=task.source_locale)
    heard = _MediumSpeech.read(folder / _HEARD)
    if heard is None:
        tell(None, "recognise")
        warning = warning_of(folder / SOURCE, locale=task.source_locale)
        warnings = [] if warning is None else [warning]
        if task.script is None:
            locale, said = _transcribe(task, track)
        else:
            locale, (said, more) = _written(task, track)
            warnings += more
        registers = hear.registers_hz(track.speech, said)
        heard = _MediumSpeech(
            locale=locale, utterances=tuple(said), registers=registers, warnings=tuple(warnings)
        )
        heard.write(folder / _HEARD)
    if not heard.utterances:
        raise Refused(FailureCode.SPEECH_NOT_PRESENT, "nobody speaks in the medium")
    return _DubInput(task, folder, track, heard)


def _written(task: Task, track: Track) -> tuple[str, script.Script]:
    """Return the locale of the script, and its speech that begins within the medium."""
    try:
        read = script.speech_within(task.script or "", track.seconds, cast=task.cast, slack_s=_SLACK_S)
    except ValueError as error:
        raise Refused(FailureCode.SERVER_ERROR, f"the script cannot be used: {error}") from None
    locale = task.script_locale or task.source_locale
    if locale is None and read.cues:
        known = {
            route.locales[0].partition("-")[0] for route in Routes(registry.working(TRANSLATORS)).supported()
        }
        found = Counter(detected([cue.text for cue in read.cues], sorted(known)))
        locale = found.most_common(1)[0][0]
    return locale or "", read


def _transcribe(task: Task, track: Track) -> tuple[str, list[Cue]]:
    recogniser = hear.installed(registry.recognisers())
    if recogniser is None:
        raise Refused(
            FailureCode.LANGUAGE_NOT_SUPPORTED,
            "nothing here recognises speech: pip install 'speechframe[dub]', or give a script",
        )
    try:
        return hear.recognise(track.speech, recogniser, locale=task.source_locale)
    finally:
        # The recogniser has done its work, and the voices need the memory.
        whisper.unload()


def _dub(said: _DubInput, locale: str, before: LocaleOutcome | None, tell: Tell) -> None:
    """Dub into a locale, or correct the dub of before, and write the outcome."""
    folder, source, originals = said.folder / locale, said.folder / SOURCE, said.heard.utterances
    tell(locale, "translate")
    if before is None:
        wanted, warnings = _translated(said, locale)
    else:
        wanted, warnings = _corrected(said, before), [*before.warnings]
    known = voices(registry.working(SPEAKERS))
    naturals, kept = [], folder / "lines"
    tell(locale, "speak")
    lines.remove_others([lines.path_of(text, known[voice], locale, kept) for text, voice in wanted], kept)
    for number, (text, voice_id) in enumerate(wanted, 1):
        try:
            naturals.append(lines.speak(text, known[voice_id], locale, kept))
        except EngineFault:
            raise
        except EngineError as error:
            raise EngineError(f"utterance {number}: {error}") from None
    tell(locale, "mix")
    slots = [
        TimedLine(original.start_ms / 1000, original.end_ms / 1000, lines.seconds_of(natural))
        for original, natural in zip(originals, naturals, strict=True)
    ]
    placed = fit(slots, said.track.seconds)
    utterances = tuple(
        DubbedUtterance(
            utterance_id=number,
            start_ms=original.start_ms,
            end_ms=original.end_ms,
            speaker=original.speaker,
            source_text=original.text,
            text=text,
            voice_id=voice_id,
            dub_start_ms=round(1000 * place.start_s),
            dub_end_ms=round(1000 * (place.start_s + slot.natural_s / place.speed)),
            speed=place.speed,
            fit=place.fit,
        )
        for number, (original, (text, voice_id), place, slot) in enumerate(
            zip(originals, wanted, placed, slots, strict=True), 1
        )
    )
    spoken = [
        PlacedLine(place.start_s, lines.fitted(natural, place.speed))
        for natural, place in zip(naturals, placed, strict=True)
    ]
    container = container_of(source)
    media = f"{DUB}.{container}"
    shown, cues_over = cues.cues(
        [Cue(each.dub_start_ms, each.dub_end_ms, each.text, each.speaker) for each in utterances],
        round(1000 * said.track.seconds),
    )
    mixed = said.track.folder / "mixed.wav"
    dubs = [(each.dub_start_ms / 1000, each.dub_end_ms / 1000) for each in utterances]
    lowered = [*hear.audible_spans(said.track.speech, originals), *dubs]
    mix(said.track, spoken, mixed, lowered=lowered, gain_db=said.task.original_gain_db)
    # All files of a version appear or none, even on a full disk. The outcome is last.
    with (
        written(folder / OUTCOME) as outcome_path,
        written(folder / media) as media_path,
        written(folder / SRT) as srt_path,
        written(folder / VTT) as vtt_path,
    ):
        left_out = mux(source, mixed, media_path, language=locale, container=container)
        outcome = LocaleOutcome(
            version=said.task.version,
            media=media,
            utterances=utterances,
            overlap=_overlap(utterances),
            cues_over=cues_over,
            # A correction has the warnings of the dub before.
            warnings=tuple(dict.fromkeys((*warnings, *((left_out,) if left_out else ())))),
        )
        srt_path.write_text(cues.srt(shown), encoding="utf-8")
        vtt_path.write_text(cues.vtt(shown), encoding="utf-8")
        outcome.write(outcome_path)


def _translated(said: _DubInput, locale: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the text and the voice id of each utterance, and the warnings."""
    utterances = said.heard.utterances
    try:
        texts, warnings = lines.translate([each.text for each in utterances], said.heard.locale, locale)
    except UnknownPair as unknown:
        raise Refused(FailureCode.LANGUAGE_NOT_SUPPORTED, str(unknown)) from None
    chosen = cast(said.heard.registers, locale, voices(registry.working(SPEAKERS)), said.task.cast)
    if not chosen:
        raise Refused(
            FailureCode.LANGUAGE_NOT_SUPPORTED,
            f"no voice here speaks {locale}; `speechframe models` shows how to add one",
        )
    missed = [
        f"{voice_id} does not speak {locale}; {chosen[speaker]} speaks for {speaker}"
        for speaker, voice_id in said.task.cast.items()
        if chosen.get(speaker, voice_id) != voice_id
    ]
    wanted = [
        (text if lines.is_speakable(text) else each.text, chosen[each.speaker])
        for text, each in zip(texts, utterances, strict=True)
    ]
    return wanted, [*said.heard.warnings, *warnings, *missed]


def _corrected(said: _DubInput, before: LocaleOutcome) -> list[tuple[str, str]]:
    try:
        return script.corrected(
            before.utterances, said.task.corrections, said.track.seconds, slack_s=_SLACK_S
        )
    except ValueError as error:
        raise Refused(FailureCode.SERVER_ERROR, f"the corrections cannot be used: {error}") from None


def _overlap(utterances: Sequence[DubbedUtterance]) -> float:
    """Return the time in which original and dub speak, as a share of the time in which one of them does."""
    steps = max(max(each.end_ms, each.dub_end_ms) for each in utterances) // _MASK_MS + 1
    original, dub = np.zeros(steps, bool), np.zeros(steps, bool)
    for each in utterances:
        original[each.start_ms // _MASK_MS : each.end_ms // _MASK_MS] = True
        dub[each.dub_start_ms // _MASK_MS : each.dub_end_ms // _MASK_MS] = True
    return float((original & dub).sum() / max(1, (original | dub).sum()))


def _main() -> None:
    # The parent may have died during the imports, and two processes at one job would disturb each other.
    die_with_parent(int(sys.argv[2]))
    # Ctrl-C in a terminal goes to the whole group, but the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    # The service logs once what is left out, and not for each dub.
    logging.getLogger("speechframe").setLevel(logging.ERROR)
    # The output of native libraries must not mix with the steps.
    steps = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    work(Path(sys.argv[1]), lambda locale, step: print(json.dumps([locale, step]), file=steps))


if __name__ == "__main__":
    _main()
