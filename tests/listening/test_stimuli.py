"""The sounds of a listening test tell nothing but what they sound like."""

import json
import stat
import struct
from functools import partial

import numpy as np
import pytest
from scipy import signal as scipy_signal

from speechframe.audio.clip import Clip
from speechframe.audio.codec import decode, encode
from speechframe.errors import AudioError, StoreError
from speechframe.listening.opaque import read_or_make_secret
from speechframe.listening.signals import ANCHOR_CUTOFFS_HZ, TARGET_LUFS, apply_low_pass
from speechframe.listening.sources import Material
from speechframe.listening.stimuli import prepare_sounds
from speechframe.spec.speech import Format


def lufs(samples, rate_hz):
    """Measure by the standard's own table: BS.1770-5, filters for 48 kHz, whole blocks only."""
    up = scipy_signal.resample_poly(samples.astype(np.float64), 48000, rate_hz)
    if len(up) < 19200:
        up = np.resize(up, 19200)
    up = scipy_signal.lfilter(
        [1.53512485958697, -2.69169618940638, 1.19839281085285], [1, -1.69065929318241, 0.73248077421585], up
    )
    up = scipy_signal.lfilter([1.0, -2.0, 1.0], [1, -1.99004745483398, 0.99007225036621], up)
    power = np.array([np.mean(up[at : at + 19200] ** 2) for at in range(0, len(up) - 19199, 4800)])
    level = -0.691 + 10 * np.log10(power + 1e-30)
    loud = level > -70
    relative = -0.691 + 10 * np.log10(power[loud].mean()) - 10
    return -0.691 + 10 * np.log10(power[loud & (level > relative)].mean())


def speechlike(seconds, rate_hz, *, seed, volume=0.3, pauses=True):
    """Noise with the spectrum and the rhythm of speech."""
    rng = np.random.default_rng(seed)
    frames = round(seconds * rate_hz)
    low = scipy_signal.lfilter([1.0], [1, -0.9], rng.standard_normal(frames))
    rhythm = 0.05 + np.abs(np.sin(2 * np.pi * 2.1 * np.arange(frames) / rate_hz + seed)) ** 2
    if pauses and seconds > 1:
        rhythm[: round(0.3 * rate_hz)] = 0
    samples = low * rhythm
    return (volume * samples / np.abs(samples).max()).astype(np.float32)


def clip(samples, rate_hz=16000, format=Format.WAV):
    data = encode(samples, rate_hz, format=format)
    return Clip(data, format, rate_hz, channels=1 if samples.ndim == 1 else 2)


def _itself(made):
    return made


def material(**clips):
    """One item, "i", by each of some conditions."""
    return Material(
        ("i",), tuple(clips), {("i", name): partial(_itself, made) for name, made in clips.items()}, "made up"
    )


def wav(stimuli, condition, place="0/A"):
    return stimuli.read_audio(stimuli.make_opaque_id("i", condition, listener="listener-01", place=place))[0]


def heard(stimuli, condition):
    return decode(wav(stimuli, condition))


def test_sounds_of_every_volume_rate_and_length_are_equally_loud(tmp_path):
    shapes = [
        (0.15, 16000, 0.9),
        (0.46, 24000, 0.02),
        (0.9, 22050, 0.3),
        (3.0, 44100, 0.001),
        (2.2, 8000, 0.6),
    ]
    clips = {
        f"c{place}": clip(speechlike(seconds, rate, seed=place, volume=volume), rate)
        for place, (seconds, rate, volume) in enumerate(shapes)
    }
    stimuli = prepare_sounds(material(**clips), tmp_path)
    measured = [lufs(heard(stimuli, name).samples, 44100) for name in clips]
    assert max(measured) - min(measured) < 0.5
    assert np.mean(measured) == pytest.approx(stimuli.loudness_lufs, abs=0.25)
    for (seconds, _, _), sound in zip(shapes, stimuli.sounds.values(), strict=True):
        assert sound.audio_seconds == pytest.approx(seconds, abs=0.005)


def test_one_rate_for_all_the_highest_so_that_nothing_is_taken_away(tmp_path):
    narrow, wide = clip(speechlike(1, 8000, seed=1), 8000), clip(speechlike(1, 24000, seed=2), 24000)
    stimuli = prepare_sounds(material(narrow=narrow, wide=wide), tmp_path)
    assert stimuli.sample_rate_hz == 24000
    assert {heard(stimuli, name).sample_rate_hz for name in ("narrow", "wide")} == {24000}


def test_a_peak_that_would_clip_makes_all_softer_together(tmp_path):
    spiky = speechlike(2, 16000, seed=3, volume=0.05)
    spiky[5000] = 0.9
    stimuli = prepare_sounds(material(spiky=clip(spiky), even=clip(speechlike(2, 16000, seed=4))), tmp_path)
    assert stimuli.loudness_lufs < TARGET_LUFS - 3
    sounds = [heard(stimuli, name).samples for name in ("spiky", "even")]
    assert abs(lufs(sounds[0], 16000) - lufs(sounds[1], 16000)) < 0.5
    assert max(np.abs(samples).max() for samples in sounds) < 0.9


def test_a_file_is_a_plain_header_and_samples_so_its_size_tells_its_length_alone(tmp_path):
    formats = [Format.WAV, Format.FLAC, Format.MP3, Format.OGG]
    clips = {kind.value: clip(speechlike(1.5, 16000, seed=k), 16000, kind) for k, kind in enumerate(formats)}
    stimuli = prepare_sounds(material(**clips), tmp_path)
    for sound in stimuli.sounds.values():
        data = wav(stimuli, sound.condition)
        size = 2 * round(sound.audio_seconds * stimuli.sample_rate_hz)
        assert len(data) == 44 + size
        head = struct.unpack("<4sI4s4sIHHIIHH4sI", data[:44])
        assert head == (b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16, b"data", size)


def test_lengths_do_not_tell_at_which_rate_a_clip_was_made(tmp_path):
    clips = {
        f"at{rate}": clip(speechlike(1.2345, rate, seed=rate), rate) for rate in (8000, 16000, 22050, 24000)
    }
    stimuli = prepare_sounds(material(**clips), tmp_path)
    assert {len(wav(stimuli, name)) for name in clips} == {44 + 2 * 24000 * 123 // 100}


def test_a_sound_has_other_last_bits_at_every_place_and_the_same_ones_at_one(tmp_path):
    stimuli = prepare_sounds(material(a=clip(speechlike(1.5, 16000, seed=1))), tmp_path)
    first, again, other = (wav(stimuli, "a", place) for place in ("0/A", "0/A", "0/X"))
    assert first == again
    assert first != other
    a, b = (decode(data).samples for data in (first, other))
    assert np.abs(a - b).max() < 3 / 32768
    assert 0.2 < np.mean(a[:4000] == 0) < 0.5, "pauses are not digital silence, which some voices have"


def test_anchors_hold_the_reference_up_to_their_frequency_and_nothing_above(tmp_path):
    white = np.random.default_rng(5).standard_normal(48000).astype(np.float32) * 0.1
    stimuli = prepare_sounds(material(human=clip(white, 24000)), tmp_path, reference="human", anchors=True)
    assert stimuli.conditions == ("human", *ANCHOR_CUTOFFS_HZ)
    frequencies, reference = scipy_signal.welch(heard(stimuli, "human").samples, 24000, nperseg=2048)
    for name, cutoff_hz in ANCHOR_CUTOFFS_HZ.items():
        anchor = heard(stimuli, name).samples
        _, power = scipy_signal.welch(anchor, 24000, nperseg=2048)
        ratio = 10 * np.log10(power / reference)
        passed = ratio[(frequencies > 100) & (frequencies < cutoff_hz)]
        assert np.ptp(passed) < 0.4, "flat up to its frequency, but for what the last bits add"
        assert (ratio[frequencies > cutoff_hz + 600] < passed.mean() - 45).all()
        delay = np.argmax(scipy_signal.correlate(anchor, heard(stimuli, "human").samples)) - (len(anchor) - 1)
        assert delay == 0
        assert lufs(anchor, 24000) == pytest.approx(stimuli.loudness_lufs, abs=0.25)


@pytest.mark.parametrize("cutoff_hz", ANCHOR_CUTOFFS_HZ.values())
def test_the_filter_of_an_anchor_keeps_to_the_standard_and_delays_nothing(cutoff_hz):
    impulse = np.zeros(48001, np.float32)
    impulse[24000] = 1
    found = apply_low_pass(impulse, 48000, cutoff_hz)
    assert np.argmax(np.abs(found)) == 24000
    gain = 20 * np.log10(np.abs(np.fft.rfft(found)) + 1e-12)
    frequencies = np.fft.rfftfreq(len(found), 1 / 48000)
    assert np.abs(gain[frequencies <= cutoff_hz]).max() < 0.1
    assert gain[frequencies >= cutoff_hz + 500].max() < -50


def test_a_narrow_reference_has_no_anchors(tmp_path):
    narrow = material(human=clip(speechlike(1, 8000, seed=1), 8000))
    with pytest.raises(AudioError, match=r"'anchor 3.5 kHz' of 'i': .*nothing above 4,000 Hz"):
        prepare_sounds(narrow, tmp_path, reference="human", anchors=True)
    assert prepare_sounds(narrow, tmp_path, reference="human").conditions == ("human",)


def test_names_tell_nothing_and_stay_when_a_test_goes_on(tmp_path):
    source = material(a=clip(speechlike(0.5, 16000, seed=1)))
    first, again, elsewhere = (prepare_sounds(source, tmp_path / name) for name in ("one", "one", "two"))
    places = [(f"listener-{k}", f"{trial}/{slot}") for k in range(12) for trial in range(12) for slot in "AB"]

    def names(stimuli):
        return [stimuli.make_opaque_id("i", "a", listener=who, place=place) for who, place in places]

    assert len(set(names(first))) == len(places)
    assert {len(name) for name in names(first)} == {32}
    assert names(again) == names(first)
    assert not set(names(first)) & set(names(elsewhere)), "the secret is of the folder"
    assert first.read_audio(names(first)[0]) == again.read_audio(names(first)[0])
    assert stat.S_IMODE((tmp_path / "one/secret").stat().st_mode) == 0o600
    with pytest.raises(KeyError, match="no sound of 'i' by 'b'"):
        first.make_opaque_id("i", "b", listener="listener-01", place="0/A")
    with pytest.raises(KeyError):
        first.read_audio("0" * 32)


def test_made_sounds_are_used_again_and_those_of_another_test_refused(tmp_path):
    source = material(a=clip(speechlike(0.5, 16000, seed=1)))
    prepare_sounds(source, tmp_path)
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "stimuli").iterdir())]
    prepare_sounds(source, tmp_path)
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "stimuli").iterdir())] == times
    for other in (material(a=clip(speechlike(0.5, 16000, seed=2))), material(b=source.clips["i", "a"]())):
        with pytest.raises(StoreError, match="another test"):
            prepare_sounds(other, tmp_path)


def test_a_preparation_that_was_killed_is_done_again(tmp_path):
    source = material(a=clip(speechlike(0.5, 16000, seed=1)), b=clip(speechlike(0.5, 16000, seed=2)))
    made = wav(prepare_sounds(source, tmp_path), "b")
    (tmp_path / "stimuli/index.json").unlink()
    (tmp_path / "stimuli/00002.wav").write_bytes(b"RIFF")
    assert wav(prepare_sounds(source, tmp_path), "b") == made


def test_what_cannot_be_heard_is_refused_by_its_names(tmp_path):
    for made in (clip(np.zeros(8000, np.float32)), Clip(b"RIFF no audio", Format.WAV, 16000)):
        with pytest.raises(AudioError, match="'a' of 'i'"):
            prepare_sounds(material(a=made), tmp_path)
    assert not (tmp_path / "stimuli").exists()


def test_stereo_is_heard_as_mono(tmp_path):
    both = np.stack([speechlike(1, 16000, seed=1), speechlike(1, 16000, seed=2)], axis=1)
    assert heard(prepare_sounds(material(a=clip(both)), tmp_path), "a").channels == 1


def test_the_list_of_sounds_says_what_was_done_to_each(tmp_path):
    prepare_sounds(material(a=clip(speechlike(1, 16000, seed=1, volume=0.01))), tmp_path)
    index = json.loads((tmp_path / "stimuli/index.json").read_text())
    (sound,) = index["sounds"]
    assert sound["source_lufs"] + sound["gain_db"] == pytest.approx(index["loudness_lufs"], abs=0.01)
    assert sound["gain_db"] > 10


def test_a_damaged_folder_is_said(tmp_path):
    source = material(a=clip(speechlike(0.5, 16000, seed=1)))
    prepare_sounds(source, tmp_path)
    (tmp_path / "stimuli/index.json").write_text("{}")
    with pytest.raises(StoreError, match="cannot be read as a list of sounds"):
        prepare_sounds(source, tmp_path)
    (tmp_path / "secret").write_text("short")
    with pytest.raises(StoreError, match="damaged"):
        read_or_make_secret(tmp_path)
