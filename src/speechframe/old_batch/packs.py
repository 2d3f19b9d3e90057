"""Packs: one call for several rows, formed lazily, split where they fail, and sent again as they were.

A pack is known by its members alone: they stand in it by their request_key,
and its own key is made of theirs. So whoever knows which calls went together
can send that call again, byte for byte, under its Idempotency-Key.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.old_batch.job import idempotency_key
from speechframe.old_batch.operation import KEY_BYTES, Planned, Todo
from speechframe.old_store import SentRecord

__all__ = ["Packer", "halves", "pack", "pack_key", "sent_together"]

Together = Mapping[str, tuple[str, ...]]
"""request_key to the keys of the pack it was sent in."""


def pack_key(keys: Sequence[str]) -> str:
    """Return what names a pack of these calls, in whatever order; of a single one, its own key.

    Examples
    --------
    >>> pack_key(["aa", "bb"]) == pack_key(["bb", "aa"]), pack_key(["aa"])
    (True, 'aa')
    """
    if len(keys) == 1:
        return keys[0]
    digest = hashlib.blake2b(digest_size=KEY_BYTES, person=b"speechframe-pack")
    for key in sorted(keys):
        digest.update(key.encode() + b"\0")
    return digest.hexdigest()


def pack(members: Sequence[Planned], call: Callable[[Sequence[Planned]], Any]) -> Planned:
    """Return one call for all of `members`, which are put in the order of their keys.

    Parameters
    ----------
    members
        Calls of one kind.
    call
        Makes the client's call of them.
    """
    if len(members) == 1:
        return members[0]
    ordered = tuple(sorted(members, key=lambda member: member.request_key))
    return Planned(
        request_key=pack_key([member.request_key for member in ordered]),
        take=0,
        call=call(ordered),
        characters=sum(member.characters for member in ordered),
        millicredits=sum(member.millicredits for member in ordered),
        text="",
        locale=ordered[0].locale,
        model=ordered[0].model,
        members=ordered,
    )


def halves(planned: Planned, call: Callable[[Sequence[Planned]], Any]) -> tuple[Planned, ...]:
    """Return two packs of half the members each; nothing for a call of its own."""
    members = planned.members
    middle = len(members) // 2
    return (pack(members[:middle], call), pack(members[middle:], call)) if middle else ()


@dataclass(frozen=True)
class Packer:
    """Gathers calls into packs while a table is read.

    Parameters
    ----------
    most_members, most_characters
        Of a pack.
    kind
        Calls of one kind go together.
    call
        Makes the client's call of several.
    """

    most_members: int
    most_characters: int
    kind: Callable[[Planned], object]
    call: Callable[[Sequence[Planned]], Any]

    def packed(self, todos: Iterable[Todo], together: Together) -> Iterator[Todo]:
        """Yield packs as soon as they are full, the rest at the end, and what is cached as it is.

        Parameters
        ----------
        todos
            Calls, lazily.
        together
            Packs that are to be sent again as they were; each comes as soon as its last member does.
        """
        open_packs: dict[object, list[Todo]] = {}
        again: dict[tuple[str, ...], list[Todo]] = defaultdict(list)
        for todo in todos:
            keys = together.get(todo.planned.request_key)
            if keys is not None:
                again[keys].append(todo)
                if len(again[keys]) == len(keys):
                    yield self._todo(again.pop(keys))
            elif todo.is_cached:
                yield todo
            else:
                yield from self._gathered(open_packs, todo)
        # What is left of a pack that was to be sent again would be another call: it may not be made unasked.
        yield from map(self._todo, open_packs.values())

    def _gathered(self, open_packs: dict[object, list[Todo]], todo: Todo) -> Iterator[Todo]:
        kind = self.kind(todo.planned)
        gathered = open_packs.setdefault(kind, [])
        characters = sum(one.planned.characters for one in gathered)
        if gathered and characters + todo.planned.characters > self.most_characters:
            yield self._todo(gathered)
            gathered = open_packs[kind] = []
        gathered.append(todo)
        if len(gathered) >= self.most_members:
            yield self._todo(open_packs.pop(kind))

    def _todo(self, todos: Sequence[Todo]) -> Todo:
        if len(todos) == 1:
            return Todo(todos[0].planned, todos[0].row_ids)
        row_of = {todo.planned.request_key: todo.row_ids[0] for todo in todos}
        planned = pack([todo.planned for todo in todos], self.call)
        return Todo(planned, tuple(row_of[part.request_key] for part in planned.parts))


def sent_together(
    unknown: Mapping[str, SentRecord], *, run_id: str, repeatable: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return which calls may have been billed as one pack that can be sent again just as it was.

    Parameters
    ----------
    unknown
        Calls that may have been billed, and their last attempt.
    run_id
        Of the run.
    repeatable
        Calls whose repeat is free and that are still to be made: a pack of which one is missing would be
        another call, under another Idempotency-Key, billed again.

    Examples
    --------
    >>> sent = {key: SentRecord(key, idempotency_key=f"r1-{pack_key(['aa', 'bb'])}") for key in ("bb", "aa")}
    >>> sent_together(sent, run_id="r1", repeatable={"aa", "bb"})
    {'aa': ('aa', 'bb'), 'bb': ('aa', 'bb')}
    >>> sent_together(sent, run_id="r1", repeatable={"aa"})
    {}
    """
    by_name: dict[str, list[str]] = defaultdict(list)
    for key, sent in unknown.items():
        if sent.idempotency_key is not None:
            by_name[sent.idempotency_key].append(key)
    found: dict[str, tuple[str, ...]] = {}
    for name, members in by_name.items():
        keys = tuple(sorted(members))
        if name == idempotency_key(run_id, pack_key(keys)) and all(key in repeatable for key in keys):
            found.update(dict.fromkeys(keys, keys))
    return found
