"""Answers shared by runs: a hit costs nothing, is counted, and is what was paid for."""

import hashlib
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from faulty import audio_of, check_audio, statuses

import speechframe as spf
from speechframe.errors import StoreError
from speechframe.old_batch.filler import Filler
from speechframe.old_batch.generate import GenerateOperation
from speechframe.old_store import Record
from speechframe.old_store.cache import Cache
from speechframe.settings.rules import cache_rules
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i}." for i in range(20)]


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "calls"


def spoken(speak, server, texts, tmp_path, name, **options):
    return speak(server, texts, run_dir=tmp_path / name, **options)


def test_what_one_run_paid_for_costs_the_next_one_nothing(faulty, speak, tmp_path, cache):
    first = spoken(speak, faulty, LINES[:12], tmp_path, "a", cache=cache)
    assert (first.estimate.cached, first.stats["done"]) == (0, 12)
    sent = len(faulty.seen)
    run = spoken(speak, faulty, LINES, tmp_path, "b", cache=cache)
    assert len(faulty.seen) == sent + 8
    assert (run.estimate.cached, run.estimate.calls) == (12, 8)
    assert run.estimate.credits == run.ledger["credits"].sum() > 0
    assert "12 cached" in run.estimate.line()
    frame = run.to_pandas(audio=True).set_index("text")
    assert (frame["status"].loc[LINES[:12]] == "cached").all()
    assert (frame["status"].loc[LINES[12:]] == "done").all()
    assert (frame["credits"].loc[LINES[:12]] == 0).all()
    for text in LINES:
        assert frame.loc[text, "audio"]["bytes"] == audio_of(text)
        assert hashlib.sha256(audio_of(text)).hexdigest() == frame.loc[text, "sha256"]
    assert (run.stats["cached"], run.progress.cached, run.status) == (12, 12, "finished")
    assert set(run.ledger["status"]) == {"done"}
    assert not run._folder.verify()
    assert len(run.failed) == 0
    # A row from the cache is done for good: with and without it nothing is called again.
    assert spoken(speak, faulty, LINES, tmp_path, "b").estimate.calls == 0


def test_without_a_cache_nothing_is_kept_or_taken(faulty, speak, tmp_path, cache):
    spoken(speak, faulty, LINES[:4], tmp_path, "a", cache=cache)
    run = spoken(speak, faulty, LINES[:4], tmp_path, "b")
    assert (run.stats.get("cached", 0), run.stats["done"]) == (0, 4)
    assert faulty.billed[LINES[0]] == 2


def test_a_damaged_entry_is_paid_for_again_and_within_the_budget(faulty, speak, tmp_path, cache):
    spoken(speak, faulty, LINES, tmp_path, "a", cache=cache)
    for path in cache.rglob("*"):
        if path.is_file() and path.name != "cache.json" and path.stat().st_size > 500:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    run = spoken(speak, faulty, LINES, tmp_path, "b", cache=cache)
    assert set(statuses(run).values()) == {"done"}
    assert set(faulty.billed.values()) == {2}
    check_audio(run)


def test_only_what_is_true_is_kept(faulty, speak, tmp_path, cache):
    long = "This line is long enough for its words to be missed when they are not there."
    faulty.audio_for = {long: "Hm."}
    faulty.forever = {LINES[1]: 400}
    run = spoken(speak, faulty, [long, *LINES[:3]], tmp_path, "a", cache=cache)
    assert sorted(statuses(run).values()) == ["done", "done", "failed", "suspect"]
    assert len(list(Cache(cache).entries())) == 2


def test_the_cache_of_the_settings_and_of_the_environment(faulty, speak, tmp_path, cache, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_CACHE", str(cache))
    spoken(speak, faulty, LINES[:4], tmp_path, "a")
    assert spoken(speak, faulty, LINES[:4], tmp_path, "b").estimate.cached == 4
    assert spoken(speak, faulty, LINES[:4], tmp_path, "c", cache=False).estimate.cached == 0


def test_the_cache_of_the_settings_that_are_handed_in_comes_first(faulty, speak, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_CACHE", str(tmp_path / "environment"))
    own = replace(faulty.settings, cache=tmp_path / "own")
    spoken(speak, faulty, LINES[:4], tmp_path, "a", service=own)
    assert spoken(speak, faulty, LINES[:4], tmp_path, "b", service=own).estimate.cached == 4
    assert spoken(speak, faulty, LINES[:4], tmp_path, "c").estimate.cached == 0
    assert spoken(speak, faulty, LINES[:4], tmp_path, "d", service=own, cache=False).estimate.cached == 0
    (entry, *_), *others = ([*Cache(tmp_path / name).entries()] for name in ("own", "environment"))
    assert entry.service
    assert len(others[0]) == 4


def test_limits_of_the_cache_come_from_the_settings_that_name_them(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "speechframe.toml").write_text('cache = "file"\ncache_max_gb = 5\ncache_max_age_days = 30\n')
    assert cache_rules(spf.Settings()) == {"folder": Path("file"), "max_gb": 5, "max_age_days": 30}
    own = spf.Settings(cache="own", cache_max_gb=2, cache_max_age_days=1)
    assert cache_rules(own) == {"folder": Path("own"), "max_gb": 2, "max_age_days": 1}


def test_another_take_is_another_answer(faulty, speak, tmp_path, cache):
    spoken(speak, faulty, LINES[:4], tmp_path, "a", cache=cache)
    assert spoken(speak, faulty, LINES[:4], tmp_path, "b", cache=cache, take=1).estimate.cached == 0


def test_a_folder_that_is_no_cache_is_refused_before_anything_is_spent(faulty, speak, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(StoreError, match="other"):
        spoken(speak, faulty, LINES[:2], tmp_path, "a", cache=tmp_path / "other")
    assert not faulty.seen


def test_a_stopped_run_of_cached_rows_goes_on(faulty, speak, tmp_path, cache):
    spoken(speak, faulty, LINES, tmp_path, "a", cache=cache)
    live = spoken(speak, faulty, LINES, tmp_path, "b", cache=cache, wait=False)
    live.stop()
    live.wait(60)
    run = spf.resume(live, cache=cache, service=faulty.settings, progress=False)
    assert set(statuses(run).values()) == {"cached"}
    assert set(faulty.billed.values()) == {1}


def test_a_cache_that_takes_no_more_loses_nothing_and_says_so_once(
    faulty, speak, tmp_path, cache, monkeypatch, caplog
):
    monkeypatch.setattr("speechframe.old_batch.filler._RECORDS", 1)

    def broken(self, record):
        raise MemoryError("no room at all")

    monkeypatch.setattr(Cache, "put", broken)
    run = spoken(speak, faulty, LINES, tmp_path, "a", cache=cache)
    assert (run.status, set(statuses(run).values())) == ("finished", {"done"})
    check_audio(run)
    (said,) = (record for record in caplog.records if "does not keep" in record.getMessage())
    assert "no room at all" in said.getMessage()
    assert said.levelname == "WARNING"


def test_what_fails_with_the_last_records_is_said_too(tmp_path, monkeypatch, caplog):
    cache = Cache(tmp_path / "cache")
    monkeypatch.setattr(cache, "put", lambda record: 1 / 0)
    filler = Filler(cache)
    filler.put(Record("0" * 32, "done", audio_bytes=b"RIFF"))
    filler.close()
    assert "division by zero" in caplog.text


def test_a_folder_that_cannot_be_written_any_more_holds_no_run_up(faulty, speak, tmp_path, cache, caplog):
    spoken(speak, faulty, LINES[:4], tmp_path, "a", cache=cache)
    for room in ("entries", "audio"):
        shutil.rmtree(cache / room)
        (cache / room).write_text("no folder")
    run = spoken(speak, faulty, LINES, tmp_path, "b", cache=cache)
    assert (run.status, set(statuses(run).values())) == ("finished", {"done"})
    assert caplog.text.count("takes nothing") == 1


def test_answers_that_were_not_looked_at_are_not_for_other_runs(faulty, speak, tmp_path, cache):
    faulty.audio_for = {LINES[3]: "Hm."}
    run = spoken(speak, faulty, LINES[:6], tmp_path, "a", cache=cache, truth_checks=False)
    assert run.stats["done"] == 6
    looked = spoken(speak, faulty, LINES[:6], tmp_path, "b", cache=cache)
    assert looked.estimate.cached == 0
    assert statuses(looked)[LINES[3]] == "suspect"
    # A run that looks at nothing may take what another one has looked at.
    assert (
        spoken(speak, faulty, LINES[:6], tmp_path, "c", cache=cache, truth_checks=False).stats["cached"] == 5
    )


# -- behind the end of a budget --------------------------------------------------------

EVEN = [f"This is line {i:02d}." for i in range(20)]
EACH = billed_characters(EVEN[0])


@pytest.mark.parametrize("width", [1, 4])
def test_what_the_cache_has_behind_the_end_of_a_budget_is_taken(
    faulty, speak, tmp_path, cache, capsys, width
):
    spoken(speak, faulty, EVEN[10:16], tmp_path, "a", cache=cache)
    sent = len(faulty.seen)
    run = spoken(
        speak, faulty, EVEN, tmp_path, "b",
        cache=cache, max_credits=3 * EACH + 1, max_concurrency=width, progress=True,
    )  # fmt: skip
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    assert len(faulty.seen) == sent + 3
    ended = statuses(run)
    assert [text for text in EVEN if ended[text] == "cached"] == EVEN[10:16]
    assert [text for text in EVEN if ended[text] == "done"] == EVEN[:3]
    assert run.ledger["credits"].sum() == 3 * EACH
    assert f"the 11 calls to come would cost {11 * EACH}." in capsys.readouterr().err
    run = spoken(speak, faulty, EVEN, tmp_path, "b")
    assert (run.status, run.estimate.calls) == ("finished", 11)


def test_what_the_cache_lost_behind_the_end_of_a_budget_is_not_paid_for(
    faulty, speak, tmp_path, cache, capsys
):
    spoken(speak, faulty, EVEN[10:16], tmp_path, "a", cache=cache)
    for path in cache.rglob("*"):
        if path.is_file() and path.name != "cache.json" and path.stat().st_size > 500:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    sent = len(faulty.seen)
    run = spoken(speak, faulty, EVEN, tmp_path, "b", cache=cache, max_credits=3 * EACH, progress=True)
    assert len(faulty.seen) == sent + 3
    assert (run.stats["done"], run.stats["pending"]) == (3, 17)
    assert f"the 17 calls to come would cost {17 * EACH}." in capsys.readouterr().err


def test_behind_the_end_of_a_budget_only_rows_of_the_cache_are_looked_at(
    faulty, speak, tmp_path, cache, monkeypatch
):
    lines = [f"This is line {i:05d}." for i in range(4000)]
    spoken(speak, faulty, [lines[5], lines[3500]], tmp_path, "a", cache=cache)
    checked, real = [], GenerateOperation.check

    def check(self, values, take):
        checked.append(values["text"])
        return real(self, values, take)

    monkeypatch.setattr(GenerateOperation, "check", check)
    run = spoken(speak, faulty, lines, tmp_path, "b", cache=cache, max_credits=0)
    assert run.stats["cached"] == 2
    # All of them to plan, and then a few at once until the budget is found to be used up.
    assert len(lines) < len(checked) <= len(lines) + 100


@pytest.mark.parametrize("drain", [True, False])
def test_who_stops_a_run_does_not_wait_for_what_the_cache_has(
    faulty, speak, tmp_path, cache, monkeypatch, drain
):
    spoken(speak, faulty, LINES, tmp_path, "a", cache=cache)
    real, begun, told = Cache.get, threading.Event(), threading.Event()

    def slow(self, key):
        assert not begun.is_set() or told.wait(60)
        begun.set()
        time.sleep(0.05)
        return real(self, key)

    monkeypatch.setattr(Cache, "get", slow)
    live = spoken(
        speak, faulty, ["New.", *LINES], tmp_path, "b", cache=cache, max_credits=0, wait=False
    )  # fmt: skip
    next(iter(live.outcomes()))
    live.stop(drain=drain)
    told.set()
    run = live.wait(60)
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    assert 1 <= run.stats["cached"] < len(LINES) - 5


def test_a_key_that_is_used_up_ends_a_run_at_once(faulty, speak, tmp_path, cache):
    spoken(speak, faulty, EVEN[10:], tmp_path, "a", cache=cache)
    faulty.forever = {EVEN[3]: 402}
    run = spoken(speak, faulty, EVEN, tmp_path, "b", cache=cache, max_concurrency=1)
    assert (run.stopped_because, run.stats["done"], run.stats.get("cached", 0)) == ("quota", 3, 0)


def test_a_price_that_the_cache_saved_is_not_taken_from_what_is_still_to_pay(
    faulty, speak, tmp_path, cache, capsys
):
    spoken(speak, faulty, EVEN[:10], tmp_path, "a", cache=cache)
    run = spoken(speak, faulty, EVEN, tmp_path, "b", cache=cache, max_credits=2 * EACH, progress=True)
    assert (run.stats["cached"], run.stats["done"]) == (10, 2)
    assert f"the 8 calls to come would cost {8 * EACH}." in capsys.readouterr().err
