"""An export: every row once in every format, whole or not at all, and nothing left out without a reason."""

import csv
import errno
import gzip
import io
import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import av
import pyarrow.parquet as pq
import pytest
import soundfile
import webdataset
from praatio import textgrid

import datasets
import speechframe as spf
from speechframe.errors import ExportError
from speechframe.testing import FaultyService

FORMATS = ["huggingface", "files", "ljspeech", "nemo", "lhotse", "webdataset", "srt", "vtt", "textgrid"]
NAME = "{locale}/{voice_id}/{id}"


@pytest.fixture(scope="session")
def exported(corpus, service, tmp_path_factory):
    """All formats of both runs, in two splits."""
    out = tmp_path_factory.mktemp("exported") / "corpus"
    parts = spf.split(corpus, {"train": 0.7, "test": 0.3}, groups=["text"])
    options = {"split": parts, "sample_rate": 16000, "progress": False, "service": service}
    return spf.export(corpus, out, name=NAME, formats=FORMATS, **options)


def test_every_format_has_every_row_and_the_report_says_which_are_left_out(corpus, exported):
    assert exported.formats == dict.fromkeys(FORMATS, 15)
    assert sum(exported.splits.values()) == exported.clips == 15
    (left_out,) = exported.left_out.to_dict(orient="records")
    assert (left_out["run_id"], left_out["row_id"]) == (corpus[0].run_id, "en/9")
    assert left_out["reason"].startswith("a review rejects it: The name is wrong. The name")
    assert len(left_out["reason"]) < 110
    assert exported.notes["rows have another path than their values: unsafe characters became _"] == 9
    assert "1 row left out; reason: a review rejects it" in str(exported)


def test_the_clips_are_one_tree_of_wav_files_at_the_requested_rate(exported):
    files = sorted(path.relative_to(exported.path).as_posix() for path in exported.path.glob("wavs/**/*.wav"))
    assert len(files) == 15
    assert files[0] == "wavs/de-DE/de-DE-greta/a.wav"
    assert "wavs/en-US/en-US-nora/en_0.wav" in files
    assert {soundfile.info(exported.path / file).samplerate for file in files} == {16000}
    assert sum(soundfile.info(exported.path / file).duration for file in files) == pytest.approx(
        exported.audio_seconds, abs=0.001
    )


def test_the_hub_opens_its_files_without_torch_and_they_tell_nothing_about_the_account(exported, tmp_path):
    data = datasets.load_dataset(str(exported.path), cache_dir=str(tmp_path))
    assert {split: len(rows) for split, rows in data.items()} == exported.splits
    row = next(row for rows in data.values() for row in rows if row["row_id"] == "en/0")
    assert (row["text"], row["speaker"], row["mood"]) == ("Line number 0 goes on.", "s0", "calm")
    assert soundfile.info(io.BytesIO(row["audio"]["bytes"])).samplerate == row["sample_rate"] == 16000
    names = {*data["train"].column_names}
    assert not names & {"balance_after", "trace_id", "credits", "service", "request_key", "error_message"}
    assert {"score", "word_durations"} <= names  # of the German table, and of the service
    assert (
        max(
            pq.ParquetFile(path).metadata.row_group(0).total_byte_size
            for path in exported.path.glob("data/*.parquet")
        )
        < 286 << 20
    )


def test_other_manifests_open_with_the_tools_of_their_formats(exported):
    shards = [str(path) for path in sorted(exported.path.glob("webdataset/*.tar"))]
    samples = []
    for shard in shards:
        with open(shard, "rb") as file:  # noqa: PTH123 - the library leaves files open that it opened itself
            samples += webdataset.tariterators.group_by_keys(
                webdataset.tariterators.tar_file_expander([{"url": shard, "stream": file}])
            )
    assert len(samples) == 15
    assert json.loads(samples[0]["json"])["text"] == samples[0]["txt"].decode()
    assert soundfile.info(io.BytesIO(samples[0]["wav"])).samplerate == 16000
    for suffix, codec in (("srt", "srt"), ("vtt", "webvtt")):
        with av.open(exported.path / f"{suffix}/en-US/en-US-nora/en_0.{suffix}") as file:
            assert file.streams.subtitles[0].codec_context.name == codec
            (cue,) = [packet for packet in file.demux() if packet.size]
            assert bytes(cue) == b"Line number 0 goes on"
    grid = textgrid.openTextgrid(
        str(exported.path / "textgrid/en-US/en-US-nora/en_0.TextGrid"), includeEmptyIntervals=False
    )
    words = [entry.label for entry in grid.getTier("words").entries]
    assert words == ["Line", "number", "0", "goes", "on"]
    # Praat wants tiers without gaps.
    written = (exported.path / "textgrid/en-US/en-US-nora/en_0.TextGrid").read_text(encoding="utf-8")
    times = re.findall(r"            xmin = (\S+)\n            xmax = (\S+)", written.partition('"words"')[2])
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(times))
    assert [entry.label for entry in grid.getTier("text").entries] == ["Line number 0 goes on."]


def test_manifests_of_trainers_are_as_their_rules_demand(exported):
    lines = (exported.path / "metadata.csv").read_text(encoding="utf-8").splitlines()
    assert "en-US/en-US-miles/pipe|Left right.|Left right." in lines
    assert exported.notes["rows have a | in their text: it is a space in metadata.csv"] == 1
    nemo = [
        json.loads(line)
        for path in sorted(exported.path.glob("*_manifest.json"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    first = next(line for line in nemo if line["audio_filepath"] == "wavs/en-US/en-US-nora/en_0.wav")
    assert first.keys() == {"audio_filepath", "duration", "text", "lang", "speaker"}
    assert (first["text"], first["lang"], first["speaker"]) == ("Line number 0 goes on.", "en-US", "s0")
    lhotse = {}
    for name in ("recordings", "supervisions"):
        for path in sorted(exported.path.glob(f"lhotse/*_{name}.jsonl.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                lhotse.setdefault(name, []).extend(map(json.loads, file))
    recording = next(line for line in lhotse["recordings"] if line["id"] == "en-US/en-US-nora/en_0")
    assert recording["sources"] == [
        {"type": "file", "channels": [0], "source": "wavs/en-US/en-US-nora/en_0.wav"}
    ]
    assert (
        recording["num_samples"] == soundfile.info(exported.path / recording["sources"][0]["source"]).frames
    )
    supervision = next(line for line in lhotse["supervisions"] if line["recording_id"] == recording["id"])
    symbol, start_s, duration_s, score = supervision["alignment"]["word"][0]
    assert (symbol, score) == ("Line", None)
    assert 0 <= start_s < duration_s < recording["duration"]


def test_the_card_states_what_is_known(exported):
    card = (exported.path / "README.md").read_text(encoding="utf-8")
    assert 'language: ["de", "en"]' in card
    assert "All speech in this dataset is synthetic" in card
    assert "| en-US-nora | espeak | formant | en-US 9.1% |" in card
    assert "licence of the texts: not stated" in card
    assert "1 row of the runs was left out" in card


def test_another_export_keeps_unchanged_clips_and_replaces_the_rest(corpus, service, tmp_path):
    english, german = corpus
    options = {"name": "{row_id}", "formats": ["files"], "progress": False, "service": service}
    spf.export([english, german], tmp_path / "out", **options)
    before = {path: path.stat().st_ino for path in (tmp_path / "out").glob("wavs/*.wav")}
    report = spf.export(german, tmp_path / "out", **options)
    assert (report.clips, report.kept_clips) == (4, 4)
    after = {path: path.stat().st_ino for path in (tmp_path / "out").glob("wavs/*.wav")}
    assert len(after) == 4
    assert after.items() <= before.items()
    with (tmp_path / "out" / "manifest.csv").open(encoding="utf-8") as file:
        assert [row["row_id"] for row in csv.DictReader(file)] == list("abcd")


KILLED = """
import os, signal, sys
import speechframe as spf
from speechframe.exports.formats.nemo import NemoFormat
add = NemoFormat.add
def kill_at_the_third(self, clip):
    add(self, clip)
    if clip.row_id == "c":
        os.kill(os.getpid(), signal.SIGKILL)
NemoFormat.add = kill_at_the_third
spf.configure(base_url=sys.argv[3], api_key="none")
spf.export(spf.open_run(sys.argv[1]), sys.argv[2], formats=["nemo"], progress=False)
"""


def test_a_killed_export_leaves_the_earlier_one_and_nothing_that_looks_finished(corpus, service, tmp_path):
    _, german = corpus
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(german.path), str(out), service.settings.base_url]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    spf.export(german, out, formats=["nemo"], progress=False, service=service)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    spf.export(german, out, formats=["nemo"], progress=False, service=service)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == ["out"]


def test_a_full_disk_is_an_error_that_names_the_folder_and_leaves_nothing(
    corpus, service, tmp_path, monkeypatch
):
    write = Path.write_bytes

    def fill(path, data):
        if path.suffix == ".wav" and path.stem == "c":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(ExportError, match="out cannot be written: No space left on device"):
        spf.export(corpus[1], tmp_path / "out", formats=["files"], progress=False, service=service)
    assert not [path for path in tmp_path.rglob("*") if path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "{speaker}"}, r"does not name every clip \(7 problems\)"),
        ({"name": "{nope}"}, "has no column 'nope'"),
        ({"name": "../{id}"}, "a path below the export's folder"),
        ({"name": "{id"}, "is not a template"),
        ({"name": "{mood}/{id}"}, "has no value in the column 'mood'"),
        ({"name": "{id:_>900}"}, "has a path of 900 bytes"),
        ({"formats": ["mp4"]}, "'mp4' is not an export format; allowed: files"),
        ({"formats": ["ljspeech"], "audio_format": "FLAC"}, "'ljspeech' needs audio_format WAV"),
        (
            {"split": {"nobody": "train"}},
            "no row can be exported: .* the given split does not contain the row",
        ),
        ({"sample_rate": 7}, "sample_rate=7 is not allowed; allowed: 1,000 to 384,000 Hz"),
        ({"card": {"author": "me"}}, "card= has the unknown entry 'author'"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(
    corpus, service, tmp_path, given, words
):
    options = {"formats": ["files"], **given}
    with pytest.raises(ExportError, match=words):
        spf.export(corpus[0], tmp_path / "out", progress=False, service=service, **options)
    assert not (tmp_path / "out").exists()


def test_the_card_describes_the_quality_of_the_exported_rows_and_odd_splits_are_counted(
    corpus, service, tmp_path
):
    english, _ = corpus
    found = spf.quality(english, progress=False)
    split = {"en/0": "train", "en/1": "train", "en/9": "train", "nobody": "train"}
    options = {"quality": found, "split": split, "progress": False, "service": service}
    report = spf.export(english, tmp_path / "out", formats=["nemo"], **options)
    assert report.clips == 2
    assert report.notes["entries of split= are not among the given rows"] == 1
    assert "Quality of 2 rows: " in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_folder_with_other_files_is_never_replaced(corpus, service, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(ExportError, match="is not an earlier export"):
        spf.export(corpus[0], tmp_path, formats=["files"], progress=False, service=service)
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "years of work"


def test_a_format_that_loses_a_row_fails_the_export(corpus, service, tmp_path, monkeypatch):
    from speechframe.exports.formats.nemo import NemoFormat

    add = NemoFormat.add
    monkeypatch.setattr(NemoFormat, "add", lambda self, clip: None if clip.row_id == "b" else add(self, clip))
    with pytest.raises(ExportError, match="'nemo' have 3 of 4 rows; nothing was kept"):
        spf.export(corpus[1], tmp_path / "out", formats=["nemo"], progress=False, service=service)
    assert not (tmp_path / "out").exists()


def test_a_suspect_row_is_exported_only_if_a_review_keeps_it(tmp_path):
    texts = ["The first line.", "The second line."]
    with FaultyService(odd={texts[1]: {"audioLengthInSeconds": "97.5"}}) as faulty:
        options = {"voice": "en-US-nora", "service": faulty.settings, "progress": False}
        run = spf.generate(texts, run_dir=tmp_path / "run", **options)
        report = spf.export(run, tmp_path / "out", formats=["nemo"], progress=False, service=faulty.settings)
        assert (report.clips, run.stats["suspect"]) == (1, 1)
        (reason,) = report.left_out["reason"]
        assert reason.startswith("it is suspect, and no review keeps it: ")
        run.review(report.left_out["row_id"][0], "keep")
        report = spf.export(run, tmp_path / "out", formats=["nemo"], progress=False, service=faulty.settings)
        assert (report.clips, len(report.left_out)) == (2, 0)


def test_a_format_of_another_package_is_found_and_a_broken_one_disturbs_no_other(
    corpus, service, tmp_path, monkeypatch
):
    package = tmp_path / "plugin"
    (package / "paths-1.0.dist-info").mkdir(parents=True)
    (package / "paths-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: paths\nVersion: 1.0\n"
    )
    (package / "paths-1.0.dist-info" / "entry_points.txt").write_text(
        "[speechframe.exports]\npaths = paths_format:Paths\nbroken = paths_format:Missing\n"
    )
    (package / "paths_format.py").write_text(
        "from speechframe import ExportFormat\n"
        "class Paths(ExportFormat):\n"
        "    def add(self, clip):\n"
        "        self.lines('paths.txt').write(clip.path + '\\n')\n"
        "    def count(self):\n"
        "        return sum(1 for _ in self.read_lines('paths.txt'))\n"
    )
    monkeypatch.syspath_prepend(package)
    options = {"progress": False, "service": service}
    spf.export(corpus[1], tmp_path / "out", formats=["paths", "nemo"], **options)
    assert (tmp_path / "out" / "paths.txt").read_text() == "".join(f"wavs/{name}.wav\n" for name in "abcd")
    with pytest.raises(ExportError, match=r"'broken' \(paths_format:Missing\) cannot be imported"):
        spf.export(corpus[1], tmp_path / "out", formats=["broken"], **options)


def test_a_dataset_is_memory_mapped_parquet_and_shows_no_other_bars(corpus, service, tmp_path, capsys):
    data = spf.to_datasets(corpus[1], out=tmp_path / "out", progress=False, service=service)
    assert capsys.readouterr().err == ""
    assert (list(data), len(data["train"])) == (["train"], 4)
    assert data["train"].cache_files
    assert data["train"][0]["text"] == "Guten Tag."


def test_rows_of_a_run_and_folders_are_accepted_like_runs(corpus, service, tmp_path, monkeypatch):
    english, german = corpus
    some = english.select(["en/1", "en/9", "pipe"])
    options = {"formats": ["nemo"], "progress": False, "service": service}
    parts = spf.split(some, {"train": 0.5, "test": 0.5})
    assert sorted(parts.index) == ["en/1", "pipe"]
    found = spf.quality(some, progress=False)
    assert list(found.index) == ["en/1", "en/9", "pipe"]
    assert found["audio_seconds"].equals(
        spf.quality(str(english.path), progress=False)["audio_seconds"][found.index]
    )
    report = spf.export(some, tmp_path / "some", split=parts, quality=found, **options)
    assert (report.clips, list(report.left_out["row_id"])) == (2, ["en/9"])
    assert not report.notes.keys() & {"entries of split= are not among the given rows"}
    report = spf.export([str(english.path), german.select(["d"])], tmp_path / "both", **options)
    assert report.clips == 12
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = spf.to_datasets(some, progress=False, service=service)
    rest = spf.to_datasets(english.select(["en/0"]), progress=False, service=service)
    # Neither dataset replaced the files of the other.
    assert all(Path(file["filename"]).exists() for one in (data, rest) for file in one["train"].cache_files)
    assert data["train"]["row_id"] == ["en/1", "pipe"]
    with pytest.raises(ExportError, match="dict is not a run: give a run, its folder, rows of it"):
        spf.export({}, tmp_path / "none", **options)
    with pytest.raises(ExportError, match="was given twice"):
        spf.export([english, some], tmp_path / "none", **options)


def test_usual_splits_come_first_and_others_in_the_order_of_the_shares(corpus, service, tmp_path):
    names = {"zulu": 0.2, "alpha": 0.2, "test": 0.2, "dev": 0.2, "train": 0.2}
    parts = spf.split(corpus[0], names)
    order = ["train", "dev", "test", "zulu", "alpha"]
    options = {"formats": ["huggingface"], "progress": False, "service": service}
    report = spf.export(corpus[0], tmp_path / "out", split=parts, **options)
    assert list(report.splits) == order
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert (
        re.findall(r"split: \"(.*)\"", card)
        == re.findall(r"(?m)^\| (\w+) \| \d+ \| [\d.]+ \|$", card)
        == order
    )
    report = spf.export(
        corpus[1], tmp_path / "out", split={"a": "b", "b": "test", "c": "a", "d": "train"}, **options
    )
    assert list(report.splits) == ["train", "test", "b", "a"]


def test_our_column_is_left_out_if_it_repeats_a_column_of_the_table(corpus, service, tmp_path):
    table = {"text": ["One.", "Two."], "locale": ["en", "en-US"]}
    run = spf.generate(table, voice="en-US-nora", run_dir=tmp_path / "run", service=service, progress=False)
    options = {"formats": ["files", "webdataset"], "progress": False, "service": service}

    def export(runs):
        spf.export(runs, tmp_path / "out", **options)
        return (tmp_path / "out" / "manifest.csv").read_text(encoding="utf-8").splitlines()[0].split(",")

    assert "speech_locale" in corpus[1].columns
    assert "speech_locale" not in export(corpus[1])
    assert "speech_locale" in export(run)
    assert "speech_locale" in export([run, corpus[1]])
