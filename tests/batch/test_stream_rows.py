"""Rows of falcon-2: each a stream that is collected whole, with the promises that all rows have."""

import json
import random
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pydantic import SecretStr

import speechframe as spf
from speechframe.audio import codec
from speechframe.cli.app import main
from speechframe.errors import InvalidRows, SettingsError
from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.connection import Connection
from speechframe.old_batch.stream_rows import StreamOperation
from speechframe.old_batch.truth import Truth
from speechframe.old_client import Spoken, SyncClient
from speechframe.settings import Settings
from speechframe.spec.billing import billed_characters
from speechframe.spec.limits import REGIONS
from speechframe.spec.speech import Format, Voice
from speechframe.testing import FaultyService, tag_in, tag_of

QUOTA = 10_000_000
TONE = (0.4 * np.sin(np.arange(960_000) / 9)).astype(np.float32)
COLUMN = "text"
STREAMS = "no word durations, no balance, billed characters are computed"
VOICE = Voice(voice_id="en-US-nora", locale="en-US")


@pytest.fixture(scope="module")
def child():
    with FaultyService(quota=QUOTA, retry_after="float", retry_after_s=0.01) as running:
        yield running


@pytest.fixture
def faulty(child):
    """One service for all tests; what it counts is told from where a test began."""
    child.set(scripts={}, faults={}, cap=None, publish_cap=False, idempotent=True, quota=QUOTA, latency=0.0)
    return child


@pytest.fixture
def speak(faulty, tmp_path):
    def call(texts, *, run_dir=tmp_path / "run", **options):
        given = {
            "voice": "nora",
            "model": "falcon-2",
            "format": "WAV",
            "sample_rate": 16000,
            "progress": False,
        }
        return spf.generate(texts, service=faulty.settings, run_dir=run_dir, **{**given, **options})

    return call


def lines(name, count=24):
    return [f"{name}: this is line {i}." for i in range(count)]


def billed(service, texts):
    """Characters and times that the service billed for these texts."""
    books = service.books()
    found = [books.billed[tag] for tag in map(tag_of, texts) if tag in books.billed]
    return sum(one.characters for one in found), [one.times for one in found]


def check_audio(run, *states):
    """Every row has the audio of its own text."""
    frame = run.to_pandas(audio=True)
    assert set(frame["status"]) == set(states or {"done"})
    for row in frame[frame["status"] == "done"].to_dict("records"):
        assert tag_in(row["audio"]["bytes"]) == tag_of(row["text"])
    return frame


def test_a_row_is_audio_without_words_and_balance(speak, faulty):
    texts = lines("plain", 3)
    run = speak(texts)
    frame = check_audio(run)
    assert frame["word_durations"].isna().all()
    assert frame["balance_after"].isna().all()
    assert set(frame["model"]) == {"falcon-2"}
    assert set(frame["sample_rate"]) == {16000}
    assert set(frame["lane"]) == {"global/streaming"}
    assert (
        frame["billed_characters"].tolist()
        == frame["credits"].tolist()
        == list(map(billed_characters, texts))
    )
    assert frame["audio_seconds"].between(0.3, 5).all()
    ledger = run.ledger
    assert set(ledger["credits_basis"]) == {"computed"}
    assert ledger["balance_after"].isna().all()
    assert (ledger["credits"].sum(), run.operation) == (billed(faulty, texts)[0], "generate")
    assert run.clip("0").words == ()
    assert run.summary().count(STREAMS) == 1
    assert run._folder.verify() == []
    # What is left comes from the page of limits: no answer says it.
    assert run.progress.balance == faulty.books().remaining[ledger["key_fingerprint"][0]]


def test_what_a_stream_cannot_tell_is_said_before_anything_is_spent(speak, faulty, capsys):
    before = faulty.books().requests
    run = speak(lines("dry"), dry_run=True, progress=True)
    said = capsys.readouterr().err
    assert said.count(STREAMS) == 1
    assert "dry run" in said
    assert (run.estimate.calls, faulty.books().requests) == (24, before)
    speak(lines("dry", 2), progress=True)
    assert capsys.readouterr().err.count(STREAMS) == 1
    speak(lines("dry", 2), model="gen2", sample_rate=8000, progress=True)
    assert STREAMS not in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_a_storm_of_everything_loses_and_swaps_no_row(speak, faulty):
    draw = random.Random(20_260_101)
    steps = ["429", "408", "500", "503", "reset_before", "reset_after", "truncated", "no_audio"]
    texts = lines("storm", 60)
    scripts = {text: draw.choices(steps, k=draw.randrange(3)) for text in texts}
    faulty.set(scripts={text: script for text, script in scripts.items() if script})
    before = faulty.books()
    run = speak([*texts, *texts[:9]], max_concurrency=12, max_credits=sum(map(billed_characters, texts)))
    assert len(check_audio(run)) == 69
    # Its own books: each text was billed once, whatever befell the answers.
    characters, times = billed(faulty, texts)
    assert set(times) == {1}
    ledger = run.ledger
    assert ledger["credits"].sum() == characters == run.stats["credits"]
    assert len(ledger) == faulty.books().requests - before.requests
    assert faulty.books().early_retries == before.early_retries
    assert run.stats["drift_characters"] == 0


def test_a_truncated_stream_is_never_taken_and_its_charge_is_in_the_books(speak, faulty):
    texts = lines("truncated", 4)
    faulty.set(idempotent=False, scripts={text: ["truncated", "ok"] for text in texts})
    run = speak(texts)
    check_audio(run)
    ledger = run.ledger
    characters, times = billed(faulty, texts)
    assert (set(times), ledger["credits"].sum()) == ({2}, characters)
    lost = ledger[ledger["status"] == "error"]
    assert set(zip(lost["error_code"], lost["credits_basis"], strict=True)) == {("BadAnswer", "computed")}
    assert len(lost) == 4


def test_a_stream_that_is_always_truncated_fails_its_row_alone(speak, faulty):
    texts = lines("always", 3)
    faulty.set(scripts={texts[1]: ["truncated", "..."]})
    run = speak(texts, max_attempts=2)
    check_audio(run, "done", "failed")
    (row,) = run.failed.to_dict("records")
    assert (row["text"], row["error_code"], row["attempts"]) == (texts[1], "BadAnswer", 2)
    assert "truncated" in row["error_message"]
    assert billed(faulty, texts)[1] == [1, 1, 1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", ["reset_after", "hang", "hang_billed"])
def test_without_an_answer_it_may_have_been_billed_and_is_not_sent_again(speak, faulty, step):
    texts = lines(step, 4)
    faulty.set(idempotent=False, scripts={texts[2]: [step, "ok"]})
    # The others have as long as they need.
    speak([*texts[:2], texts[3]])
    run = speak(texts, timeout_s=0.5)
    frame = check_audio(run, "done", "charged_unknown")
    assert frame.loc[frame["text"] == texts[2], "status"].tolist() == ["charged_unknown"]
    requests = faulty.books().requests
    check_audio(speak(texts), "done", "charged_unknown")
    assert faulty.books().requests == requests
    check_audio(speak(texts, on_unknown="retry"))


def test_a_hanging_stream_is_repeated_where_that_is_free(speak, faulty):
    texts = lines("hang free", 3)
    faulty.set(scripts={text: ["hang_billed", "ok"] for text in texts})
    run = speak(texts, timeout_s=0.5)
    check_audio(run)
    assert billed(faulty, texts)[1] == [1, 1, 1]
    assert run.ledger["credits"].sum() == sum(map(billed_characters, texts))


@pytest.mark.parametrize(("status", "reason"), [("402", "quota"), ("403", "key")])
def test_what_would_fail_every_row_stops_the_run_and_a_resume_goes_on(speak, faulty, status, reason):
    texts = lines(f"stop {status}", 12)
    faulty.set(scripts={texts[5]: [status, "..."]})
    run = speak(texts, max_concurrency=2)
    assert (run.status, run.stopped_because) == ("stopped", reason)
    check_audio(run, "done", "pending")
    faulty.set(scripts={})
    check_audio(spf.resume(run, service=faulty.settings, progress=False))
    assert set(billed(faulty, texts)[1]) == {1}


def test_a_budget_ends_a_run_to_the_character(speak, faulty):
    texts = lines("budget", 12)
    cost = sum(map(billed_characters, texts))
    run = speak(texts, max_credits=cost // 2)
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    spent, _ = billed(faulty, texts)
    assert cost // 2 - billed_characters(texts[0]) - 1 <= spent <= cost // 2
    check_audio(spf.resume(run, max_credits=cost, service=faulty.settings, progress=False))
    assert billed(faulty, texts)[0] == cost


@pytest.mark.usefixtures("quick")
def test_the_cap_is_learned_and_a_published_one_is_kept(speak, faulty):
    # Long enough that as many as are begun are in flight, however busy this machine is.
    faulty.set(cap=5, latency=0.3)
    before = faulty.books().refused
    check_audio(speak(lines("learned"), max_concurrency=30))
    learned = faulty.books().refused
    assert before < learned
    faulty.set(publish_cap=True, latency=0.02)
    check_audio(speak(lines("published"), max_concurrency=30))
    assert faulty.books().refused == learned


def test_killed_with_streams_in_flight_a_resume_loses_nothing_and_bills_nothing_twice(
    speak, faulty, lab, tmp_path
):
    texts = lines("killed")
    faulty.set(scripts={text: ["hang_billed", "..."] for text in texts[10:]})
    run_dir = tmp_path / "run"
    client = lab.start(texts, faulty.settings, run_dir, model="falcon-2", timeout_s=50)
    end = time.monotonic() + 60
    while len(billed(faulty, texts)[1]) < 14:
        assert time.monotonic() < end
        time.sleep(0.01)
    client.signal(signal.SIGKILL)
    client.end()
    assert spf.open_run(run_dir).stopped_because == "interrupted"
    faulty.set(scripts={})
    run = spf.resume(run_dir, service=faulty.settings, progress=False)
    check_audio(run)
    assert set(billed(faulty, texts)[1]) == {1}
    ledger = run.ledger
    assert ledger["credits"].sum() == sum(map(billed_characters, texts))
    assert (ledger["status"] == "charged_unknown").sum() == 4
    assert run._folder.verify() == []
    assert not list((run_dir / "log").iterdir())


@pytest.mark.parametrize(
    ("argument", "value"),
    [("audio_duration", 3.0), ("word_durations_as_original_text", True), ("encode_as_base64", True),
     ("model_version", "GEN2")],
)  # fmt: skip
def test_what_streams_do_not_have_is_a_problem_of_its_argument(speak, faulty, argument, value):
    before = faulty.books().requests
    with pytest.raises(InvalidRows) as caught:
        speak(lines("lacking", 2), **{argument: value})
    (problem,) = caught.value.problems
    assert (problem["field"], problem["allowed"]) == (argument, "leave it out, or model='gen2'")
    assert "streams of falcon-2" in problem["problem"]
    assert faulty.books().requests == before


def test_voices_and_rates_are_those_of_streams(speak):
    for wrong in (
        {"voice": "finley"},
        {"sample_rate": 22050},
        {"rate": 51},
        {"variation": 6},
        {"locale": "de-DE"},
    ):
        with pytest.raises(InvalidRows) as caught:
            speak(lines("wrong", 1), **wrong)
        assert [problem["field"] for problem in caught.value.problems] == list(wrong)
    with pytest.raises(InvalidRows, match=r'see voices\("falcon-2"\)'):
        speak(lines("wrong", 1), voice="zzzzzzzz")
    check_audio(speak(lines("right", 1), voice="luc"))


@pytest.mark.parametrize("model", [spf.col("m"), ["falcon-2", "falcon-2"], "falcon-3"])
def test_a_run_is_of_one_model(speak, model):
    table = pd.DataFrame({COLUMN: lines("models", 2), "m": "falcon-2"})
    with pytest.raises(InvalidRows) as caught:
        speak(table, model=model, sample_rate=8000)
    assert {problem["field"] for problem in caught.value.problems} == {"model"}
    assert "falcon-2 for the whole table" in str(caught.value)


def test_other_spellings_of_the_model_are_understood(speak):
    assert set(speak(lines("spelling", 1), model="FALCON").to_pandas()["model"]) == {"falcon-2"}


def test_variation_changes_nothing_and_is_not_sent():
    operation = StreamOperation(VoiceBook([VOICE]), "x")
    row = {"text": "Hello", "voice": "nora"}
    plain, varied = (operation.check({**row, **more}, 0).planned for more in ({}, {"variation": 4}))
    assert plain.request_key == varied.request_key
    assert "variation" not in json.loads(varied.call.body)
    assert json.loads(varied.call.body)["model"] == "falcon-2"


def test_another_take_would_be_the_same_and_costs_nothing(speak, faulty):
    texts = lines("takes", 3)
    run = speak(texts)
    assert speak(texts, take=2).estimate.calls == 0
    again = spf.resume(run, redo="done", service=faulty.settings, progress=False)
    assert again.estimate.identical_retakes == 3
    check_audio(again)
    assert billed(faulty, texts)[1] == [1, 1, 1]


def test_one_folder_takes_both_models_and_makes_only_what_is_new(speak, faulty):
    texts = lines("both", 3)
    speak(texts)
    run = speak(texts, model="gen2", sample_rate=8000)
    assert set(run.to_pandas()["model"]) == {"gen2"}
    assert run.to_pandas()["word_durations"].map(len).min() > 0
    assert STREAMS not in run.summary()
    assert billed(faulty, texts)[1] == [2, 2, 2]
    back = speak(texts)
    assert (back.estimate.calls, back.estimate.finished) == (0, 3)
    assert check_audio(back)["word_durations"].isna().all()
    # And a resume with a table finds the model, and its voices, in the folder.
    more = spf.resume(back, [*texts, "both: one more."], service=faulty.settings, progress=False)
    assert set(check_audio(more)["model"]) == {"falcon-2"}
    assert spf.changes(more, [*texts, "both: another."], service=faulty.settings).new == ()


def test_answers_come_from_the_cache_as_they_were(speak, tmp_path):
    texts = lines("cached", 3)
    speak(texts, cache=tmp_path / "cache")
    run = speak(texts, cache=tmp_path / "cache", run_dir=tmp_path / "other")
    frame = run.to_pandas(audio=True)
    assert (set(frame["status"]), frame["credits"].sum()) == ({"cached"}, 0)
    assert frame["word_durations"].isna().all()
    assert [tag_in(audio["bytes"]) for audio in frame["audio"]] == list(map(tag_of, texts))


def answer(samples, *, rate_hz=16000):
    audio = codec.encode(samples, rate_hz, format=Format.WAV)
    return Spoken(
        audio, Format.WAV, rate_hz, 1, len(samples) / rate_hz, words=[], billed_characters=5,
        remaining_characters=None, warnings=(), trace_id=None, latency_ms=1.0, region="global",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "code"),
    [
        (TONE[:32000], None),
        (TONE[:32000] * 0, "silent"),
        (TONE[:3000], "pace"),
        (TONE, "pace"),
    ],
)
def test_audio_that_cannot_be_true_is_suspect_though_there_are_no_words_to_check(samples, code):
    row = {"text": "Good morning, everyone out there.", "voice": "nora", "format": "WAV"}
    planned = StreamOperation(VoiceBook([VOICE]), "x").check(row, 0).planned
    truth = Truth()
    assert [doubt.code for doubt in truth.doubts(planned, answer(samples))] == ([code] if code else [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("format", list(Format))
def test_the_embedded_service_streams_rows_of_every_format(service, tmp_path, format):
    texts = ["This is line one, said aloud. And it has a second sentence.", "Another [pause 1s] one."]
    run = spf.generate(
        texts, voice="ivy", model="falcon-2", format=format.value, sample_rate=16000, service=service,
        run_dir=tmp_path / "run", progress=False,
    )  # fmt: skip
    frame = run.to_pandas()
    assert frame["status"].tolist() == ["done", "done"], frame["error_message"].tolist()
    assert set(frame["format"]) == {format.value}
    assert set(frame["sample_rate"]) == {8000 if format in {Format.ALAW, Format.ULAW} else 16000}
    for name, row in frame.iterrows():
        clip = run.clip(name)
        assert clip.audio_seconds == pytest.approx(row["audio_seconds"], abs=0.01)
        assert clip.audio_seconds > 1


@pytest.mark.parametrize("region", list(REGIONS))
def test_a_lane_begins_at_the_regions_own_cap_for_streams(region):
    settings = Settings(api_key=SecretStr("sk-x"), base_url="http://127.0.0.1:9", profile="mine")
    client = SimpleNamespace(settings=settings, regions=(region,))
    documented = REGIONS[region].streaming_concurrency
    width = Connection(client, {}, None).width("streaming", 100)
    assert width == (15 if documented is None else documented)
    assert Connection(client, {}, None).width("streaming", 1) == 1
    assert Connection(client, {}, None).width("other", 100) == 15
    told = Connection(client, {"pools": {"streaming": 7, "other": 3}}, None)
    assert (told.width("streaming", 100), told.width("other", 100)) == (7, 3)


def test_the_command_takes_the_model(faulty, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", faulty.api_key.get_secret_value())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("A command.\nAnother one.\n")
    where = ["--base-url", faulty.url, "--profile", "mine"]
    given = ["generate", "lines.txt", "--voice", "nora", "--model", "falcon-2", "--run-dir", "run", *where]
    assert main([*given, "--dry-run"]) == 0
    assert STREAMS in capsys.readouterr().out
    assert main(given) == 0
    assert STREAMS in capsys.readouterr().err
    assert set(spf.open_run("run").to_pandas()["model"]) == {"falcon-2"}


def test_one_line_can_be_said_too(faulty):
    clip = spf.say("One line.", "nora", model="falcon-2", format="WAV", service=faulty.settings)
    assert (tag_in(clip.audio), clip.words, clip.credits) == (tag_of("One line."), (), 9)
    with pytest.raises(InvalidRows, match="no known voice"):
        spf.say("One line.", "finley", model="falcon-2", service=faulty.settings)
    with pytest.raises(SettingsError):
        spf.say("One line.", "nora", model="falcon-2", service=object())


@pytest.mark.slow
def test_killed_in_the_middle_of_streams_of_the_embedded_service_nothing_is_billed_twice(
    lab, service, tmp_path
):
    texts = [
        f"Line {i} begins here. It goes on for a while. It has a third sentence. And an end."
        for i in range(18)
    ]
    there = replace(service.settings, profile="faulty")
    with SyncClient(there) as client:
        before = client.limits()["remaining_characters"]
    made = 0
    while made < 10:
        client = lab.start(
            texts, there, tmp_path / "run", model="falcon-2", voice="ivy", max_concurrency=4,
            signalled_at=(3, signal.SIGKILL),
        )  # fmt: skip
        assert client.end()[2] == -signal.SIGKILL
        made = max(made + 5, _logged(tmp_path / "run"))
    run = spf.generate(
        texts,
        voice="ivy",
        model="falcon-2",
        service=there,
        run_dir=tmp_path / "run",
        progress=False,
        sample_rate=8000,
    )
    assert set(run.to_pandas()["status"]) == {"done"}
    cost = sum(map(billed_characters, texts))
    with SyncClient(there) as client:
        assert before - client.limits()["remaining_characters"] == cost
    assert run.ledger["credits"].sum() == cost
    assert (run.ledger["status"] == "charged_unknown").any()


def _logged(folder):
    try:
        return len(spf.open_run(folder)._folder.keys())
    except spf.errors.SpeechframeError:
        return 0
