"""What the document leaves open, what we do instead, and why.

Nothing here is the document's. The local service publishes the list at `GET /v1/limits`, so that nobody
mistakes ours for theirs. `certainty` is `sure` (seen in public clients of services with this interface),
`likely`, `ours` (a choice that no outside fact can settle) or `guess`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from speechframe.spec._enums import Format, Model
from speechframe.spec._range import Range

INTERFACE_VERSION = "1.0.0"
"""Version of the machine-readable description (section 9)."""
MAX_TEXT_CHARACTERS = 5_000
"""Characters of one text to speak, pause markers included."""
TRANSCRIPTION_CHARACTERS_PER_S = 60
"""Characters a transcription may have for each second of its clip, and never fewer than a text may."""
MAX_TEXTS_PER_CALL = 200
"""Texts of one translation call."""
MAX_TRANSLATE_CHARACTERS = 100_000
"""Characters of all texts of one translation call together."""
MAX_UPLOAD_BYTES = 500 * 1024 * 1024
"""Size of an uploaded medium."""
MAX_REDIRECTS = 5
"""How often a `file_url` may lead elsewhere."""
PAUSE_SECONDS = Range(0.1, 5.0)
"""Length of a pause marker, in seconds."""
US_EAST_STREAM_MODEL = Model.GEN2
"""What a stream in US-East speaks with when it names no model."""
RAW_G711_RATE_HZ = 8000
"""ALAW and ULAW are always mono at this rate."""
TOKEN_SECONDS = 30 * 60
"""Life of an auth token."""
IDEMPOTENCY_SECONDS = 24 * 3600
"""How long an idempotency key is remembered."""
MAX_TAKE = 2**31 - 1
"""The highest number of a take."""
SHELF_SECONDS = 24 * 3600
"""How long an `audioFile` link lives."""
DUB_LINK_SECONDS = 72 * 3600
"""How long the links of a job without a project live."""
PAGE_DEFAULT = 20
"""Projects on a page when nobody says how many."""
PAGE_LIMIT = Range(1, 100, PAGE_DEFAULT)
"""Projects on a page."""
DEFAULT_CONCURRENCY = 15
"""Calls at once of a key of the local service that says nothing else."""
DEFAULT_QUOTA_CHARACTERS = 10_000_000
"""Characters in a billing cycle of a key of the local service that says nothing else."""
QUEUE_SECONDS = 5.0
"""How long a voice change or a translation waits for a place, over the cap, before it is refused."""
SOCKETS_PER_CONCURRENCY = 10
"""Open WebSockets per key, as a multiple of its streaming concurrency."""
GENERATION_REQUESTS_PER_S = 5
"""Per context; beyond it comes TOO_MANY_GENERATION_REQUESTS."""
MAX_FRAME_BYTES = 1024 * 1024
"""Size of a frame of the WebSocket client, in UTF-8; a larger one is INVALID_JSON."""
MAX_READ_FRAME_BYTES = 16 * 1024 * 1024
"""Size of a frame up to which it is read at all; a larger one ends the connection."""
MAX_FRAME_DEPTH = 32
"""Levels that a frame may be nested."""
SOCKET_WAITING_CHARACTERS = 100_000
"""Text of a socket that waits for its synthesis, beyond which nothing more is read."""
SOCKET_WAITING_TURNS = 1_000
"""Turns of a socket that were ended and whose audio is still to come, beyond which nothing more is read."""
SOCKET_WAITING_BYTES = 512 * 1024
"""Frames of a socket that wait for a client that reads slowly, beyond which nothing more is made."""
PART_QUEUE_SECONDS = 30.0
"""How long text of a stream that is under way waits for a place in a full queue."""
TEXT_WARNING = "TEXT_CHANGED"
"""`warning_code` of ours: something of a text was not spoken, or not as it stands."""
VOICE_WARNING = "VOICE_OPTION_IGNORED"
"""`warning_code` of ours: the voice has not what its voice_config asks for."""
MAX_CONTEXT_ID_CHARACTERS = 256
"""Length of a `context_id`; a longer one is ignored, since it comes back with every piece of audio."""
WEBHOOK_TRIES = 5
"""Deliveries of a webhook that is not answered with a 2xx status."""
WEBHOOK_SECONDS = 600
"""Time over which the deliveries of a webhook are spread."""

API_KEY_HEADER = "api-key"
"""Section 5 of the document."""
TOKEN_HEADER = "token"  # noqa: S105  (the name of the header of section 5)
"""Section 5 of the document."""
TRACE_HEADER = "X-Trace-Id"
"""On every answer of the local service."""
WARNING_HEADER = "X-Speech-Warning"
"""Repeatable; one warning each."""
ROUTE_WARNING = "route: "
"""How a warning begins that tells a translation's route; :func:`route_warning` writes it whole."""
IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Understood by the local service."""
TAKE_HEADER = "X-Take"
"""Which of several equally good takes is wanted."""
DEPRECATION_HEADER = "Deprecation"
"""On answers to calls that the document deprecates."""
RETRY_AFTER_HEADER = "Retry-After"
"""Seconds, with 429 and 503."""
WEBHOOK_TIMESTAMP_HEADER = "X-Signature-Timestamp"
"""Unix time in milliseconds."""
WEBHOOK_SIGNATURE_HEADER = "X-HMAC-Signature"
"""Hex HMAC-SHA256 of raw body, a dot and the timestamp."""

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


def route_warning(route: str, texts: Iterable[int]) -> str:
    """Return the warning that tells which of a call's texts went which way.

    Parameters
    ----------
    route
        The languages on the way, such as ``en>pt-BR``.
    texts
        Places in the request's list, from 0.

    Examples
    --------
    >>> route_warning("en>pt-BR>es", [0, 1, 2, 5])
    'route: en>pt-BR>es; texts 0-2,5'
    """
    return f"{ROUTE_WARNING}{route}; texts {ranges(texts)}"


def read_route(warning: str) -> tuple[str, list[int]] | None:
    """Return what :func:`route_warning` was given; None for any other warning.

    Examples
    --------
    >>> read_route("route: en>pt-BR>es; texts 0-2,5")
    ('en>pt-BR>es', [0, 1, 2, 5])
    """
    found = _ROUTE.fullmatch(warning)
    if found is None:
        return None
    texts: list[int] = []
    for words in found[2].split(","):
        first, _, last = words.partition("-")
        # However a service came to write it: no list is longer than a call can be.
        texts += range(int(first), min(int(last or first), MAX_TEXTS_PER_CALL - 1) + 1)
    return found[1], texts


_ROUTE = re.compile(
    rf"{ROUTE_WARNING}([^\s;]+); texts (\d{{1,9}}(?:-\d{{1,9}})?(?:,\d{{1,9}}(?:-\d{{1,9}})?)*)"
)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as people write them.

    Examples
    --------
    >>> ranges([0, 1, 2, 5])
    '0-2,5'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in runs)


@dataclass(frozen=True, slots=True)
class OpenPoint:
    """A point the document leaves open: our choice, its reason, and how certain it is."""

    id: str
    point: str
    choice: str
    reason: str
    certainty: str


OPEN_POINTS: tuple[OpenPoint, ...] = (
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
        "http-error-body",
        "Body of an HTTP error",
        '{"error_message", "error_code", "trace_id"}; the client also reads message, error, errorMessage, '
        "errorCode and plain text.",
        "Comparable services spell it in all of these ways, and WebSocket frames already have error_code "
        "and trace_id.",
        "likely",
    ),
    OpenPoint(
        "retry-after",
        "Retry-After",
        "Sent in seconds with 429 and 503; the client honours seconds, HTTP dates and retry-after-ms, of "
        "any length up to the run's own patience.",
        "A service that knows when it is free again should say so, and proxies on the way spell it "
        "differently.",
        "ours",
    ),
    OpenPoint(
        "us-east-model",
        "Default model for streaming in US-East",
        "gen2",
        "The document says only that it is not falcon-2, and there are two models.",
        "guess",
    ),
    OpenPoint(
        "voices-model",
        "`model` query of the voice listing",
        "falcon-2, FALCON, gen2 and GEN2 are understood; the two catalogues differ.",
        "The document's own table and error page spell it differently.",
        "sure",
    ),
    OpenPoint(
        "job-status",
        "Status values of a dubbing job",
        "QUEUED, IN_PROGRESS, then one of COMPLETED, PARTIALLY_COMPLETED, FAILED. An unknown value is not "
        "terminal, a partial one is.",
        "Clients that do not know the partial state poll for ever; a new value must not end a wait too "
        "early.",
        "sure (COMPLETED, FAILED, that a partial state exists), guess (its spelling)",
    ),
    OpenPoint(
        "download-status",
        "Status of a download detail",
        "The same words, per locale.",
        "A second vocabulary for the same states would help nobody.",
        "likely",
    ),
    OpenPoint(
        "failure-code",
        "`failure_code`",
        "INSUFFICIENT_CREDITS, CREDITS_EXHAUSTED, LANGUAGE_NOT_SUPPORTED, SPEECH_NOT_PRESENT, "
        "SOURCE_LANGUAGE_MISMATCH, WEBHOOK_ERROR, SERVER_ERROR",
        "Public clients carry these names.",
        "sure (names), likely (use)",
    ),
    OpenPoint(
        "webhook",
        "Webhook delivery",
        'POST {"eventName": "DUB_JOB", "data": job status} when a job ends. With a secret: '
        f"{WEBHOOK_TIMESTAMP_HEADER} (Unix ms) and {WEBHOOK_SIGNATURE_HEADER} = hex HMAC-SHA256(secret, "
        f'raw body + "." + timestamp). {WEBHOOK_TRIES} tries over {WEBHOOK_SECONDS // 60} minutes; a '
        "receiver that never answers does not fail the job.",
        "Public receivers check exactly this; the timestamp inside the signature stops replays.",
        "sure (shape, signature), guess (tries)",
    ),
    OpenPoint(
        "dubbing-locales",
        "Spelling of dubbing locales",
        "Underscore (fr_FR) in dubbing, hyphen (fr-FR) in speech; both are accepted, answers use the "
        "house spelling of each, one function normalises.",
        "Both are seen on the wire, and people copy from one side to the other.",
        "sure",
    ),
    OpenPoint(
        "target-locales-form",
        "`target_locales` in a multipart form",
        "A repeated field; one comma-separated value is read too.",
        "Repeating is what public clients do; the comma is what people type.",
        "sure (repeated), ours (comma)",
    ),
    OpenPoint(
        "dubbing-key",
        "Key of the dubbing calls",
        "May differ from the speech key; it has its own environment variable.",
        "The document speaks of the dubbing API key.",
        "sure",
    ),
    OpenPoint(
        "link-life",
        "Life of result links",
        f"{SHELF_SECONDS // 3600} h for audioFile, {DUB_LINK_SECONDS // 3600} h for jobs without a "
        "project: fetched at once and kept.",
        "A dataset may not depend on a link.",
        "likely (audioFile), sure (dubbing)",
    ),
    OpenPoint(
        "token",
        "Life and use of a token",
        f"{TOKEN_SECONDS // 60} minutes; accepted in the token header by the voice listing only.",
        "The document names no other call that takes it.",
        "likely",
    ),
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
        "clear",
        "`clear`",
        "Drops what is buffered and not yet being synthesised; what already plays goes on.",
        "Public clients use it to interrupt a turn.",
        "sure",
    ),
    OpenPoint(
        "sockets-per-key",
        "Sockets per key",
        f"Up to {SOCKETS_PER_CONCURRENCY} times the streaming concurrency.",
        "Concurrency is counted in contexts, so open sockets may be more.",
        "sure",
    ),
    OpenPoint(
        "pause-marker",
        "Range of the pause marker",
        f"{PAUSE_SECONDS} s; outside it is clamped, with a warning. One blank, a decimal number, the unit "
        "s; anything else is text.",
        "Comparable services clamp; a marker that only we read would be spoken, and billed, elsewhere.",
        "likely",
    ),
    OpenPoint(
        "g711",
        "ALAW and ULAW",
        f"Mono at {RAW_G711_RATE_HZ} Hz; another rate or STEREO gets that with a warning, never silently.",
        "G.711 telephony knows nothing else.",
        "sure (that it is forced)",
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
        "maximum-text",
        "Maximum text",
        f"{MAX_TEXT_CHARACTERS:,} characters per request, 400 beyond.",
        "The order of magnitude of comparable services.",
        "guess",
    ),
    OpenPoint(
        "texts-per-translate",
        "Texts per translation call",
        f"1 to {MAX_TEXTS_PER_CALL}, and {MAX_TRANSLATE_CHARACTERS:,} characters together.",
        "Bounds what one call holds in memory.",
        "guess",
    ),
    OpenPoint(
        "upload-size",
        "Upload size",
        f"{MAX_UPLOAD_BYTES // 1024**2} MB, refused while reading, not after.",
        "A medium of some hours fits; nobody uploads in vain.",
        "guess",
    ),
    OpenPoint(
        "project-page",
        "Page of the project list",
        f"limit {PAGE_LIMIT}, default {PAGE_LIMIT.default}; next is an opaque string.",
        "Small enough to answer at once.",
        "guess",
    ),
    OpenPoint(
        "missing-key",
        "A missing key where the schema calls the header optional",
        "403 (400 on /v1/auth/token, as the document says); a WebSocket without a key is closed like one "
        "with a bad key.",
        "The header is optional in the schema only: nothing is served without it.",
        "ours",
    ),
    OpenPoint(
        "unknown-fields",
        "Unknown fields in a JSON body",
        "Ignored, with a warning that names them.",
        "Clients are ahead of a document; a typing error must still be seen.",
        "ours",
    ),
    OpenPoint(
        "idempotency",
        "Idempotency",
        f"{IDEMPOTENCY_HEADER} is honoured for {IDEMPOTENCY_SECONDS // 3600} h: key, body hash, status and "
        "billed amount are stored, never Base64 audio; a repeat is synthesised again, byte for byte, and "
        "bills nothing; errors are not stored; the same key with another body is 400.",
        "A batch that lost an answer can ask again without paying twice, and zero retention still holds.",
        "ours",
    ),
    OpenPoint(
        "re-takes",
        "Re-takes",
        f"{TAKE_HEADER}: n, at most {MAX_TAKE}, announced in /v1/limits, is mixed into the seed of "
        "variation; absent or 0 is none. Content keys and idempotency keys contain the take.",
        "Equal requests give equal bytes, so another take has to be asked for.",
        "ours",
    ),
    OpenPoint(
        "statuses",
        "Which statuses where (sections 7.1 and 7.2 differ on 408 and 429)",
        "Generate and stream answer both lists. Voice changer and translation wait in a short queue over "
        "the cap, then 503 with Retry-After; a stalled body there is 400. Dubbing: unknown project or job "
        "400, missing key 403, no credits fails the job. Unknown path 404, wrong method 405.",
        "The tables are per endpoint, so each endpoint keeps to its own.",
        "ours",
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
        "prices",
        "Prices",
        "Generate and stream: billed characters. Translation: characters of source. Voice changer: "
        "characters per second of input audio. Dubbing: credits per second of media and target locale. "
        "One table (billing).",
        "Each in the unit that the caller knows before calling.",
        "ours",
    ),
    OpenPoint(
        "quota",
        "Quota",
        "One balance per key for speech, voice changer and translation; dubbing credits are a balance of "
        "their own on the dubbing key.",
        "The answers report them under different names.",
        "ours",
    ),
    OpenPoint(
        "pools",
        "Concurrency pools",
        "Contexts and HTTP streams share the streaming pool of a region; generate, voice changer and "
        "translation share the key's other pool. A key's own cap beats the region's.",
        "The document counts streaming by itself.",
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
        "dubbing-defaults",
        "dubbing_type of a job without project; default priority",
        "AUTOMATED; NORMAL",
        "The answer requires both fields.",
        "likely",
    ),
    OpenPoint(
        "one-source",
        "Both or neither of file and file_url",
        "400 naming both.",
        "Guessing which one was meant could dub, and bill, the wrong medium.",
        "ours",
    ),
    OpenPoint(
        "file-url",
        "Where a file_url may lead",
        "http and https on the public Internet, without credentials in the address and without our key; at "
        f"most {MAX_REDIRECTS} redirects; 400 by the kind of failure. The operator of a local service may "
        "allow private addresses.",
        "A service must not reach, for a stranger, what only its own machine and network may.",
        "ours",
    ),
    OpenPoint(
        "empty-form-field",
        "A form field that is empty",
        "Counts as not given.",
        "Forms send every field they have, filled in or not.",
        "ours",
    ),
    OpenPoint(
        "update-while-running",
        "Project update while jobs run",
        "Running jobs keep their targets.",
        "What was asked for and billed does not change underway.",
        "ours",
    ),
    OpenPoint(
        "gen2-streaming",
        "gen2 streaming is deprecated",
        f"Works, with a {DEPRECATION_HEADER} header and a warning.",
        "Deprecated is not removed.",
        "ours",
    ),
    OpenPoint(
        "warning-header",
        "Warnings where the body has no `warning` field",
        f"Response header {WARNING_HEADER} (repeatable) everywhere; the client reads both.",
        "Nothing is replaced or ignored silently.",
        "ours",
    ),
    OpenPoint(
        "interface-version",
        "OpenAPI info.version",
        INTERFACE_VERSION,
        "Section 9 says so.",
        "sure",
    ),
    OpenPoint(
        "empty-text",
        "Empty text, text of whitespace",
        "400; so is text without a speakable character for the voice, saying so.",
        "There is nothing to bill and nothing to hear.",
        "ours",
    ),
    OpenPoint(
        "tolerated-http",
        "What public clients send over HTTP beside the document",
        "Extra query parameters and unknown headers are ignored; numbers and truth values may be text such "
        "as 24000.0; null is a field that is not given; "
        "voice changer and dubbing calls with file_url may be application/x-www-form-urlencoded; FALCON "
        "and GEN2 are models everywhere.",
        "Existing programs must work unchanged.",
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
        "pronunciation-dictionary",
        "`pronunciationDictionary`",
        "Word to {type: IPA or SAY_AS, pronunciation}, on generate, stream, voice changer and in "
        "voice_config; in a form it is JSON text in pronunciation_dictionary.",
        "Not in the document, but users of such services rely on it.",
        "ours",
    ),
    OpenPoint(
        "stream-speech",
        "How a stream sounds, and what it costs when it is broken off",
        "Spoken sentence by sentence: each alone as in any other text, with a fixed pause between, at the "
        "loudness of the voice. A stream that is broken off, by whomever, is billed for the sentences that "
        "were spoken; a repeat with its idempotency key is billed for the rest. What is under way waits up "
        f"to {PART_QUEUE_SECONDS:g} s for a place in a full queue.",
        "What is heard first cannot wait for what comes last, and work that was done was asked for.",
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
        "socket-quota",
        "No characters left in the middle of a WebSocket",
        "A fatal error frame with error_code QUOTA_EXHAUSTED, as in an HTTP body; each chunk of text is "
        "billed when it is spoken.",
        "The table has no code for it, and its INTERNAL_ERROR asks for a retry that cannot succeed.",
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
        "socket-upgrade",
        "What is refused before a WebSocket is open",
        "With a good key: 400 for a query that is wrong, 429 for one socket too many, 503 while stopping.",
        "No close code of the table says so.",
        "ours",
    ),
    OpenPoint(
        "socket-faults",
        "What closes a WebSocket",
        "An invalid frame does not; a missing key does, as a bad one. Closing a socket frees its contexts. A "
        f"frame above {MAX_FRAME_BYTES // 1024**2} MB is INVALID_JSON, one above "
        f"{MAX_READ_FRAME_BYTES // 1024**2} MB is not read, and ends the connection with 1009.",
        "Only 1008 and 1000 are listed.",
        "ours",
    ),
    OpenPoint(
        "invalid-json",
        "What is INVALID_JSON beside what does not parse",
        "A binary message, a value that is no object, NaN and Infinity, more than "
        f"{MAX_FRAME_DEPTH} levels. Nothing of such a frame counts.",
        "Half of a frame is not what its sender meant.",
        "ours",
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
        "clear alone and settings without context_id make none: such settings hold for every context of "
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
        "One chunk of a context at a time, first come, first served over all sockets and streams.",
        "A long text shall not make the others wait for its end, and clear can drop all but a chunk.",
        "ours",
    ),
    OpenPoint(
        "slow-readers",
        "A client that reads more slowly than audio is made",
        f"Beyond {SOCKET_WAITING_BYTES // 1024} KB of frames nothing more is made, beyond "
        f"{SOCKET_WAITING_CHARACTERS:,} characters of text, or {SOCKET_WAITING_TURNS:,} turns that were "
        "ended and are not over, nothing more is read. Who takes nothing for as long as the inactivity limit "
        "is cut off. The contexts of a key have as many chunks spoken at once as may be active.",
        "Memory is bounded, and nobody pays for what will not be heard.",
        "ours",
    ),
    OpenPoint(
        "cursor",
        "Paging while projects are created",
        "next is a cursor, not an offset: nothing is shown twice or skipped.",
        "An offset shifts when something new comes in front.",
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
        "source-language",
        "Language of the texts to translate",
        "sourceLanguage, else told from each text, in doubt as most of the call's; a text that is in the "
        "target's language already comes back as it is, with a warning, and is billed.",
        "The document names the target only, and a text of one word does not tell its language.",
        "ours",
    ),
    OpenPoint(
        "translation-route",
        "Translation through a third language",
        f"The best route is taken, and told in {WARNING_HEADER} as {ROUTE_WARNING}en>pt-BR>es; texts 0-2,5 "
        "(places in the list, from 0), one for each route; a region that is not known is answered in another "
        "of its language, with a warning.",
        "What went through a third language reads differently, and nobody could see it.",
        "ours",
    ),
)
"""Every open point, in the order of the table it was settled in."""
