"""Clips in, the same clips in another voice out: nothing spent on what could be seen before, nothing paid twice."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changer_lab import KEY, RATE_HZ, Changer, clip
from fsspec.implementations.memory import MemoryFileSystem

import speechframe as spf
from speechframe import aio
from speechframe.audio import codec
from speechframe.errors import InvalidRows, StoreError
from speechframe.old_store import RunFolder
from speechframe.old_store.remote import Remote
from speechframe.old_store.schema import AUDIO_TYPE, HUGGINGFACE_METADATA
from speechframe.spec.billing import convert_millicredits
from speechframe.spec.chosen import MAX_UPLOAD_BYTES
from speechframe.spec.speech import Format


@pytest.fixture
def changer():
    made = Changer().up()
    yield made
    made.down()


@pytest.fixture
def change(changer, tmp_path):
    def call(table, **options):
        given = {"voice": "nora", "service": changer.settings, "run_dir": tmp_path / "run", "progress": False,
                 "sample_rate": RATE_HZ, **options}  # fmt: skip
        return spf.change_voice(table, **given)

    return call


@pytest.fixture
def clips(tmp_path):
    """Three files, of .5, .6 and .7 seconds."""
    folder = tmp_path / "clips"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.wav").write_bytes(clip(i, 0.5 + i / 10))
    return [folder / f"{i}.wav" for i in range(3)]


def samples_of(data):
    return codec.decode(data).samples


def is_of(answer, source):
    """Whether an answer is the changed clip (the service turns its sign) and no other."""
    made, given = samples_of(answer), samples_of(source)
    return len(made) == len(given) and np.corrcoef(made, -given)[0, 1] > 0.99


def price(*seconds):
    return sum(convert_millicredits(s) for s in seconds) / 1000


# -- what comes in ---------------------------------------------------------------------


def test_files_become_rows_and_each_answer_is_of_its_clip(change, changer, clips):
    run = change([str(path) for path in clips])
    frame = run.to_pandas(audio=True)
    assert frame["audio"].tolist() == [str(path) for path in clips]
    assert set(frame["status"]) == {"done"}
    assert set(frame["format"]) == {"FLAC"}
    for row, path in zip(frame.to_dict("records"), clips, strict=True):
        assert is_of(row["speech_audio"]["bytes"], path.read_bytes())
        assert row["sha256"] == hashlib.sha256(row["speech_audio"]["bytes"]).hexdigest()
    assert frame["audio_seconds"].tolist() == pytest.approx([0.5, 0.6, 0.7])
    assert frame["credits"].tolist() == [7.5, 9.0, 10.5]
    assert run.ledger["credits"].sum() == changer.spent == price(0.5, 0.6, 0.7)
    assert sorted(run.ledger["characters"]) == [8, 9, 11]
    # The files stay where they are.
    assert not (run.path / "input" / "audio").exists()
    assert run.stats["credits"] == 27.0


def shapes_of(clips):
    import datasets

    data = [path.read_bytes() for path in clips]
    arrays = [samples_of(d) for d in data]
    structs = pa.array([{"bytes": d, "path": "x.wav"} for d in data], AUDIO_TYPE)
    hugging = datasets.Dataset(pa.table({"audio": structs}).replace_schema_metadata(HUGGINGFACE_METADATA))
    assert isinstance(hugging.features["audio"], datasets.Audio)
    return {
        "paths": clips,
        "texts": [str(p) for p in clips],
        "bytes": data,
        "pairs": [(a, RATE_HZ) for a in arrays],
        "dicts": [{"array": a, "sampling_rate": RATE_HZ} for a in arrays],
        "frame of texts": pd.DataFrame({"audio": [str(p) for p in clips]}),
        "frame of paths": pd.DataFrame({"audio": clips}),
        "frame of bytes": pd.DataFrame({"audio": data}),
        "frame of arrays": pd.DataFrame({"audio": [{"array": a, "sampling_rate": RATE_HZ} for a in arrays]}),
        "series": pd.Series(data, name="audio"),
        "polars": pl.DataFrame({"audio": data}),
        "arrow": pa.table({"audio": pa.array(data, pa.large_binary())}),
        "structs": pa.table({"audio": structs}),
        "dataset": hugging,
        "folder": clips[0].parent,
    }


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [
    "paths", "texts", "bytes", "pairs", "dicts", "frame of texts", "frame of paths", "frame of bytes",
    "frame of arrays", "series", "polars", "arrow", "structs", "dataset", "folder",
])  # fmt: skip
def test_every_shape_of_a_clip_is_the_same_clip(change, changer, clips, name):
    table = shapes_of(clips)[name]
    run = change(table)
    frame = run.to_pandas(audio=True)
    made = frame["speech_audio" if "speech_audio" in frame else "audio"]
    assert [is_of(m["bytes"], p.read_bytes()) for m, p in zip(made, clips, strict=True)] == [True] * 3
    assert changer.spent == 27.0
    # A resume needs nothing from the caller.
    changer.seen.clear()
    for path in clips:
        path.unlink()
    again = spf.resume(run.path, service=changer.settings, progress=False)
    assert (again.estimate.calls, again.estimate.finished, changer.seen) == (0, 3, [])


def test_a_list_beside_a_table_gives_one_clip_a_row(change, clips):
    run = change(pd.DataFrame({"who": list("abc")}, index=list("xyz")), audio=[p.read_bytes() for p in clips])
    frame = run.to_pandas(audio=True)
    assert list(frame.index) == list("xyz")
    assert frame["who"].tolist() == list("abc")
    assert [is_of(a["bytes"], p.read_bytes()) for a, p in zip(frame["audio"], clips, strict=True)] == [
        True
    ] * 3


def test_paths_are_relative_to_the_file_of_the_table(change, clips, tmp_path, monkeypatch):
    table = clips[0].parent / "clips.csv"
    table.write_text("clip,who\n0.wav,a\n1.wav,b\n")
    monkeypatch.chdir("/")
    frame = change(table, audio="clip").to_pandas()
    assert frame["clip"].tolist() == ["0.wav", "1.wav"]
    assert set(frame["status"]) == {"done"}


def test_a_run_goes_on_to_another_voice(change, changer, clips, tmp_path):
    first = change([p.read_bytes() for p in clips])
    again = change(first, audio="audio", voice="finley", run_dir=tmp_path / "second")
    whole = change(again, audio="audio", run_dir=tmp_path / "third").to_pandas(audio=True)
    # Turned three times.
    for made, path in zip(whole["audio"], clips, strict=True):
        assert is_of(made["bytes"], path.read_bytes())
    assert changer.spent == 3 * 27.0


def test_a_parquet_file_with_audio_is_a_table(change, clips, tmp_path):
    pq.write_table(
        pa.table({"audio": [p.read_bytes() for p in clips], "n": [1, 2, 3]}), tmp_path / "t.parquet"
    )
    frame = change(tmp_path / "t.parquet").to_pandas(audio=True)
    assert frame["n"].tolist() == [1, 2, 3]
    assert is_of(frame["audio"][2]["bytes"], clips[2].read_bytes())


def test_the_folder_of_a_run_is_its_rows(change, changer, clips, tmp_path):
    first = change(clips)
    again = change(first.path, audio="speech_audio", run_dir=tmp_path / "second", voice="finley")
    for row_id in range(3):
        assert is_of(again.clip(row_id).audio, first.clip(row_id).audio)
    assert len(changer.seen) == 6


def test_equal_clips_are_one_call_wherever_they_lie(change, changer, clips, tmp_path):
    copy = tmp_path / "copy.wav"
    copy.write_bytes(clips[0].read_bytes())
    run = change([str(clips[0]), copy, clips[0].read_bytes(), None], on_invalid="skip")
    assert (run.estimate.rows, run.estimate.unique, run.estimate.invalid) == (4, 1, 1)
    assert len(changer.seen) == 1
    assert run.to_pandas()["status"].tolist() == ["done"] * 3 + ["invalid"]
    # The same clips in other places are the same calls.
    for path in clips:
        path.rename(tmp_path / path.name)
    assert change([str(tmp_path / "0.wav")]).estimate.calls == 0


def test_urls_are_fetched_once_and_kept(change, changer, clips):
    changer.pages = {"/a.wav": clips[0].read_bytes(), "/moved": "/a.wav"}
    run = change([f"{changer.url}/a.wav", f"{changer.url}/moved", *[f"{changer.url}/a.wav"] * 70])
    assert sorted(changer.fetched) == ["/a.wav", "/a.wav", "/moved"]
    assert set(run.to_pandas()["status"]) == {"done"}
    assert len(changer.seen) == 1
    assert [p.name for p in (run.path / "input" / "audio").iterdir()] == [changer.seen[0].sha256]


def torn(data):
    return data[:100]


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("damage", [torn, flipped, None])
def test_clips_that_a_run_has_lost_are_named_and_taken_from_the_same_call(
    change, clips, damage, is_named, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    data, place = [path.read_bytes() for path in clips], {} if is_named else {"run_dir": None}
    run = change(data, dry_run=True, **place)
    kept = sorted((run.path / "input" / "audio").iterdir())
    for path in kept[:2]:
        path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    folder = RunFolder.open(run.path)
    assert [run.path / problem.file for problem in folder.verify()] == kept[:2]
    assert change(data, **place).to_pandas()["error_message"].isna().all()
    assert folder.verify() == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (404, "answered 404"), (500, "answered 500"), ("/there", "more than 5 redirects"), (b"<html>", "no audio"),
        ("ftp://127.0.0.1/x", "neither http nor https"), (b"", "the file is empty"),
    ],
)  # fmt: skip
def test_a_url_without_a_clip_is_a_problem(change, changer, page, words):
    changer.pages = {"/there": page}
    with pytest.raises(InvalidRows) as caught:
        change([f"{changer.url}/there"])
    assert words in caught.value.problems[0]["problem"]
    assert changer.seen == []


def test_a_url_that_does_not_answer_is_a_problem(change, changer):
    with pytest.raises(InvalidRows, match="cannot be fetched"):
        change(["http://127.0.0.1:9/x.wav", "s3://bucket/x.wav"])


async def test_a_caller_who_stops_waiting_does_not_wait_for_slow_urls(changer, tmp_path):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def never(reader, writer):
        begun.set()
        await ended.wait()
        writer.close()

    silent = await asyncio.start_server(never, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/x.wav"
    given = {"voice": "nora", "service": changer.settings, "run_dir": tmp_path / "run", "progress": False}
    waiting = asyncio.create_task(aio.change_voice([url], **given))
    await asyncio.wait_for(begun.wait(), 60)
    began = time.monotonic()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert time.monotonic() - began < 10
    assert not list(tmp_path.iterdir())
    ended.set()
    silent.close()
    await silent.wait_closed()


# -- what cannot be sent -----------------------------------------------------------------


def _bad(tmp_path):
    wave = clip()
    text, cut, folder = tmp_path / "text.wav", tmp_path / "cut.wav", tmp_path / "folder.wav"
    text.write_text("no audio at all, but a name that says so")
    cut.write_bytes(wave[: len(wave) // 2])
    folder.mkdir()
    huge = tmp_path / "huge.wav"
    with huge.open("wb") as file:
        file.truncate(MAX_UPLOAD_BYTES + 1)
    return {
        "missing file": (str(tmp_path / "no.wav"), "does not exist"),
        "folder": (str(folder), "is a folder"),
        "text": (text, "no audio"),
        "cut off": (cut, "truncated"),
        "huge": (huge, "too large"),
        "empty": (b"", "the file is empty"),
        "no samples": (codec.encode(np.zeros(8, np.float32), 8000, format=Format.WAV)[:44], "truncated"),
        "other bytes": (bytes(range(256)) * 20, "no audio"),
        "nan": ((np.full(100, np.nan), 8000), "NaN"),
        "three dimensions": ((np.zeros((4, 4, 4)), 8000), "shape (4, 4, 4)"),
        "no frames": ((np.zeros(0), 8000), "not empty"),
        "unknown integers": ((np.zeros(100, np.uint16), 8000), "uint16"),
        "another scale": ((np.full(100, 3000.0), 8000), "[-1, 1]"),
        "no rate": ({"array": np.zeros(100), "sampling_rate": None}, "sample rate"),
        "odd rate": ((np.zeros(100), 1), "sample rate"),
        "many channels": ((np.zeros((100, 100)), 8000), "100 channels"),
        "a number": (5, "is int"),
        "a name with a NUL": ("a\0b.wav", "cannot be read"),
        "bucket": ("s3://bucket/x.wav", "s3:// is not fetched"),
        "nothing": (None, "is missing"),
        "no text": ("", "is missing"),
        "nothing in it": ({"bytes": None, "path": None}, "is missing"),
    }


BAD = [
    "huge", "missing file", "folder", "text", "cut off", "empty", "no samples", "other bytes", "nan", "three dimensions",
    "no frames", "unknown integers", "another scale", "no rate", "odd rate", "many channels", "a number",
    "a name with a NUL", "bucket", "nothing", "no text", "nothing in it",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_clip_is_said_before_anything_is_spent(change, changer, tmp_path, name):
    value, words = _bad(tmp_path)[name]
    with pytest.raises(InvalidRows) as caught:
        change(pd.DataFrame({"audio": [clip(), value]}))
    (line,) = caught.value.problems
    assert (line["row"], line["field"]) == (1, "audio")
    assert words in line["problem"]
    assert changer.seen == []
    assert not (tmp_path / "run").exists()


def test_bad_rows_can_be_left_out_and_say_why(change, changer, clips, tmp_path):
    bad = _bad(tmp_path)
    run = change([*(bad[name][0] for name in BAD), str(clips[0])], on_invalid="skip")
    frame = run.to_pandas()
    assert frame["status"].tolist() == ["invalid"] * len(BAD) + ["done"]
    assert [bad[name][1] in words for name, words in zip(BAD, frame["error_message"], strict=False)] == [
        True
    ] * len(BAD)
    assert len(changer.seen) == 1


def test_arrays_of_every_useful_kind_are_taken(change, changer):
    tone = np.sin(np.arange(8000) / 9)
    half = (tone * 0.5).astype(np.float32)
    kinds = [half, half.astype(np.float64), (half * 32767).astype(np.int16), (half * 2**31).astype(np.int32),
             np.stack([half, half], axis=1), np.stack([half, half])]  # fmt: skip
    frame = change([(k, 8000) for k in kinds]).to_pandas(audio=True)
    for made in frame["audio"]:
        assert np.abs(samples_of(made["bytes"]) + half).max() < 0.01
    assert [request.seconds for request in changer.seen] == [1.0] * len(changer.seen)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"format": "OGG"}, "format"), ({"format": "PCM"}, "format"), ({"voice": "norah"}, "voice"),
        ({"locale": "fr-FR"}, "locale"), ({"style": "Angry"}, "style"), ({"pitch": 51}, "pitch"),
        ({"sample_rate": 16000}, "sample_rate"), ({"audio_duration": -1}, "audio_duration"),
        ({"audio": b"RIFF"}, "audio"), ({"audio": "clip"}, "audio"),
    ],
)  # fmt: skip
def test_fields_are_checked_before_anything_is_spent(change, changer, clips, fields, field):
    with pytest.raises(InvalidRows) as caught:
        change(clips, **fields)
    assert [line["field"] for line in caught.value.problems] == [field]
    assert changer.seen == []


def test_a_clip_longer_than_the_service_takes_is_a_problem(change, changer, clips):
    changer.limits = {"max_audio_seconds": 0.65, "max_upload_bytes": 10**6}
    with pytest.raises(InvalidRows, match=r"0\.7 seconds"):
        change(clips)


def test_a_folder_without_audio_is_a_problem(change, tmp_path):
    with pytest.raises(InvalidRows, match="holds no audio files"):
        change(tmp_path)


# -- what is sent, and what is kept of it ----------------------------------------------------


def test_every_field_arrives_as_the_document_writes_it(change, changer, clips):
    change(
        clips[:1], locale="de_DE", pitch=3, rate=-2, variation=0, audio_duration=0.75, retain_accent=False,
        retain_prosody=False, transcription="Grüße", return_transcription=True, format="WAV", sample_rate=24000,
        channel_type="STEREO", pronunciation_dictionary={"a": {"type": "SAY_AS", "pronunciation": "b"}},
        encode_as_base64=True,
    )  # fmt: skip
    (request,) = changer.seen
    assert request.fields == {
        "voice_id": "en-US-nora", "multi_native_locale": "de_DE", "pitch": "3", "rate": "-2", "variation": "0",
        "audio_duration": "0.75", "retain_accent": "false", "retain_prosody": "false", "transcription": "Grüße",
        "return_transcription": "true", "sample_rate": "24000.0", "channel_type": "STEREO",
        "pronunciation_dictionary": '{"a":{"pronunciation":"b","type":"SAY_AS"}}', "encode_output_as_base64": "true",
    }  # fmt: skip
    assert (request.name, request.content_type) == ("clip.wav", "audio/wav")
    assert request.headers["api-key"] == KEY
    assert "X-Take" not in request.headers


def test_a_transcription_is_a_column(change, clips):
    frame = change(clips, return_transcription=True).to_pandas()
    assert frame["transcription"].tolist() == [
        "0.5 seconds of tone",
        "0.6 seconds of tone",
        "0.7 seconds of tone",
    ]


@pytest.mark.parametrize("step", ["url", "path"])
def test_audio_behind_a_link_is_fetched(change, changer, clips, step):
    changer.script = [step] * 3
    frame = change(clips, encode_as_base64=False).to_pandas(audio=True)
    assert is_of(frame["speech_audio"][1]["bytes"], clips[1].read_bytes())
    assert len(changer.fetched) == 3


@pytest.mark.parametrize(
    ("step", "options", "status", "code"),
    [
        ("long", {}, "suspect", "pace"), ("silent", {}, "suspect", "silent"), ("lies", {}, "suspect", "length"),
        ("ok", {}, "done", None), ("long", {"rate": -50}, "done", None), ("ok", {"audio_duration": 2.0}, "done", None),
        ("long", {"audio_duration": 1.0}, "done", None),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_true_are_suspect(change, changer, clips, step, options, status, code):
    changer.script = [step]
    (row,) = change(clips[:1], **options).to_arrow().to_pylist()
    assert (row["status"], row["error_code"]) == (status, code)


def test_a_retake_sends_its_number_and_stands_for_the_row(change, changer, clips):
    run = change(clips)
    again = spf.resume(run, redo=["1"], service=changer.settings, progress=False)
    assert again.to_pandas()["take"].tolist() == [0, 1, 0]
    assert [request.headers.get("X-Take") for request in changer.seen] == [None, None, None, "1"]


def test_suspect_answers_are_retaken_by_themselves(change, changer, clips):
    changer.script = ["silent"]
    frame = change(clips[:1], max_retakes=1).to_pandas()
    assert (frame["status"][0], frame["take"][0]) == ("done", 1)


def test_what_one_run_paid_for_costs_the_next_nothing(change, changer, clips, tmp_path):
    change(clips, cache=tmp_path / "cache", return_transcription=True)
    before = changer.spent
    run = change([p.read_bytes() for p in clips], cache=tmp_path / "cache", run_dir=tmp_path / "other",
                 return_transcription=True)  # fmt: skip
    assert (run.estimate.calls, run.estimate.cached) == (0, 3)
    assert run.to_pandas()["status"].tolist() == ["cached"] * 3
    assert changer.spent == before


def test_changes_and_a_new_table_cost_only_what_is_new(change, changer, clips):
    run = change(pd.DataFrame({"audio": map(str, clips[:2])}))
    clips[1].write_bytes(clip(9, 0.9))
    table = pd.DataFrame({"audio": map(str, clips)})
    found = spf.changes(run, table, service=changer.settings)
    assert (found.new, found.changed, found.unchanged) == (("2",), ("1",), ("0",))
    assert found.columns["1"] == ("audio",)
    assert found.credits == price(0.9, 0.7)
    before = changer.spent
    whole = spf.resume(run, table, service=changer.settings, progress=False).to_pandas(audio=True)
    assert changer.spent - before == price(0.9, 0.7)
    assert is_of(whole["speech_audio"][1]["bytes"], clips[1].read_bytes())


def test_a_resume_with_another_table_of_bytes_takes_them_in(change, changer, clips):
    data = [p.read_bytes() for p in clips]
    run = change(pd.DataFrame({"audio": data[:1]}))
    whole = spf.resume(run, pd.DataFrame({"audio": data}), service=changer.settings, progress=False)
    assert whole.to_pandas()["status"].tolist() == ["done"] * 3
    assert len(changer.seen) == 3


def test_a_dry_run_says_seconds_and_credits_and_keeps_all_it_needs(change, changer, clips):
    planned = change([p.read_bytes() for p in clips], dry_run=True)
    assert "3 calls, 1.8 s of audio, 27 credits" in planned.estimate.line()
    assert changer.seen == []
    frame = spf.resume(planned, service=changer.settings, progress=False).to_pandas()
    assert frame["status"].tolist() == ["done"] * 3


# -- what goes wrong on the way ------------------------------------------------------------


def test_a_file_that_changed_since_fails_its_row_and_is_not_sent(change, changer, clips):
    planned = change(clips, dry_run=True)
    clips[0].write_bytes(clip(7, 0.5))
    clips[1].unlink()
    run = spf.resume(planned, service=changer.settings, progress=False)
    frame = run.to_pandas()
    assert frame["status"].tolist() == ["failed", "failed", "done"]
    assert "has changed" in frame["error_message"][0]
    assert "cannot be read" in frame["error_message"][1]
    assert len(changer.seen) == 1
    assert run.ledger["credits"].sum() == changer.spent == price(0.7)
    # Given again, it is taken as it is now.
    clips[1].write_bytes(clip(8, 0.5))
    assert set(change(clips).to_pandas()["status"]) == {"done"}


def test_a_large_file_that_changed_is_never_sent_whole(change, changer, tmp_path):
    path = tmp_path / "large.wav"
    path.write_bytes(clip(1, 60.0, rate_hz=44100))
    planned = change([path], dry_run=True)
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\x11\x22")
    frame = spf.resume(planned, service=changer.settings, progress=False).to_pandas()
    assert "has changed" in frame["error_message"][0]
    assert changer.seen == []
    assert changer.spent == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("steps", [[500], [503], ["reset_before"], ["reset"], ["cut"], ["reset", "cut"]])
def test_what_failed_is_sent_again_and_billed_once(change, changer, clips, steps):
    changer.script = list(steps)
    run = change(clips, max_concurrency=1)
    assert set(run.to_pandas()["status"]) == {"done"}
    assert set(changer.billed.values()) == {1}
    assert changer.spent == 27.0


def test_without_free_repeats_a_lost_answer_is_not_sent_again(change, changer, clips):
    changer.idempotent, changer.script = False, ["reset"]
    frame = change(clips, max_concurrency=1).to_pandas()
    assert sorted(frame["status"]) == ["charged_unknown", "done", "done"]
    assert set(changer.billed.values()) == {1}


def test_a_refusal_fails_its_row_alone(change, changer, clips):
    changer.script = [400]
    frame = change(clips, max_concurrency=1).to_pandas()
    assert frame["status"].tolist() == ["failed", "done", "done"]


def test_a_budget_stops_before_the_clip_that_does_not_fit(change, changer, clips):
    run = change(clips, max_credits=17.0, max_concurrency=1)
    assert run.stopped_because == "budget"
    assert changer.spent == 16.5


KILLED = """
import sys
import speechframe as spf
from pydantic import SecretStr
from speechframe.settings import Settings
url, folder, clips = sys.argv[1:]
service = Settings(api_key=SecretStr("changer-key"), base_url=url, profile="changer")
spf.change_voice(clips, voice="nora", sample_rate=8000, service=service, run_dir=folder, progress=False,
                 max_concurrency=2)
"""


@pytest.mark.slow
def test_paid_clips_survive_a_kill_and_are_not_paid_again(changer, tmp_path):
    folder = tmp_path / "clips"
    folder.mkdir()
    for i in range(30):
        (folder / f"{i:02d}.wav").write_bytes(clip(i, 0.3))
    changer.script = ["ok"] * 12 + ["wait"] * 2
    command = [sys.executable, "-c", KILLED, changer.url, str(tmp_path / "run"), str(folder)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while len(changer.seen) < 14 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    changer.go.set()
    run = spf.resume(tmp_path / "run", service=changer.settings, progress=False)
    frame = run.to_pandas(audio=True)
    assert set(frame["status"]) == {"done"}
    for row in frame.to_dict("records"):
        assert is_of(row["speech_audio"]["bytes"], Path(row["audio"]).read_bytes())
    assert set(changer.billed.values()) == {1}
    assert len(changer.billed) == 30
    # Those that were kept were not even asked for again.
    assert len(changer.seen) < 30 + 4
    assert run.ledger["credits"].sum() == changer.spent == price(*[0.3] * 30)


# -- elsewhere ---------------------------------------------------------------------------------


def test_a_remote_run_holds_the_clips_that_have_no_file(change, changer, clips, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data = [p.read_bytes() for p in clips]
    planned = change(pd.DataFrame({"audio": data[:2]}), run_dir="memory://bucket/run", dry_run=True)
    assert changer.seen == []
    # Another machine has nothing of it but the address.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    run = spf.resume(str(planned.path), service=changer.settings, progress=False)
    assert run.to_pandas()["status"].tolist() == ["done"] * 2
    whole = spf.resume(
        str(planned.path), pd.DataFrame({"audio": data}), service=changer.settings, progress=False
    )
    assert whole.to_pandas()["status"].tolist() == ["done"] * 3
    assert len(changer.seen) == 3


def test_a_clip_that_is_gone_from_the_run_folder_fails_its_row(change, changer, clips):
    planned = change([p.read_bytes() for p in clips], dry_run=True)
    next((planned.path / "input" / "audio").iterdir()).unlink()
    frame = spf.resume(planned, service=changer.settings, progress=False).to_pandas()
    assert sorted(frame["status"]) == ["done", "done", "failed"]


def test_a_run_of_another_verb_is_refused(change, changer, clips):
    run = change(clips)
    with pytest.raises(StoreError):
        spf.generate(["a"], voice="nora", service=changer.settings, run_dir=run.path, progress=False)


def test_the_end_of_a_loop_cuts_off_no_upload(changer, clips, tmp_path):
    changer.idempotent = False
    changer.script = ["wait"] * 2

    async def program():
        given = {"voice": "nora", "sample_rate": RATE_HZ, "progress": False, "max_concurrency": 2}
        await aio.change_voice(clips, service=changer.settings, run_dir=tmp_path / "run", wait=False, **given)
        while len(changer.seen) < 2:  # noqa: ASYNC110 - it is in a thread of its own
            await asyncio.sleep(0.01)
        tasks.append(asyncio.create_task(told()))
        await asyncio.sleep(0)

    async def told():
        # Cancelled with all others when the program has ended.
        try:
            await asyncio.Event().wait()
        finally:
            threading.Timer(0.5, changer.go.set).start()

    tasks = []
    asyncio.run(program())
    run = spf.open_run(tmp_path / "run")
    assert run.to_pandas()["status"].value_counts().to_dict() == {"done": 2, "pending": 1}
    assert sum(changer.billed.values()) == 2


def test_clips_in_memory_are_made_at_an_address_in_one_call(change, changer, clips, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data = [path.read_bytes() for path in clips]
    run = change(data, run_dir=f"memory://bucket/{tmp_path.name}/run")
    assert run.to_pandas()["status"].tolist() == ["done"] * 3
    assert RunFolder.open(run.path).verify() == []


def test_of_two_that_put_equal_clips_the_one_that_fails_leaves_them(
    change, changer, clips, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data = [path.read_bytes() for path in clips]
    address = f"memory://bucket/{tmp_path.name}/run"
    put, claim, said = MemoryFileSystem.put_file, Remote.claim, []

    def put_no_table(fs, local, path, *given, **how):
        if path.endswith(".parquet"):
            raise PermissionError("not for this key")
        return put(fs, local, path, *given, **how)

    def claim_late(path, content):
        # All but run.json is there: now another caller puts the same clips, and cannot put a table.
        if path.name == "run.json" and not said:
            said.append(content)
            with monkeypatch.context() as refusing:
                refusing.setattr(MemoryFileSystem, "put_file", put_no_table)
                with pytest.raises(StoreError, match="not for this key"):
                    change(data, run_dir=address)
        return claim(path, content)

    monkeypatch.setattr(Remote, "claim", claim_late)
    run = change(data, run_dir=address)
    assert len(said) == 1
    assert run.to_pandas()["status"].tolist() == ["done"] * 3
    assert RunFolder.open(run.path).verify() == []


def test_clips_of_a_call_that_could_not_put_its_run_are_in_nobody_s_way(change, clips, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data = [path.read_bytes() for path in clips]
    address = f"memory://bucket/{tmp_path.name}/run"

    def refuse(*_, **__):
        raise PermissionError("not for this key")

    with monkeypatch.context() as refusing:
        refusing.setattr(MemoryFileSystem, "pipe_file", refuse)
        with pytest.raises(StoreError, match="not for this key"):
            change(data, run_dir=address)
    assert {Path(name).parent.name for name in MemoryFileSystem().find(address)} == {"audio"}
    run = change(data[:2], run_dir=address)
    assert run.to_pandas()["status"].tolist() == ["done"] * 2
    assert RunFolder.open(run.path).verify() == []
