"""Reviews: what people say of rows, kept whatever happens, and what is made anew for it."""

import multiprocessing
import os
import signal
import threading
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest
from faulty import audio_of
from filelock import FileLock

import speechframe as spf
from speechframe.errors import InvalidRows, StoreError
from speechframe.old_store import RunFolder, RunManifest, reviews
from speechframe.old_store.reviews import Review, add_reviews, read_reviews

LINES = [f"Line {i} of a reviewed script." for i in range(6)]
TAKES = [f"Another take of line {i}, and longer." for i in range(6)]
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def empty(tmp_path):
    return RunFolder.create(tmp_path / "run", RunManifest("r1", "generate")).path


def verdicts(run):
    return dict(zip(run.reviews["row_id"], run.reviews["verdict"], strict=True))


def test_the_last_word_counts_for_each_thing_and_all_words_are_kept(faulty, speak):
    run = speak(faulty, LINES)
    assert run.reviews.empty
    assert list(run.reviews.columns)[:2] == ["row_id", "verdict"]
    run.review("1", "reject", comment="too fast", reviewer="ann")
    run.review("1", "keep", reviewer="bob")
    run.review("1", corrected_text="Line one.", reviewer="cy")
    run.review(2, "reject", reviewer="bob")
    run.review(2, "", reviewer="bob")
    said = run.reviews.set_index("row_id")
    assert list(said.loc["1", ["verdict", "comment", "corrected_text", "reviewer"]]) == [
        "keep", "too fast", "Line one.", "bob",
    ]  # fmt: skip
    assert said.loc["2", "verdict"] is None
    assert said["is_current"].all()
    assert said.loc["1", "sha256"] == run.to_pandas(["sha256"])["sha256"].iloc[1]
    history = pd.read_parquet(run.path / "reviews.parquet")
    assert list(history["reviewer"]) == ["ann", "bob", "cy", "bob", "bob"]
    assert history["reviewed_at"].is_monotonic_increasing


def test_reviews_that_others_write_for_long_are_no_broken_folder(empty, monkeypatch):
    monkeypatch.setattr(reviews, "_LOCK_S", 0.05)
    with FileLock(empty / reviews.LOCK_NAME), pytest.raises(StoreError) as caught:
        add_reviews(empty, [Review("1", "keep")])
    assert str(caught.value) == f"{empty / 'reviews.parquet'} was being written to for 0.05 s: try again"
    add_reviews(empty, [Review("1", "keep")])
    assert read_reviews(empty)["row_id"].to_pylist() == ["1"]


def test_without_a_name_it_was_the_user_of_the_process(faulty, speak):
    run = speak(faulty, LINES[:1])
    run.review("0", "keep")
    assert run.reviews["reviewer"][0] == run.ledger["user"][0]


@pytest.mark.parametrize("row_id", ["17", "x"])
def test_rows_that_are_not_there_have_no_reviews(faulty, speak, row_id):
    run = speak(faulty, LINES[:2])
    with pytest.raises(KeyError, match="ids are the values"):
        run.review(row_id, "keep")


def test_a_verdict_is_one_of_two(faulty, speak):
    run = speak(faulty, LINES[:1])
    with pytest.raises(InvalidRows, match="keep, reject"):
        run.review("0", "meh")
    assert not (run.path / "reviews.parquet").exists()


def test_rejected_rows_are_made_anew_and_only_those(faulty, speak):
    run = speak(faulty, LINES)
    run.review("1", "reject")
    run.review("4", "reject")
    run.review("4", "keep")
    run.review("5", comment="lovely")
    # The service has another audio for the next take.
    faulty.audio_for = {LINES[1]: TAKES[1]}
    sent = len(faulty.seen)
    again = spf.resume(run, redo="rejected", service=faulty.settings, progress=False, truth_checks=False)
    assert [s.text for s in faulty.seen[sent:]] == [LINES[1]]
    frame = again.to_pandas(audio=True)
    assert frame.loc[1, "take"] == 1
    assert frame.loc[1, "audio"]["bytes"] == audio_of(TAKES[1])
    said = again.reviews.set_index("row_id")
    assert not said.loc["1", "is_current"], "the verdict was on the audio before"
    assert said.loc["4", "is_current"]


def test_what_was_made_anew_is_not_made_once_more_until_it_is_rejected_again(faulty, speak):
    run = speak(faulty, LINES[:2])
    run.review("1", "reject")
    again = {"redo": "rejected", "service": faulty.settings, "progress": False, "truth_checks": False}
    faulty.audio_for = {LINES[1]: TAKES[1]}
    run = spf.resume(run, **again)
    sent = len(faulty.seen)
    assert spf.resume(run, **again).estimate.calls == 0
    assert len(faulty.seen) == sent
    run.review("1", "reject")
    assert spf.resume(run, **again).to_pandas().loc[1, "take"] == 2


def test_a_comment_after_a_new_take_says_nothing_of_it(faulty, speak):
    run = speak(faulty, LINES[:2])
    run.review("1", "reject")
    faulty.audio_for = {LINES[1]: TAKES[1]}
    again = {"redo": "rejected", "service": faulty.settings, "progress": False, "truth_checks": False}
    run = spf.resume(run, **again)
    run.review("1", comment="better?")
    assert not run.reviews["is_current"][0]
    assert spf.resume(run, **again).estimate.calls == 0


def test_a_run_at_work_is_reviewed_too(faulty, speak):
    faulty.forever = {"*": "hang"}
    faulty.forever |= dict.fromkeys(LINES[:2], "ok")
    run = speak(faulty, LINES, wait=False)
    try:
        faulty.until(lambda _: run.progress.done == 2)
        run.review("0", "keep")
        assert verdicts(run) == {"0": "keep"}
    finally:
        run.stop(drain=False)
        run.wait(60)
    # What a new start cleans up are not the reviews.
    with run._folder.lock():
        run._folder.recover()
    assert verdicts(run) == {"0": "keep"}


def test_threads_and_processes_review_one_run_without_losing_a_word(empty):
    def say(who, count):
        for k in range(count):
            add_reviews(empty, [Review(str(k), "keep", reviewer=who)])

    others = [FORK.Process(target=say, args=(f"process {n}", 15)) for n in range(2)]
    others += [threading.Thread(target=say, args=(f"thread {n}", 15)) for n in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    told = read_reviews(empty).to_pandas()
    assert told.groupby("reviewer").size().to_dict() == {
        f"{kind} {n}": 15 for kind in ("process", "thread") for n in range(2)
    }
    for _, mine in told.groupby("reviewer"):
        assert list(mine["row_id"]) == [str(k) for k in range(15)], "each one's words are in their order"


@pytest.mark.slow
def test_a_reviewer_who_is_killed_leaves_every_word_that_was_said(empty, tmp_path):
    said = tmp_path / "said"

    def say():
        for k in range(10**6):
            add_reviews(empty, [Review(str(k), "keep", reviewer="x")])
            with said.open("a") as file:
                file.write("*")

    kept = 0
    for _ in range(3):
        said.write_text("")
        before = len(read_reviews(empty))
        child = FORK.Process(target=say)
        child.start()
        end = time.monotonic() + 60
        while said.stat().st_size < 8:
            assert time.monotonic() < end
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
        told = len(read_reviews(empty)) - before
        # The last one may be on the disk without anybody having been told.
        assert said.stat().st_size <= told <= said.stat().st_size + 1
        add_reviews(empty, [Review("after", "keep")])
        kept = len(read_reviews(empty))
    assert kept > 24


def test_a_damaged_file_is_said_and_not_written_over(empty):
    path = empty / "reviews.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(StoreError, match=r"reviews\.parquet cannot be read"):
        add_reviews(empty, [Review("0", "keep")])
    assert path.read_bytes() == b"PAR1 and no more"


def test_other_tools_read_the_file(empty):
    add_reviews(empty, [Review("0", "reject", comment="ü")])
    assert pq.read_table(empty / "reviews.parquet").to_pylist()[0]["comment"] == "ü"


def test_reviews_go_with_a_run_that_is_moved(empty, tmp_path):
    add_reviews(empty, [Review("0", "keep")])
    moved = RunFolder.open(empty).move(f"memory://moved-{tmp_path.name}")
    assert read_reviews(moved.path).num_rows == 1
    add_reviews(moved.path, [Review("1", "keep")])
    assert read_reviews(moved.path).num_rows == 2
