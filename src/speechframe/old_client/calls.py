"""What goes into a call and what comes out of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakMethod

from speechframe.errors import InvalidRows
from speechframe.old_client.upload import Body
from speechframe.spec._model import DocumentModel
from speechframe.spec.check import Checked, check
from speechframe.spec.chosen import MAX_IDEMPOTENCY_CHARACTERS
from speechframe.spec.deprecation import warn_deprecated
from speechframe.spec.speech import Format, GenerateRequest
from speechframe.wire.bodies import encode_generate

R = TypeVar("R", bound=DocumentModel)
M = TypeVar("M", bound=DocumentModel)

_OWN_ARGUMENTS = frozenset({"text", "voice_id", "model_version"})


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One call, ready to be sent any number of times.

    Parameters
    ----------
    operation
        The endpoint's name in `spec.endpoints`.
    request
        The checked request; its format and channels say how raw audio is read.
    body
        The bytes on the wire; of a call with a file what is around it, and where it is.
    idempotency_key
        Sent as ``Idempotency-Key`` when given: a service that knows the header bills a repeat of the
        same key and body once.
    take
        Sent as ``X-Take`` when above 0: another reading of the same request, from a service that knows the
        header.

    Examples
    --------
    >>> call = Call.of(GenerateRequest(text="Hello", voice_id="nora"))
    >>> call.body
    b'{"text":"Hello","voiceId":"nora"}'
    """

    operation: str
    request: R
    body: bytes | Body = field(repr=False)
    idempotency_key: str | None = None
    take: int = 0

    def __post_init__(self) -> None:
        key = self.idempotency_key
        if key is not None and not (
            0 < len(key) <= MAX_IDEMPOTENCY_CHARACTERS and key.isascii() and key.isprintable()
        ):
            raise ValueError(
                f"an idempotency key is 1 to {MAX_IDEMPOTENCY_CHARACTERS} printable ASCII characters"
            )
        if self.take < 0:
            raise ValueError(f"a take is 0 or above, not {self.take}")

    @classmethod
    def of(
        cls, request: GenerateRequest, *, idempotency_key: str | None = None, take: int = 0
    ) -> "Call[GenerateRequest]":
        """Return the call of a request for speech, with its body encoded."""
        return Call("generate", request, encode_generate(request), idempotency_key, take)


class Answer(Protocol):
    """What every answer says, whatever else it holds; see :class:`Spoken` for the words."""

    @property
    def audio_seconds(self) -> float:
        """The length of the audio, 0 where there is none."""

    @property
    def remaining_characters(self) -> int | None:
        """The balance after the call."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the service ignored or replaced."""

    @property
    def trace_id(self) -> str | None:
        """The service's id of the answer."""

    @property
    def latency_ms(self) -> float:
        """Time of the successful attempt."""

    @property
    def region(self) -> str:
        """The region that answered."""


class CameOn:
    """The connection that an answer came on, as long as no other exchange has it.

    Parameters
    ----------
    drop
        Closes it. Held weakly: answers that people keep must not keep connections.
    """

    __slots__ = ("_drop",)

    def __init__(self, drop: Callable[[], None] | None = None) -> None:
        self._drop = WeakMethod(drop) if isinstance(drop, MethodType) else None

    def drop(self) -> None:
        """Close it: on one that has an answer too many, each row would get the audio of the row before."""
        drop = self._drop() if self._drop is not None else None
        if drop is not None:
            drop()

    def __reduce__(self) -> tuple[type["CameOn"], tuple[()]]:
        return CameOn, ()


@dataclass(frozen=True, slots=True)
class Spoken:
    """The answer to a call that gives audio, which was found to be audio (sections 2.3 and 2.5).

    Parameters
    ----------
    audio
        The encoded audio, as the service sent it.
    format, sample_rate_hz, channels, audio_seconds
        What the audio's own headers say (for raw formats: what was asked for), not what the answer claims.
    words
        Word, start and end in milliseconds; none from the voice changer and of streams.
    billed_characters
        Characters this call should have cost, by the rule of `spec.billing`.
    remaining_characters
        The balance after the call; None when the service did not say.
    warnings
        The answer's ``warning``, its ``X-Speech-Warning`` headers, and what the client noticed itself
        (such as words that run backwards, or a length that is not the audio's).
    trace_id
        The service's id of the answer.
    latency_ms
        Time of the successful attempt, download included.
    region
        The region that answered.
    attempts
        How many attempts it took; always 1 from ``send_once``.
    said_seconds
        The length the answer claims, whatever its audio holds.
    transcription
        What was said in the clip, from the voice changer where it was asked for.
    came_on
        The connection it came on.
    """

    audio: bytes = field(repr=False)
    format: Format
    sample_rate_hz: int
    channels: int
    audio_seconds: float
    words: list[tuple[str, int, int]] = field(repr=False)
    billed_characters: int
    remaining_characters: int | None
    warnings: tuple[str, ...]
    trace_id: str | None
    latency_ms: float
    region: str
    attempts: int = 1
    said_seconds: float | None = None
    transcription: str | None = field(default=None, repr=False)
    came_on: CameOn = field(default_factory=CameOn, repr=False, compare=False)


def make_call(
    text: str,
    *,
    voice: str,
    model: str = "gen2",
    take: int = 0,
    idempotency_key: str | None = None,
    stacklevel: int = 2,
    **fields: Any,
) -> Call[GenerateRequest]:
    """Return a checked call from keyword arguments (section 2.1, snake_case names).

    Parameters
    ----------
    text, voice
        The text and the voice's id or name.
    model
        ``"gen2"``; the generate endpoint knows no other.
    take, idempotency_key
        See :class:`Call`.
    stacklevel
        Whose line a DeprecationWarning names, counted as in `warnings.warn`.
    **fields
        Any other field of :class:`speechframe.spec.speech.GenerateRequest`.

    Raises
    ------
    InvalidRows
        For a value out of range, an unknown field or model; ``problems`` lists all.

    Warns
    -----
    DeprecationWarning
        For a field that the document calls deprecated.
    """
    checked = check(
        GenerateRequest, {"text": text, "voice_id": voice, "model_version": model.upper(), **fields}
    )
    request = accepted(checked, GenerateRequest)
    warn_deprecated(GenerateRequest, checked.deprecated, stacklevel=stacklevel)
    return Call.of(request, idempotency_key=idempotency_key, take=take)


def accepted(checked: Checked[M], model: type[M], own: frozenset[str] = _OWN_ARGUMENTS) -> M:
    """Return the request that a check found right.

    Parameters
    ----------
    checked
        What the check found.
    model
        The table of the document.
    own
        Fields that have an argument of another name.

    Raises
    ------
    InvalidRows
        For a value out of range, or a field that does not exist; ``problems`` lists all.
    """
    problems = [
        {"field": p.field, "problem": p.problem, "value": p.value, "allowed": p.allowed}
        for p in checked.problems
    ]
    if checked.unknown:
        known = ", ".join(name for name in model.model_fields if name not in own)
        problems += [
            {"field": name, "problem": "is no field of a request", "value": "", "allowed": known}
            for name in checked.unknown
        ]
    if problems or checked.value is None:
        raise InvalidRows(problems)
    return checked.value
