"""Small listening tests whose every condition has a name that nobody could mistake."""

import numpy as np
import pandas as pd
from scipy import signal

from speechframe.audio.codec import encode
from speechframe.listening.making import make_test
from speechframe.spec.speech import Format

CONDITIONS = ("voice-quartz", "voice-basalt", "human-granite")
ITEMS = ("line-topaz", "line-opal", "line-jade", "line-onyx")
FORMATS = (Format.WAV, Format.FLAC, Format.OGG)
"""As different in size as can be."""


def tone(seconds, rate_hz, pitch_hz, volume):
    times = np.arange(round(seconds * rate_hz)) / rate_hz
    return (volume * signal.sawtooth(2 * np.pi * pitch_hz * times)).astype(np.float32)


def material(seconds=0.3, conditions=CONDITIONS, items=ITEMS):
    """A frame with audio: each condition has a pitch, a volume, a rate and a format of its own."""
    rows = []
    for place, condition in enumerate(conditions):
        rate_hz = (16000, 22050, 24000)[place % 3]
        for number, item in enumerate(items):
            # Lengths go with the items, so that none of them tells a condition.
            samples = tone(seconds + 0.05 * number, rate_hz, 110 * (place + 1), (0.8, 0.05, 0.3)[place % 3])
            audio = encode(samples, rate_hz, format=FORMATS[place % 3])
            rows.append({"voice_id": condition, "line": item, "text": f"utterance {item}", "audio": audio})
    return pd.DataFrame(rows)


def made(folder, method="ab", **options):
    """A test of four trials a listener, one of them for practice."""
    given = {"trials_per_listener": 3, "training": 1, "listeners": 3, "seed": 7, "item": "line"} | options
    if method == "mushra":
        given.setdefault("reference", CONDITIONS[-1])
    return make_test(material(), method, folder=folder, **given)


def begin():
    return {"kind": "begin", "consent": True, "answers": {}}


def vote(plan, trial, *, score=50):
    """A vote as a page sends it, for whatever method."""
    page = plan["trials"][trial]
    slots = [*page["slots"], *(page[name] for name in ("reference", "x") if page[name])]
    said = {
        "kind": "vote",
        "trial": trial,
        "plays": {slot["slot"]: 1 for slot in slots},
        "listened_s": {slot["slot"]: slot["seconds"] for slot in slots},
        "unplayable": [],
        "first_play_ms": 1_700_000_000_000 + trial,
        "voted_ms": 1_700_000_005_000 + trial,
    }
    names = [slot["slot"] for slot in page["slots"]]
    if plan["method"] == "ab":
        return {**said, "choice": names[0]}
    if plan["method"] == "abx":
        return {**said, "answer": names[0]}
    return {**said, "scores": dict.fromkeys(names, 3 if plan["method"] == "mos" else score)}
