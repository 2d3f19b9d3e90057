"""Media made on the spot: drawn noise as video, silence with one beep as audio."""

import contextlib
import itertools
from fractions import Fraction

import av
import numpy as np

BEEP_S = 2.0


def film(
    path,
    audio="aac",
    video="libx264",
    *,
    seconds=3.0,
    rate_hz=44100,
    layout="stereo",
    late_s=0.0,
    cover=False,
    **options,
):
    """Write a medium; its audio begins `late_s` late, its frames have B-frames between them and odd times."""
    channels = {"mono": 1, "stereo": 2, "5.1": 6}[layout]
    random = np.random.default_rng(0)
    with av.open(str(path), "w", options=options) as file:
        picture = file.add_stream(video, rate=25, width=96, height=64, pix_fmt="yuv420p") if video else None
        sound = file.add_stream(audio, rate=rate_hz, layout=layout) if audio else None
        art = file.add_stream("mjpeg", width=64, height=64, pix_fmt="yuvj420p") if cover else None
        if art is not None:
            art.disposition = av.stream.Disposition.attached_pic
        if picture is not None:
            picture.codec_context.time_base = Fraction(1, 1000)
            for index in range(round(25 * seconds)):
                frame = av.VideoFrame.from_ndarray(random.integers(0, 255, (64, 96, 3), dtype=np.uint8))
                frame.pts, frame.time_base = 40 * index + 7 * (index % 3), Fraction(1, 1000)
                file.mux(picture.encode(frame))
            file.mux(picture.encode(None))
        if art is not None:
            file.mux(
                [*art.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))), *art.encode(None)]
            )
        if sound is not None:
            samples = np.zeros((round((seconds - late_s) * rate_hz), channels), np.int16)
            at = round((BEEP_S - late_s) * rate_hz)
            beep = 20000 * np.sin(2 * np.pi * 1000 * np.arange(rate_hz // 20) / rate_hz)
            samples[at : at + len(beep)] = beep[:, None]
            for start in range(0, len(samples), rate_hz):
                frame = av.AudioFrame.from_ndarray(
                    samples[start : start + rate_hz].reshape(1, -1), format="s16", layout=layout
                )
                frame.sample_rate, frame.time_base = rate_hz, Fraction(1, rate_hz)
                frame.pts = start + round(late_s * rate_hz)
                file.mux(sound.encode(frame))
            file.mux(sound.encode(None))
    return path


def moving(file):
    """The streams of video that are no cover."""
    return [each for each in file.streams.video if not each.disposition & av.stream.Disposition.attached_pic]


def pictures(path):
    """Return bytes, times, length and kind of every packet of the video."""
    with av.open(str(path)) as file:
        streams = moving(file)
        return [
            (
                bytes(packet),
                packet.pts * packet.time_base,
                packet.duration * packet.time_base,
                packet.is_keyframe,
            )
            for packet in (file.demux(streams[0]) if streams else ())
            if packet.size
        ]


def decoded(path):
    """Return the audio at 48000 Hz, mono, as a player decodes it: by its times, from the first on."""
    with av.open(str(path)) as file:
        stream = file.streams.audio[0]
        converter = av.AudioResampler(format="flt", layout="mono", rate=48000)
        frames = [
            made
            for frame in itertools.chain(file.decode(stream), (None,))
            for made in converter.resample(frame)
        ]
        begun_s = frames[0].time - (
            0.0 if moving(file) else float((stream.start_time or 0) * stream.time_base)
        )
        samples = np.concatenate([frame.to_ndarray().ravel() for frame in frames])
        return np.concatenate([np.zeros(round(begun_s * 48000), np.float32), samples])


def onset_s(samples, rate_hz=48000):
    level = np.abs(np.asarray(samples, np.float64))
    return np.argmax(level > 0.2 * level.max()) / rate_hz


def shifted(source, path, start_s, **options):
    """Write a medium again whose timestamps begin `start_s` later, as recorders write them."""
    with av.open(str(source)) as given, av.open(str(path), "w", options=options) as made:
        streams = {one.index: made.add_stream_from_template(one) for one in given.streams}
        for packet in given.demux():
            if packet.size:
                late = round(start_s / packet.time_base)
                packet.pts, packet.dts = packet.pts + late, packet.dts + late
                packet.stream = streams[packet.stream_index]
                made.mux(packet)
    return path


def joined(path, video, tracks, start_s=0.0, *, tags=(), chapters=(), cover=None, **options):
    """Write the pictures of one film and audio of others as one medium that begins at `start_s`.

    `tracks` are pairs of a film and the language, title and disposition of its audio. `cover` is a film with
    a cover.
    """
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(av.open(str(path), "w", **options))
        made.metadata.update(tags)
        made.set_chapters([
            {"id": at, "start": round(1000 * (start_s + start)), "end": round(1000 * (start_s + end)),
             "time_base": Fraction(1, 1000), "metadata": {"title": title}}
            for at, (start, end, title) in enumerate(chapters)
        ])  # fmt: skip
        copied = []
        for film_path, facts in [*([(video, None)] if video else []), *tracks]:
            given = stack.enter_context(av.open(str(film_path)))
            stream = moving(given)[0] if facts is None else given.streams.audio[0]
            target = made.add_stream_from_template(stream)
            if facts is not None:
                target.metadata.update(language=facts[0], title=facts[1])
                target.disposition = facts[2]
            copied.append((given, stream, target))
        if cover is not None:
            given = stack.enter_context(av.open(str(cover)))
            packet = next(one for one in given.demux(video=0) if one.size)
            if path.suffix == ".mkv":
                made.add_attachment("cover.jpg", "image/jpeg", bytes(packet))
            else:
                packet.stream = made.add_stream_from_template(given.streams.video[0], opaque=True)
                packet.stream.disposition = av.stream.Disposition.attached_pic
                made.mux(packet)
        for given, stream, target in copied:
            for packet in given.demux(stream):
                if packet.size:
                    late = round(start_s / packet.time_base)
                    packet.pts, packet.dts = packet.pts + late, packet.dts + late
                    packet.stream = target
                    made.mux(packet)
    return path


def without_time_scale(path):
    """Set the time scale of each track of an MP4 file to zero."""
    data, at = bytearray(path.read_bytes()), -1
    while (at := data.find(b"mdhd", at + 1)) > 0:
        data[at + 16 : at + 20] = bytes(4)
    path.write_bytes(data)
    return path
