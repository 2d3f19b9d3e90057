"""What a dashboard says in words, without a page."""

import pytest
from tests.rooms.scripted import Scripted, make

import speechframe as spf
from speechframe.widgets.figures import BurnDown, RunFigures, format_duration
from speechframe.widgets.watcher import Watcher

POINTS = ((0.0, 1000.0), (30.0, 900.0))
COUNTS = {
    "total": 400, "done": 57, "cached": 0, "suspect": 0, "failed": 1, "charged_unknown": 0, "retries": 1200,
    "credits": 1831.5, "balance": 9987305, "audio_seconds": 50.4, "seconds": 5.0, "rate": 11.96, "eta_s": 29.4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "1 s"), (1.6, "2 s"), (89.9, "90 s"), (90, "2 min"), (5300, "88 min"), (5400, "1 h 30 min")],
)
def test_times_are_said_as_people_say_them(seconds, words):
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("burn", "words"),
    [
        (BurnDown(), "No credits have been spent yet."),
        (
            BurnDown("characters", "balance", POINTS),
            "Balance of the key: 1,000 characters at the start, 900 after 30 s.",
        ),
        (
            BurnDown("credits", "budget", POINTS, (POINTS[1], (60.0, 800.25))),
            (
                "Budget of the run: 1,000 credits at the start, 900 after 30 s; "
                "at this rate 800.25 at the end, in about 30 s."
            ),
        ),
        (
            BurnDown("credits", "budget", POINTS, (POINTS[1], (300.0, 0.0)), "call 37 of 80"),
            (
                "Budget of the run: 1,000 credits at the start, 900 after 30 s; "
                "at this rate the run stops at max_credits in about 4 min, at about call 37 of 80."
            ),
        ),
    ],
)
def test_the_chart_is_told_to_who_cannot_see_it(burn, words):
    assert burn.words == words
    assert burn.to_page()["words"] == words


def test_a_run_is_told_in_a_line():
    figures = RunFigures("running", None, "", is_here=True, counts=COUNTS)
    assert figures.pace == (
        "58 of 400 calls · 11.96 a second · about 29 s to go · 1,831.5 credits · 9,987,305 characters left · "
        "50 s of audio"
    )
    ended = RunFigures(
        "finished", None, "", is_here=True, counts={**COUNTS, "total": 1, "rate": None, "balance": None}
    )
    assert ended.pace == "58 of 1 call · 1,831.5 credits · 50 s of audio"
    assert figures.to_page()["tallies"] == [
        ["done", "57 done", ""],
        ["failed", "1 failed", "bad"],
        ["retries", "1,200 retries", ""],
    ]


def test_credits_budget_and_money_are_of_the_whole_run_also_after_a_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.toml").write_text(
        'currency = "EUR"\n[[price]]\nfrom = 2026-01-01\nunit = "credit"\nprice = "0.5"\n'
    )
    backend = Scripted()
    run = make(tmp_path / "run", list("abcd"), backend=backend, max_credits=2)
    watcher = Watcher(run)
    assert "2 of 2 credits · 1.00 EUR" in watcher.read_figures().pace
    run.take_state_of(spf.resume(run, backend=backend, max_credits=3, progress=False))
    assert "3 of 3 credits · 1.50 EUR" in watcher.read_figures().pace
    assert "3 of 3 credits" in Watcher(spf.open_run(run.path)).read_figures().pace


def test_a_run_of_another_process_counts_by_the_word_of_its_verb(tmp_path):
    class Texts(Scripted):
        operation = "translate"

    for backend, words in ((Texts(), "2 of 2 texts"), (Scripted(), "2 of 2 calls")):
        path = make(tmp_path / backend.operation, ["One.", "Two."], backend=backend).path
        assert Watcher(spf.open_run(path)).read_figures().so_far == words
