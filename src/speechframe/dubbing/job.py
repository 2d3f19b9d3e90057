"""A job in its folder, step by step: what is there already is not made again.

``python -m speechframe.dubbing.job FOLDER PARENT_PID`` is the process that does one. Each step is a line of
JSON on its standard output, a locale and a word; what becomes of the job lies in the folder. It ends with
status 0 when it is through, whatever it came to, and with its parent.
"""

import json
import logging
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from speechframe._parent import die_with_parent
from speechframe.dubbing import hear, lines
from speechframe.dubbing.cast import cast, voices
from speechframe.dubbing.fit import Line, fit
from speechframe.dubbing.folder import (
    DUB,
    OUTCOME,
    SOURCE,
    SRT,
    TASK,
    VTT,
    Failure,
    JsonFile,
    Outcome,
    Refused,
    Task,
    written,
)
from speechframe.dubbing.media import Track, container_of, extract, mux
from speechframe.dubbing.mix import Spoken, mix
from speechframe.engines import registry, whisper
from speechframe.engines.faults import CALLER_WORDS, without_paths
from speechframe.engines.kinds import SPEAKERS, TRANSLATORS
from speechframe.engines.language import detected
from speechframe.engines.translation import Routes, UnknownPair
from speechframe.errors import EngineError, EngineFault, SpeechframeError
from speechframe.spec.dubbing import DubbedUtterance, FailureCode
from speechframe.wire import cues
from speechframe.wire.cues import Cue

__all__ = ["work"]

_log = logging.getLogger("speechframe.dubbing")

Tell = Callable[[str | None, str], None]
"""Is called with what is begun, one word, and the locale it is for; None for all of them."""
_NICE = 15
"""Whatever else the machine does goes first: nobody waits for a dub by the second."""
_AUDIO = "audio"
_HEARD = "heard.json"
_MASK_MS = 10
_SPEAKER = "Speaker 1"
"""Who says what no speaker is marked for in a script."""


class _Heard(JsonFile):
    """Who says what, in which locale, and the pitch of each speaker in Hz."""

    locale: str
    utterances: tuple[Cue, ...]
    registers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Said:
    """What is to be dubbed: it is the same for all locales."""

    task: Task
    folder: Path
    track: Track
    heard: _Heard


def work(folder: Path, tell: Tell) -> None:
    """Do what the task in a folder asks for; whatever fails is in the folder's files.

    Parameters
    ----------
    folder
        As :mod:`speechframe.dubbing.folder` says.
    tell
        Called when a step begins.
    """
    task = Task.read(folder / TASK)
    if task is None:
        raise FileNotFoundError(f"{folder / TASK} is missing")
    said = None
    # One that was begun by a process that died comes last: it takes no other with it.
    for locale in sorted(task.targets, key=lambda locale: (folder / locale).exists()):
        path = folder / locale / OUTCOME
        before = Outcome.read(path)
        if task.is_done(locale, before):
            continue
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            said = said or _heard(task, folder, tell)
            _dub(said, locale, before, tell)
        except Exception as error:  # noqa: BLE001 - the other locales go on
            kept = before or Outcome(version=task.version)
            kept.model_copy(update={"version": task.version, "failure": _failure(error)}).write(path)
        tell(locale, "done")
    # It is many times the size of the medium, and made again within seconds where something is corrected.
    shutil.rmtree(folder / _AUDIO, ignore_errors=True)


def _failure(error: Exception) -> Failure:
    if isinstance(error, Refused):
        return error.failure
    _log.exception("a dub failed")
    if isinstance(error, EngineFault):
        words = f"an engine failed: {CALLER_WORDS}"
    elif isinstance(error, SpeechframeError):
        words = without_paths(str(error))
    else:
        words = getattr(error, "strerror", None) or type(error).__name__
    return Failure(code=FailureCode.SERVER_ERROR, reason=words)


def _heard(task: Task, folder: Path, tell: Tell) -> _Said:
    """Return who says what, as it is written down or as it is recognised."""
    tell(None, "audio")
    (folder / _AUDIO).mkdir(exist_ok=True)
    track = extract(folder / SOURCE, folder / _AUDIO)
    heard = _Heard.read(folder / _HEARD)
    if heard is None:
        tell(None, "recognise")
        locale, said = _written(task, track) if task.script is not None else _recognised(task, track)
        registers = hear.registers_hz(track.speech, said)
        heard = _Heard(locale=locale, utterances=tuple(said), registers=registers)
        heard.write(folder / _HEARD)
    if not heard.utterances:
        raise Refused(FailureCode.SPEECH_NOT_PRESENT, "nobody speaks in the medium")
    return _Said(task, folder, track, heard)


def _written(task: Task, track: Track) -> tuple[str, list[Cue]]:
    """Return the locale of the script, and its cues as far as the medium goes."""
    media_ms = round(1000 * track.seconds)
    try:
        said = [
            replace(
                cue,
                end_ms=min(cue.end_ms, media_ms),
                text=" ".join(cue.text.split()),
                speaker=cue.speaker or _SPEAKER,
            )
            for cue in cues.parse(task.script or "")
            if cue.start_ms < media_ms and lines.is_speakable(cue.text)
        ]
    except ValueError as error:
        raise Refused(FailureCode.SERVER_ERROR, f"the script cannot be read: {error}") from None
    locale = task.script_locale or task.source_locale
    if locale is None and said:
        known = {
            route.locales[0].partition("-")[0] for route in Routes(registry.working(TRANSLATORS)).supported()
        }
        found = Counter(detected([cue.text for cue in said], sorted(known)))
        locale = found.most_common(1)[0][0]
    return locale or "", said


def _recognised(task: Task, track: Track) -> tuple[str, list[Cue]]:
    recogniser = hear.installed(registry.recognisers())
    if recogniser is None:
        raise Refused(
            FailureCode.LANGUAGE_NOT_SUPPORTED,
            "nothing here recognises speech: pip install 'speechframe[dub]', or give a script",
        )
    try:
        return hear.heard(track.speech, recogniser, locale=task.source_locale)
    finally:
        # Nothing is recognised any more, and the voices need the memory.
        whisper.unload()


def _dub(said: _Said, locale: str, before: Outcome | None, tell: Tell) -> None:
    """Dub into a locale, or make the dub of before again with its corrections; write what came of it."""
    folder, source, originals = said.folder / locale, said.folder / SOURCE, said.heard.utterances
    tell(locale, "translate")
    if before is None:
        wanted, warnings = _translated(said, locale)
    else:
        wanted, warnings = _corrected(said.task, before), [*before.warnings]
    known = voices(registry.working(SPEAKERS))
    naturals = []
    tell(locale, "speak")
    for number, (text, voice_id) in enumerate(wanted, 1):
        try:
            naturals.append(lines.speak(text, known[voice_id], locale, folder / "lines"))
        except EngineFault:
            raise
        except EngineError as error:
            raise EngineError(f"utterance {number}: {error}") from None
    tell(locale, "mix")
    slots = [
        Line(original.start_ms / 1000, original.end_ms / 1000, lines.seconds_of(natural))
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
        Spoken(place.start_s, lines.fitted(natural, place.speed))
        for natural, place in zip(naturals, placed, strict=True)
    ]
    container = container_of(source)
    shown, cues_over = cues.cues(
        [Cue(each.dub_start_ms, each.dub_end_ms, each.text, each.speaker) for each in utterances],
        round(1000 * said.track.seconds),
    )
    outcome = Outcome(
        version=said.task.version,
        media=f"{DUB}.{container}",
        utterances=utterances,
        overlap=_overlap(utterances),
        cues_over=cues_over,
        warnings=tuple(warnings),
    )
    mixed = said.track.folder / "mixed.wav"
    dubs = [(each.dub_start_ms / 1000, each.dub_end_ms / 1000) for each in utterances]
    lowered = [*hear.audible_spans(said.track.speech, originals), *dubs]
    mix(said.track, spoken, mixed, lowered=lowered, gain_db=said.task.original_gain_db)
    # Of one version all files or none, on a full disk too; the outcome comes last.
    with (
        written(folder / OUTCOME) as outcome_path,
        written(folder / outcome.media) as media_path,
        written(folder / SRT) as srt_path,
        written(folder / VTT) as vtt_path,
    ):
        mux(source, mixed, media_path, language=locale, container=container)
        srt_path.write_text(cues.srt(shown), encoding="utf-8")
        vtt_path.write_text(cues.vtt(shown), encoding="utf-8")
        outcome.write(outcome_path)


def _translated(said: _Said, locale: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what is to be said, by which voice, and what there is to be told of it."""
    utterances = said.heard.utterances
    try:
        texts, warnings = lines.translate([each.text for each in utterances], said.heard.locale, locale)
    except UnknownPair as unknown:
        raise Refused(FailureCode.LANGUAGE_NOT_SUPPORTED, str(unknown)) from None
    chosen = cast(said.heard.registers, locale, voices(registry.working(SPEAKERS)), said.task.cast)
    if not chosen:
        raise Refused(FailureCode.LANGUAGE_NOT_SUPPORTED, f"no voice here speaks {locale}")
    missed = [
        f"{voice_id} does not speak {locale}; {chosen[speaker]} speaks for {speaker}"
        for speaker, voice_id in said.task.cast.items()
        if chosen.get(speaker, voice_id) != voice_id
    ]
    wanted = [
        (text if lines.is_speakable(text) else each.text, chosen[each.speaker])
        for text, each in zip(texts, utterances, strict=True)
    ]
    return wanted, [*warnings, *missed]


def _corrected(task: Task, before: Outcome) -> list[tuple[str, str]]:
    wanted = {each.utterance_id: (each.text, each.voice_id) for each in before.utterances}
    # One after the other: of one utterance there may be two, of its text and of its voice.
    for one in task.corrections:
        text, voice_id = wanted[one.utterance_id]
        wanted[one.utterance_id] = (one.text or text, one.voice_id or voice_id)
    return [*wanted.values()]


def _overlap(utterances: Sequence[DubbedUtterance]) -> float:
    """Return the share of the time in which original or dub speak, in which both do."""
    steps = max(max(each.end_ms, each.dub_end_ms) for each in utterances) // _MASK_MS + 1
    original, dub = np.zeros(steps, bool), np.zeros(steps, bool)
    for each in utterances:
        original[each.start_ms // _MASK_MS : each.end_ms // _MASK_MS] = True
        dub[each.dub_start_ms // _MASK_MS : each.dub_end_ms // _MASK_MS] = True
    return float((original & dub).sum() / max(1, (original | dub).sum()))


def _main() -> None:
    # Told, because the parent may have died while this was imported: two at one job would disturb each other.
    die_with_parent(int(sys.argv[2]))
    # Ctrl-C in a terminal goes to the whole group: the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    # The service has logged what is left out: once, and not once a dub.
    logging.getLogger("speechframe").setLevel(logging.ERROR)
    # A native library that prints must not print among the steps.
    steps = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    work(Path(sys.argv[1]), lambda locale, step: print(json.dumps([locale, step]), file=steps))


if __name__ == "__main__":
    _main()
