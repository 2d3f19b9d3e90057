"""Answers that cannot be true: suspect in their row, with the reason, and what can be done about it."""

import pandas as pd
import pytest
from faulty import Faulty, audio_of, check_books, statuses

import speechframe as spf

LINES = [f"This is the line with the number {i}, and it is not short." for i in range(12)]


def test_the_audio_of_another_row_is_suspect_and_its_neighbours_are_not(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    run = speak(faulty, LINES)
    frame = run.to_pandas(audio=True).set_index("text")
    row = frame.loc[LINES[3]]
    assert (row["status"], row["error_code"]) == ("suspect", "length")
    assert "the audio holds" in row["error_message"]
    # What was paid for is kept, suspect or not.
    assert row["audio"]["bytes"] == audio_of("Hm.")
    assert set(frame["status"].drop(LINES[3])) == {"done"}
    assert (run.stats["suspect"], run.stats["done"]) == (1, 11)
    assert run.progress.to_dict()["suspect"] == 1
    assert set(run.ledger["status"]) == {"done", "suspect"}
    check_books(run, faulty)


def test_it_is_not_sent_again_unless_it_is_asked_for(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    run = speak(faulty, LINES)
    sent = len(faulty.seen)
    assert spf.resume(run, service=faulty.settings, progress=False).estimate.calls == 0
    faulty.audio_for = {}
    again = spf.resume(run, redo="suspect", service=faulty.settings, progress=False)
    assert len(faulty.seen) == sent + 1
    assert set(statuses(again).values()) == {"done"}
    assert again.to_pandas().set_index("text").loc[LINES[3], "take"] == 1


def test_without_truth_checks_answers_are_taken_as_they_come(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    assert set(statuses(speak(faulty, LINES, truth_checks=False)).values()) == {"done"}


def test_takes_by_themselves_end_when_the_answer_is_right(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm.", LINES[5]: "Hm."}
    faulty.wrong_for = 2
    run = speak(faulty, LINES, max_retakes=3)
    frame = run.to_pandas().set_index("text")
    assert set(frame["status"]) == {"done"}
    assert sorted(frame["take"].unique()) == [0, 2]
    assert (faulty.sends(LINES[3]), faulty.sends(LINES[0])) == (3, 1)
    assert run.progress.done == 12
    check_books(run, faulty)


def test_takes_by_themselves_are_capped_and_kept_within_the_budget(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    run = speak(faulty, LINES, max_retakes=2)
    assert faulty.sends(LINES[3]) == 3
    assert statuses(run)[LINES[3]] == "suspect"
    price = run.ledger["credits"].max()
    spent = run.ledger["credits"].sum()
    again = spf.resume(
        run,
        redo="suspect",
        max_retakes=9,
        max_credits=spent + 2 * price,
        service=faulty.settings,
        progress=False,
    )
    assert again.stopped_because is None
    assert statuses(again)[LINES[3]] == "suspect"
    assert faulty.sends(LINES[3]) == 5


def test_a_service_without_takes_is_not_asked_for_any(make_faulty, speak):
    server = make_faulty(takes=False)
    server.audio_for = {LINES[3]: "Hm."}
    run = speak(server, LINES, max_retakes=3)
    assert statuses(run)[LINES[3]] == "suspect"
    assert server.sends(LINES[3]) == 1


def test_the_same_call_again_keeps_the_take_that_was_found_good(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    faulty.wrong_for = 1
    for _ in range(3):
        frame = speak(faulty, LINES, max_retakes=2).to_pandas().set_index("text")
        assert (frame.loc[LINES[3], "status"], frame.loc[LINES[3], "take"]) == ("done", 1)
    assert len(faulty.seen) == len(LINES) + 1
    # And so does a table with more rows.
    more = spf.resume(
        speak.folder,
        table=[*LINES, "And one more line of this kind."],
        service=faulty.settings,
        progress=False,
    )
    assert len(faulty.seen) == len(LINES) + 2
    assert set(statuses(more).values()) == {"done"}
    assert spf.changes(speak.folder, LINES, service=faulty.settings).credits == 0


def test_another_take_of_a_row_that_was_retaken_is_a_new_one(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    faulty.wrong_for = 1
    run = speak(faulty, LINES, max_retakes=2)
    again = spf.resume(run, redo=["3"], service=faulty.settings, progress=False)
    assert again.to_pandas().set_index("text").loc[LINES[3], "take"] == 2
    assert faulty.sends(LINES[3]) == 3


def test_a_retake_that_cannot_be_paid_leaves_the_suspect_audio_in_view(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    budget = sum(map(len, LINES))
    run = speak(faulty, LINES, max_retakes=2, max_credits=budget, on_error="raise")
    assert (run.status, run.stopped_because) == ("finished", None)
    assert statuses(run)[LINES[3]] == "suspect"
    assert run.clip("3").audio == audio_of("Hm.")
    assert faulty.sends(LINES[3]) == 1


def test_a_retake_that_fails_leaves_the_suspect_audio_in_view(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    faulty.scripts = {LINES[3]: ["ok", 400]}
    run = speak(faulty, LINES, max_retakes=2)
    assert (run.status, statuses(run)[LINES[3]]) == ("finished", "suspect")
    assert faulty.sends(LINES[3]) == 2


def test_a_key_that_is_refused_ends_retakes_too(faulty, speak):
    faulty.audio_for = {LINES[0]: "Hm."}
    faulty.scripts = {LINES[5]: [403]}
    run = speak(faulty, LINES, max_retakes=2, max_concurrency=1)
    assert run.stopped_because == "key"
    assert len(faulty.seen) == 6


def test_voices_that_cannot_vary_are_not_retaken_for_ever(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    run = speak(faulty, LINES, max_retakes=2, variation=0)
    assert statuses(run)[LINES[3]] == "suspect"
    assert faulty.sends(LINES[3]) == 1
    assert set(statuses(speak(faulty, LINES, variation=0)).values()) == {"done", "suspect"}


def test_rows_that_were_left_out_stay_out_when_others_are_redone(faulty, speak):
    frame = pd.DataFrame({"text": LINES[:4], "take": [None, 1.0, 2.0, "x"]})
    run = speak(faulty, frame, take=spf.col("take"), on_invalid="skip")
    assert run.stats["invalid"] == 3
    again = spf.resume(run, redo=["0"], on_invalid="skip", service=faulty.settings, progress=False)
    assert (again.stats["done"], again.stats["invalid"]) == (1, 3)
    assert len(faulty.seen) == 2


@pytest.mark.parametrize("redo", [1, "0", 2.5])
def test_redo_that_is_no_list(faulty, speak, redo):
    run = speak(faulty, LINES[:2])
    with pytest.raises(spf.InvalidRows, match="list of row ids"):
        spf.resume(run, redo=redo, service=faulty.settings, progress=False)


def test_after_a_redo_another_table_is_taken(faulty, speak):
    run = speak(faulty, LINES[:4])
    run = spf.resume(run, redo=["1"], service=faulty.settings, progress=False)
    more = spf.resume(run, table=LINES[:6], service=faulty.settings, progress=False)
    assert set(statuses(more).values()) == {"done"}
    assert spf.changes(run, LINES[:6], service=faulty.settings).credits == 0


def test_a_dry_run_changes_nothing_in_a_run_that_exists(faulty, speak):
    run = speak(faulty, LINES[:4])
    before = run.to_pandas()
    look = spf.resume(run, redo=["1"], dry_run=True, service=faulty.settings, progress=False)
    assert (look.estimate.calls, look.estimate.finished) == (1, 3)
    look = speak(faulty, ["Quite another text.", ""], dry_run=True)
    assert (look.estimate.calls, len(look.problems)) == (1, 1)
    assert spf.open_run(run.path).to_pandas().equals(before)
    assert spf.resume(run, service=faulty.settings, progress=False).estimate.calls == 0
    assert len(faulty.seen) == 4


@pytest.mark.parametrize("given", [{"take": 1}, {"run_dir": "elsewhere"}, {"id": "text"}])
def test_a_resume_refuses_what_it_has_no_use_for(faulty, speak, given):
    run = speak(faulty, LINES[:2])
    with pytest.raises(spf.SettingsError, match=f"resume\\(\\) takes no {next(iter(given))}"):
        spf.resume(run, **given, service=faulty.settings, progress=False)
    frame = pd.DataFrame({"text": LINES[:2], "n": [1, 2]})
    assert spf.resume(run, frame, id="n", service=faulty.settings, progress=False).stats["done"] == 2


def test_a_service_without_takes_is_not_paid_for_the_same_again(make_faulty, speak):
    server = make_faulty(takes=False)
    run = speak(server, LINES[:3])
    with pytest.raises(spf.InvalidRows, match="redo: makes other takes, which this service does not offer"):
        spf.resume(run, redo=["0"], service=server.settings, progress=False)
    frame = pd.DataFrame({"text": LINES[:3], "take": [0, 1, 0]})
    with pytest.raises(spf.InvalidRows, match="take: is not offered by this service"):
        speak(server, frame, take=spf.col("take"))
    assert len(server.seen) == 3


def test_takes_by_themselves_are_counted_over_all_calls(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    assert speak(faulty, LINES, max_retakes=2).to_pandas()["take"].max() == 2
    sent = len(faulty.seen)
    again = speak(faulty, LINES, max_retakes=2)
    assert (again.estimate.calls, again.to_pandas()["take"].max(), len(faulty.seen)) == (0, 2, sent)
    assert speak(faulty, LINES, max_retakes=3).to_pandas()["take"].max() == 3
    # Who asks for another take has as many beyond that one.
    redone = spf.resume(speak.folder, redo="suspect", max_retakes=1, service=faulty.settings, progress=False)
    assert redone.to_pandas()["take"].max() == 5


def test_a_take_is_asked_for_beside_rows_that_were_left_out(faulty, speak):
    faulty.audio_for = {LINES[3]: "Hm."}
    run = speak(faulty, [*LINES, ""], on_invalid="skip")
    faulty.audio_for = {}
    again = spf.resume(run, redo="suspect", service=faulty.settings, progress=False)
    assert again.stats["done"] == len(LINES)
    assert again.stats["invalid"] == 1


class OneBehind(Faulty):
    """A service whose first connection has an answer too many: each request gets the one before."""

    def __init__(self, **options):
        super().__init__(**options)
        self.last, self.behind = {}, None

    async def _good(self, request, step, text):
        connection = request.transport
        before, self.last[connection] = self.last.get(connection), text
        if before is not None and self.behind in {None, connection}:
            self.behind = connection
            text = before
        return await super()._good(request, step, text)


def test_an_answer_too_many_is_the_audio_of_one_row_and_not_of_all_that_follow(speak):
    words = [
        "apple",
        "river",
        "candle",
        "bridge",
        "winter",
        "garden",
        "silver",
        "mountain",
        "yellow",
        "pocket",
        "thunder",
        "basket",
    ]
    texts = [f"{one.capitalize()} {two} {one} {two}." for one, two in zip(words, words[::-1], strict=True)]
    server = OneBehind()
    server.up()
    try:
        run = speak(server, texts, max_concurrency=1)
        states = statuses(run)
        assert (states[texts[1]], list(states.values()).count("done")) == ("suspect", 11)
        frame = run.to_pandas(audio=True)
        own = [row["audio"]["bytes"] == audio_of(row["text"]) for row in frame.to_dict("records")]
        assert own == [state == "done" for state in frame["status"]]
    finally:
        server.down()
