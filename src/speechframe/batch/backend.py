"""The interface between runs and services.

A backend converts rows to calls and answers to records. A run contains no code for HTTP, for speech or for a
service. A backend contains no code for queues, budgets or run folders.

Four words have a fixed meaning here. A call is one request to the service, and an attempt is one try of a
call. A take is one rendering of the same content: take 0 is the first, and take 1 is a second version. A lane
is one address that takes calls with one key.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from speechframe.errors import SpeechframeError, refuse
from speechframe.spec.check import FieldProblem
from speechframe.store.schema import KEY_BYTES, KEY_PERSON, columns, compute_call_key


@dataclass(frozen=True, slots=True)
class Request:
    """One call, with its content, its body and its price.

    Parameters
    ----------
    content
        Bytes that are equal for equal requests. Rows whose requests have equal content share one call and one
        answer.
    body
        Data for :meth:`Backend.send`. The run's folder contains the body, so a resume needs no other data.
    price
        Price in thousandths of a credit.
    characters
        Number of billed characters.
    facts
        Values of ledger columns that are known before the call, such as ``model``, ``locale``, ``voice_id``
        and ``format``. The row's record contains them, too. Empty by default.
    varies
        True if another take would differ from the first. If False, a request for another take gets the first
        take, which costs nothing more.
    parts
        The requests of several rows in this one call. Empty for a call of one row. The price and the
        characters of the call are the sums over its parts.
    base_key, take, key
        The key of take 0, the number of this take, and the key of this take. Keys are 32 hex digits. The run
        sets all three. Only a request from :attr:`Backend.earlier` already has them, and keeps them.
    row_id
        Id of the first row with this call. The run sets it.
    row_values
        Values of the row in the :attr:`Backend.row_columns`. Rows that share a call may have different
        values. Empty by default.
    note
        Remark on this row for the user, in words that complete "3 rows: ...". Rows are counted by their note.
        Empty by default.
    held
        The request that the row would have without a lock. ``redo=`` with the row's id makes it. None by
        default. It needs the row column :data:`HELD_COLUMN`.
    """

    content: bytes
    body: bytes = field(repr=False)
    price: int
    characters: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    varies: bool = True
    parts: "tuple[Request, ...]" = ()
    base_key: str = ""
    take: int = 0
    key: str = ""
    row_id: str = ""
    row_values: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    held: "Request | None" = None

    @property
    def rows(self) -> "tuple[Request, ...]":
        """The requests that each get a record: the parts, or this request if it has no parts."""
        return self.parts or (self,)

    def as_take(self, take: int) -> "Request":
        """Return a copy of this request for another take, with the key of that take."""
        return replace(self, key=compute_call_key(self.base_key, take), take=take)


@dataclass(frozen=True, slots=True)
class RowWithoutCall:
    """The result of a row that needs no call.

    Parameters
    ----------
    status
        ``skipped``, or ``done`` for a row whose result is already known.
    reason
        Why the row needs no call, in words that complete "3 rows: ...". Rows are counted by their reason.
    row_values
        Values of the row in the :attr:`Backend.row_columns`, and the results of a row that is ``done``.
    """

    status: str
    reason: str
    row_values: Mapping[str, Any] = field(default_factory=dict)


CORRECTION_COLUMNS = columns(spoken_text=pa.string(), corrected_from=pa.string())
"""Row columns of a row whose text was corrected: the text that is spoken, and the text that was spoken
before."""


HELD_COLUMN = "_held"
"""Row column of a request that is held back. Like all row columns that begin with _, it is not shown."""


class EarlierRows:
    """The rows of the run's table so far. This base class is a run without a table."""

    def has_column(self, name: str) -> bool:
        """Return whether the table has a row column of this name."""
        del name
        return False

    def find(self, row_id: str) -> Request | None:
        """Return the request of a row, or None. The request of a row without a call has an empty key."""
        del row_id
        return None

    def find_kept(self, row_id: str) -> str | None:
        """Return the key of a row's current audio if the newest review of the row keeps it, or None."""
        del row_id
        return None

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the requests of all rows."""
        return iter(())


def make_pack(parts: Iterable[Request], body: bytes) -> Request:
    """Return a pack, which is one call for several rows. It needs at least one part, and sends `body`."""
    parts = tuple(parts)
    # Two packs have equal keys if their rows are equal and in the same order.
    keys = "".join(part.key for part in parts).encode()
    return Request(
        b"",
        body,
        price=sum(part.price for part in parts),
        characters=sum(part.characters for part in parts),
        parts=parts,
        key=hashlib.blake2b(keys, digest_size=KEY_BYTES, person=KEY_PERSON).hexdigest(),
        row_id=parts[0].row_id,
    )


@dataclass(slots=True)
class Attempt:
    """One attempt of a call, as :meth:`Backend.send` sees it.

    Attributes
    ----------
    lane
        Name of the lane of the attempt.
    deadline_s
        Timeout of the attempt in seconds, download included. If None, the backend uses its own timeout. The
        run ends the attempt at the timeout, unless the backend :attr:`~Backend.is_long`.
    idempotency_key
        A key that is the same for all attempts of this call. None if the service does not promise free
        repeats.
    take
        Number of the take. 0 is the first take.
    noted
        Data that an earlier attempt of this call passed to `note`, perhaps in an earlier process. None if no
        attempt did so.
    note
        ``await attempt.note(data)`` returns once `data` is on disk, so that a later attempt can continue from
        there. Note the address of an answer before its download, or the id of a job before waiting for the
        job.
    admit
        Call ``await attempt.admit(n)`` before reading `n` bytes of an answer. The call returns once memory is
        available. It raises :class:`BadAnswer` if the bytes can never fit.
    extend
        Call this function when the service reports that the call is still queued or in progress. The timeout
        of the attempt then begins again, unless the user has set ``timeout_s``.
    """

    lane: str
    deadline_s: float | None
    idempotency_key: str | None
    take: int
    noted: bytes | None
    note: Callable[[bytes], Awaitable[None]]
    admit: Callable[[int], Awaitable[None]]
    extend: Callable[[], None] = lambda: None


@dataclass(slots=True)
class Answer:
    """An answer with status 200, not yet decoded. :meth:`Backend.records` checks it and makes records.

    Parameters
    ----------
    data
        Data from which the backend makes records. The run does not read this data.
    trace_id, latency_ms, balance
        The service's id of the answer, the duration of the attempt, and the characters left on the key.
    release
        Function that the run calls once in the event loop, after it has judged the answer. The argument is
        True if the answer fits its request. Only then may the backend use the connection for another call.
        With False the backend closes the connection, because the answer may belong to another call.
    """

    data: Any
    trace_id: str | None = None
    latency_ms: float | None = None
    balance: int | None = None
    release: Callable[[bool], object] = field(default=bool, repr=False)  # the default has no effect


@dataclass(slots=True)
class Record:
    """The stored result of one row.

    Parameters
    ----------
    values
        The backend's columns, without the bytes of ``audio``.
    audio, audio_name
        The bytes of the column ``audio``, and the file name for ``audio.path``.
    warnings
        Remarks of the service or of the backend about this answer.
    millicredits, basis
        Cost in thousandths of a credit. None means the request's price. `basis` is ``computed`` by default,
        or ``reported`` for a cost that the service reported.
    """

    values: dict[str, Any]
    audio: bytes | None = field(default=None, repr=False)
    audio_name: str | None = None
    warnings: list[str] = field(default_factory=list)
    millicredits: int | None = None
    basis: str = "computed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why an answer is suspect. Its row gets the status ``suspect``.

    `code` is the row's ``error_code``. `words` is a sentence for people.
    """

    code: str
    words: str


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """One address that takes calls.

    Parameters
    ----------
    name
        Name for people, such as the name of a region.
    identity
        Text that distinguishes the lane from all others. It contains the service, the address, the
        fingerprint of the key, and the cap that counts the calls. Runs on this machine share the permits of
        lanes with the same identity.
    published
        Largest number of calls in flight that the service publishes. The lane never exceeds it. None if the
        service publishes no cap.
    guess
        First number of calls in flight to try if no cap is published or learned. If None, the run chooses.
    is_fallback
        True if the lane is used only while no other lane works.
    """

    name: str
    identity: str
    published: int | None = None
    guess: int | None = None
    is_fallback: bool = False


@dataclass(frozen=True, slots=True)
class Throughput:
    """The published throughput of a service for one kind of work.

    Parameters
    ----------
    calls_at_once
        Number of calls that the service works on at the same time. Further calls wait in its queue.
    characters_per_second
        Usual speed of all these calls together, in billed characters.
    """

    calls_at_once: int
    characters_per_second: float


@dataclass(frozen=True, slots=True)
class Opened:
    """Facts about a service that a backend has opened.

    Parameters
    ----------
    lanes
        Lanes for the calls, the preferred lane first.
    repeats_free_s
        Time in seconds during which a repeat with the same idempotency key is free. 0 if repeats are never
        free.
    takes
        True if the service can make further takes of the same content.
    balance
        Number of characters left on the key, or None if unknown.
    key_fingerprint
        Short hash that distinguishes the key from other keys without revealing it.
    is_local
        True for an embedded local service.
    throughputs
        Throughput of each lane by kind of work, such as the engine of the voice (see
        :meth:`Backend.work_of`). Calls of a kind that is not listed are limited only by the lanes.
    facts
        Further entries for the run's file run.json, such as a hash of the voices.
    """

    lanes: tuple[LaneSpec, ...]
    repeats_free_s: float = 0.0
    takes: bool = True
    balance: int | None = None
    key_fingerprint: str = ""
    is_local: bool = False
    throughputs: Mapping[str, Throughput] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


class Backend(ABC):
    """Converts rows of a run to calls of a service, and answers of the service to rows.

    The run opens a backend once. It calls :meth:`check` in a thread, one row at a time, before any call is
    sent. It calls :meth:`send` in the event loop, many at a time. It calls :meth:`records` and :meth:`judge`
    in a thread, one answer at a time. A backend must define `operation`, `columns`, :meth:`open`,
    :meth:`close`, :meth:`check`, :meth:`send` and :meth:`records`. All other members have a default.

    Attributes
    ----------
    operation
        What the backend does, in one word, for run.json and the ledger (the table of all attempts).
    columns
        Stored columns of an answer. Players and exports use the columns ``audio`` and ``words``.
    arguments
        Names of the arguments of a row. If empty, every column of the table is an argument. Columns of bytes
        are then arguments only if they are `carried`, and otherwise just stay in the table. If
        ``read_column`` is one of them, the run sets this argument to a function. The function returns the
        row's value in the column of a name, or None.
    data_arguments
        Arguments whose bare string names a column. A bare string of any other argument is a constant.
    table_arguments
        Arguments of the whole table. A list is one value for them, not one value per row.
    row_columns
        Columns whose values belong to a row and not to its call, such as the slot of a line. They come from
        :attr:`Request.row_values`. A row column may have the name of a stored column. Then the stored value
        comes first.
    optional_columns
        Column names by argument. If an argument is not given, its values come from the column of this name,
        if the table has such a column.
    carried
        Data arguments with values of any kind, such as bytes or arrays. :meth:`check` gets these values
        unchanged, and they are not stored with the table.
    unit, remark
        The word for one call in counts, and a remark that people read before the run starts. None for no
        remark.
    service
        Identity of the service, which is part of every call's key. :meth:`open` sets it.
    folder
        The run's folder, set before rows are checked. A backend may store data for its calls in
        ``folder / "clips"``. The body of a request contains the paths of these files relative to the folder,
        because the folder may be renamed before the call is sent.
    max_answer_bytes
        The largest answer that the caller allows (``max_answer_mb``), set before any call is sent.
    is_long
        True if an attempt may take hours. The run then sets no timeout for the attempt. The backend must
        apply ``timeout_s``, as :attr:`Attempt.deadline_s`, to each exchange within the attempt.
    leaves_files
        True if answers are files in the run's folder. These answers are not cached for other runs.
    earlier
        The rows of the run's table so far, set before rows are checked. If ``row_id`` is one of the
        `arguments`, the run sets this argument.
    possible_millicredits
        Largest price, in thousandths of a credit, of the calls that :meth:`revise` may add. Known once all
        rows are checked.
    is_revised
        True if :meth:`revise` may change rows once calls have ended.
    is_budgeted
        True if the run's spending has a limit. Set before rows are checked.
    tell
        Function that shows a message to the user of the run. Set when the run starts.

    Examples
    --------
    See ``tests/promises/test_backends.py`` for a backend of sixty lines.
    """

    operation: str
    columns: pa.Schema
    arguments: tuple[str, ...] = ()
    data_arguments: frozenset[str] = frozenset({"text"})
    table_arguments: frozenset[str] = frozenset()
    row_columns: pa.Schema = pa.schema([])
    optional_columns: Mapping[str, str] = MappingProxyType({})
    carried: frozenset[str] = frozenset()
    unit: str = "call"
    remark: str | None = None
    service: str = ""
    folder: Path | None = None
    max_answer_bytes: int | None = None
    is_long: bool = False
    leaves_files: bool = False
    is_revised: bool = False
    possible_millicredits: int = 0
    is_budgeted: bool = False
    tell: Callable[[str], object] = staticmethod(str)  # shows nothing
    earlier: EarlierRows = EarlierRows()

    @abstractmethod
    async def open(self) -> Opened:
        """Open the service and return its capabilities. This call spends nothing.

        Raises
        ------
        SpeechframeError
            If the service cannot be used at all.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close all resources that :meth:`open` acquired."""

    async def is_answering(self) -> bool:
        """Return whether the service answers although calls have timed out. By default return False."""
        return False

    def work_of(self, facts: Mapping[str, Any]) -> str:
        """Return the kind of work of a request with these :attr:`Request.facts`, by default the operation."""
        del facts
        return self.operation

    def source(self, table: Any) -> Any:
        """Return the table to open for the caller's `table`. By default return `table` itself."""
        return table

    def expand(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the rows that one row of the table becomes, each with a suffix for its id.

        By default yield the row itself, with an empty suffix.
        """
        yield "", values

    def find_columns(self, names: Sequence[str], taken: Collection[str]) -> Mapping[str, str]:
        """Return further arguments with their columns, for a table with these column `names`.

        `taken` are the columns of the given arguments. By default return the :attr:`optional_columns`.
        InvalidRows is raised if the columns are ambiguous.
        """
        del taken
        return {name: column for name, column in self.optional_columns.items() if column in names}

    @abstractmethod
    def check(self, values: Mapping[str, Any]) -> Request | RowWithoutCall | Sequence[FieldProblem | str]:
        """Return the row's request, or all problems of the row. This call uses no network.

        Parameters
        ----------
        values
            The row's arguments. Arguments that were not given, or are null in the table, are left out.

        Returns
        -------
        Request, RowWithoutCall or sequence
            The request, the result of a row without a call, or a problem for each argument at fault. A plain
            string is a problem of the whole row.
        """

    def finish_table(self) -> list[str]:
        """Return notes for the user about the table, after all its rows were checked. By default none.

        InvalidRows is raised if the table as a whole cannot be meant as it is.
        """
        return []

    def revise(self, request: Request, seconds_of: Callable[[str], float | None]) -> Request | None:
        """Return the new request of a row of the run's own table, or None if the row stays as it is.

        The run calls this method only if the backend :attr:`is_revised`. The calls of the table have been
        made as far as possible.

        Parameters
        ----------
        request
            The request of the row so far.
        seconds_of
            Returns the length in seconds of the audio of a finished call, by the call's key, or None.
        """
        del request, seconds_of
        return None

    def correct(self, request: Request, text: str) -> Request | Sequence[FieldProblem]:
        """Return the request of a row with a corrected text, or the problems of this text.

        The request has values for :data:`CORRECTION_COLUMNS`.

        Raises
        ------
        InvalidRows
            If the texts of this backend cannot be corrected.
        """
        fault = f"cannot correct the texts of a {self.operation} run"
        raise refuse("redo", fault, "a run of generate", value=text, row_id=request.row_id)

    def pack(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Yield the calls for some requests, lazily. By default make one call per request.

        A call for several rows is a pack. The run calls this method again for each half of a refused pack.
        """
        return requests

    @abstractmethod
    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt.

        Raises
        ------
        ServiceError
            If the status is not 200.
        ConnectionFailed
            If no answer came. Its `sent` is True if the call may have been billed.
        BadAnswer
            If an answer with status 200 cannot be read.
        """

    @abstractmethod
    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return a record, or an error, for each of ``request.rows``.

        A BadAnswer means that the row was billed. Any other error means that the row was not billed.

        Raises
        ------
        BadAnswer
            If the answer is unusable for all rows.
        """

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return the reasons why the record of one row is suspect, by default none.

        Parameters
        ----------
        request, record
            The request and the record of the row.
        learned
            Memory of the backend over all answers of one run. Empty at the start of the run.
        """
        del request, record, learned
        return []

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two bodies differ.

        By default compare bodies as JSON objects. If a body is not a JSON object, return ``("request",)``.
        """
        try:
            old, new = json.loads(before), json.loads(after)
            return tuple(name for name in sorted({*old, *new}) if old.get(name) != new.get(name))
        except (ValueError, AttributeError, TypeError):
            return ("request",)

    async def after(self, run: Any, is_stopped: Callable[[], bool]) -> None:
        """Finish a run after all its calls have ended, while the run is still locked.

        Return early once `is_stopped` returns True.
        """
        del run, is_stopped

    def describe(self, price: int) -> str | None:
        """Return the billed amount in words, such as seconds of audio, or None to show only the price."""
        del price
        return None
