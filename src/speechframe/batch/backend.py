"""The seam between runs and services: how a row becomes a call, and what is kept of its answer.

A run knows nothing of HTTP, of speech or of any service. A backend knows nothing of queues, budgets or
folders.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from speechframe.errors import SpeechframeError
from speechframe.spec.check import FieldProblem
from speechframe.store.schema import KEY_BYTES, PERSON, call_key


@dataclass(frozen=True, slots=True)
class Request:
    """One call: what is asked for, what is sent, and what it costs.

    Parameters
    ----------
    content
        What is asked for, in canonical form: requests with equal content share one call and one answer.
    body
        What :meth:`Backend.send` needs. It is written to the run's folder, so a resume needs nothing else.
    price
        Thousandths of a credit.
    characters
        Billed characters.
    facts
        Columns of the ledger that are known before the call: ``model``, ``locale``, ``voice_id``, ``format``.
        They also stand in the row's record.
    varies
        Whether another take would sound different. Where it would not, a retake is the first take and free.
    parts
        The requests of several rows that go in this one call; empty for a call of one row. Price and
        characters are their sums.
    base_key, take, key
        Set by the run: the key of the first take, 0 or the number of a later take, and the key of this call.
    row_id
        Set by the run: the first row that has this call.
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

    @property
    def rows(self) -> "tuple[Request, ...]":
        """The requests that get a record each: the parts, or this one."""
        return self.parts or (self,)

    def as_take(self, take: int) -> "Request":
        """Return the same request as another take."""
        return replace(self, key=call_key(self.base_key, take), take=take)


def packed(parts: Iterable[Request], body: bytes) -> Request:
    """Return one call for several rows, which sends `body` for all of them."""
    parts = tuple(parts)
    keys = "".join(part.key for part in parts).encode()  # the same for the same rows in the same order
    return Request(
        b"",
        body,
        price=sum(part.price for part in parts),
        characters=sum(part.characters for part in parts),
        parts=parts,
        key=hashlib.blake2b(keys, digest_size=KEY_BYTES, person=PERSON).hexdigest(),
        row_id=parts[0].row_id,
    )


@dataclass(slots=True)
class Attempt:
    """One attempt of a call, as :meth:`Backend.send` sees it.

    Attributes
    ----------
    lane
        Name of the lane it goes to.
    deadline_s
        Seconds it may take, download included; None for the backend's own limit. The run ends it then,
        unless the backend :attr:`~Backend.is_long`.
    idempotency_key
        The same for every attempt of this call; None where the service promises nothing for it.
    take
        0, or the number of a later take.
    noted
        What an earlier attempt noted, even in a process that was killed; None without.
    note
        ``await attempt.note(data)`` returns when `data` is on disk: the address of an answer before it is
        downloaded, the id of a job before it is waited for.
    admit
        ``await attempt.admit(n)`` before `n` bytes of an answer are read: it returns when there is room for
        them in memory, and raises :class:`BadAnswer` when there never will be.
    extend
        Call it when the service reports that it still has the call in its queue or works on it. The time
        limit of the attempt then begins anew, unless the user set one with ``timeout_s``.
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
    """A good answer as it came. :meth:`Backend.records` finds out whether it can be used.

    Parameters
    ----------
    data
        Whatever the backend needs to make records of it.
    trace_id, latency_ms, balance
        The service's id of the answer, the time of the attempt, and the characters left on the key.
    release
        Called once in the event loop when the answer is judged, with whether it fits its request. The backend
        uses the connection for another call only then, and closes it if the answer may be another call's.
    """

    data: Any
    trace_id: str | None = None
    latency_ms: float | None = None
    balance: int | None = None
    release: Callable[[bool], object] = field(default=bool, repr=False)  # by default nothing is held


@dataclass(slots=True)
class Record:
    """What is kept of an answer for one row.

    Parameters
    ----------
    values
        The backend's columns, without the bytes of ``audio``.
    audio, audio_name
        The bytes of the column ``audio``, and the name that stands beside them in ``audio.path``.
    warnings
        What the service or the backend remarked about this answer.
    millicredits, basis
        What it cost, where that is not the request's price; ``computed``, or ``reported`` by the service.
    """

    values: dict[str, Any]
    audio: bytes | None = field(default=None, repr=False)
    audio_name: str | None = None
    warnings: list[str] = field(default_factory=list)
    millicredits: int | None = None
    basis: str = "computed"


@dataclass(frozen=True, slots=True)
class Finding:
    """What speaks against an answer, whose row is ``suspect``: a word for ``error_code``, and a sentence."""

    code: str
    words: str


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """One address that takes calls.

    Parameters
    ----------
    name
        What people call it, such as the name of a region.
    identity
        What tells it from all others: service, address, key fingerprint and pool. Runs whose lanes have one
        identity share its permits on this machine.
    published
        How many calls the service says it takes at once: never passed. None where it says nothing.
    guess
        How many to begin with where nothing is published or learned; None for the run's choice.
    is_fallback
        Only used while no other lane works.
    """

    name: str
    identity: str
    published: int | None = None
    guess: int | None = None
    is_fallback: bool = False


@dataclass(frozen=True, slots=True)
class Throughput:
    """How much work of one kind a service takes, as the service publishes it.

    Parameters
    ----------
    calls_at_once
        Number of calls that the service works on at the same time. More calls only wait there.
    characters_per_second
        Usual speed of all these calls together, in billed characters.
    """

    calls_at_once: int
    characters_per_second: float


@dataclass(frozen=True, slots=True)
class Opened:
    """What a backend found out about its service.

    Parameters
    ----------
    lanes
        Where calls may go, the preferred first.
    repeats_free_s
        For how many seconds the service bills a repeat with the same idempotency key once; 0: never.
    takes
        Whether the service makes other takes.
    balance
        Characters left on the key, if it is known.
    key_fingerprint
        What tells the key apart without giving it away.
    is_local
        Whether it is an embedded local service.
    throughputs
        By kind of work (see :meth:`Backend.work_of`): what the service takes in each lane. A kind that is not
        listed has no limit but those of the lanes.
    facts
        What else stands in run.json, such as a hash of the voices.
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
    """How the rows of a run become calls of a service, and answers become rows.

    It is opened once for each run. :meth:`check` is called in a thread, one row at a time, before anything is
    sent; :meth:`send` in the event loop, many at a time; :meth:`records` and :meth:`judge` in a thread, one
    answer at a time. It must have `operation`, `columns`, :meth:`open`, :meth:`close`, :meth:`check`,
    :meth:`send` and :meth:`records`; all else has a default.

    Attributes
    ----------
    operation
        What the run does, in one word; run.json and the ledger say it.
    columns
        What is stored of an answer. ``audio`` and ``words`` are known by name to what plays and exports.
    arguments
        Names of the arguments of a row. Empty: every column of the table is one, except those that hold bytes
        and are not `carried`: they only come back with the table.
    data_arguments
        Those whose bare string names a column; a bare string of any other argument is a constant.
    table_arguments
        Those that hold for the whole table: a list is one value, not one for each row.
    carried
        Data arguments whose values may be of any kind, such as bytes or arrays, and are handed to
        :meth:`check` as they are instead of being stored with the table.
    unit, remark
        What one call is to people who count them, and what else they are to know before a run starts.
    service
        Identity of the service: part of every key. Known once it is open.
    folder
        The run's folder, set before rows are checked: what a call needs and is nowhere else can be kept in
        ``folder / "clips"``. A body names such files relative to the folder, which may be renamed before the
        call is sent.
    max_answer_bytes
        The largest answer that the caller allows (``max_answer_mb``), set before anything is sent.
    is_long
        Whether an attempt may take hours. The run then sets no end to it: ``timeout_s`` is
        :attr:`Attempt.deadline_s` of each exchange within it, and the backend keeps to that.
    leaves_files
        Whether answers are files in the run's folder, which no other run can have from the cache.
    is_budgeted
        Whether a limit holds for what the run spends, set before rows are checked.
    tell
        Says something to whoever watches the run; set when it starts.

    Examples
    --------
    See ``tests/promises/test_backends.py``: a backend of sixty lines.
    """

    operation: str
    columns: pa.Schema
    arguments: tuple[str, ...] = ()
    data_arguments: frozenset[str] = frozenset({"text"})
    table_arguments: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()
    unit: str = "call"
    remark: str | None = None
    service: str = ""
    folder: Path | None = None
    max_answer_bytes: int | None = None
    is_long: bool = False
    leaves_files: bool = False
    is_budgeted: bool = False
    tell: Callable[[str], object] = staticmethod(str)  # says nothing

    @abstractmethod
    async def open(self) -> Opened:
        """Find out what the service offers; spends nothing.

        Raises
        ------
        SpeechframeError
            When the service cannot be used at all.
        """

    @abstractmethod
    async def close(self) -> None:
        """Give back what :meth:`open` took."""

    async def is_answering(self) -> bool:
        """Return whether the service answers, although calls to it have timed out; by default False."""
        return False

    def work_of(self, facts: Mapping[str, Any]) -> str:
        """Return the kind of work of a request with these facts; by default the operation."""
        del facts
        return self.operation

    def source(self, table: Any) -> Any:
        """Return what is opened as the table instead of what was handed in; by default just that."""
        return table

    def expand(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the rows that one row of the table becomes, each with a suffix for its id."""
        yield "", values

    @abstractmethod
    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the row's request, or everything that is wrong with it, by argument; asks nobody.

        Parameters
        ----------
        values
            The row's arguments; what was not given, or is null in the table, is not there.
        """

    def pack(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Yield calls for some requests, lazily; by default one each.

        It is asked again for each half of a pack that was refused.
        """
        return requests

    @abstractmethod
    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt.

        Raises
        ------
        ServiceError
            For every status but 200.
        ConnectionFailed
            When no answer came; its `sent` says whether it may have been billed.
        BadAnswer
            For an answer with status 200 that cannot be read.
        """

    @abstractmethod
    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return what is kept for each of ``request.rows``, or why one has nothing.

        A BadAnswer is of a row that was billed, any other error of one that was not.

        Raises
        ------
        BadAnswer
            When the answer is of no use for any row.
        """

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return what speaks against a record of one row; by default nothing.

        Parameters
        ----------
        request, record
            Of the row.
        learned
            For what the backend learns from the answers of one run; empty at its start.
        """
        del request, record, learned
        return []

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two bodies differ; by default those of JSON objects."""
        try:
            old, new = json.loads(before), json.loads(after)
            return tuple(name for name in sorted({*old, *new}) if old.get(name) != new.get(name))
        except (ValueError, AttributeError, TypeError):
            return ("request",)

    async def after(self, run: Any, is_stopped: Callable[[], bool]) -> None:
        """Finish a run whose calls have all ended, while it is locked, unless its end was asked for."""
        del run, is_stopped

    def describe(self, price: int) -> str | None:
        """Return in words what a price is paid for, such as seconds of audio; None to say just the price."""
        del price
        return None


MAKERS: dict[str, Callable[[Any, Mapping[str, Any]], Backend]] = {}
"""What makes the backend of an operation, so that a run finds its own by what run.json says.

It gets ``service`` as the run was given it, and those arguments of the run that are constants.
"""
