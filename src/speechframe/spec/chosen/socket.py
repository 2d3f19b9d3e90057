"""Choices for the WebSocket, about its frames, contexts and queues."""

from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import MAX_JSON_DEPTH, MAX_JSON_VALUES

SOCKETS_PER_CONCURRENCY = 10
"""Largest number of open WebSockets of a key, as a multiple of its streaming concurrency."""
MAX_GENERATION_REQUESTS_PER_S = 5
"""Largest number of frames with new chunks of text per context and second. More frames get a warning."""
MAX_FRAME_BYTES = 64 * 1024
"""Largest size of a client's WebSocket frame in UTF-8. A larger frame is refused with INVALID_JSON."""
MAX_READ_FRAME_BYTES = 16 * 1024 * 1024
"""Largest size of a frame that is read from the socket. A larger frame closes the connection."""
MAX_CONTEXT_ID_CHARACTERS = 256
"""Largest length of a `context_id`. A longer id is ignored, because every frame of audio would repeat it."""
MAX_WAITING_SOCKET_CHARACTERS = 100_000
"""Number of characters that wait for synthesis, above which the service reads no more frames of a socket."""
MAX_WAITING_SOCKET_TURNS = 1_000
"""Number of ended turns with unsent audio, above which the service reads no more frames of a socket."""
MAX_WAITING_SOCKET_BYTES = 512 * 1024
"""Size of the unsent frames of a socket, above which the service synthesises no more audio for the socket."""
TEXT_WARNING_CODE = "TEXT_CHANGED"
"""Our `warning_code` for a text that was not spoken exactly as written."""
VOICE_WARNING_CODE = "VOICE_OPTION_IGNORED"
"""Our `warning_code` for a voice_config with values that the voice does not support."""


SOCKET_POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "socket-query",
        "Query of the WebSocket address",
        "api-key, model, sample_rate, channel_type, format",
        "Public clients send these.",
        "sure",
    ),
    OpenPoint(
        "socket-client-frames",
        "Frames of the WebSocket client",
        "{voice_config: {voiceId or voice_id, style, rate, pitch, variation, locale, "
        "multi_native_locale}, context_id}; {text, context_id, end}; both in one frame; {min_buffer_size, "
        "max_buffer_delay_in_ms}, by default 40 and 300; {clear, context_id}",
        "Public clients send these.",
        "sure",
    ),
    OpenPoint(
        "socket-server-frames",
        "Frames of the WebSocket server",
        "{audio, context_id, trace_id}; {final: true, context_id, trace_id} without audio. With WAV only "
        "the first audio of a context has the header of 44 bytes. A client must look for RIFF before it "
        "removes bytes.",
        "Public clients expect these.",
        "sure",
    ),
    OpenPoint(
        "tolerated-frames",
        "Frames of public clients that differ from the document",
        "A frame may have voice_config, text and end together. A frame with buffer settings may have no "
        "context_id. A null counts as an absent field.",
        "Existing programs must work unchanged.",
        "sure",
    ),
    OpenPoint(
        "invalid-json",
        "Valid JSON that is refused with INVALID_JSON",
        "A binary message, a value that is not an object, NaN and Infinity, and more than "
        f"{MAX_JSON_VALUES:,} values or {MAX_JSON_DEPTH} levels. The whole frame is ignored.",
        "The readable half of a frame may have another meaning than the whole frame.",
    ),
    OpenPoint(
        "sockets-per-key",
        "Sockets per key",
        f"Up to {SOCKETS_PER_CONCURRENCY} times the streaming concurrency.",
        "Concurrency is counted in contexts, so open sockets may be more.",
        "sure",
    ),
    OpenPoint(
        "socket-upgrade",
        "Refusals before a WebSocket is open",
        "With a valid key: 400 for an invalid query, 429 for too many sockets, 503 while the service stops.",
        "The table has no close codes for these cases.",
    ),
    OpenPoint(
        "socket-quota",
        "Quota that is used up during a WebSocket connection",
        "A fatal error frame with error_code QUOTA_EXHAUSTED, as in an HTTP body. Each chunk of text is "
        "billed when it is spoken.",
        "The table has no code for this case, and a retry after INTERNAL_ERROR could not succeed.",
    ),
    OpenPoint(
        "socket-faults",
        "Faults that close a WebSocket",
        "A missing or invalid key closes it. An invalid frame does not. Closing a socket frees its "
        f"contexts. A frame above {MAX_FRAME_BYTES // 1024} KB is refused with INVALID_JSON. A frame above "
        f"{MAX_READ_FRAME_BYTES // 1024**2} MB is not read and closes the connection with 1009.",
        "The document lists only 1008 and 1000.",
    ),
    OpenPoint(
        "clear",
        "`clear`",
        "Drops text whose synthesis has not begun. Audio that is already being synthesised is still sent.",
        "Public clients use it to interrupt a turn.",
        "sure",
    ),
    OpenPoint(
        "context-id",
        "Valid values of a context_id",
        f"Any text of at most {MAX_CONTEXT_ID_CHARACTERS} characters without NUL, also the empty text. "
        "Any other value is ignored with INVALID_FIELD_TYPE, and the frame belongs to the default context.",
        "Every frame of audio repeats the id, so it must be short. An ignored field counts as absent.",
    ),
    OpenPoint(
        "context-opening",
        "Frames that open a context",
        "A frame with voice_config or text opens a context. So does a frame with a context_id and "
        "settings, or with a context_id alone. A frame with only end or clear opens none. Settings without "
        "context_id open none and apply to every context of the socket without its own settings. A frame "
        "over the limit of concurrency is dropped with an error that is not fatal.",
        "A context takes a slot, so only a frame that announces speech opens a context.",
    ),
    OpenPoint(
        "context-turns",
        "Begin of the next turn of a context_id",
        "It begins after the frame with end, which frees the slot. The service sends the rest of the "
        "audio, then the final frame, then the audio of the next turn. Every turn has its own trace_id.",
        "Turns can use the same id one after the other. The text of the next turn need not wait for the "
        "audio.",
    ),
    OpenPoint(
        "context-failed",
        "Frames for a context after its fatal error",
        "They are dropped. A frame with voice_config begins a new turn. After a frame with end, other frames "
        "begin a new turn too.",
        "The client sent them for the failed turn. The rest of a text is useless without its beginning.",
    ),
    OpenPoint(
        "context-order",
        "Order of the contexts",
        "One chunk of a context is synthesised at a time. The keys take turns over all sockets, streams "
        "and calls.",
        "A long text must not delay other contexts until its end, and clear can drop all text but one chunk.",
    ),
    OpenPoint(
        "default-voice",
        "The default voice of a context",
        "The first voice of en-US in the listing of the model, or else the first voice of the listing.",
        "The document's warnings mention a default voice without a name.",
    ),
    OpenPoint(
        "socket-warnings",
        "Unsupported settings and texts of a context",
        f"Warning frames with our own codes: {TEXT_WARNING_CODE} if a text is not spoken exactly as written, "
        f"{VOICE_WARNING_CODE} if a locale, style or variation is ignored.",
        "The service reports every value that it replaces or ignores. The codes of the table have other "
        "meanings.",
    ),
    OpenPoint(
        "generation-rate",
        "TOO_MANY_GENERATION_REQUESTS",
        f"Sent after more than {MAX_GENERATION_REQUESTS_PER_S} generation requests per second and context.",
        "The document gives no number.",
        "guess",
    ),
    OpenPoint(
        "slow-readers",
        "A client that reads more slowly than audio is synthesised",
        f"If more than {MAX_WAITING_SOCKET_BYTES // 1024} KB of frames wait, the service synthesises no more "
        f"audio. If more than {MAX_WAITING_SOCKET_CHARACTERS:,} characters of text or "
        f"{MAX_WAITING_SOCKET_TURNS:,} ended turns wait, the service reads no more frames. The number of "
        "chunks of a key in synthesis is at most its limit of active contexts.",
        "Memory is limited, and nobody pays for audio that nobody hears.",
    ),
)
