"""Engines that do what a request tells them, installed for a service under test as real plug-ins."""

import os

ENGINES = '''
import os, signal, time
import numpy as np
from speechframe.engines.base import Speech, Transcript, Utterance
from speechframe.errors import EngineError


class Mirror:
    """Gives the clip back, turned round in time and a little quieter; its style says how it behaves."""

    name = "mirror"
    version = "1.0"

    def change(self, recording, conversion, *, speak):
        verb = {50: "crash", 49: "vanish", 48: "hang", 47: "raise", 46: "refuse", 45: "sleep", 44: "grow"}.get(
            conversion.pitch
        )
        samples = recording.samples[::-1] * 0.5
        if verb == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if verb == "vanish":
            os._exit(0)
        if verb == "hang":
            time.sleep(3600)
        if verb == "raise":
            raise RuntimeError("a secret inside")
        if verb == "refuse":
            raise EngineError("there is no voice in the clip")
        if verb == "sleep":
            time.sleep(0.7)
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
SPEAKER_ALONE = "[speechframe.speakers]\nespeak = speechframe.engines.espeak:EspeakSpeaker\n"


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
