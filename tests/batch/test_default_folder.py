"""No folder is named: the same calls are one run, whatever table it was given since."""

import pandas as pd
import pytest

import speechframe as spf

GAMMA = ["Gamma one.", "Gamma two.", "Gamma three."]
DELTA = ["Delta one.", "Delta two."]


@pytest.fixture
def speak_here(hosted, speak, tmp_path, monkeypatch):
    """Speak on a service where every call that is sent is billed, into the folder that nobody named."""
    monkeypatch.chdir(tmp_path)

    def call(texts, **options):
        return speak(hosted, texts, run_dir=None, **options)

    return call


def resumed(run, server, **options):
    return spf.resume(run, service=server.settings, progress=False, **options)


def rows(run):
    return run.to_pandas()[["text", "status"]].to_numpy().tolist()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("other", [DELTA, DELTA[:1], [*GAMMA[1:], *DELTA, "Epsilon."]])
@pytest.mark.parametrize("dry_run", [True, False])
def test_the_call_sends_and_shows_its_own_table(speak_here, hosted, other, dry_run):
    first = speak_here(GAMMA, dry_run=dry_run)
    resumed(first, hosted, table=other)
    again = speak_here(GAMMA)
    assert again.path == first.path
    assert rows(again) == [[text, "done"] for text in GAMMA]
    assert again.status == "finished"
    assert set(hosted.billed.values()) == {1}
    assert again._folder.verify() == []


def test_a_budget_that_stopped_another_table_stops_nothing(speak_here, hosted):
    first = speak_here(GAMMA)
    assert resumed(first, hosted, table=DELTA, max_credits=33).status == "stopped"
    again = speak_here(GAMMA, max_credits=float("inf"))
    assert (again.status, rows(again)) == ("finished", [[text, "done"] for text in GAMMA])


def test_columns_that_are_not_sent_are_those_of_the_last_call(speak_here, hosted):
    frame = pd.DataFrame({"text": GAMMA, "speaker": ["ann", "bob", "ann"]})
    speak_here(frame)
    again = speak_here(frame.assign(speaker="carl", split=["train", "test", "test"]))
    assert again.to_pandas()["speaker"].tolist() == ["carl"] * 3
    assert again.to_pandas()["split"].tolist() == ["train", "test", "test"]
    tables = len(again._folder.tables())
    speak_here(frame.assign(speaker="carl", split=["train", "test", "test"]))
    assert len(spf.open_run(again.path)._folder.tables()) == tables
    assert sum(hosted.billed.values()) == 3


def test_a_look_at_the_same_calls_changes_nothing(speak_here, hosted):
    first = speak_here(GAMMA)
    resumed(first, hosted, table=DELTA)
    looked = speak_here(GAMMA, dry_run=True)
    assert (looked.estimate.calls, looked.estimate.finished) == (0, 3)
    assert rows(spf.open_run(first.path)) == [[text, "done"] for text in DELTA]


def test_the_call_chooses_its_own_take_back_and_keeps_those_made_by_themselves(
    make_faulty, speak, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    server = make_faulty()

    def call(**options):
        return speak(server, GAMMA, run_dir=None, **options)

    first = call().to_pandas()
    redone = resumed(call(), server, redo=["1"]).to_pandas()
    assert redone["take"].tolist() == [0, 1, 0]
    assert call().to_pandas()["sha256"].tolist() == first["sha256"].tolist()


@pytest.mark.parametrize(
    "values",
    [[1, 2, 1], [1.5, 2.5, 1.5], [True, False, True], pd.to_datetime(["2026-01-01"] * 3), list("aba")],
)
def test_a_column_of_categories_may_come_with_another_column_later(speak_here, hosted, values):
    frame = pd.DataFrame({"text": GAMMA, "kind": pd.Categorical(values)})
    first = speak_here(frame)
    again = speak_here(frame.assign(more=1))
    assert again.path == first.path
    assert again.to_pandas()["kind"].tolist() == list(values)
    assert resumed(again, hosted, table=frame).status == "finished"
    assert sum(hosted.billed.values()) == 3
