"""Levels at a glance agree with the slow way."""

import io
import itertools
import tracemalloc

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from speechframe.audio import codec, measure
from speechframe.audio.levels import Levels, measure_levels
from speechframe.audio.streams import StreamEncoder
from speechframe.errors import AudioError
from speechframe.spec.speech import ChannelType, Format

RATE_HZ = 22050
IN_PLACES = (Format.FLAC, Format.OGG)
G711 = (Format.ALAW, Format.ULAW)


@pytest.fixture(scope="module")
def speech(speech_like):
    """Ten seconds, all of it at the level of speech."""
    return np.tile(speech_like, 6)


def flac(samples, rate_hz=RATE_HZ, format="FLAC"):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate_hz, format=format, subtype="PCM_16")
    return buffer.getvalue()


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("seconds", [0.3, 10.0])
def test_every_format_tells_the_level_of_what_it_holds(speech, format, seconds):
    rate_hz = 8000 if format in G711 else 24000
    samples = codec.resample(speech[: round(seconds * RATE_HZ)], RATE_HZ, rate_hz)
    data = codec.encode(samples, rate_hz, format=format)
    found = measure_levels(data, format=format)
    assert found.clipped_fraction == 0
    if seconds < 1 or format not in IN_PLACES:
        assert found.seen_fraction == 1
        assert found.peak_db == pytest.approx(20 * np.log10(measure.measure_peak(samples)), abs=1.0)
        assert found.rms_db == pytest.approx(measure.measure_rms_db(samples), abs=0.2)
        assert found.correlation > 0.5
    else:
        # A place may hold a hiss alone, which is far below the vowels.
        assert found.seen_fraction < 0.1
        assert -40 < found.peak_db < 20 * np.log10(measure.measure_peak(samples)) + 0.5


@pytest.mark.parametrize("format", [Format.FLAC, Format.PCM, Format.MP3])
def test_two_channels_sound_as_one(speech, format):
    mono, stereo = (
        measure_levels(
            codec.encode(speech, RATE_HZ, format=format, channel_type=kind),
            format=format,
            channels=kind.channels,
        )
        for kind in (ChannelType.MONO, ChannelType.STEREO)
    )
    assert stereo.rms_db == pytest.approx(mono.rms_db, abs=0.5)
    assert stereo.seen_fraction == pytest.approx(mono.seen_fraction)
    assert stereo.correlation == pytest.approx(mono.correlation, abs=0.05)


@pytest.mark.parametrize("format", Format)
def test_silence_is_silent_and_noise_does_not_know_the_next_sample(format):
    rate_hz = 8000
    hiss = np.random.default_rng(3).standard_normal(5 * rate_hz).astype(np.float32) * 0.1
    silent, noise = (
        measure_levels(codec.encode(samples, rate_hz, format=format), format=format)
        for samples in (np.zeros(5 * rate_hz, np.float32), hiss)
    )
    # ALAW has no code for nothing at all.
    assert silent.peak_db < -70
    assert silent.seen_fraction == 1
    assert abs(noise.correlation) < 0.06


def test_long_audio_is_seen_in_places_and_as_a_whole_where_a_place_is_odd(speech):
    long = np.tile(speech, 4)
    for format in IN_PLACES:
        assert measure_levels(codec.encode(long, RATE_HZ, format=format), format=format).seen_fraction < 0.1
    loud = flac(np.clip(long * 4, -1, 1))
    assert measure_levels(loud, format=Format.FLAC).seen_fraction == 1
    quiet = flac(long * 0.001)
    assert measure_levels(quiet, format=Format.FLAC).seen_fraction == 1


@pytest.mark.parametrize("format", [Format.WAV, Format.FLAC])
def test_flat_tops_count_and_single_peaks_do_not(speech, format):
    data = flac(np.clip(speech * 8, -1, 1), format=format)
    found = measure_levels(data, format=format)
    loud, _ = soundfile.read(io.BytesIO(data), dtype="int16")
    at_full = np.abs(loud.astype(int)) >= 32767
    runs = sum(max(0, len(list(group)) - 2) for full, group in itertools.groupby(at_full.tolist()) if full)
    assert found.clipped_fraction == pytest.approx(runs / len(loud))
    assert found.clipped_fraction > 0.005
    normalised = flac(speech / np.abs(speech).max(), format=format)
    assert measure_levels(normalised, format=format).clipped_fraction == 0


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_24", "FLOAT"])
def test_flat_tops_count_in_every_kind_of_wav(speech, subtype):
    loud = np.clip(speech * 8, -1, 1)
    buffer = io.BytesIO()
    soundfile.write(buffer, loud, RATE_HZ, format="WAV", subtype=subtype)
    flat = measure_levels(flac(loud, format="WAV"), format=Format.WAV).clipped_fraction
    found = measure_levels(buffer.getvalue(), format=Format.WAV).clipped_fraction
    assert found == pytest.approx(flat, rel=0.1)
    assert flat > 0.005


@pytest.mark.parametrize(
    ("channel_type", "rate_hz", "seconds"), [(ChannelType.MONO, 8000, 3), (ChannelType.STEREO, 44100, 0.3)]
)
def test_mp3_that_does_not_say_its_length_is_seen_whole(speech, channel_type, rate_hz, seconds):
    encoder = StreamEncoder(Format.MP3, channel_type, RATE_HZ, rate_hz)
    sound = np.resize(speech, int(RATE_HZ * seconds)).astype(np.float32)
    data = b"".join([encoder.add(sound), encoder.finish()])
    found = measure_levels(data, format=Format.MP3)
    assert found.seen_fraction == 1
    assert found.rms_db == pytest.approx(measure.measure_rms_db(sound), abs=3)


def test_a_chunk_before_the_samples_is_no_sound(speech):
    plain = flac(speech, format="WAV")
    note = b"LIST" + (5).to_bytes(4, "little") + b"hello\0"
    assert measure_levels(plain[:36] + note + plain[36:], format=Format.WAV) == measure_levels(
        plain, format=Format.WAV
    )


def test_a_stream_whose_header_knows_no_length_is_read_to_its_end(speech):
    plain = flac(speech, format="WAV")
    endless = plain[:40] + b"\xff" * 4 + plain[44:]
    assert measure_levels(endless, format=Format.WAV) == measure_levels(plain, format=Format.WAV)


@pytest.mark.parametrize("format", [Format.WAV, Format.FLAC, Format.OGG])
@pytest.mark.parametrize("share", [0.1, 0.999])
def test_audio_that_is_cut_off_is_refused(speech, format, share):
    data = codec.encode(speech, RATE_HZ, format=format)
    with pytest.raises(AudioError):
        measure_levels(data[: int(share * len(data))], format=format)


@given(
    frames=st.integers(1, 40_000) | st.sampled_from([65_535, 65_536, 65_537, 65_538, 131_073]),
    channels=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_long_samples_are_measured_in_pieces_as_if_they_were_one(frames, channels, seed):
    steps = np.random.default_rng(seed).integers(-900, 901, (frames, channels))
    samples = np.clip(np.cumsum(steps, axis=0), -32000, 32000)
    samples[0] = 1000
    found = measure_levels(samples.astype("<i2").tobytes(), format=Format.PCM, channels=channels)
    exact = samples.astype(np.float64)
    power = (exact**2).sum()
    assert found.peak_db == pytest.approx(20 * np.log10(np.abs(exact).max() / 32768), abs=1e-4)
    assert found.rms_db == pytest.approx(10 * np.log10(power / exact.size / 32768**2), abs=1e-3)
    assert found.correlation == pytest.approx((exact[1:] * exact[:-1]).sum() / power, abs=1e-3)


def test_damage_in_a_frame_that_is_looked_at_is_seen(speech):
    data = bytearray(flac(speech))
    data[-200:-150] = bytes(50)
    with pytest.raises(AudioError):
        measure_levels(bytes(data), format=Format.FLAC)


def test_flac_whose_header_knows_no_length_is_as_long_as_its_frames(speech):
    for data in (flac(speech), flac(speech[:9000]), flac(speech * 0.001)):
        streamed = data[:21] + bytes([data[21] & 0xF0]) + bytes(4) + data[26:]
        assert measure_levels(streamed, format=Format.FLAC) == measure_levels(data, format=Format.FLAC)
        with pytest.raises(AudioError):
            measure_levels(streamed[:-100], format=Format.FLAC)


def test_hours_in_a_few_bytes_take_little_memory_and_no_longer_than_is_allowed(speech):
    buffer = io.BytesIO()
    silence = np.zeros((1 << 17, 8), np.int16)
    with soundfile.SoundFile(buffer, "w", RATE_HZ, 8, format="FLAC", subtype="PCM_16") as file:
        for _ in range(3):
            file.write(silence)
    tracemalloc.start()
    try:
        found = measure_levels(buffer.getvalue(), format=Format.FLAC)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (found.peak_db, found.seen_fraction) == (-120, 1)
    for format in (Format.FLAC, Format.OGG, Format.MP3):
        quiet = codec.encode(speech[:100_000] * 0.001, RATE_HZ, format=format)
        found = measure_levels(quiet, format=format, most_samples=1 << 16)
        assert found.seen_fraction == pytest.approx((1 << 16) / 100_000, rel=0.03)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_flat_top_counts_wherever_the_pieces_end(channels):
    for first in range(65_536 // channels - 4, 65_536 // channels + 3):
        samples = np.zeros((70_000, channels), np.int16)
        samples[first : first + 4, 0] = 32767
        found = measure_levels(flac(samples), format=Format.FLAC)
        assert found.clipped_fraction == 2 / samples.size
        assert found == measure_levels(samples.tobytes(), format=Format.PCM, channels=channels)


HEADS = [flac(np.zeros(20000, np.int16), format=kind)[:60] for kind in ("WAV", "FLAC")]


@given(
    head=st.sampled_from([b"", b"OggS", b"\xff\xfb\x90", b"ID3", *HEADS]),
    cut=st.integers(0, 60),
    tail=st.binary(max_size=400),
    format=st.sampled_from(Format),
    channels=st.integers(1, 2),
)
def test_any_bytes_are_measured_or_refused(head, cut, tail, format, channels):
    try:
        found = measure_levels(head[:cut] + tail, format=format, channels=channels)
    except AudioError:
        return
    assert isinstance(found, Levels)
    assert -120 <= found.rms_db <= found.peak_db + 1e-6
    assert 0 <= found.clipped_fraction <= 1
    assert -1.001 <= found.correlation <= 1.001
    assert 0 < found.seen_fraction <= 1
