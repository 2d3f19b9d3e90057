"""Answers that cannot be true: suspect in their row, with the reason, and what can be done about it."""

from faulty import audio_of, check_books, statuses

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
    assert again.stopped_because == "budget"
    assert faulty.sends(LINES[3]) == 5


def test_a_service_without_takes_is_not_asked_for_any(make_faulty, speak):
    server = make_faulty(takes=False)
    server.audio_for = {LINES[3]: "Hm."}
    run = speak(server, LINES, max_retakes=3)
    assert statuses(run)[LINES[3]] == "suspect"
    assert server.sends(LINES[3]) == 1
