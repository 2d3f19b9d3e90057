"""The verb on the real embedded service: what a user sees."""

import asyncio
import hashlib
import threading

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import datasets
import speechframe as spf
from speechframe import aio
from speechframe.audio import codec
from speechframe.local import local_service
from speechframe.old_client import SyncClient
from speechframe.spec.billing import billed_characters
from speechframe.spec.speech import Format

LINES = ["Good morning.", "See you at ten.", "Good morning.", "Wait. [pause 1s] Now!"]


@pytest.fixture
def generate(service, tmp_path):
    def call(table, *, run_dir=tmp_path / "run", **options):
        return spf.generate(
            table, **{"voice": "nora", "service": service, "progress": False, "run_dir": run_dir, **options}
        )

    return call


def balance(service):
    with SyncClient(service.settings) as client:
        return client.limits()["remaining_characters"]


def test_a_table_becomes_speech(generate, service):
    before = balance(service)
    run = generate(pd.DataFrame({"text": LINES, "note": list("abcd")}, index=["w", "x", "y", "z"]))
    frame = run.to_pandas()
    assert list(frame.index) == ["w", "x", "y", "z"]
    assert list(frame.columns[:2]) == ["text", "note"]
    assert set(frame["status"]) == {"done"}
    assert frame.loc["w", "request_key"] == frame.loc["y", "request_key"] != frame.loc["x", "request_key"]
    unique = sum(billed_characters(text) for text in dict.fromkeys(LINES))
    assert before - balance(service) == unique == run.stats["credits"]
    assert frame["billed_characters"].tolist() == [billed_characters(text) for text in LINES]
    assert frame["balance_after"].min() == balance(service)
    assert (run.status, run.stopped_because) == ("finished", None)
    for name in ("latency_ms", "lane", "service", "model", "voice_id", "sha256", "trace_id"):
        assert frame[name].notna().all(), name
    assert set(frame["model"]) == {"gen2"}
    assert set(frame["voice_id"]) == {"en-US-nora"}


def test_rare_columns_of_polars_come_back(generate):
    kinds = pl.Series(["a", "b", "a", None], dtype=pl.Enum(["b", "a"]))
    pairs = pl.Series([["a", "b"], None, ["c", "d"], ["e", "f"]], dtype=pl.Array(pl.String, 2))
    table = pl.DataFrame({"text": LINES, "kind": kinds, "pair": pairs})
    run = generate(table)
    frame = run.to_pandas()
    assert frame["kind"].astype(object).where(frame["kind"].notna(), None).tolist() == kinds.to_list()
    assert [None if pair is None else list(pair) for pair in frame["pair"]] == pairs.to_list()
    assert run.select([2, 0]).to_pandas()["text"].tolist() == [LINES[2], LINES[0]]
    assert generate(table).estimate.calls == 0


def test_audio_words_and_hashes_belong_together(generate):
    run = generate(LINES)
    for row in run.to_pandas(audio=True).to_dict("records"):
        data = row["audio"]["bytes"]
        audio = codec.decode(data)
        assert audio.sample_rate_hz == row["sample_rate"] == 44100
        assert len(audio.samples) / 44100 == pytest.approx(row["audio_seconds"], abs=1e-6)
        assert hashlib.sha256(data).hexdigest() == row["sha256"]
        assert row["audio"]["path"] == f"{row['request_key']}.flac"
        words = row["word_durations"]
        assert [w["word"].strip(".!,") for w in words] == [
            w.strip(".!,") for w in row["text"].replace("[pause 1s] ", "").split()
        ]
        assert all(0 <= w["start_ms"] <= w["end_ms"] <= 1000 * row["audio_seconds"] + 1 for w in words)
    assert row["audio_seconds"] > 1.0


def test_the_same_call_again_costs_nothing(generate, service):
    generate(LINES)
    before = balance(service)
    run = generate(LINES)
    assert balance(service) == before
    assert (run.estimate.calls, run.estimate.finished) == (0, 3)
    assert len(run.ledger) == 3
    assert len(list((run.path / "input").glob("*.parquet"))) == 1


def test_default_folder_is_the_same_for_the_same_cell(generate, service, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = generate(LINES, run_dir=None)
    before = balance(service)
    second = generate(LINES, run_dir=None)
    assert first.path == second.path
    assert first.place.startswith("speechframe-runs/generate-")
    assert first.path.is_absolute()
    assert balance(service) == before
    assert generate(LINES[:1], run_dir=None).path != first.path
    assert not list((tmp_path / "speechframe-runs").glob(".planning*"))


def test_twenty_rows_then_the_whole_table(generate, service):
    frame = pd.DataFrame({"text": [f"Line number {i}." for i in range(60)]})
    run = generate(frame.head(20))
    first = run.to_pandas(audio=True)
    before = balance(service)
    whole = spf.resume(run.path, table=frame, service=service, progress=False)
    assert before - balance(service) == frame["text"].iloc[20:].str.len().sum()
    after = whole.to_pandas(audio=True)
    assert len(after) == 60
    assert set(after["status"]) == {"done"}
    assert after["sha256"].head(20).tolist() == first["sha256"].tolist()
    assert [a["bytes"] for a in after["audio"].head(20)] == [a["bytes"] for a in first["audio"]]


def test_changes_says_what_resume_would_do(generate, service):
    old = pd.DataFrame(
        {"text": ["one", "two", "three"], "voice": ["nora", "nora", "nora"]}, index=list("abc")
    )
    run = generate(old, voice=spf.col("voice"))
    new = pd.DataFrame({"text": ["one", "too", "four"], "voice": ["nora", "hank", "nora"]}, index=list("abd"))
    found = spf.changes(run, new, service=service)
    assert (found.new, found.changed, found.removed, found.unchanged) == (("d",), ("b",), ("c",), ("a",))
    assert found.columns == {"b": ("text", "voice")}
    before = balance(service)
    spf.resume(run, table=new, service=service, progress=False)
    assert before - balance(service) == found.credits == 7
    assert spf.open_run(run.path).to_pandas()["text"].tolist() == ["one", "too", "four"]


def test_reordered_rows_cost_nothing(generate, service):
    frame = pd.DataFrame({"text": ["one", "two", "three"]})
    generate(frame)
    before = balance(service)
    run = generate(frame.iloc[::-1])
    assert balance(service) == before
    assert run.to_pandas()["text"].tolist() == ["three", "two", "one"]


def test_another_take_differs_and_the_first_can_be_chosen_back(generate, service):
    run = generate(["Say it again, please.", "And this stays."])
    first = run.to_pandas()["sha256"].tolist()
    again = spf.resume(run, redo=["0"], service=service, progress=False)
    second = again.to_pandas()
    assert second["take"].tolist() == [1, 0]
    assert second["sha256"].tolist()[0] != first[0]
    assert second["sha256"].tolist()[1] == first[1]
    before = balance(service)
    back = generate(["Say it again, please.", "And this stays."])
    assert back.to_pandas()["sha256"].tolist() == first
    assert balance(service) == before


def test_dry_run_spends_nothing_and_resume_starts_it(generate, service):
    before = balance(service)
    run = generate(LINES, dry_run=True)
    assert balance(service) == before
    assert (run.status, run.estimate.rows, run.estimate.unique, run.estimate.calls) == ("planned", 4, 3, 3)
    assert run.estimate.credits == sum(billed_characters(t) for t in dict.fromkeys(LINES))
    assert set(run.to_pandas()["status"]) == {"pending"}
    done = spf.resume(run, service=service, progress=False)
    assert set(done.to_pandas()["status"]) == {"done"}
    assert before - balance(service) == run.estimate.credits


def test_dry_run_shows_problems_and_resume_does_not_leave_rows_out_unasked(generate, service):
    run = generate(["fine", ""], dry_run=True)
    assert [p["row_id"] for p in run.problems] == ["1"]
    assert (run.estimate.invalid, run.estimate.calls) == (1, 1)
    with pytest.raises(spf.InvalidRows, match="row '1', text: is empty"):
        spf.resume(run, service=service, progress=False)
    done = spf.resume(run, service=service, progress=False, on_invalid="skip")
    assert done.to_pandas()["status"].tolist() == ["done", "invalid"]


def test_invalid_rows_can_be_left_out(generate):
    run = generate(["fine", "", "fine too"], on_invalid="skip")
    frame = run.to_pandas()
    assert frame["status"].tolist() == ["done", "invalid", "done"]
    assert "text is empty" in frame["error_message"][1]
    assert [p["row_id"] for p in run.problems] == ["1"]
    assert list(run.failed.index) == [1]


@pytest.mark.parametrize("index", [None, pd.RangeIndex(10, 50, 10), pd.Index(["a", "b", "c", "d"])])
def test_failed_keeps_the_index_of_the_table(generate, index):
    frame = pd.DataFrame({"text": ["", "fine", "", "fine too"]}, index=index)
    run = generate(frame, on_invalid="skip")
    pd.testing.assert_index_equal(run.failed.index, frame.index[[0, 2]], exact="equiv")


def test_invalid_rows_leave_nothing_behind(generate, tmp_path):
    with pytest.raises(spf.InvalidRows):
        generate(["fine", ""])
    assert list(tmp_path.iterdir()) == []
    run = generate(["fine"])
    with pytest.raises(spf.InvalidRows):
        generate(["fine", ""])
    assert spf.open_run(run.path).to_pandas()["text"].tolist() == ["fine"]


def test_budget_stops_before_it_is_passed(generate, service):
    texts = [f"This is line {i:02d}." for i in range(20)]
    run = generate(texts, max_credits=100)
    assert run.stats["credits"] <= 100
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    assert run.stats["done"] == 100 // len(texts[0])
    assert generate(texts, max_credits=100).stats["credits"] == run.stats["credits"]
    with pytest.raises(spf.BudgetExceeded, match="are left"):
        generate(texts, max_credits=100, on_error="raise")
    again = spf.resume(run, service=service, progress=False)
    assert (again.stopped_because, again.stats["credits"]) == ("budget", run.stats["credits"])
    more = spf.resume(run, service=service, progress=False, max_credits=float("inf"))
    assert set(more.to_pandas()["status"]) == {"done"}


def test_exhausted_quota_stops_with_everything_kept(tmp_path):
    texts = [f"This is line {i:02d}." for i in range(20)]
    with local_service(quota=100, concurrency=4) as small:
        run = spf.generate(texts, voice="nora", run_dir=tmp_path / "r", service=small, progress=False)
        assert (run.status, run.stopped_because) == ("stopped", "quota")
        assert run.stats["done"] == 100 // len(texts[0])
        assert balance(small) == 100 - run.stats["credits"]


def test_two_services_are_not_mixed(generate, tmp_path):
    run = generate(["fine"])
    manifest = (run.path / "run.json").read_text()
    assert '"local/espeak-' in manifest
    (run.path / "run.json").write_text(manifest.replace('"local/espeak-', '"local/other-'))
    with pytest.raises(spf.RunMismatch, match="rows of two services are not mixed"):
        generate(["fine", "more"])
    assert len(pq.read_table(run.path / "parts")) == 1


def test_other_tools_open_the_parts(generate, tmp_path):
    run = generate(LINES)
    parts = str(run.path / "parts" / "*.parquet")
    frame = pd.concat(map(pd.read_parquet, run.part_files))
    assert len(frame) == 3
    total, words = duckdb.sql(f"select sum(credits), sum(len(word_durations)) from '{parts}'").fetchall()[0]
    assert total == run.stats["credits"]
    assert words == 2 + 4 + 2
    loaded = datasets.load_dataset(
        "parquet", data_files=parts, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert isinstance(loaded.features["audio"], datasets.Audio)
    raw = loaded.cast_column("audio", datasets.Audio(decode=False))[0]["audio"]["bytes"]
    assert codec.inspect(raw).format is Format.FLAC
    joined = duckdb.sql(
        f"select text, audio_seconds from '{run.path}/input/*.parquet' join (select request_key, audio_seconds "
        f"from '{parts}') using (request_key)"
    ).fetchall()
    assert len(joined) == 4


def test_our_names_are_prefixed_beside_the_callers(generate, capsys):
    run = generate(pd.DataFrame({"text": ["a line"], "status": ["draft"], "audio": ["take1.wav"]}))
    frame = run.to_pandas(audio=True)
    assert frame.loc[0, ["status", "audio", "speech_status"]].tolist() == ["draft", "take1.wav", "done"]
    assert codec.inspect(frame.loc[0, "speech_audio"]["bytes"]).audio_seconds > 0
    generate(["a line"], run_dir=run.path.with_name("other"), progress=True)
    assert "ours are called" not in capsys.readouterr().err
    generate(
        pd.DataFrame({"text": ["a line"], "status": ["x"]}),
        run_dir=run.path.with_name("third"),
        progress=True,
    )
    assert "ours are called speech_status" in capsys.readouterr().err
    assert run.stats["done"] == 1
    assert run.clip(0).audio_seconds > 0
    assert run.failed.empty


def test_a_polars_frame_with_lists_of_strings(generate):
    frame = pl.DataFrame({"text": ["one", "two"], "who": ["nora", "hank"], "tags": [["a", "b"], []]})
    run = generate(frame, voice=spf.col("who"))
    assert run.to_pandas()[["status", "voice_id"]].to_numpy().tolist() == [
        ["done", "en-US-nora"],
        ["done", "en-US-hank"],
    ]
    assert run.to_arrow()["tags"].to_pylist() == [["a", "b"], []]


def test_clip_plays_saves_and_measures(generate, tmp_path):
    run = generate(pd.DataFrame({"line": ["Good morning."], "no": ["007"]}), text="line", id="no")
    clip = run.clip("007")
    assert clip.samples.dtype == np.float32
    assert clip.samples.shape == (round(clip.audio_seconds * clip.sample_rate),)
    assert [w for w, _, _ in clip.words] == ["Good", "morning"] or [w for w, _, _ in clip.words] == [
        "Good",
        "morning.",
    ]
    assert clip.save(tmp_path / "a").suffix == ".flac"
    for suffix in (".wav", ".flac", ".mp3", ".ogg"):
        saved = clip.save(tmp_path / f"a{suffix}")
        assert codec.inspect(saved.read_bytes()).audio_seconds == pytest.approx(clip.audio_seconds, abs=0.06)
    with pytest.raises(spf.AudioError, match=r"allowed: .*\.wav"):
        clip.save(tmp_path / "a.txt")
    assert "<audio controls" in clip._repr_html_()
    with pytest.raises(
        KeyError, match="no row has the id '7'; ids are the values of the column 'no', such as '007'"
    ):
        run.clip("7")


def test_say_and_voices(service):
    clip = spf.say("Good morning.", voice="nora", rate=10, service=service)
    slow = spf.say("Good morning.", voice="en-US-nora", rate=-30, service=service)
    assert 0.3 < clip.audio_seconds < slow.audio_seconds
    assert clip.credits == 13
    with pytest.raises(spf.InvalidRows, match="nora"):
        spf.say("Good morning.", voice="norra", service=service)
    with pytest.raises(spf.InvalidRows, match="is no argument"):
        spf.say("Good morning.", voice="nora", speed=10, service=service)
    voices = spf.voices(service=service)
    assert {"voice_id", "locale", "styles", "gender"} <= set(voices.columns)
    french = spf.voices(locale="fr", service=service)["locale"].tolist()
    own = sum(locale.startswith("fr-") for locale in french)
    assert 0 < own < len(french)
    assert all(locale.startswith("fr-") for locale in french[:own])
    with pytest.raises(spf.InvalidRows, match="is spoken by no voice"):
        spf.voices(locale="tlh", service=service)
    german = spf.voices(locale="de-DE", service=service)
    assert 4 <= len(german) < len(voices)
    assert set(spf.voices(model="falcon-2", service=service)["voice_id"]) != set(voices["voice_id"])
    with pytest.raises(spf.InvalidRows, match=r"falcon-2, gen2|gen2"):
        spf.voices(model="gen3", service=service)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("audio_format", [f.value for f in Format])
def test_every_format_and_url_delivery(generate, audio_format):
    run = generate(["Good morning."], format=audio_format, encode_as_base64=False)
    row = run.to_pandas(audio=True).iloc[0]
    assert row["status"] == "done", row["error_message"]
    assert row["format"] == audio_format
    clip = run.clip(0)
    assert 0.4 < clip.audio_seconds < 2
    assert np.abs(clip.samples).max() > 0.05


def test_live_run_from_sync_code(generate):
    run = generate([f"Line {i}." for i in range(30)], wait=False)
    assert run.status in {"running", "finished"}
    assert run.progress.total == 30
    assert run.wait(60) is run
    assert (run.status, run.progress.done) == ("finished", 30)


async def test_inside_a_running_loop(service, tmp_path):
    # A notebook's cell: the sync face is called while a loop runs in this very thread.
    run = spf.generate(
        ["In a notebook."], voice="nora", service=service, run_dir=tmp_path / "a", progress=False
    )
    assert run.status == "finished"
    beside = await aio.generate(
        ["In a program."], voice="nora", service=service, run_dir=tmp_path / "b", progress=False
    )
    assert beside.status == "finished"
    live = await aio.generate(
        ["Live."], voice="nora", service=service, run_dir=tmp_path / "c", progress=False, wait=False
    )
    assert (await live).status == "finished"


def test_two_threads_at_once(service, tmp_path):
    runs = {}

    def work(name):
        runs[name] = spf.generate(
            [f"Thread {name}."], voice="nora", service=service, run_dir=tmp_path / name, progress=False
        )

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [runs[name].status for name in "ab"] == ["finished", "finished"]


def test_nothing_configured_uses_the_local_service_and_says_so(tmp_path, capsys, caplog, monkeypatch):
    # A data folder of its own: the line is said when this process starts its service.
    monkeypatch.setenv("SPEECHFRAME_SERVICE", str(tmp_path / "service"))
    with caplog.at_level("INFO", logger="speechframe"):
        run = spf.generate(["No key, no network."], voice="nora", run_dir=tmp_path / "run")
    assert run.status == "finished"
    assert run.service.startswith("local/espeak-")
    shown = capsys.readouterr()
    assert "embedded local service" in shown.err
    assert shown.out == ""
    assert "no key is set" in caplog.text
    assert '"local": true' in (run.path / "run.json").read_text()


def test_the_key_is_nowhere(generate, service, caplog, tmp_path):
    key = service.api_key.get_secret_value()
    with caplog.at_level("DEBUG"):
        run = generate(LINES, tags=["a-tag"])
    assert key not in caplog.text
    for path in run.path.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path
    assert key not in repr(run) + repr(run.ledger.to_dict()) + run.summary() + repr(service)
    assert set(run.ledger["key_fingerprint"]) == {spf_fingerprint(key)}
    assert [list(tags) for tags in run.ledger["tags"]] == [["a-tag"]] * 3
    assert not set(LINES) & set(map(str, run.ledger.to_numpy().ravel()))


def spf_fingerprint(key):
    from speechframe.settings import fingerprint

    return fingerprint(key)


def test_many_rows_by_batches_in_order(generate):
    frame = pd.DataFrame({"text": [f"Row {i % 40}." for i in range(5000)]})
    run = generate(frame)
    seen = [text for batch in run.batches(["text", "status"]) for text in batch.column(0).to_pylist()]
    assert seen == frame["text"].tolist()
    assert run.stats["done"] == 5000
    assert len(run.ledger) == 40


def test_numpy_and_python_agree_about_missing_options(generate):
    frame = pd.DataFrame({"text": ["a b", "c d"], "rate": [np.nan, 20], "style": [None, "Narration"]})
    run = generate(frame, rate=spf.col("rate"), style=spf.col("style"))
    assert run.stats["done"] == 2


def _answered(folder):
    try:
        return spf.open_run(folder).stats["done"]
    except spf.StoreError:
        return 0


async def test_cancelled_from_outside(service, tmp_path):
    task = asyncio.create_task(
        aio.generate(
            [f"Line {i}." for i in range(400)],
            voice="nora",
            service=service,
            run_dir=tmp_path / "r",
            progress=False,
        )
    )
    # It is made in this very loop: meanwhile it stands still.
    async with asyncio.timeout(60):
        while not _answered(tmp_path / "r"):  # noqa: ASYNC110 - nothing tells of it but the folder
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = spf.open_run(tmp_path / "r")
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    done = run.stats["done"]
    assert 0 < done < 400
    finished = await aio.resume(run, service=service, progress=False)
    assert finished.stats["done"] == 400
    assert len(finished.ledger) == 400
