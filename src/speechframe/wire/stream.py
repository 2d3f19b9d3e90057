"""Bodies of streaming calls: a request to bytes (section 2.2). What comes back is audio and nothing else."""

import json
from collections.abc import Mapping

from multidict import MultiMapping

from speechframe.spec.speech import StreamRequest
from speechframe.wire.errors import Clean, one_line

__all__ = ["NO_END", "encode_stream", "tells_its_end", "words_instead"]

NO_END = "the stream may be truncated: its answer has neither a length nor a last chunk"
"""What is wrong with an answer that does not tell its end."""

_WORDS = ("application/json", "text/")
_MAX_KIND_CHARACTERS = 60

# Never the fast writer: these bytes enter request keys, which must not depend on what is installed.
_encoder = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def encode_stream(request: StreamRequest) -> bytes:
    r"""Return the canonical JSON of a request: equal requests give equal bytes, here and in later versions.

    Names are sorted, values that are absent or equal to the document's default are left out, text is UTF-8.

    Examples
    --------
    >>> encode_stream(StreamRequest(text="Grüße", voice_id="greta", model="falcon-2", variation=1))
    b'{"model":"falcon-2","text":"Gr\xc3\xbc\xc3\x9fe","voiceId":"greta"}'
    """
    fields = request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return _encoder.encode(fields).encode()


def tells_its_end(headers: MultiMapping[str]) -> bool:
    """Return whether an early end would be noticed; what lasts until the connection ends is whole or not.

    Examples
    --------
    >>> from multidict import CIMultiDict
    >>> tells_its_end(CIMultiDict({"Transfer-Encoding": "chunked"})), tells_its_end(CIMultiDict())
    (True, False)
    """
    # The last coding is what frames the body; with another one the connection's end does.
    coding = ",".join(headers.getall("Transfer-Encoding", ())).rpartition(",")[2].strip().lower()
    return coding == "chunked" if coding else "Content-Length" in headers


def words_instead(headers: Mapping[str, str], clean: Clean = str) -> str | None:
    """Return in words what a good answer holds that cannot be audio: of raw formats any bytes would pass.

    Parameters
    ----------
    headers
        Of the answer.
    clean
        Masks what must not be shown.

    Examples
    --------
    >>> words_instead({"Content-Type": "text/html"}), words_instead({"Content-Type": "audio/wav"})
    ('the answer is no audio but text/html', None)
    """
    kind = headers.get("Content-Type", "").strip().lower()
    if not kind.startswith(_WORDS):
        return None
    return f"the answer is no audio but {one_line(kind, _MAX_KIND_CHARACTERS, clean)}"
