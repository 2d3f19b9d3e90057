"""Draw the trials of each listener before the test. They are balanced, and a seed repeats the same design.

A *treatment* is the subject of a trial. It is a condition (``mos``), a pair of conditions (``ab``, ``abx``),
or all conditions on one page (``multi``, ``mushra``). A *cell* is one treatment with one item. All cells form
a circle, in which treatments and items alternate. Each listener gets the next part of the circle. So a
listener hears all treatments, and all items, about equally often. For any number of listeners, all cells are
heard about equally often.

A *signal* is a sound on a page. The order of treatments, and the places of signals on a page, come from Latin
squares (Williams 1949). In these squares, each symbol follows each other symbol equally often. The seed
shuffles symbols and rows, so listeners cannot learn the order. The trials of a listener do not depend on the
number of listeners, so listeners can be added later.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import ceil, lcm
from typing import TYPE_CHECKING, Any

from speechframe.errors import ListeningError
from speechframe.statistics.votes import AB, ABX, MOS, MUSHRA, A, B

if TYPE_CHECKING:
    import pandas as pd

MAX_SIGNALS = 12
"""Largest number of signals on a page, including hidden reference and anchors (ITU-R BS.1534)."""

SLOT_NAMES = "ABCDEFGHIJKL"
"""Names of the places of signals on a page, in order."""

_PAIR_COLUMNS: Mapping[str, tuple[str, ...]] = {
    AB: ("condition_a", "condition_b", "left"),
    ABX: ("condition_a", "condition_b", "left", "truth"),
}
"""Columns of the methods that compare two conditions, by method."""

_COLUMN_TYPES = {"trial": "int32", "training": "bool", "slot": "int32"}
"""Types of the columns that are not text."""


@dataclass(frozen=True)
class Page:
    """One page of a listener, which is one trial.

    Parameters
    ----------
    trial
        Number of the page in the listener's order, from 0.
    training
        Whether the page is for practice.
    item
        Name of the item (usually the text).
    slots
        Condition of each signal, by the signal's name on the page.
    x
        Condition of X in ``abx``. None in other methods.
    rows
        Rows of the design for this page, one a vote.
    """

    trial: int
    training: bool
    item: str
    slots: Mapping[str, str]
    x: str | None
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class _Cell:
    """One treatment with one item.

    `treatment` and `item` are indices. `turn` is the number of earlier cells with this treatment in the same
    pass through the circle, plus the number of earlier passes. It selects the condition on the left and X.
    """

    treatment: int
    item: int
    turn: int


def make_listener_name(number: int) -> str:
    """Return the name of a listener by number, from 1.

    Examples
    --------
    >>> make_listener_name(7)
    'listener-07'
    """
    return f"listener-{number:02}"


def design_trials(
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
    """Return the design of a test as a frame, with one row for each expected vote.

    Parameters
    ----------
    method
        ``ab``, ``mos``, ``multi``, ``mushra`` or ``abx``.
    items, conditions
        Names of the items (usually texts) and of the compared conditions. In ``mushra``, the conditions
        include the reference and the anchors.
    listeners, first_listener
        Number of listeners, and the number of the first listener.
    trials_per_listener
        Number of trials that count for each listener. The number of cells is its limit, because no listener
        gets a cell twice. In ``abx`` there is no limit, because cells repeat.
    training
        Number of practice trials before the trials that count. If possible, they use cells that the listener
        does not hear later.
    seed
        Seed of all random choices.

    Returns
    -------
    pandas.DataFrame
        Always ``listener``, ``trial`` (from 0, practice first), ``training`` and ``item``. For methods with
        scores also ``slot`` (place on the page, from 0) and ``condition``. For pair methods also
        ``condition_a``, ``condition_b`` and ``left`` (``a`` or ``b``, the condition on the left), and for
        ``abx`` ``truth`` (``a`` or ``b``, the condition of X).

    Raises
    ------
    ListeningError
        A page would have too many signals. `making` and `sources` check the other arguments.

    Examples
    --------
    >>> frame = design_trials("ab", items=["s1", "s2", "s3", "s4"], conditions=["x", "y"], training=0)
    >>> len(frame), sorted(frame["left"])
    (4, ['a', 'a', 'b', 'b'])
    """
    import pandas as pd

    plan = _DesignPlan(method, tuple(items), tuple(conditions), trials_per_listener, training, seed)
    rows = [
        row
        for number in range(first_listener, first_listener + listeners)
        for row in plan.draw_rows(number - 1)
    ]
    frame = pd.DataFrame(rows)
    return frame.astype({name: kind for name, kind in _COLUMN_TYPES.items() if name in frame})


def build_pages(frame: "pd.DataFrame", listener: str) -> tuple[Page, ...]:
    """Return the pages of a listener, in order.

    Examples
    --------
    >>> frame = design_trials("mos", items=["s1"], conditions=["x", "y"], training=0)
    >>> [page.trial for page in build_pages(frame, "listener-01")]
    [0, 1]
    """
    listener_rows = frame[frame["listener"] == listener]
    return tuple(
        _build_page([{str(name): value for name, value in row.items()} for row in rows.to_dict("records")])
        for _, rows in listener_rows.groupby("trial", sort=True)
    )


@lru_cache(maxsize=256)
def draw_latin_rows(size: int, seed: str) -> tuple[tuple[int, ...], ...]:
    """Return the shuffled rows of a Latin square. Each row contains each number once.

    Over all rows, each number is equally often in each place, and follows each other number equally often. An
    even `size` needs `size` rows, and an odd `size` needs twice as many.

    Examples
    --------
    >>> rows = draw_latin_rows(4, "seed")
    >>> len(rows), sorted(rows[0]), sorted(row[0] for row in rows)
    (4, [0, 1, 2, 3], [0, 1, 2, 3])
    """
    rng = _make_rng(seed)
    # The first row is 0, 1, size - 1, 2, size - 2 and so on. So neighbours differ by each amount once.
    first = [(k + 1) // 2 if k % 2 else (size - k // 2) % size for k in range(size)]
    rows = [[(position + shift) % size for position in first] for shift in range(size)]
    if size % 2 and size > 1:
        rows += [row[::-1] for row in rows]
    symbols = rng.sample(range(size), size)
    rng.shuffle(rows)
    return tuple(tuple(symbols[position] for position in row) for row in rows)


class _DesignPlan:
    """The parameters of a design, and the methods that draw its rows."""

    def __init__(
        self,
        method: str,
        items: tuple[str, ...],
        conditions: tuple[str, ...],
        trials_per_listener: int,
        training: int,
        seed: int,
    ) -> None:
        _refuse_many_signals(method, conditions)
        self.method, self.conditions, self.seed, self.training = method, conditions, seed, training
        self.treatments = _list_treatments(method, conditions)
        self.cells = len(self.treatments) * len(items)
        self.trials = trials_per_listener if method == ABX else min(trials_per_listener, self.cells)
        # Items are shuffled, so that neighbours in the source are not neighbours in the circle.
        self.items = _make_rng(f"{seed}/items").sample(items, len(items))
        # A random 0 or 1 for each treatment, which is added to the turns of its cells.
        self.flips = [_make_rng(f"{seed}/flips/{k}").randrange(2) for k in range(len(self.treatments))]

    def draw_rows(self, listener_index: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of the design for one listener. `listener_index` counts from 0."""
        first = listener_index * self.trials
        rng = _make_rng(f"{self.seed}/listener/{listener_index}")
        counted = self._order_cells(
            [self._get_cell(first + k) for k in range(self.trials)], listener_index, rng
        )
        practice = [self._get_cell(first + self.trials + k) for k in range(self.training)]
        rng.shuffle(practice)
        for trial, cell in enumerate([*practice, *counted]):
            known = {
                "listener": make_listener_name(listener_index + 1),
                "trial": trial,
                "training": trial < self.training,
                "item": self.items[cell.item],
            }
            number = trial - self.training
            for signal in self._draw_signals(cell, listener_index, number, rng):
                yield {**known, **signal}

    def _get_cell(self, number: int) -> _Cell:
        """Return the cell at a position of the circle. Positions beyond the end begin another pass."""
        treatments, items = len(self.treatments), len(self.items)
        passes, position = divmod(number, self.cells)
        # After the least common multiple, the pairs of treatment and item would repeat. The item then shifts
        # by one, so that every treatment gets every item.
        item = (position + position // lcm(treatments, items)) % items
        return _Cell(position % treatments, item, position // treatments + passes)

    def _order_cells(self, cells: list[_Cell], listener_index: int, rng: random.Random) -> list[_Cell]:
        """Return cells in the order of the trials. If possible, neighbouring trials have different items."""
        waiting: dict[int, list[_Cell]] = {k: [] for k in range(len(self.treatments))}
        for cell in cells:
            waiting[cell.treatment].append(cell)
        for group in waiting.values():
            rng.shuffle(group)
        blocks = ceil(self.trials / len(self.treatments))
        ordered: list[_Cell] = []
        for block in range(blocks):
            for treatment in self._pick_latin_row(
                "order", listener_index * blocks + block, len(self.treatments)
            ):
                group = waiting[treatment]
                if group:
                    last = ordered[-1].item if ordered else None
                    other = next((k for k, cell in enumerate(group) if cell.item != last), 0)
                    ordered.append(group.pop(other))
        return ordered

    def _draw_signals(
        self, cell: _Cell, listener_index: int, number: int, rng: random.Random
    ) -> Iterator[dict[str, Any]]:
        """Yield the columns of conditions and their places on a page, one mapping for each vote."""
        treatment = self.treatments[cell.treatment]
        if self.method in _PAIR_COLUMNS:
            yield dict(zip(_PAIR_COLUMNS[self.method], (*treatment, *self._choose_sides(cell)), strict=True))
            return
        slots: Sequence[int] = range(len(treatment))
        if number >= 0:
            slots = self._pick_latin_row("slots", listener_index * self.trials + number, len(treatment))
        else:
            slots = rng.sample(slots, len(slots))
        for slot, condition_index in enumerate(slots):
            yield {"slot": slot, "condition": treatment[condition_index]}

    def _choose_sides(self, cell: _Cell) -> tuple[str, ...]:
        """Return the condition on the left, and in abx also that of X, each as ``a`` or ``b``.

        In abx, four turns give all four combinations.
        """
        turn = cell.turn + self.flips[cell.treatment]
        alternating_side = (A, B)[turn % 2]
        if self.method == AB:
            return (alternating_side,)
        return ((A, B)[(turn + 1) // 2 % 2], alternating_side)

    def _pick_latin_row(self, what: str, number: int, size: int) -> tuple[int, ...]:
        """Return a row by its number in a sequence of Latin squares. `what` names the sequence."""
        rows = size if size % 2 == 0 or size == 1 else 2 * size
        square, row = divmod(number, rows)
        return draw_latin_rows(size, f"{self.seed}/{what}/{square}")[row]


def _make_rng(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the design must be repeatable, not secret


def _list_treatments(method: str, conditions: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the subjects of trials, each as its conditions."""
    if method in _PAIR_COLUMNS:
        return list(combinations(conditions, 2))
    return [(name,) for name in conditions] if method == MOS else [conditions]


def _refuse_many_signals(method: str, conditions: tuple[str, ...]) -> None:
    """Raise ListeningError if a page would have too many signals."""
    if method not in {*_PAIR_COLUMNS, MOS} and len(conditions) > MAX_SIGNALS:
        more = " (including reference and anchors)" if method == MUSHRA else ""
        raise ListeningError(
            f"a page has {MAX_SIGNALS} signals at most{more}, not {len(conditions)}; choose fewer "
            'conditions, compare two at a time (method="ab"), or rate one at a time (method="mos")'
        )


def _build_page(rows: list[dict[str, Any]]) -> Page:
    """Return the page of one trial from its rows of the design."""
    first = rows[0]
    x = None
    if "condition_a" in first:
        pair = {A: str(first["condition_a"]), B: str(first["condition_b"])}
        left = str(first["left"])
        slots = {SLOT_NAMES[0]: pair[left], SLOT_NAMES[1]: pair[B if left == A else A]}
        x = pair[str(first["truth"])] if "truth" in first else None
    else:
        slots = {SLOT_NAMES[int(row["slot"])]: str(row["condition"]) for row in rows}
    return Page(int(first["trial"]), bool(first["training"]), str(first["item"]), slots, x, tuple(rows))
