"""Streams that are collected whole (sections 2.2 and 4.1): one request, and all of its audio at once."""

from speechframe.audio.codec import AudioInfo, with_length
from speechframe.errors import AudioError, BadAnswer
from speechframe.old_client.audio import inspected
from speechframe.old_client.calls import Call
from speechframe.old_client.transport import Reply
from speechframe.spec.limits import default_sample_rate_hz
from speechframe.spec.speech import Model, StreamRequest
from speechframe.wire.errors import Clean, as_it_is
from speechframe.wire.stream import NO_END, encode_stream, tells_its_end, words_instead

__all__ = ["whole_audio", "whole_call"]


def whole_call(
    request: StreamRequest, *, idempotency_key: str | None = None, take: int = 0
) -> Call[StreamRequest]:
    """Return the call of a request for a stream that is to be collected whole.

    Model and sample rate are named in it: their defaults differ from region to region, and a call is the
    same wherever it is sent.

    Parameters
    ----------
    request
        The request; without a model it is falcon-2's.
    idempotency_key, take
        See :class:`Call`.

    Examples
    --------
    >>> whole_call(StreamRequest(text="Hello", voice_id="nora")).body
    b'{"model":"falcon-2","sampleRate":24000.0,"text":"Hello","voiceId":"nora"}'
    """
    model = request.model or Model.FALCON_2
    rate_hz = request.sample_rate or float(default_sample_rate_hz(model))
    named = request.model_copy(update={"model": model, "sample_rate": rate_hz})
    return Call("stream", named, encode_stream(named), idempotency_key, take)


def whole_audio(
    reply: Reply, request: StreamRequest, clean: Clean = as_it_is
) -> tuple[bytes, AudioInfo, tuple[str, ...]]:
    """Return the audio of a stream, what it is, and in words where that differs from the request.

    The header of a stream cannot know how long it will be; here it is known, and WAV and FLAC are given it.

    Parameters
    ----------
    reply
        A good answer, read to its end.
    request
        What was asked for; raw formats say nothing about themselves.
    clean
        Masks what must not be shown.

    Raises
    ------
    BadAnswer
        The answer is no audio, or nothing in it says that it is all there.
    """
    if not tells_its_end(reply.headers):
        raise BadAnswer(NO_END)
    if (words := words_instead(reply.headers, clean)) is not None:
        raise BadAnswer(words)
    try:
        audio = with_length(reply.body)
    except AudioError:
        # Raw samples, or nothing that is read here: that is found out below.
        audio = reply.body
    return audio, *inspected(audio, request, clean=clean)
