"""What the document leaves open, what we do instead, and why.

Nothing here is the document's. The local service publishes the list at `GET /v1/limits`, so that nobody
mistakes ours for theirs. `certainty` is `sure` (seen in public clients of services with this interface),
`likely`, `ours` (a choice that no outside fact can settle) or `guess`.

One module per chapter has the figures and names we chose, and the points that say why: `calls` (what every
call has), `speech`, `changer`, `translate`, `dubbing`, `socket`. All of them are to be had here.
"""

from speechframe.spec.chosen import calls, changer, dubbing, socket, speech, translate
from speechframe.spec.chosen._point import OpenPoint
from speechframe.spec.chosen.calls import (
    API_KEY_HEADER,
    DEFAULT_CONCURRENCY,
    DEFAULT_QUOTA_CHARACTERS,
    DEPRECATION_HEADER,
    IDEMPOTENCY_HEADER,
    IDEMPOTENCY_SECONDS,
    INTERFACE_VERSION,
    MAX_BODY_BYTES,
    MAX_IDEMPOTENCY_CHARACTERS,
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    MAX_TAKE,
    QUEUE_SECONDS,
    RETRY_AFTER_HEADER,
    TAKE_HEADER,
    TOKEN_HEADER,
    TOKEN_SECONDS,
    TRACE_HEADER,
    WARNING_HEADER,
)
from speechframe.spec.chosen.changer import (
    MAX_REDIRECTS,
    MAX_UPLOAD_BYTES,
    TRANSCRIPTION_CHARACTERS_PER_S,
)
from speechframe.spec.chosen.dubbing import (
    DUB_LINK_SECONDS,
    PAGE_DEFAULT,
    PAGE_LIMIT,
    WEBHOOK_SECONDS,
    WEBHOOK_SIGNATURE_HEADER,
    WEBHOOK_TIMESTAMP_HEADER,
    WEBHOOK_TRIES,
)
from speechframe.spec.chosen.socket import (
    GENERATION_REQUESTS_PER_S,
    MAX_CONTEXT_ID_CHARACTERS,
    MAX_FRAME_BYTES,
    MAX_READ_FRAME_BYTES,
    SOCKET_WAITING_BYTES,
    SOCKET_WAITING_CHARACTERS,
    SOCKET_WAITING_TURNS,
    SOCKETS_PER_CONCURRENCY,
    TEXT_WARNING,
    VOICE_WARNING,
)
from speechframe.spec.chosen.speech import (
    CONTENT_TYPES,
    LONGEST_ANSWER_S,
    LONGEST_ANSWER_TIMES,
    MAX_TEXT_CHARACTERS,
    PAUSE_SECONDS,
    RAW_G711_RATE_HZ,
    SHELF_SECONDS,
    UNSPEAKABLE_SHARE,
    US_EAST_STREAM_MODEL,
    clamped_length,
    content_type,
    read_clamped,
)
from speechframe.spec.chosen.translate import (
    MAX_TEXTS_PER_CALL,
    MAX_TRANSLATE_CHARACTERS,
    ROUTE_WARNING,
    ranges,
    read_route,
    route_warning,
)

__all__ = [
    "API_KEY_HEADER",
    "CONTENT_TYPES",
    "DEFAULT_CONCURRENCY",
    "DEFAULT_QUOTA_CHARACTERS",
    "DEPRECATION_HEADER",
    "DUB_LINK_SECONDS",
    "GENERATION_REQUESTS_PER_S",
    "IDEMPOTENCY_HEADER",
    "IDEMPOTENCY_SECONDS",
    "INTERFACE_VERSION",
    "LONGEST_ANSWER_S",
    "LONGEST_ANSWER_TIMES",
    "MAX_BODY_BYTES",
    "MAX_CONTEXT_ID_CHARACTERS",
    "MAX_FRAME_BYTES",
    "MAX_IDEMPOTENCY_CHARACTERS",
    "MAX_JSON_DEPTH",
    "MAX_JSON_VALUES",
    "MAX_READ_FRAME_BYTES",
    "MAX_REDIRECTS",
    "MAX_TAKE",
    "MAX_TEXTS_PER_CALL",
    "MAX_TEXT_CHARACTERS",
    "MAX_TRANSLATE_CHARACTERS",
    "MAX_UPLOAD_BYTES",
    "OPEN_POINTS",
    "PAGE_DEFAULT",
    "PAGE_LIMIT",
    "PAUSE_SECONDS",
    "QUEUE_SECONDS",
    "RAW_G711_RATE_HZ",
    "RETRY_AFTER_HEADER",
    "ROUTE_WARNING",
    "SHELF_SECONDS",
    "SOCKETS_PER_CONCURRENCY",
    "SOCKET_WAITING_BYTES",
    "SOCKET_WAITING_CHARACTERS",
    "SOCKET_WAITING_TURNS",
    "TAKE_HEADER",
    "TEXT_WARNING",
    "TOKEN_HEADER",
    "TOKEN_SECONDS",
    "TRACE_HEADER",
    "TRANSCRIPTION_CHARACTERS_PER_S",
    "UNSPEAKABLE_SHARE",
    "US_EAST_STREAM_MODEL",
    "VOICE_WARNING",
    "WARNING_HEADER",
    "WEBHOOK_SECONDS",
    "WEBHOOK_SIGNATURE_HEADER",
    "WEBHOOK_TIMESTAMP_HEADER",
    "WEBHOOK_TRIES",
    "OpenPoint",
    "clamped_length",
    "content_type",
    "ranges",
    "read_clamped",
    "read_route",
    "route_warning",
]

OPEN_POINTS: tuple[OpenPoint, ...] = (
    *calls.POINTS,
    *speech.POINTS,
    *changer.POINTS,
    *translate.POINTS,
    *dubbing.POINTS,
    *socket.POINTS,
)
"""Every open point, chapter by chapter."""
