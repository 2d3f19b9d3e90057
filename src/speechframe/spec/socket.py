"""Models of WebSocket frames, and the states of contexts (sections 3 and 6 of the document)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, StrictBool

from speechframe.spec.codes import ErrorCode, WarningCode
from speechframe.spec.fields._enums import ChannelType, Format, Model
from speechframe.spec.fields._model import (
    CamelModel,
    Name,
    NotBoolean,
    Number,
    OneOf,
    OpenWord,
    SnakeModel,
    Text,
)
from speechframe.spec.limits import BUFFER_DELAY_MS, BUFFER_SIZE, STREAM_SAMPLE_RATES_HZ
from speechframe.spec.speech import Pitch, Pronunciations, Rate, Variation


class PredictiveChunking(StrEnum):
    """The ways to cut text into chunks for synthesis (section 6)."""

    STRICT = "strict"
    LENIENT = "lenient"


def _read_marker(value: Any) -> Any:
    # The document allows a boolean or a marker. Some public clients send an empty object or a word, which
    # count as true.
    return value if isinstance(value, bool) else True


BufferSize = Annotated[int, Field(ge=BUFFER_SIZE.low, le=BUFFER_SIZE.high), NotBoolean]
BufferDelay = Annotated[int, Field(ge=BUFFER_DELAY_MS.low, le=BUFFER_DELAY_MS.high), NotBoolean]
Marker = Annotated[bool, BeforeValidator(_read_marker)]


class VoiceConfig(CamelModel):
    """The voice of a context (section 6).

    The document contains only `voiceId`. The other fields are our choice (chosen: socket-client-frames). All
    fields may be missing. A config without `voiceId` gets a warning (NO_VOICE_ID), not an error.
    """

    section: ClassVar[str] = "6"

    voice_id: Text | None = Field(None, description="Full voice id (<locale>-<name>) or the bare name.")
    style: Name | None = Field(None, json_schema_extra={"addition": True})
    rate: Rate | None = Field(None, json_schema_extra={"addition": True})
    pitch: Pitch | None = Field(None, json_schema_extra={"addition": True})
    variation: Variation | None = Field(None, json_schema_extra={"addition": True})
    locale: Name | None = Field(None, json_schema_extra={"addition": True})
    multi_native_locale: Name | None = Field(
        None, json_schema_extra={"addition": True, "deprecated": True, "superseded_by": "locale"}
    )
    pronunciation_dictionary: Pronunciations | None = Field(None, json_schema_extra={"addition": True})


class ClientFrame(SnakeModel):
    """A frame of the client (section 6). All fields can be combined, except `clear` with `text`."""

    section: ClassVar[str] = "6"

    voice_config: VoiceConfig | None = Field(
        None, description="Voice of the context. Send it before the first text."
    )
    text: Text | None = Field(None, description="Text to speak.")
    context_id: Text | None = Field(
        None, description="Id of the context. A frame without an id belongs to the default context."
    )
    end: StrictBool | None = Field(None, description="True ends the context and frees its slot.")
    clear: Marker | None = Field(
        None, description="True drops the text whose synthesis has not begun. Not allowed beside text."
    )
    min_buffer_size: BufferSize | None = Field(
        None, description="Smallest number of characters to synthesise at a time."
    )
    max_buffer_delay_in_ms: BufferDelay | None = Field(None, description="Longest wait for more text, in ms.")
    predictive_chunking: PredictiveChunking = Field(
        PredictiveChunking.STRICT, description="Way to cut text into chunks for synthesis."
    )


class AudioFrame(SnakeModel):
    """A chunk of audio (section 6)."""

    section: ClassVar[str] = "6"

    audio: str = Field(description="Audio in Base64.")
    context_id: str | None = None
    trace_id: str | None = None


class FinalFrame(SnakeModel):
    """The last frame of a context, after all of its audio (section 6)."""

    section: ClassVar[str] = "6"

    final: bool = True
    context_id: str | None = None
    trace_id: str | None = None


class ErrorFrame(SnakeModel):
    """An error (section 6). Programs should use `error_code`, because the text of `error` may change."""

    section: ClassVar[str] = "6"

    error: str
    error_code: OpenWord[ErrorCode]
    fatal: bool = False
    context_id: str | None = None
    trace_id: str | None = None


class WarningFrame(SnakeModel):
    """A warning about an ignored or replaced value (section 6). Programs should use `warning_code`."""

    section: ClassVar[str] = "6"

    warning: str
    warning_code: OpenWord[WarningCode]
    context_id: str | None = None
    trace_id: str | None = Field(
        None,
        description="Missing in the row of the table, but the document puts a trace id in every frame.",
    )


class SocketQuery(SnakeModel):
    """The query of the WebSocket address (section 4.1). We chose all fields but `api-key` (socket-query)."""

    section: ClassVar[str] = "4.1"

    api_key: str | None = Field(None, alias="api-key", repr=False)
    model: Model | None = Field(None, json_schema_extra={"addition": True})
    sample_rate: Annotated[Number, OneOf(STREAM_SAMPLE_RATES_HZ)] | None = Field(
        None, json_schema_extra={"addition": True}
    )
    channel_type: ChannelType = Field(ChannelType.MONO, json_schema_extra={"addition": True})
    format: Format = Field(Format.WAV, json_schema_extra={"addition": True})


class ContextState(StrEnum):
    """The states of a context (section 3)."""

    NONE = "none"
    NOT_CREATED = "not created"
    ACTIVE = "active"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of the state of a context, as a row of the document's table (section 3).

    `trigger` is the event. An empty `condition` is always true. `also` is a further effect.
    """

    state: ContextState
    trigger: str
    condition: str
    next_state: ContextState
    also: str = ""


CONTEXT_TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        ContextState.NONE,
        "first frame",
        "active contexts stay within the plan's streaming concurrency",
        ContextState.ACTIVE,
    ),
    Transition(
        ContextState.NONE,
        "first frame",
        "active contexts would exceed the plan's streaming concurrency",
        ContextState.NOT_CREATED,
        f"error frame {ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED}",
    ),
    Transition(ContextState.ACTIVE, "end", "", ContextState.ENDED, "the slot is freed"),
    Transition(
        ContextState.ACTIVE, "fatal error", "", ContextState.ENDED, "no further audio and no final frame"
    ),
    Transition(ContextState.ACTIVE, "warning", "", ContextState.ACTIVE, "synthesis continues"),
)
"""All changes of the state of a context (section 3)."""
