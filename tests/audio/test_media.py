"""What strangers bring: decoded to mono within bounds, or refused in words that say which."""

import contextlib
import struct
import sys
import tracemalloc
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from speechframe.audio import media
from speechframe.audio._samples import mix_channels
from speechframe.errors import AudioError

RATE_HZ = 24000


def tone(seconds=1.0, rate_hz=RATE_HZ, hz=220.0, level=0.5):
    return (level * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def written(path, samples, rate_hz=RATE_HZ, **options):
    soundfile.write(path, samples, rate_hz, **options)
    return path


def muxed(path, codec, *, rate_hz=48000, seconds=1.0, video=False, audio=True, samples=np.float32):
    """Write a file with FFmpeg: stereo, the tone on both sides."""
    with av.open(str(path), "w") as container:
        picture = (
            container.add_stream("mpeg4", rate=10, width=64, height=64, pix_fmt="yuv420p") if video else None
        )
        sound = container.add_stream(codec, rate=rate_hz, layout="stereo") if audio else None
        if picture is not None:
            for _ in range(round(10 * seconds)):
                container.mux(picture.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))))
            container.mux(picture.encode(None))
        if sound is not None:
            left = tone(seconds, rate_hz)
            if samples is np.int16:
                both = np.repeat((left * 32767).astype(np.int16), 2)[None]
                frame = av.AudioFrame.from_ndarray(both, format="s16", layout="stereo")
            else:
                frame = av.AudioFrame.from_ndarray(np.stack([left, left]), format="fltp", layout="stereo")
            frame.sample_rate = rate_hz
            container.mux(sound.encode(frame))
            container.mux(sound.encode(None))
    return path


def refused(path, *, max_seconds=60.0):
    with pytest.raises(AudioError) as caught:
        media.read_audio(path, max_seconds=max_seconds)
    return str(caught.value)


def pitch_hz(audio):
    spectrum = np.abs(np.fft.rfft(audio.samples))
    return np.argmax(spectrum) * audio.sample_rate_hz / len(audio.samples)


def middle_peak(audio):
    # Codecs overshoot where a tone sets in.
    return np.abs(audio.samples[len(audio.samples) // 4 : -len(audio.samples) // 4]).max()


@pytest.mark.parametrize(
    ("container", "subtype"),
    [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAV", "ULAW"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"),
     ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("AU", "PCM_16"), ("CAF", "PCM_16"),
     ("W64", "PCM_16"), ("RF64", "PCM_16")],
)  # fmt: skip
def test_audio_files_of_every_usual_kind_come_out_as_they_went_in(tmp_path, container, subtype):
    samples = np.repeat(tone()[:, None], 2, axis=1)
    audio = media.read_audio(
        written(tmp_path / "no_extension", samples, format=container, subtype=subtype), max_seconds=2
    )
    assert (audio.samples.dtype, audio.samples.ndim, audio.sample_rate_hz) == (np.float32, 1, RATE_HZ)
    assert audio.audio_seconds == pytest.approx(1.0, abs=0.06 if container == "MP3" else 1e-9)
    assert middle_peak(audio) == pytest.approx(0.5, abs=0.05)
    assert pitch_hz(audio) == pytest.approx(220, abs=2)


@pytest.mark.parametrize(
    ("name", "codec", "video"),
    [("a.mp4", "aac", True), ("a.m4a", "aac", False), ("a.mkv", "aac", True), ("a.webm", "libopus", False),
     ("a.avi", "mp3", True), ("a.mov", "aac", False)],
)  # fmt: skip
def test_videos_and_their_like_give_their_first_audio_stream(tmp_path, name, codec, video):
    path = muxed(tmp_path / name, codec, video=video)
    audio = media.read_audio(path.rename(tmp_path / "no_extension"), max_seconds=2)
    assert (audio.samples.dtype, audio.samples.ndim, audio.sample_rate_hz) == (np.float32, 1, 48000)
    assert audio.audio_seconds == pytest.approx(1.0, abs=0.08)
    # Two equal channels are as loud as one of them.
    assert middle_peak(audio) == pytest.approx(0.5, abs=0.05)
    assert pitch_hz(audio) == pytest.approx(220, abs=2)


def test_channels_are_mixed(tmp_path):
    samples = np.stack([tone(level=0.8), np.zeros(RATE_HZ), tone(level=0.4), np.full(RATE_HZ, 0.4)], axis=1)
    audio = media.read_audio(written(tmp_path / "a.wav", samples, subtype="FLOAT"), max_seconds=2)
    assert audio.samples == pytest.approx(samples.mean(axis=1), abs=1e-6)


def test_a_voice_does_not_cancel_in_channels_of_opposite_polarity(tmp_path):
    voice, both = tone(level=0.4), tone(level=0.2)
    # The second half has the voice in both channels, as it should be.
    samples = np.stack([np.append(voice, both), np.append(-voice, both)], axis=1)
    found = media.read_audio(written(tmp_path / "a.wav", samples, subtype="FLOAT"), max_seconds=9).samples
    late = RATE_HZ // 2
    assert found[: RATE_HZ - late] == pytest.approx(voice[:-late], abs=1e-6)
    assert found[RATE_HZ + late :] == pytest.approx(both[late:], abs=1e-6), "within half a second"
    assert mix_channels(samples.astype(np.float32)) == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("rate_hz", [88200, 192000])
def test_faster_audio_is_brought_down_to_the_fastest_of_any_answer(tmp_path, rate_hz):
    audio = media.read_audio(written(tmp_path / "a.wav", tone(1.5, rate_hz), rate_hz), max_seconds=2)
    assert (audio.sample_rate_hz, len(audio.samples)) == (48000, 72000)
    assert pitch_hz(audio) == pytest.approx(220, abs=2)


@pytest.mark.parametrize("rate_hz", [3999, 192001])
def test_rates_that_no_speech_has_are_refused(tmp_path, rate_hz):
    path = written(tmp_path / "a.wav", np.zeros(1000), rate_hz)
    assert refused(path) == f"the sample rate {rate_hz} Hz cannot be read. Allowed: 4000 to 192000."


def test_more_channels_than_are_mixed_are_refused(tmp_path):
    path = written(tmp_path / "a.wav", np.zeros((100, 33)))
    assert refused(path) == "33 channels cannot be read. Allowed: 1 to 32."


# WAVEX of a sub-format that there is not.
UNKNOWN_CODEC = (
    b"RIFF\x44\1\0\0WAVEfmt \x28\0\0\0\xfe\xff\1\0\xc0\x5d\0\0\x80\xbb\0\0\2\0\x10\0\x16\0\x10\0\4\0\0\0\3"
    b"\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71data\0\1\0\0" + bytes(256)
)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (b"hello, this is a letter. " * 50, "no audio that can be read"),
        (b"RIFF\xff\xff\xff\xffWAVEfmt ", "no audio that can be read"),
        (b"fLaC" + bytes(300), "no audio that can be read"),
        (b"OggS" + bytes(10), "truncated"),
        (UNKNOWN_CODEC, "the encoding of the audio is unknown here"),
    ],
)
def test_what_is_no_audio_is_refused_by_what_it_is(tmp_path, data, words):
    path = tmp_path / "upload"
    path.write_bytes(data)
    assert words in refused(path)


def test_a_video_without_sound_says_so(tmp_path):
    path = muxed(tmp_path / "a.mp4", None, video=True, audio=False)
    assert refused(path) == "no audio: the file has no audio stream"


@pytest.mark.parametrize("container", ["WAV", "CAF", "AIFF"])
def test_a_file_without_samples_is_refused(tmp_path, container):
    path = written(tmp_path / "upload", np.zeros(0), format=container)
    assert "no audio: the file has no samples" in refused(path)


@pytest.mark.parametrize("container", ["WAV", "FLAC", "OGG", "MP3"])
def test_a_file_that_is_cut_off_is_refused(tmp_path, container):
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, 5 * RATE_HZ)
    path = written(tmp_path / "upload", noise, format=container)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "truncated" in refused(path)


@pytest.mark.parametrize("name", ["a.mkv", "a.webm"])
@pytest.mark.parametrize("video", [False, True])
def test_mkv_and_webm_that_are_cut_off_are_refused(tmp_path, name, video):
    path = muxed(tmp_path / name, "libopus", seconds=3, video=video and name == "a.mkv")
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert refused(path) == f"the file is truncated: it has {size} of {len(whole)} bytes"


def test_webm_that_was_written_as_a_stream_is_read_to_its_end(tmp_path):
    path = muxed(tmp_path / "a.webm", "libopus", seconds=3)
    data = bytearray(path.read_bytes())
    # The size of the segment, unknown.
    at = data.index(b"\x18\x53\x80\x67") + 4
    data[at : at + 8] = b"\x01" + b"\xff" * 7
    path.write_bytes(data)
    assert media.read_audio(path, max_seconds=60).audio_seconds == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_that_was_written_as_a_stream_is_read_to_its_end(tmp_path, size):
    data = bytearray(written(tmp_path / "a.wav", tone()).read_bytes())
    struct.pack_into("<I", data, data.index(b"data") + 4, size)
    (tmp_path / "a.wav").write_bytes(data)
    assert media.read_audio(tmp_path / "a.wav", max_seconds=2).audio_seconds == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_values_that_are_no_numbers_are_refused(tmp_path, value):
    path = written(tmp_path / "a.wav", np.full(100, value, np.float32), subtype="FLOAT")
    assert refused(path) == "the audio has values that are not numbers"


def test_floats_beyond_full_scale_are_cut(tmp_path):
    path = written(tmp_path / "a.wav", np.full(100, 7.5, np.float32), subtype="FLOAT")
    assert media.read_audio(path, max_seconds=2).samples.max() == 1.0


@pytest.mark.parametrize("seconds", [2.0, 2.001])
@pytest.mark.parametrize("kind", ["WAV", "FLAC", "mkv"])
def test_the_longest_is_taken_and_a_little_more_is_not(tmp_path, seconds, kind):
    if kind == "mkv":
        path = muxed(tmp_path / "a.mkv", "pcm_s16le", seconds=seconds, samples=np.int16)
    else:
        path = written(tmp_path / "upload", tone(seconds), format=kind)
    if seconds == 2.0:
        assert media.read_audio(path, max_seconds=2.0).audio_seconds == 2.0
    else:
        assert refused(path, max_seconds=2.0) == (
            "the audio is longer than 2 seconds, the longest that is allowed"
        )


def _claiming_little(path):
    """Make a FLAC file say nothing about its length: hours of silence in a few bytes."""
    data = bytearray(path.read_bytes())
    # Total samples: 36 bits of the stream info block, behind rate, channels and depth.
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)
    return path


@pytest.mark.slow
def test_what_unpacks_to_hours_is_refused_while_it_is_read_without_filling_memory(tmp_path):
    path = tmp_path / "bomb.flac"
    with soundfile.SoundFile(path, "w", 8000, 8, format="FLAC") as file:
        silence = np.zeros((8000 * 60, 8), np.int16)
        for _ in range(60):
            file.write(silence)
    assert path.stat().st_size < 300_000, "an hour in eight channels"
    assert "longer than 600 seconds" in refused(path, max_seconds=600)
    _claiming_little(path)
    assert soundfile.info(path).frames > 10**12, "its header no longer says"
    tracemalloc.start()
    try:
        assert "longer than 600 seconds" in refused(path, max_seconds=600)
        # Of read(), which keeps what it has: 600 s, mixed, and not eight channels or an hour of them.
        assert tracemalloc.get_traced_memory()[1] < 40e6
        tracemalloc.reset_peak()
        with media.open_media(path, max_seconds=6000) as opened:
            assert sum(map(len, opened.blocks)) == 8000 * 3600
        assert tracemalloc.get_traced_memory()[1] < 10e6, "only a block is held"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("playlist", ["hls", "concat", "concat-wav"])
def test_a_playlist_is_no_way_to_other_files(tmp_path, playlist):
    secret = muxed(tmp_path / "secret.mp4", "aac")
    sound = written(tmp_path / "secret.wav", tone())
    words = {
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{secret}\n#EXT-X-ENDLIST\n",
        "concat": f"ffconcat version 1.0\nfile '{secret}'\n",
        "concat-wav": f"ffconcat version 1.0\nfile '{sound.name}'\n",
    }[playlist]
    path = tmp_path / "upload.m3u8"
    path.write_text(words, encoding="utf-8")
    if playlist != "concat-wav":
        # Left to itself FFmpeg opens what they name, also from an open file.
        options = {} if playlist == "hls" else {"safe": "0"}
        with path.open("rb") as file, av.open(file, options=options) as followed:
            assert followed.streams.audio
    assert "no audio that can be read" in refused(path)


def test_without_the_extra_the_words_name_it(tmp_path, monkeypatch):
    path = muxed(tmp_path / "a.mp4", "aac")
    monkeypatch.setitem(sys.modules, "av", None)
    assert refused(path).endswith("pip install 'speechframe[media]'")
    # What needs no extra still needs none.
    assert media.read_audio(written(tmp_path / "a.wav", tone()), max_seconds=2).audio_seconds == 1.0


def test_damage_in_the_middle_of_a_video_is_no_crash(tmp_path):
    data = bytearray(muxed(tmp_path / "a.mkv", "libopus", seconds=3).read_bytes())
    random = np.random.default_rng(3)
    for at in random.integers(len(data) // 4, len(data), 400):
        data[at] = random.integers(256)
    path = Path(tmp_path, "upload")
    path.write_bytes(data)
    with contextlib.suppress(AudioError):
        assert media.read_audio(path, max_seconds=60).audio_seconds < 60
