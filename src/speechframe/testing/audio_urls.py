"""Serve audio under the URLs in answers (``audioFile``).

A path contains the shape, the tag and the take of its clip (one audio file). So the service stores no audio.
"""

import re

from speechframe.spec.chosen import content_type
from speechframe.spec.speech import Format
from speechframe.testing import answers
from speechframe.testing.audio import Shape, clip

__all__ = ["AUDIO_PATH", "EXPIRED_PATH", "audio_at", "path_of"]

AUDIO_PATH = "/audio/"
EXPIRED_PATH = "/audio/expired"

_PARTS = re.compile(
    r"/audio/(?P<format>WAV|FLAC)-(?P<rate_hz>\d{4,5})-(?P<channels>[12])-(?P<frames>\d{1,9})"
    r"-(?P<variant>\d)-(?P<tag>[0-9a-f]{16})-(?P<take>\d{1,10})"
)


def path_of(shape: Shape, tag: int, take: int) -> str:
    """Return the URL path of a clip.

    Examples
    --------
    >>> path_of(Shape(Format.WAV, 8000, 1, 2400, 3), tag=255, take=0)
    '/audio/WAV-8000-1-2400-3-00000000000000ff-0'
    """
    return AUDIO_PATH + "-".join((*map(str, shape), f"{tag:016x}", str(take)))


def audio_at(path: str, *, trace: str) -> bytes:
    """Return the answer for a path under `AUDIO_PATH`. The request needs no API key, as with signed links.

    The answer is the audio, 410 for an expired link, or 404 for an unknown path.
    """
    if path.startswith(EXPIRED_PATH):
        return answers.error(410, "the link has expired", trace=trace)
    found = _PARTS.fullmatch(path)
    if found is None:
        return answers.error(404, "no such address", trace=trace)
    numbers = (int(found[name]) for name in ("rate_hz", "channels", "frames", "variant"))
    shape = Shape(Format(found["format"]), *numbers)
    audio = clip(shape, int(found["tag"], 16), int(found["take"]))
    kind = content_type(shape.format, shape.rate_hz, shape.channels)
    return answers.http(200, [audio], trace=trace, content_type=kind)
