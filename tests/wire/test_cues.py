"""Speech becomes cues that can be read in time, and cues become files."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.wire.cues import Cue, format_srt, format_vtt, make_cues
from speechframe.wire.subtitles import convert_to_cues, read_subtitles

WORDS = st.sampled_from(
    ["a", "to", "Hello,", "yes!", "morning.", "incomprehensible", "é\u0301tude", "x" * 97, "— no", "你好，世界。今天天气很好",
     "これはとても長い文章です。", "การแปลภาษา", "(see)", "3.14", "don’t"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=40).map(" ".join) | st.text(max_size=200)


@st.composite
def speech(draw):
    timed = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, 60_000))
        timed.append(Cue(start, start + draw(st.integers(0, 20_000)), draw(TEXTS)))
    return timed, draw(st.integers(5_000, 80_000))


def parsed(text):
    return convert_to_cues(read_subtitles(text))


def letters(texts):
    return "".join("".join(text.split()) for text in texts)


@given(speech())
def test_cues_never_overlap_lose_nothing_and_always_fit(given_):
    timed, media_ms = given_
    made, over = make_cues(timed, media_ms)
    ordered = sorted(timed, key=lambda each: each.start_ms)
    assert letters(cue.text for cue in made) == letters(each.text for each in ordered)
    assert all(0 <= cue.start_ms < cue.end_ms <= media_ms for cue in made)
    assert all(a.end_ms <= b.start_ms for a, b in itertools.pairwise(made))
    for cue in made:
        lines = cue.text.split("\n")
        assert 1 <= len(lines) <= 2
        assert all(line.strip() == line and 0 < len(line) <= 42 for line in lines)
    lengths = [cue.end_ms - cue.start_ms for cue in made]
    misses = [
        len(cue.text) * 50 > ms or ms < 5000 / 6 or ms > 7000 for cue, ms in zip(made, lengths, strict=True)
    ]
    assert over == sum(misses)


def test_more_cues_than_milliseconds_have_one_each_and_can_be_read_back():
    said = [Cue(0, 1, "One.", "A"), Cue(0, 1, "Two.", "B"), Cue(1, 2, "Three.", "A")]
    made, over = make_cues(said, 2)
    assert [(cue.start_ms, cue.end_ms) for cue in made] == [(0, 1), (1, 2), (2, 3)]
    assert over == 3
    assert [cue.text for cue in parsed(format_srt(made))] == ["One.", "Two.", "Three."]
    assert len(parsed(format_vtt(make_cues([Cue(0, 0, "Hi.")], 0)[0]))) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Good morning.", ["Good morning."]),
        ("Good morning, everybody, and welcome to the first day.", ["Good morning, everybody,\nand welcome to the first day."]),
        (
            "I never said that. You must have heard it somewhere else, from someone who was not there at all.",
            ["I never said that.\nYou must have heard it somewhere else,", "from someone who was not there at all."],
        ),
        ("今天天气很好，我们去公园散步吧。晚上我们一起吃饭，然后看一部电影，好不好？明天早上我还要上班。", ["今天天气很好，我们去公园散步吧。\n晚上我们一起吃饭，然后看一部电影，好不好？明天早上我还要上班。"]),
    ],
)  # fmt: skip
def test_lines_are_broken_where_one_would_breathe(text, shown):
    assert [cue.text for cue in make_cues([Cue(0, 6500, text)], 10_000)[0]] == shown


def test_a_cue_stays_until_it_is_read_where_nothing_follows():
    timed = [
        Cue(0, 400, "Yes, and no."),
        Cue(2000, 2500, "This has twenty-nine letters."),
        Cue(2600, 9000, "Oh."),
    ]
    made, over = make_cues(timed, 9000)
    assert [(cue.start_ms, cue.end_ms) for cue in made] == [(0, 834), (2000, 2600), (2600, 9000)]
    assert over == 1


def test_a_long_utterance_is_shared_out_by_its_letters():
    text = (
        "The first half is spoken very slowly indeed, and the other half comes quite fast after a long pause."
    )
    (_, second), _ = make_cues([Cue(0, 10_000, text)], 20_000)
    assert (second.text.split()[0], second.start_ms) == ("and", round(10_000 * text.index("and") / len(text)))


def test_two_at_once_are_shown_one_behind_the_other():
    made, _ = make_cues([Cue(1000, 4000, "What are you doing?"), Cue(1200, 2000, "Wait!")], 9000)
    assert [(cue.start_ms, cue.end_ms, cue.text) for cue in made] == [
        (1000, 1950, "What are you doing?"),
        (1950, 2784, "Wait!"),
    ]


LINES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" "), min_size=1, max_size=30
)
SAID = LINES.map(str.strip).filter(lambda line: line and "{\\" not in line and "->" not in line)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**7),
            st.integers(1, 10**6),
            SAID,
            st.just("") | st.sampled_from(["Anna", "B & C"]),
        ),
        min_size=1,
    )
)
def test_webvtt_comes_back_as_it_went(parts):
    made = sorted(
        (Cue(start, start + length, text, who) for start, length, text, who in parts),
        key=lambda cue: cue.start_ms,
    )
    assert parsed(format_vtt(made)) == made


def test_srt_is_as_players_write_it():
    made = [Cue(500, 2000, "One\ntwo"), Cue(3_600_001, 3_661_000, "Three", "ANNA")]
    assert format_srt(made) == (
        "1\n00:00:00,500 --> 00:00:02,000\nOne\ntwo\n\n2\n01:00:00,001 --> 01:01:01,000\nThree\n\n"
    )
    assert [cue.text for cue in parsed(format_srt(made))] == ["One\ntwo", "Three"]
