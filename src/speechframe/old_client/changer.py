"""Calls of the voice changer (sections 2.5 and 4.2): a clip and fields in, audio out."""

from math import ceil
from typing import Any

from speechframe.errors import AudioError, InvalidRows
from speechframe.old_client.calls import Call, accepted
from speechframe.old_client.clips import upload_of
from speechframe.old_client.limits import Bounds, Timeouts
from speechframe.old_client.upload import Body, Upload
from speechframe.spec.billing import CREDIT, convert_millicredits
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import check
from speechframe.wire.changer import encode_convert

__all__ = ["billed_for", "make_change", "upload_in", "with_clip"]

_OWN_ARGUMENTS = frozenset({"voice_id", "file", "file_url", "multi_native_locale"})


def with_clip(
    request: ConvertRequest,
    upload: Upload,
    *,
    as_base64: bool,
    idempotency_key: str | None = None,
    take: int = 0,
) -> tuple[bytes, Call[ConvertRequest]]:
    """Return what a request asks for, clip included, and the call that sends it.

    Parameters
    ----------
    request
        The request; of its ``file`` only that it is there.
    upload
        The clip.
    as_base64
        How the audio is to be delivered where the request does not say.
    idempotency_key, take
        See :class:`Call`.
    """
    content, form = encode_convert(
        request, upload.sha256, name=upload.name, media_type=upload.media_type, as_base64=as_base64
    )
    return content, Call("convert", request, Body(upload, form), idempotency_key, take)


def make_change(
    audio: Any,
    *,
    voice: str,
    locale: str | None = None,
    take: int = 0,
    idempotency_key: str | None = None,
    **fields: Any,
) -> Call[ConvertRequest]:
    """Return a checked call; see :meth:`speechframe.Client.change_voice`; blocks while the clip is read.

    Raises
    ------
    InvalidRows
        For a value out of range, an unknown field, or a clip that is no audio; ``problems`` lists all.
    """
    given = {"voice_id": voice, "multi_native_locale": locale, **fields, "file": b""}
    request = accepted(check(ConvertRequest, given), ConvertRequest, _OWN_ARGUMENTS)
    try:
        upload = upload_of(audio)
    except AudioError as error:
        line = {"field": "audio", "problem": str(error), "value": "", "allowed": "an audio file"}
        raise InvalidRows([line]) from None
    # Base64 comes beside the URL: the answer needs no second exchange.
    _, call = with_clip(request, upload, as_base64=True, idempotency_key=idempotency_key, take=take)
    return call


def upload_in(call: Call[Any]) -> Upload:
    """Return the clip of a call of the voice changer."""
    assert isinstance(call.body, Body)  # noqa: S101 - for the type: they are made with one
    return call.body.upload


def billed_for(upload: Upload) -> int:
    """Return the characters that changing a clip costs, begun ones whole.

    Examples
    --------
    >>> billed_for(Upload("ab" * 32, 4, 1.01, "audio/wav"))
    16
    """
    return ceil(convert_millicredits(upload.audio_seconds) / CREDIT)


def timeout_s(timeouts: Timeouts, call: Call[Any]) -> float:
    """Return how long an attempt may take: it grows with the clip."""
    upload = upload_in(call)
    return timeouts.clip_s(upload.audio_seconds, upload.size_bytes)


def most_bytes(bounds: Bounds, call: Call[ConvertRequest]) -> tuple[int, int]:
    """Return the largest body and the largest file that can answer a call."""
    return bounds.changed_bytes_for(call.request, upload_in(call).audio_seconds)
