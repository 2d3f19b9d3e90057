"""What every call has: keys, headers, warnings, repeats, limits of a key, and what it costs."""

from speechframe.spec.chosen._point import OpenPoint

INTERFACE_VERSION = "1.0.0"
"""Version of the machine-readable description (section 9)."""
TOKEN_SECONDS = 30 * 60
"""Life of an auth token."""
IDEMPOTENCY_SECONDS = 24 * 3600
"""How long an idempotency key is remembered."""
MAX_IDEMPOTENCY_CHARACTERS = 255
"""Of an idempotency key; longer ones are cut or refused by the servers and proxies in between."""
MAX_TAKE = 2**31 - 1
"""The highest number of a take."""
DEFAULT_CONCURRENCY = 15
"""Calls at once of a key of the local service that says nothing else."""
DEFAULT_QUOTA_CHARACTERS = 10_000_000
"""Characters in a billing cycle of a key of the local service that says nothing else."""
QUEUE_SECONDS = 5.0
"""How long a voice change or a translation waits for a place, over the cap, before it is refused."""
MAX_BODY_BYTES = 256 * 1024
"""Size of a JSON body, and of a form without its files; that of a translation is larger by its texts."""
MAX_JSON_VALUES = 5_000
"""Values of a JSON body or frame, inner ones included."""
MAX_FORM_PARTS = 200
"""Parts of a form, repeated fields included."""
MAX_LOCALE_CHARACTERS = 64
"""Characters of a locale; the longest that anybody uses has less than half of them."""
MAX_JSON_DEPTH = 32
"""Levels that a JSON body or frame may be nested."""
UNREAD_BYTES = 256 * 1024 * 1024
"""What may wait in memory for clients to read it, over all connections of the local service."""
SLOWEST_READER_BYTES_S = 1024
"""What a client reads at least, while something waits for it; who reads less is dropped."""
SLOW_READER_S = 60.0
"""Seconds over which that is looked at."""

KEY_THREADS = 4
"""Threads of a key that write its uploads, read its answers and encode its streams."""
KEY_LOOKUPS = 4
"""Host names of a key that are looked up at the same time."""
KEY_WEBHOOKS = 4
"""Webhooks of a key that are delivered at the same time."""
LOOKUP_SECONDS = 10.0
"""How long the look-up of a host name may take, and how long it may wait for others of its key."""

API_KEY_HEADER = "api-key"
"""Section 5 of the document."""
TOKEN_HEADER = "token"  # noqa: S105  (the name of the header of section 5)
"""Section 5 of the document."""
TRACE_HEADER = "X-Trace-Id"
"""On every answer of the local service."""
WARNING_HEADER = "X-Speech-Warning"
"""Repeatable; one warning each."""
IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Understood by the local service."""
TAKE_HEADER = "X-Take"
"""Which of several equally good takes is wanted."""
PROGRESS_HEADER = "X-Call-Progress"
"""A client that sends this header gets interim answers."""
PROGRESS_SECONDS = 5.0
"""Seconds between two interim answers to a call."""
CALL_STATE_HEADER = "X-Call-State"
"""State of a call in an interim answer: ``queued`` or ``working``."""
CALL_CPU_HEADER = "X-Call-CPU-Seconds"
"""CPU time that a call has used so far, in an interim answer."""
DEPRECATION_HEADER = "Deprecation"
"""On answers to calls that the document deprecates."""
RETRY_AFTER_HEADER = "Retry-After"
"""Seconds, with 429 and 503."""


POINTS: tuple[OpenPoint, ...] = (
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
        "statuses",
        "Which statuses where (sections 7.1 and 7.2 differ on 408 and 429)",
        "Generate and stream answer both lists. Voice changer and translation wait in a short queue over "
        "the cap, then 503 with Retry-After; a stalled body there is 400. Dubbing: unknown project or job "
        "400, missing key 403, no credits fails the job. Unknown path 404, wrong method 405.",
        "The tables are per endpoint, so each endpoint keeps to its own.",
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
        "missing-key",
        "A missing key where the schema calls the header optional",
        "403 (400 on /v1/auth/token, as the document says); a WebSocket without a key is closed like one "
        "with a bad key.",
        "The header is optional in the schema only: nothing is served without it.",
        "ours",
    ),
    OpenPoint(
        "token",
        "Life and use of a token",
        f"{TOKEN_SECONDS // 60} minutes; accepted in the token header by the voice listing only.",
        "The document names no other call that takes it.",
        "likely",
    ),
    OpenPoint(
        "unknown-fields",
        "Unknown fields in a JSON body",
        "Ignored, with a warning that names them.",
        "Clients are ahead of a document; a typing error must still be seen.",
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
        "turns",
        "Whose work is done first",
        "The keys with work that waits take turns, one job each: a text, a sentence of a stream, a slice of "
        "a translation, a clip. Of one key, first come, first served. Where the queue is full, the key with "
        "the most jobs in it gives up its last one (503) for a key with three fewer.",
        "Fifty long texts of one key would keep all others waiting.",
        "ours",
    ),
    OpenPoint(
        "two-queues",
        "Fast and slow engines",
        "Formant voices have workers and a queue of their own. Neural voices, translation and voice change "
        "share the others. /v1/limits publishes for each how many calls are taken at once, and the speed.",
        "A line takes a formant engine milliseconds and a neural engine many seconds.",
        "ours",
    ),
    OpenPoint(
        "progress",
        "How long a client waits for an answer",
        f"To a request with the header {PROGRESS_HEADER} the service sends an interim answer 102 every "
        f"{PROGRESS_SECONDS:g} s while the call waits in the queue or a worker is at it, with "
        f"{CALL_STATE_HEADER} and {CALL_CPU_HEADER}. The client's time limit then begins anew.",
        "A call that is still worked on must not time out and be paid for nothing.",
        "ours",
    ),
    OpenPoint(
        "body-size",
        "Size of a request",
        f"{MAX_BODY_BYTES // 1024} KB of JSON, or of a form without its files; of a translation more, by its "
        f"texts. JSON has at most {MAX_JSON_VALUES:,} values on {MAX_JSON_DEPTH} levels, a form "
        f"{MAX_FORM_PARTS} parts, a locale {MAX_LOCALE_CHARACTERS} characters. A body in gzip or deflate is "
        "as large as what it unpacks to. 400 beyond.",
        "While one request is read, no other one is: so none may take long.",
        "ours",
    ),
    OpenPoint(
        "unread-answers",
        "A client that does not read its answer",
        "Audio waits on disk, or is made as it is read, and the call holds its slot until then. Who reads "
        f"less than {SLOWEST_READER_BYTES_S // 1024} KB/s over {SLOW_READER_S:g} s, while there is more, is "
        f"dropped; so is, where more than {UNREAD_BYTES // 1024**2} MB wait in memory over all connections, "
        "the one for which most waits.",
        "What nobody reads must not take the memory, or the slots, of those who do.",
        "ours",
    ),
    OpenPoint(
        "key-shares",
        "What blocks: host names that do not resolve, receivers of webhooks that do not answer, slow disks",
        f"Each key has its own share: {KEY_LOOKUPS} host names are looked up at the same time, each for at "
        f"most {LOOKUP_SECONDS:g} s, then 400. A look-up that waits that long for others of its key is "
        f"refused with 503. {KEY_WEBHOOKS} webhooks of a key are delivered at the same time. "
        f"{KEY_THREADS} threads of a key read and write files and encode streams.",
        "A key whose names or receivers hang must not delay other keys.",
        "ours",
    ),
    OpenPoint(
        "interface-version",
        "OpenAPI info.version",
        INTERFACE_VERSION,
        "Section 9 says so.",
        "sure",
    ),
)
