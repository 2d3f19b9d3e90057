"""The entries of a segment as events. Recovery and live reading use the same, so they cannot disagree."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from speechframe.old_store.entries import FIELDS, Decoder
from speechframe.old_store.log import Entry, Kind
from speechframe.old_store.schema import Record
from speechframe.old_store.tally import Origin, Tally


class Replay:
    """Replays the entries of segments into a tally.

    Parameters
    ----------
    tally
        Takes the events.

    Attributes
    ----------
    answers
        Answers seen so far.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._decoder = Decoder(FIELDS)
        self.answers = 0

    def finished(self, entries: Iterable[Entry]) -> Iterator[Record]:
        """Take every entry, yielding the records that belong into a part."""
        tally = self._tally
        for entry in entries:
            if entry.kind == Kind.OPENING:
                self._decoder = Decoder(entry.meta["fields"])
                tally.origin = _with_sender(tally.origin, entry.meta)
            elif entry.kind == Kind.CARRIED:
                for values in entry.meta:
                    tally.carry(self._decoder.flight(values))
            elif entry.kind == Kind.SENT:
                tally.sent(self._decoder.sent(entry.meta))
            elif entry.kind == Kind.ATTEMPT:
                tally.attempt(self._decoder.ledger(entry.meta))
            elif entry.kind == Kind.ANSWER:
                self.answers += 1
                record, row = self._decoder.answer(entry.meta, entry.body)
                if tally.answer(record, row):
                    yield record


def _with_sender(origin: Origin, opening: Mapping[str, Any]) -> Origin:
    tags = tuple(opening.get("tags") or ())
    return replace(origin, user=opening.get("user"), host=opening.get("host"), tags=tags)
