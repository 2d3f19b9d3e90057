import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.spec.chosen import MAX_CONTEXT_ID_CHARACTERS, MAX_FRAME_BYTES
from speechframe.spec.codes import ErrorCode, WarningCode
from speechframe.spec.limits import BUFFER_SIZE
from speechframe.spec.socket import AudioFrame, ClientFrame, ErrorFrame, FinalFrame, VoiceConfig, WarningFrame
from speechframe.wire import frames
from speechframe.wire.frames import ReceivedAudio, UnknownFrame, parse_client_frame, parse_server_frame

W = WarningCode
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        *ClientFrame.model_fields,
        *["voiceId", "error", "error_code", "fatal", "audio", "final", "warning", "trace_id"],
    ]
)


def parsed(**fields):
    return parse_client_frame(json.dumps(fields))


def codes(result):
    return [one.code for one in result.warnings]


@pytest.mark.rule("socket.error-invalid-json")
@pytest.mark.parametrize(
    "message",
    [
        "",
        '{"text": "Hi"',
        '{"text": "a"}{"text": "b"}',
        '{"text": "a"}\n{"text": "b"}',
        "null",
        '{"min_buffer_size": NaN}',
        b'{"text": "Hi"}',
        '{"text": "' + "x" * MAX_FRAME_BYTES + '"}',
        '{"text": "' + "\u20ac" * (MAX_FRAME_BYTES // 3) + '"}',
        '{"a":' + "[" * 40 + "]" * 40 + "}",
    ],
)
def test_what_is_no_single_json_object_is_an_error_with_words(message):
    result = parse_client_frame(message)
    assert result.frame is None
    assert 0 < len(result.error) <= 500


@pytest.mark.quiet
@pytest.mark.parametrize("unit", ['\\"', "\\\\", "[", "{},", '"",', "0,", "9" * 300 + ",", '{"a":'])
def test_whatever_a_frame_is_full_of_it_is_read_in_one_pass(unit):
    started = time.process_time()
    for start in ('{"text": "', '{"text": [', ""):
        message = start + unit * (MAX_FRAME_BYTES // len(unit) - 10)
        for end in ("", '"}', "]}", "\\"):
            parse_client_frame(message + end)
    assert time.process_time() - started < 0.15


def test_brackets_inside_text_are_not_depth():
    assert parsed(text="[" * 1000).frame.text == "[" * 1000
    assert parsed(text='"[' * 1000).frame.text == '"[' * 1000


def test_a_frame_says_everything_at_once():
    frame = parsed(
        voice_config={"voice_id": "en-US-nora", "style": "Calm", "rate": 3, "unheard_of": 1},
        text="Hi",
        context_id="a",
        end=True,
        unheard_of=[],
    ).frame
    assert frame.voice_config == VoiceConfig(voice_id="en-US-nora", style="Calm", rate=3)
    assert (frame.text, frame.context_id, frame.end) == ("Hi", "a", True)


@pytest.mark.parametrize("name", ["voiceId", "voice_id"])
def test_both_spellings_of_the_voice_id_are_taken_and_the_documents_wins(name):
    assert parsed(voice_config={name: "nora"}).frame.voice_config.voice_id == "nora"
    assert parsed(voice_config={"voice_id": "a", "voiceId": "b"}).frame.voice_config.voice_id == "b"


@pytest.mark.rule("socket.warn-field-type")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", 5),
        ("text", "half a \ud800 pair"),
        ("context_id", "x" * (MAX_CONTEXT_ID_CHARACTERS + 1)),
        ("end", "true"),
        ("voice_config", "nora"),
    ],
)
def test_a_field_of_the_wrong_type_is_ignored_and_the_rest_is_used(name, value):
    result = parsed(**({"text": "Hi", "context_id": "a"} | {name: value}))
    assert codes(result) == [W.INVALID_FIELD_TYPE]
    assert name in result.warnings[0].message
    assert len(result.warnings[0].message) < 300
    expected = {"text": "Hi", "context_id": "a"} | {name: None}
    assert {key: getattr(result.frame, key) for key in expected} == expected


def test_inside_a_voice_config_only_the_wrong_field_is_ignored():
    result = parsed(voice_config={"voiceId": "nora", "rate": 70, "pitch": "high", "style": "Calm"})
    assert codes(result) == [W.INVALID_FIELD_TYPE] * 2
    assert result.frame.voice_config == VoiceConfig(voice_id="nora", style="Calm")
    assert parsed(voice_config={"voiceId": 5}).frame.voice_config.voice_id is None


@pytest.mark.rule("socket.buffer-numeric-strings")
@pytest.mark.parametrize(("value", "size"), [(" 40 ", 40), ("40.0", 40), (7, 7)])
def test_buffer_sizes_may_be_numbers_written_as_text(value, size):
    result = parsed(min_buffer_size=value, max_buffer_delay_in_ms=value)
    assert (result.frame.min_buffer_size, result.frame.max_buffer_delay_in_ms, result.warnings) == (
        size,
        size,
        (),
    )


@pytest.mark.rule("socket.warn-buffer-size", "socket.warn-buffer-delay")
@pytest.mark.parametrize(
    "value",
    [
        BUFFER_SIZE.low - 1,
        BUFFER_SIZE.high + 1,
        "1_0",
        "",
        True,
        [],
        "9" * 5000,
    ],
)
def test_a_buffer_setting_out_of_range_or_no_number_is_ignored(value):
    result = parsed(min_buffer_size=value, max_buffer_delay_in_ms=value, text="Hi")
    assert codes(result) == [W.INVALID_BUFFER_SIZE, W.INVALID_BUFFER_DELAY]
    assert result.frame.model_fields_set == {"text"}


@pytest.mark.rule("socket.warn-predictive-chunking")
@pytest.mark.parametrize("value", ["loose", True])
def test_chunking_is_strict_or_lenient_and_nothing_else(value):
    result = parsed(predictive_chunking=value)
    assert codes(result) == [W.INVALID_PREDICTIVE_CHUNKING]
    assert "predictive_chunking" not in result.frame.model_fields_set


@pytest.mark.rule("socket.warn-text-with-clear", "socket.clear-without-text")
@pytest.mark.parametrize("marker", [True, {}])
def test_text_beside_clear_is_dropped(marker):
    result = parsed(clear=marker, text="Hi", context_id="a")
    assert codes(result) == [W.TEXT_IGNORED_WITH_CLEAR]
    assert (result.frame.clear, result.frame.text) == (True, None)
    assert parsed(clear=False, text="Hi").frame.text == "Hi"


def test_null_is_as_good_as_nothing():
    result = parsed(text=None, context_id=None, end=None, clear=None, min_buffer_size=None, voice_config=None)
    assert (result.frame, result.warnings) == (ClientFrame(), ())


@given(
    st.text(max_size=60)
    | st.dictionaries(NAMES | st.text(max_size=5), JSON, max_size=6).map(json.dumps)
    | st.binary(max_size=20)
)
def test_no_message_of_either_end_is_ever_a_crash(message):
    result = parse_client_frame(message)
    assert (result.frame is None) == (result.error is not None)
    if result.frame is not None:
        assert parse_client_frame(frames.encode_frame(result.frame)).frame == result.frame
    found = parse_server_frame(message)
    assert isinstance(found, ReceivedAudio | FinalFrame | ErrorFrame | WarningFrame | UnknownFrame)


@pytest.mark.rule(
    "socket.trace-id",
    "socket.error-frame",
    "socket.warning-frame",
    "socket.final-frame",
    "socket.audio-frames",
)
def test_the_frames_of_the_server_are_those_of_the_document():
    about = {"context_id": "a", "trace_id": "t"}
    encoded = [
        json.loads(frames.encode_frame(frame))
        for frame in (
            frames.make_audio_frame(b"\0\1", **about),
            FinalFrame(**about),
            ErrorFrame(error="no", error_code=ErrorCode.INTERNAL_ERROR, **about),
            WarningFrame(warning="well", warning_code=W.NO_VOICE_ID, **about),
        )
    ]
    assert encoded == [
        {"audio": base64.b64encode(b"\0\1").decode(), **about},
        {"final": True, **about},
        {"error": "no", "error_code": "INTERNAL_ERROR", "fatal": False, **about},
        {"warning": "well", "warning_code": "NO_VOICE_ID", **about},
    ]


@pytest.mark.parametrize(
    "frame",
    [
        FinalFrame(context_id="a", trace_id="t"),
        ErrorFrame(error="e", error_code="NEW", fatal=True),
        WarningFrame(warning="w", warning_code=W.NO_VOICE_ID),
    ],
)
def test_what_a_server_sends_its_client_reads(frame):
    assert parse_server_frame(frames.encode_frame(frame)) == frame
    assert parse_server_frame(frames.encode_frame(AudioFrame(audio="AAE=", context_id="x"))) == ReceivedAudio(
        b"\0\1", "x", None
    )


@pytest.mark.rule("socket.decide-by-code")
@pytest.mark.parametrize(
    ("message", "found"),
    [
        ('{"error_code": "NEW"}', ErrorFrame(error="", error_code="NEW")),
        ('{"audio": "", "error": "e", "final": false}', ErrorFrame(error="e", error_code="")),
        (
            '{"audio": "AA==", "error": "", "error_code": "", "warning": "", "warning_code": "", "fatal": 0}',
            ReceivedAudio(b"\0", None, None),
        ),
        (
            '{"audio": "AA==", "warning": "hm", "error": ""}',
            ReceivedAudio(b"\0", None, None, notice=WarningFrame(warning="hm", warning_code="")),
        ),
        (
            '{"audio": "%%%", "error": "e", "fatal": true}',
            ErrorFrame(error="e", error_code="", fatal=True),
        ),
        (
            '{"final": true, "warning_code": "NO_VOICE_ID"}',
            ReceivedAudio(
                b"", None, None, final=True, notice=WarningFrame(warning="", warning_code=W.NO_VOICE_ID)
            ),
        ),
        ('{"final": true, "context_id": 5, "new": 1}', FinalFrame()),
    ],
)
def test_a_client_survives_what_is_new_or_missing(message, found):
    assert parse_server_frame(message) == found


@pytest.mark.parametrize(
    "message",
    [
        "{}",
        '{"audio": "%%%"}',
        '{"audio": 5}',
        '{"final": false}',
        '{"error": "", "warning": ""}',
        b"\xff",
    ],
)
def test_what_is_no_frame_is_told_and_nothing_more(message):
    assert isinstance(parse_server_frame(message), UnknownFrame)
