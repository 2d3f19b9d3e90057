"""How long a clip is, in whatever container: what the service will count is what is said beforehand."""

import contextlib
import io
import sys

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from speechframe.audio import codec
from speechframe.audio.lengths import inspect_clip
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

TONE = (0.3 * np.sin(np.arange(12_000) / 9)).astype(np.float32)


def by_soundfile(format, subtype=None):
    buffer = io.BytesIO()
    soundfile.write(buffer, TONE, 8000, format=format, subtype=subtype)
    return buffer.getvalue()


def by_av(container, codec_name, rate_hz=48_000):
    buffer = io.BytesIO()
    samples = np.resize(TONE, rate_hz * 2)[None, :]
    with av.open(buffer, "w", format=container) as file:
        stream = file.add_stream(codec_name, rate=rate_hz, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
        frame.sample_rate = rate_hz
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("format", "media_type"),
    [("WAV", "audio/wav"), ("FLAC", "audio/flac"), ("OGG", "audio/ogg"), ("MP3", "audio/mpeg")],
)
def test_formats_of_the_document_say_their_length(format, media_type):
    found = inspect_clip(codec.encode(TONE, 8000, format=Format(format)))
    assert found.media_type == media_type
    assert found.audio_seconds == pytest.approx(1.5, abs=0.15 if format == "MP3" else 1e-9)


@pytest.mark.parametrize("format", ["AIFF", "CAF"])
def test_other_audio_files_do_too(format):
    found = inspect_clip(by_soundfile(format, "PCM_16"))
    assert (found.audio_seconds, found.media_type) == (1.5, f"audio/x-{format.lower()}")


@pytest.mark.parametrize(
    ("container", "codec_name", "media_type"),
    [("mp4", "aac", "audio/mp4"), ("webm", "libopus", "audio/webm"), ("adts", "aac", "audio/aac")],
)
def test_containers_of_the_media_extra_are_measured_by_what_is_in_them(container, codec_name, media_type):
    found = inspect_clip(by_av(container, codec_name))
    assert found.media_type == media_type
    assert found.audio_seconds == pytest.approx(2.0, abs=0.1)


def test_without_the_extra_its_name_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(AudioError, match=r"speechframe\[media\]"):
        inspect_clip(by_av("mp4", "aac"))


@given(st.binary(max_size=500))
def test_any_bytes_are_audio_or_are_refused(data):
    with contextlib.suppress(AudioError):
        assert inspect_clip(data).audio_seconds > 0


@pytest.mark.parametrize(
    "playlist", [b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n", b"ffconcat version 1.0\nfile /etc/passwd\n"]
)
def test_a_list_of_other_files_is_no_audio(playlist):
    with pytest.raises(AudioError):
        inspect_clip(playlist)
