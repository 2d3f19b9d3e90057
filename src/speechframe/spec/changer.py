"""The voice changer (section 2.5 of the document)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from speechframe.spec.fields._enums import ChannelType, Format
from speechframe.spec.fields._model import Int64, JsonText, Name, Number, OneOf, SnakeModel, Text, refuse
from speechframe.spec.limits import CHANGER_FORMATS, CHANGER_SAMPLE_RATES_HZ
from speechframe.spec.speech import AudioDuration, Pitch, Pronunciations, Rate, SpokenVariation, VoiceId


class SourceForm(SnakeModel):
    """Base class of forms that contain a media file or its URL (chosen: one-source)."""

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
        """Return a problem unless exactly one of `file` and `file_url` is given."""
        there = [name for name in ("file", "file_url") if given.get(name) is not None]
        if len(there) == 1:
            return ()
        problem = "are both given" if there else "are both missing"
        return (("file, file_url", problem, "exactly one of the two"),)

    @model_validator(mode="after")
    def _refuse_conflicts(self) -> Self:
        for fields, problem, allowed in self.find_conflicts(vars(self)):
            refuse(f"{fields} {problem}", allowed)
        return self


class ConvertRequest(SourceForm):
    """A request to change the voice of a clip, as a multipart form (section 2.5)."""

    section: ClassVar[str] = "2.5"

    voice_id: VoiceId
    file: bytes | None = Field(None, description="The clip.")
    file_url: Text | None = Field(None, description="URL of the clip.")
    audio_duration: AudioDuration = None
    channel_type: ChannelType = Field(ChannelType.MONO, description="Mono or stereo.")
    encode_output_as_base64: bool | None = Field(
        None, description="True adds the audio in Base64 to the answer, beside the URL."
    )
    format: Annotated[Format, OneOf(CHANGER_FORMATS)] = Field(Format.WAV, description="Audio format.")
    multi_native_locale: Name | None = Field(
        None, description="Language of the output.", json_schema_extra={"gen2_only": True}
    )
    pitch: Pitch | None = Field(None, description="Lower or higher voice.")
    rate: Rate | None = Field(None, description="Slower or faster speech.")
    retain_accent: bool = Field(True, description="True keeps the speaker's accent.")
    retain_prosody: bool = Field(True, description="True keeps intonation, rhythm and stress.")
    return_transcription: bool = Field(False, description="True adds a transcription to the answer.")
    sample_rate: Annotated[Number, OneOf(CHANGER_SAMPLE_RATES_HZ)] = Field(
        44100.0, description="Samples per second of the audio, in Hz."
    )
    style: Name | None = Field(None, description="One of the voice's styles.")
    transcription: Text | None = Field(None, description="Words that are spoken in the clip.")
    variation: SpokenVariation = 1
    pronunciation_dictionary: Annotated[Pronunciations, JsonText] | None = Field(
        None,
        description="Word to pronunciation, as JSON text.",
        json_schema_extra={"addition": True, "chosen_point": "pronunciation-dictionary"},
    )


class ConvertResponse(SnakeModel):
    """The answer of the voice changer (section 2.5)."""

    section: ClassVar[str] = "2.5"

    audio_file: str = Field(description="URL or path of the audio.")
    audio_length_in_seconds: float = Field(description="Length of the audio in seconds.")
    remaining_character_count: Int64 = Field(description="Characters left in the billing cycle.")
    encoded_audio: str | None = Field(None, description="Audio in Base64, if the request asked for it.")
    transcription: str | None = Field(
        None, description="Words that are spoken in the clip.", json_schema_extra={"deprecated": True}
    )
    warning: str | None = Field(None, description="Values that were ignored or replaced.")
