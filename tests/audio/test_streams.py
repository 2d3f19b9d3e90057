import io
import itertools
import tracemalloc
import wave

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.audio import codec
from speechframe.audio.streams import StreamEncoder
from speechframe.errors import AudioError
from speechframe.spec.limits import STREAM_SAMPLE_RATES_HZ
from speechframe.spec.speech import ChannelType, Format

RATE_HZ = 22050
WAV_HEADER_BYTES = 44
RAW = {Format.PCM, Format.ALAW, Format.ULAW}
LOSSY = {Format.MP3, Format.OGG}
COMBINATIONS = list(itertools.product(Format, STREAM_SAMPLE_RATES_HZ, ChannelType))
PIECE = RATE_HZ // 50


def parts_of(samples, kind, rate_hz=24000, channel_type=ChannelType.MONO, sizes=(PIECE,)):
    encoder, parts, at = StreamEncoder(kind, channel_type, RATE_HZ, rate_hz), [], 0
    for size in itertools.cycle(sizes):
        if at >= len(samples):
            return [*parts, encoder.finish()]
        parts.append(encoder.add(samples[at : at + size]))
        at += size
    raise AssertionError


def streamed(*args, **options):
    return b"".join(parts_of(*args, **options))


def decoded(data, kind, rate_hz, channels):
    raw = {"format": kind, "sample_rate_hz": rate_hz, "channels": channels} if kind in RAW else {}
    return codec.decode(data, **raw)


@pytest.mark.sampled(14)
@pytest.mark.parametrize(("kind", "rate_hz", "channel_type"), COMBINATIONS)
def test_a_stream_is_one_file_that_holds_what_a_file_made_at_once_holds(
    speech_like, kind, rate_hz, channel_type
):
    real_type, real_rate_hz = codec.get_forced_shape(kind, channel_type, rate_hz)
    audio = decoded(
        streamed(speech_like, kind, rate_hz, channel_type), kind, real_rate_hz, real_type.channels
    )
    assert (audio.sample_rate_hz, audio.channels) == (real_rate_hz, real_type.channels)
    whole = codec.encode(speech_like, RATE_HZ, format=kind, channel_type=channel_type, output_rate_hz=rate_hz)
    expected = decoded(whole, kind, real_rate_hz, real_type.channels).samples
    if kind not in LOSSY:
        assert np.array_equal(audio.samples, expected)
        return
    found = audio.samples.reshape(len(audio.samples), -1)[:, 0]
    assert best_correlation(found, expected.reshape(len(expected), -1)[:, 0]) > 0.97
    # Without a table, what an MP3 encoder puts before and behind is heard as silence.
    assert 0 <= len(found) - len(expected) < 0.4 * real_rate_hz


def best_correlation(found, expected):
    size = 1 << (len(found) + len(expected)).bit_length()
    products = np.fft.irfft(np.fft.rfft(found, size) * np.conj(np.fft.rfft(expected, size)))
    return products.max() / np.sqrt(np.sum(found**2) * np.sum(expected**2))


@pytest.mark.parametrize("kind", [kind for kind in Format if kind not in RAW])
@pytest.mark.parametrize("channel_type", ChannelType)
def test_other_readers_open_what_was_streamed(speech_like, kind, channel_type):
    data = streamed(speech_like, kind, 24000, channel_type)
    with av.open(io.BytesIO(data)) as container:
        seconds = sum(frame.samples for frame in container.decode(audio=0)) / 24000
        assert container.streams.audio[0].channels == channel_type.channels
    assert seconds == pytest.approx(len(speech_like) / RATE_HZ, abs=0.2)
    kept = codec.write_length(data)
    samples, rate_hz = soundfile.read(io.BytesIO(kept))
    assert (rate_hz, len(samples) / rate_hz) == (24000, pytest.approx(seconds, abs=0.1))
    assert codec.inspect_audio(kept).audio_seconds == pytest.approx(seconds, abs=0.1)


@pytest.mark.sampled(14)
@pytest.mark.parametrize("kind", Format)
@pytest.mark.parametrize("rate_hz", STREAM_SAMPLE_RATES_HZ)
def test_the_first_bytes_leave_early(speech_like, kind, rate_hz):
    encoder = StreamEncoder(kind, ChannelType.MONO, rate_hz, rate_hz)
    real_rate_hz = encoder.sample_rate_hz
    # At 8000 Hz the resampler, and MP3 by two of its frames, look ahead further than that.
    slow = (kind is Format.MP3 and rate_hz == 8000) or real_rate_hz != rate_hz
    first = encoder.add(codec.resample(speech_like, RATE_HZ, rate_hz)[: rate_hz // (5 if slow else 10)])
    assert first
    if kind is Format.OGG:
        assert first.count(b"OggS") >= 2


@pytest.mark.parametrize("kind", [Format.WAV, Format.PCM])
def test_without_another_rate_every_sample_leaves_at_once(kind):
    encoder = StreamEncoder(kind, ChannelType.STEREO, 24000)
    head = WAV_HEADER_BYTES if kind is Format.WAV else 0
    assert [len(encoder.add(np.zeros(10, np.float32))) for _ in range(3)] == [head + 40, 40, 40]
    assert encoder.finish() == b""


def test_the_header_of_wav_is_44_bytes_and_leaves_the_length_open():
    data = StreamEncoder(Format.WAV, ChannelType.STEREO, 24000).add(np.zeros(0, np.float32))
    assert len(data) == WAV_HEADER_BYTES
    with wave.open(io.BytesIO(data + bytes(400))) as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (2, 24000, 2)
        assert len(file.readframes(10_000)) == 400


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(Format),
    st.lists(st.integers(1, 9000), min_size=1, max_size=6),
    st.sampled_from(ChannelType),
)
def test_how_samples_are_divided_changes_no_byte(kind, sizes, channel_type):
    samples = (np.sin(np.arange(12_000) / 9) * np.linspace(0, 0.6, 12_000)).astype(np.float32)
    assert streamed(samples, kind, 44100, channel_type, sizes=sizes) == streamed(
        samples, kind, 44100, channel_type, sizes=[12_000]
    )


@pytest.mark.parametrize(("rate_hz", "size"), [(8000, 1), (44100, 37), (48000, PIECE)])
def test_resampled_pieces_have_no_seams(speech_like, rate_hz, size):
    samples = speech_like[: 300 * size]
    data = streamed(samples, Format.PCM, rate_hz, sizes=[size])
    found = np.frombuffer(data, "<i2") / 32767
    expected = codec.resample(samples, RATE_HZ, rate_hz)
    assert len(found) == len(expected)
    assert np.abs(found - expected).max() < 1e-4


def test_mp3_begins_with_sound_and_not_with_the_frame_that_is_kept_free_for_a_length(speech_like):
    data = streamed(speech_like, Format.MP3)
    assert data[:2] == b"\xff\xf3"
    assert any(data[4:36])


def test_two_channels_stay_two_and_become_one_when_mono_is_asked():
    left = np.linspace(-0.5, 0.5, 1000, dtype=np.float32)
    both = np.stack([left, -left], axis=1)
    stereo = np.frombuffer(streamed(both, Format.PCM, RATE_HZ, ChannelType.STEREO), "<i2").reshape(-1, 2)
    assert np.array_equal(stereo[:, 0], -stereo[:, 1])
    assert not np.frombuffer(streamed(both, Format.PCM, RATE_HZ), "<i2").any()


def test_what_is_too_loud_is_cut_off_and_never_wraps():
    data = streamed(np.array([0.5, 3.0, -3.0, 1.0], np.float32), Format.PCM, RATE_HZ)
    assert np.frombuffer(data, "<i2").tolist() == [16384, 32767, -32767, 32767]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", Format)
def test_four_minutes_take_no_more_memory_than_one(kind):
    second = (np.sin(np.arange(8000) / 9) * 0.3).astype(np.float32)
    encoder = StreamEncoder(kind, ChannelType.MONO, 8000)
    peaks = []
    tracemalloc.start()
    for _ in range(4):
        for _ in range(60):
            encoder.add(second)
        peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    encoder.finish()
    assert peaks[-1] < 1.5 * peaks[0] + 100_000


@pytest.mark.parametrize("kind", Format)
def test_a_stream_without_samples_or_past_its_end_is_refused(kind):
    empty = StreamEncoder(kind, ChannelType.MONO, 8000)
    empty.add(np.zeros(0, np.float32))
    with pytest.raises(AudioError, match="no audio"):
        empty.finish()
    encoder = StreamEncoder(kind, ChannelType.MONO, 8000)
    assert encoder.add(np.zeros(1, np.float32)) + encoder.finish()
    assert encoder.finish() == b""
    with pytest.raises(AudioError, match="finished"):
        encoder.add(np.zeros(1, np.float32))


def test_unusable_samples_and_rates_are_refused():
    encoder = StreamEncoder(Format.WAV, ChannelType.STEREO, 8000)
    encoder.add(np.zeros(4, np.float32))
    for samples in (np.array([1, 2]), np.array([np.nan], np.float32), np.zeros((4, 2), np.float32)):
        with pytest.raises(AudioError):
            encoder.add(samples)
    with pytest.raises(AudioError, match="cannot have"):
        StreamEncoder(Format.MP3, ChannelType.MONO, 7000).add(np.zeros(4, np.float32))


def test_the_length_is_put_only_where_it_is_missing(speech_like):
    for kind in (Format.WAV, Format.FLAC, Format.MP3, Format.OGG):
        data = codec.encode(speech_like, RATE_HZ, format=kind)
        assert codec.write_length(data) == data
    kept = codec.write_length(streamed(speech_like, Format.WAV, RATE_HZ))
    assert kept == codec.encode(speech_like, RATE_HZ, format=Format.WAV)
    half = codec.write_length(streamed(speech_like, Format.FLAC))
    with pytest.raises(AudioError):
        codec.decode(half[: len(half) // 2])
