"""Never pay twice, never lose what was paid, never spend more than allowed."""

import threading
from math import inf

import pandas as pd
import pytest
from accounts import billed, check_audio, price, statuses, times_billed

import speechframe as spf


@pytest.fixture(scope="module")
def plain(services):
    """A service that promises nothing about repeats."""
    return services(idempotent=False, limits_page=False)


@pytest.fixture(scope="module")
def kind(services):
    """A service that bills no repeat and makes takes."""
    return services()


def test_equal_rows_are_paid_once_and_the_same_call_again_is_free(plain, speak, lines):
    texts = lines(6) + lines(3)
    run = speak(plain, texts)
    assert statuses(run) == ["done"] * 9
    check_audio(run)
    again = speak(plain, texts)
    assert again.estimate.calls == 0
    assert (
        billed(plain, texts) == price(texts) == run.ledger["credits"].sum() == again.ledger["credits"].sum()
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("concurrency", [12, 1])
def test_a_budget_is_never_passed_and_a_higher_one_goes_on(kind, speak, lines, concurrency):
    texts = lines(40)
    kind.set(faults={"500": 0.1, "reset_after": 0.1, "truncated": 0.1}, latency=0.01)
    budget = price(texts) // 2
    run = speak(kind, texts, max_credits=budget, max_concurrency=concurrency)
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    spent = run.ledger["credits"].sum()
    assert spent <= budget
    assert billed(kind, texts) <= budget
    assert budget - spent < 2 * max(map(len, texts)), "it stopped although another row fitted"
    run = spf.resume(run, max_credits=inf, service=kind.settings, progress=False)
    assert statuses(run) == ["done"] * 40
    check_audio(run)
    assert run.ledger["credits"].sum() == billed(kind, texts) == price(texts)
    kind.set(faults={}, latency=0)


def test_a_house_rule_for_one_run_gives_each_run_its_budget_and_refuses_more(plain, speak, lines):
    texts = lines(10)
    limit = price(texts) // 3
    spf.configure(max_credits_per_run=limit)
    with pytest.raises(spf.SettingsError, match="max_credits_per_run"):
        speak(plain, texts, max_credits=limit + 1)
    assert billed(plain, texts) == 0
    run = speak(plain, texts)
    assert run.stopped_because == "budget"
    assert 0 < billed(plain, texts) <= limit


def test_the_month_s_limit_holds_over_runs_at_once(plain, speak, lines, tmp_path):
    mine, theirs = lines(20, "mine"), lines(20, "theirs")
    limit = price(mine) + price(theirs) // 4
    spf.configure(max_credits_per_month=limit)
    plain.set(latency=0.01)
    runs = {}

    def make(name, texts):
        runs[name] = speak(plain, texts, run_dir=tmp_path / name)

    threads = [threading.Thread(target=make, args=pair) for pair in (("mine", mine), ("theirs", theirs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    plain.set(latency=0)
    assert len(runs) == 2
    assert "budget" in {run.stopped_because for run in runs.values()}
    assert billed(plain, mine + theirs) <= limit
    assert sum(run.ledger["credits"].sum() for run in runs.values()) == billed(plain, mine + theirs)


def test_a_used_up_quota_stops_the_run_with_everything_kept(services, speak, lines):
    texts = lines(12)
    service = services(quota=price(texts) // 2)
    run = speak(service, texts, max_concurrency=3)
    assert (run.status, run.stopped_because) == ("stopped", "quota")
    done = [text for text, status in zip(texts, statuses(run), strict=True) if status == "done"]
    assert done
    assert billed(service, texts) == price(done)
    check_audio(run)
    service.set(quota=10 * price(texts))
    run = spf.resume(run, service=service.settings, progress=False)
    assert statuses(run) == ["done"] * 12
    assert billed(service, texts) == price(texts)


def test_a_refused_key_stops_the_run_with_everything_kept(kind, speak, lines):
    texts = lines(9)
    kind.set(scripts={texts[4]: ["403"]})
    run = speak(kind, texts, max_concurrency=1)
    assert run.status == "stopped"
    assert statuses(run)[:4] == ["done"] * 4
    kind.set(scripts={})
    run = spf.resume(run, service=kind.settings, progress=False)
    assert statuses(run) == ["done"] * 9
    assert billed(kind, texts) == price(texts)


def test_every_row_is_checked_before_a_credit_is_spent(plain, speak, lines):
    texts = [*lines(5), " ", "x" * 6000]
    with pytest.raises(spf.InvalidRows) as caught:
        speak(plain, texts)
    assert [problem["row_id"] for problem in caught.value.problems] == ["5", "6"]
    assert billed(plain, texts) == 0
    run = speak(plain, texts, on_invalid="skip")
    assert statuses(run) == ["done"] * 5 + ["invalid"] * 2


def test_a_dry_run_sends_nothing_and_says_what_the_run_then_costs(plain, speak, lines):
    texts = lines(7) + lines(2)
    planned = speak(plain, texts, dry_run=True)
    assert (planned.estimate.calls, planned.estimate.credits) == (7, price(texts))
    assert billed(plain, texts) == 0
    run = spf.resume(planned, service=plain.settings, progress=False)
    assert run.ledger["credits"].sum() == billed(plain, texts) == price(texts)


def test_a_run_that_was_only_planned_takes_the_newest_plan(plain, speak, lines, tmp_path):
    first, second, third = lines(3, "first"), lines(2, "second"), lines(4, "third")
    speak(plain, first, dry_run=True, max_credits=price(first[:1]), tags={"team": "ads"})
    planned = speak(plain, second, dry_run=True)
    assert planned.estimate.credits == price(second)
    options = {"service": plain.settings, "progress": False}
    # `changes` asks what a table would cost, and is no plan.
    assert spf.changes(planned, third, service=plain.settings).credits == price(third)
    run = spf.resume(planned, **options)
    assert list(run.to_pandas()["text"]) == second
    assert run.stopped_because is None
    assert run.ledger["credits"].sum() == billed(plain, first + second + third) == price(second)
    assert [dict(tags) for tags in run.ledger["tags"]] == [{}, {}]
    other = speak(plain, first, run_dir=tmp_path / "other", dry_run=True)
    planned = spf.resume(other, table=third, dry_run=True, **options)
    assert planned.estimate.credits == price(third)
    assert list(spf.resume(planned, **options).to_pandas()["text"]) == third


@pytest.mark.parametrize("run_dir", [None, "run"])
def test_a_run_that_exists_keeps_its_table_in_a_dry_run(plain, lines, tmp_path, monkeypatch, run_dir):
    monkeypatch.chdir(tmp_path)
    options = {"voice": "en-US-nora", "run_dir": run_dir, "service": plain.settings, "progress": False}
    table = pd.DataFrame({"text": lines(3), "note": list("abc")})
    run = spf.generate(table, **options)
    before = set(tmp_path.rglob("*"))
    planned = spf.generate(table.assign(note=list("xyz")), dry_run=True, **options)
    assert (planned.path, planned.estimate.calls) == (run.path, 0)
    assert list(spf.open_run(run.path).to_pandas()["note"]) == list("abc")
    assert set(tmp_path.rglob("*")) == before


def test_another_take_that_is_only_priced_is_not_made_later(kind, speak, lines):
    texts, options = lines(3), {"service": kind.settings, "progress": False}
    run = speak(kind, texts)
    planned = spf.resume(run, redo=[1], dry_run=True, **options)
    assert (planned.estimate.calls, planned.estimate.credits) == (1, price(texts[1:2]))
    assert spf.resume(run.path, **options).estimate.calls == 0
    assert billed(kind, texts) == price(texts)
    assert list(run.path.glob("input/*")) == [run.path / run.manifest.table.file]


def test_a_changed_table_costs_its_changes_only(plain, speak, lines):
    table = pd.DataFrame({"id": list("abcde"), "text": lines(5)})
    run = speak(plain, table, id="id")
    new = pd.concat([table.iloc[::-1].drop(index=1), pd.DataFrame({"id": ["f"], "text": lines(1, "new")})])
    new.loc[new["id"] == "c", "text"] = lines(1, "changed")[0]
    changes = spf.changes(run, new, service=plain.settings)
    assert (changes.new, changes.removed, set(changes.unchanged)) == (("f",), ("b",), {"a", "d", "e"})
    assert changes.credits == price(lines(1, "new") + lines(1, "changed"))
    run = spf.resume(run, table=new, service=plain.settings, progress=False)
    assert list(run.to_pandas()["id"]) == ["e", "d", "c", "a", "f"]
    assert statuses(run) == ["done"] * 5
    check_audio(run)
    assert run.ledger["credits"].sum() == price(lines(5)) + changes.credits


def test_another_take_is_paid_and_the_first_one_stays(kind, speak, lines):
    texts = lines(3)
    run = speak(kind, texts)
    first = run.clip(1).audio
    run = spf.resume(run, redo=[1], service=kind.settings, progress=False)
    assert [times_billed(kind, text) for text in texts] == [1, 2, 1]
    assert run.clip(1).audio != first
    assert run.dataset.count_rows() == 4
    assert statuses(run) == ["done"] * 3


def test_another_take_stays_where_the_run_gets_a_new_table(kind, speak, lines):
    texts, more = lines(3), lines(1, "new")
    speak(kind, texts).review("1", "reject")
    options = {"service": kind.settings, "progress": False}
    run = spf.resume(speak(kind, texts), redo="rejected", **options)
    heard = run.clip(1).audio
    changes = spf.changes(run, texts + more, service=kind.settings)
    assert (len(changes.unchanged), changes.credits) == (3, price(more))
    run = spf.resume(run, table=texts + more, **options)
    assert run.clip(1).audio == heard
    run = spf.resume(run, redo="rejected", **options)
    assert [times_billed(kind, text) for text in texts + more] == [1, 2, 1, 1]


def test_another_take_that_would_be_the_same_is_not_paid_again(kind, speak, lines):
    texts = lines(3)
    speak(kind, texts, variation=0)
    run = speak(kind, texts, variation=0, take=1)
    assert (run.estimate.calls, run.estimate.identical_retakes) == (0, 3)
    run.review("1", "reject")
    for redo in ([0, 1], "rejected", "done"):
        run = spf.resume(run, redo=redo, service=kind.settings, progress=False)
        assert (run.estimate.calls, run.estimate.identical_retakes > 0) == (0, True)
    assert billed(kind, texts) == price(texts) == run.ledger["credits"].sum()


def test_the_first_take_is_heard_again_where_its_own_call_is_made_again(kind, speak, lines):
    texts = lines(3)
    run = speak(kind, texts)
    first = run.clip(1).audio
    again = spf.resume(run, redo=[1], service=kind.settings, progress=False).clip(1).audio
    assert again != first
    run = speak(kind, texts)
    assert run.clip(1).audio == first
    assert [times_billed(kind, text) for text in texts] == [1, 2, 1]


@pytest.mark.parametrize("run_dir", [None, "run"])
def test_a_rejected_take_comes_back_only_if_it_is_asked_for(kind, lines, tmp_path, monkeypatch, run_dir):
    monkeypatch.chdir(tmp_path)
    texts, options = lines(3), {"service": kind.settings, "progress": False}

    def cell(table=texts, **more):
        return spf.generate(table, voice="en-US-nora", sample_rate=8000, run_dir=run_dir, **options, **more)

    run = cell()
    first = run.clip(1).audio
    run.review("1", "reject")
    # There is no other take yet: nothing is bought unasked, and the plan names the row.
    again = cell()
    assert (again.estimate.calls, again.estimate.rejected) == (0, 1)
    assert "1 with an answer that a review rejected" in again.estimate.line()
    run = spf.resume(run, redo="rejected", **options)
    second = run.clip(1).audio
    assert second != first
    kept = [cell(), cell(dry_run=True), spf.resume(run, **options), spf.resume(run, table=texts, **options)]
    assert [(one.clip(1).audio, one.estimate.calls) for one in kept] == [(second, 0)] * 4
    # A row that left the table and comes back.
    spf.resume(run, table=texts[:1], **options)
    assert spf.resume(run, table=texts, **options).clip(1).audio == second
    run = cell(take=0)
    assert (run.clip(1).audio, run.estimate.rejected) == (first, 1)
    assert cell().clip(1).audio == second
    run = spf.resume(cell(), redo=[1], **options)
    run.review("1", "reject")
    assert cell().clip(1).audio == second
    assert [times_billed(kind, text) for text in texts] == [1, 3, 1]


def test_no_other_run_gets_a_rejected_answer_out_of_the_cache(plain, speak, lines, tmp_path):
    texts, cache = lines(2), tmp_path / "cache"
    run = speak(plain, texts, run_dir=tmp_path / "first", cache=cache)
    run.review("0", "reject")
    run.review("1", "keep")
    assert statuses(speak(plain, texts, run_dir=tmp_path / "second", cache=cache)) == ["done", "cached"]
    # It is this run's own answer now, and nobody has rejected it.
    assert statuses(speak(plain, texts, run_dir=tmp_path / "third", cache=cache)) == ["cached", "cached"]
    spf.open_run(tmp_path / "third").review("0", "reject")
    assert statuses(speak(plain, texts, run_dir=tmp_path / "fourth", cache=cache)) == ["done", "cached"]


def test_a_rejected_take_does_not_stand_in_for_one_that_is_missing_or_failed(kind, speak, lines):
    texts, options = lines(3), {"service": kind.settings, "progress": False}
    run = speak(kind, texts)
    run.review("1", "reject")
    run = spf.resume(run, redo="rejected", max_credits=price(texts), **options)
    assert (run.stopped_because, statuses(run)) == ("budget", ["done", "pending", "done"])
    kind.set(scripts={texts[1]: ["400"]})
    run = spf.resume(run, max_credits=inf, **options)
    assert statuses(run) == ["done", "failed", "done"]
    with pytest.raises(KeyError):
        run.clip(1)
    kind.set(scripts={})
    assert speak(kind, texts).clip(1).audio == spf.resume(run, **options).clip(1).audio
    assert [times_billed(kind, text) for text in texts] == [1, 2, 1]
    # A verdict that is taken back counts no more.
    run.review("1", "keep", sha256=spf.open_run(run.path).reviews["sha256"].iloc[0])
    assert speak(kind, texts).to_pandas()["take"].tolist() == [0, 0, 0]


def test_what_a_reviewer_rejects_is_made_anew(kind, speak, lines):
    texts = lines(3)
    run = speak(kind, texts)
    run.review("0", "keep", comment="lovely")
    run.review("2", "reject")
    assert list(spf.open_run(run.path).reviews["row_id"].astype(str)) == ["0", "2"]
    for _ in range(2):
        run = spf.resume(run, redo="rejected", service=kind.settings, progress=False)
        assert [times_billed(kind, text) for text in texts] == [1, 1, 2]
    assert list(run.reviews.set_index("row_id")["is_current"]) == [True, False]


def test_answers_that_any_run_has_paid_for_cost_the_next_one_nothing(plain, speak, lines, tmp_path):
    texts = lines(6)
    speak(plain, texts[:4], run_dir=tmp_path / "first", cache=tmp_path / "cache")
    run = speak(plain, texts, run_dir=tmp_path / "second", cache=tmp_path / "cache")
    assert statuses(run) == ["cached"] * 4 + ["done"] * 2
    check_audio(run)
    assert billed(plain, texts) == price(texts)
    assert run.ledger["credits"].sum() == price(texts[4:])


def test_a_budget_says_what_all_calls_cost_that_it_stopped(kind, speak, lines):
    texts = lines(300)
    kind.set(scripts={texts[1]: ["503", "503", "ok"]}, latency=0.01)
    budget = price(texts[:20])
    run = speak(kind, texts, max_credits=budget, max_concurrency=2)
    pending = [text for text, status in zip(texts, statuses(run), strict=True) if status == "pending"]
    assert len(pending) > 250
    assert run.stopped_by.needed_credits == price(pending)
    assert f"the rest of the run costs {price(pending):,} credits" in str(run.stopped_by)
    planned = spf.resume(run, dry_run=True, service=kind.settings, progress=False)
    assert planned.estimate.credits == price(pending)
    kind.set(scripts={}, latency=0)


@pytest.mark.parametrize("repeats", ["kind", "plain"])
def test_there_is_one_figure_of_what_a_run_has_spent(request, speak, lines, repeats):
    service = request.getfixturevalue(repeats)
    texts = lines(8)
    service.set(scripts={texts[2]: ["truncated", "ok"], texts[5]: ["reset_after", "truncated", "ok"]})
    options = {"on_unknown": "retry", "max_concurrency": 2}
    for most in (price(texts) // 2, 3 * price(texts)):
        run = speak(service, texts, max_credits=most, wait=False, **options)
        outcomes = list(run.outcomes())
        run.wait()
        told = run.progress.to_dict()
        spent = run.ledger["credits"].sum()
        assert (told["credits"], told["budget"]) == (spent, most)
        assert spf.watch(run).figures["credits"] == spf.watch(run.path).figures["credits"] == spent
        assert f"{spent:,.10g} credits" in run.summary()
        if run.stopped_by is not None:
            assert run.stopped_by.spent_credits == spent
    assert statuses(run) == ["done"] * 8
    assert outcomes
    service.set(scripts={})


def test_the_outcomes_of_a_run_sum_to_what_it_has_spent(plain, speak, lines):
    texts = lines(6)
    plain.set(scripts={texts[2]: ["reset_after", "ok"], texts[4]: ["truncated", "reset_after", "ok"]})
    run = speak(plain, texts, on_unknown="retry", wait=False)
    outcomes = list(run.outcomes())
    spent = run.wait().ledger["credits"].sum()
    assert spent > price(texts), "nothing was billed twice"
    assert sum(outcome.credits_millis for outcome in outcomes) == 1000 * spent
    plain.set(scripts={})
