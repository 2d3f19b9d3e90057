"""Requests to bytes and answers to values: canonical one way, fast and forgiving the other."""

import base64
import contextlib
import json
import math
import tracemalloc

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from speechframe.errors import BadAnswer
from speechframe.spec.speech import ChannelType, Format, GenerateRequest
from speechframe.wire import answers as wire_answers
from speechframe.wire import speech
from speechframe.wire.requests import encode_request


def decode_generate(body, characters=100_000):
    return speech.decode_generate(body, characters=characters)


# Requests.


def test_defaults_and_absent_values_are_left_out():
    plain = encode_request(GenerateRequest(text="Hi", voice_id="nora"))
    spelled = encode_request(
        GenerateRequest(
            text="Hi",
            voice_id="nora",
            channel_type=ChannelType.MONO,
            format="WAV",
            model_version="GEN2",
            sample_rate=44100,
            variation=1,
            word_durations_as_original_text=False,
            locale=None,
        )
    )
    assert plain == spelled == b'{"text":"Hi","voiceId":"nora"}'


def test_a_default_of_another_document_is_said():
    body = encode_request(GenerateRequest(text="Hi", voice_id="nora", pitch=0, encode_as_base64=False))
    assert body == b'{"encodeAsBase64":false,"pitch":0,"text":"Hi","voiceId":"nora"}'


def test_equal_numbers_give_equal_bytes():
    for rate in (24000, "24000.0"):
        request = GenerateRequest(text="Hi", voice_id="n", sample_rate=rate)
        assert b'"sampleRate":24000.0' in encode_request(request)


requests = st.fixed_dictionaries(
    {
        "text": st.text(
            st.characters(exclude_categories=["Cs"], exclude_characters="\0[<"), min_size=1
        ).filter(lambda text: not text.isspace()),
        "voice_id": st.sampled_from(["nora", "en-US-nora"]),
        "rate": st.none() | st.integers(-50, 50),
        "variation": st.integers(0, 5),
        "format": st.sampled_from(Format),
        "sample_rate": st.sampled_from([8000, 44100]),
        "locale": st.none() | st.just("fr-FR"),
    }
).map(lambda fields: GenerateRequest(**fields))


@given(requests)
def test_a_request_survives_the_wire_and_is_canonical(request):
    body = encode_request(request)
    again = GenerateRequest.model_validate_json(body)
    assert again == request
    assert encode_request(again) == body
    assert list(json.loads(body)) == sorted(json.loads(body))


@given(requests, requests)
def test_different_requests_have_different_bytes(one, other):
    assume(one != other)
    assert encode_request(one) != encode_request(other)


# Answers: the value that is cut out, and the same body parsed as a whole.


def _outcome(decode, body):
    try:
        return decode(body)
    except BadAnswer as error:
        return type(error), error.remaining_characters


def _json_text(value):
    return json.dumps(value, allow_nan=True)


audio_text = st.one_of(
    st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()),
    st.text('ABab01+/=- \n\\"é', max_size=20),
)
words = st.lists(
    st.fixed_dictionaries(
        {"word": st.text(max_size=5), "startMs": st.integers(-5, 500), "endMs": st.integers(0, 500)}
    )
    | st.just("junk")
    | st.dictionaries(st.sampled_from(["word", "startMs"]), st.integers() | st.floats() | st.none()),
    max_size=4,
)
strange = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("encodedAudio"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.just("encodedAudio"), inner, max_size=3)
    ),
    max_leaves=6,
)
pairs = st.lists(
    st.one_of(
        st.tuples(st.just("encodedAudio"), audio_text | strange),
        st.tuples(st.just("audioFile"), st.just("") | st.text(max_size=5)),
        st.tuples(st.just("audioLengthInSeconds"), st.floats(0, 100) | strange),
        st.tuples(st.just("remainingCharacterCount"), st.integers() | strange),
        st.tuples(st.just("wordDurations"), words | strange),
        st.tuples(st.just("warning"), st.text(max_size=9) | strange),
        st.tuples(st.text(max_size=6), strange),
    ),
    max_size=8,
)


@st.composite
def answers(draw):
    """JSON objects as foreign writers write them: repeated names, odd spacing, escaped letters, slashes."""
    space = draw(st.sampled_from(["", " ", "\n\t ", "\r\n"]))
    written = []
    for name, value in draw(pairs):
        key = _json_text(name)
        if draw(st.booleans()) and "A" in name:
            key = key.replace("A", "\\u0041")
        text = _json_text(value)
        if draw(st.booleans()):
            text = text.replace("/", "\\/")
        written.append(f"{space}{key}{space}:{space}{text}{space}")
    body = ("{" + ",".join(written) + "}").encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(body)))
        body = body[:place] + draw(st.binary(max_size=3)) + body[place + draw(st.integers(0, 2)) :]
    return body


GOOD = b'"audioLengthInSeconds":1,"remainingCharacterCount":1,"wordDurations":[]}'


@given(answers())
@example(b'{"encodedAudio":"AAAA",' + GOOD)
@example(b'{"encodedAudio":"AA\\/A",' + GOOD)
@example(b'{"encodedAudio":"AA\\\\/A",' + GOOD)
@example(b'{"encodedAudio":"AAAA","encodedAudio":"BBBB",' + GOOD)
@example(b'{"encodedAudio":"AAAA","encoded\\u0041udio":"BBBB",' + GOOD)
@example(b'{"encodedAudio":"AAAA","encoded\\u0041udio":"",' + GOOD)
@example(b'{"encoded\\u0041udio":"BBBB","encodedAudio":"AAAA",' + GOOD)
@example(b'{"inner":{"encodedAudio":"AAAA"},' + GOOD)
@example(b'{"inner":{"encodedAudio":"AAAA"},"audioFile":"x",' + GOOD)
@example(b'{"inner":{"encodedAudio":"AAAA"},"encoded\\u0041udio":"BBBB",' + GOOD)
@example(b'{"warning":"\\"encodedAudio\\":\\"AAAA\\"","audioFile":"x",' + GOOD)
@example(b'{"warning":"\\\\"encodedAudio":"AAAA",' + GOOD)
@example(b'{"warning":"encodedAudio","audioFile":"x",' + GOOD)
@example(b'{"a\\"encodedAudio":"AAAA","audioFile":"x",' + GOOD)
@example(b'{"encodedAudio":"AAAA","x":NaN,' + GOOD)
@example(b'{"encodedAudio":"AAAA","warning":"\\ud800",' + GOOD)
@example(b'{"encodedAudio":"AAAA","warning":"\xff",' + GOOD)
@example(b'\xef\xbb\xbf{"encodedAudio":"AAAA",' + GOOD)
@example(b'{"encodedAudio":"AAA\\u0041",' + GOOD)
@example(b'{"encodedAudio":"","audioFile":"x",' + GOOD)
@example(b'{"encodedAudio" : "AAAA",' + GOOD)
@example(
    b'{"encodedAudio":"AAAA',
)
@example(b'{"encodedAudio":"AAAA"}x')
def test_cutting_the_audio_out_changes_nothing(body):
    assert _outcome(decode_generate, body) == _outcome(_decode_whole, body)


def _decode_whole(body):
    cut, speech._cut_out_audio = speech._cut_out_audio, lambda *_: None
    try:
        return decode_generate(body)
    finally:
        speech._cut_out_audio = cut


@given(answers())
@example(b'{"encodedAudio":"AAAA","warning":"\\ud800\\ud83d\\ude00",' + GOOD)
@example(b'{"encodedAudio":"AAAA","x":1e999,' + GOOD)
@example(
    b'{"encodedAudio":"AAAA","remainingCharacterCount":123456789012345678901234567890,"audioLengthInSeconds":1}'
)
@example(b'{"encodedAudio":"AAAA","x":' + b"[" * 2000 + b"]" * 2000 + b"," + GOOD)
def test_what_is_installed_changes_nothing(body):
    fast = _outcome(decode_generate, body)
    orjson, pybase64 = wire_answers.orjson, wire_answers.pybase64
    assert orjson is not None
    assert pybase64 is not None
    wire_answers.orjson = wire_answers.pybase64 = None
    try:
        assert _outcome(decode_generate, body) == fast
    finally:
        wire_answers.orjson, wire_answers.pybase64 = orjson, pybase64


# Single fields.


def _answer(**fields):
    return json.dumps(
        {
            "encodedAudio": "AAAA",
            "audioLengthInSeconds": 1.0,
            "remainingCharacterCount": 5,
            "wordDurations": [],
        }
        | fields
    ).encode()


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (-3, None),
        (5.0, 5),
        (5.5, None),
        (True, None),
        (2**63, None),
    ],
)
def test_a_balance_is_a_whole_number_or_unknown(value, read):
    got = decode_generate(_answer(remainingCharacterCount=value))
    assert got.remaining_characters == read
    assert bool(got.notes) == (read is None)


@pytest.mark.parametrize("url", ["  ", 5])
def test_without_audio_there_must_be_an_address(url):
    with pytest.raises(BadAnswer, match="neither"):
        decode_generate(_answer(encodedAudio=None, audioFile=url))
    got = decode_generate(_answer(encodedAudio=None, audioFile="https://x/y"))
    assert (got.audio, got.audio_url) == (None, "https://x/y")


@pytest.mark.parametrize("value", [None, {}])
def test_a_missing_word_list_is_said_and_not_fatal(value):
    got = decode_generate(_answer(wordDurations=value))
    assert got.words == []
    assert got.notes == ["the answer gives no wordDurations"]


def test_a_time_that_no_column_holds_is_left_out():
    items = [{"word": "a", "startMs": 0, "endMs": 2**31}, {"word": "b", "startMs": 0, "endMs": 2**31 - 1}]
    assert decode_generate(_answer(wordDurations=items)).words == [("b", 0, 2**31 - 1)]


def test_words_out_of_order_are_kept_and_said():
    items = [
        {"word": w, "startMs": s, "endMs": e} for w, s, e in [("a", 0, 90), ("b", 80, 200), ("c", 70, 300)]
    ]
    got = decode_generate(_answer(wordDurations=items))
    assert [word for word, _, _ in got.words] == ["a", "b", "c"]
    assert got.notes == ["wordDurations run backwards at word 3"]
    assert decode_generate(_answer(wordDurations=items[:2])).notes == []
    ends_first = [{"word": "a", "startMs": 50, "endMs": 40}]
    assert decode_generate(_answer(wordDurations=ends_first)).notes == [
        "wordDurations run backwards at word 1"
    ]


@pytest.mark.parametrize("start", [None, "5", math.nan, True])
def test_a_word_without_a_time_is_left_out(start):
    items = [{"word": "a", "startMs": start, "endMs": 5}, {"word": "b", "startMs": 5, "endMs": 6}]
    got = decode_generate(_answer(wordDurations=items))
    assert got.words == [("b", 5, 6)]
    assert got.notes == ["1 of 2 wordDurations are unusable and were left out"]


def test_broken_text_is_repaired_and_said():
    body = _answer(wordDurations=[{"word": "\ud800\ud83d\ude00", "startMs": 0, "endMs": 1}])
    got = decode_generate(body)
    assert got.words[0][0] == "\ufffd😀"
    assert got.notes == ["text in the answer was not valid Unicode and was repaired"]
    body = _answer(wordDurations=[{"word": "\ud83d\ude00", "startMs": 0, "endMs": 1}])
    assert decode_generate(body).notes == []
    assert decode_generate(_answer(warning="x").replace(b'"x"', b'"\xff"')).warning == "\ufffd"


def test_the_balance_is_read_from_a_broken_answer():
    body = _answer(remainingCharacterCount=1234)
    with pytest.raises(BadAnswer, match="not JSON") as caught:
        decode_generate(body[:-4])
    assert caught.value.remaining_characters == 1234
    cut = body[: body.index(b"1234") + 2]
    with pytest.raises(BadAnswer) as caught:
        decode_generate(cut)
    assert caught.value.remaining_characters is None, "half a number was taken for the balance"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([{"word": "a", "startMs": 0, "endMs": 1}] * 140, 140),
        ([{"word": "a", "startMs": 0, "endMs": 1}] * 141, 0),
        ([{"word": "a" * 1201, "startMs": 0, "endMs": 1}], 0),
    ],
)
def test_far_more_words_than_the_text_can_have_are_left_out(words, kept):
    body = json.dumps({"encodedAudio": "AAAA", "audioLengthInSeconds": 1, "wordDurations": words}).encode()
    bounded = decode_generate(body, characters=10)
    assert len(bounded.words) == kept
    assert any("too many or too long for 10 characters" in note for note in bounded.notes) is not bool(kept)


@pytest.mark.parametrize("length", [10**400, -0.001, math.nan, [[]], "1", None])
def test_a_length_that_is_none_is_a_note_beside_the_audio(length):
    body = json.dumps({"encodedAudio": "AAAA", "audioLengthInSeconds": length, "remainingCharacterCount": 5})
    said = decode_generate(body.encode())
    assert (said.audio, said.audio_seconds, said.remaining_characters) == (b"\0\0\0", None, 5)
    (note,) = [note for note in said.notes if note.startswith("audioLengthInSeconds is")]
    assert len(note) < 100


@pytest.mark.parametrize(
    ("before", "more"),
    [
        (b'"encodedAudio": "AAAA", ', b'{"a": 1},'),
        (b'"encodedAudio": "AAAA", "encodedAudio": "AAAA", ', b"1,"),
        (b"", b"NaN,"),
    ],
)
def test_an_answer_of_countless_values_is_not_parsed(before, more):
    rest = b'%b"audioLengthInSeconds": 1, "remainingCharacterCount": 5, "other": [' % before
    tracemalloc.start()
    try:
        for _ in range(2):  # what is imported at the first is no part of it
            tracemalloc.reset_peak()
            began = tracemalloc.get_traced_memory()[0]
            body = b"{" + rest + more * (300_000 // sum(map(more.count, b"[{,"))) + b"0]}"
            with pytest.raises(BadAnswer, match="more than 250,500 values of JSON") as caught:
                decode_generate(body, characters=10)
        assert tracemalloc.get_traced_memory()[1] - began < 3 * len(body)
    finally:
        tracemalloc.stop()
    assert caught.value.remaining_characters == 5
    assert decode_generate(b'{"audioFile": "x", ' + rest + b"0]}", characters=10).remaining_characters == 5


def test_values_that_a_long_text_can_have_are_read_and_base64_is_none():
    word = {"word": "a", "startMs": 0, "endMs": 1, "notes": [[1, 2, 3, 4, 5, 6], {"b": 4}]}
    body = _answer(wordDurations=[word] * 20_000)
    assert sum(map(body.count, b"[{,")) > 250_000
    assert len(decode_generate(body, characters=10_000).words) == 20_000
    audio = base64.b64encode(bytes(300_000)).decode()
    for name in ("encodedAudio", "encoded\\u0041udio"):
        whole = _answer(encodedAudio=audio).replace(b"encodedAudio", name.encode())
        assert decode_generate(whole, characters=1).audio == bytes(300_000)


@pytest.mark.parametrize("depth", [980, 100_000])
def test_no_depth_of_nesting_is_more_than_a_bad_answer(depth):
    deep = b"[" * depth + b"]" * depth
    for name in (b"audioLengthInSeconds", b"wordDurations", b"encodedAudio", b"other"):
        with contextlib.suppress(BadAnswer):
            decode_generate(b'{"encodedAudio": "AAAA", "audioLengthInSeconds": 1, "%s": %s}' % (name, deep))
