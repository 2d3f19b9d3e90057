"""Bodies of streaming calls: a request to bytes (section 2.2). What comes back is audio and nothing else."""

import json

from speechframe.spec.speech import StreamRequest

__all__ = ["encode_stream"]


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
