"""Odd files are judged as FFmpeg judges them: what plays is read as it plays, and only what is cut off is refused."""

import io
import struct
from fractions import Fraction

import av
import numpy as np
import pytest
import soundfile

from speechframe.audio import _mp3, _ogg, media
from speechframe.audio.lengths import inspect_clip
from speechframe.errors import AudioError

RATE_HZ = 16_000
TONE = (0.3 * np.sin(np.arange(2 * RATE_HZ) / 9)).astype(np.float32)
INVERSE = np.stack([TONE, -TONE], axis=1)


class Pipe:
    """A file that cannot seek, so that a header stays as it was first written."""

    def __init__(self):
        self.data = bytearray()

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def by_soundfile(kind, samples=TONE, subtype=None):
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE_HZ, format=kind, subtype=subtype)
    return buffer.getvalue()


def by_ffmpeg(container, codec, samples=TONE, *, piped=False, **options):
    target = Pipe() if piped else io.BytesIO()
    layout = "mono" if samples.ndim == 1 else "stereo"
    with av.open(target, "w", format=container, options=options) as file:
        stream = file.add_stream(codec, rate=48_000, layout=layout)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(np.atleast_2d(samples.T)), "fltp", layout)
        frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, 0, Fraction(1, RATE_HZ)
        converter = av.AudioResampler(stream.codec_context.format, layout, 48_000)
        for converted in (*converter.resample(frame), *converter.resample(None)):
            file.mux(stream.encode(converted))
        file.mux(stream.encode(None))
    return bytes(target.data) if piped else target.getvalue()


def with_sizes(wav, riff, data):
    at = wav.index(b"data") + 4
    return wav[:4] + struct.pack("<I", riff) + wav[8:at] + struct.pack("<I", data) + wav[at + 4 :]


def without_end(ogg):
    changed, last = bytearray(ogg), list(_ogg.iter_pages(ogg))[-1]
    changed[last.start + 5] &= ~4
    _ogg._write_checksum(changed, last)
    return bytes(changed)


def without_padding():
    """An MP3 whose last frame is cut off, which has nothing but what the encoder put in."""
    for frames in range(1000, 20_000, 37):
        data = by_ffmpeg("mp3", "libmp3lame", TONE[:frames])
        found = _mp3.read_mp3(data)
        if found.behind >= found.kind.frame_samples:
            (span,) = found.spans
            return data[: span.end - (span.end - span.start) // span.count]
    raise AssertionError("no frame has padding alone")


WAV, MP3 = by_soundfile("WAV"), by_ffmpeg("mp3", "libmp3lame")
PLAYS = {
    "wav of a stream, sizes 0": with_sizes(WAV, 0, 0),
    "wav of a stream, sizes of an empty file": with_sizes(WAV, 36, 0),
    "wav of a stream, largest sizes": with_sizes(WAV, 0xFFFFFFFF, 0xFFFFFFFF),
    "wav of a stream, sizes of sox": with_sizes(WAV, 0x7FFFF024, 0x7FFFF000),
    "wav of a stream, floats": with_sizes(by_soundfile("WAV", subtype="FLOAT"), 0, 0),
    "wav of a pipe": by_ffmpeg("wav", "pcm_s16le", piped=True),
    "au of a pipe": by_ffmpeg("au", "pcm_s16be", piped=True),
    "flac of a pipe": by_ffmpeg("flac", "flac", piped=True),
    "mp3": MP3,
    "mp3 of a pipe": by_ffmpeg("mp3", "libmp3lame", piped=True),
    "mp3 without its padding": without_padding(),
    "mp3 with tags behind": MP3 + b"TAG" + bytes(125),
    "ogg": by_soundfile("OGG"),
    "ogg without its end": without_end(by_soundfile("OGG")),
    "opus": by_ffmpeg("ogg", "libopus"),
    "opus without its end": without_end(by_ffmpeg("ogg", "libopus")),
    "m4a": by_ffmpeg("mp4", "aac"),
    "m4a in fragments": by_ffmpeg("mp4", "aac", piped=True, movflags="frag_keyframe+empty_moov"),
    "adts": by_ffmpeg("adts", "aac"),
    "webm that is live": by_ffmpeg("webm", "libopus", piped=True, live="1"),
    "mkv of a pipe": by_ffmpeg("matroska", "aac", piped=True),
    "inverse wav": by_soundfile("WAV", INVERSE),
    "inverse mp3": by_soundfile("MP3", INVERSE),
    "inverse ogg": by_soundfile("OGG", INVERSE),
    "inverse m4a": by_ffmpeg("mp4", "aac", INVERSE),
    "inverse webm": by_ffmpeg("webm", "libopus", INVERSE),
}
HALVES = {
    name: data[: len(data) // 2]
    for name, data in {
        "wav": WAV,
        "mp3": MP3,
        "flac": by_soundfile("FLAC"),
        "ogg": by_soundfile("OGG"),
    }.items()
} | {f"{kind} half": by_ffmpeg(kind, "aac")[:9000] for kind in ("mp4", "matroska")}
EMPTY = {
    "nothing": b"",
    "wav without samples": with_sizes(WAV, 36, 0)[: WAV.index(b"data") + 8],
    "wav with a list for samples": with_sizes(WAV[: WAV.index(b"data") + 8], 48, 0) + b"LIST\4\0\0\0INFO",
}


def by_player(data):
    """Seconds and peak as FFmpeg decodes them."""
    with av.open(io.BytesIO(data)) as file:
        converter = av.AudioResampler("fltp")
        frames = [made for frame in file.decode(audio=0) for made in converter.resample(frame)]
        samples = np.concatenate([frame.to_ndarray() for frame in frames], axis=1)
        return samples.shape[1] / frames[0].sample_rate, np.abs(samples).max()


def test_what_plays_is_as_long_and_as_loud_as_in_a_player(tmp_path):
    wrong = {}
    for name, data in PLAYS.items():
        path = tmp_path / "clip"
        path.write_bytes(data)
        try:
            clip, length = media.read_audio(path, max_seconds=10), inspect_clip(data)
        except AudioError as error:
            wrong[name] = str(error)
            continue
        ours = (clip.audio_seconds, float(np.abs(clip.samples).max()), length.audio_seconds)
        seconds, peak = by_player(data)
        # FFmpeg keeps the padding of Vorbis.
        if ours != pytest.approx((seconds, peak, ours[0]), abs=0.03):
            wrong[name] = ours, (seconds, peak)
    assert not wrong


def test_what_is_cut_off_or_empty_is_refused_for_that(tmp_path):
    said = {}
    for name, data in (HALVES | EMPTY).items():
        path = tmp_path / "clip"
        path.write_bytes(data)
        said[name] = []
        for look in (
            lambda path=path: media.read_audio(path, max_seconds=10),
            lambda data=data: inspect_clip(data),
        ):
            with pytest.raises(AudioError) as caught:
                look()
            said[name].append(str(caught.value))
    assert not [name for name in HALVES if "truncated" not in " ".join(said[name])]
    assert not [name for name in EMPTY if not all(words.startswith("no audio: ") for words in said[name])]
