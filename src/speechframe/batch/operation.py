"""What a verb must say of itself, so that one engine can plan, send and store every verb."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from speechframe.client import Call, Spoken
from speechframe.spec.billing import Millicredits
from speechframe.spec.check import FieldProblem
from speechframe.store import Record

KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Planned:
    """One call that may be made: what is sent, what it costs, what its record will say.

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
    """

    request_key: str
    take: int
    call: Call
    characters: int
    millicredits: Millicredits
    text: str
    voice_id: str | None = None
    locale: str | None = None
    model: str | None = None
    format: str | None = None


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


class Operation(Protocol):
    """One verb: row to call, answer to record."""

    name: str
    """The operation's name in run folders, ledgers and request keys."""
    pool: str
    """The pool of the service whose concurrency it uses: ``"other"`` or ``"streaming"``."""
    arguments: Mapping[str, str]
    """Argument name to the field's name in the document."""
    data_arguments: frozenset[str]
    """Arguments whose bare string names a column."""

    def check(self, values: Mapping[str, Any], take: int) -> Checked:
        """Return the call of one row, or its problems."""

    def record(self, planned: Planned, answer: Spoken, context: Context) -> Record:
        """Return what is kept of an answer."""


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
    digest = hashlib.blake2b(digest_size=KEY_BYTES, person=b"speechframe-call")
    for part in (
        operation.encode(),
        model.encode(),
        str(take).encode(),
        service.encode("utf-8", "replace"),
        body,
    ):
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
