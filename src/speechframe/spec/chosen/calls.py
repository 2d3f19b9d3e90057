"""Choices for all calls, such as keys, headers, warnings, repeats, limits and prices."""

from speechframe.spec.chosen._point import OpenPoint

INTERFACE_VERSION = "1.0.0"
"""Version of the OpenAPI description (section 9)."""
TOKEN_LIFETIME_SECONDS = 30 * 60
"""Lifetime of an auth token in seconds."""
IDEMPOTENCY_SECONDS = 24 * 3600
"""Seconds that the service stores an idempotency key."""
MAX_IDEMPOTENCY_CHARACTERS = 255
"""Largest length of an idempotency key. Proxies often cut or refuse longer keys."""
MAX_TAKE_NUMBER = 2**31 - 1
"""Highest number of a take, which is one of several spoken versions of the same text."""
DEFAULT_CONCURRENCY = 15
"""Largest number of concurrent calls of a key of the local service, unless the key has its own limit."""
DEFAULT_QUOTA_CHARACTERS = 10_000_000
"""Characters of a key of the local service in a billing cycle, unless the key has its own quota."""
MAX_QUEUE_SECONDS = 5.0
"""Seconds that a voice change or translation waits for a free slot before it is refused."""
MAX_BODY_BYTES = 256 * 1024
"""Largest size of a JSON body, or of a form without files. A translation may add the size of its texts."""
MAX_JSON_VALUES = 5_000
"""Largest number of values in a JSON body or frame, including nested values."""
MAX_FORM_PARTS = 200
"""Largest number of parts in a form, including repeated fields."""
MAX_LOCALE_CHARACTERS = 64
"""Largest length of a locale. Real locales have less than half as many characters."""
MAX_JSON_DEPTH = 32
"""Largest nesting depth of a JSON body or frame."""
MAX_UNREAD_BYTES = 256 * 1024 * 1024
"""Largest number of unread bytes in memory, over all connections of the local service."""
MIN_READER_BYTES_PER_S = 1024
"""Lowest reading speed of a client while bytes wait for it. A slower client is disconnected."""
READER_SPEED_WINDOW_S = 60.0
"""Seconds over which the reading speed of a client is measured."""

THREADS_PER_KEY = 4
"""Threads per key that write uploads, read answers and encode streams."""
LOOKUPS_PER_KEY = 4
"""Host names per key that are resolved at the same time."""
WEBHOOKS_PER_KEY = 4
"""Webhooks per key that are delivered at the same time."""
MAX_LOOKUP_SECONDS = 10.0
"""Longest time of a host name look-up, and longest wait of a look-up for others of its key, in seconds."""

API_KEY_HEADER = "api-key"
"""Header of the API key (section 5)."""
TOKEN_HEADER = "token"  # noqa: S105  (the name of the header of section 5)
"""Header of the auth token (section 5)."""
TRACE_HEADER = "X-Trace-Id"
"""Header with the trace id, on every answer of the local service."""
WARNING_HEADER = "X-Speech-Warning"
"""Header of one warning. It may be repeated."""
IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Header that makes a repeated call free. The local service supports it."""
TAKE_HEADER = "X-Take"
"""Header with the number of the take, which selects one of several spoken versions of a text."""
PROGRESS_HEADER = "X-Call-Progress"
"""Header that requests interim answers while a call is queued or in progress."""
PROGRESS_SECONDS = 5.0
"""Seconds between two interim answers to a call."""
CALL_STATE_HEADER = "X-Call-State"
"""State of a call in an interim answer: ``queued`` or ``working``."""
CALL_CPU_HEADER = "X-Call-CPU-Seconds"
"""CPU time of a call so far in seconds, in an interim answer."""
DEPRECATION_HEADER = "Deprecation"
"""Header on answers to calls that the document deprecates."""
RETRY_AFTER_HEADER = "Retry-After"
"""Header with the seconds to wait before a retry, in answers with 429 and 503."""


CALL_POINTS: tuple[OpenPoint, ...] = (
    OpenPoint(
        "http-error-body",
        "Body of an HTTP error",
        '{"error_message", "error_code", "trace_id"}; the client also reads message, error, errorMessage, '
        "errorCode and plain text.",
        "Comparable services use all of these names. The document has error_code and trace_id in WebSocket "
        "frames.",
        "likely",
    ),
    OpenPoint(
        "retry-after",
        "Retry-After",
        "Sent in seconds with 429 and 503. The client honours seconds, HTTP dates and retry-after-ms, up to "
        "the longest wait of the run.",
        "A service should announce when it will be free again. Proxies use different forms of the header.",
    ),
    OpenPoint(
        "statuses",
        "Statuses of each endpoint (sections 7.1 and 7.2 differ on 408 and 429)",
        "Generate and stream use both lists. If all slots of a key are in use, a voice change or translation "
        "waits for a short time and then gets 503 with Retry-After. If its body does not arrive in time, it "
        "gets 400. A dubbing call gets 400 for an unknown project or job, and 403 for a missing key. A lack "
        "of credits fails the job. An unknown path gets 404, and a wrong method gets 405.",
        "The document has a table per endpoint, so each endpoint follows its own table.",
    ),
    OpenPoint(
        "warning-header",
        "Warnings for bodies without a `warning` field",
        f"Response header {WARNING_HEADER} (repeatable) on all answers. The client reads header and field.",
        "The service reports every value that it replaces or ignores.",
    ),
    OpenPoint(
        "missing-key",
        "A missing key, although the schema calls the header optional",
        "403 (400 on /v1/auth/token, as in the document). A WebSocket without a key is closed like a "
        "WebSocket with an invalid key.",
        "The header is optional only in the schema. The calls still require a key.",
    ),
    OpenPoint(
        "token",
        "Lifetime and use of a token",
        f"{TOKEN_LIFETIME_SECONDS // 60} minutes. Only the voice listing accepts a token, "
        "in the token header.",
        "The document names no other call that accepts a token.",
        "likely",
    ),
    OpenPoint(
        "unknown-fields",
        "Unknown fields in a JSON body",
        "Ignored, with a warning that names them.",
        "Clients may be newer than the document. A misspelled field must still be visible.",
    ),
    OpenPoint(
        "tolerated-http",
        "Requests of public clients that differ from the document",
        "Extra query parameters and unknown headers are ignored. Numbers and truth values may be text such "
        "as 24000.0. A null counts as an absent field. Voice changer and dubbing calls with file_url may be "
        "application/x-www-form-urlencoded. FALCON and GEN2 are accepted as models in all calls.",
        "Existing programs must work unchanged.",
        "sure",
    ),
    OpenPoint(
        "idempotency",
        "Idempotency",
        f"{IDEMPOTENCY_HEADER} is honoured for {IDEMPOTENCY_SECONDS // 3600} h. The service stores "
        "hashes of key and body and the billed amount, but never Base64 audio. A repeat is synthesised again "
        "with the same bytes, and is billed its price less this amount. Errors are not stored. The same key "
        "with another body is 400.",
        "A batch that lost an answer can repeat the call without paying twice. The service still stores no "
        "audio.",
    ),
    OpenPoint(
        "re-takes",
        "Re-takes",
        f"The number in {TAKE_HEADER}, at most {MAX_TAKE_NUMBER}, changes the seed of variation. An absent "
        "header and 0 give the first take. /v1/limits names the header. Content keys and idempotency keys "
        "contain the take.",
        "Equal requests give equal bytes, so another take needs another request.",
    ),
    OpenPoint(
        "prices",
        "Prices",
        "Generate and stream: billed characters. Translation: characters of source. Voice changer: "
        "characters per second of input audio. Dubbing: credits per second of media and target locale. "
        "One table (billing).",
        "The caller knows each unit before the call.",
    ),
    OpenPoint(
        "quota",
        "Quota",
        "A key has one balance for speech, voice changer and translation. Dubbing credits are a separate "
        "balance of the dubbing key.",
        "The answers report the two balances under different names.",
    ),
    OpenPoint(
        "pools",
        "Concurrency pools",
        "A pool is a group of calls with a common limit of concurrency. WebSocket contexts and HTTP "
        "streams share the streaming pool, which has the limit of the region. Generate, voice changer and "
        "translation share the other pool. A limit of the key overrides that of the region.",
        "The document counts streaming separately.",
    ),
    OpenPoint(
        "turns",
        "Order of work between keys",
        "The keys with waiting work take turns, one job each. A job is a text, a sentence of a stream, a "
        "slice of a translation or a clip. The jobs of one key are done in order of arrival. If the queue is "
        "full, the key with the most jobs loses its last job (503) to a key with at least three fewer.",
        "Otherwise fifty long texts of one key would delay all other keys.",
    ),
    OpenPoint(
        "two-queues",
        "Fast and slow engines",
        "Formant voices have their own workers and queue. Neural voices, translation and voice change share "
        "the other workers. For each of them, /v1/limits publishes the number of concurrent calls and the "
        "speed.",
        "A formant engine speaks a line in milliseconds. A neural engine needs many seconds.",
    ),
    OpenPoint(
        "progress",
        "Time limit of a client for a slow answer",
        f"If a request has the header {PROGRESS_HEADER}, the service sends an interim answer 102 every "
        f"{PROGRESS_SECONDS:g} s while the call is queued or in progress. The answer contains "
        f"{CALL_STATE_HEADER} and {CALL_CPU_HEADER}. The client then restarts its time limit.",
        "A call in progress must not time out, because it would be paid without an answer.",
    ),
    OpenPoint(
        "body-size",
        "Size of a request",
        f"{MAX_BODY_BYTES // 1024} KB of JSON, or of a form without its files. A translation may add the "
        f"size of its texts. JSON has at most {MAX_JSON_VALUES:,} values on {MAX_JSON_DEPTH} levels, a form "
        f"{MAX_FORM_PARTS} parts, a locale {MAX_LOCALE_CHARACTERS} characters. The limits apply to gzip and "
        "deflate bodies after decompression. Larger requests get 400.",
        "The service reads one request at a time, so no request may take long.",
    ),
    OpenPoint(
        "unread-answers",
        "A client that does not read its answer",
        "Unread audio waits on disk, or is generated as the client reads. The call holds its slot until all "
        "audio is read. A client is disconnected if it reads less than "
        f"{MIN_READER_BYTES_PER_S // 1024} KB/s over {READER_SPEED_WINDOW_S:g} s while audio waits. If more "
        f"than {MAX_UNREAD_BYTES // 1024**2} MB wait in memory over all connections, the "
        "connection with the most waiting bytes is closed.",
        "Unread answers must not take memory or slots from other clients.",
    ),
    OpenPoint(
        "key-shares",
        "Blocking work, such as unresolvable host names, silent webhook receivers and slow disks",
        f"Each key has its own share. The service resolves {LOOKUPS_PER_KEY} host names of a key at the same "
        f"time. A look-up over {MAX_LOOKUP_SECONDS:g} s gets 400. A look-up that waits so long for others of "
        f"its key gets 503. The service delivers {WEBHOOKS_PER_KEY} webhooks of a key at the same time. "
        f"{THREADS_PER_KEY} threads of a key read and write files and encode streams.",
        "A key with hanging host names or receivers must not delay other keys.",
    ),
    OpenPoint(
        "interface-version",
        "OpenAPI info.version",
        INTERFACE_VERSION,
        "Section 9 requires it.",
        "sure",
    ),
)
