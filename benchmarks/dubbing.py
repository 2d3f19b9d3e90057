"""Measure the row D1, which compares a whole dub with its engines alone."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.child import Clock
from benchmarks.lab import Lab
from benchmarks.report import Figure, at_most

SAMPLE_PATH = Path(__file__).parents[1] / "datasets" / "dub_sample.webm"
TARGET_LOCALE = "pt-BR"
SAMPLE_S = 57.5
"""Length of the sample in seconds."""


def measure_d1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row D1."""
    script = SAMPLE_PATH.with_suffix(".srt").read_text(encoding="utf-8")
    # A tiny dub uses two lines of the script, so the recogniser is not needed.
    given = "\n\n".join(script.split("\n\n")[:2]) if lab.tiny else None
    shares, works_s = [], []
    for _ in range(lab.rounds):
        ours = lab.run_child("dubbing.dub_sample", script=given)
        alone = lab.run_child("dubbing.run_engines", dubbed=ours.more["lines"], recognise=given is None)
        shares.append(ours.cpu_s / alone.cpu_s)
        works_s.append(ours.cpu_s / SAMPLE_S)
    what = f"processor time of a dub ({TARGET_LOCALE}, {SAMPLE_S:g} s)"
    yield Figure(what, shares, "x", at_most(1.15), "recogniser, translator and voices alone")
    yield Figure("the same, for each second of the sample", works_s, "s", None, "real time")


def dub_sample(clock: Clock, script: str | None):
    """Dub the sample in this process, like a worker of the service.

    `script` is a transcript in SRT format. None lets the recogniser transcribe the sample.
    """
    from speechframe.local.dubbing import job
    from speechframe.local.dubbing.folder import OUTCOME, SOURCE, TASK, LocaleOutcome, Task

    place = Path.cwd()
    shutil.copy(SAMPLE_PATH, place / SOURCE)
    Task(targets=(TARGET_LOCALE,), source_locale="en-US", script=script).write(place / TASK)
    with clock:
        job.run_job(place, lambda _locale, _step: None)
    outcome = LocaleOutcome.read(place / TARGET_LOCALE / OUTCOME)
    if outcome is None or outcome.failure is not None:
        raise RuntimeError(f"the dub failed: {outcome}")
    lines = [[one.source_text, one.text, one.voice_id] for one in outcome.utterances]
    return {"rows": len(lines), "lines": lines}


def run_engines(clock: Clock, dubbed: list[list[str]], recognise: bool):  # noqa: FBT001 - arguments come as JSON
    """Recognise the sample, translate its lines and speak the translations, without the other steps of a dub.

    `dubbed` has source text, translation and voice of each line. The sample is only recognised if `recognise` is true.
    """
    from speechframe.audio import media
    from speechframe.audio.codec import resample
    from speechframe.engines import registry
    from speechframe.engines.base import Recording, Utterance
    from speechframe.local.dubbing import cast, hear, lines

    sound = media.read_audio(SAMPLE_PATH, max_seconds=600)
    samples = resample(sound.samples, sound.sample_rate_hz, 16_000)
    voices, speakers = cast.list_voices(), registry.load_speakers()
    recogniser = hear.find_recogniser(registry.load_recognisers())
    with clock:
        if recognise:
            for first in range(0, len(samples), 28 * 16_000):
                recording = Recording(samples[first : first + 28 * 16_000], 16_000)
                recogniser.recognise(recording, language="en", words=True)
        lines.translate_lines([source for source, _, _ in dubbed], "en-US", TARGET_LOCALE)
        for _, text, voice_id in dubbed:
            speakers[voices[voice_id].engine].speak(Utterance(text, voice_id, TARGET_LOCALE))
    return {"rows": len(dubbed)}
