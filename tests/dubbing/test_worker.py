"""The worker: a job in its folder, whatever happens to the process that does it."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import soundfile
from dubbing_lab import DATASETS, dubbed, job, tone, worker

from speechframe.local.dubbing.folder import OUTCOME, TASK, LocaleOutcome, Task
from speechframe.local.dubbing.job import run_job
from speechframe.spec.dubbing import UtteranceCorrection
from speechframe.wire import cues

# A worker gives way to everything else: beside many tests it would take minutes.
pytestmark = pytest.mark.quiet

SCRIPT = """1
00:00:00,500 --> 00:00:02,400
ANNA: Good morning, and welcome to our shop.

2
00:00:02,700 --> 00:00:04,100
BRUNO: Thank you, the weather is nice.

3
00:00:04,400 --> 00:00:05,900
ANNA: What would you like to buy today?
"""
ASKED = {
    "targets": ("pt-BR", "pt-PT", "fi-FI"),
    "script": SCRIPT,
    "script_locale": "en-US",
    "cast": {"ANNA": "pt-BR-larissa", "BRUNO": "pt-BR-caio"},
}


def left(folder):
    """Every file of a job, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def results(folder):
    """What a job has come to: everything but what it was made of."""
    return {path: data for path, data in left(folder).items() if "/lines/" not in path}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A job that nobody disturbed."""
    folder = job(tmp_path_factory.mktemp("whole"), tone(), **ASKED)
    done = subprocess.run(worker(folder), stdout=subprocess.PIPE, check=True, timeout=120)
    return folder, [json.loads(line) for line in done.stdout.splitlines()]


def test_each_locale_has_its_files_or_its_failure(whole):
    folder, steps = whole
    brazil, portugal, finland = (LocaleOutcome.read(folder / locale / OUTCOME) for locale in ASKED["targets"])
    assert finland.failure.code == "LANGUAGE_NOT_SUPPORTED"
    assert (brazil.failure, portugal.failure) == (None, None)
    assert [each.voice_id for each in brazil.utterances] == ["pt-BR-larissa", "pt-BR-caio", "pt-BR-larissa"]
    assert brazil.warnings == ()
    assert portugal.warnings == ("pt-PT is not known here; the translation is in pt-BR",)
    for outcome in (brazil, portugal):
        assert [each.source_text for each in outcome.utterances][1] == "Thank you, the weather is nice."
        assert "Obrigado" in outcome.utterances[1].text
        assert 0.5 < outcome.overlap <= 1
    assert {"dub.wav", "dub.srt", "dub.vtt"} <= {path.name for path in (folder / "pt-BR").iterdir()}
    assert (folder / "pt-BR/dub.vtt").read_text(encoding="utf-8").count("<v ANNA>") >= 2
    assert soundfile.info(folder / "pt-BR/dub.wav").duration == 6.0
    assert not (folder / "audio").exists()
    assert steps[:2] == [[None, "audio"], [None, "recognise"]]
    made = [step for locale, step in steps if locale == "pt-BR"]
    assert made == ["translate", "speak", "mix", "done"]


def test_a_worker_that_is_killed_at_any_step_is_gone_on_with(whole, tmp_path):
    folder = job(tmp_path / "killed", tone(), **ASKED)
    seed = random.randrange(1000)
    kill_at = random.Random(seed).randrange(1, len(whole[1]))
    with subprocess.Popen(worker(folder), stdout=subprocess.PIPE) as process:
        for _ in range(kill_at):
            process.stdout.readline()
        process.kill()
    assert process.returncode == -signal.SIGKILL, f"seed {seed}"
    dubbed(folder)
    assert results(folder) == results(whole[0]), f"seed {seed}, killed after step {kill_at}"


def test_a_correction_makes_again_what_it_is_about_and_nothing_else(whole, tmp_path):
    folder = tmp_path / "corrected"
    shutil.copytree(whole[0], folder)
    before = left(folder)
    corrections = (
        UtteranceCorrection(utterance_id=2, text="Muito obrigado, senhora."),
        UtteranceCorrection(utterance_id=3, voice_id="pt-BR-bianca"),
    )
    correct(folder, 2, corrections)
    spoken_before = {path: path.stat().st_mtime_ns for path in (folder / "pt-BR/lines").iterdir()}
    brazil, portugal, finland = dubbed(folder, *ASKED["targets"])
    # The first line is kept, and what nobody hears any more is gone.
    lines = {path: path.stat().st_mtime_ns for path in (folder / "pt-BR/lines").iterdir()}
    kept = lines.keys() & spoken_before.keys()
    assert kept
    assert {path: lines[path] for path in kept} == {path: spoken_before[path] for path in kept}
    assert len({path.stem.partition("-")[0] for path in lines}) == len(brazil.utterances)
    assert [each.version for each in (brazil, portugal, finland)] == [2, 1, 1]
    assert finland.failure.code == "LANGUAGE_NOT_SUPPORTED"
    first, second, third = brazil.utterances
    old = LocaleOutcome.model_validate_json(before["pt-BR/outcome.json"]).utterances
    assert (first.text, first.voice_id) == (old[0].text, old[0].voice_id)
    assert (second.text, second.voice_id) == ("Muito obrigado, senhora.", "pt-BR-caio")
    assert (third.text, third.voice_id) == (old[2].text, "pt-BR-bianca")
    after = left(folder)
    assert after["pt-BR/dub.wav"] != before["pt-BR/dub.wav"]
    assert after["pt-PT/dub.wav"] == before["pt-PT/dub.wav"]
    spoken = [
        path for path in after.keys() - before.keys() if "/lines/" in path and "-" not in path.split("/")[-1]
    ]
    assert len(spoken) == 2
    # What cannot be spoken leaves the version before, and the next correction goes on from that.
    correct(folder, 3, (UtteranceCorrection(utterance_id=1, text="中文"), corrections[0]))
    (failed,) = dubbed(folder, "pt-BR")
    assert (failed.version, failed.utterances) == (3, brazil.utterances)
    assert failed.failure.reason.startswith("utterance 1: the text has no character")
    assert left(folder)["pt-BR/dub.wav"] == after["pt-BR/dub.wav"]
    correct(folder, 4, (UtteranceCorrection(utterance_id=1, text="Bom dia."),))
    (again,) = dubbed(folder, "pt-BR")
    assert again.failure is None
    assert [each.text for each in again.utterances] == ["Bom dia.", second.text, third.text]


def test_a_correction_that_the_disk_has_no_room_for_leaves_all_of_the_version_before(
    whole, tmp_path, monkeypatch
):
    folder = tmp_path / "full"
    shutil.copytree(whole[0], folder)
    before = results(folder)
    correct(folder, 2, (UtteranceCorrection(utterance_id=2, text="Muito obrigado, senhora."),))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cues, "format_vtt", full)
    run_job(folder, lambda *_: None)
    failed, old = (
        LocaleOutcome.read(folder / "pt-BR" / OUTCOME),
        LocaleOutcome.read(whole[0] / "pt-BR" / OUTCOME),
    )
    assert (failed.failure.reason, failed.utterances) == ("No space left on device", old.utterances)
    after = results(folder)
    assert {path for path in after if after[path] != before.get(path)} == {TASK, f"pt-BR/{OUTCOME}"}


def correct(folder, version, corrections):
    """Ask for another version of a dub, as the service does."""
    Task(version=version, corrected="pt-BR", corrections=corrections, **ASKED).write(folder / TASK)


def test_the_worker_ends_with_its_parent(tmp_path):
    folder = job(tmp_path / "orphan", tone(), **ASKED)
    # Nothing but the kernel tells the worker: its standard output stays open.
    parent = (
        "import os, subprocess, sys, time\n"
        "worker = subprocess.Popen([*sys.argv[1:], str(os.getpid())], stdout=subprocess.DEVNULL)\n"
        "print(worker.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, *worker(folder)[:-1]], stdout=subprocess.PIPE
    ) as started:
        process = psutil.Process(int(started.stdout.readline()))
        while not (folder / "audio").exists():
            time.sleep(0.01)
        assert process.nice() >= 15
        started.kill()
    assert psutil.wait_procs([process], timeout=30)[1] == []
    assert LocaleOutcome.read(folder / "fi-FI" / OUTCOME) is None


@pytest.mark.slow
def test_what_is_no_medium_fails_as_a_whole(tmp_path):
    folder = job(tmp_path / "text", b"This is no audio. " * 99, **ASKED)
    for outcome in dubbed(folder, *ASKED["targets"]):
        assert outcome.failure.code == "SERVER_ERROR"
        assert "no audio" in outcome.failure.reason
    assert not (folder / "audio").exists()


@pytest.mark.slow
def test_silence_has_no_speech(tmp_path):
    folder = job(tmp_path / "silence", tone(amplitude=0.0), targets=("pt-BR",))
    (outcome,) = dubbed(folder, "pt-BR")
    assert outcome.failure.code == "SPEECH_NOT_PRESENT"


@pytest.mark.slow
def test_a_medium_in_another_language_than_is_said_is_not_dubbed(tmp_path):
    sample = (DATASETS / "dub_sample.webm").read_bytes()
    folder = job(tmp_path / "other", sample, targets=("en-US",), source_locale="pt-BR")
    (outcome,) = dubbed(folder, "en-US")
    assert outcome.failure.code == "SOURCE_LANGUAGE_MISMATCH"
