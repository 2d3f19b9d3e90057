"""The body of a streaming request."""

import json

import pytest
from multidict import CIMultiDict

from speechframe.spec.speech import StreamRequest
from speechframe.wire.answers import has_marked_end
from speechframe.wire.requests import encode_request


def test_equal_requests_are_equal_bytes_and_defaults_are_left_out():
    said = {"voiceId": "ivy", "text": "Grüße", "channelType": "MONO", "format": "WAV", "variation": 1}
    assert encode_request(StreamRequest.model_validate(said)) == '{"text":"Grüße","voiceId":"ivy"}'.encode()


def test_every_field_is_sent_under_its_name_on_the_wire():
    sent = {
        "text": "Hi", "voiceId": "ivy", "model": "gen2", "channelType": "STEREO", "format": "MP3", "locale": "fr-FR",
        "multiNativeLocale": "fr-FR", "pitch": 1, "rate": -2, "sampleRate": 8000.0, "style": "calm", "variation": 3,
        "pronunciationDictionary": {"Hi": {"type": "SAY_AS", "pronunciation": "hey"}},
    }  # fmt: skip
    body = encode_request(StreamRequest.model_validate(sent))
    assert json.loads(body) == sent
    assert list(json.loads(body)) == sorted(sent)
    assert len(sent) == len(StreamRequest.model_fields)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ([("Transfer-Encoding", "chunked")], True),
        ([("transfer-encoding", "gzip, Chunked ")], True),
        ([("Content-Length", "5")], True),
        ([], False),
        ([("Transfer-Encoding", "chunked, x")], False),
        ([("Transfer-Encoding", "chunkedx"), ("Content-Length", "5")], False),
    ],
)
def test_the_end_is_told_by_a_length_or_when_the_last_coding_is_chunked(headers, told):
    assert has_marked_end(CIMultiDict(headers)) is told
