"""A stream that is collected whole: what is sent, and which answers are taken for all of it."""

import struct

import numpy as np
import pytest

from speechframe import errors
from speechframe.audio import codec
from speechframe.audio.streams import StreamEncoder
from speechframe.old_client import Bounds
from speechframe.old_client.whole import whole_call
from speechframe.spec.chosen import content_type
from speechframe.spec.speech import ChannelType, Format, Model, StreamRequest
from speechframe.wire.stream import encode_stream

PATH = "/v1/speech/stream"
RATE_HZ = 16000
TONE = (0.3 * np.sin(np.arange(RATE_HZ) / 7)).astype(np.float32)
WHOLE = b"0\r\n\r\n"


def streamed(format, channel_type=ChannelType.MONO, rate_hz=RATE_HZ):
    encoder = StreamEncoder(format, channel_type, RATE_HZ, rate_hz)
    return encoder.add(TONE) + encoder.finish()


def asked(format=Format.WAV, **fields):
    given = {"text": "Hello", "voice_id": "ivy", "sample_rate": RATE_HZ, "format": format, **fields}
    return whole_call(StreamRequest(**given))


def head(framing="Transfer-Encoding: chunked", kind="audio/wav"):
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nX-Trace-Id: t-7\r\n{framing}\r\n\r\n".encode()


def chunks(data, size=5000):
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def test_a_call_names_model_and_rate_because_their_defaults_depend_on_the_region():
    call = whole_call(StreamRequest(text="Hi", voice_id="ivy"), idempotency_key="k", take=2)
    assert (call.operation, call.idempotency_key, call.take) == ("stream", "k", 2)
    assert call.body == b'{"model":"falcon-2","sampleRate":24000.0,"text":"Hi","voiceId":"ivy"}'
    old = whole_call(StreamRequest(text="Hi", voice_id="ivy", model=Model.GEN2))
    assert old.body == b'{"model":"gen2","sampleRate":44100.0,"text":"Hi","voiceId":"ivy"}'


def test_equal_requests_have_equal_bodies():
    plain = StreamRequest(text="Grüße", voice_id="greta")
    said = StreamRequest(
        voice_id="greta", text="Grüße", variation=1, channel_type="MONO", format="WAV", style=None
    )
    assert encode_stream(plain) == encode_stream(said) == '{"text":"Grüße","voiceId":"greta"}'.encode()
    assert encode_stream(StreamRequest(text="Grüße", voice_id="greta", rate=0)) != encode_stream(plain)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("channel_type", list(ChannelType))
async def test_a_stream_of_every_format_is_audio_of_its_length(odd, client, format, channel_type):
    channel_type, rate_hz = codec.forced_shape(format, channel_type, RATE_HZ)
    data = streamed(format, channel_type)
    kind = content_type(format, rate_hz, channel_type.channels)
    odd.script(odd.raw(head(kind=kind) + chunks(data) + WHOLE), path=PATH)
    spoken = await client.send_once(asked(format, channel_type=channel_type))
    assert (spoken.format, spoken.sample_rate_hz, spoken.channels) == (format, rate_hz, channel_type.channels)
    # Frames of MP3 go on a little behind the sound.
    assert spoken.audio_seconds == pytest.approx(1.0, abs=0.15 if format is Format.MP3 else 1e-6)
    assert (spoken.words, spoken.remaining_characters, spoken.said_seconds) == ([], None, None)
    assert (spoken.billed_characters, spoken.trace_id, spoken.warnings) == (5, "t-7", ())
    (seen,) = odd.seen
    assert (seen.method, seen.path, seen.headers["Accept"]) == ("POST", PATH, "*/*")


async def test_a_header_that_could_not_know_the_length_is_given_it(odd, client):
    data = streamed(Format.WAV)
    assert struct.unpack_from("<I", data, 40)[0] == 0xFFFFFFFF
    odd.script(odd.raw(head() + chunks(data) + WHOLE), path=PATH)
    audio = (await client.send_once(asked())).audio
    assert len(audio) == len(data)
    assert struct.unpack_from("<I", audio, 4)[0] == len(data) - 8
    assert struct.unpack_from("<I", audio, 40)[0] == len(data) - 44
    assert audio[44:] == data[44:]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("format", [Format.WAV, Format.FLAC, Format.MP3, Format.PCM, Format.ULAW])
@pytest.mark.parametrize(
    ("framing", "cut"),
    [
        ("Transfer-Encoding: chunked", chunks),
        ("Transfer-Encoding: chunked", lambda data: chunks(data)[:-3000]),
        ("Content-Length: 1000000", lambda data: data),
        # Without either, every end looks like the end.
        ("Connection: close", lambda data: data),
    ],
    ids=["no last chunk", "within a chunk", "length", "neither"],
)
async def test_a_stream_that_may_have_ended_early_is_never_taken_as_whole(odd, client, format, framing, cut):
    odd.script(odd.raw(head(framing) + cut(streamed(format)), pause_s=0.02), path=PATH)
    with pytest.raises(errors.BadAnswer, match="truncated") as caught:
        await client.send_once(asked(format))
    assert caught.value.trace_id == "t-7"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("format", [Format.PCM, Format.ALAW, Format.WAV])
@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "text/html"])
async def test_words_are_no_audio_though_any_bytes_would_pass_as_raw_samples(odd, client, format, kind):
    odd.script(odd.answer(200, b'{"error_message": "busy, come again"}', {"Content-Type": kind}), path=PATH)
    with pytest.raises(errors.BadAnswer, match="no audio but"):
        await client.send_once(asked(format))


@pytest.mark.parametrize("data", [b"", b"no audio at all", streamed(Format.WAV)[:44]])
async def test_an_answer_without_a_sample_is_a_bad_answer(odd, client, data):
    odd.script(odd.answer(200, data, {"Content-Type": "audio/wav"}), path=PATH)
    with pytest.raises(errors.BadAnswer, match="cannot be read"):
        await client.send_once(asked())


async def test_what_differs_from_the_request_and_what_the_service_warns_of_are_warnings(odd, client):
    headers = {"Content-Type": "audio/flac", "X-Speech-Warning": "style%20ignored"}
    odd.script(odd.answer(200, streamed(Format.FLAC, rate_hz=8000), headers), path=PATH)
    spoken = await client.send_once(asked(Format.WAV, channel_type=ChannelType.STEREO))
    assert set(spoken.warnings) == {
        "asked for WAV, got FLAC", "asked for 16000 Hz, got 8000 Hz", "asked for STEREO, got 1 channel",
        "style ignored",
    }  # fmt: skip


async def test_raw_samples_in_a_file_are_read_as_the_file(odd, client):
    odd.script(odd.answer(200, streamed(Format.WAV), {"Content-Type": "audio/wav"}), path=PATH)
    spoken = await client.send_once(asked(Format.PCM))
    assert (spoken.format, spoken.audio_seconds) == (Format.WAV, 1.0)


async def test_a_stream_without_end_is_bounded_by_its_text(odd, client):
    assert Bounds().stream_bytes_for(asked().request) < 8 << 20
    odd.script(odd.endless(), path=PATH)
    with pytest.raises(errors.BadAnswer, match="too large"):
        await client.send_once(asked())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind"), [(400, errors.BadRequest), (402, errors.PaymentRequired), (429, errors.RateLimited),
                         (500, errors.ServerError), (503, errors.Unavailable)]
)  # fmt: skip
async def test_a_status_becomes_its_error(odd, client, status, kind):
    odd.script(odd.answer(status, {"error_message": "no"}, {"Retry-After": "2"}), path=PATH)
    with pytest.raises(kind) as caught:
        await client.send_once(asked())
    assert caught.value.status == status


async def test_a_call_goes_on_until_it_works(odd, client):
    good = odd.answer(200, streamed(Format.WAV), {"Content-Type": "audio/wav"})
    odd.script(odd.answer(500), odd.answer(503), good, path=PATH)
    spoken = await client.call(asked())
    assert (spoken.attempts, spoken.audio_seconds) == (3, 1.0)
