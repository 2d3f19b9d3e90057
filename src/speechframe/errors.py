"""Every error of the package, one tree, one root to catch.

::

    SpeechframeError
    ├── ServiceError                an answer of the service with a status other than 200
    │   ├── BadRequest              400  the request is malformed or a field is invalid
    │   ├── PaymentRequired         402  the quota is used up or the subscription lapsed
    │   ├── PermissionDenied        401, 403  the key or token is invalid or expired
    │   ├── RequestTimeout          408  the body arrived too slowly
    │   ├── RateLimited             429  more requests in flight than the plan allows
    │   ├── ServerError             500
    │   └── Unavailable             503  the service is saturated or the region is down
    ├── ConnectionFailed            no answer; ``sent`` says whether it may have been billed
    │   └── TimedOut
    ├── BadAnswer                   a 200 that cannot be used: truncated, undecodable, not audio
    │   └── StreamBroken            a stream that ended before its end; what came of it is kept
    ├── InvalidRows                 rows that must not be sent; ``problems`` lists every one
    ├── JobFailed                   a dubbing job, or a locale of it, failed
    ├── BudgetExceeded              the next call would pass a limit: the run's or the month's
    ├── EngineError                 an engine of the local service cannot do what it was asked
    │   └── EngineFault             the engine, or a file of it, is at fault: not the request
    ├── AudioError                  bytes that are no audio, or audio that cannot be encoded
    ├── AnalysisError               votes that cannot be analysed as asked; ``rows`` lists where
    ├── StoreError                  a run folder cannot be read or written
    │   ├── NotARun                 the folder holds no run
    │   ├── RunLocked               another process has the run open
    │   └── RunMismatch             a run cannot be mixed with this: operation, service, layout
    ├── SettingsError               a key, address or option is missing or contradicts another
    └── ListeningError              a listening test that cannot be made or gone on with as asked
        └── VoteRefused             a vote that breaks a rule of its test; ``trial`` says which

An error carries data, so that nobody has to parse its text. The classes of
section 7.1 are found by status in :data:`BY_STATUS`; nothing here holds a key.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speechframe._words import counted, printable
from speechframe.spec.codes import Status


class SpeechframeError(Exception):
    """The root: ``except speechframe.SpeechframeError`` catches whatever this package raises."""

    millicredits: int | None = None
    """Thousandths of a credit that the service used all the same; None if it does not say."""

    def __str__(self) -> str:
        """Return the message, without characters that do something to a terminal."""
        return printable(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with every field and note, so that an error survives a process boundary."""
        return (_rebuilt, (type(self), self.args, self.__dict__.copy()))


def _rebuilt(kind: type[SpeechframeError], args: tuple[Any, ...], fields: dict[str, Any]) -> SpeechframeError:
    # Not by its __init__: what that needs by name is among the fields.
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


_PACKAGE = str(Path(__file__).parent) + os.sep
_KEY = re.compile(
    r"""((?:api.?key|\bkey|token|secret)["'\])]*\s*[=:,]\s*(?:\w+\()?)(["']).*?\2"""
    r"""|(://)[^\s"'/]*(?=@)|(\?)[\w.-]+=[^\s"')]*""",
    re.IGNORECASE,
)
"""A key as a text in a line of code, and the parts of an address that may hold one."""


class _OfTheUser(SpeechframeError):
    """An error of whoever made the call: notebooks show its words and the user's own line, not our frames."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows; with ``SPEECHFRAME_DEBUG=1`` the whole trace.

        Neither has the locals of frames, and keys that were typed into a line of code are masked.
        """
        import traceback

        if os.environ.get("SPEECHFRAME_DEBUG", "0") not in {"", "0"}:
            return _masked("".join(traceback.format_exception(self)))
        frames = traceback.extract_tb(self.__traceback__)
        ours = [frame.filename.startswith(_PACKAGE) for frame in frames]
        # The line that called this package: the one before the first frame of ours.
        before = frames[: ours.index(True) if True in ours else len(frames)]
        line = "".join(f"line {frame.lineno}: {frame.line}\n\n" for frame in before[-1:])
        words = "\n".join([f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())])
        return _masked(f"{line}{words}\n\n(set SPEECHFRAME_DEBUG=1 to see the whole trace)")


def _masked(text: str) -> list[str]:
    return _KEY.sub(lambda found: "".join(filter(None, found.group(1, 3, 4))) + "***", text).splitlines()


class ServiceError(SpeechframeError):
    """The service answered with an error status (section 7.1 of the service document).

    Parameters
    ----------
    message
        What the service said, shortened; never the request's text or key.
    status
        The HTTP status.
    code
        The service's own error code, if it gave one.
    trace_id
        The service's id of this answer, for its support.
    body
        The beginning of the answer's body as text.
    retry_after_s
        Seconds the service asked to wait, if it did.
    row_key
        The ``request_key`` of the row, in a batch.
    attempts
        How many attempts were made, this one included.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        trace_id: str | None = None,
        body: str = "",
        retry_after_s: float | None = None,
        row_key: str | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.trace_id = trace_id
        self.body = body
        self.retry_after_s = retry_after_s
        self.row_key = row_key
        self.attempts = attempts

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later (408, 429, 500, 503)."""
        known = Status.of(self.status)
        return known.retryable if known is not None else False

    def __str__(self) -> str:
        """Return status, code, message, what to do next and the trace id on one line."""
        known = Status.of(self.status)
        said = self.message if self.message.endswith((".", "!", "?", ")")) else f"{self.message}."
        parts = [f"{self.status}{f' {self.code}' if self.code else ''}: {said}"]
        if known is not None and known.resolution:
            parts.append(known.resolution)
        if self.trace_id:
            parts.append(f"(trace id {self.trace_id})")
        return printable(" ".join(parts))


class BadRequest(ServiceError):
    """400: malformed body or invalid field."""


class PaymentRequired(ServiceError):
    """402: the character limit is exhausted or the subscription lapsed."""


class PermissionDenied(ServiceError, _OfTheUser):
    """403 (401 on the token call): the key or token is invalid or expired."""


class RequestTimeout(ServiceError):
    """408: the request was too slow or stalled before its body arrived."""


class RateLimited(ServiceError):
    """429: more requests in flight than the plan's concurrency allows."""


class ServerError(ServiceError):
    """500: the service failed."""


class Unavailable(ServiceError):
    """503: the service is saturated or the region is unavailable."""


BY_STATUS: Mapping[int, type[ServiceError]] = MappingProxyType(
    {
        400: BadRequest,
        401: PermissionDenied,
        402: PaymentRequired,
        403: PermissionDenied,
        408: RequestTimeout,
        429: RateLimited,
        500: ServerError,
        503: Unavailable,
    }
)
"""Status to class; a status that is not listed becomes a plain :class:`ServiceError`."""


def service_error(message: str, *, status: int, **fields: Any) -> ServiceError:
    """Return the error class of `status` with its data filled in.

    Examples
    --------
    >>> service_error("busy", status=503).retryable
    True
    """
    return BY_STATUS.get(status, ServiceError)(message, status=status, **fields)


class ConnectionFailed(SpeechframeError):
    """No answer came: refused, reset, or cut off.

    Parameters
    ----------
    message
        What failed, with the host and never the key.
    sent
        False when it is certain that the service never saw the whole request,
        so that nothing can have been billed and a retry is safe.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(ConnectionFailed):
    """No answer within the time limit; it may have been billed when ``sent``."""


class BadAnswer(SpeechframeError):
    """A 200 that cannot be used: broken JSON, broken Base64, audio that does not decode.

    The call was most likely billed.

    Parameters
    ----------
    message
        What is wrong with the answer.
    trace_id
        The service's id of this answer.
    remaining_characters
        The balance after the call, where it could still be read.
    """

    def __init__(
        self, message: str, *, trace_id: str | None = None, remaining_characters: int | None = None
    ) -> None:
        super().__init__(message)
        self.trace_id = trace_id
        self.remaining_characters = remaining_characters


class StreamBroken(BadAnswer):
    """A stream that ended before its end: cut off, silent for too long, too large, or closed by its reader.

    What came is kept by the stream (``stream.audio``), and was most likely billed.

    Parameters
    ----------
    message
        What happened.
    received_bytes
        How much audio had come.
    trace_id
        The service's id of the answer.
    """

    def __init__(self, message: str, *, received_bytes: int = 0, trace_id: str | None = None) -> None:
        super().__init__(message, trace_id=trace_id)
        self.received_bytes = received_bytes


class JobFailed(SpeechframeError):
    """A dubbing job, or a locale of it, failed; what the service used all the same is in the ledger.

    Parameters
    ----------
    message
        What the service said.
    code
        The service's word for it, such as ``LANGUAGE_NOT_SUPPORTED``, if it gave one.
    """

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class InvalidRows(_OfTheUser):
    """Rows that must not be sent; nothing was spent.

    Parameters
    ----------
    problems
        One mapping a problem, with ``row``, ``row_id``, ``field``, ``problem``,
        ``value`` and ``allowed``; ``pandas.DataFrame(error.problems)`` shows them all.
    total, rows
        Number of problems, and of rows that have one. Both are counted in `problems` by default; they are
        larger if `problems` holds only the first of very many.
    """

    SHOWN = 5

    def __init__(
        self,
        problems: Sequence[Mapping[str, Any]],
        *,
        total: int | None = None,
        rows: int | None = None,
    ) -> None:
        self.problems = list(problems)
        self.total = total if total is not None else len(self.problems)
        listed = {p.get("row_id") for p in self.problems if p.get("row_id") is not None}
        self.rows = max(rows or 0, len(listed))
        super().__init__(self._words())

    def _words(self) -> str:
        where = f" in {counted(self.rows, 'row')}" if self.rows else ""
        lines = [f"{counted(self.total, 'problem')}{where}; nothing was sent:"]
        for p in self.problems[: self.SHOWN]:
            row = f"row {p['row_id']!r}, " if p.get("row_id") is not None else ""
            allowed = f"; allowed: {p['allowed']}" if p.get("allowed") else ""
            value = f" (value {p['value']})" if p.get("value") not in {None, ""} else ""
            lines.append(f"  {row}{p.get('field')}: {p.get('problem')}{value}{allowed}")
        if self.total > self.SHOWN:
            lines.append(
                f"  ... and {self.total - self.SHOWN:,} more; .problems lists {len(self.problems):,}"
            )
        return "\n".join(lines)


class BudgetExceeded(_OfTheUser):
    """The next call would pass a limit; it was not made.

    Parameters
    ----------
    message
        What is left, what the rest would cost and what to do.
    max_credits, spent_credits, needed_credits
        The limit, what is settled and reserved of it, and what the calls that remain need.
    limit
        Which limit: ``run`` (``max_credits``), or the name of a budget over many runs, such as
        ``max_credits_per_month``.
    """

    def __init__(
        self,
        message: str,
        *,
        max_credits: float,
        spent_credits: float,
        needed_credits: float,
        limit: str = "run",
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.max_credits = max_credits
        self.spent_credits = spent_credits
        self.needed_credits = needed_credits

    @property
    def left_credits(self) -> float:
        """What was left of the limit; 0 where it is passed already (it was lowered, or others spent too)."""
        return max(0.0, self.max_credits - self.spent_credits)


class EngineError(SpeechframeError):
    """An engine of the local service cannot do what it was asked; the words say why."""


class EngineFault(EngineError):
    """The engine, or a file of it, is at fault. Another request would not help.

    The service answers 500 and writes the message to its log alone, because the message may contain paths.
    """


class AudioError(SpeechframeError):
    """Bytes that are no audio, or audio that cannot be encoded as asked."""


class AnalysisError(SpeechframeError):
    """Data that cannot be analysed as asked, or a library that is needed for it.

    Parameters
    ----------
    message
        What is wrong, what is allowed and what to do.
    column
        The column it is about, if it is about one.
    rows
        Positions of all the rows it is about, from 0, in the table that was given.
    """

    def __init__(self, message: str, *, column: str | None = None, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.column = column
        self.rows = tuple(rows)


class StoreError(SpeechframeError):
    """A run folder cannot be read or written; what was acknowledged is still on disk."""


class NotARun(StoreError, _OfTheUser):
    """The folder holds no run."""


class RunLocked(StoreError, _OfTheUser):
    """Another process has this run open for writing."""


class RunMismatch(StoreError, _OfTheUser):
    """A run cannot be mixed with this: another operation, service identity, audio format or layout."""


class SettingsError(_OfTheUser):
    """A key, address or option is missing, or contradicts another; says what to set."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name that a misspelled one is nearest to; empty where none is near.

    Examples
    --------
    >>> nearest("max_credit", ["max_credits", "max_attempts"])
    "did you mean 'max_credits'? "
    """
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]!r}? " if found else ""


class ListeningError(SpeechframeError):
    """A listening test that cannot be made, or gone on with, as asked.

    Parameters
    ----------
    message
        What is wrong, what is allowed and what to do.
    missing
        (item, condition) of every clip that is missing, where it is about clips.
    """

    def __init__(self, message: str, *, missing: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


class VoteRefused(ListeningError):
    """A vote, or a beginning, that breaks a rule of its test; nothing was kept of it.

    Parameters
    ----------
    message
        The rule, in words for the listener: they name no condition.
    trial
        The trial it is about; None for the beginning.
    """

    def __init__(self, message: str, *, trial: int | None = None) -> None:
        super().__init__(message)
        self.trial = trial
