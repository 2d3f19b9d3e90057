"""Clips are recognised on this machine, in processes that a run owns, and their errors are counted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile

import speechframe as spf
from forked import Program

PARROT = """
import os, time
from pathlib import Path
from speechframe.engines.base import Transcript, Word

class Parrot:
    name, version = "parrot", "1"

    def recognise(self, recording, *, language=None, words=False):
        folder, tenths = Path(os.environ["PARROT"]), round(10 * recording.audio_seconds)
        if (folder / f"{tenths}.dies").exists():
            (folder / f"{tenths}.dies").unlink()
            os._exit(9)
        if (folder / "waits").exists() and tenths > 1:
            (folder / f"{os.getpid()}.pid").touch()
            time.sleep(60)
        with (folder / "calls").open("a") as calls:
            calls.write(f"{tenths} {language}\\n")
        file = folder / f"{tenths}.txt"
        text = file.read_text() if file.exists() else ""
        return Transcript(text, language or "en", (Word("polly", 0, 100),))
"""
PROGRAM = Program("""
import sys
import speechframe as spf
spf.transcribe(sys.argv[1], recogniser="parrot", run_dir=sys.argv[2], max_concurrency=1, progress=False)
""")


@pytest.fixture
def parrot(tmp_path, monkeypatch):
    """Install a recogniser that says what `parrot.says` wrote for a clip of so many tenths of a second."""
    (tmp_path / "parrot.py").write_text(PARROT)
    info = tmp_path / "parrot-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[speechframe.recognisers]\nparrot = parrot:Parrot\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    folder, clips = tmp_path / "parrot", tmp_path / "clips"
    folder.mkdir()
    clips.mkdir()
    monkeypatch.setenv("PARROT", str(folder))

    def says(texts):
        for tenths, text in texts.items():
            (folder / f"{tenths}.txt").write_text(text, encoding="utf-8")
            soundfile.write(clips / f"{tenths:02}.wav", np.full(800 * tenths, 0.1, np.float32), 8000)
        return clips

    def transcribe(table, **options):
        given = {"recogniser": "parrot", "run_dir": tmp_path / "run", "progress": False, "max_concurrency": 1}
        return spf.transcribe(table, **given | options)

    parrot = transcribe
    parrot.says, parrot.folder = says, folder
    parrot.calls = lambda: (folder / "calls").read_text().splitlines()
    return parrot


def no_service(*_):
    raise AssertionError("a service was started")


CASES = [
    ("It\u2019s 3,000 [pause 1s] EUROS \u2013 well-spent!", "its 3000 euros well spent", (0, 5, 0, 21)),
    ("Good morning, Berlin.", "good mornings", (2, 3, 6, 17)),
    ("\u6211\u6709\u4e09\u672c\u4e66\u3002", "\u6211\u6709\u4e24\u672c\u4e66", (1, 5, 1, 5)),
    ("Say nothing", "", (2, 2, 10, 10)),
    (None, "whatever", None),
]


def test_errors_are_counted_after_one_normalisation_and_without_a_service(parrot, monkeypatch, tmp_path):
    monkeypatch.setattr("speechframe.aio.get_shared_service", no_service)
    clips = parrot.says({place + 2: said for place, (_, said, _) in enumerate(CASES)})
    locales = ["en-US", "en-US", "zh-CN", "en-US", "en-US"]
    references = [reference for reference, *_ in CASES]
    run = parrot(clips, reference=references, locale=locales)
    frame = run.to_pandas()
    assert list(frame["status"]) == ["done"] * len(CASES)
    names = ["word_errors", "reference_words", "character_errors", "reference_characters"]
    wanted = [counts for *_, counts in CASES if counts]
    assert [tuple(map(int, row)) for row in frame[names].dropna().to_numpy()] == wanted
    assert list(frame["wer"].dropna()) == [errors / words for errors, words, *_ in wanted]
    assert frame["reference"][0] == CASES[0][1]
    assert frame["transcript_words"][0] == [{"word": "polly", "start_ms": 0, "end_ms": 100}]
    assert list(frame["language"]) == ["en", "en", "zh", "en", "en"]
    assert list(frame["warnings"][3]) == ["no speech was found in the clip"]
    assert (run.ledger["credits"].sum(), run.stats["credits"], run.stats["attempts"]) == (0, 0, len(CASES))
    assert int(spf.usage(run)["attempts"].sum()) == len(CASES)
    assert spf.resume(run, progress=False).estimate.calls == 0
    # The trial of the recogniser: each process hears a tenth of a second of silence first.
    assert parrot.calls()[len(CASES) + 1 :] == ["1 None"]


def test_a_run_is_recognised_in_its_own_new_audio_and_language_without_a_copy(parrot, service, tmp_path):
    table = pd.DataFrame({"text": ["Good morning.", "Hello [pause 1s] there."], "audio": ["a.wav", "b.wav"]})
    spoken = spf.generate(
        table, voice="en-US-hank", format="ULAW", sample_rate=8000, progress=False, run_dir=tmp_path / "spoken",
        service=service.settings,
    )  # fmt: skip
    tenths = [round(10 * seconds) for seconds in spoken.to_pandas()["audio_seconds"]]
    (parrot.folder / f"{tenths[0]}.txt").write_text("good morning")
    run = parrot(str(spoken.path), reference="text")
    frame = run.to_pandas()
    assert list(frame["transcript"]) == ["good morning", ""]
    assert list(frame["word_errors"]) == [0, 2]
    assert parrot.calls()[1:] == [f"{tenth} en" for tenth in tenths]
    # Columns of the run keep their names and values. The words of the recogniser have a name of their own.
    own = spoken.to_pandas()
    assert frame[["voice_id", "locale"]].equals(own[["voice_id", "locale"]])
    assert list(frame["word_durations"]) == list(own["word_durations"])
    assert frame["transcript_words"][0] == [{"word": "polly", "start_ms": 0, "end_ms": 100}]
    assert "speech_word_durations" not in frame
    assert not (run.path / "clips").exists()
    assert parrot(spoken.select([1]), reference="text", run_dir=tmp_path / "run").estimate.calls == 0


def test_a_folder_is_read_with_its_subfolders_but_without_hidden_folders_and_runs(parrot):
    clips = parrot.says({2: "two", 3: "three", 4: "four", 5: "five"})
    for place, name in enumerate(("b/c", ".hidden", "run"), 3):
        (clips / name).mkdir(parents=True)
        (clips / f"{place:02}.wav").rename(clips / name / f"{place:02}.wav")
    (clips / "run" / "run.json").touch()
    frame = parrot(clips).to_pandas()
    assert list(frame["row_id"]) == ["02.wav", "b/c/03.wav"]
    assert list(frame["transcript"]) == ["two", "three"]


def test_a_process_that_dies_costs_an_attempt_and_a_bad_clip_one_row(parrot):
    clips = parrot.says({2: "two", 3: "three", 4: "four"})
    (parrot.folder / "3.dies").touch()
    soundfile.write(clips / "05.flac", np.random.default_rng(1).normal(0, 0.1, 4000), 8000)
    sound = bytearray((clips / "05.flac").read_bytes())
    sound[2000:5000] = bytes(3000)  # its header is whole
    (clips / "05.flac").write_bytes(sound)
    (clips / "06.wav").write_text("no audio")
    run = parrot(clips, on_invalid="skip")
    frame = run.to_pandas()
    assert list(frame["transcript"][:3]) == ["two", "three", "four"]
    assert list(frame["attempts"][:3]) == [1, 2, 1]
    assert list(frame["status"][3:]) == ["failed", "invalid"]
    assert "damaged" in frame["error_message"][3]
    (died,) = run.ledger.loc[run.ledger["status"] == "retried", "credits"]
    assert died == 0


def test_a_killed_run_leaves_no_process_and_goes_on(parrot, tmp_path):
    clips = parrot.says({tenths: f"clip {tenths}" for tenths in range(2, 6)})
    (parrot.folder / "waits").touch()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, clips, tmp_path / "run"])
    end = time.monotonic() + 60
    while not (pids := list(parrot.folder.glob("*.pid"))):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    while any(Path(f"/proc/{pid.stem}").exists() for pid in pids):
        assert time.monotonic() < end, "a recogniser process was left behind"
        time.sleep(0.01)
    (parrot.folder / "waits").unlink()
    run = spf.resume(tmp_path / "run", progress=False, max_concurrency=1)
    assert list(run.to_pandas()["transcript"]) == [f"clip {tenths}" for tenths in range(2, 6)]


def test_a_recogniser_that_is_not_there_is_named_before_anything_is_done(parrot, tmp_path):
    clips = parrot.says({2: "two"})
    with pytest.raises(spf.SettingsError, match=r"'magpie' is not installed; allowed: .*parrot"):
        parrot(clips, recogniser="magpie")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_whisper_recognises_a_spoken_run(service, tmp_path):
    table = ["The committee meets on Tuesday morning.", "The house is by the river."]
    spoken = spf.generate(
        table, voice="en-US-hank", progress=False, run_dir=tmp_path / "spoken", service=service.settings
    )
    frame = spf.transcribe(spoken, reference="text", run_dir=tmp_path / "run", progress=False).to_pandas()
    assert frame["word_errors"].sum() / frame["reference_words"].sum() < 0.5
    words = frame["transcript_words"][0]
    assert len(words) > 3
    assert words[-1]["end_ms"] <= 1000 * frame["audio_seconds"][0]
