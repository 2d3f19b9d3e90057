"""How long and how much: time limits that grow with the text, and sizes no answer may pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import PAUSE_SECONDS
from speechframe.spec.speech import ChannelType, GenerateRequest, StreamRequest

KIB = 1024
MIB = 1024 * KIB

_SECONDS_A_CHARACTER = 1.0
"""Speech takes about 0.07 s a character; slowed down, of a script with a word a character, perhaps 0.6."""
_GRACE_S = 30.0
_FRAME_BYTES = ChannelType.STEREO.channels * 2
_LONGEST_S = 86_400.0
_JSON_BYTES_A_CHARACTER = 1000
"""Words with their times and the fields nobody reads."""
_JSON_BYTES_A_SECOND = 1000
"""A transcription."""
_LARGEST_OFFER = 100_000
_SLOWEST = 4.0
"""A changed voice at the lowest rate takes perhaps half as long again; some services are slower."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds.

    Parameters
    ----------
    connect_s
        TCP and TLS together; name lookup and waiting for a free connection count into the attempt alone.
    base_s, per_character_s
        An attempt may take ``base_s + per_character_s * characters``: speech takes about 0.07 s a
        character, so a service that synthesises as slowly as it speaks still gets through.
    per_clip_second_s, upload_bytes_a_second
        An attempt with a clip may take ``base_s``, so much for each second of it, and its upload at so slow
        a rate; so may a message to a WebSocket.
    per_translated_character_s
        The same for a translation: a small machine that goes through a third language takes a few
        milliseconds a character, and a call may wait behind others.
    download_s
        One try at fetching audio that came as a URL; counted apart, since the call was billed by then.

    Examples
    --------
    >>> round(Timeouts().attempt_s(5000))
    380
    """

    connect_s: float = 10.0
    base_s: float = 30.0
    per_character_s: float = 0.07
    per_clip_second_s: float = 2.5
    upload_bytes_a_second: float = 64 * KIB
    per_translated_character_s: float = 0.02
    download_s: float = 60.0

    def attempt_s(self, characters: int) -> float:
        """Return how long an attempt for a text of `characters` may take, without a download."""
        return self.base_s + self.per_character_s * characters

    def clip_s(self, audio_seconds: float, size_bytes: int) -> float:
        """Return how long an attempt with a clip of this length and size may take, without a download."""
        upload_s = size_bytes / self.upload_bytes_a_second
        return self.base_s + self.per_clip_second_s * audio_seconds + upload_s

    def message_s(self, size_bytes: int) -> float:
        """Return how long a WebSocket may take to take a message of this size."""
        return self.base_s + size_bytes / self.upload_bytes_a_second

    def stream_s(self, request: StreamRequest) -> float:
        """Return how long all waits for a stream's audio may take together: as long as it can be heard."""
        return self.speech_s(request.text)

    def speech_s(self, text: str) -> float:
        """Return how long all waits for the audio of a text may take together."""
        return self.base_s + _longest_s(text)

    def translation_s(self, characters: int) -> float:
        """Return how long an attempt for texts of `characters` together may take."""
        return self.base_s + self.per_translated_character_s * characters


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest answers in bytes; a longer one is cut off and refused, compressed or not.

    Parameters
    ----------
    answer_bytes
        The body of an answer with audio, Base64 audio included. One call's bound is lower still: no more than
        its text or clip can fill (:meth:`answer_bytes_for`, :meth:`stream_bytes_for`,
        :meth:`changed_bytes_for`). The longest text of a script with a syllable a character, a quarter of a
        second each, fills 305 MiB as Base64 of stereo at 48,000 Hz.
    listing_bytes
        Any other body with status 200.
    error_bytes
        The body of an error answer; a longer one is read no further, and its status counts.
    download_bytes
        Audio fetched from a URL; one call's bound is lower, as above.

    Examples
    --------
    >>> request = GenerateRequest(text="Hello", voice_id="nora")
    >>> Bounds().answer_bytes_for(request) < 20 * MIB
    True
    """

    answer_bytes: int = 384 * MIB
    listing_bytes: int = 16 * MIB
    error_bytes: int = 64 * KIB
    download_bytes: int = 512 * MIB

    def answer_bytes_for(self, request: GenerateRequest) -> int:
        """Return the largest body a call can have for an answer: many in flight must fit into memory."""
        text_bytes = _JSON_BYTES_A_CHARACTER * len(request.text)
        audio_bytes = _audio_bytes(request.text, request.sample_rate, request.audio_duration)
        return min(self.answer_bytes, MIB + text_bytes + audio_bytes * 4 // 3)

    def download_bytes_for(self, request: GenerateRequest) -> int:
        """Return the largest file a call's audio can be."""
        audio_bytes = _audio_bytes(request.text, request.sample_rate, request.audio_duration)
        return min(self.download_bytes, MIB + audio_bytes)

    def stream_bytes_for(self, request: StreamRequest) -> int:
        """Return the largest body a stream can have: audio as it is, without Base64."""
        return self.speech_bytes_for(request.text, request.sample_rate)

    def speech_bytes_for(self, text: str, rate_hz: float | None) -> int:
        """Return the most audio that the speech of a text can be."""
        return min(self.download_bytes, MIB + _audio_bytes(text, rate_hz))

    def changed_bytes_for(self, request: ConvertRequest, audio_seconds: float) -> tuple[int, int]:
        """Return the largest body, and the largest file, that can answer a clip of this length."""
        asked_s = min(request.audio_duration or 0.0, _LONGEST_S)
        audio_bytes = _as_samples(max(asked_s, _SLOWEST * audio_seconds) + _GRACE_S, request.sample_rate)
        text_bytes = int(_JSON_BYTES_A_SECOND * audio_seconds)
        return (
            min(self.answer_bytes, MIB + text_bytes + audio_bytes * 4 // 3),
            min(self.download_bytes, MIB + audio_bytes),
        )


_USUAL_RATE_HZ = float(GenerateRequest.model_fields["sample_rate"].get_default())


def _audio_bytes(text: str, rate_hz: float | None, audio_duration: float | None = None) -> int:
    # As if it were uncompressed and in stereo, whatever was asked for: some services answer as they like.
    longest_s = _longest_s(text)
    if audio_duration:
        longest_s += max(0.0, min(audio_duration, _LONGEST_S) - _SECONDS_A_CHARACTER * len(text))
    return _as_samples(longest_s, rate_hz or 0.0)


def _longest_s(text: str) -> float:
    pauses_s = PAUSE_SECONDS.high * text.count("[")
    return _SECONDS_A_CHARACTER * len(text) + pauses_s + _GRACE_S


def _as_samples(seconds: float, rate_hz: float) -> int:
    rate_hz = max(_USUAL_RATE_HZ, rate_hz)
    return int(seconds * rate_hz * _FRAME_BYTES)


def published_cap(page: Mapping[str, Any], pool: str) -> int | None:
    """Return how many calls of a pool may be in flight, by a page of limits; None where it says nothing.

    Examples
    --------
    >>> published_cap({"pools": {"streaming": 15}}, "streaming"), published_cap({"pools": [15]}, "streaming")
    (15, None)
    """
    pools = page.get("pools")
    said = pools.get(pool) if isinstance(pools, Mapping) else None
    # A page may hold anything; True is an int.
    return min(said, _LARGEST_OFFER) if type(said) is int and said >= 1 else None
