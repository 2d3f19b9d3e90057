"""The real engine behind the service: what a caller hears."""

import asyncio
import statistics
from urllib.parse import unquote

import numpy as np
import pytest

from speechframe.audio import codec, measure
from speechframe.spec import chosen


async def say(http, text, voice="nora", **fields):
    answer = await http.generate(
        text, voiceId=voice, encodeAsBase64=True, format="FLAC", sampleRate=24000, **fields
    )
    assert answer.status == 200, answer.body
    return answer, codec.decode(answer.audio)


def words_of(answer):
    return [(w["word"], w["startMs"], w["endMs"]) for w in answer.json["wordDurations"]]


@pytest.mark.rule("speech.pause-marker")
async def test_a_pause_is_silence_and_is_not_spoken(http):
    plain, short = await say(http, "Wait. Now!")
    paused, long = await say(http, "Wait. [pause 2s]Now!")
    assert (
        [word for word, *_ in words_of(paused)] == ["Wait", "Now"] == [word for word, *_ in words_of(plain)]
    )
    assert long.audio_seconds - short.audio_seconds == pytest.approx(2, abs=0.6)
    (_, _, before), (_, after, _) = words_of(paused)
    inside = long.samples[int((before + 200) * 24) : int((after - 200) * 24)]
    assert len(inside) > 24_000
    assert np.abs(inside).max() < 0.01


async def test_what_is_meant_as_a_pause_marker_is_left_out_said_and_not_billed(http):
    before = await http.remaining("spare")
    answer, _ = await say(http, "Wait. [pause 500ms] Now, [Break] go!", key="spare")
    assert [word for word, *_ in words_of(answer)] == ["Wait", "Now", "go"]
    assert answer.warnings == [
        "'[pause 500ms]' is not a pause marker and was left out; write [pause 1.5s]",
        "'[Break]' is not a pause marker and was left out; write [pause 1.5s]",
    ]
    assert await http.remaining("spare") == before - len("Wait.  Now,  go!")


async def over_both(http, text, voice, **fields):
    """Ask generate and stream, which must say the same."""
    body = {"text": text, "voiceId": voice, "format": "PCM", **fields}
    generated = await http.ask("POST", "/v1/speech/generate", json=body)
    streamed = await http.ask("POST", "/v1/speech/stream", json={**body, "model": "gen2"})
    others = [words for words in streamed.warnings if "deprecated" not in words]
    assert (streamed.status, others) == (generated.status, generated.warnings)
    if generated.status != 200:
        assert streamed.message == generated.message
    return generated


async def test_words_of_the_dictionary_that_are_not_in_the_text_are_named(http):
    spoken = {
        word: {"type": "SAY_AS", "pronunciation": "tea"} for word in ("hello", "Quux", "HELLO", "pause")
    }
    text = "Hello. Well. [pause 0.1s] Bye."
    answer = await over_both(http, text, "nora", pronunciationDictionary=spoken)
    (warning,) = map(unquote, answer.warnings)
    assert warning == "words of the pronunciation dictionary are not in the text: 'Quux', 'HELLO', 'pause'"
    assert (
        await over_both(http, text, "nora", pronunciationDictionary={"hello": spoken["hello"]})
    ).warnings == []


@pytest.mark.parametrize(
    ("text", "voice", "is_said"),
    [
        ("नमस्ते दुनिया", "nora", True),
        ("Good morning, everybody", "hi-IN-asha", True),
        ("The angle α is not β, नमस्ते.", "nora", False),
        ("Über café naïve: ½ ™ 3 ª º 😀", "nora", False),
    ],
)
async def test_a_text_in_another_script_than_the_voices_is_said(http, text, voice, is_said):
    answer = await over_both(http, text, voice)
    assert answer.status == 200
    assert [("is not in the script of" in words) for words in answer.warnings] == [True] * is_said


async def test_a_word_of_the_dictionary_may_be_in_another_script(http):
    spoken = {"Good morning": {"type": "SAY_AS", "pronunciation": "गुड मॉर्निंग"}}
    answer = await over_both(http, "Good morning", "hi-IN-asha", pronunciationDictionary=spoken)
    assert answer.warnings == []


@pytest.mark.parametrize(
    ("text", "voice", "named"),
    [
        ("It is 東京.", "nora", "東 京"),
        ("Привет, world. Hello", "nora", "П р и в е т"),
    ],
)
async def test_a_text_of_which_a_third_cannot_be_spoken_is_refused_with_the_letters(http, text, voice, named):
    before = await http.remaining()
    answer = await over_both(http, text, voice)
    assert answer.status == 400
    assert named in answer.message
    assert await http.remaining() == before


async def test_fewer_letters_that_cannot_be_spoken_are_left_out_and_named(http):
    answer = await over_both(http, "Good morning, this is 東.", "nora")
    assert answer.status == 200
    assert "cannot be spoken" in answer.warnings[0]
    reading = {"東京": {"type": "SAY_AS", "pronunciation": "Tokyo"}}
    answer = await over_both(http, "東京 is large.", "nora", pronunciationDictionary=reading)
    assert (answer.status, answer.warnings) == (200, [])


@pytest.mark.rule("speech.audio-duration-zero")
async def test_a_length_of_zero_is_none_asked_for_and_another_is_kept_exactly(http):
    plain, as_it_is = await say(http, "This takes as long as it takes.")
    zero, also = await say(http, "This takes as long as it takes.", audioDuration=0)
    assert zero.audio == plain.audio
    asked, fitted = await say(http, "This takes as long as it takes.", audioDuration=3.25)
    assert fitted.audio_seconds == asked.json["audioLengthInSeconds"] == 3.25
    assert as_it_is.audio_seconds == also.audio_seconds != 3.25


async def test_a_length_that_no_machine_could_hold_is_400(http):
    answer = await http.generate(audioDuration=1e9)
    assert answer.status == 400
    assert answer.message.startswith("audioDuration is longer")
    assert "1800" in answer.message


@pytest.mark.rule("speech.original-words")
async def test_original_words_are_the_words_as_written_in_english_only(http):
    text = "It cost $25.50, e.g. at Joe's."
    original, _ = await say(http, text, wordDurationsAsOriginalText=True)
    spoken, _ = await say(http, text)
    assert [word for word, *_ in words_of(original)] == text.split()
    assert len(words_of(spoken)) > 0
    assert original.audio == spoken.audio
    french, _ = await say(http, "Bonjour à tous.", "camille", wordDurationsAsOriginalText=True)
    assert french.warnings == [french.json["warning"]]
    assert "English only" in french.json["warning"]


@pytest.mark.rule("speech.variation-grows")
async def test_more_variation_is_more_difference_between_takes(http):
    async def spread(variation):
        takes = [
            say(
                http,
                "The same line again and again.",
                variation=variation,
                headers={chosen.TAKE_HEADER: str(n)},
            )
            for n in range(1, 6)
        ]
        return statistics.pstdev([audio.audio_seconds for _, audio in await asyncio.gather(*takes)])

    none, little, much = [await spread(variation) for variation in (0, 1, 5)]
    assert none == 0 < little < much


async def test_pitch_and_rate_are_heard(http):
    _, plain = await say(http, "A plain and simple sentence to measure.")
    _, higher = await say(http, "A plain and simple sentence to measure.", pitch=40)
    _, faster = await say(http, "A plain and simple sentence to measure.", rate=40)
    f0 = [measure.median_f0_hz(audio.samples, audio.sample_rate_hz) for audio in (plain, higher)]
    assert f0[1] > 1.15 * f0[0]
    assert faster.audio_seconds < 0.8 * plain.audio_seconds


async def test_a_pronunciation_is_heard_and_its_word_stays(http):
    plain, _ = await say(http, "I like tomatoes.")
    how = {"tomatoes": {"type": "SAY_AS", "pronunciation": "potatoes"}}
    other, _ = await say(http, "I like tomatoes.", pronunciationDictionary=how)
    assert other.audio != plain.audio
    assert words_of(other)[-1][0] == "tomatoes"


async def test_equal_requests_are_equal_to_the_byte_in_every_worker_of_every_service(http, hasty, http_to):
    answers = await asyncio.gather(*[say(http, "Equal to the byte.", style=None) for _ in range(8)])
    answers.append(await say(http_to(hasty), "Equal to the byte."))
    assert len({answer.audio for answer, _ in answers}) == 1
    assert len({tuple(words_of(answer)) for answer, _ in answers}) == 1


async def test_the_longest_text_is_served(http):
    text = ("A sentence of a certain length, again. " * 200)[: chosen.MAX_TEXT_CHARACTERS]
    answer = await http.generate(text, voiceId="nora", key="spare")
    assert answer.status == 200
    assert answer.json["audioLengthInSeconds"] > 100
    assert (await http.generate(text + "x", voiceId="nora")).status == 400
