"""What a run makes of a service that fails: nothing lost, nothing swapped, nothing paid twice, and an end."""

import random
import time
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from faulty import audio_of, check_audio, check_books, statuses
from pydantic import SecretStr

import speechframe as spf
from speechframe.errors import StoreError
from speechframe.old_store import RunWriter
from speechframe.spec.billing import billed_characters
from speechframe.widgets.watcher import Watcher

LINES = [f"This is line {i}." for i in range(24)]
COST = sum(map(billed_characters, LINES))


def test_a_storm_of_everything_loses_and_swaps_no_row(make_faulty, speak, quick):
    draw = random.Random(20_240_501)
    steps = [429, (429, 0.02), 408, 500, 503, (503, 0.02), "reset", "reset billed", "truncated", "broken json",
             "broken base64", "no audio"]  # fmt: skip
    texts = [f"Storm, row {i}" for i in range(150)]
    server = make_faulty(published=8, delay_s=0.002)
    server.scripts = {text: draw.choices(steps, k=draw.randrange(4)) for text in texts}
    run = speak(server, [*texts, *texts[:30]], max_concurrency=8)
    frame = check_audio(run)
    assert set(frame["status"]) == {"done"}
    assert len(frame) == 180
    # Its own books: each text was billed once, whatever befell the answers.
    assert set(server.billed.values()) == {1}
    ledger = check_books(run, server)
    assert not server.early
    assert server.most_in_flight <= 8
    assert dict(ledger.groupby("request_key").size()) == dict(
        frame.drop_duplicates("text").set_index("request_key")["attempts"]
    )
    assert run.stats["drift_characters"] == 0
    assert run.progress.retries == len(server.seen) - len(texts)
    assert (run.progress.total, run.progress.done, run.progress.ended) == (150, 150, 150)
    assert run.progress.credits_millis == 1000 * server.characters
    assert run.stats["credits"] == server.characters


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("status", "reason"), [(402, "quota"), (403, "key"), (401, "key")])
def test_what_would_fail_every_row_stops_the_run_and_a_later_call_goes_on(
    faulty, speak, quick, status, reason
):
    faulty.forever = {LINES[10]: status}
    faulty.delay_s = 0.005
    run = speak(faulty, LINES)
    assert (run.status, run.stopped_because) == ("stopped", reason)
    before = statuses(run)
    assert set(before.values()) == {"done", "pending"}
    assert before[LINES[10]] == "pending"
    # Calls in flight were let finish, none was begun.
    assert 10 <= list(before.values()).count("done") <= 16
    faulty.forever = {}
    again = speak(faulty, LINES)
    assert again.status == "finished"
    assert again.stopped_because is None
    assert set(statuses(again).values()) == {"done"}
    check_audio(again)
    assert set(faulty.billed.values()) == {1}
    check_books(again, faulty)


def test_a_real_quota_is_used_up_to_the_last_row_that_fits(make_faulty, speak, quick):
    server = make_faulty(quota=COST // 2)
    run = speak(server, LINES)
    assert run.stopped_because == "quota"
    assert server.characters == sum(billed_characters(t) for t, s in statuses(run).items() if s == "done")
    server.quota = COST
    run = spf.resume(run, service=server.settings, progress=False)
    assert (run.status, server.characters) == ("finished", COST)
    check_audio(run)
    check_books(run, server)


def test_on_error_raise_tells_what_stopped_the_run(faulty, speak, quick):
    faulty.scripts = {LINES[5]: [402]}
    with pytest.raises(spf.errors.PaymentRequired):
        speak(faulty, LINES, on_error="raise")


def test_a_service_that_is_away_for_a_moment_costs_no_row(faulty, speak, quick):
    faulty.delay_s, faulty.held = 0.02, LINES[4:]
    live = speak(faulty, LINES, wait=False)
    faulty.until(lambda s: len(s.seen) >= 6)
    faulty.down()
    faulty.held = []
    time.sleep(0.4)
    faulty.up()
    run = live.wait(60)
    assert (run.status, set(statuses(run).values())) == ("finished", {"done"})
    check_audio(run)
    assert run.progress.retries > 0
    assert set(faulty.billed.values()) == {1}


@pytest.mark.sampled(1)
@pytest.mark.quiet
@pytest.mark.parametrize("rows", [1, 24])
def test_a_dead_service_stops_the_run_in_bounded_time_and_fails_no_row(faulty, speak, quick, rows):
    faulty.held = LINES
    live = speak(faulty, LINES[:rows], wait=False, patience_s=1.0)
    faulty.until(lambda s: s.in_flight)
    faulty.down()
    began = time.monotonic()
    run = live.wait(60)
    assert time.monotonic() - began < 4
    assert (run.status, run.stopped_because) == ("stopped", "unreachable")
    assert "failed" not in statuses(run).values()
    assert run.failed.empty or set(run.failed["status"]) == {"charged_unknown"}
    # Only what was in flight when it died may have been billed.
    assert run.ledger["credits"].sum() <= 4 * len(LINES[0])
    assert len(run.ledger) < 400
    faulty.up()
    faulty.held = []
    again = speak(faulty, LINES[:rows])
    assert set(statuses(again).values()) == {"done"}
    assert set(faulty.billed.values()) == {1}
    check_audio(again)


def test_a_service_that_takes_everything_and_answers_nothing_is_not_fed_the_whole_table(hosted, speak, quick):
    hosted.forever = {"*": "hang billed"}
    texts = [f"row {i}" for i in range(500)]
    run = speak(hosted, texts, timeout_s=0.3, patience_s=0.5, max_attempts=3)
    assert run.stopped_because == "unreachable"
    counts = run.to_pandas()["status"].value_counts()
    assert counts["pending"] > 400
    assert 1 <= len(hosted.seen) <= counts["charged_unknown"]
    ledger = run.ledger
    assert ledger["credits"].sum() >= hosted.characters
    assert (ledger["status"] == "charged_unknown").sum() == counts["charged_unknown"]


@pytest.mark.quiet
def test_an_attempt_that_hangs_times_out_and_its_repeat_is_free(faulty, speak, quick):
    faulty.scripts = {LINES[3]: ["hang"], LINES[4]: ["hang billed"]}
    began = time.monotonic()
    run = speak(faulty, LINES[:8], timeout_s=1.0)
    assert 1.0 < time.monotonic() - began < 6
    assert set(statuses(run).values()) == {"done"}
    assert set(faulty.billed.values()) == {1}
    ledger = run.ledger
    assert sorted(ledger["status"].value_counts().items()) == [("charged_unknown", 2), ("done", 8)]
    assert set(ledger.loc[ledger["status"] == "charged_unknown", "credits_basis"]) == {"unknown"}
    assert ledger["credits"].sum() == faulty.characters


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", ["hang", "hang billed", "reset", "reset billed"])
def test_what_may_have_been_billed_is_never_sent_again_by_itself(hosted, speak, quick, step):
    hosted.scripts = {LINES[2]: [step]}
    # The others have as long as they need.
    speak(hosted, [*LINES[:2], *LINES[3:6]])
    for _ in range(3):
        run = speak(hosted, LINES[:6], timeout_s=1.0)
        assert statuses(run) == {t: "charged_unknown" if t == LINES[2] else "done" for t in LINES[:6]}
    assert hosted.sends(LINES[2]) == 1
    row = run.to_pandas().set_index("text").loc[LINES[2]]
    assert row["error_code"] in {"TimedOut", "ConnectionFailed"}
    assert row["attempts"] == 1
    check_audio(run)
    ledger = run.ledger.set_index("request_key").loc[row["request_key"]]
    assert (ledger["status"], ledger["credits_basis"]) == ("charged_unknown", "unknown")
    assert ledger["credits"] == billed_characters(LINES[2])
    # Told to, it sends it again, and says that this may have cost twice.
    run = speak(hosted, LINES[:6], on_unknown="retry")
    assert set(statuses(run).values()) == {"done"}
    assert hosted.sends(LINES[2]) == 2
    billed_twice = "billed" in step
    assert hosted.billed[LINES[2]] == 1 + billed_twice
    assert run.ledger["credits"].sum() == hosted.characters + (0 if billed_twice else len(LINES[2]))


def test_with_on_unknown_retry_a_run_sends_again_by_itself_and_books_each(hosted, speak, quick):
    hosted.scripts = {LINES[2]: ["reset billed", "hang billed", 500]}
    speak(hosted, [*LINES[:2], *LINES[3:6]])
    run = speak(hosted, LINES[:6], on_unknown="retry", timeout_s=1.0)
    assert set(statuses(run).values()) == {"done"}
    assert hosted.billed[LINES[2]] == 3
    check_books(run, hosted)


def test_what_may_have_been_billed_stays_so_when_its_repeats_fail(hosted, faulty, speak, quick, tmp_path):
    for server, options in ((hosted, {"on_unknown": "retry"}), (faulty, {})):
        folder = tmp_path / f"run-{server.port}"
        server.scripts = {"the row": ["reset billed", 500, 500], "other": ["reset billed", 400]}
        run = speak(server, ["the row", "other", "third"], max_attempts=3, run_dir=folder, **options)
        assert statuses(run) == {"the row": "charged_unknown", "other": "charged_unknown", "third": "done"}
        assert run.to_pandas().set_index("text").loc["the row", "error_status"] == 500
        check_books(run, server)
        seen = len(server.seen)
        again = speak(server, ["the row", "other", "third"], run_dir=folder)
        if server is hosted:
            assert len(server.seen) == seen
        else:
            # Its repeat is free: it is made, and what was billed once is in the books once.
            assert set(statuses(again).values()) == {"done"}
            assert set(server.billed.values()) == {1}
        check_books(again, server)


def test_what_may_have_been_billed_is_known_when_the_run_stops_before_its_repeat(hosted, speak, quick):
    hosted.delay_s = 0.02
    hosted.scripts = {LINES[0]: ["reset billed", *[500] * 50], LINES[1]: [500, 500, 403]}
    run = speak(hosted, LINES[:8], on_unknown="retry", max_attempts=99)
    assert run.stopped_because == "key"
    assert statuses(run)[LINES[0]] == "charged_unknown"
    sends = hosted.sends(LINES[0])
    hosted.scripts = {}
    run = speak(hosted, LINES[:8])
    assert hosted.sends(LINES[0]) == sends
    assert statuses(run) == {t: "charged_unknown" if t == LINES[0] else "done" for t in LINES[:8]}


def test_a_repeat_is_free_only_while_the_service_remembers(make_faulty, speak, quick, tmp_path):
    server = make_faulty()
    server.scripts = {"the row": ["reset billed"]}
    run = speak(server, ["the row", "other"], max_attempts=1)
    assert statuses(run)["the row"] == "charged_unknown"
    _age(run, hours=23)
    run = speak(server, ["the row", "other"])
    assert (statuses(run)["the row"], server.sends("the row")) == ("charged_unknown", 1)
    run = speak(server, ["the row", "other"], on_unknown="retry")
    assert statuses(run)["the row"] == "done"
    # Nobody could tell: both are in the books.
    assert run.ledger["credits"].sum() == server.characters + len("the row")


def test_another_keys_payment_is_not_free_for_this_one(make_faulty, speak, quick):
    server = make_faulty()
    server.scripts = {"the row": ["reset billed"]}
    speak(server, ["the row", "other"], max_attempts=1)
    other = replace(server.settings, api_key=SecretStr("sk-another"))
    run = speak(server, ["the row", "other"], service=other)
    assert (statuses(run)["the row"], server.sends("the row")) == ("charged_unknown", 1)


def _age(run, *, hours):
    """Let a run's ledger be so much older."""
    for path in (run.path / "attempts").glob("*.parquet"):
        table = pq.read_table(path)
        at = table.schema.get_field_index("time")
        older = pc.subtract(table.column("time"), pa.scalar(timedelta(hours=hours), pa.duration("us")))
        pq.write_table(table.set_column(at, table.schema.field(at), older), path)


def test_every_attempt_carries_the_same_key_of_its_row(faulty, speak, quick):
    faulty.scripts = {LINES[0]: [500, "reset", 429]}
    run = speak(faulty, LINES[:3])
    keys = {text: {s.key for s in faulty.seen if s.text == text} for text in LINES[:3]}
    assert all(len(found) == 1 for found in keys.values())
    assert len(set.union(*keys.values())) == 3
    for text, found in keys.items():
        request_key = run.to_pandas().set_index("text").loc[text, "request_key"]
        assert found == {f"{run.run_id}-{request_key}"}


def test_a_request_that_is_cut_off_before_it_is_read_is_sent_again_where_that_is_free(faulty, speak, quick):
    faulty.unread = 3
    run = speak(faulty, LINES)
    assert set(statuses(run).values()) == {"done"}
    check_audio(run)
    assert set(faulty.billed.values()) == {1}
    assert len(run.ledger) == len(faulty.seen) == len(LINES) + 3


def test_the_ledger_says_what_happened_to_each_attempt(faulty, speak, quick):
    faulty.scripts = {"the row": [429, 500, "truncated", "reset billed", 503]}
    run = speak(faulty, ["the row"], tags=["first", "second"])
    ledger = run.ledger
    assert ledger["status"].tolist() == ["refused", "error", "error", "charged_unknown", "error", "done"]
    assert ledger["attempt"].tolist() == [1, 2, 3, 4, 5, 6]
    assert ledger["credits"].tolist() == [0, 0, 7, 0, 0, 0]
    assert ledger["credits_basis"].tolist() == ["none", "none", "computed", "unknown", "none", "none"]
    assert ledger["idempotency"].all()
    assert [list(tags) for tags in ledger["tags"]] == [["first", "second"]] * 6
    assert ledger["balance_after"].dropna().tolist() == [10**6 - 7]
    assert (ledger["latency_ms"] > 0).all()
    assert "the row" not in ledger.to_csv()
    row = run.to_pandas().iloc[0]
    assert (row["attempts"], row["credits"], row["status"]) == (6, 7.0, "done")


def test_an_attempt_that_failed_for_good_is_no_retry(faulty, speak, quick):
    faulty.scripts = {LINES[0]: [400], LINES[1]: [429, 500]}
    run = speak(faulty, LINES[:4])
    assert (run.stats["failed"], run.stats["attempts"]) == (1, 6)
    assert run.stats["retries"] == run.progress.retries == 2


def test_what_failed_before_and_is_tried_again_was_a_retry(faulty, speak, quick):
    faulty.forever = {LINES[0]: 500, LINES[1]: 500}
    for tries in (2, 4, 6):
        run = speak(faulty, LINES[:4], max_attempts=2)
        looked = Watcher(spf.open_run(run.path)).look()
        assert run.stats["failed"] == 2
        assert (
            run.stats["retries"]
            == looked.counts["retries"]
            == sum(looked.retried_by.values())
            == 2 * tries - 2
        )
    faulty.forever = {}
    run = speak(faulty, LINES[:4])
    assert (run.stats["done"], run.stats["attempts"], run.stats["retries"]) == (4, 16, 12)


def test_equal_rows_are_one_call_and_all_of_them_fail_or_live_with_it(faulty, speak, quick):
    faulty.forever = {"b": 400}
    run = speak(faulty, ["a", "b", "a", "b", "a"])
    assert run.to_pandas()["status"].tolist() == ["done", "failed", "done", "failed", "done"]
    assert [faulty.sends(text) for text in "ab"] == [1, 1]
    assert run.to_pandas(audio=True)["audio"][4]["bytes"] == audio_of("a")


def test_a_folder_that_takes_no_more_ends_the_run_after_the_calls_in_flight(
    faulty, speak, quick, monkeypatch
):
    faulty.delay_s = 0.05
    real, count = RunWriter.sent, iter(range(1000))

    def sent(writer, record):
        if next(count) >= 10:
            raise StoreError("no room")
        real(writer, record)

    monkeypatch.setattr(RunWriter, "sent", sent)
    with pytest.raises(StoreError, match="no room"):
        speak(faulty, LINES)
    monkeypatch.undo()
    # Ten were sent and paid: all of them are kept, none is in doubt.
    again = speak(faulty, LINES)
    assert again.estimate.finished == 10
    assert (again.estimate.calls, len(faulty.seen)) == (14, 24)
    check_audio(again)
    check_books(again, faulty)
