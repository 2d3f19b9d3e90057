"""Real clips, some of them damaged, in runs of which the test chooses each take."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import soundfile as sf

import speechframe as spf
from speechframe.cli.app import main
from speechframe.exports import quality as measuring
from speechframe.exports.grades import TRUSTED_LANGUAGES
from speechframe.exports.quality import describe_quality
from speechframe.spec.locales import get_language

DATASETS = Path(__file__).parents[2] / "datasets"
RATE_HZ = 24000


def read_csv(name):
    """Return the rows of a table of the datasets."""
    return list(csv.DictReader((DATASETS / name).read_text(encoding="utf-8").splitlines()))


LINES = [row["text"] for row in read_csv("clarity_lines.csv") if row["locale"] == "en-US"][:18]


class Replay(spf.Backend):
    """Answers each text with the clip of its take."""

    operation = "replay"
    columns = pa.schema(
        [
            ("audio", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            ("audio_seconds", pa.float64()),
            ("text", pa.string()),
        ]
    )
    arguments = ("text", "locale", "voice")
    service = "replay/1"

    def __init__(self, takes, *, varies=True):
        self.takes, self.varies = takes, varies

    async def open(self):
        return spf.Opened((spf.LaneSpec("here", f"replay {id(self)}", published=2),), takes=True)

    async def close(self):
        pass

    def check(self, values):
        body = json.dumps({"text": values["text"], "locale": values.get("locale", "en-US")}).encode()
        facts = {"voice_id": values.get("voice", "nora"), "locale": values.get("locale", "en-US")}
        return spf.Request(body, body, price=1000, facts=facts, varies=self.varies)

    async def send(self, request, attempt):
        clips = self.takes[json.loads(request.body)["text"]]
        if not clips:
            raise spf.BadRequest("nobody speaks that", status=400)
        return spf.Answer(clips[min(attempt.take, len(clips) - 1)])

    def records(self, request, answer):
        values = {"audio_seconds": 1.0, "text": json.loads(request.body)["text"]}
        return [spf.Record(values, audio=answer.data, audio_name="clip.wav")]


def wav(samples, rate_hz=RATE_HZ):
    sf.write(file := io.BytesIO(), samples, rate_hz, format="WAV", subtype="PCM_16")
    return file.getvalue()


def damaged(samples):
    """Return the clip with each fault, and a word of the reason for it."""
    hole = samples.copy()
    hole[RATE_HZ : 2 * RATE_HZ] = 0
    return {
        "cut off": wav(samples[: len(samples) // 2]),
        "clipped": wav(np.clip(samples * 8, -1, 1)),
        "silence inside": wav(hole),
        "loudness": wav(samples / 10),
        "sample rate is wrong": wav(samples, 22050),
    }


@pytest.fixture(scope="module")
def spoken(service, tmp_path_factory):
    """Return the clip of each line in a formant voice, as bytes."""
    folder = tmp_path_factory.mktemp("spoken")
    run = spf.generate(
        LINES,
        voice="en-US-nora",
        sample_rate=RATE_HZ,
        service=service,
        run_dir=folder / "run",
        progress=False,
    )
    return {line: run.clip(place).audio for place, line in enumerate(LINES)}


@pytest.fixture
def replay(tmp_path):
    """Make a run of clips by text, and its backend."""

    def make(takes, table=None, **options):
        backend = Replay(takes, **options)
        table = pd.DataFrame({"text": list(takes)}) if table is None else table
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        return spf.run(backend, table, run_dir=folder, on_error="column", progress=False), backend

    return make


@pytest.fixture
def with_faults(spoken):
    """Return the takes of each line, and the fault by row id. The first take of five lines is damaged."""
    samples = [sf.read(io.BytesIO(spoken[line]), dtype="float32")[0] for line in LINES[:5]]
    faults = {
        str(place): (fault, damaged(one)[fault])
        for place, (one, fault) in enumerate(zip(samples, damaged(samples[0]), strict=True))
    }
    takes = {line: [spoken[line]] for line in LINES}
    for place, (_, audio) in faults.items():
        takes[LINES[int(place)]].insert(0, audio)
    return takes, {row_id: fault for row_id, (fault, _) in faults.items()}


def test_each_fault_is_found_and_named_and_other_clips_are_good(replay, with_faults):
    takes, faults = with_faults
    found = spf.quality(replay(takes)[0], progress=False)
    assert found.index.name == "row_id"
    for row_id, fault in faults.items():
        assert fault in "; ".join(found.loc[row_id, "reasons"]), fault
    assert set(found.index[found["grade"] != "good"]) == set(faults)
    assert describe_quality(found)[0] == "Quality of 18 rows: 13 good, 0 check, 5 bad."


def test_bad_rows_get_another_take_or_the_advice_that_it_would_be_identical(replay, with_faults):
    takes, faults = with_faults
    run, backend = replay(takes)
    found = spf.quality(run, progress=False)
    assert found.loc[list(faults), "advice"].unique().tolist() == ["make another take: resume with redo"]
    bad = list(found.index[found["grade"] == "bad"])
    again = spf.quality(spf.resume(run, redo=bad, backend=backend, progress=False), progress=False)
    assert set(again["grade"]) == {"good"}
    same, backend = replay(takes, varies=False)
    found = spf.quality(same, progress=False)
    assert found.loc[list(faults), "advice"].str.startswith("another take would be identical").all()
    credits = spf.resume(same, redo=bad, backend=backend, progress=False).stats["credits"]
    assert credits == len(LINES)


def test_every_row_has_a_grade_and_equal_audio_is_measured_once(replay, spoken, monkeypatch):
    measured = []
    monkeypatch.setattr(
        measuring,
        "measure_clip",
        lambda *clip, whole=measuring.measure_clip: measured.append(1) or whole(*clip),
    )
    takes = {
        "failed": [],
        "no sound": [b"RIFF, but not a file"],
        LINES[0]: [spoken[LINES[0]]],
        "equal": [spoken[LINES[0]]],
    }
    runs = [replay(takes)[0], replay(takes)[0]]
    found = spf.quality(runs, progress=False)
    assert found.index.names == ["run_id", "row_id"]
    assert found.index.tolist() == [(run.run_id, str(place)) for run in runs for place in range(4)]
    assert found["grade"].tolist() == ["bad", "bad", "good", "good"] * 2
    assert found["reasons"].str[0].iloc[0].startswith("it has no audio: it is failed: nobody speaks that")
    assert found["reasons"].str[0].iloc[1].startswith("its audio cannot be decoded")
    assert len(measured) == 1


def test_word_errors_count_only_in_languages_that_the_recogniser_can_be_trusted_in(replay, spoken):
    table = pd.DataFrame({"text": LINES[:5], "locale": ["en-US", "en-GB", "ja-JP", "de-DE", "pt-BR"]})
    run, _ = replay({line: [spoken[line]] for line in LINES[:5]}, table)
    errors = {"wer": [0.0, 0.6, 1.0, 0.9, None], "cer": [0.0, 0.3, 0.1, 0.9, None], "reference": LINES[:5]}
    transcripts = pd.DataFrame({"row_id": [*map(str, range(5))]} | errors)
    found = spf.quality(run, transcripts=transcripts, progress=False)
    assert found["grade"].tolist() == ["good", "bad", "good", "good", "good"]
    assert found["reasons"].iloc[1] == ["its word error is 60%"]
    assert found["word_error"].fillna(-1).tolist() == [0.0, 0.6, 0.1, -1, -1]
    assert found["word_error_remark"].iloc[3] == "does not count: the recogniser cannot be trusted in de-DE"
    assert "no transcript" in found["word_error_remark"].iloc[4]
    with pytest.raises(spf.ExportError, match="one for each run"):
        spf.quality([run, replay({LINES[0]: [spoken[LINES[0]]]})[0]], transcripts=transcripts, progress=False)
    with pytest.raises(spf.ExportError, match=r"of the run .*run0; the given frame has no column 'wer'"):
        spf.quality(run, transcripts=transcripts[["row_id"]], progress=False)
    with pytest.raises(spf.ExportError, match=r"of the run .*run0; .*run0 is a run of replay"):
        spf.quality(run, transcripts=run, progress=False)


def test_a_misheard_clip_of_an_unclear_voice_needs_another_voice_and_others_another_take(replay, spoken):
    table = pd.DataFrame(
        {"text": LINES[:3], "locale": ["en-US", "pt-BR", "en-US"], "voice": ["a", "pt-BR-bianca", "a"]}
    )
    clips = {line: [spoken[line]] for line in LINES[:2]} | {LINES[2]: [damaged(np.zeros(RATE_HZ))["cut off"]]}
    run, _ = replay(clips, table)
    transcripts = pd.DataFrame({"row_id": ["0", "1", "2"], "wer": [0.9, 0.9, 0.9], "cer": 0.5})
    advice = spf.quality(run, transcripts=transcripts, progress=False)["advice"]
    assert advice["1"] == "use another voice: a recogniser misheard 85% of this voice's words in tests"
    assert advice["0"] == advice["2"] == "make another take: resume with redo"


class Transcribed(spf.Backend):
    """Answers each clip of a run with a word error of 0.9, as `transcribe` stores it."""

    operation = "transcribe"
    columns = pa.schema([("wer", pa.float64()), ("cer", pa.float64())])
    arguments = ("key",)
    service = "transcribed/1"

    async def open(self):
        return spf.Opened((spf.LaneSpec("here", f"transcribed {id(self)}", published=2),), takes=False)

    async def close(self):
        pass

    def check(self, values):
        body = json.dumps({"run": "run", "key": values["key"]}).encode()
        return spf.Request(body, body, price=0, varies=False)

    async def send(self, request, attempt):
        return spf.Answer(None)

    def records(self, request, answer):
        return [spf.Record({"wer": 0.9, "cer": 0.9})]


def test_transcripts_of_another_run_are_refused_and_those_of_an_earlier_take_do_not_count(
    replay, with_faults, tmp_path, capsys
):
    takes, _ = with_faults
    run, backend = replay(takes)
    keys = pd.DataFrame({"key": run.to_pandas(["request_key"])["request_key"]})
    transcripts = spf.run(Transcribed(), keys, run_dir=tmp_path / "transcripts", progress=False)
    assert spf.quality(run, transcripts=transcripts, progress=False)["word_error"].notna().all()
    main(["quality", str(run.path), "--transcripts", str(transcripts.path), "--json"])
    assert json.loads(capsys.readouterr().out)["grades"] == {"good": 0, "check": 0, "bad": len(LINES)}
    again = spf.resume(run, redo=["0"], backend=backend, progress=False)
    found = spf.quality(again, transcripts=str(transcripts.path), progress=False)
    assert list(found.index[found["word_error"].isna()]) == ["0"]
    other, _ = replay({"another text": takes[LINES[0]]})
    with pytest.raises(spf.ExportError, match=r"of the run .*; none of the given transcripts is of a clip"):
        spf.quality(other, transcripts=transcripts, progress=False)


def test_shares_are_of_the_good_rows_that_will_be_exported(replay, with_faults):
    takes, faults = with_faults
    run, _ = replay(takes)
    parts = spf.split(run, {"train": 0.5, "test": 0.5}, only="good", progress=False)
    assert {*parts.index} == {*map(str, range(len(LINES)))} - {*faults}
    found = spf.quality(run, progress=False).assign(grade="good")
    assert len(spf.split(run, {"train": 0.5, "test": 0.5}, only="good", quality=found)) == len(LINES)
    with pytest.raises(spf.ExportError, match="only='best' is not allowed; allowed: 'kept', 'good'"):
        spf.split(run, {"train": 1.0}, only="best")


def test_the_trusted_languages_are_those_of_the_table_of_clarity():
    best = {}
    for row in read_csv("clarity.csv"):
        language = get_language(row["locale"])
        best[language] = min(best.get(language, 1.0), float(row["error"]))
    assert {language for language, error in best.items() if error <= 0.1} == TRUSTED_LANGUAGES


def test_the_command_prints_bad_rows_and_writes_all_measures(replay, with_faults, capsys, tmp_path):
    takes, faults = with_faults
    run, _ = replay(takes)
    assert main(["quality", str(run.path), "--csv", str(tmp_path / "all.csv")]) == 1
    out = capsys.readouterr().out
    assert "13 good, 0 check, 5 bad" in out
    assert "sample rate is wrong" in out
    assert len(pd.read_csv(tmp_path / "all.csv")) == len(LINES)
    assert main(["quality", str(run.path), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["grades"] == {"good": 13, "check": 0, "bad": 5}
    assert {row["row_id"] for row in said["rows"]} == set(faults)
