"""Serve audio under the URLs in answers (``audioFile``).

A path contains the shape, the tag and the take of its clip (one audio file). So the service stores no audio.
"""

import re

from speechframe.spec.chosen import make_content_type
from speechframe.spec.speech import Format
from speechframe.testing import answers
from speechframe.testing.audio import Shape, make_clip

AUDIO_PATH = "/audio/"
EXPIRED_PATH = "/audio/expired"

_CLIP_PATH_PATTERN = re.compile(
    r"/audio/(?P<format>WAV|FLAC)-(?P<rate_hz>\d{4,5})-(?P<channels>[12])-(?P<frames>\d{1,9})"
    r"-(?P<variant>\d)-(?P<tag>[0-9a-f]{16})-(?P<take>\d{1,10})"
)


def make_clip_path(shape: Shape, tag: int, take: int) -> str:
    """Return the URL path of a clip.

    Examples
    --------
    >>> make_clip_path(Shape(Format.WAV, 8000, 1, 2400, 3), tag=255, take=0)
    '/audio/WAV-8000-1-2400-3-00000000000000ff-0'
    """
    return AUDIO_PATH + "-".join((*map(str, shape), f"{tag:016x}", str(take)))


def answer_audio_request(path: str, *, trace: str) -> bytes:
    """Return the answer for a path under `AUDIO_PATH`. The request needs no API key, as with signed links.

    The answer is the audio, 410 for an expired link, or 404 for an unknown path.
    """
    if path.startswith(EXPIRED_PATH):
        return answers.make_error_answer(410, "the link has expired", trace=trace)
    found = _CLIP_PATH_PATTERN.fullmatch(path)
    if found is None:
        return answers.make_error_answer(404, "no such address", trace=trace)
    numbers = (int(found[name]) for name in ("rate_hz", "channels", "frames", "variant"))
    shape = Shape(Format(found["format"]), *numbers)
    audio = make_clip(shape, int(found["tag"], 16), int(found["take"]))
    kind = make_content_type(shape.format, shape.rate_hz, shape.channels)
    return answers.make_http_answer(200, [audio], trace=trace, content_type=kind)
