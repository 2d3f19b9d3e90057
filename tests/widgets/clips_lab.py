"""Clips whose words are known to the millisecond."""

import numpy as np

from speechframe.audio.codec import encode
from speechframe.batch.clip import Clip
from speechframe.spec.speech import Format


def spoken(words, *, word_s=0.3, gap_s=0.1, format=Format.WAV, rate_hz=8000, pitch_hz=220.0, **fields):
    """Make a clip in which each word is a tone, with silence before each: its times are known exactly."""
    step, tone = round((word_s + gap_s) * rate_hz), round(word_s * rate_hz)
    samples = np.zeros(step * len(words) + round(gap_s * rate_hz), np.float32)
    times = []
    for k, word in enumerate(words):
        start = round(gap_s * rate_hz) + k * step
        samples[start : start + tone] = 0.4 * np.sin(2 * np.pi * pitch_hz * np.arange(tone) / rate_hz)
        times.append((word, round(1000 * start / rate_hz), round(1000 * (start + tone) / rate_hz)))
    data = encode(samples, rate_hz, format=format)
    return Clip(data, format, rate_hz, text=" ".join(words), words=tuple(times), **fields)
