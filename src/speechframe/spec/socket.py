"""WebSocket frames and contexts (sections 3 and 6 of the document)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, StrictBool

from speechframe.spec.codes import ErrorCode, WarningCode
from speechframe.spec.fields._enums import ChannelType, Format, Model
from speechframe.spec.fields._model import CamelModel, Name, NotBoolean, Number, OneOf, Open, SnakeModel, Text
from speechframe.spec.limits import BUFFER_DELAY_MS, BUFFER_SIZE, STREAM_SAMPLE_RATES_HZ
from speechframe.spec.speech import Pitch, Pronunciations, Rate, Variation

__all__ = [
    "TRANSITIONS",
    "AudioFrame",
    "ClientFrame",
    "ContextState",
    "ErrorFrame",
    "FinalFrame",
    "PredictiveChunking",
    "SocketQuery",
    "Transition",
    "VoiceConfig",
    "WarningFrame",
]


class PredictiveChunking(StrEnum):
    """How text is cut for synthesis (section 6)."""

    STRICT = "strict"
    LENIENT = "lenient"


def _marked(value: Any) -> Any:
    # "boolean or marker": public clients send true, some an empty object or a word. That it is there counts.
    return value if isinstance(value, bool) else True


BufferSize = Annotated[int, Field(ge=BUFFER_SIZE.low, le=BUFFER_SIZE.high), NotBoolean]
BufferDelay = Annotated[int, Field(ge=BUFFER_DELAY_MS.low, le=BUFFER_DELAY_MS.high), NotBoolean]
Marker = Annotated[bool, BeforeValidator(_marked)]


class VoiceConfig(CamelModel):
    """The voice of a context (section 6).

    The document names `voiceId` alone (the rest is chosen: socket-client-frames). Every field may be missing:
    a config without `voiceId` is a warning (NO_VOICE_ID), not an error.
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
    """A frame of the client (section 6); any field may ride with any other, except `clear` with `text`."""

    section: ClassVar[str] = "6"

    voice_config: VoiceConfig | None = Field(None, description="Before the first text of a context.")
    text: Text | None = Field(None, description="Text to speak.")
    context_id: Text | None = Field(None, description="Names the context; none is the default one.")
    end: StrictBool | None = Field(None, description="True closes the context and frees its slot.")
    clear: Marker | None = Field(None, description="Drops what is not yet being spoken; never beside text.")
    min_buffer_size: BufferSize | None = Field(None, description="Characters gathered before synthesis.")
    max_buffer_delay_in_ms: BufferDelay | None = Field(None, description="Longest wait for more text, in ms.")
    predictive_chunking: PredictiveChunking = Field(
        PredictiveChunking.STRICT, description="How text is cut for synthesis."
    )


class AudioFrame(SnakeModel):
    """A chunk of audio (section 6)."""

    section: ClassVar[str] = "6"

    audio: str = Field(description="Audio in Base64.")
    context_id: str | None = None
    trace_id: str | None = None


class FinalFrame(SnakeModel):
    """A context's audio is complete (section 6)."""

    section: ClassVar[str] = "6"

    final: bool = True
    context_id: str | None = None
    trace_id: str | None = None


class ErrorFrame(SnakeModel):
    """A failure (section 6); decide by `error_code`, the wording may change."""

    section: ClassVar[str] = "6"

    error: str
    error_code: Open[ErrorCode]
    fatal: bool = False
    context_id: str | None = None
    trace_id: str | None = None


class WarningFrame(SnakeModel):
    """Something was ignored or replaced; synthesis continues (section 6); decide by `warning_code`."""

    section: ClassVar[str] = "6"

    warning: str
    warning_code: Open[WarningCode]
    context_id: str | None = None
    trace_id: str | None = Field(None, description="Stated to be on every frame, though not in its row.")


class SocketQuery(SnakeModel):
    """The query of the WebSocket address (section 4.1, where only `api-key` stands; chosen: socket-query)."""

    section: ClassVar[str] = "4.1"

    api_key: str | None = Field(None, alias="api-key", repr=False)
    model: Model | None = Field(None, json_schema_extra={"addition": True})
    sample_rate: Annotated[Number, OneOf(STREAM_SAMPLE_RATES_HZ)] | None = Field(
        None, json_schema_extra={"addition": True}
    )
    channel_type: ChannelType = Field(ChannelType.MONO, json_schema_extra={"addition": True})
    format: Format = Field(Format.WAV, json_schema_extra={"addition": True})


class ContextState(StrEnum):
    """Where a context is (section 3)."""

    NONE = "none"
    NOT_CREATED = "not created"
    ACTIVE = "active"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Transition:
    """A row of the context table (section 3)."""

    state: ContextState
    trigger: str
    condition: str
    next_state: ContextState
    also: str = ""


TRANSITIONS: tuple[Transition, ...] = (
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
"""Section 3: every way a context moves."""
