"""Clips, and frames of them, for tests of listening tests."""

import numpy as np
import pandas as pd

from speechframe.audio.codec import encode
from speechframe.spec.speech import Format


def tone(pitch_hz=220.0, *, seconds=0.2, rate_hz=16000, level=0.3):
    """Return a WAV file."""
    times = np.arange(round(seconds * rate_hz)) / rate_hz
    return encode(
        (level * np.sin(2 * np.pi * pitch_hz * times)).astype(np.float32), rate_hz, format=Format.WAV
    )


def frame_of(conditions=("ada", "bob"), items=("s1", "s2", "s3"), **fields):
    """Return every item in every condition."""
    return pd.DataFrame(
        {"id": item, "voice_id": name, "audio": tone(200 + 50 * place), **fields}
        for place, name in enumerate(conditions)
        for item in items
    )


def vote_of(plan, trial, given, *, plays=1, **fields):
    """Return the message of a listener who heard everything of a trial."""
    asked = plan["trials"][trial]
    sounds = [one for one in (*asked["slots"], asked["reference"], asked["x"]) if one]
    return {
        "kind": "vote",
        "trial": trial,
        "plays": {one["slot"]: plays for one in sounds},
        "listened_s": {one["slot"]: one["seconds"] for one in sounds},
        "first_play_ms": 1.7e12,
        "voted_ms": 1.7e12 + 5000,
        **given,
        **fields,
    }
