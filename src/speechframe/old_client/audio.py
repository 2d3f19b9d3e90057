"""What an answer's audio really is, against what was asked for."""

from functools import lru_cache

from speechframe.audio.codec import AudioInfo, forced_shape, inspect
from speechframe.errors import AudioError, BadAnswer
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.limits import default_sample_rate_hz
from speechframe.spec.speech import ChannelType, Format, GenerateRequest, Model, StreamRequest
from speechframe.wire.errors import Clean, as_it_is

Asked = GenerateRequest | StreamRequest | ConvertRequest
"""What audio may be asked for with."""

_HEAD_BYTES = 4096
_RAW = frozenset({Format.PCM, Format.ALAW, Format.ULAW})
_LENGTH_TOLERANCE_S = 0.25
_LENGTH_TOLERANCE = 0.02


def inspected(
    data: bytes, request: Asked, said_seconds: float | None = None, clean: Clean = as_it_is
) -> tuple[AudioInfo, tuple[str, ...]]:
    """Return what the audio is, and in words where that differs from the request or from the answer.

    Parameters
    ----------
    data
        The encoded audio.
    request
        What was asked for; raw formats say nothing about themselves.
    said_seconds
        The length the answer claims; None where it claims none.
    clean
        Masks what must not be shown.

    Raises
    ------
    BadAnswer
        The bytes are no audio, or audio without a single sample.
    """
    try:
        info = _look_at_raw(data, request) if request.format in _RAW else inspect(data)
    except AudioError as error:
        # Its words show how the bytes begin.
        head = data[:_HEAD_BYTES].decode("latin-1")
        problem = str(error) if clean(head) == head else "it is text"
    else:
        if info.audio_seconds > 0:
            return info, _differences(info, request, said_seconds)
        problem = "it holds no samples"
    raise BadAnswer(f"the audio cannot be read: {problem}")


def _look_at_raw(data: bytes, request: Asked) -> AudioInfo:
    channels, rate_hz = _asked_shape(request)
    try:
        return inspect(data, format=request.format, sample_rate_hz=rate_hz, channels=channels)
    except AudioError as error:
        refused = error
    try:
        # Some services wrap raw samples in a file with a header.
        return inspect(data)
    except AudioError:
        raise refused from None


def _asked_shape(request: Asked) -> tuple[int, int]:
    rate_hz = request.sample_rate
    if rate_hz is None:
        rate_hz = default_sample_rate_hz(getattr(request, "model", None) or Model.FALCON_2)
    return _shape(request.format, request.channel_type, int(rate_hz))


@lru_cache(256)
def _shape(format: Format, channel_type: ChannelType, rate_hz: int) -> tuple[int, int]:
    """Return channels and rate in Hz that are given to whoever asks for these."""
    channel_type, rate_hz = forced_shape(format, channel_type, rate_hz)
    return channel_type.channels, rate_hz


def _differences(info: AudioInfo, request: Asked, said_seconds: float | None) -> tuple[str, ...]:
    channels, rate_hz = _asked_shape(request)
    found = []
    if info.format is not request.format:
        found.append(f"asked for {request.format.value}, got {info.format.value}")
    if info.sample_rate_hz != rate_hz:
        found.append(f"asked for {rate_hz} Hz, got {info.sample_rate_hz} Hz")
    if info.channels != channels:
        asked = forced_shape(request.format, request.channel_type)[0]
        found.append(
            f"asked for {asked.value}, got {info.channels} channel{'s' if info.channels > 1 else ''}"
        )
    if said_seconds is not None:
        off_s = abs(info.audio_seconds - said_seconds)
        if off_s > _LENGTH_TOLERANCE_S and off_s > _LENGTH_TOLERANCE * said_seconds:
            found.append(
                f"the answer says {said_seconds:.2f} s of audio, it holds {info.audio_seconds:.2f} s"
            )
    return tuple(found)
