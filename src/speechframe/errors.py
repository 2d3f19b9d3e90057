"""All errors of the package, as one tree below one root class.

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
    ├── ConnectionFailed            no answer; ``sent`` is True if the call may have been billed
    │   └── TimedOut
    ├── BadAnswer                   an answer with status 200 is unusable: truncated, not audio ...
    │   └── StreamBroken            a stream ended early; the audio received so far is kept
    ├── InvalidRows                 rows or arguments are invalid; ``problems`` lists the faults
    ├── JobFailed                   a dubbing job, or a locale of it, failed
    ├── BudgetExceeded              the next call would exceed a limit of the run or of many runs
    ├── EngineError                 an engine of the local service cannot carry out a request
    │   └── EngineFault             the engine or one of its files is at fault, not the request
    ├── AudioError                  audio cannot be read, sent or encoded as requested
    ├── AnalysisError               data cannot be analysed; ``rows`` lists the rows at fault
    ├── ExportError                 a dataset cannot be written; ``problems`` lists the rows at fault
    ├── StoreError                  a run folder cannot be read or written
    │   ├── NotARun                 the folder does not contain a run
    │   ├── RunLocked               another process has the run open
    │   └── RunMismatch             the run has another operation, service, format or layout
    ├── SettingsError               a key, address or option is missing or contradicts another
    └── ListeningError              a listening test cannot be made or continued as requested
        └── VoteRefused             a vote or a start breaks a rule; ``trial`` is its trial

Errors carry data, so programs need not parse their messages. :data:`BY_STATUS` maps the statuses of section
7.1 to classes. Errors never contain a key.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speechframe.spec.codes import Status
from speechframe.writing.notebook import Problems
from speechframe.writing.words import format_count, replace_unprintable

_PACKAGE_FOLDER = str(Path(__file__).parent) + os.sep
"""Beginning of the path of each file of this package."""
_KEY_PATTERN = re.compile(
    r"""((?:api.?key|\bkey|token|secret)["'\])]*\s*[=:,]\s*(?:\w+\()?)(["']).*?\2"""
    r"""|(://)[^\s"'/]*(?=@)|(\?)[\w.-]+=[^\s"')]*""",
    re.IGNORECASE,
)
"""Matches a key in a line of code, and the parts of an address that may contain a key."""


class SpeechframeError(Exception):
    """The root class. ``except speechframe.SpeechframeError`` catches all errors of this package."""

    millicredits: int | None = None
    """Thousandths of a credit that the service charged despite the error. None if it reports no charge."""

    def __str__(self) -> str:
        """Return the message without control characters for terminals."""
        return replace_unprintable(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all fields and notes, so that other processes get the whole error."""
        return (_rebuild_error, (type(self), self.args, self.__dict__.copy()))

    def _render_traceback_(self) -> list[str]:
        """Return the user's line and the message, which IPython shows instead of the whole trace.

        If ``SPEECHFRAME_DEBUG=1`` is set, return the whole trace. Neither contains local variables. Keys in
        lines of code are masked.
        """
        import traceback

        if os.environ.get("SPEECHFRAME_DEBUG", "0") not in {"", "0"}:
            return _mask_keys("".join(traceback.format_exception(self)))
        frames = traceback.extract_tb(self.__traceback__)
        ours = [frame.filename.startswith(_PACKAGE_FOLDER) for frame in frames]
        # The frame before the first frame of this package contains the user's line.
        before = frames[: ours.index(True) if True in ours else len(frames)]
        line = "".join(f"line {frame.lineno}: {frame.line}\n\n" for frame in before[-1:])
        text = "\n".join([f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())])
        return _mask_keys(f"{line}{text}\n\n(set SPEECHFRAME_DEBUG=1 to see the whole trace)")


def _rebuild_error(
    kind: type[SpeechframeError], args: tuple[Any, ...], fields: dict[str, Any]
) -> SpeechframeError:
    """Return a pickled error. `args` are the arguments of Exception, `fields` the attributes."""
    # Skip __init__, because its keyword arguments are already among the fields.
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


def _mask_keys(text: str) -> list[str]:
    """Return the lines of a text, with keys and secret parts of addresses masked."""
    return _KEY_PATTERN.sub(
        lambda found: "".join(filter(None, found.group(1, 3, 4))) + "***", text
    ).splitlines()


class ServiceError(SpeechframeError):
    """The service answered with an error status (section 7.1 of the service document).

    Parameters
    ----------
    message
        Message of the service, shortened. It never contains the request's text or key.
    status
        The HTTP status.
    code
        The service's error code, if the answer has one.
    trace_id
        The service's id of this answer, for its support.
    body
        The beginning of the answer's body as text.
    retry_after_s
        Seconds to wait before the next attempt (Retry-After), if the answer has them.
    row_key
        The ``request_key`` of the call, if a caller sets it. None by default.
    attempts
        Number of attempts at the call, including the attempt that raised this error.
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
        """True if the same request may succeed later (408, 429, 500, 503)."""
        known = Status.from_number(self.status)
        return known.retryable if known is not None else False

    def __str__(self) -> str:
        """Return status, code, message, next step and trace id on one line."""
        known = Status.from_number(self.status)
        message = self.message if self.message.endswith((".", "!", "?", ")")) else f"{self.message}."
        parts = [f"{self.status}{f' {self.code}' if self.code else ''}: {message}"]
        if known is not None and known.resolution:
            parts.append(known.resolution)
        if self.trace_id:
            parts.append(f"(trace id {self.trace_id})")
        return replace_unprintable(" ".join(parts))


class BadRequest(ServiceError):
    """400: malformed body or invalid field."""


class PaymentRequired(ServiceError):
    """402: the character limit is exhausted or the subscription lapsed."""


class PermissionDenied(ServiceError):
    """403, or 401 on the token call. The key or token is invalid or expired."""


class RequestTimeout(ServiceError):
    """408: the body of the request arrived too slowly, or not to its end."""


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
"""Maps each status to its class. Other statuses raise a plain :class:`ServiceError`."""


def make_service_error(message: str, *, status: int, **fields: Any) -> ServiceError:
    """Return an error of the class for `status`, with the given fields.

    Examples
    --------
    >>> make_service_error("busy", status=503).retryable
    True
    """
    return BY_STATUS.get(status, ServiceError)(message, status=status, **fields)


class ConnectionFailed(SpeechframeError):
    """No answer came, because the connection was refused, reset or cut off.

    Parameters
    ----------
    message
        The failure, with the host but never the key.
    sent
        False if the service certainly did not get the whole request. Then nothing was billed and a retry is
        safe.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(ConnectionFailed):
    """No answer came within the timeout. The call may have been billed if ``sent`` is True."""


class BadAnswer(SpeechframeError):
    """An answer with status 200 is unusable. For example, its JSON, its Base64 or its audio is broken.

    The call was most likely billed.

    Parameters
    ----------
    message
        The fault of the answer.
    trace_id
        The service's id of this answer.
    remaining_characters
        The balance after the call, if the answer still contains a readable balance.
    """

    def __init__(
        self, message: str, *, trace_id: str | None = None, remaining_characters: int | None = None
    ) -> None:
        super().__init__(message)
        self.trace_id = trace_id
        self.remaining_characters = remaining_characters


class StreamBroken(BadAnswer):
    """A stream ended early, because it was cut off, silent for too long, too large, or closed by its reader.

    The audio received so far is kept in ``stream.audio``, and was most likely billed.

    Parameters
    ----------
    message
        The cause.
    received_bytes
        Number of audio bytes received so far.
    trace_id
        The service's id of the answer.
    """

    def __init__(self, message: str, *, received_bytes: int = 0, trace_id: str | None = None) -> None:
        super().__init__(message, trace_id=trace_id)
        self.received_bytes = received_bytes


class JobFailed(SpeechframeError):
    """A dubbing job, or one locale of the job, failed. The ledger lists credits that were charged anyway.

    Parameters
    ----------
    message
        Message of the service.
    code
        The service's error code, such as ``LANGUAGE_NOT_SUPPORTED``, if there is one.
    """

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class ExportError(SpeechframeError):
    """A dataset cannot be written as requested. Nothing that looks finished is left on the disk.

    Parameters
    ----------
    message
        The fault, and what is allowed.
    problems
        One mapping per row at fault, as in :class:`InvalidRows`.
    total
        Number of problems, if `problems` contains only the first ones.
    """

    MAX_SHOWN_PROBLEMS = 5

    def __init__(
        self, message: str, *, problems: Sequence[Mapping[str, Any]] = (), total: int | None = None
    ) -> None:
        self.problems = Problems(problems, total)
        self.total = self.problems.total
        lines = [message + (f" ({format_count(self.total, 'problem')}):" if self.problems else "")]
        lines += [
            f"  row {p.get('row_id')!r} {p.get('problem')}" for p in self.problems[: self.MAX_SHOWN_PROBLEMS]
        ]
        if self.total > self.MAX_SHOWN_PROBLEMS:
            more = self.total - self.MAX_SHOWN_PROBLEMS
            lines.append(f"  ... and {more:,} more; .problems lists {len(self.problems):,}")
        super().__init__("\n".join(lines))


class InvalidRows(SpeechframeError):
    """Some rows or arguments are invalid, so nothing was sent and nothing was spent.

    Parameters
    ----------
    problems
        One mapping per problem, with ``row``, ``row_id``, ``field``, ``problem``, ``value`` and ``allowed``.
        ``pandas.DataFrame(error.problems)`` shows them all.
    total, rows
        Number of problems, and number of rows with a problem. By default both are counted in `problems`.
        Pass them if `problems` contains only the first of very many problems.
    """

    def __init__(
        self,
        problems: Sequence[Mapping[str, Any]],
        *,
        total: int | None = None,
        rows: int | None = None,
    ) -> None:
        self.problems = Problems(problems, total)
        self.total = self.problems.total
        listed = {p.get("row_id") for p in self.problems if p.get("row_id") is not None}
        self.rows = max(rows or 0, len(listed))
        where = f" in {format_count(self.rows, 'row')}" if self.rows else ""
        counted = f"{format_count(self.total, 'problem')}{where}; nothing was sent:"
        super().__init__("\n".join(filter(None, (counted, str(self.problems)))))


def make_problem(
    name: str,
    fault: str,
    *,
    value: Any = None,
    allowed: str = "",
    row: int | None = None,
    row_id: str | None = None,
) -> dict[str, Any]:
    """Return a problem of an argument or column, as an entry for :attr:`InvalidRows.problems`."""
    where = {"row": row, "row_id": row_id, "field": name}
    return {**where, "problem": fault, "value": value, "allowed": allowed}


def refuse(name: str, fault: str, allowed: str = "", **facts: Any) -> InvalidRows:
    """Return the error for one problem. The arguments are those of :func:`make_problem`."""
    return InvalidRows([make_problem(name, fault, allowed=allowed, **facts)])


class BudgetExceeded(SpeechframeError):
    """The next call was not made, because its price would exceed a limit.

    Parameters
    ----------
    message
        The credits left, the price of the remaining calls, and advice.
    max_credits, spent_credits, needed_credits
        The limit, the amount spent or reserved, and the price of the remaining calls. All are in credits.
    limit
        Name of the limit: ``run`` (``max_credits``), ``max_credits_per_run``, or a budget shared by many
        runs, such as ``max_credits_per_month``.
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
        """Credits left of the limit. 0 if more was already spent, for example by other runs."""
        return max(0.0, self.max_credits - self.spent_credits)


class EngineError(SpeechframeError):
    """An engine of the local service cannot carry out a request. The message contains the reason."""


class EngineFault(EngineError):
    """The engine, or a file of it, is at fault. Another request would not help.

    The service answers 500 and writes the message to its log alone, because the message may contain paths.
    """


class AudioError(SpeechframeError):
    """Audio cannot be read, sent or encoded as requested."""


class AnalysisError(SpeechframeError):
    """Data cannot be analysed as requested, or a library for the analysis is missing.

    Parameters
    ----------
    message
        The fault, the allowed values, and advice.
    column
        The column at fault, if there is one.
    rows
        Positions of all rows at fault in the given table, counted from 0.
    """

    def __init__(self, message: str, *, column: str | None = None, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.column = column
        self.rows = tuple(rows)


class StoreError(SpeechframeError):
    """A run folder cannot be read or written. All acknowledged data is still on disk."""


class NotARun(StoreError):
    """The folder does not contain a run."""


class RunLocked(StoreError):
    """Another process has this run open for writing."""


class RunMismatch(StoreError):
    """The run in the folder has another operation, service identity, audio format or layout."""


class SettingsError(SpeechframeError):
    """A key, address or option is missing or contradicts another. The message names the setting to change."""


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name nearest to a misspelled `name`, or an empty text.

    Examples
    --------
    >>> suggest_name("max_credit", ["max_credits", "max_attempts"])
    "did you mean 'max_credits'? "
    """
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]!r}? " if found else ""


class ListeningError(SpeechframeError):
    """A listening test cannot be made, or cannot be continued, as requested.

    Parameters
    ----------
    message
        The fault, the allowed values, and advice.
    missing
        Pairs (item, condition) of all missing clips, if clips are missing.
    """

    def __init__(self, message: str, *, missing: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


class VoteRefused(ListeningError):
    """A vote, or a listener's start of a test, breaks a rule of the test. None of its data was stored.

    Parameters
    ----------
    message
        The rule, in words for the listener. The words never name a condition.
    trial
        Number of the trial at fault. None for the start of a test.
    """

    def __init__(self, message: str, *, trial: int | None = None) -> None:
        super().__init__(message)
        self.trial = trial
