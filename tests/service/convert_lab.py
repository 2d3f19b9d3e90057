"""Engines that do what a request tells them, installed for a service under test as real plug-ins; and requests."""

import io
import os

import aiohttp
import numpy as np
import soundfile

from speechframe.audio import codec
from speechframe.spec.endpoints import get_endpoint

ENGINES = '''
import os, signal, time
import numpy as np
from speechframe.engines.base import Speech, Transcript, Utterance
from speechframe.errors import EngineError

HERE = os.path.dirname(__file__)


class Mirror:
    """Gives the clip back, turned round in time and a little quieter; its style says how it behaves."""

    name = "mirror"
    version = "1.0"

    def change(self, recording, conversion, *, speak):
        verb = {50: "crash", 49: "vanish", 48: "hang", 47: "raise", 46: "refuse", 45: "wait", 44: "grow"}.get(
            conversion.pitch
        )
        samples = recording.samples[::-1] * 0.5
        if verb == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if verb == "vanish":
            os._exit(0)
        if verb in ("hang", "wait"):
            open(os.path.join(HERE, "begun"), "w").close()
        if verb == "hang":
            time.sleep(3600)
        if verb == "raise":
            raise RuntimeError("a secret inside")
        if verb == "refuse":
            raise EngineError("there is no voice in the clip")
        if verb == "wait":
            while not os.path.exists(os.path.join(HERE, "go")):
                time.sleep(0.01)
        garbage = {
            -50: None,
            -49: Speech(np.full(100, np.nan, np.float32), 24000, ()),
            -48: Speech(np.zeros(0, np.float32), 24000, ()),
            -47: Speech(np.zeros(100, np.float32), -1, ()),
            -46: Speech(np.zeros((4, 4, 4), np.float32), 24000, ()),
            -45: Speech("noise", 24000, ()),
            -44: object(),
        }
        if conversion.pitch in garbage:
            return garbage[conversion.pitch]
        warnings = (repr(conversion),)
        if conversion.rate == 50:
            said = speak(Utterance("hi", conversion.voice_id, conversion.locale))
            warnings = (f"spoke {len(said.samples)} frames",)
        if conversion.audio_duration_s:
            samples = np.resize(samples, round(conversion.audio_duration_s * recording.sample_rate_hz))
        return Speech(samples * (1 + conversion.take / 10), recording.sample_rate_hz, (), warnings)


class Parrot:
    """Recognises how long a clip is, and nothing else; a silent clip has no words."""

    name = "parrot"
    version = "1.0"

    def recognise(self, recording, *, language=None, words=False):
        text = f"{recording.audio_seconds:.1f} seconds" if np.abs(recording.samples).max() > 0 else ""
        return Transcript(text, "en")
'''

POINTS = {
    "changer": "[speechframe.changers]\nmirror = mirror_change:Mirror\n",
    "recogniser": "[speechframe.recognisers]\nparrot = mirror_change:Parrot\n",
}


# A distribution that is found first hides the installed one of its name, and the engines that come with it.
SPEAKER_ALONE = "[speechframe.speakers]\nespeak = speechframe.local.engines.espeak.speaker:EspeakSpeaker\n"


def install(folder, *kinds, alone=False):
    """Put engines of some kinds into `folder`, as a distribution that PYTHONPATH makes known.

    `alone` hides what the package itself has of these kinds.
    """
    if alone:
        own = folder / "speechframe-0.dist-info"
        own.mkdir(parents=True)
        (own / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: speechframe\nVersion: 0\n", encoding="utf-8"
        )
        (own / "entry_points.txt").write_text(SPEAKER_ALONE, encoding="utf-8")
    info = folder / "mirror_change-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "mirror_change.py").write_text(ENGINES, encoding="utf-8")
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: mirror-change\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text("".join(POINTS[kind] for kind in kinds), encoding="utf-8")
    return str(folder)


def with_path(folder):
    """Return PYTHONPATH with `folder` in front of it."""
    return os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))


class Work:
    """What a changer of `install(folder, ...)` is at, where it hangs or waits to be let go."""

    def __init__(self, folder):
        self._begun, self._go = folder / "begun", folder / "go"
        self.again()

    def again(self):
        for mark in (self._begun, self._go):
            mark.unlink(missing_ok=True)

    def begun(self):
        return self._begun.exists()

    def let_go(self):
        self._go.touch()


PATH = get_endpoint("convert").path
CRASH, VANISH, HANG, RAISE, REFUSE, WAIT = 50, 49, 48, 47, 46, 45
"""What the changer of these tests does, by pitch."""
GARBAGE = range(-50, -43)


def clip(seconds=1.0, rate_hz=16000, **options):
    """Return a WAV: a ramp, so that its beginning is not its end."""
    file = io.BytesIO()
    options = {"format": "WAV", **options}
    soundfile.write(
        file, np.linspace(0.1, 0.8, round(seconds * rate_hz), dtype=np.float32), rate_hz, **options
    )
    return file.getvalue()


CLIP = clip()


def form(fields, file=CLIP):
    data = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        data.add_field(name, str(value))
    if file is not None:
        data.add_field("file", io.BytesIO(file), filename="clip.wav", content_type="audio/wav")
    return data


async def convert(http, file=CLIP, *, key=..., headers=None, path=PATH, **fields):
    fields = {"voice_id": "en-US-moody", **fields}
    return await http.ask("POST", path, key=key, headers=headers, data=form(fields, file))


async def heard(http, answer, **raw):
    assert answer.status == 200, answer.body
    fetched = await http.get(answer.json["audio_file"], key=None)
    return codec.decode(fetched.body, **raw)


def no_uploads(service):
    return not [path for path in (service.data / "uploads").rglob("*") if path.is_file()]


# Only what these tests install changes and listens here, whatever else the machine has.
OURS = ["--changer", "mirror", "--recogniser", "parrot"]
