"""Models of speech generation, streams and voices (sections 2.1 to 2.4 of the document)."""

from collections.abc import Callable
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import Field, WrapValidator

from speechframe.spec.chosen import MAX_PRONUNCIATION_CHARACTERS, MAX_PRONUNCIATIONS
from speechframe.spec.fields._enums import ChannelType, Format, Gender, Model, ModelVersion, VoiceKind
from speechframe.spec.fields._model import (
    CamelModel,
    Int64,
    Name,
    NotBoolean,
    Number,
    OneOf,
    OpenWord,
    PlainText,
    SpokenText,
    refuse,
)
from speechframe.spec.limits import (
    AUDIO_DURATION,
    GENERATE_SAMPLE_RATES_HZ,
    PITCH,
    RATE,
    STREAM_SAMPLE_RATES_HZ,
    VARIATION,
)

# Names of other modules that callers import from here.
__all__ = ["ChannelType", "Format", "Gender", "Model", "ModelVersion", "VoiceKind"]

TextWithPauses = Annotated[
    SpokenText, Field(description="Text to speak; may contain pause markers such as [pause 1.5s].")
]
VoiceId = Annotated[
    Name, Field(min_length=1, description="Full voice id (<locale>-<name>) or the bare name.")
]
Pitch = Annotated[int, Field(ge=PITCH.low, le=PITCH.high), NotBoolean]
Rate = Annotated[int, Field(ge=RATE.low, le=RATE.high), NotBoolean]
Variation = Annotated[int, Field(ge=VARIATION.low, le=VARIATION.high), NotBoolean]
SpokenVariation = Annotated[
    Variation,
    Field(
        description="A higher value varies pause, pitch and speed more.",
        json_schema_extra={"gen2_only": True},
    ),
]
AudioDuration = Annotated[
    Annotated[float, Field(ge=AUDIO_DURATION.low, allow_inf_nan=False), NotBoolean] | None,
    Field(description="Requested length in seconds; 0 is ignored.", json_schema_extra={"gen2_only": True}),
]
FormerLocale = Annotated[
    Name | None,
    Field(
        description="Former name of locale.",
        json_schema_extra={"deprecated": True, "superseded_by": "locale"},
    ),
]


class PronunciationKind(StrEnum):
    """Notation of a pronunciation (our addition; chosen: pronunciation-dictionary)."""

    IPA = "IPA"
    SAY_AS = "SAY_AS"


class Pronunciation(CamelModel):
    """Pronunciation of one word (our addition; chosen: pronunciation-dictionary)."""

    section: ClassVar[str] = "addition"

    type: PronunciationKind
    pronunciation: Annotated[str, Field(min_length=1, max_length=500, strict=True), PlainText]


_GROUP_ENTRIES = 20
"""Number of dictionary entries in a group. The groups are validated one after the other."""


def _validate_in_groups(
    value: Any, validated: Callable[[Any], dict[str, Pronunciation]]
) -> dict[str, Pronunciation]:
    # Stop after the first invalid group, because building thousands of errors is slow.
    if not isinstance(value, dict):
        return validated(value)
    if len(value) > MAX_PRONUNCIATIONS:
        refuse(f"has {len(value):,} words", f"at most {MAX_PRONUNCIATIONS:,} words")
    entries = iter(value.items())
    found: dict[str, Any] = {}
    while some := dict(islice(entries, _GROUP_ENTRIES)):
        found |= validated(some)
    return found


_Word = Annotated[str, Field(max_length=MAX_PRONUNCIATION_CHARACTERS, strict=True), PlainText]
Pronunciations = Annotated[dict[_Word, Pronunciation], WrapValidator(_validate_in_groups)]
PronunciationDictionary = Annotated[
    Pronunciations | None,
    Field(
        description="Word to pronunciation.",
        json_schema_extra={"addition": True, "chosen_point": "pronunciation-dictionary"},
    ),
]


class GenerateRequest(CamelModel):
    """A request to speak a text (section 2.1).

    Examples
    --------
    >>> request = GenerateRequest(text="Hello", voice_id="nora", format=Format.FLAC)
    >>> request.model_dump(mode="json", exclude_unset=True)
    {'text': 'Hello', 'voiceId': 'nora', 'format': 'FLAC'}
    """

    section: ClassVar[str] = "2.1"

    text: TextWithPauses
    voice_id: VoiceId
    audio_duration: AudioDuration = None
    channel_type: ChannelType = Field(ChannelType.MONO, description="Mono or stereo.")
    encode_as_base64: bool | None = Field(
        None,
        alias="encodeAsBase64",
        description="True: the answer contains the audio as Base64 instead of a URL. No audio is stored.",
    )
    format: Format = Field(Format.WAV, description="Audio format.")
    model_version: ModelVersion = Field(ModelVersion.GEN2, description="Model generation; only GEN2 exists.")
    multi_native_locale: FormerLocale = None
    locale: Name | None = Field(
        None, description="Language of the audio, such as fr-FR.", json_schema_extra={"gen2_only": True}
    )
    pitch: Pitch | None = Field(None, description="Lower or higher voice.")
    rate: Rate | None = Field(None, description="Slower or faster speech.")
    sample_rate: Annotated[Number, OneOf(GENERATE_SAMPLE_RATES_HZ)] = Field(
        44100.0, description="Samples per second of the audio, in Hz."
    )
    style: Name | None = Field(None, description="One of the voice's styles.")
    variation: SpokenVariation = 1
    word_durations_as_original_text: bool = Field(
        False, description="True: word durations contain the words as written in the text (English only)."
    )
    pronunciation_dictionary: PronunciationDictionary = None


class StreamRequest(CamelModel):
    """A request to speak a text as a stream (section 2.2)."""

    section: ClassVar[str] = "2.2"

    text: TextWithPauses
    voice_id: VoiceId
    model: Model | None = Field(
        None,
        description="Model generation; gen2 is deprecated here.",
        json_schema_extra={
            "default": "falcon-2",
            "default_note": "falcon-2 in every region except US-East, which uses gen2 (our choice)",
        },
    )
    channel_type: ChannelType = Field(ChannelType.MONO, description="Mono or stereo.")
    format: Format = Field(Format.WAV, description="Audio format.")
    multi_native_locale: FormerLocale = None
    locale: Name | None = Field(None, description="Language of the audio, such as fr-FR.")
    pitch: Pitch | None = Field(None, description="Lower or higher voice.")
    rate: Rate | None = Field(None, description="Slower or faster speech.")
    sample_rate: Annotated[Number, OneOf(STREAM_SAMPLE_RATES_HZ)] | None = Field(
        None,
        description="Samples per second of the audio, in Hz.",
        json_schema_extra={"default": 24000.0, "default_note": "24000 for falcon-2, 44100 for gen2"},
    )
    style: Name | None = Field(None, description="One of the voice's styles.")
    variation: SpokenVariation = 1
    pronunciation_dictionary: PronunciationDictionary = None


class WordDuration(CamelModel):
    """One word with its start and end in milliseconds from the start of the audio (section 2.3)."""

    section: ClassVar[str] = "2.3"

    word: str
    start_ms: int
    end_ms: int
    pitch_scale_maximum: float | None = Field(None, json_schema_extra={"deprecated": True})
    pitch_scale_minimum: float | None = Field(None, json_schema_extra={"deprecated": True})
    source_word_index: int | None = Field(None, json_schema_extra={"deprecated": True})


class GenerateResponse(CamelModel):
    """The answer to a generation request (section 2.3)."""

    section: ClassVar[str] = "2.3"

    audio_file: str = Field(
        description="URL of the audio. Empty if the request asked for Base64 (our choice)."
    )
    audio_length_in_seconds: float = Field(description="Length of the audio in seconds.")
    remaining_character_count: Int64 = Field(description="Characters left in the billing cycle.")
    word_durations: list[WordDuration] = Field(description="Start and end of each word.")
    encoded_audio: str | None = Field(None, description="Audio in Base64, if the request asked for it.")
    consumed_character_count: Int64 | None = Field(
        None, description="Characters used in the billing cycle.", json_schema_extra={"deprecated": True}
    )
    warning: str | None = Field(None, description="Values that were ignored or replaced.")


class StyleDetails(CamelModel):
    """Styles of a voice in one locale (section 2.4)."""

    section: ClassVar[str] = "2.4"

    available_styles: list[str] = Field(default_factory=list)
    detail: str | None = None


_VOICE_FACT_EXTRA: dict[str, Any] = {"addition": True, "chosen_point": "voice-facts"}


class Voice(CamelModel):
    """A voice of the catalogue (section 2.4). The document does not state which fields are required."""

    section: ClassVar[str] = "2.4"

    voice_id: str
    display_name: str | None = None
    description: str | None = None
    gender: OpenWord[Gender] | None = None
    locale: str | None = None
    supported_locales: dict[str, StyleDetails] = Field(default_factory=dict)
    accent: str | None = Field(
        None, json_schema_extra={"deprecated": True, "superseded_by": "supportedLocales.detail"}
    )
    display_language: str | None = Field(
        None, json_schema_extra={"deprecated": True, "superseded_by": "supportedLocales.detail"}
    )
    available_styles: list[str] | None = Field(
        None, json_schema_extra={"deprecated": True, "superseded_by": "supportedLocales.availableStyles"}
    )
    engine: str | None = Field(
        None, description="Speech engine of the voice.", json_schema_extra=_VOICE_FACT_EXTRA
    )
    kind: OpenWord[VoiceKind] | None = Field(
        None, description="Kind of the engine: neural or formant.", json_schema_extra=_VOICE_FACT_EXTRA
    )
    licence: str | None = Field(
        None, description="Licence of the voice, not of its audio.", json_schema_extra=_VOICE_FACT_EXTRA
    )
    bandwidth_hz: int | None = Field(
        None,
        description="Highest frequency with sound in Hz. A higher sample rate adds no sound above it.",
        json_schema_extra=_VOICE_FACT_EXTRA,
    )
    output_terms: str | None = Field(
        None, description="Known terms of audio made with the voice.", json_schema_extra=_VOICE_FACT_EXTRA
    )
    clarity: dict[str, float] | None = Field(
        None,
        description="Share of words (in Japanese, of characters) that a recogniser gets wrong, by locale.",
        json_schema_extra=_VOICE_FACT_EXTRA,
    )


class VoicesQuery(CamelModel):
    """The query of the voice listing (section 4.1)."""

    section: ClassVar[str] = "4.1"

    model: Model = Field(
        Model.GEN2,
        description="Model whose voices are listed. The spellings FALCON and GEN2 are also accepted.",
    )
