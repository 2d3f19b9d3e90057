"""What a verb must say of itself, so that one engine can plan, send and store every verb."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol, Self

from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.columns import Source
from speechframe.old_batch.doubt import Doubt
from speechframe.old_batch.outcome import DONE
from speechframe.old_batch.table import TableInput, open_table
from speechframe.old_client import Call, Spoken
from speechframe.old_store import Record, RunFolder
from speechframe.spec.billing import Millicredits
from speechframe.spec.check import FieldProblem
from speechframe.spec.speech import Format

KEY_BYTES = 16
KeyBegun = hashlib.blake2b
"""A key whose body is still to come (:func:`begin_key`)."""
_FORMATS = {format: (format.value, f".{format.value.lower()}") for format in Format}
"""Name and file suffix of each format; to ask a format for them costs a call of Python."""


@dataclass(frozen=True)
class Service:
    """What an operation knows of the service its calls go to.

    Parameters
    ----------
    identity
        What stands for it in request keys.
    book
        Its voices.
    limits
        Its page of limits, empty where it has none.
    """

    identity: str = ""
    book: VoiceBook = field(default_factory=lambda: VoiceBook(()))
    limits: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Planned:
    """One call that may be made: what is sent, what it costs, what its record will say.

    A *pack* is one call for several rows: each of its members has a key, a price and a record of its own,
    and characters and price of the pack are their sums.

    Parameters
    ----------
    request_key
        32 hex digits; equal for equal calls on the same service.
    take
        0, or the number of a later take.
    call
        What the client sends.
    characters
        Billed characters.
    millicredits
        Price in thousandths of a credit.
    voice_id, locale, model, format
        For the record and the ledger.
    members
        Of a pack; empty for a call of its own.
    own
        What the operation needs to read the answer.
    """

    request_key: str
    take: int
    call: Call[Any]
    characters: int
    millicredits: Millicredits
    text: str
    voice_id: str | None = None
    locale: str | None = None
    model: str | None = None
    format: str | None = None
    members: "tuple[Planned, ...]" = ()
    own: Any = None

    @property
    def parts(self) -> "tuple[Planned, ...]":
        """What has a record of its own: the members of a pack, or the call itself."""
        return self.members or (self,)


@dataclass(frozen=True, slots=True)
class Todo:
    """A call to make and the row that has it.

    Parameters
    ----------
    planned
        The call.
    row_ids
        The first row of the table that has it; of a pack, of each member.
    is_cached
        The cache had its answer when the run was planned; never true of a pack.
    """

    planned: Planned
    row_ids: tuple[str, ...]
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """A row after its check: a call, or what is wrong; `note` says what was changed about it."""

    planned: Planned | None
    problems: tuple[FieldProblem, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """How an answer came about: attempts made, lane and service used."""

    attempts: int
    lane: str
    service: str


class Looker(Protocol):
    """Says what speaks against an answer."""

    def doubts(self, planned: Planned, answer: Any, record: Record) -> Sequence[Doubt]:
        """Return everything that speaks against an answer; nothing as a rule.

        Parameters
        ----------
        planned, record
            What was asked for, and what is to be kept: of a pack, one member's.
        answer
            What came, for the call as a whole.
        """


class Operation(Protocol):
    """One verb: row to call, answer to records."""

    name: str
    """The verb's name, in run folders, ledgers and request keys."""
    pool: str
    """The pool of the service whose concurrency it uses."""
    arguments: Mapping[str, str]
    """Argument name to the field's name in the document."""
    data_arguments: frozenset[str]
    """Arguments whose bare string names a column."""
    constant_arguments: frozenset[str]
    """Arguments that hold for the whole table: a list is one value, not one a row."""
    packs: bool
    """Whether several rows may go in one call; the repeat of such a call is free only as it was."""
    takes: bool
    """Whether there can be another take of a row."""
    unit: str
    """What a call is to people who count them."""
    remark: str | None
    """What people are to know of such a run beside what it does and costs; None where there is nothing."""

    @classmethod
    def on(cls, service: Service) -> Self:
        """Return the verb as it is with a service."""

    def open(self, table: Any, columns: Mapping[str, str]) -> TableInput:
        """Return the caller's table, to be read once; before anything is planned.

        Parameters
        ----------
        table
            What the caller handed in.
        columns
            Argument to the column it names.
        """

    def at(self, folder: RunFolder) -> Self:
        """Return the verb as it is in a run's folder; before anything is sent."""

    def amount(self, millicredits: Millicredits) -> str | None:
        """Return in words what that price is paid for; None where the price says it."""

    def check(self, values: Mapping[str, Any], take: int) -> Checked:
        """Return the call of one row, or its problems."""

    def spread(self, sources: Mapping[str, Source]) -> Sequence[str]:
        """Return what each row of the table is made for, once each: languages; nothing for one call a row.

        Each row of the run then has its own in the argument ``target``.

        Raises
        ------
        InvalidRows
            When something is wrong with them.
        """

    def packed(self, todos: Iterator[Todo], together: Mapping[str, tuple[str, ...]]) -> Iterator[Todo]:
        """Yield the calls to make, lazily: as they are, or several in one where the service takes them so.

        Parameters
        ----------
        todos
            One a row.
        together
            request_key to the keys of a pack that is to be sent again as it was.
        """

    def split(self, planned: Planned) -> tuple[Planned, ...]:
        """Return smaller packs instead of one that was refused as a whole; nothing for a call of its own."""

    def records(self, planned: Planned, answer: Any, context: Context) -> Sequence[Record]:
        """Return what is kept of an answer: a record for each of ``planned.parts``, in their order."""

    def looker(self) -> Looker | None:
        """Return what doubts answers, fresh for a run; None where nothing can be told."""


def spoken_record(planned: Planned, answer: Spoken, context: Context) -> Record:
    """Return what is kept of an answer that is audio."""
    format, suffix = _FORMATS[answer.format]
    return Record(
        request_key=planned.request_key,
        take=planned.take,
        status=DONE,
        text=planned.text or None,
        audio_bytes=answer.audio,
        audio_path=f"{planned.request_key}{suffix}",
        word_durations=answer.words,
        format=format,
        sample_rate=answer.sample_rate_hz,
        channels=answer.channels,
        audio_seconds=answer.audio_seconds,
        billed_characters=planned.characters,
        credits_millis=planned.millicredits,
        balance_after=answer.remaining_characters,
        trace_id=answer.trace_id,
        attempts=context.attempts,
        latency_ms=answer.latency_ms,
        lane=context.lane,
        service=context.service,
        model=planned.model,
        voice_id=planned.voice_id,
        locale=planned.locale,
        warnings=list(answer.warnings),
        sha256=hashlib.sha256(answer.audio).hexdigest(),
        finished_at=datetime.now(UTC),
        transcription=answer.transcription,
    )


class Textual:
    """What operations have in common whose arguments all stand in the table itself."""

    remark: str | None = None

    def open(self, table: Any, columns: Mapping[str, str]) -> TableInput:
        """Return the caller's table, to be read once."""
        return open_table(table, named=columns.values())

    def at(self, folder: RunFolder) -> Self:
        """Return the verb as it is."""
        del folder
        return self

    def amount(self, millicredits: Millicredits) -> str | None:
        """Return None: the price says it."""
        del millicredits
        return None


class Single:
    """What operations have in common whose every row is a call of its own."""

    constant_arguments: frozenset[str] = frozenset()
    packs = False
    takes = True
    unit = "call"
    remark: str | None = None

    def spread(self, sources: Mapping[str, Source]) -> Sequence[str]:
        """Return nothing: a row is one call."""
        del sources
        return ()

    def packed(self, todos: Iterator[Todo], together: Mapping[str, tuple[str, ...]]) -> Iterator[Todo]:
        """Yield the calls as they are."""
        del together
        return todos

    def split(self, planned: Planned) -> tuple[Planned, ...]:
        """Return nothing: there is nothing smaller."""
        del planned
        return ()


def request_key(operation: str, body: bytes, *, model: str, take: int, service: str) -> str:
    """Return the content key of a call: equal calls on the same service have equal keys.

    Parameters
    ----------
    operation
        ``"generate"`` and so on.
    body
        The canonical wire body, without what only says how the answer is delivered.
    model
        The model's name.
    take
        0, or the number of a later take.
    service
        The service's identity: never an address or port.

    Examples
    --------
    >>> key = request_key("generate", b'{"text":"a"}', model="gen2", take=0, service="local/x")
    >>> key == request_key("generate", b'{"text":"a"}', model="gen2", take=1, service="local/x")
    False
    """
    return key_of(begin_key(operation, model=model, take=take, service=service), body)


def begin_key(operation: str, *, model: str, take: int, service: str) -> KeyBegun:
    """Return what the keys of calls have in common that differ in nothing but their bodies."""
    begun = hashlib.blake2b(digest_size=KEY_BYTES, person=b"speechframe-call")
    for part in (operation.encode(), model.encode(), str(take).encode(), service.encode("utf-8", "replace")):
        begun.update(_with_length(part))
    return begun


def key_of(begun: KeyBegun, body: bytes) -> str:
    """Return the :func:`request_key` that was begun, of a call with that body."""
    digest = begun.copy()
    digest.update(_with_length(body))
    return digest.hexdigest()


def _with_length(part: bytes) -> bytes:
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    return len(part).to_bytes(8, "big") + part
