"""Clips whose words are known to the millisecond."""

import numpy as np

from speechframe.audio.clip import Clip
from speechframe.audio.codec import encode
from speechframe.spec.speech import Format


def spoken(words, *, word_s=0.3, gap_s=0.1, format=Format.WAV, rate_hz=8000, pitch_hz=220.0, **fields):
    """Make a clip in which each word is a tone, with silence before each: its times are known exactly.

    `word_s` is the length of every word, or has the length of each.
    """
    lengths_s = [word_s] * len(words) if isinstance(word_s, float | int) else word_s
    gap, tones = round(gap_s * rate_hz), [round(length_s * rate_hz) for length_s in lengths_s]
    samples = np.zeros(sum(tones) + gap * (len(words) + 1), np.float32)
    times, start = [], gap
    for word, tone in zip(words, tones, strict=True):
        samples[start : start + tone] = 0.4 * np.sin(2 * np.pi * pitch_hz * np.arange(tone) / rate_hz)
        times.append((word, round(1000 * start / rate_hz), round(1000 * (start + tone) / rate_hz)))
        start += tone + gap
    data = encode(samples, rate_hz, format=format)
    return Clip(data, format, rate_hz, text=" ".join(words), words=tuple(times), **fields)
