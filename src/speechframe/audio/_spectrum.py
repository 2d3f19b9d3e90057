"""Conversion of signals to a lower rate for analysis. `codec.resample` resamples audio for listeners."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def limit_band(signal: Array, rate_in_hz: float, rate_out_hz: float) -> tuple[Array, float]:
    """Return a signal at about `rate_out_hz`, and the exact rate. A signal with a lower rate is unchanged.

    The function drops the upper part of the spectrum, and so needs only numpy.

    Examples
    --------
    >>> quiet, rate_hz = limit_band(np.zeros(16384), 16000, 10000)
    >>> len(quiet), round(rate_hz)
    (10240, 10000)
    """
    if rate_in_hz <= rate_out_hz:
        return signal, float(rate_in_hz)
    size_in = 1 << max(10, (len(signal) - 1).bit_length())
    size_out = 2 * round(size_in * rate_out_hz / rate_in_hz / 2)
    spectrum = np.fft.rfft(signal, size_in)[: size_out // 2 + 1]
    rate_hz = rate_in_hz * size_out / size_in
    lowered = np.fft.irfft(spectrum, size_out) * (size_out / size_in)
    return lowered[: max(1, round(len(signal) * rate_hz / rate_in_hz))], rate_hz
