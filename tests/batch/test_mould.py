"""Rows that are alike but for their text: their calls come from a mould, and are what checking the whole gives."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.old_batch import generate
from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.generate import GenerateOperation
from speechframe.old_batch.mould import around_text
from speechframe.old_batch.operation import request_key
from speechframe.old_client import Call
from speechframe.spec.speech import StyleDetails, Voice
from speechframe.wire.bodies import encode_content

VOICES = (
    Voice(
        voice_id="en-US-nora",
        locale="en-US",
        supported_locales={"en-US": StyleDetails(available_styles=['"text":"x"'])},
    ),
)
GOOD = {"voice": "nora", "format": "WAV"}
RESPELLED = {word: {"type": "IPA", "pronunciation": '"text":'} for word in ("text", 'x"text', "z")}

values = st.fixed_dictionaries(
    {"voice": st.sampled_from(["nora", "NORA", "en-US-nora", "nobody", 5])},
    optional={
        "style": st.sampled_from(['"text":"x"', "Angry"]),
        "rate": st.sampled_from([0, 1, 1.0, True, "1", 51, np.int64(1), float("nan")]),
        "variation": st.sampled_from([0, 1, 2]),
        "format": st.sampled_from(["WAV", "FLAC", "wav"]),
        "sample_rate": st.sampled_from([8000, 8000.0, 44100, 7]),
        "audio_duration": st.sampled_from([0.0, -0.0, 2.5]),
        "encode_as_base64": st.sampled_from([True, False]),
        "model": st.sampled_from(["gen2", "falcon-2"]),
        "pronunciation_dictionary": st.sampled_from([RESPELLED, {"text": 1}]),
    },
)
texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            '"text":"x"',
            "a [pause 1s]b",
            "[pause 1s]",
            "<speak>a</speak>",
            " ",
            "\0",
            "\ud800",
            "x" * 5000,
            5,
            None,
            b"x",
        ]
    ),
)


def fresh():
    return GenerateOperation(VoiceBook(VOICES), "local/x")


def seen(checked):
    return repr(checked), checked.planned and (checked.planned.call.body, checked.planned.call.request)


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.tuples(values, texts, st.integers(0, 1)), min_size=1, max_size=6))
def test_rows_that_follow_others_are_planned_as_if_they_were_alone(rows):
    operation = fresh()
    for options, text, take in rows:
        row = {**options, "text": text}
        # Twice: the second time from the mould of the first.
        assert (
            seen(operation.check(row, take))
            == seen(operation.check(row, take))
            == seen(fresh().check(row, take))
        )


@given(text=st.text(min_size=1, max_size=30), options=values)
def test_a_text_in_a_mould_is_written_as_the_whole_request_is(text, options):
    operation = fresh()
    options = {**GOOD, **options}
    operation.check({**options, "text": "another"}, 0)
    planned = operation.check({**options, "text": text}, 0).planned
    if planned is not None:
        content, body = encode_content(planned.call.request, as_base64=True)
        assert planned.call == Call("generate", planned.call.request, body)
        assert json.loads(content)["text"] == planned.text == planned.call.request.text == text
        assert planned.request_key == request_key(
            "generate", content, model="gen2", take=0, service="local/x"
        )


@pytest.mark.parametrize(
    ("option", "first", "second"),
    [("rate", 1, True), ("rate", True, 1), ("rate", 1, "1"), ("audio_duration", 0.0, -0.0)],
)
def test_equal_values_that_are_not_the_same_share_no_mould(option, first, second):
    operation = fresh()
    rows = [{**GOOD, option: value, "text": "a"} for value in (first, second)]
    assert [seen(operation.check(row, 0)) for row in rows] == [seen(fresh().check(row, 0)) for row in rows]


def test_alike_rows_are_checked_once(monkeypatch):
    checks = []
    real = generate.check
    monkeypatch.setattr(generate, "check", lambda *given: checks.append(given) or real(*given))
    operation = fresh()
    for rate in (1, 2, 1, 2):
        for number in range(5):
            assert operation.check({**GOOD, "rate": rate, "text": f"Row {number}."}, 0).planned
    assert len(checks) == 2


def test_moulds_stay_few_whatever_the_rows(monkeypatch):
    monkeypatch.setattr("speechframe.old_batch.mould._MOST_KEPT", 3)
    operation = fresh()
    for rate in range(-50, 51):
        assert operation.check({**GOOD, "rate": rate, "text": "a"}, 0).planned.call.request.rate == rate
    assert len(operation._moulds._kept) <= 3


@pytest.mark.parametrize("text", ["Hi", 'a "text":"Hi" b', "\u00e9\n"])
def test_the_text_of_a_request_is_found_whatever_stands_beside_it(text):
    others = {"a": '"text":', "b": RESPELLED, "text": text, "z": '"text":"Hi"'}
    written = json.dumps(others, ensure_ascii=False, separators=(",", ":")).encode()
    before, after = around_text(written, text)
    assert before + json.dumps(text, ensure_ascii=False).encode() + after == written
    assert before.endswith(b'"text":')
    assert after.startswith(b',"z"')
