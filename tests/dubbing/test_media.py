"""Media in and out: what they are, where their sound is, and the same again with other sound."""

import struct
import subprocess
import sys
import time

import av
import numpy as np
import pytest
import soundfile
from tests.dubbing.films import (
    BEEP_S,
    decoded,
    film,
    joined,
    onset_s,
    pictures,
    shifted,
    without_time_scale,
)

from speechframe.audio import media
from speechframe.audio.lengths import inspect_clip, measure_media_seconds
from speechframe.audio.tracks import choose_audio_track
from speechframe.errors import AudioError
from speechframe.local.dubbing.media import (
    build_track_warning,
    extract_audio,
    find_container,
    mux_audio,
    probe_medium,
)
from speechframe.local.dubbing.mix import PlacedLine, mix

KINDS = {
    "a.mp4": {},
    "late.mp4": {"late_s": 0.5, "layout": "5.1", "rate_hz": 48000},
    "a.mov": {"layout": "mono"},
    "late.mkv": {"late_s": 0.5},
    "a.webm": {"audio": "libopus", "video": "libvpx", "rate_hz": 48000},
    "a.m4a": {"video": None, "rate_hz": 22050},
    "a.mp3": {"audio": "libmp3lame", "video": None, "cover": True},
    "a.wav": {"audio": "pcm_s16le", "video": None, "layout": "mono", "rate_hz": 8000},
    "a.flac": {"audio": "flac", "video": None},
}


def refused(path, *, max_seconds=60.0):
    begun = time.monotonic()
    with pytest.raises(AudioError) as caught:
        probe_medium(path, max_seconds=max_seconds)
    assert time.monotonic() - begun < 2
    return str(caught.value)


def header_s(path):
    with av.open(str(path)) as file:
        return file.duration / av.time_base


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", KINDS)
def test_a_medium_with_other_audio_is_otherwise_the_same(tmp_path, name):
    source = film(tmp_path / name, **KINDS[name])
    seconds, container = probe_medium(source, max_seconds=60), find_container(source)
    assert container == source.suffix[1:]
    assert seconds == pytest.approx(3.0, abs=0.04)

    track = extract_audio(source, tmp_path)
    sound, rate_hz = soundfile.read(track.sound_path, always_2d=True)
    assert (rate_hz, sound.shape[1]) == (48000, 1 if KINDS[name].get("layout") == "mono" else 2)
    assert track.seconds == pytest.approx(seconds, abs=1e-4)
    assert len(track.speech) / 16000 == pytest.approx(track.seconds, abs=1e-4)
    assert onset_s(sound[:, 0]) == pytest.approx(BEEP_S, abs=0.005)
    assert onset_s(track.speech, 16000) == pytest.approx(BEEP_S, abs=0.005)

    mix(track, [], tmp_path / "mixed.wav", lowered=[])
    target = tmp_path / f"dubbed.{container}"
    mux_audio(source, tmp_path / "mixed.wav", target, language="de", container=container)
    assert find_container(target) == container
    assert header_s(target) == pytest.approx(header_s(source), abs=0.04), "within a frame"
    assert probe_medium(target, max_seconds=60) == pytest.approx(seconds, abs=0.04)
    assert pictures(target) == pictures(source)
    assert onset_s(decoded(target)) == pytest.approx(BEEP_S, abs=0.005), "no encoder delay is heard"
    with av.open(str(target)) as file:
        code = file.streams.audio[0].metadata.get("language") or file.metadata["language"]
        assert code in {"deu", "ger"}
        has_video, has_cover = (bool(KINDS[name].get(one, one == "video")) for one in ("video", "cover"))
        assert len(file.streams) == 1 + has_video + has_cover
    assert not list(tmp_path.glob(".*")), "what is being written beside its place is gone"


@pytest.mark.parametrize(
    ("name", "front"),
    [
        *(("a.mp4", b"\0\0\0\x18" + box + bytes(16)) for box in (b"free", b"skip", b"wide", b"uuid")),
        ("a.mp3", bytes(500)),
        ("a.mp3", b"APETAGEX" + bytes(24)),
        ("a.flac", b"ID3\x04\0\0\0\0\x02\0" + bytes(256)),
        ("rf64.wav", b""),
    ],
)
def test_a_container_is_told_whatever_stands_in_front(tmp_path, name, front):
    path = film(tmp_path / name, **KINDS.get(name, {**KINDS["a.wav"], "rf64": "always"}))
    path.write_bytes(front + path.read_bytes())
    assert find_container(path) == path.suffix[1:]


def test_what_a_player_goes_by_is_kept(tmp_path):
    source = tmp_path / "turned.mp4"
    with (
        av.open(
            str(film(tmp_path / "a.mp4", "aac", "libx265", **{"x265-params": "log-level=none"}))
        ) as given,
        av.open(str(source), "w") as made,
    ):
        video = made.add_stream_from_template(given.streams.video[0], opaque=True)
        audio = made.add_stream_from_template(given.streams.audio[0])
        video.codec_context.codec_tag = "hvc1"
        video.set_display_rotation(90)
        for packet in given.demux():
            if packet.size:
                packet.stream = video if packet.stream.type == "video" else audio
                made.mux(packet)
    mix(extract_audio(source, tmp_path), [], tmp_path / "mixed.wav", lowered=[])
    mux_audio(source, tmp_path / "mixed.wav", tmp_path / "out.mp4", language="en", container="mp4")
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert file.streams.video[0].codec_context.codec_tag == "hvc1"
        assert next(file.decode(video=0)).rotation == 90


def _mvhd(data):
    at = data.index(b"mvhd") + 4
    ticks = struct.unpack_from(">I", data, at + 12)[0]
    struct.pack_into(">I", data, at + 16, 36000 * ticks)


def _duration(data):
    struct.pack_into(">d", data, data.index(b"\x44\x89\x88") + 3, 36e6)


def _data(data):
    struct.pack_into("<I", data, data.index(b"data") + 4, 36000 * 32000)


def _streaminfo(data):
    frames = 36000 * 44100
    data[21] = (data[21] & 0xF0) | (frames >> 32)
    data[22:26] = (frames & 0xFFFFFFFF).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("name", "changed"),
    [("a.mp4", _mvhd), ("late.mkv", _duration), ("a.wav", _data), ("a.flac", _streaminfo)],
)
def test_a_header_that_claims_ten_hours_is_refused_at_once(tmp_path, name, changed):
    path = film(tmp_path / name, **KINDS[name])
    data = bytearray(path.read_bytes())
    changed(data)
    path.write_bytes(data)
    assert "truncated" in refused(path, max_seconds=1e6)


@pytest.mark.parametrize("name", ["a.mp4", "late.mkv", "a.m4a"])
def test_a_medium_that_begins_late_is_no_longer_for_it_and_its_dub_begins_at_zero(tmp_path, name):
    plain = film(tmp_path / "plain.mp4", **KINDS[name])
    source = shifted(plain, tmp_path / name, 1867.0)
    seconds = probe_medium(source, max_seconds=60)
    assert seconds == pytest.approx(3.0, abs=0.1)
    assert measure_media_seconds(source) == measure_media_seconds(source.read_bytes()) == seconds

    track = extract_audio(source, tmp_path)
    assert track.seconds == pytest.approx(seconds, abs=1e-4)
    assert onset_s(track.speech, 16000) == pytest.approx(BEEP_S, abs=0.05), "give or take the priming of AAC"
    mix(track, [], tmp_path / "mixed.wav", lowered=[])
    target, container = tmp_path / f"dubbed.{source.suffix[1:]}", source.suffix[1:]
    mux_audio(source, tmp_path / "mixed.wav", target, language="de", container=container)
    assert header_s(target) == pytest.approx(3.0, abs=0.1)
    assert [one[0] for one in pictures(target)] == [one[0] for one in pictures(plain)]
    assert onset_s(decoded(target)) == pytest.approx(BEEP_S, abs=0.05), "give or take the priming of AAC"
    if pictures(target):
        assert pictures(target)[0][1] == pytest.approx(pictures(plain)[0][1], abs=0.03), "lips stay in step"


FRENCH, ENGLISH, GERMAN = ("fre", "Commentaire", 0), ("eng", "Film", 1), ("ger", "Film", 0)


@pytest.fixture(scope="module")
def babel(tmp_path_factory):
    """An MKV from 10 s with a French comment in front of the English track, which begins 0.5 s late."""
    folder = tmp_path_factory.mktemp("babel")
    plain = film(folder / "plain.mp4")
    late, other = film(folder / "late.mp4", late_s=0.5, layout="mono"), film(folder / "other.mp4", late_s=1.0)
    tracks = [(other, FRENCH), (late, ENGLISH), (plain, GERMAN)]
    return joined(folder / "babel.mkv", plain, tracks, 10.0), plain


def test_the_sound_of_a_dub_stays_in_step_with_its_pictures_wherever_they_begin(babel, tmp_path):
    source, plain = babel
    track = extract_audio(source, tmp_path, locale="en-US")
    assert onset_s(track.speech, 16000) == pytest.approx(BEEP_S, abs=0.03), (
        "times count from the first picture"
    )
    assert track.seconds == pytest.approx(probe_medium(source, max_seconds=60), abs=1e-4)
    soundfile.write(tmp_path / "line.wav", np.full(2400, 0.9), 24000)
    mix(track, [PlacedLine(1.0, tmp_path / "line.wav")], tmp_path / "mixed.wav", lowered=[(0.0, 3.0)])
    mux_audio(source, tmp_path / "mixed.wav", tmp_path / "out.mkv", language="de", container="mkv")
    assert onset_s(decoded(tmp_path / "out.mkv")) == pytest.approx(1.0, abs=0.005)
    # The first picture comes a moment after the start, which is the priming of AAC.
    picture_s = float(pictures(tmp_path / "out.mkv")[0][1])
    assert picture_s == pytest.approx(pictures(plain)[0][1], abs=0.03)
    assert onset_s(track.speech, 16000) - picture_s == pytest.approx(BEEP_S, abs=0.005)
    # The voice changer has the same time.
    clip = media.read_audio(source, max_seconds=60)
    assert onset_s(clip.samples, clip.sample_rate_hz) - picture_s == pytest.approx(BEEP_S, abs=0.005)
    assert clip.audio_seconds == pytest.approx(inspect_clip(source.read_bytes()).audio_seconds, abs=1e-6)


def test_the_track_in_the_language_or_else_the_default_one_is_dubbed_and_named(babel):
    source, plain = babel
    with media.open_container(source) as file:
        chosen = [
            choose_audio_track(file, locale).index for locale in ("fr-FR", "en", "de-AT", "pt-BR", None)
        ]
    assert chosen == [1, 2, 3, 2, 2]
    assert build_track_warning(plain) is None
    assert build_track_warning(source, locale="de-AT") == (
        "the media file has 3 audio tracks (1: fre 'Commentaire', 2: eng 'Film', 3: ger 'Film'); track 3, in "
        "the language of de-AT, was dubbed. To use another one, give its language as source_locale"
    )
    assert "track 2, the default or first one, was dubbed" in build_track_warning(source, locale="pt-BR")
    with media.open_media(source, max_seconds=60) as opened:
        assert "track 2, the default or first one, was read" in opened.warning


# Name, form of the container, and when the medium begins.
TAGGED = {
    "a.mp4": ({}, 0.0),
    "a.mkv": ({}, 10.0),
    "a.webm": ({}, 0.0),
    "a.m4a": ({"format": "mp4", "options": {"brand": "M4A "}}, 0.0),
    "a.mp3": ({}, 0.0),
    "a.flac": ({}, 0.0),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TAGGED)
def test_a_dub_keeps_title_chapters_and_cover(tmp_path, name):
    options, start_s = TAGGED[name]
    has_cover, has_chapters = name != "a.webm", name != "a.flac"
    cover = film(tmp_path / "cover.mp3", **KINDS["a.mp3"])
    plain_name = "plain.mp4" if name == "a.mkv" else f"plain{name[1:]}"
    plain = film(tmp_path / plain_name, **{**KINDS.get(name, {}), "cover": False})
    # The copied pictures of WebM have no rate, as those of a browser's recorder.
    source = joined(
        tmp_path / name, plain if "video" not in KINDS.get(name, {}) or name == "a.webm" else None,
        [(plain, ENGLISH)], start_s, tags={"title": "A film", "artist": "Somebody"},
        chapters=[(0, 1, "One"), (1, 3, "Two")], cover=cover if has_cover else None, **options,
    )  # fmt: skip
    mix(extract_audio(source, tmp_path), [], tmp_path / "mixed.wav", lowered=[])
    target = tmp_path / f"dubbed{name[1:]}"
    assert mux_audio(source, tmp_path / "mixed.wav", target, language="de", container=name[2:]) is None
    assert find_container(target) == name[2:]
    with av.open(str(target)) as file, av.open(str(cover)) as original:
        tags = {key.lower(): value for key, value in file.metadata.items()}
        assert (tags["title"], tags["artist"]) == ("A film", "Somebody")
        times = [
            (round(one["start"] * one["time_base"], 1), one["metadata"]["title"]) for one in file.chapters()
        ]
        assert times == [(0, "One"), (1, "Two")] * has_chapters
        art = [one for one in file.streams.video if one.disposition & av.stream.Disposition.attached_pic]
        assert len(art) == has_cover
        if has_cover:
            packets = (
                next(one for one in each if one.size) for each in (file.demux(art), original.demux(video=0))
            )
            assert len(set(map(bytes, packets))) == 1


def test_what_a_dub_leaves_out_is_named(tmp_path):
    source = joined(tmp_path / "a.mkv", film(tmp_path / "a.mp4"), [(tmp_path / "a.mp4", ENGLISH)])
    with av.open(str(source)) as given, av.open(str(tmp_path / "b.mkv"), "w") as made:
        streams = {one.index: made.add_stream_from_template(one) for one in given.streams}
        made.add_attachment("font.ttf", "font/ttf", b"a font")
        for packet in given.demux():
            if packet.size:
                packet.stream = streams[packet.stream_index]
                made.mux(packet)
    mix(extract_audio(tmp_path / "b.mkv", tmp_path), [], tmp_path / "mixed.wav", lowered=[])
    how = {"language": "de", "container": "mkv"}
    words = mux_audio(tmp_path / "b.mkv", tmp_path / "mixed.wav", tmp_path / "c.mkv", **how)
    assert words == "the dub is without 1 attachment of the medium"


@pytest.mark.parametrize("name", ["a.mp4", "a.m4a"])
def test_a_medium_without_a_time_scale_has_no_length_and_is_refused(tmp_path, name):
    path = without_time_scale(film(tmp_path / name, **KINDS[name]))
    assert "it has no time scale" in refused(path, max_seconds=1e6)
    with pytest.raises(AudioError, match="no time scale"):
        measure_media_seconds(path)


def test_without_the_extra_sound_is_counted_and_a_container_is_refused_with_the_command(
    tmp_path, monkeypatch
):
    film_path, sound = film(tmp_path / "a.mp4"), film(tmp_path / "a.flac", **KINDS["a.flac"])
    measured_s = measure_media_seconds(sound)
    monkeypatch.setitem(sys.modules, "av", None)
    assert measure_media_seconds(sound) == pytest.approx(measured_s, abs=1e-6)
    for medium in (film_path, film_path.read_bytes()):
        with pytest.raises(AudioError, match=r"pip install 'speechframe\[media\]'"):
            measure_media_seconds(medium)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KINDS)
def test_what_is_cut_off_is_refused(tmp_path, name):
    path = film(tmp_path / name, **KINDS[name])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(path)


@pytest.mark.parametrize("options", [{"movflags": "faststart"}, {"movflags": "frag_keyframe+empty_moov"}])
def test_mp4_that_is_cut_off_behind_its_index_is_refused(tmp_path, options):
    path = film(tmp_path / "a.mp4", **options)
    assert probe_medium(path, max_seconds=60) == pytest.approx(3.0, abs=0.2)
    path.write_bytes(path.read_bytes()[: int(0.9 * path.stat().st_size)])
    assert "truncated" in refused(path)


def test_what_cannot_be_dubbed_says_why(tmp_path):
    path = tmp_path / "upload.mp4"
    path.write_bytes(b"")
    assert refused(path) == "no audio: the file is empty"
    path.write_bytes(b"A letter, and not a film. " * 400)
    assert refused(path) == "no audio that can be read"
    assert refused(film(path, None)) == "no audio: the file has no audio stream"
    assert (
        refused(film(path), max_seconds=2)
        == "the medium is 3 seconds long; allowed: at most 2; divide the medium"
    )
    assert refused(film(tmp_path / "a.ogg", "libopus", None, rate_hz=48000)).startswith(
        "ogg files cannot be dubbed; allowed: mp4, "
    )


def test_a_video_that_its_container_does_not_take_says_so_and_leaves_nothing(tmp_path):
    source, mixed = film(tmp_path / "a.mp4"), tmp_path / "mixed.wav"
    soundfile.write(mixed, np.zeros((48000, 2)), 48000)
    before = {*tmp_path.iterdir()}
    with pytest.raises(AudioError, match="cannot be copied into another webm file"):
        mux_audio(source, mixed, tmp_path / "out.webm", language="en", container="webm")
    assert {*tmp_path.iterdir()} == before


def _long_film(path, minutes):
    """Write hours in seconds: few frames of video, and audio that is encoded once and repeated."""
    random = np.random.default_rng(0)
    with av.open(str(path), "w") as file:
        picture = file.add_stream("mpeg4", rate=25, width=64, height=64, pix_fmt="yuv420p")
        sound = file.add_stream("pcm_s16le", rate=48000, layout="stereo")
        frame = av.VideoFrame.from_ndarray(random.integers(0, 255, (64, 64, 3), dtype=np.uint8))
        still = bytes(next(iter([*picture.encode(frame), *picture.encode(None)])))
        second = np.zeros((48000, 2), np.int16)
        second[:4800] = random.integers(-9000, 9000, (4800, 2))
        for at in range(minutes * 60):
            for index in range(25):
                packet = av.Packet(still)
                packet.stream, packet.time_base = picture, picture.codec_context.time_base
                packet.pts = packet.dts = at * 25 + index
                packet.duration, packet.is_keyframe = 1, True
                file.mux(packet)
            frame = av.AudioFrame.from_ndarray(second.reshape(1, -1), format="s16", layout="stereo")
            frame.sample_rate, frame.pts = 48000, at * 48000
            file.mux(sound.encode(frame))
    return path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_quarters_of_an_hour_take_no_more_memory_than_a_minute_and_loses_no_frame(tmp_path):
    # The high-water mark of a process of its own: what libraries allocate counts too.
    script = """
import sys
from pathlib import Path
from speechframe.local.dubbing.media import extract_audio, mux_audio, probe_medium
from speechframe.local.dubbing.mix import PlacedLine, mix
import av, soundfile, soxr
def peak_mb():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
source, line, folder = map(Path, sys.argv[1:])
before = peak_mb()
probe_medium(source, max_seconds=1e5)
track = extract_audio(source, folder)
lines = [PlacedLine(start, line) for start in range(0, 2690, 20)]
mix(track, lines, folder / "mixed.wav", lowered=[(start, start + 2) for start in range(0, 2690, 20)])
mux_audio(source, folder / "mixed.wav", folder / "dubbed.mkv", language="en", container="mkv")
print(peak_mb() - before)
"""
    source, line = _long_film(tmp_path / "long.mkv", 45), tmp_path / "line.wav"
    soundfile.write(line, 0.3 * np.sin(np.arange(48000) / 20), 24000)
    done = subprocess.run(
        [sys.executable, "-c", script, source, line, tmp_path], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 60
    assert header_s(tmp_path / "dubbed.mkv") == pytest.approx(header_s(source), abs=0.04)
    assert pictures(tmp_path / "dubbed.mkv") == pictures(source)
