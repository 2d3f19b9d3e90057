"""Speech and streams of it: texts, voices, formats."""

import re

from speechframe.spec._enums import Format, Model
from speechframe.spec._range import Range
from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import DEPRECATION_HEADER

MAX_TEXT_CHARACTERS = 5_000
"""Characters of one text to speak, pause markers included."""
MAX_PRONUNCIATIONS = 500
"""Words of a pronunciation dictionary."""
MAX_PRONUNCIATION_CHARACTERS = 200
"""Characters of a word of a pronunciation dictionary."""
PAUSE_SECONDS = Range(0.1, 5.0)
"""Length of a pause marker, in seconds."""
UNSPEAKABLE_SHARE = 1 / 3
"""Of the letters of a text: where a voice cannot speak so many of them, the text is refused."""
US_EAST_STREAM_MODEL = Model.GEN2
"""What a stream in US-East speaks with when it names no model."""
RAW_G711_RATE_HZ = 8000
"""ALAW and ULAW are always mono at this rate."""
LONGEST_ANSWER_S = 60.0
"""An `audioDuration` up to this length is kept, however short the text is."""
LONGEST_ANSWER_TIMES = 4.0
"""A longer one is kept up to so many times the natural length: what it lasts when no length is asked for."""
SHELF_SECONDS = 24 * 3600
"""How long an `audioFile` link lives."""
CONTENT_TYPES: dict[Format, str] = {
    Format.WAV: "audio/wav",
    Format.MP3: "audio/mpeg",
    Format.FLAC: "audio/flac",
    Format.OGG: "audio/ogg",
    Format.ULAW: "audio/basic",
    Format.ALAW: "audio/x-alaw-basic",
    Format.PCM: "audio/L16",
}
"""Media types of audio; `content_type` adds what PCM needs."""


def content_type(audio_format: Format, sample_rate_hz: int, channels: int) -> str:
    """Return the Content-Type of audio bytes.

    Examples
    --------
    >>> content_type(Format.PCM, 24000, 1)
    'audio/L16;rate=24000;channels=1'
    >>> content_type(Format.OGG, 48000, 2)
    'audio/ogg'
    """
    name = CONTENT_TYPES[audio_format]
    return f"{name};rate={sample_rate_hz};channels={channels}" if audio_format is Format.PCM else name


def clamped_length(field: str, asked_s: float, natural_s: float) -> tuple[float, str | None]:
    """Return the length an answer gets, and what its caller should know where that is less than was asked.

    Parameters
    ----------
    field
        What the request calls it.
    asked_s, natural_s
        The length that is asked for, and the one without asking, in seconds.

    Examples
    --------
    >>> clamped_length("audioDuration", 59.0, 0.5)
    (59.0, None)
    >>> clamped_length("audioDuration", 1800.0, 20.0)[1]
    'audioDuration of 1800 s was set to 80 s (allowed: 60 s, or 4 times the 20.0 s it takes by itself)'
    """
    longest_s = round(max(LONGEST_ANSWER_S, LONGEST_ANSWER_TIMES * natural_s), 3)
    if asked_s <= longest_s:
        return asked_s, None
    return longest_s, (
        f"{field} of {asked_s:g} s was set to {longest_s:g} s (allowed: {LONGEST_ANSWER_S:g} s, or "
        f"{LONGEST_ANSWER_TIMES:g} times the {natural_s:.1f} s it takes by itself)"
    )


def read_clamped(warning: str) -> float | None:
    """Return the seconds that a warning of :func:`clamped_length` names; None when it says something else.

    Examples
    --------
    >>> read_clamped(clamped_length("audio_duration", 1800.0, 0.5)[1])
    60.0
    """
    found = _CLAMPED.search(warning)
    return float(found[1]) if found else None


_CLAMPED = re.compile(r"audio_?[dD]uration of \S{1,30} s was set to (\d{1,9}(?:\.\d{1,9})?) s")


POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "maximum-text",
        "Maximum text",
        f"{MAX_TEXT_CHARACTERS:,} characters per request, 400 beyond.",
        "The order of magnitude of comparable services.",
        "guess",
    ),
    OpenPoint(
        "empty-text",
        "Empty text, text of whitespace",
        "400; so is text without a speakable character for the voice, saying so.",
        "There is nothing to bill and nothing to hear.",
        "ours",
    ),
    OpenPoint(
        "unspeakable-letters",
        "Letters that the voice cannot speak",
        "400 naming them where they are a third or more of the letters of a text; fewer are left out, with a "
        "warning. Over a WebSocket the first chunk of a turn is such a text, and refused with a fatal error "
        "of error_code INVALID_REQUEST; a later chunk is not billed where nothing of it is heard. A text of "
        "which most letters are in another script than that of the voice's language is spoken, with a "
        "warning.",
        "What is left of such a text is not what was to be said, and nobody would pay for it.",
        "ours",
    ),
    OpenPoint(
        "ssml",
        "SSML in a text",
        "400 with a hint at [pause 1s], rate and pitch.",
        "Read aloud it would be billed and worthless.",
        "ours",
    ),
    OpenPoint(
        "pause-marker",
        "Range of the pause marker",
        f"{PAUSE_SECONDS} s; outside it is clamped, with a warning. One blank, a decimal number, the unit "
        "s. What is clearly meant as one is left out, with a warning, and not billed: in square brackets the "
        "word pause or break, in any case, alone or with a number, which may have a unit of time. Anything "
        "else is text.",
        "Comparable services clamp; a marker that only we obey would be spoken, and billed, elsewhere; one "
        "that is read aloud spoils the sentence.",
        "likely",
    ),
    OpenPoint(
        "billed-characters",
        "Billed characters",
        "Code points of text after pause markers are removed; whitespace counts. One function bills and "
        "estimates.",
        "A marker is no speech; everything else is sent to the engine.",
        "guess",
    ),
    OpenPoint(
        "pronunciation-dictionary",
        "`pronunciationDictionary`",
        "Word to {type: IPA or SAY_AS, pronunciation}, on generate, stream, voice changer and in "
        "voice_config; in a form it is JSON text in pronunciation_dictionary. It has at most "
        f"{MAX_PRONUNCIATIONS} words of {MAX_PRONUNCIATION_CHARACTERS} characters. Words "
        "that a text has not are named in a warning; over a WebSocket behind the turn.",
        "Not in the document, but users of such services rely on it.",
        "ours",
    ),
    OpenPoint(
        "voice-facts",
        "Which voice is clear",
        "The voice listing adds engine, kind (neural or formant), licence and clarity: the share of words "
        "(characters in Japanese) that a recogniser hears wrong, by locale, as far as it was measured.",
        "Who chooses among a hundred voices cannot listen to all of them.",
        "ours",
    ),
    OpenPoint(
        "answer-length",
        "How long an answer may be made with audioDuration (audio_duration)",
        f"The longer of {LONGEST_ANSWER_S:g} s and {LONGEST_ANSWER_TIMES:g} times the natural length: what "
        "the text takes without audioDuration, or the clip's. A longer one is clamped, with a warning; above "
        "max_audio_seconds it is 400. The natural length itself, pauses included, only the text bounds.",
        "A word that costs a few characters must not make gigabytes of silence.",
        "ours",
    ),
    OpenPoint(
        "voices-model",
        "`model` query of the voice listing",
        "falcon-2, FALCON, gen2 and GEN2 are understood; the two catalogues differ.",
        "The document's own table and error page spell it differently.",
        "sure",
    ),
    OpenPoint(
        "voice-abilities",
        "A field that the engine of a voice cannot follow, such as pitch",
        "The field is ignored, and the answer has a warning that names it. Pause markers are removed, with "
        "a warning. A broken engine, voice or model is a 500, and no answer has a path of the service.",
        "Plug-ins differ in their abilities. A caller must be able to see that speech lacks its pitch.",
        "ours",
    ),
    OpenPoint(
        "g711",
        "ALAW and ULAW",
        f"Mono at {RAW_G711_RATE_HZ} Hz; another rate or STEREO gets that with a warning, never silently.",
        "G.711 telephony knows nothing else.",
        "sure (that it is forced)",
    ),
    OpenPoint(
        "audio-file-with-base64",
        "`audioFile` when Base64 is asked",
        "The empty string, and no audio is kept.",
        "The table requires the field; zero retention leaves nothing to point at.",
        "ours",
    ),
    OpenPoint(
        "word-durations",
        "`wordDurations`",
        "One entry per spoken word; with wordDurationsAsOriginalText (English) one per whitespace token "
        "of the input, as written.",
        "Captions need the written form, timing the spoken one.",
        "likely",
    ),
    OpenPoint(
        "stream-body",
        "Body of POST /v1/speech/stream",
        "Raw audio bytes in the asked format, chunked; Content-Type by format: "
        + ", ".join(f"{name} ({audio_format})" for audio_format, name in CONTENT_TYPES.items())
        + " with ;rate=R;channels=C for PCM.",
        "Public clients read raw chunks; the media types are the registered or customary ones.",
        "sure (raw, chunked), guess (media types)",
    ),
    OpenPoint(
        "us-east-model",
        "Default model for streaming in US-East",
        "gen2",
        "The document says only that it is not falcon-2, and there are two models.",
        "guess",
    ),
    OpenPoint(
        "gen2-streaming",
        "gen2 streaming is deprecated",
        f"Works, with a {DEPRECATION_HEADER} header and a warning.",
        "Deprecated is not removed.",
        "ours",
    ),
    OpenPoint(
        "stream-speech",
        "How a stream sounds, and what it costs when it is broken off",
        "Spoken sentence by sentence: each alone as in any other text, with a fixed pause between, at the "
        "loudness of the voice. A stream that is broken off, by whomever, is billed for the sentences that "
        "were spoken; a repeat with its idempotency key is billed for the rest. What is under way is never "
        "refused because the queue is full.",
        "What is heard first cannot wait for what comes last, and work that was done was asked for.",
        "ours",
    ),
)
