"""A script is spoken by its speakers. Its text is bounded by the length of the medium."""

import pytest
from dubbing_lab import job, tone

from speechframe.local.dubbing import script
from speechframe.local.dubbing.folder import OUTCOME, LocaleOutcome
from speechframe.local.dubbing.job import run_job
from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.spec.dubbing import DubbedUtterance, UtteranceCorrection
from speechframe.wire.cues import Cue

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


def srt(*texts):
    """A script of cues of two seconds. The first line of text is line 3, and then every fourth."""
    return "".join(
        f"{at}\n00:{2 * at:02}:00,000 --> 00:{2 * at:02}:02,000\n{text}\n\n" for at, text in enumerate(texts)
    )


def spoken(text, cast=()):
    """Speaker and text of each part, and the warnings."""
    found, warnings = script.read_script(text, 36_000.0, cast=cast)
    return [(cue.speaker, cue.text) for cue in found], warnings


def test_speakers_are_read_in_all_their_usual_forms_and_named_in_a_warning():
    forms = {
        "ANNA: Hello.": "ANNA",
        "ANNA:Hello.": "ANNA",
        "- ANNA: Hello.": "ANNA",
        ">> ANNA (on the phone): Hello.": "ANNA",
        "ANNA:\nHello.": "ANNA",
        "[Anna]: Hello.": "Anna",
        "MAN #1: Hello.": "MAN #1",
        "MR. & MRS. O'NEIL: Hello.": "MR. & MRS. O'NEIL",
        "Speaker 1 (00:12): Hello.": "Speaker 1",
        "Speaker B: Hello.": "Speaker B",
        "spk_0: Hello.": "spk_0",
        "[SPEAKER_00]: Hello.": "SPEAKER_00",
        "[SPEAKER_00] Hello.": "SPEAKER_00",
        "(speaker 1) Hello.": "speaker 1",
        "АННА： Hello.": "АННА",
    }
    found = {form: spoken(srt(form)) for form in forms}
    assert not [form for form, who in forms.items() if found[form][0] != [(who, "Hello.")]]
    assert not [
        form for form, who in forms.items() if f"'{who}' (1 line)" not in found[form][1][0].replace('"', "'")
    ]
    assert spoken("WEBVTT\n\n00:01.000 --> 00:02.000\n<v Anna>Hello.\n") == ([("Anna", "Hello.")], [])


def test_words_before_a_colon_are_no_speaker_without_evidence():
    said = [
        "THE TRAIN LEAVES AT 7:45 TODAY.",
        "They won 3:1.",
        "https://example.org is ours.",
        "Remember: never open it.",
        "This is how I see it: fine.",
        "Remember: never open it.",
    ]
    found, (warning,) = spoken(srt(*said))
    assert found == [("Speaker 1", text) for text in said]
    assert "spoken as text: 'Remember' (2 lines)" in warning
    # Capitals prove nothing in a script of capitals.
    assert spoken(srt("REMEMBER: NEVER OPEN IT."))[0] == [("Speaker 1", "REMEMBER: NEVER OPEN IT.")]
    # Names that begin many lines are evidence, and so is the cast.
    many = srt("Ben: One.", "Remember: two.", "Ana de la Cruz: Three.", "Ben: Four.", "Ana de la Cruz: Five.")
    assert [who for who, _ in spoken(many)[0]] == [
        "Ben",
        "Speaker 1",
        "Ana de la Cruz",
        "Ben",
        "Ana de la Cruz",
    ]
    assert spoken(srt("Ben: One."), cast={"Ben": "nora"}) == ([("Ben", "One.")], [])
    assert spoken(srt("One."), cast=["Ben"])[1] == ["the script has no speaker 'Ben', who is in cast"]


def test_a_cue_is_shared_by_its_speakers():
    found, _ = script.read_script(srt("ANNA: Hi!\nBEN: Hello, Anna."), 60.0)
    assert found == [Cue(0, 400, "Hi!", "ANNA"), Cue(400, 2000, "Hello, Anna.", "BEN")]


def test_sounds_and_songs_are_not_spoken_and_their_lines_are_named():
    said = {
        "[DOOR CREAKS]": "",
        "(sighs)": "",
        "[DOOR\nCREAKS]": "",
        "[sighs] [laughs] Well. (coughs)": "Well.",
        "I know. [laughs] It is late.": "I know. It is late.",
        "I was born (in Rome) in May.": "I was born (in Rome) in May.",
        "Wait [pause 1s] here.": "Wait [pause 1s] here.",
        "♪ la la ♪": "",
        "♪ la\nla ♪\nHello.": "Hello.",
        "♪ la ♪ Hello.": "Hello.",
        "（音） 你好": "你好",
        "- Hello.": "Hello.",
        "-5 degrees": "-5 degrees",
    }
    found = {text: spoken(srt(text)) for text in said}
    assert not [
        text for text, words in said.items() if [one for _, one in found[text][0]] != [words] * bool(words)
    ]
    assert spoken(srt("Hi.", "(sighs)"))[1] == [
        "line 7: not spoken, because brackets and songs between notes are not speech"
    ]


def test_captions_that_roll_are_spoken_once():
    text = "WEBVTT\nKind: captions\nLanguage: en\n\n"
    shown = [
        (" ", "one<00:00:00.480><c> two</c>"),
        ("one two", " "),
        ("one two", "three<c> four</c>"),
        ("three four", " "),
    ]
    shown += [("three four", "five"), ("five", " ")]
    for at, (above, below) in enumerate(shown):
        text += f"00:{2 * at:02}.000 --> 00:{2 * at + 2:02}.000 align:start position:0%\n{above}\n{below}\n\n"
    found, warnings = spoken(text)
    assert [words for _, words in found] == ["one two", "three four", "five"]
    assert warnings == ["the captions roll: 5 repeated lines spoken once"]
    chant = srt("No!", "No!", "No!", "No!")
    assert spoken(chant) == ([("Speaker 1", "No!")] * 4, [])


def test_only_text_that_begins_within_the_medium_counts():
    most = script.compute_max_characters(8.0)
    text = "WEBVTT\n\n" + cue(0, "a" * most) + cue(9, "too late")
    found, warnings = script.read_script(text, 8.0)
    assert [each.text for each in found] == ["a" * most]
    assert warnings == [
        "1 cue not spoken, because the medium ends at 8.0 s; the first of them begins at 9.0 s"
    ]
    with pytest.raises(ValueError, match=r"got 328 characters.*allowed: at most 320"):
        script.read_script(text.replace("00:09", "00:07"), 8.0)
    # Nobody speaks so much at once, however long the medium is.
    with pytest.raises(ValueError, match="one of its texts is too long"):
        script.read_script("WEBVTT\n\n" + cue(0, "a" * (MAX_TEXT_CHARACTERS + 1)), 3600.0)


def test_a_correction_may_not_lengthen_a_dub_beyond_its_bound_and_may_always_shorten_it():
    long, short = said(1, "a" * 300), said(2, "b")
    shorter = UtteranceCorrection(utterance_id=1, text="a" * 250)
    assert [len(text) for text, _ in script.apply_corrections([long, short], [shorter], 1.0)] == [250, 1]
    longer = UtteranceCorrection(utterance_id=2, text="b" * 10)
    with pytest.raises(ValueError, match=r"got 310 characters.*allowed: at most 301"):
        script.apply_corrections([long, short], [longer], 1.0)
    # What two corrections do together counts.
    assert len(script.apply_corrections([long, short], [longer, shorter], 1.0)) == 2


def test_a_worker_refuses_text_that_the_service_should_have_refused_before_it_speaks(tmp_path):
    folder, steps = job(tmp_path, tone(0.5), targets=("pt-BR",), script=LONG), []
    run_job(folder, lambda locale, step: steps.append(step))
    outcome = LocaleOutcome.read(folder / "pt-BR" / OUTCOME)
    assert "the text is too long for a medium of 0.5 seconds (got 329 characters)" in outcome.failure.reason
    assert "speak" not in steps
