"""Limits and regions (sections 4.1 and 8 of the document)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from speechframe.spec.chosen import US_EAST_STREAM_MODEL
from speechframe.spec.fields._enums import Format, Model
from speechframe.spec.fields._range import Range

PITCH = Range(-50, 50, 0)
"""Range of `pitch` (section 8). The document has no default. 0 is the normal pitch of the voice."""
RATE = Range(-50, 50, 0)
"""Range of `rate` (section 8). The document has no default. 0 is the normal speed of the voice."""
VARIATION = Range(0, 5, 1)
"""Range of `variation` (section 8, Gen2 only)."""
AUDIO_DURATION = Range(0.0, inf, 0.0)
"""Range of `audioDuration` in seconds (section 8, Gen2 only). The document has no maximum. 0 is ignored."""
BUFFER_SIZE = Range(0, 1000, 40)
"""Range of `min_buffer_size` in characters (section 8). We chose the default (socket-client-frames)."""
BUFFER_DELAY_MS = Range(0, 1000, 300)
"""Range of `max_buffer_delay_in_ms` (section 8). We chose the default (socket-client-frames)."""

GENERATE_SAMPLE_RATES_HZ = (8000, 24000, 44100, 48000)
"""Sample rates of generate (section 2.1)."""
STREAM_SAMPLE_RATES_HZ = (8000, 16000, 24000, 44100, 48000)
"""Sample rates of streams (section 2.2)."""
CHANGER_SAMPLE_RATES_HZ = (8000, 24000, 44100, 48000)
"""Sample rates of the voice changer (section 2.5)."""
CHANGER_FORMATS = (Format.MP3, Format.WAV, Format.FLAC, Format.ALAW, Format.ULAW)
"""Formats of the voice changer (section 2.5), which are all formats except PCM and OGG."""

SOCKET_IDLE_S = 180
"""Seconds without traffic after which a WebSocket is closed with code 1000 (section 7.5)."""


class Pool(StrEnum):
    """Groups of calls with a common limit of concurrency (section 8; chosen: pools).

    STREAMING has WebSocket contexts and HTTP streams. OTHER has all other calls with the speech key.
    """

    STREAMING = "streaming"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Region:
    """A region of the service with its own address (section 4.1).

    Attributes
    ----------
    key, name : str
        Our short name, and the name for people.
    placeholder : str
        Placeholder of the address in the document.
    streaming_concurrency : int or None
        Largest number of concurrent streams. None for the global address, because it routes to the nearest
        region, and the limit of that region applies.
    default_stream_model : Model
        Model of a stream that names no model. That of US-East is our choice.
    """

    key: str
    name: str
    placeholder: str
    streaming_concurrency: int | None
    default_stream_model: Model = Model.FALCON_2


REGIONS: dict[str, Region] = {
    region.key: region
    for region in (
        Region("global", "Global (nearest server)", "{global_url}", None),
        Region("us-east", "US-East", "{us_east_url}", 15, US_EAST_STREAM_MODEL),
        Region("us-west", "US-West", "{us_west_url}", 2),
        Region("in", "India", "{in_url}", 2),
        Region("ca", "Canada", "{ca_url}", 2),
        Region("kr", "South Korea", "{kr_url}", 2),
        Region("me", "UAE", "{me_url}", 2),
        Region("jp", "Japan", "{jp_url}", 2),
        Region("au", "Australia", "{au_url}", 2),
        Region("eu-central", "EU (Central)", "{eu_central_url}", 2),
        Region("uk", "UK", "{uk_url}", 2),
        Region("sa-east", "South America (Sao Paulo)", "{sa_east_url}", 2),
    )
}
"""Regions by short name. The name is the placeholder without `_url`, and with hyphens."""

_CONCURRENCIES = sorted(filter(None, (region.streaming_concurrency for region in REGIONS.values())))
MIN_STREAMING_CONCURRENCY, MAX_STREAMING_CONCURRENCY = _CONCURRENCIES[0], _CONCURRENCIES[-1]
"""Smallest and largest limit of concurrent streams over all regions (section 8)."""


def compute_speed(rate: float) -> float:
    """Return the factor of the speed for a `rate`: 50 doubles the speed, and -50 halves it.

    Examples
    --------
    >>> compute_speed(50), compute_speed(0), compute_speed(-50)
    (2.0, 1.0, 0.5)
    """
    return float(2 ** (rate / 50))


def get_default_sample_rate_hz(model: Model) -> int:
    """Return the sample rate in Hz of a stream whose request has no sample rate (section 2.2).

    Examples
    --------
    >>> get_default_sample_rate_hz(Model.FALCON_2), get_default_sample_rate_hz(Model.GEN2)
    (24000, 44100)
    """
    return 24000 if model is Model.FALCON_2 else 44100
