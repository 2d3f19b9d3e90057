"""Limits and regions (sections 4.1 and 8 of the document)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from speechframe.spec.chosen import US_EAST_STREAM_MODEL
from speechframe.spec.fields._enums import Format, Model
from speechframe.spec.fields._range import Range

__all__ = [
    "AUDIO_DURATION",
    "BUFFER_DELAY_MS",
    "BUFFER_SIZE",
    "CHANGER_FORMATS",
    "CHANGER_SAMPLE_RATES_HZ",
    "GENERATE_SAMPLE_RATES_HZ",
    "PITCH",
    "RATE",
    "REGIONS",
    "SOCKET_IDLE_S",
    "STREAM_SAMPLE_RATES_HZ",
    "VARIATION",
    "Pool",
    "Range",
    "Region",
    "default_sample_rate_hz",
]

PITCH = Range(-50, 50, 0)
"""Section 8. The document gives no default; 0 is the voice as it is."""
RATE = Range(-50, 50, 0)
"""Section 8. The document gives no default; 0 is the voice's own speed."""
VARIATION = Range(0, 5, 1)
"""Section 8, Gen2 only."""
AUDIO_DURATION = Range(0.0, inf, 0.0)
"""Seconds, section 8, Gen2 only: no upper end is given, and 0 means "not asked"."""
BUFFER_SIZE = Range(0, 1000, 40)
"""Characters, section 8. The default is ours (chosen: socket-client-frames)."""
BUFFER_DELAY_MS = Range(0, 1000, 300)
"""Milliseconds, section 8. The default is ours (chosen: socket-client-frames)."""

GENERATE_SAMPLE_RATES_HZ = (8000, 24000, 44100, 48000)
"""Section 2.1."""
STREAM_SAMPLE_RATES_HZ = (8000, 16000, 24000, 44100, 48000)
"""Section 2.2."""
CHANGER_SAMPLE_RATES_HZ = (8000, 24000, 44100, 48000)
"""Section 2.5."""
CHANGER_FORMATS = (Format.MP3, Format.WAV, Format.FLAC, Format.ALAW, Format.ULAW)
"""Section 2.5: the voice changer returns neither PCM nor OGG."""

SOCKET_IDLE_S = 180
"""Section 7.5: a WebSocket without traffic is closed with code 1000 after three minutes."""


class Pool(StrEnum):
    """What shares a cap (section 8; chosen: pools): contexts and streams one, everything else the other."""

    STREAMING = "streaming"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Region:
    """A regional address (section 4.1).

    `streaming_concurrency` is None where the document says "region specific" (the global address routes to
    the nearest region, whose own limit then counts). `default_stream_model` of US-East is our choice.
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
"""Regions by our short name, which is the document's placeholder without `_url`, with hyphens."""

_STREAMING = [region.streaming_concurrency for region in REGIONS.values() if region.streaming_concurrency]

LEAST_CONCURRENCY, LARGEST_CONCURRENCY = min(_STREAMING), max(_STREAMING)
"""Streams at once that any region allows, and that one of them does (section 8)."""


def default_sample_rate_hz(model: Model) -> int:
    """Return the sample rate, in Hz, of a stream that asks for none (section 2.2).

    Examples
    --------
    >>> default_sample_rate_hz(Model.FALCON_2), default_sample_rate_hz(Model.GEN2)
    (24000, 44100)
    """
    return 24000 if model is Model.FALCON_2 else 44100
