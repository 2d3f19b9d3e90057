"""The WebSocket: frames, contexts, and how much waits for whom."""

from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import MAX_JSON_DEPTH, MAX_JSON_VALUES

SOCKETS_PER_CONCURRENCY = 10
"""Open WebSockets per key, as a multiple of its streaming concurrency."""
GENERATION_REQUESTS_PER_S = 5
"""Per context; beyond it comes TOO_MANY_GENERATION_REQUESTS."""
MAX_FRAME_BYTES = 64 * 1024
"""Size of a frame of the WebSocket client, in UTF-8; a larger one is INVALID_JSON."""
MAX_READ_FRAME_BYTES = 16 * 1024 * 1024
"""Size of a frame up to which it is read at all; a larger one ends the connection."""
MAX_CONTEXT_ID_CHARACTERS = 256
"""Length of a `context_id`; a longer one is ignored, since it comes back with every piece of audio."""
SOCKET_WAITING_CHARACTERS = 100_000
"""Text of a socket that waits for its synthesis, beyond which nothing more is read."""
SOCKET_WAITING_TURNS = 1_000
"""Turns of a socket that were ended and whose audio is still to come, beyond which nothing more is read."""
SOCKET_WAITING_BYTES = 512 * 1024
"""Frames of a socket that wait for a client that reads slowly, beyond which nothing more is made."""
TEXT_WARNING = "TEXT_CHANGED"
"""`warning_code` of ours: something of a text was not spoken, or not as it stands."""
VOICE_WARNING = "VOICE_OPTION_IGNORED"
"""`warning_code` of ours: the voice has not what its voice_config asks for."""


POINTS: tuple[OpenPoint, ...] = (
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
        "max_buffer_delay_in_ms}, 40 and 300 when not given; {clear, context_id}",
        "Public clients send these.",
        "sure",
    ),
    OpenPoint(
        "socket-server-frames",
        "Frames of the WebSocket server",
        "{audio, context_id, trace_id}; {final: true, context_id, trace_id} without audio. With WAV the "
        "44-byte header stands in a context's first chunk only: look for RIFF, never strip blindly.",
        "Public clients expect these.",
        "sure",
    ),
    OpenPoint(
        "tolerated-frames",
        "What public clients send over WebSocket beside the document",
        "voice_config and end ride with text in one frame; buffer settings come as a frame of their own "
        "without context_id; null is a field that is not given.",
        "Existing programs must work unchanged.",
        "sure",
    ),
    OpenPoint(
        "invalid-json",
        "What is INVALID_JSON beside what does not parse",
        "A binary message, a value that is not an object, NaN and Infinity, more than "
        f"{MAX_JSON_VALUES:,} values or {MAX_JSON_DEPTH} levels. Nothing of such a frame counts.",
        "Half of a frame is not what its sender meant.",
        "ours",
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
        "What is refused before a WebSocket is open",
        "With a good key: 400 for a query that is wrong, 429 for one socket too many, 503 while stopping.",
        "No close code of the table says so.",
        "ours",
    ),
    OpenPoint(
        "socket-quota",
        "No characters left in the middle of a WebSocket",
        "A fatal error frame with error_code QUOTA_EXHAUSTED, as in an HTTP body; each chunk of text is "
        "billed when it is spoken.",
        "The table has no code for it, and its INTERNAL_ERROR asks for a retry that cannot succeed.",
        "ours",
    ),
    OpenPoint(
        "socket-faults",
        "What closes a WebSocket",
        "An invalid frame does not; a missing key does, as a bad one. Closing a socket frees its contexts. A "
        f"frame above {MAX_FRAME_BYTES // 1024} KB is INVALID_JSON, one above "
        f"{MAX_READ_FRAME_BYTES // 1024**2} MB is not read, and ends the connection with 1009.",
        "Only 1008 and 1000 are listed.",
        "ours",
    ),
    OpenPoint(
        "clear",
        "`clear`",
        "Drops what is buffered and not yet being synthesised; what already plays goes on.",
        "Public clients use it to interrupt a turn.",
        "sure",
    ),
    OpenPoint(
        "context-id",
        "What a context_id may be",
        f"Any text of at most {MAX_CONTEXT_ID_CHARACTERS} characters, the empty one too, without NUL. "
        "Anything else is ignored with INVALID_FIELD_TYPE, and the frame is the default context's.",
        "It comes back with every piece of audio; a field that is ignored is as one that is not there.",
        "ours",
    ),
    OpenPoint(
        "context-opening",
        "Which frames make a context",
        "One with voice_config or text; one with a context_id and settings, or with nothing else. end or "
        "clear alone and settings without context_id make none: such settings apply to every context of "
        "the socket that has none of its own. What the cap refuses is dropped; its error is not fatal.",
        "A context costs a slot, so only what is meant to be spoken opens one.",
        "ours",
    ),
    OpenPoint(
        "context-turns",
        "When the next turn of a context_id begins",
        "Behind the frame with end, which frees the slot: audio still to come is sent, then the final frame, "
        "then the audio of the next turn. Every turn has a trace_id of its own.",
        "Sequential turns use ids again, and their text need not wait until the last one was heard.",
        "ours",
    ),
    OpenPoint(
        "context-failed",
        "Frames for a context behind its fatal error",
        "Dropped, until one with voice_config begins a turn, or one with end was seen.",
        "They were sent for the turn that failed; the rest of a text without its beginning is of no use.",
        "ours",
    ),
    OpenPoint(
        "context-order",
        "Whose text is spoken first",
        "One chunk of a context at a time; over all sockets, streams and calls the keys take turns.",
        "A long text shall not make the others wait for its end, and clear can drop all but a chunk.",
        "ours",
    ),
    OpenPoint(
        "default-voice",
        "The default voice of a context",
        "The first voice of en-US in the model's listing, or the first of all.",
        "The warnings speak of one without naming it.",
        "ours",
    ),
    OpenPoint(
        "socket-warnings",
        "What a context's voice or text cannot have",
        f"Warning frames with codes of ours: {TEXT_WARNING} where something of a text is not spoken as it "
        f"stands, {VOICE_WARNING} where a locale, style or variation is ignored.",
        "Nothing is replaced or ignored silently, and the table's codes mean other things.",
        "ours",
    ),
    OpenPoint(
        "generation-rate",
        "TOO_MANY_GENERATION_REQUESTS",
        f"More than {GENERATION_REQUESTS_PER_S} generation requests a second and context; configurable.",
        "The document gives no number.",
        "guess",
    ),
    OpenPoint(
        "slow-readers",
        "A client that reads more slowly than audio is made",
        f"Beyond {SOCKET_WAITING_BYTES // 1024} KB of frames nothing more is made, beyond "
        f"{SOCKET_WAITING_CHARACTERS:,} characters of text, or {SOCKET_WAITING_TURNS:,} turns that were "
        "ended and are not over, nothing more is read. The contexts of a key have as many chunks spoken at "
        "once as may be active.",
        "Memory is bounded, and nobody pays for what will not be heard.",
        "ours",
    ),
)
