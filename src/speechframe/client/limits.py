"""How long and how much: time limits that grow with the text, and sizes that no answer may pass."""

from dataclasses import dataclass

from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import PAUSE_SECONDS
from speechframe.spec.speech import ChannelType, GenerateRequest, StreamRequest
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.translate import longest_translation

KIB = 1024
MIB = 1024 * KIB

# Speech takes about 0.07 s a character; slowed down, of a script with a word a character, perhaps 0.6.
_SECONDS_A_CHARACTER = 0.4
_GRACE_S = 10.0
_LONGEST_S = 86_400.0
# A changed voice at the lowest rate takes perhaps half as long again; some services are slower.
_SLOWEST = 4.0
_FRAME_BYTES = ChannelType.STEREO.channels * 2
_USUAL_RATE_HZ = float(GenerateRequest.model_fields["sample_rate"].get_default())
# For each character of a text: words with their times. For each second of a clip: its transcription.
_JSON_BYTES = 1000
_JSON_BYTES_A_TEXT = 200
# A character outside the basic plane, written as two escapes.
_JSON_BYTES_A_TRANSLATED_CHARACTER = 12


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds.

    Parameters
    ----------
    connect_s
        TCP and TLS together; name lookup and waiting for a free connection count into the attempt alone.
    base_s, per_character_s
        An attempt may take ``base_s + per_character_s * characters``: speech takes about 0.07 s a
        character, so a service that synthesises three times as slowly as it speaks still gets through.
    per_clip_second_s, upload_bytes_a_second
        An attempt with a clip may take ``base_s``, so much for each second of it, and its upload at so slow
        a rate; so may a message to a WebSocket.
    per_translated_character_s
        The same for a translation: a small machine that goes through a third language takes a few
        milliseconds a character.
    download_s
        One download of audio that came as a URL; counted apart, since the call was billed by then.

    Examples
    --------
    >>> round(Timeouts().attempt_s(5000))
    1280
    """

    connect_s: float = 10.0
    base_s: float = 30.0
    per_character_s: float = 0.25
    per_clip_second_s: float = 2.5
    upload_bytes_a_second: float = 64 * KIB
    per_translated_character_s: float = 0.02
    download_s: float = 60.0

    def attempt_s(self, characters: int) -> float:
        """Return how long an attempt for a text of `characters` may take, without a download."""
        return self.base_s + self.per_character_s * characters

    def message_s(self, size_bytes: int) -> float:
        """Return how long a WebSocket may take to take a message of this size."""
        return self.base_s + size_bytes / self.upload_bytes_a_second

    def speech_s(self, text: str) -> float:
        """Return how long all waits for the audio of a text may take together."""
        return self.base_s + _longest_s(text, 0.0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest answers in bytes; a longer one is cut off and refused, compressed or not.

    The bound of one call follows from its text or clip, its sample rate and the duration it asks for, as if
    the audio were uncompressed stereo: some services answer in another format than asked.

    Parameters
    ----------
    answer_bytes, listing_bytes
        Answers with audio, Base64 included, or translations; any other body with status 200.
    error_bytes
        The body of an error answer; a longer one is read no further, and its status counts.
    download_bytes
        Audio that is not in Base64.
    dubbed_bytes
        A dubbed medium; it goes to disk piece by piece.
    """

    answer_bytes: int = 384 * MIB
    listing_bytes: int = 16 * MIB
    error_bytes: int = 64 * KIB
    download_bytes: int = 512 * MIB
    dubbed_bytes: int = 4096 * MIB

    def spoken_bytes_for(self, request: GenerateRequest | StreamRequest) -> tuple[int, int]:
        """Return the largest answer in JSON, and the most audio, that can answer a request for speech."""
        longest_s = _longest_s(request.text, getattr(request, "audio_duration", None))
        audio_bytes = MIB + _pcm_bytes(longest_s, request.sample_rate)
        answer_bytes = _JSON_BYTES * len(request.text) + audio_bytes * 4 // 3
        return min(self.answer_bytes, answer_bytes), min(self.download_bytes, audio_bytes)

    def speech_bytes_for(self, text: str, rate_hz: float) -> int:
        """Return the most audio that the speech of a text can be."""
        return min(self.download_bytes, MIB + _pcm_bytes(_longest_s(text, 0.0), rate_hz))

    def changed_bytes_for(self, request: ConvertRequest, audio_seconds: float) -> tuple[int, int]:
        """Return the largest answer, and the most audio, that can answer a clip of this length."""
        longest_s = max(min(request.audio_duration or 0.0, _LONGEST_S), _SLOWEST * audio_seconds) + _GRACE_S
        audio_bytes = _pcm_bytes(longest_s, request.sample_rate)
        answer_bytes = MIB + int(_JSON_BYTES * audio_seconds) + audio_bytes * 4 // 3
        return min(self.answer_bytes, answer_bytes), min(self.download_bytes, MIB + audio_bytes)

    def translated_bytes_for(self, request: TranslateRequest) -> int:
        """Return the largest answer to texts: each text, and a translation as long as any can be."""
        characters = sum(len(text) + longest_translation(text) for text in request.texts)
        texts_bytes = _JSON_BYTES_A_TEXT * len(request.texts)
        answer_bytes = 64 * KIB + texts_bytes + _JSON_BYTES_A_TRANSLATED_CHARACTER * characters
        return min(self.answer_bytes, answer_bytes)


def _longest_s(text: str, duration_s: float | None) -> float:
    spoken_s = max(_SECONDS_A_CHARACTER * len(text), min(duration_s or 0.0, _LONGEST_S))
    return spoken_s + PAUSE_SECONDS.high * text.count("[") + _GRACE_S


def _pcm_bytes(seconds: float, rate_hz: float | None) -> int:
    return int(seconds * max(_USUAL_RATE_HZ, rate_hz or 0.0) * _FRAME_BYTES)
