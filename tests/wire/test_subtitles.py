"""SRT and WebVTT are read as players read them, and what cannot be read is named by its line."""

import pytest

from speechframe.wire.cues import Cue
from speechframe.wire.subtitles import convert_to_cues, read_subtitles

CUES = """\
1
00:00:01,000 --> 00:00:02,000
One
2
00:00:03 --> 00:00:04
42

3

0:05.5 --> 0:06.1234

Three

"""


def lines(text):
    """Start in ms and text of each cue."""
    return [(cue.start_ms, cue.text) for cue in convert_to_cues(read_subtitles(text))]


def test_a_line_of_times_always_begins_a_cue():
    plain = [(1000, "One"), (3000, "42"), (5500, "Three")]
    assert lines(CUES) == plain
    assert read_subtitles(CUES).warnings == ()
    for ends in ("\r\n", "\r"):
        assert lines(CUES.replace("\n", ends)) == plain
    assert lines("00:01 --> 00:02\nOne\n00:03 --> 00:04\n00:05 --> 00:06\nTwo") == [
        (1000, "One"),
        (5000, "Two"),
    ]
    # A number that is spoken stays, in front of a cue without a number too.
    assert lines("00:01 --> 00:02\nHow many?\n42\n\n00:03 --> 00:04\nOh.") == [
        (1000, "How many?\n42"),
        (3000, "Oh."),
    ]


def test_webvtt_is_read_with_its_head_notes_styles_names_and_voices():
    text = """\ufeffWEBVTT - a film
Kind: captions

NOTE Nobody reads this
00 -> 01

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.500 align:start position:10%
<v.loud Anna Maria>Good <i>morning</i> &amp; <00:01.500>welcome

00:03.000 --> 00:05.000
<v Ben>Hi!</v>
\x20
{\\an8}<font color='red'>All</font> of us.
"""
    found = read_subtitles(text)
    assert convert_to_cues(found) == [
        Cue(1000, 2500, "Good morning & welcome", "Anna Maria"),
        Cue(3000, 5000, "Hi!\nAll of us.", "Ben"),
    ]
    assert [line.number for cue in found.cues for line in cue.lines] == [12, 15, 17]


def test_one_odd_cue_is_skipped_or_guessed_and_its_line_is_named():
    good = "\n\n00:00:08,000 --> 00:00:09,000\nThe rest."
    odd = {
        "1\n00:00:01,000 --> late\nOne.": "line 2: this cue is skipped, because it needs times",
        "1\n00:00:03 -> 4\nOne.": "line 2: this cue is skipped, because it needs times",
        "1\n00:00:03,000 --> 00:00:02,000\nOne.": "line 2: this cue is skipped, because it ends before",
        "A title.": "line 1: this text is skipped, because it stands in front",
        "00:01 --> 00:02\nOne.\n\n7\n\n8": "line 4: this number is skipped",
    }
    found = {text: read_subtitles(text + good) for text in odd}
    wrong = [text for text, words in odd.items() if not found[text].warnings[0].startswith(words)]
    assert not wrong
    assert all(one.cues[-1].lines[0].text == "The rest." for one in found.values())
    assert [len(one.cues) for one in found.values()] == [1, 1, 1, 1, 2]
    behind = read_subtitles("00:01 --> 00:02\nOne.\n\nTwo." + good)
    assert convert_to_cues(behind)[0].text == "One.\nTwo."
    assert behind.warnings == ("line 4: this text after a blank line is read as part of the cue before it",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("A letter, and no film.", 1),
        ("1\n00:00:01,000 --> 00:00:02,000\n\n", 1),
        ("1\n00:00:01,000 --> late\nOne.", 2),
        ("WEBVTT\n\n00:02.000 --> 00:01.000\nOne.", 3),
    ],
)
def test_what_has_no_cue_is_refused_by_its_line(text, line):
    with pytest.raises(ValueError, match=rf"^line {line}: "):
        read_subtitles(text)
