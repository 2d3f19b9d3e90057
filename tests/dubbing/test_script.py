"""The text of a dub is bounded by the length of its medium, before anything is spoken."""

import pytest
from dubbing_lab import job, tone

from speechframe.dubbing import script
from speechframe.dubbing.folder import OUTCOME, Outcome
from speechframe.dubbing.job import work
from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.spec.dubbing import DubbedUtterance, UtteranceCorrection

LONG = "1\n00:00:00,000 --> 00:00:00,500\nANNA: " + "many words " * 30 + "\n"


def said(number, text):
    return DubbedUtterance(
        utterance_id=number,
        start_ms=0,
        end_ms=1000,
        speaker="ANNA",
        source_text=text,
        text=text,
        voice_id="en-US-nora",
        dub_start_ms=0,
        dub_end_ms=1000,
        speed=1.0,
        fit="FITS",
    )


def cue(start_s, text):
    return f"00:{start_s:02}.000 --> 00:{start_s + 1:02}.000\n{text}\n\n"


def test_only_text_that_begins_within_the_medium_counts():
    most = script.most_characters(8.0)
    text = "WEBVTT\n\n" + cue(0, "a" * most) + cue(9, "too late")
    assert [each.text for each in script.cues_within(text, 8.0)] == ["a" * most]
    with pytest.raises(ValueError, match=r"got 328 characters.*allowed: at most 320"):
        script.cues_within(text.replace("00:09", "00:07"), 8.0)
    # Nobody speaks so much at once, however long the medium is.
    with pytest.raises(ValueError, match="one of its texts is too long"):
        script.cues_within("WEBVTT\n\n" + cue(0, "a" * (MAX_TEXT_CHARACTERS + 1)), 3600.0)


def test_a_correction_may_not_lengthen_a_dub_beyond_its_bound_and_may_always_shorten_it():
    long, short = said(1, "a" * 300), said(2, "b")
    shorter = UtteranceCorrection(utterance_id=1, text="a" * 250)
    assert [len(text) for text, _ in script.corrected([long, short], [shorter], 1.0)] == [250, 1]
    longer = UtteranceCorrection(utterance_id=2, text="b" * 10)
    with pytest.raises(ValueError, match=r"got 310 characters.*allowed: at most 301"):
        script.corrected([long, short], [longer], 1.0)
    # What two corrections do together counts.
    assert len(script.corrected([long, short], [longer, shorter], 1.0)) == 2


def test_a_worker_refuses_text_that_the_service_should_have_refused_before_it_speaks(tmp_path):
    folder, steps = job(tmp_path, tone(0.5), targets=("pt-BR",), script=LONG), []
    work(folder, lambda locale, step: steps.append(step))
    outcome = Outcome.read(folder / "pt-BR" / OUTCOME)
    assert "the text is too long for a medium of 0.5 seconds (got 329 characters)" in outcome.failure.reason
    assert "speak" not in steps
