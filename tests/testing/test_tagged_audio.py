"""Canned audio: sound, as long as asked, and marked with the text it belongs to."""

import base64
import io
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.audio import codec, measure
from speechframe.errors import AudioError
from speechframe.spec.limits import GENERATE_SAMPLE_RATES_HZ
from speechframe.spec.speech import Format
from speechframe.testing import tag_in, tag_of
from speechframe.testing.audio import encode_clip_base64, make_clip, make_shape

formats = st.sampled_from([Format.WAV, Format.FLAC])
shapes = st.builds(
    make_shape,
    formats,
    st.sampled_from(GENERATE_SAMPLE_RATES_HZ),
    st.sampled_from([1, 2]),
    characters=st.integers(1, 200),
    audio_bytes=st.sampled_from([None, 1, 2_000, 60_000]),
    variant=st.integers(0, 2**65),
)
tags = st.integers(0, 2**64 - 1)


@settings(max_examples=40)
@given(shapes, tags, st.integers(0, 2**31 - 1))
def test_every_clip_is_audio_of_its_shape_neither_silent_nor_clipped_and_gives_its_tag_back(shape, tag, take):
    data = make_clip(shape, tag, take)
    audio = codec.decode(data, format=shape.format)
    assert (audio.sample_rate_hz, audio.channels) == (shape.rate_hz, shape.channels)
    assert len(audio.samples) == shape.frames
    assert measure.measure_rms_db(audio.samples) > -40
    assert 0.05 < measure.measure_peak(audio.samples) < 0.95
    assert tag_in(data) == tag


@settings(max_examples=30)
@given(shapes, tags)
def test_base64_put_together_from_pieces_is_the_base64_of_the_whole(shape, tag):
    pieces = b"".join(encode_clip_base64(shape, tag, take=3))
    assert base64.b64decode(pieces, validate=True) == make_clip(shape, tag, take=3)


@given(formats, st.integers(1, 2000))
def test_a_clip_without_a_size_is_as_long_as_its_text_takes(format, characters):
    seconds = make_shape(format, 24000, 1, characters=characters, audio_bytes=None, variant=0).seconds
    assert abs(seconds - 0.06 * characters) <= 0.15


@pytest.mark.parametrize("format", [Format.WAV, Format.FLAC])
@pytest.mark.parametrize("size", [2_000, 150_000])
def test_a_clip_with_a_size_has_about_that_size(format, size):
    shape = make_shape(format, 44100, 1, characters=5, audio_bytes=size, variant=2)
    assert len(make_clip(shape, 1, 0)) == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize("format", [Format.WAV, Format.FLAC])
def test_soundfile_reads_it_and_parquet_keeps_its_tag(format, tmp_path):
    texts = ["One.", "Two.", "One. "]
    clips = [
        make_clip(make_shape(format, 24000, 1, characters=4, audio_bytes=None, variant=0), tag_of(t), 0)
        for t in texts
    ]
    pq.write_table(pa.table({"audio": clips}), tmp_path / "a.parquet")
    read = pq.read_table(tmp_path / "a.parquet")["audio"].to_pylist()
    assert [tag_in(data) for data in read] == [tag_of(text) for text in texts]
    assert len(set(map(tag_in, read))) == 3
    assert all(soundfile.info(io.BytesIO(data)).format == format.value for data in read)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no audio",
        codec.encode(np.zeros(99, np.float32), 8000, format=Format.WAV),
        codec.encode(np.zeros(99, np.float32), 8000, format=Format.FLAC),
        b"fLaC",
        b"RIFF\0\0\0\0WAVEspfT\x02\0\0\0ab",
    ],
)
def test_other_audio_has_no_tag_and_that_is_said(data):
    with pytest.raises(AudioError, match="has no tag"):
        tag_in(data)


@pytest.mark.quiet
def test_a_big_clip_costs_its_copying_not_its_encoding():
    shape = make_shape(Format.WAV, 44100, 1, characters=5, audio_bytes=600_000, variant=0)
    whole = make_clip(shape, 1, 0)

    def best_s(work):
        times = []
        for _ in range(20):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return min(times)

    pieces_s = best_s(lambda: b"".join(encode_clip_base64(shape, 1, 0)))
    assert best_s(lambda: base64.b64encode(whole)) > 2 * pieces_s
