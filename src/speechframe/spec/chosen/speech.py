"""Choices for speech and its streams: texts, voices and formats."""

import re

from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import DEPRECATION_HEADER
from speechframe.spec.fields._enums import Format, Model
from speechframe.spec.fields._range import Range

MAX_TEXT_CHARACTERS = 5_000
"""Largest length of a text to speak, including pause markers."""
MAX_PRONUNCIATIONS = 500
"""Largest number of words in a pronunciation dictionary."""
MAX_PRONUNCIATION_CHARACTERS = 200
"""Largest length of a word in a pronunciation dictionary."""
PAUSE_SECONDS_RANGE = Range(0.1, 5.0)
"""Range of the length of a pause in seconds. Other lengths are clamped."""
MAX_UNSPEAKABLE_SHARE = 1 / 3
"""A text is refused if at least this share of its letters cannot be spoken by the voice."""
US_EAST_STREAM_MODEL = Model.GEN2
"""Model of a stream in US-East if the request does not name a model."""
RAW_G711_RATE_HZ = 8000
"""Sample rate of ALAW and ULAW, which are always mono."""
ALWAYS_ALLOWED_DURATION_S = 60.0
"""An `audioDuration` up to this length is always accepted, even for a short text."""
MAX_DURATION_RATIO = 4.0
"""A longer `audioDuration` is limited to this multiple of the natural length.

The natural length is the length of the same speech without `audioDuration`.
"""
AUDIO_LINK_SECONDS = 24 * 3600
"""Lifetime of an `audioFile` link in seconds."""
CONTENT_TYPES: dict[Format, str] = {
    Format.WAV: "audio/wav",
    Format.MP3: "audio/mpeg",
    Format.FLAC: "audio/flac",
    Format.OGG: "audio/ogg",
    Format.ULAW: "audio/basic",
    Format.ALAW: "audio/x-alaw-basic",
    Format.PCM: "audio/L16",
}
"""Media types of audio by format. `make_content_type` adds the parameters of PCM."""


def make_content_type(audio_format: Format, sample_rate_hz: int, channels: int) -> str:
    """Return the Content-Type of audio bytes.

    Examples
    --------
    >>> make_content_type(Format.PCM, 24000, 1)
    'audio/L16;rate=24000;channels=1'
    >>> make_content_type(Format.OGG, 48000, 2)
    'audio/ogg'
    """
    name = CONTENT_TYPES[audio_format]
    return f"{name};rate={sample_rate_hz};channels={channels}" if audio_format is Format.PCM else name


def clamp_duration(field: str, asked_s: float, natural_s: float) -> tuple[float, str | None]:
    """Return the length of the answer, and a warning if it is shorter than requested.

    Parameters
    ----------
    field
        Name of the field in the request.
    asked_s, natural_s
        The requested length and the natural length, in seconds.

    Examples
    --------
    >>> clamp_duration("audioDuration", 59.0, 0.5)
    (59.0, None)
    >>> clamp_duration("audioDuration", 1800.0, 20.0)[1]
    'audioDuration of 1800 s was set to 80 s (allowed: 60 s, or 4 times the 20.0 s it takes by itself)'
    """
    longest_s = round(max(ALWAYS_ALLOWED_DURATION_S, MAX_DURATION_RATIO * natural_s), 3)
    if asked_s <= longest_s:
        return asked_s, None
    return longest_s, (
        f"{field} of {asked_s:g} s was set to {longest_s:g} s (allowed: {ALWAYS_ALLOWED_DURATION_S:g} s, or "
        f"{MAX_DURATION_RATIO:g} times the {natural_s:.1f} s it takes by itself)"
    )


def read_clamped_seconds(warning: str) -> float | None:
    """Return the seconds in a warning of :func:`clamp_duration`. Return None for other warnings.

    Examples
    --------
    >>> read_clamped_seconds(clamp_duration("audio_duration", 1800.0, 0.5)[1])
    60.0
    """
    found = _CLAMP_WARNING_PATTERN.search(warning)
    return float(found[1]) if found else None


_CLAMP_WARNING_PATTERN = re.compile(r"audio_?[dD]uration of \S{1,30} s was set to (\d{1,9}(?:\.\d{1,9})?) s")


SPEECH_POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "maximum-text",
        "Maximum text",
        f"{MAX_TEXT_CHARACTERS:,} characters per request, 400 beyond.",
        "Comparable services have limits of this order of magnitude.",
        "guess",
    ),
    OpenPoint(
        "empty-text",
        "Empty text or whitespace",
        "400. A text without any character that the voice can speak also gets 400, with this reason.",
        "There is nothing to speak and nothing to bill.",
    ),
    OpenPoint(
        "unspeakable-letters",
        "Letters that the voice cannot speak",
        "If they are a third or more of the letters, the answer is 400 and names them. Fewer letters are "
        "left out with a warning. Over a WebSocket, the first chunk of a turn counts as such a text. Its "
        "refusal is a fatal error with error_code INVALID_REQUEST. A later chunk without any speech is not "
        "billed. If most letters are in another script than that of the voice's language, the text is spoken "
        "with a warning.",
        "The remaining letters would not express the text, and nobody would pay for the audio.",
    ),
    OpenPoint(
        "ssml",
        "SSML in a text",
        "400 with a hint that names [pause 1s], rate and pitch.",
        "A voice would read the tags aloud. The audio would be billed and worthless.",
    ),
    OpenPoint(
        "codes",
        "Markup and placeholders in a text",
        "Tags, entities, placeholders such as {name} and %s, and escapes such as \\n are spoken as text. A "
        "warning names them.",
        "Only the caller knows if the text is about code. Nobody notices a spoken tag in a thousand rows "
        "without a warning.",
    ),
    OpenPoint(
        "spoken-numbers",
        "Numbers and Roman numerals",
        "Blanks, apostrophes, commas and points that group digits are not spoken. Roman numerals are spoken "
        "as numbers in English, German, French, Spanish, Portuguese and Italian. A warning names each. Word "
        "times keep the words as written.",
        "Engines read 3 000 with a narrow blank as three zero zero zero, and II as roman two.",
    ),
    OpenPoint(
        "pause-marker",
        "Range of the pause marker",
        f"{PAUSE_SECONDS_RANGE} s. A value outside the range is clamped with a warning. A marker has one "
        "blank, a decimal number and the unit s. A text that is clearly meant as a marker is left out with a "
        "warning and not billed. Such a text is the word pause or break in square brackets, in any case, "
        "alone or with a number that may have a unit of time. Anything else is text.",
        "Comparable services clamp. Other services would speak and bill a marker that only we accept. A "
        "marker that is read aloud spoils the sentence.",
        "likely",
    ),
    OpenPoint(
        "billed-characters",
        "Billed characters",
        "Code points of the text without its pause markers. Whitespace counts. Bills and estimates use the "
        "same function.",
        "A marker is not speech. The engine receives everything else.",
        "guess",
    ),
    OpenPoint(
        "pronunciation-dictionary",
        "`pronunciationDictionary`",
        "The field maps a word to {type: IPA or SAY_AS, pronunciation}. Generate, stream, voice changer and "
        "voice_config accept it. In a form, pronunciation_dictionary contains JSON text. The dictionary has "
        f"at most {MAX_PRONUNCIATIONS} words of {MAX_PRONUNCIATION_CHARACTERS} characters. A warning names "
        "words that do not occur in the text. Over a WebSocket, the warning follows the turn.",
        "The field is not in the document, but users of such services rely on it.",
    ),
    OpenPoint(
        "voice-facts",
        "Facts about voices",
        "The voice listing adds engine, kind (neural or formant), licence, bandwidthHz, outputTerms and "
        "clarity. bandwidthHz is the highest frequency at which the mean spectrum of the speech is at most "
        "60 dB below its maximum. outputTerms tells what is known about the terms of its audio. Clarity "
        "is the share of words (characters in Japanese) that a recogniser gets wrong, for each measured "
        "locale.",
        "A user cannot listen to a hundred voices before choosing one.",
    ),
    OpenPoint(
        "answer-length",
        "Longest answer with audioDuration (audio_duration)",
        f"{ALWAYS_ALLOWED_DURATION_S:g} s or {MAX_DURATION_RATIO:g} times the natural length, whichever is "
        "longer. The natural length is that of the speech without audioDuration, or that of the clip. A "
        "longer value is clamped with a warning. Above max_audio_seconds the answer is 400. Only the text "
        "limits the natural length, including its pauses.",
        "A word that costs a few characters must not produce gigabytes of silence.",
    ),
    OpenPoint(
        "voices-model",
        "`model` query of the voice listing",
        "falcon-2, FALCON, gen2 and GEN2 are accepted. The two catalogues differ.",
        "The table and the error page of the document use different spellings.",
        "sure",
    ),
    OpenPoint(
        "voice-abilities",
        "A field that the engine of a voice does not support, such as pitch",
        "The field is ignored, and a warning names the field. Pause markers are removed with a warning. A "
        "broken engine, voice or model gets 500. Answers never contain a file path of the service.",
        "Plug-ins differ in their abilities. A caller must be able to see that the pitch was ignored.",
    ),
    OpenPoint(
        "g711",
        "ALAW and ULAW",
        f"Mono at {RAW_G711_RATE_HZ} Hz. Another rate or STEREO gives the same audio, with a warning.",
        "G.711 telephony supports nothing else.",
        "sure (that it is forced)",
    ),
    OpenPoint(
        "audio-file-with-base64",
        "`audioFile` if the request asks for Base64",
        "The empty string, and no audio is kept.",
        "The table requires the field. With zero retention there is no stored audio to link to.",
    ),
    OpenPoint(
        "word-durations",
        "`wordDurations`",
        "One entry per spoken word. With wordDurationsAsOriginalText (English), one entry per whitespace "
        "token of the input, as written.",
        "Captions need the written words. Timing needs the spoken words.",
        "likely",
    ),
    OpenPoint(
        "stream-body",
        "Body of POST /v1/speech/stream",
        "Raw audio bytes in the requested format, chunked. The Content-Type depends on the format: "
        + ", ".join(f"{name} ({audio_format})" for audio_format, name in CONTENT_TYPES.items())
        + " with ;rate=R;channels=C for PCM.",
        "Public clients read raw chunks. The media types are registered or customary.",
        "sure (raw, chunked), guess (media types)",
    ),
    OpenPoint(
        "us-east-model",
        "Default model for streaming in US-East",
        "gen2",
        "The document only excludes falcon-2. gen2 is the only other model.",
        "guess",
    ),
    OpenPoint(
        "gen2-streaming",
        "gen2 streaming is deprecated",
        f"The call works, and the answer has a {DEPRECATION_HEADER} header and a warning.",
        "A deprecated call is not a removed call.",
    ),
    OpenPoint(
        "stream-speech",
        "Sound of a stream, and the price of an interrupted stream",
        "A stream is spoken sentence by sentence, at the loudness of the voice. Each sentence sounds the "
        "same in every text. A fixed pause separates sentences. An interrupted stream is billed for the "
        "spoken sentences, no matter who interrupted it. A repeat with the same idempotency key is billed "
        "for the rest. A full queue never refuses a stream in progress.",
        "The first sentence must not wait for the last. The client requested the sentences that were spoken.",
    ),
)
