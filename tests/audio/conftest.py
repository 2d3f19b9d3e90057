"""Signals whose pitch, formants and pauses are known because they are made here."""

from collections.abc import Callable

import numpy as np
import pytest

RATE_HZ = 22050
BANDWIDTHS_HZ = (70, 90, 120, 160, 200)


def vowel(f0_hz, formants_hz, seconds=1.0, rate_hz=RATE_HZ, source=(0.98, 0.9)) -> np.ndarray:
    """A pulse train (f0 may be an array, one value a sample) through a chain of resonators.

    The source's poles give it the slope of a real one, -12 dB an octave; fewer make a brighter voice.
    """
    frames = round(seconds * rate_hz)
    f0_hz = np.broadcast_to(f0_hz, frames)
    phase = 2 * np.pi * np.cumsum(f0_hz / rate_hz)
    # A sum of harmonics: pulses on whole samples would be periodic over several periods only.
    harmonics = range(1, int(rate_hz / 2 / f0_hz.min()) + 1)
    signal = sum(np.cos(n * phase) * (n * f0_hz < 0.49 * rate_hz) for n in harmonics)
    for pole in source:
        signal = _recursive(signal, [pole])
    for centre_hz, bandwidth_hz in zip(formants_hz, BANDWIDTHS_HZ, strict=False):
        radius = np.exp(-np.pi * bandwidth_hz / rate_hz)
        signal = _recursive(signal, [2 * radius * np.cos(2 * np.pi * centre_hz / rate_hz), -(radius**2)])
    return (signal / np.abs(signal).max() * 0.5).astype(np.float32)


def _recursive(signal, feedback):
    # Through the filter's impulse response: long enough to have died away.
    response = np.zeros(2048)
    for n in range(len(response)):
        response[n] = (n == 0) + sum(a * response[n - k - 1] for k, a in enumerate(feedback) if n > k)
    size = 1 << (len(signal) + len(response)).bit_length()
    return np.fft.irfft(np.fft.rfft(signal, size) * np.fft.rfft(response, size), size)[: len(signal)]


@pytest.fixture(scope="session")
def make_vowel() -> Callable[..., np.ndarray]:
    return vowel


@pytest.fixture(scope="session")
def speech_like() -> np.ndarray:
    """1.6 s at 22050 Hz: three vowels with gliding pitch, a hiss and pauses between them."""
    noise = np.random.default_rng(7).standard_normal(RATE_HZ // 8) * 0.02
    glide = np.linspace(110, 160, round(0.4 * RATE_HZ))
    pause = np.zeros(RATE_HZ // 10)
    parts = [
        vowel(glide, (500, 1500, 2500), 0.4),
        pause,
        noise,
        vowel(glide[::-1], (300, 2200, 2900), 0.4),
        pause,
        vowel(120.0, (700, 1200, 2600), 0.4),
        np.zeros(round(0.075 * RATE_HZ)),
    ]
    return np.concatenate(parts).astype(np.float32)
