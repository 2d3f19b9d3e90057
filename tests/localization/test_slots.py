"""Lines are fitted to the time that they may take, and a second call is made only where it helps."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import speechframe as spf
from speechframe.backends.slots import fit_line

LINES = [
    "Good morning, everybody, and welcome to the show.",
    "Short.",
    "A line that is far too long for the little time that it was given here, isn't it?",
]


@pytest.fixture
def table():
    return pd.DataFrame(
        {"id": list("abc"), "text": LINES, "slot_s": [2.3, 2.0, 1.0], "gap_s": [0.1, 0.0, 3.0]}
    )


def test_only_a_line_that_is_somewhat_too_long_is_spoken_again(speak, sent, table):
    planned = speak(table, slot="slot_s", dry_run=True).estimate
    assert planned.possible_credits == planned.credits
    run = speak(table, slot="slot_s")
    frame = run.to_pandas().set_index("id")
    assert list(frame["slot_status"]) == ["fitted", "fits", "needs_shortening"]
    assert frame.loc["a", "audio_seconds"] == pytest.approx(2.4, abs=0.001)  # its slot and the gap of .1 s
    assert frame.loc["c", "over_s"] == pytest.approx(frame.loc["c", "audio_seconds"] - 1.5)  # .5 s at most
    assert frame.loc["c", "characters_to_lose"] > 0
    assert sent(run) == 4
    assert spf.resume(run, progress=False).ledger.shape == run.ledger.shape
    again = speak(table, slot="slot_s")
    assert sent(again) == 4
    assert again.to_pandas().set_index("id")["slot_status"].equals(frame["slot_status"])
    # In another slot, the length of the line at its natural length is known.
    table.loc[0, "slot_s"] = 2.5
    wider = speak(table, slot="slot_s")
    assert sent(wider) == 5
    assert wider.to_pandas()["audio_seconds"][0] == pytest.approx(2.6, abs=0.001)


def test_a_known_pace_saves_the_first_call(speak, sent):
    texts = [f"This is line number {number}, and it is as long as the others." for number in range(1, 25)]
    table = pd.DataFrame({"id": map(str, range(24)), "text": texts, "slot_s": 60.0})
    run = speak(table, slot="slot_s")
    longest = run.to_pandas()["natural_s"].max()
    new = pd.DataFrame({"id": ["new"], "text": ["This is a new line, and it is as long as the others are."]})
    table = pd.concat([table, new.assign(slot_s=round(longest / 1.15, 2))], ignore_index=True)
    run = speak(table, slot="slot_s")
    assert sent(run) == 25
    row = run.to_pandas().set_index("id").loc["new"]
    assert (row["natural_basis"], row["slot_status"]) == ("predicted", "fitted")
    assert row["audio_seconds"] == pytest.approx(row["available_s"], abs=0.001)
    # The decision stays when the pace changes, and a measured length stays when the slot changes.
    table.loc[0, "slot_s"] = round(run.to_pandas()["natural_s"][0] / 1.15, 2)
    slow = pd.DataFrame({"id": ["slow"], "text": ["1234567 " * 40], "slot_s": 600.0})
    for _ in range(2):
        run = speak(pd.concat([table, slow], ignore_index=True), slot="slot_s")
    again = run.to_pandas().set_index("id")
    assert again.loc["new", "natural_s"] == row["natural_s"]
    assert again.loc["0", "natural_basis"] == "measured"
    assert sent(run) == 27


def test_a_slot_that_is_no_time_is_refused_before_the_run(speak, table):
    table["slot_s"] = [2.0, -1.0, None]
    with pytest.raises(spf.InvalidRows, match="slot"):
        speak(table, slot="slot_s")
    with pytest.raises(spf.SettingsError, match="wait"):
        speak(table.drop(1), slot="slot_s", wait=False)


@given(
    st.floats(0.2, 60, allow_nan=False),
    st.floats(0.1, 120, allow_nan=False),
    st.integers(1, 500),
)
def test_a_shortened_line_could_be_fitted(available_s, natural_s, characters):
    fit = fit_line(available_s, natural_s, "measured", characters)
    lost = fit.get("characters_to_lose", 0)
    assert 0 <= lost <= characters
    shorter_s = natural_s * (characters - lost) / characters
    assert shorter_s <= 1.3 * available_s + 0.02
    assert fit["slot_status"] != "fitted" or natural_s > available_s
