"""Run a dubbing job step by step, in the folder of the job. A step whose files exist is not repeated.

``python -m speechframe.local.dubbing.job FOLDER PARENT_PID`` runs one job as a process. When a step begins,
the process prints a line of JSON with a locale and the name of the step. It writes an outcome file for each
locale. It exits with status 0 even if locales failed. It ends when its parent process ends.
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
from speechframe.engines.faults import FAULT_WORDS_FOR_CALLERS, shorten_paths
from speechframe.engines.kinds import SPEAKERS, TRANSLATORS
from speechframe.errors import EngineError, EngineFault, SpeechframeError
from speechframe.local.dubbing import hear, lines, script
from speechframe.local.dubbing.cast import cast_speakers, list_voices
from speechframe.local.dubbing.fit import TimedLine, fit_lines
from speechframe.local.dubbing.folder import (
    DUB_STEM,
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
    write_atomically,
)
from speechframe.local.dubbing.media import (
    Track,
    build_track_warning,
    extract_audio,
    find_container,
    mux_audio,
)
from speechframe.local.dubbing.mix import PlacedLine, mix
from speechframe.local.engines.translation.language import detect_languages
from speechframe.local.engines.translation.routes import Routes, UnknownPair
from speechframe.local.engines.whisper import recogniser as whisper
from speechframe.processes.parent import end_with_parent
from speechframe.spec.dubbing import DubbedUtterance, FailureCode
from speechframe.wire import cues
from speechframe.wire.cues import Cue

_log = logging.getLogger("speechframe.dubbing")

ReportStep = Callable[[str | None, str], None]
"""A function that is called when a step begins, with the locale (None for all) and the name of the step."""
_NICENESS = 15
"""Niceness of the process, so that other processes of the machine run first."""
_AUDIO_FOLDER = "audio"
"""Name of the folder with the extracted audio."""
_SPEECH_FILE = "heard.json"
"""Name of the file with a :class:`_MediumSpeech`."""
_OVERLAP_STEP_MS = 10
"""Step in ms in which the overlap of original and dub is measured."""
_LENGTH_TOLERANCE_S = 1.0
"""Tolerance in seconds of the limits of text. The service checked the text against its own measurement of the
media file's length, which may differ slightly."""


class _MediumSpeech(JsonFile):
    """Locale and utterances of a medium (the media file), pitch of each speaker in Hz, and warnings."""

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
    speech: _MediumSpeech


def run_job(folder: Path, report_step: ReportStep) -> None:
    """Dub into each locale of a folder's task that is not done. Write an outcome even if a locale fails.

    Parameters
    ----------
    folder
        The folder of a job, see :mod:`speechframe.local.dubbing.folder`.
    report_step
        Called when a step begins.
    """
    task = Task.read(folder / TASK)
    if task is None:
        raise FileNotFoundError(f"{folder / TASK} is missing")
    dub_input = None
    # Locales whose folders exist come last: an earlier process may have crashed there and may crash again.
    for locale in sorted(task.targets, key=lambda locale: (folder / locale).exists()):
        path = folder / locale / OUTCOME
        before = LocaleOutcome.read(path)
        if task.is_done(locale, before):
            continue
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            dub_input = dub_input or _find_utterances(task, folder, report_step)
            _dub_locale(dub_input, locale, before, report_step)
        except Exception as error:  # noqa: BLE001 - one locale must not stop the others
            outcome = before or LocaleOutcome(version=task.version)
            outcome.model_copy(update={"version": task.version, "failure": _describe_failure(error)}).write(
                path
            )
        report_step(locale, "done")
    # Remove the audio, because it is many times larger than the medium. Extracting it again takes seconds.
    shutil.rmtree(folder / _AUDIO_FOLDER, ignore_errors=True)


def _describe_failure(error: Exception) -> Failure:
    if isinstance(error, Refused):
        return error.failure
    _log.exception("a dub failed")
    if isinstance(error, soundfile.LibsndfileError):
        # The error of the library does not contain the error of the operating system.
        reason = f"a sound file cannot be written or read ({error.error_string}): the disk may be full"
    elif isinstance(error, EngineFault):
        reason = f"an engine failed: {FAULT_WORDS_FOR_CALLERS}"
    elif isinstance(error, SpeechframeError):
        reason = shorten_paths(str(error))
    else:
        reason = getattr(error, "strerror", None) or type(error).__name__
    return Failure(code=FailureCode.SERVER_ERROR, reason=reason)


def _find_utterances(task: Task, folder: Path, report_step: ReportStep) -> _DubInput:
    """Extract the audio of the medium, and find its utterances in the script or with the recogniser."""
    report_step(None, "audio")
    (folder / _AUDIO_FOLDER).mkdir(exist_ok=True)
    track = extract_audio(folder / SOURCE, folder / _AUDIO_FOLDER, locale=task.source_locale)
    speech = _MediumSpeech.read(folder / _SPEECH_FILE)
    if speech is None:
        report_step(None, "recognise")
        warning = build_track_warning(folder / SOURCE, locale=task.source_locale)
        warnings = [] if warning is None else [warning]
        if task.script is None:
            locale, utterances = _transcribe(task, track)
        else:
            locale, (utterances, script_warnings) = _read_script(task, track)
            warnings += script_warnings
        registers = hear.measure_registers_hz(track.speech, utterances)
        speech = _MediumSpeech(
            locale=locale, utterances=tuple(utterances), registers=registers, warnings=tuple(warnings)
        )
        speech.write(folder / _SPEECH_FILE)
    if not speech.utterances:
        raise Refused(FailureCode.SPEECH_NOT_PRESENT, "nobody speaks in the medium")
    return _DubInput(task, folder, track, speech)


def _read_script(task: Task, track: Track) -> tuple[str, script.Script]:
    """Return the locale of the task's script, and the cues that begin within the medium.

    The locale is detected if it is not given. It is empty if it is not given and there are no cues.
    """
    try:
        parsed = script.read_script(
            task.script or "", track.seconds, cast=task.cast, slack_s=_LENGTH_TOLERANCE_S
        )
    except ValueError as error:
        raise Refused(FailureCode.SERVER_ERROR, f"the script cannot be used: {error}") from None
    locale = task.script_locale or task.source_locale
    if locale is None and parsed.cues:
        known = {
            route.locales[0].partition("-")[0]
            for route in Routes(registry.load_working(TRANSLATORS)).list_supported()
        }
        found = Counter(detect_languages([cue.text for cue in parsed.cues], sorted(known)))
        locale = found.most_common(1)[0][0]
    return locale or "", parsed


def _transcribe(task: Task, track: Track) -> tuple[str, list[Cue]]:
    recogniser = hear.find_recogniser(registry.load_recognisers())
    if recogniser is None:
        raise Refused(
            FailureCode.LANGUAGE_NOT_SUPPORTED,
            "nothing here recognises speech: pip install 'speechframe[dub]', or give a script",
        )
    try:
        return hear.recognise(track.speech, recogniser, locale=task.source_locale)
    finally:
        # Free the memory of the recogniser for the voices.
        whisper.unload_model()


def _dub_locale(
    dub_input: _DubInput, locale: str, before: LocaleOutcome | None, report_step: ReportStep
) -> None:
    """Dub into a locale, or correct the dub of the outcome `before`, and write the new outcome."""
    folder, source, originals = (
        dub_input.folder / locale,
        dub_input.folder / SOURCE,
        dub_input.speech.utterances,
    )
    report_step(locale, "translate")
    if before is None:
        wanted, warnings = _translate_utterances(dub_input, locale)
    else:
        wanted, warnings = _apply_corrections(dub_input, before), [*before.warnings]
    known = list_voices(registry.load_working(SPEAKERS))
    naturals, lines_folder = [], folder / "lines"
    report_step(locale, "speak")
    lines.remove_other_lines(
        [lines.build_line_path(text, known[voice], locale, lines_folder) for text, voice in wanted],
        lines_folder,
    )
    for number, (text, voice_id) in enumerate(wanted, 1):
        try:
            naturals.append(lines.speak_line(text, known[voice_id], locale, lines_folder))
        except EngineFault:
            raise
        except EngineError as error:
            raise EngineError(f"utterance {number}: {error}") from None
    report_step(locale, "mix")
    slots = [
        TimedLine(original.start_ms / 1000, original.end_ms / 1000, lines.measure_line_s(natural))
        for original, natural in zip(originals, naturals, strict=True)
    ]
    placed = fit_lines(slots, dub_input.track.seconds)
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
        PlacedLine(place.start_s, lines.change_speed(natural, place.speed))
        for natural, place in zip(naturals, placed, strict=True)
    ]
    container = find_container(source)
    media = f"{DUB_STEM}.{container}"
    shown, cues_over = cues.make_cues(
        [Cue(each.dub_start_ms, each.dub_end_ms, each.text, each.speaker) for each in utterances],
        round(1000 * dub_input.track.seconds),
    )
    mixed = dub_input.track.folder / "mixed.wav"
    dubs = [(each.dub_start_ms / 1000, each.dub_end_ms / 1000) for each in utterances]
    lowered = [*hear.find_audible_spans(dub_input.track.speech, originals), *dubs]
    mix(dub_input.track, spoken, mixed, lowered=lowered, gain_db=dub_input.task.original_gain_db)
    # The files are renamed when all have been written, so a full disk leaves none. The outcome comes last.
    with (
        write_atomically(folder / OUTCOME) as outcome_path,
        write_atomically(folder / media) as media_path,
        write_atomically(folder / SRT) as srt_path,
        write_atomically(folder / VTT) as vtt_path,
    ):
        left_out = mux_audio(source, mixed, media_path, language=locale, container=container)
        outcome = LocaleOutcome(
            version=dub_input.task.version,
            media=media,
            utterances=utterances,
            overlap=_measure_overlap(utterances),
            cues_over=cues_over,
            # Remove duplicates, because a correction repeats the warnings of the dub before it.
            warnings=tuple(dict.fromkeys((*warnings, *((left_out,) if left_out else ())))),
        )
        srt_path.write_text(cues.format_srt(shown), encoding="utf-8")
        vtt_path.write_text(cues.format_vtt(shown), encoding="utf-8")
        outcome.write(outcome_path)


def _translate_utterances(dub_input: _DubInput, locale: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the translated text and the voice id of each utterance, and the warnings."""
    utterances = dub_input.speech.utterances
    try:
        texts, warnings = lines.translate_lines(
            [each.text for each in utterances], dub_input.speech.locale, locale
        )
    except UnknownPair as unknown:
        raise Refused(FailureCode.LANGUAGE_NOT_SUPPORTED, str(unknown)) from None
    chosen = cast_speakers(
        dub_input.speech.registers, locale, list_voices(registry.load_working(SPEAKERS)), dub_input.task.cast
    )
    if not chosen:
        raise Refused(
            FailureCode.LANGUAGE_NOT_SUPPORTED,
            f"no voice here speaks {locale}; `speechframe models` shows how to add one",
        )
    missed = [
        f"{voice_id} does not speak {locale}; {chosen[speaker]} speaks for {speaker}"
        for speaker, voice_id in dub_input.task.cast.items()
        if chosen.get(speaker, voice_id) != voice_id
    ]
    wanted = [
        (text if lines.is_speakable(text) else each.text, chosen[each.speaker])
        for text, each in zip(texts, utterances, strict=True)
    ]
    return wanted, [*dub_input.speech.warnings, *warnings, *missed]


def _apply_corrections(dub_input: _DubInput, before: LocaleOutcome) -> list[tuple[str, str]]:
    try:
        return script.apply_corrections(
            before.utterances,
            dub_input.task.corrections,
            dub_input.track.seconds,
            slack_s=_LENGTH_TOLERANCE_S,
        )
    except ValueError as error:
        raise Refused(FailureCode.SERVER_ERROR, f"the corrections cannot be used: {error}") from None


def _measure_overlap(utterances: Sequence[DubbedUtterance]) -> float:
    """Return the time with speech in both original and dub, as a share of the time with speech in either."""
    steps = max(max(each.end_ms, each.dub_end_ms) for each in utterances) // _OVERLAP_STEP_MS + 1
    original, dub = np.zeros(steps, bool), np.zeros(steps, bool)
    for each in utterances:
        original[each.start_ms // _OVERLAP_STEP_MS : each.end_ms // _OVERLAP_STEP_MS] = True
        dub[each.dub_start_ms // _OVERLAP_STEP_MS : each.dub_end_ms // _OVERLAP_STEP_MS] = True
    return float((original & dub).sum() / max(1, (original | dub).sum()))


def _main() -> None:
    # If the parent died during the imports, end now: a restarted service may already run this job again.
    end_with_parent(int(sys.argv[2]))
    # Ignore Ctrl-C, which a terminal sends to the whole process group. The service ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    # The service has already logged unusable engines and voices. Do not repeat this for each dub.
    logging.getLogger("speechframe").setLevel(logging.ERROR)
    # Keep the output of native libraries out of the lines of JSON: it goes to standard error instead.
    steps = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    run_job(Path(sys.argv[1]), lambda locale, step: print(json.dumps([locale, step]), file=steps))


if __name__ == "__main__":
    _main()
