"""The quick look at headers says what the decoder says, or leaves it to the decoder."""

import io
import itertools
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from speechframe.audio import _headers, codec
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

RNG = np.random.default_rng(1)
NOISE = RNG.normal(0, 0.1, (70_000, 2))


def written(format, subtype, frames=9_000, rate_hz=44100, channels=1):
    buffer = io.BytesIO()
    soundfile.write(buffer, NOISE[:frames, :channels], rate_hz, format=format, subtype=subtype)
    return buffer.getvalue()


FLACS = [written("FLAC", "PCM_16", frames=frames) for frames in (1, 4096, 4097, 30_000)]
WAVS = [written("WAV", subtype, frames=100) for subtype in ("PCM_16", "FLOAT", "PCM_U8", "ULAW")]


@pytest.mark.parametrize("rate_hz", [8000, 44100, 12_345])
def test_flac_is_read_to_its_last_frame(rate_hz):
    frame_counts, subtypes = (1, 191, 4095, 4096, 4097, 70_000), ("PCM_S8", "PCM_16", "PCM_24")
    for frames, channels, subtype in itertools.product(frame_counts, (1, 2), subtypes):
        data = written("FLAC", subtype, frames, rate_hz, channels)
        assert _headers.read_shape(data, Format.FLAC) == _headers.HeaderFacts(rate_hz, channels, frames)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_is_read_by_its_chunks(subtype, channels):
    data = written("WAV", subtype, channels=channels)
    assert _headers.read_shape(data, Format.WAV) == _headers.HeaderFacts(44100, channels, 9_000)


@pytest.mark.parametrize(("container", "subtype"), [("WAV", "ULAW"), ("WAVEX", "FLOAT"), ("OGG", "VORBIS")])  # fmt: skip
def test_what_is_unusual_is_left_to_the_decoder(container, subtype):
    data = written(container, subtype)
    info = codec.inspect_audio(data)
    assert _headers.read_shape(data, info.format) is None
    assert info.audio_seconds == pytest.approx(9_000 / 44100, abs=0.001)


def test_flac_that_lacks_its_last_frame_is_refused_and_so_is_a_claim_of_hours():
    data = written("FLAC", "PCM_16", frames=30_000)
    for share in (0.3, 0.6, 0.8):
        with pytest.raises(AudioError, match="truncated"):
            codec.inspect_audio(data[: int(share * len(data))])
    claim = bytearray(data)
    claim[21] |= 0x0F
    claim[22:26] = b"\xff\xff\xff\xff"
    with pytest.raises(AudioError, match="truncated"):
        codec.inspect_audio(bytes(claim))


def test_bytes_behind_the_last_frame_do_no_harm():
    data = written("FLAC", "PCM_16", frames=30_000)
    for more in (b"TAG" + bytes(125), b"\xff\xf8" * 500, bytes(100_000)):
        assert codec.inspect_audio(data + more) == codec.inspect_audio(data)


@given(st.sampled_from(FLACS + WAVS), st.data())
def test_changed_bytes_are_read_as_the_decoder_reads_them_or_refused(data, draw):
    """The first hundred bytes hold all that is read; a change there may never become another length in silence."""
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        changed[draw.draw(st.integers(0, min(len(data), 100) - 1))] = draw.draw(st.integers(0, 255))
    changed = bytes(changed)
    try:
        quick = _headers.read_shape(changed, Format.FLAC if data[:4] == b"fLaC" else Format.WAV)
    except AudioError:
        return
    if quick is None or changed[:4] != data[:4]:
        return
    try:
        with soundfile.SoundFile(io.BytesIO(changed)) as file:
            slow = (file.samplerate, file.channels, file.frames)
    except soundfile.LibsndfileError:
        # The decoder knows more ways in which a file can be wrong than are looked at here.
        return
    frames_unknown = changed[:4] == b"fLaC" and not struct.unpack_from(">Q", changed, 18)[0] & (1 << 36) - 1
    if not frames_unknown:
        assert (quick.sample_rate_hz, quick.channels, quick.frames) == slow


@given(
    st.binary(max_size=200), st.sampled_from([b"", FLACS[0][:42], FLACS[0][:60], WAVS[0][:36], WAVS[0][:44]])
)
def test_no_bytes_are_more_than_an_audio_error(junk, start):
    for found in (Format.WAV, Format.FLAC):
        try:
            shape = _headers.read_shape(start + junk, found)
        except AudioError:
            continue
        assert shape is None or shape.frames >= 0


def test_a_million_empty_chunks_are_not_counted():
    with pytest.raises(AudioError, match="more than 10,000 chunks"):
        codec.inspect_audio(b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 1_000_000)


def test_silence_that_unpacks_without_end_is_refused(monkeypatch):
    silence = codec.encode(np.zeros(2_000_000, np.float32), 8000, format=Format.FLAC)
    assert len(silence) < 20_000
    monkeypatch.setattr(codec, "MAX_DECODED_BYTES", 4_000_000)
    with pytest.raises(AudioError, match="unpacks to more than 4,000,000 bytes"):
        codec.decode(silence)
    monkeypatch.setattr(codec, "MAX_DECODED_BYTES", 8_000_000)
    assert codec.decode(silence).audio_seconds == 250
