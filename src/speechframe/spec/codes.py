"""Status, error, warning and close codes (section 7 of the document)."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Self

_SERVER_ERROR_DIGIT = 5
"""First digit of the statuses of server errors (RFC 9110, section 15.6)."""


class Status(IntEnum):
    """HTTP statuses (sections 7.1 and 7.2), with their meaning and the action of the caller.

    Attributes
    ----------
    meaning : str
        Name of the fault.
    resolution : str
        Action of the caller.
    retryable : bool
        True if the same call may be sent again.
    stops_run : bool
        True if every other call with this key would fail in the same way. A batch then stops.
    addition : bool
        True if the document does not list the status. The local service sends it for unknown addresses and
        methods.

    Examples
    --------
    >>> Status.from_number(429).retryable
    True
    >>> Status.from_number(418) is None
    True
    """

    meaning: str
    resolution: str
    retryable: bool
    stops_run: bool
    addition: bool

    def __new__(
        cls,
        value: int,
        meaning: str,
        resolution: str,
        traits: str = "",
    ) -> Self:
        """Make a member. `traits` may contain the words retryable, stops and addition."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.resolution = resolution
        trait_names = traits.split()
        member.retryable = "retryable" in trait_names
        member.stops_run = "stops" in trait_names
        member.addition = "addition" in trait_names
        return member

    OK = 200, "OK", "Read the answer."
    BAD_REQUEST = (
        400,
        "Bad Request",
        "The request is malformed or a field is invalid; correct the field that the message names.",
    )
    UNAUTHORIZED = (
        401,
        "Invalid api-key",
        "Only the token call returns this status; all other calls return 403. Use a valid key.",
        "stops",
    )
    PAYMENT_REQUIRED = (
        402,
        "Expired subscription or character limit exhausted",
        "Renew the subscription or wait for the next billing cycle.",
        "stops",
    )
    FORBIDDEN = (403, "Invalid or expired token/api-key", "Use a valid key or a fresh token.", "stops")
    NOT_FOUND = (404, "Not Found", "The service has no such address; check the path.", "addition")
    METHOD_NOT_ALLOWED = (
        405,
        "Method Not Allowed",
        "The address exists for another method; the Allow header contains the allowed methods.",
        "addition",
    )
    REQUEST_TIMEOUT = (
        408,
        "Request Timeout",
        "The body did not arrive in time. Retry; raise the client timeout for long input.",
        "retryable",
    )
    TOO_MANY_REQUESTS = (
        429,
        "Too Many Requests",
        "The plan's concurrency is exceeded. Retry with exponential backoff and cap the calls in flight.",
        "retryable",
    )
    INTERNAL_SERVER_ERROR = (
        500,
        "Internal Server Error",
        "Retry with exponential backoff.",
        "retryable",
    )
    SERVICE_UNAVAILABLE = (
        503,
        "Service Unavailable",
        "The service is saturated or the region is down. Retry with backoff, or use the global address.",
        "retryable",
    )

    @classmethod
    def from_number(cls, status: int) -> Status | None:
        """Return the member for a number, or None for an unlisted number."""
        try:
            return cls(status)  # type: ignore[call-arg]  # mypy takes the look-up for a call of __new__
        except ValueError:
            return None

    @classmethod
    def is_from_gateway(cls, status: int) -> bool:
        """Return whether a status is a 5xx that the service never sends, such as 502 or 504 of a gateway.

        Examples
        --------
        >>> Status.is_from_gateway(502), Status.is_from_gateway(503)
        (True, False)
        """
        return status // 100 == _SERVER_ERROR_DIGIT and cls.from_number(status) is None


SPEECH_STATUSES = tuple(status for status in Status if status not in {200, 401} and not status.addition)
"""The statuses of section 7.1, for the calls generate and stream."""


class HttpErrorCode(StrEnum):
    """Values of `error_code` in an HTTP error body (chosen: http-error-body), each with its status."""

    status: Status

    def __new__(cls, value: str, status: Status) -> Self:
        """Make a member with its status."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.status = status
        return member

    INVALID_REQUEST = "INVALID_REQUEST", Status.BAD_REQUEST
    MISSING_KEY = "MISSING_KEY", Status.BAD_REQUEST
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE", Status.BAD_REQUEST
    UNAUTHORIZED = "UNAUTHORIZED", Status.UNAUTHORIZED
    QUOTA_EXHAUSTED = "QUOTA_EXHAUSTED", Status.PAYMENT_REQUIRED
    INVALID_KEY = "INVALID_KEY", Status.FORBIDDEN
    NOT_FOUND = "NOT_FOUND", Status.NOT_FOUND
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED", Status.METHOD_NOT_ALLOWED
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT", Status.REQUEST_TIMEOUT
    CONCURRENCY_LIMIT = "CONCURRENCY_LIMIT", Status.TOO_MANY_REQUESTS
    INTERNAL_ERROR = "INTERNAL_ERROR", Status.INTERNAL_SERVER_ERROR
    UNAVAILABLE = "UNAVAILABLE", Status.SERVICE_UNAVAILABLE


class _FrameCode(StrEnum):
    """Base class of the codes of WebSocket frames, each with its cause and effect."""

    cause: str
    effect: str

    def __new__(cls, value: str, cause: str, effect: str) -> Self:
        """Make a member with its cause and effect."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.cause = cause
        member.effect = effect
        return member


class ErrorCode(_FrameCode):
    """Values of `error_code` in a WebSocket error frame (section 7.3), each with its cause and effect."""

    INVALID_VOICE = (
        "INVALID_VOICE",
        "The voiceId is not in the falcon catalogue (full ids and bare names are both looked up).",
        "The context has no voice; name one from the catalogue.",
    )
    ACTIVE_CONTEXT_LIMIT_EXCEEDED = (
        "ACTIVE_CONTEXT_LIMIT_EXCEEDED",
        "More contexts would be active at once than the plan's streaming concurrency allows.",
        "The context is not created. End finished contexts, reuse ids for turns, or raise the limit.",
    )
    INVALID_JSON = (
        "INVALID_JSON",
        "A frame is not valid JSON; this includes partial and concatenated payloads.",
        "The frame is dropped.",
    )
    INTERNAL_ERROR = ("INTERNAL_ERROR", "Failure on the service side.", "Retry the context.")


class WarningCode(_FrameCode):
    """Values of `warning_code` in a WebSocket warning frame (section 7.4). Synthesis continues."""

    INVALID_BUFFER_SIZE = (
        "INVALID_BUFFER_SIZE",
        "min_buffer_size is outside 0-1000 or not a number.",
        "The previous value is kept.",
    )
    INVALID_BUFFER_DELAY = (
        "INVALID_BUFFER_DELAY",
        "max_buffer_delay_in_ms is outside 0-1000 or not a number.",
        "The previous value is kept.",
    )
    INVALID_PREDICTIVE_CHUNKING = (
        "INVALID_PREDICTIVE_CHUNKING",
        "predictive_chunking is neither strict nor lenient.",
        "strict is used when it is omitted.",
    )
    INVALID_FIELD_TYPE = ("INVALID_FIELD_TYPE", "A field has the wrong JSON type.", "The field is ignored.")
    NO_VOICE_CONFIG = (
        "NO_VOICE_CONFIG",
        "Text arrived in a context that has no voice_config.",
        "The default voice is used.",
    )
    NO_VOICE_ID = ("NO_VOICE_ID", "voice_config came without voiceId.", "The default voice is used.")
    TOO_MANY_GENERATION_REQUESTS = (
        "TOO_MANY_GENERATION_REQUESTS",
        "Generation requests come faster than the plan allows.",
        "Synthesis continues; slow down or send more text at a time.",
    )
    TEXT_IGNORED_WITH_CLEAR = (
        "TEXT_IGNORED_WITH_CLEAR",
        "One frame held both clear and text.",
        "The text is dropped.",
    )


INVALID_KEY_REASON = "Invalid api key used."
"""Reason text of close code 1008, exactly as in the document (sections 5 and 7.5)."""


class CloseCode(IntEnum):
    """WebSocket close codes (section 7.5)."""

    cause: str

    def __new__(cls, value: int, cause: str) -> Self:
        """Make a member with its cause."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.cause = cause
        return member

    NORMAL = (
        1000,
        "Normal close, also after three minutes of inactivity. Reconnect when there is text to send.",
    )
    POLICY_VIOLATION = (1008, f"Invalid api key (reason `{INVALID_KEY_REASON}`).")
