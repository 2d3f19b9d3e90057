"""Who hears what in which order: drawn before anyone listens, balanced, and the same for the same seed.

A *treatment* is what a trial asks about: a condition (``mos``), a pair of conditions (``ab``, ``abx``), or
all of them on one page (``multi``, ``mushra``). A *cell* is a treatment of an item. All cells stand in one
circle in which treatments and items alternate, and listeners take turns to cut the next piece out of it: so
each listener hears all treatments, and all items, about equally often, and all cells are heard equally often
over any number of listeners.

The order of treatments, and the places of signals on a page, come from Latin squares in which each stands
equally often behind each other (Williams 1949), their symbols and rows shuffled by the seed, so that no order
can be learned. What listener k hears does not depend on how many listeners there are.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import ceil, lcm
from typing import TYPE_CHECKING, Any

from speechframe.errors import ListeningError
from speechframe.statistics.votes import AB, ABX, METHODS, MOS, MUSHRA, A, B

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MOST_SIGNALS", "Page", "design", "latin_rows", "listener_name", "pages_of"]

MOST_SIGNALS = 12
"""Signals that a page holds at most, the hidden reference and anchors among them (ITU-R BS.1534)."""

SLOTS = "ABCDEFGHIJKL"
"""What the signals of a page are called."""

_COLUMNS = ("listener", "trial", "training", "item")
_ASKED: Mapping[str, tuple[str, ...]] = {
    AB: ("condition_a", "condition_b", "left"),
    ABX: ("condition_a", "condition_b", "left", "truth"),
}
_OF_SCORES = ("slot", "condition")
_TYPES = {"trial": "int32", "training": "bool", "slot": "int32"}


@dataclass(frozen=True)
class Page:
    """What a listener is asked at once.

    Parameters
    ----------
    trial
        Its number in the listener's order, from 0.
    training
        Whether it is for practice.
    item
        What is said.
    slots
        What a signal is called on the page, to its condition.
    x
        The condition of X; None but in ``abx``.
    rows
        The design's rows of this page: one a vote.
    """

    trial: int
    training: bool
    item: str
    slots: Mapping[str, str]
    x: str | None
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class _Cell:
    treatment: int
    item: int
    turn: int
    """How often the treatment came before: what alternates, alternates by it."""


def listener_name(number: int) -> str:
    """Return the name of a listener, counted from 1.

    Examples
    --------
    >>> listener_name(7)
    'listener-07'
    """
    return f"listener-{number:02}"


def design(
    method: str,
    *,
    items: Sequence[str],
    conditions: Sequence[str],
    listeners: int = 1,
    first_listener: int = 1,
    trials_per_listener: int = 30,
    training: int = 3,
    seed: int = 0,
) -> "pd.DataFrame":
    """Return the design of a test as a frame: one row for each vote that will be given.

    Parameters
    ----------
    method
        ``ab``, ``mos``, ``multi``, ``mushra`` or ``abx``.
    items, conditions
        Names of what is said, and of what is compared (in ``mushra`` with reference and anchors).
    listeners, first_listener
        How many, and the number of the first.
    trials_per_listener
        Trials that count. At most as many as there are cells, for nobody is asked the same twice; but ``abx``
        repeats, so that their number is the number that was fixed.
    training
        Trials before them, for practice; of cells that the listener does not hear later, as far as there are
        any.
    seed
        What everything is drawn with.

    Returns
    -------
    pandas.DataFrame
        ``listener``, ``trial`` (from 0, practice first), ``training``, ``item``; with scores ``slot`` (the
        place on the page, from 0) and ``condition``; in pair methods ``condition_a``, ``condition_b``,
        ``left`` (``a`` or ``b``: which stands on the left) and in ``abx`` ``truth`` (``a`` or ``b``: what X
        is).

    Raises
    ------
    ListeningError
        An unknown method, fewer than two conditions, too many signals for a page, or figures that make no
        test.

    Examples
    --------
    >>> frame = design("ab", items=["s1", "s2", "s3", "s4"], conditions=["x", "y"], training=0)
    >>> len(frame), sorted(frame["left"])
    (4, ['a', 'a', 'b', 'b'])
    """
    import pandas as pd

    plan = _Plan(method, tuple(items), tuple(conditions), trials_per_listener, training, seed)
    rows = [
        row
        for number in range(first_listener, first_listener + listeners)
        for row in plan.rows_of_listener(number - 1)
    ]
    columns = [*_COLUMNS, *_ASKED.get(method, _OF_SCORES)]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({name: kind for name, kind in _TYPES.items() if name in columns})


def pages_of(frame: "pd.DataFrame", listener: str) -> tuple[Page, ...]:
    """Return a listener's pages, in order.

    Examples
    --------
    >>> frame = design("mos", items=["s1"], conditions=["x", "y"], training=0)
    >>> [page.trial for page in pages_of(frame, "listener-01")]
    [0, 1]
    """
    mine = frame[frame["listener"] == listener]
    return tuple(
        _page([{str(name): value for name, value in row.items()} for row in rows.to_dict("records")])
        for _, rows in mine.groupby("trial", sort=True)
    )


@lru_cache(maxsize=256)
def latin_rows(size: int, seed: str) -> tuple[tuple[int, ...], ...]:
    """Return the rows of a Latin square, shuffled: each number stands once in each row.

    In all rows together each number stands equally often in each place, and equally often behind each other
    number: that takes as many rows as numbers where their number is even, and twice as many where it is odd.

    Examples
    --------
    >>> rows = latin_rows(4, "seed")
    >>> len(rows), sorted(rows[0]), sorted(row[0] for row in rows)
    (4, [0, 1, 2, 3], [0, 1, 2, 3])
    """
    draw = _draw(seed)
    # There and back between both ends: neighbours differ by each amount once.
    first = [(k + 1) // 2 if k % 2 else (size - k // 2) % size for k in range(size)]
    rows = [[(place + shift) % size for place in first] for shift in range(size)]
    if size % 2 and size > 1:
        rows += [row[::-1] for row in rows]
    symbols = draw.sample(range(size), size)
    draw.shuffle(rows)
    return tuple(tuple(symbols[place] for place in row) for row in rows)


class _Plan:
    """How a test is drawn."""

    def __init__(
        self,
        method: str,
        items: tuple[str, ...],
        conditions: tuple[str, ...],
        trials_per_listener: int,
        training: int,
        seed: int,
    ) -> None:
        _refuse(method, items, conditions, trials_per_listener, training)
        self.method, self.conditions, self.seed, self.training = method, conditions, seed, training
        self.treatments = _treatments(method, conditions)
        self.cells = len(self.treatments) * len(items)
        self.trials = trials_per_listener if method == ABX else min(trials_per_listener, self.cells)
        # Neighbours in the table must not be neighbours in the circle.
        self.items = _draw(f"{seed}/items").sample(items, len(items))
        self.flips = [_draw(f"{seed}/flips/{k}").randrange(2) for k in range(len(self.treatments))]

    def rows_of_listener(self, place: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of a listener, counted from 0."""
        first = place * self.trials
        draw = _draw(f"{self.seed}/listener/{place}")
        counted = self._ordered([self._cell(first + k) for k in range(self.trials)], place, draw)
        practice = [self._cell(first + self.trials + k) for k in range(self.training)]
        draw.shuffle(practice)
        for trial, cell in enumerate([*practice, *counted]):
            known = {
                "listener": listener_name(place + 1),
                "trial": trial,
                "training": trial < self.training,
                "item": self.items[cell.item],
            }
            number = trial - self.training
            for asked in self._asked(cell, place, number, draw):
                yield {**known, **asked}

    def _cell(self, number: int) -> _Cell:
        treatments, items = len(self.treatments), len(self.items)
        use, within = divmod(number, self.cells)
        # One step more after each common multiple: else only some treatments would meet some items.
        item = (within + within // lcm(treatments, items)) % items
        return _Cell(within % treatments, item, within // treatments + use)

    def _ordered(self, cells: list[_Cell], place: int, draw: random.Random) -> list[_Cell]:
        """Return cells in an order balanced over treatments, no item twice running where that can be."""
        waiting: dict[int, list[_Cell]] = {k: [] for k in range(len(self.treatments))}
        for cell in cells:
            waiting[cell.treatment].append(cell)
        for group in waiting.values():
            draw.shuffle(group)
        blocks = ceil(self.trials / len(self.treatments))
        ordered: list[_Cell] = []
        for block in range(blocks):
            for treatment in self._latin("order", place * blocks + block, len(self.treatments)):
                group = waiting[treatment]
                if group:
                    last = ordered[-1].item if ordered else None
                    other = next((k for k, cell in enumerate(group) if cell.item != last), 0)
                    ordered.append(group.pop(other))
        return ordered

    def _asked(self, cell: _Cell, place: int, number: int, draw: random.Random) -> Iterator[dict[str, Any]]:
        """Yield what the votes of a page are about."""
        treatment = self.treatments[cell.treatment]
        if self.method in _ASKED:
            yield dict(zip(_ASKED[self.method], (*treatment, *self._sides(cell)), strict=True))
            return
        slots: Sequence[int] = range(len(treatment))
        if number >= 0:
            slots = self._latin("slots", place * self.trials + number, len(treatment))
        else:
            slots = draw.sample(slots, len(slots))
        for slot, of in enumerate(slots):
            yield {"slot": slot, "condition": treatment[of]}

    def _sides(self, cell: _Cell) -> tuple[str, ...]:
        """Return which condition stands on the left and, in abx, what X is: all four ways in four turns."""
        turn = cell.turn + self.flips[cell.treatment]
        left = (A, B)[turn % 2]
        if self.method == AB:
            return (left,)
        return ((A, B)[(turn + 1) // 2 % 2], left)

    def _latin(self, what: str, number: int, size: int) -> tuple[int, ...]:
        rows = size if size % 2 == 0 or size == 1 else 2 * size
        square, row = divmod(number, rows)
        return latin_rows(size, f"{self.seed}/{what}/{square}")[row]


def _draw(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - drawn to be repeated, not to be secret


def _treatments(method: str, conditions: tuple[str, ...]) -> list[tuple[str, ...]]:
    if method in _ASKED:
        return list(combinations(conditions, 2))
    return [(name,) for name in conditions] if method == MOS else [conditions]


def _refuse(
    method: str, items: tuple[str, ...], conditions: tuple[str, ...], trials: int, training: int
) -> None:
    if method not in METHODS:
        raise ListeningError(f"there is no method {method!r}; allowed: {', '.join(METHODS)}")
    for names, what, least in ((conditions, "conditions", 2), (items, "items", 1)):
        if len(names) < least or len(set(names)) != len(names):
            raise ListeningError(f"a test has {least} or more {what}, each once, not {len(names)}")
    if trials < 1 or training < 0:
        raise ListeningError(
            f"trials_per_listener is 1 or more and training 0 or more, not {trials} and {training}"
        )
    if method not in {*_ASKED, MOS} and len(conditions) > MOST_SIGNALS:
        more = " (reference and anchors among them)" if method == MUSHRA else ""
        raise ListeningError(
            f"a page holds {MOST_SIGNALS} signals at most{more}, not {len(conditions)}; choose some, or "
            'compare two at a time (method="ab") or one at a time (method="mos")'
        )


def _page(rows: list[dict[str, Any]]) -> Page:
    first = rows[0]
    x = None
    if "condition_a" in first:
        pair = {A: str(first["condition_a"]), B: str(first["condition_b"])}
        left = str(first["left"])
        slots = {SLOTS[0]: pair[left], SLOTS[1]: pair[B if left == A else A]}
        x = pair[str(first["truth"])] if "truth" in first else None
    else:
        slots = {SLOTS[int(row["slot"])]: str(row["condition"]) for row in rows}
    return Page(int(first["trial"]), bool(first["training"]), str(first["item"]), slots, x, tuple(rows))
