"""Make the sounds of a listening test. They differ only in the properties that listeners judge.

All sounds of a test are mono WAV files of 16 bits, equally loud, with one sample rate and without metadata.
Their lengths are rounded to hundredths of a second. So the size of a file only reveals its length, which is
audible anyway. The sounds are made once, in the test's folder. Their sample rate is the highest rate of the
clips. A lower rate would remove audible detail from some conditions, and a higher rate adds none.

A sound has another name and other last bits in each slot (place on a page) of each listener. Otherwise equal
names or equal bytes would reveal which of two sounds is X.
"""

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from speechframe.audio import codec, measure
from speechframe.audio._samples import fit_length, mix_channels
from speechframe.audio.clip import Clip
from speechframe.audio.codec import Samples
from speechframe.errors import AudioError, StoreError
from speechframe.listening.opaque import read_or_make_secret
from speechframe.listening.private import make_private_file, make_private_folder, write_private
from speechframe.listening.signals import ANCHOR_CUTOFFS_HZ, TARGET_LUFS, apply_low_pass
from speechframe.listening.sources import Material
from speechframe.spec.chosen import CONTENT_TYPES
from speechframe.spec.speech import Format
from speechframe.store.folder import Folder, convert_os_errors
from speechframe.writing.files import parse_json

_SOUNDS_FOLDER, _INDEX_NAME = "stimuli", "index.json"
"""Name of the folder with the sounds in a test's folder, and name of the list of sounds in it."""

_MAX_PEAK = 0.89
"""Highest peak, 1 dB below full scale (1.0). The rest is room for overshoots of players and resamplers."""

_LENGTH_STEP_S = 0.01
"""Step of the lengths in seconds. Exact lengths would reveal the original sample rate of a clip."""

_THREAD_COUNT = 4
"""Number of threads that read clips and write sounds."""

_HEADER_BYTES = 44
"""Length of the header of a WAV file from `codec.encode`."""


@dataclass(frozen=True)
class Sound:
    """A sound of a test and the clip it was made from.

    Parameters
    ----------
    item, condition
        Item (usually the text) and condition (usually the voice) of the sound.
    file
        Name of the file in the folder of sounds.
    audio_seconds
        Length of the sound in seconds.
    source_sha256
        SHA-256 hash of the source clip's audio.
    source_rate_hz, source_lufs
        Sample rate in Hz and loudness in LUFS of the source clip. For an anchor, the loudness is measured
        after the filter.
    gain_db
        Gain that was applied, in dB. A negative gain made the sound softer.
    """

    item: str
    condition: str
    file: str
    audio_seconds: float
    source_sha256: str
    source_rate_hz: int
    source_lufs: float
    gain_db: float


class Stimuli:
    """The sounds of a test in its folder.

    :func:`prepare_sounds` makes the sounds. :func:`open_stimuli` opens existing sounds.

    Attributes
    ----------
    conditions
        The conditions of the clips, then the anchors.
    sounds
        The sounds, by item and condition.
    sample_rate_hz
        Sample rate of all sounds in Hz.
    loudness_lufs
        Loudness of all sounds in LUFS.
    """

    def __init__(
        self, folder: Path, sounds: Iterable[Sound], *, sample_rate_hz: int, loudness_lufs: float
    ) -> None:
        self.folder = folder
        self.sounds = {(sound.item, sound.condition): sound for sound in sounds}
        self.conditions = tuple(dict.fromkeys(condition for _, condition in self.sounds))
        self.sample_rate_hz = sample_rate_hz
        self.loudness_lufs = loudness_lufs
        self._secret = read_or_make_secret(folder)
        self._places: dict[str, Sound] = {}

    def __len__(self) -> int:
        return len(self.sounds)

    def __repr__(self) -> str:
        return (
            f"<Stimuli: {len(self)} sounds at {self.sample_rate_hz:,} Hz, {self.loudness_lufs:.1f} LUFS, "
            f"in {self.folder}>"
        )

    def make_opaque_id(self, item: str, condition: str, *, listener: str, place: str) -> str:
        """Return a name for a sound that does not reveal the sound. The same arguments give the same name.

        Parameters
        ----------
        item, condition
            Item and condition of the sound.
        listener
            Name of the listener.
        place
            Trial and slot in which the sound is played, such as ``3/A``.

        Raises
        ------
        KeyError
            The test does not have this sound.
        """
        if (item, condition) not in self.sounds:
            raise KeyError(f"the test has no sound of {item!r} by {condition!r}")
        name = self._secret.make_name("clip", listener, place)
        self._places[name] = self.sounds[item, condition]
        return name

    def get_seconds(self, opaque_id: str) -> float:
        """Return the length in seconds of the sound with this name."""
        return self._places[opaque_id].audio_seconds

    def read_audio(self, opaque_id: str) -> tuple[bytes, str]:
        """Return the file and the content type of the sound with this name.

        Equal names give equal bytes. Other names of the same sound give other last bits (noise at -92 dB).

        Raises
        ------
        KeyError
            No sound has this name.
        StoreError
            The sound's file cannot be read.
        """
        path = Folder(self.folder).find_path(f"{_SOUNDS_FOLDER}/{self._places[opaque_id].file}")
        with convert_os_errors(path, "reading a sound"):
            data = path.read_bytes()
        frames = np.frombuffer(data, "<i2", offset=_HEADER_BYTES)
        random = np.random.default_rng(int(self._secret.make_name("last bits", opaque_id), 16))
        # The noise cannot overflow, because no peak is higher than _PEAK.
        noisy = frames + random.integers(-1, 2, len(frames), np.int16)
        return data[:_HEADER_BYTES] + noisy.tobytes(), CONTENT_TYPES[Format.WAV]


def prepare_sounds(
    material: Material,
    folder: str | PathLike[str],
    *,
    reference: str | None = None,
    anchors: bool = False,
) -> Stimuli:
    """Return the sounds of a test. Make them in the test's folder if they do not exist.

    Parameters
    ----------
    material
        The clips of the test, with every item in every condition.
    folder
        The test's folder.
    reference
        The condition from which the anchors are made.
    anchors
        Whether to add the anchors of MUSHRA, which are the reference low-passed at 3.5 and at 7 kHz.

    Raises
    ------
    AudioError
        A clip cannot be read, is silent, or cannot be used for anchors. The message names the clip.
    StoreError
        The folder contains the sounds of another test, or cannot be written.

    Examples
    --------
    >>> from functools import partial
    >>> tone = np.sin(np.arange(8000) / 4, dtype=np.float32)
    >>> def clip(volume):
    ...     return Clip(codec.encode(volume * tone, 8000, format=Format.WAV), Format.WAV, 8000)
    >>> clips = {("hello", name): partial(clip, volume) for name, volume in (("a", 0.9), ("b", 0.01))}
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     stimuli = prepare_sounds(Material(("hello",), ("a", "b"), clips, "0"), folder)
    ...     names = [stimuli.make_opaque_id("hello", c, listener="listener-01", place=f"0/{c}") for c in "ab"]
    ...     [len(stimuli.read_audio(name)[0]) for name in names]
    [16044, 16044]
    """
    target = Path(folder)
    tasks = _list_tasks(material, reference if anchors else None)
    with ThreadPoolExecutor(_THREAD_COUNT) as threads:
        found = list(threads.map(_measure, tasks))
        if (target / _SOUNDS_FOLDER / _INDEX_NAME).exists():
            return _refuse_other_sounds(open_stimuli(target), tasks, found)
        return _make_sounds(target, tasks, found, threads)


def open_stimuli(folder: str | PathLike[str]) -> Stimuli:
    """Return the existing sounds of a test.

    Parameters
    ----------
    folder
        The test's folder.

    Raises
    ------
    StoreError
        The folder does not contain sounds, or they cannot be read.
    """
    target = Path(folder)
    path = target / _SOUNDS_FOLDER / _INDEX_NAME
    with convert_os_errors(target, "reading the sounds of a test"):
        text = path.read_bytes()
    try:
        index = parse_json(text)
        sounds = [Sound(**each) for each in index.pop("sounds")]
        return Stimuli(target, sounds, **index)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} cannot be read as a list of sounds ({error}); remove it to make the sounds again"
        ) from error


@dataclass(frozen=True)
class _Task:
    """A sound to make. It is made of the clip of `item` in the condition `made_of`, low-passed if asked."""

    material: Material
    item: str
    condition: str
    made_of: str
    cutoff_hz: float | None = None

    def read_samples(self) -> tuple[Clip, Samples]:
        """Return the clip and its samples, in mono and with the clip's sample rate."""
        try:
            clip = self.material.clips[self.item, self.made_of]()
            samples = mix_channels(clip.samples)
            if self.cutoff_hz is not None:
                samples = apply_low_pass(samples, clip.sample_rate, self.cutoff_hz)
        except (AudioError, StoreError) as error:
            raise type(error)(f"{self.condition!r} of {self.item!r}: {error}") from error
        return clip, samples


@dataclass(frozen=True)
class _ClipMeasures:
    """Sample rate, loudness and peak of a sound before the gain, and the hash of its clip."""

    rate_hz: int
    lufs: float
    peak: float
    sha256: str


def _list_tasks(material: Material, reference: str | None) -> list[_Task]:
    """Return the sounds to make. Anchors are included if `reference` is given."""
    made: dict[str, tuple[str, float | None]] = {name: (name, None) for name in material.conditions}
    if reference is not None:
        made |= {name: (reference, cutoff_hz) for name, cutoff_hz in ANCHOR_CUTOFFS_HZ.items()}
    return [
        _Task(material, item, condition, made_of, cutoff_hz)
        for condition, (made_of, cutoff_hz) in made.items()
        for item in material.items
    ]


def _measure(task: _Task) -> _ClipMeasures:
    """Return sample rate, loudness and peak of a sound, and the hash of its clip."""
    clip, samples = task.read_samples()
    peak = measure.measure_peak(samples)
    if not peak:
        raise AudioError(
            f"{task.condition!r} of {task.item!r}: the clip is silent, so it does not have a loudness; "
            "leave it out or replace it"
        )
    lufs = measure.measure_loudness_lufs(samples, clip.sample_rate)
    return _ClipMeasures(clip.sample_rate, lufs, peak, hashlib.sha256(clip.audio).hexdigest())


def _make_sounds(
    folder: Path, tasks: list[_Task], found: list[_ClipMeasures], threads: ThreadPoolExecutor
) -> Stimuli:
    """Write all sounds and their index, and return them."""
    rate_hz = max(each.rate_hz for each in found)
    # All sounds get the same loudness, at which no peak is higher than _PEAK.
    lufs = min(TARGET_LUFS, *(each.lufs + 20 * float(np.log10(_MAX_PEAK / each.peak)) for each in found))

    def write(place: int, task: _Task, facts: _ClipMeasures) -> Sound:
        _, samples = task.read_samples()
        gain_db = lufs - facts.lufs
        louder = codec.resample(samples * np.float32(10 ** (gain_db / 20)), facts.rate_hz, rate_hz)
        seconds = max(1, round(len(louder) / rate_hz / _LENGTH_STEP_S)) * _LENGTH_STEP_S
        whole = fit_length(louder, codec.convert_seconds_to_frames(seconds, rate_hz))
        name = f"{place + 1:05}.wav"
        make_private_file(folder / _SOUNDS_FOLDER / name)
        (folder / _SOUNDS_FOLDER / name).write_bytes(codec.encode(whole, rate_hz, format=Format.WAV))
        levels = (round(facts.lufs, 3), round(gain_db, 3))
        return Sound(task.item, task.condition, name, round(seconds, 2), facts.sha256, facts.rate_hz, *levels)

    with convert_os_errors(folder, "writing the sounds of a test"):
        # The folder is private, because its index reveals the conditions of a blind test.
        make_private_folder(folder)
        make_private_folder(folder / _SOUNDS_FOLDER)
        sounds = list(threads.map(write, range(len(tasks)), tasks, found))
        index = {
            "sample_rate_hz": rate_hz,
            "loudness_lufs": lufs,
            "sounds": [asdict(each) for each in sounds],
        }
        # The index is written last, so a folder with an index has all sounds.
        write_private(folder / _SOUNDS_FOLDER / _INDEX_NAME, json.dumps(index, indent=1).encode())
    return Stimuli(folder, sounds, sample_rate_hz=rate_hz, loudness_lufs=lufs)


def _refuse_other_sounds(stimuli: Stimuli, tasks: list[_Task], found: list[_ClipMeasures]) -> Stimuli:
    """Return `stimuli`, or raise StoreError if they were made from other clips."""
    wanted = {(task.item, task.condition): facts.sha256 for task, facts in zip(tasks, found, strict=True)}
    if wanted != {place: sound.source_sha256 for place, sound in stimuli.sounds.items()}:
        raise StoreError(
            f"{stimuli.folder} holds the sounds of another test, which are never replaced; choose another "
            "folder"
        )
    return stimuli
