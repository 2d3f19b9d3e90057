"""Audio that comes in pieces is the same audio, however it is cut."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.audio import codec
from speechframe.audio.streams import StreamEncoder
from speechframe.errors import AudioError
from speechframe.old_client.received import Received
from speechframe.spec.speech import ChannelType, Format

RATE_HZ = 8000
SAMPLES = (0.5 * np.sin(np.arange(4000) / 9)).astype(np.float32)


def streamed(audio_format, channel_type=ChannelType.MONO):
    encoder = StreamEncoder(audio_format, channel_type, RATE_HZ)
    return encoder.add(SAMPLES) + encoder.finish()


STREAMED = {(f, c): streamed(f, c) for f in Format for c in ChannelType}


def received(pieces, audio_format, channel_type=ChannelType.MONO, **options):
    found = Received(audio_format, channel_type, RATE_HZ, **options)
    for piece in pieces:
        found.add(piece)
    return found


@given(
    st.sampled_from(sorted(STREAMED)),
    st.lists(st.integers(0, max(map(len, STREAMED.values()))), max_size=9),
    st.booleans(),
)
def test_however_it_is_cut_it_is_one_file(kind, cuts, is_framed):
    data = STREAMED[kind]
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(bounds)]
    found = received(pieces, *kind, is_framed=is_framed)
    info = found.info()
    assert found.data == data
    assert info.channels == (1 if kind[0] in {Format.ALAW, Format.ULAW} else kind[1].channels)
    # An MP3 begins and ends with silence of its own.
    assert info.audio_seconds == pytest.approx(0.5, abs=0.15)
    assert len(found.samples()) / info.sample_rate_hz == pytest.approx(info.audio_seconds, abs=0.01)
    assert info == codec.inspect(data, format=kind[0], sample_rate_hz=RATE_HZ, channels=info.channels)


@pytest.mark.parametrize("audio_format", list(Format))
def test_a_turn_over_two_sockets_is_two_files_and_saved_as_one(audio_format, tmp_path):
    data = streamed(audio_format)
    found = received([data[:50], data[50:], data], audio_format, is_framed=True)
    frames = len(received([data], audio_format).samples())
    assert len(found.samples()) == pytest.approx(2 * frames, abs=2)
    assert found.info().audio_seconds == pytest.approx(2 * frames / RATE_HZ, abs=0.15)
    path = found.save(tmp_path / f"said.{audio_format.value.lower()}")
    saved = codec.decode(path.read_bytes(), format=audio_format, sample_rate_hz=RATE_HZ)
    assert np.abs(saved.samples[-len(saved.samples) // 4 :]).max() > 0.2
    assert len(saved.samples) == pytest.approx(2 * frames, abs=1200)


LONG = np.tile(SAMPLES, 20)
BEGUN = StreamEncoder(Format.OGG, ChannelType.MONO, RATE_HZ).add(LONG)
HEAD_BYTES = BEGUN.index(b"OggS", BEGUN.index(b"OggS", 4) + 4)
TOLD = codec.encode(LONG, RATE_HZ, format=Format.WAV)


@pytest.mark.parametrize(
    ("audio_format", "begun", "least_s"),
    [
        # Without a last page, within a page, within its header, and before any sample.
        (Format.OGG, BEGUN, 5.0),
        (Format.OGG, BEGUN[:-10], 2.0),
        (Format.OGG, BEGUN + b"OggS", 5.0),
        (Format.OGG, BEGUN[:HEAD_BYTES], 0.0),
        (Format.OGG, BEGUN[:40], 0.0),
        # With the length that the whole would have had.
        (Format.WAV, TOLD[:-16_000], 9.0),
        (Format.WAV, TOLD[:-16_001], 8.9),
        (Format.WAV, TOLD[:44], 0.0),
    ],
    ids=["no end", "in a page", "in a header", "heads", "in heads", "samples", "half a sample", "head"],
)
def test_only_the_last_file_of_a_turn_needs_its_end(audio_format, begun, least_s, tmp_path):
    data = streamed(audio_format)
    found = received([begun, data], audio_format, is_framed=True)
    seconds = found.info().audio_seconds
    assert least_s + 0.5 <= seconds <= len(LONG) / RATE_HZ + 0.51
    assert len(found.samples()) == pytest.approx(seconds * RATE_HZ, abs=2)
    assert found.data == begun + data
    assert codec.inspect(found.save(tmp_path / "said").read_bytes()).audio_seconds == pytest.approx(seconds)
    for incomplete in ([data, begun], [begun]):
        with pytest.raises(AudioError):
            received(incomplete, audio_format, is_framed=True).samples()


def test_an_earlier_file_that_is_damaged_is_refused():
    damaged = bytearray(BEGUN)
    damaged[-100] ^= 1
    with pytest.raises(AudioError, match="checksum"):
        received([bytes(damaged), streamed(Format.OGG)], Format.OGG, is_framed=True).info()


def test_a_header_in_the_middle_of_http_is_sound_like_any_other():
    wav = streamed(Format.WAV)
    found = received([wav, wav], Format.WAV)
    assert len(found.samples()) == 2 * len(SAMPLES) + 22


def test_nothing_is_no_samples_and_no_file(tmp_path):
    assert received([], Format.WAV).samples().shape == (0,)
    assert received([], Format.PCM, ChannelType.STEREO).samples().shape == (0, 2)
    with pytest.raises(AudioError, match="no audio"):
        received([], Format.WAV).save(tmp_path / "said.wav")


def test_an_ending_that_is_no_audio_is_refused(tmp_path):
    with pytest.raises(
        AudioError, match=r"cannot be saved as \.txt; allowed: \.flac, \.mp3, \.ogg, \.pcm, \.wav"
    ):
        received([bytes(100)], Format.PCM).save(tmp_path / "said.txt")
