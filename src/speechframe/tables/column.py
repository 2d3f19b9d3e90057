"""Values that rows take from a column, or share evenly. Without Arrow, so that help pages open fast."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speechframe.errors import SettingsError


@dataclass(frozen=True)
class Column:
    """A column of the table, by name. Create it with :func:`col`."""

    name: str


def col(name: str) -> Column:
    """Return a reference to the column `name`, so that an option gets its value of each row from this column.

    Parameters
    ----------
    name
        Name of a column of the table that is given to the verb.

    Examples
    --------
    >>> col("voice")
    Column(name='voice')
    """
    return Column(name)


@dataclass(frozen=True)
class Balanced:
    """Values that share the rows of a table evenly. Create it with :func:`balanced`.

    Attributes
    ----------
    values
        The values, or the values for each value of the column `by`.
    by, weight, seed
        The arguments of :func:`balanced`.
    """

    values: tuple[str, ...] | Mapping[str, tuple[str, ...]]
    by: str | None = None
    weight: str = "characters"
    seed: int = 0


def balanced(
    values: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    by: str | None = None,
    weight: str = "characters",
    seed: int = 0,
) -> Balanced:
    """Give each row one of some values, such as voices, so that all values get equal shares of the table.

    Each row gets the value with the smallest total so far. Rows that are added at the end of a table do not
    change the values of the rows before them.

    Parameters
    ----------
    values
        The values, or a mapping from each value of the column `by` to its values:
        ``{"en-US": ["nora", "joe"], "pt-BR": ["larissa", "pedro"]}``. A row without values is a problem.
    by
        Column of the table. Rows with different values in this column are balanced separately. None balances
        the whole table.
    weight
        ``"characters"`` (default) balances characters of the text, and ``"rows"`` the number of rows. Any
        other name is a column of numbers of the table, such as ``audio_seconds``. A missing number counts
        as 0.
    seed
        Seed of the order in which values with equal totals are taken.

    Raises
    ------
    SettingsError
        If there are no values, or a mapping is given without `by`.

    Examples
    --------
    >>> balanced(["nora", "joe"], by="locale")
    Balanced(values=('nora', 'joe'), by='locale', weight='characters', seed=0)
    """
    if isinstance(values, str) or not values:
        raise SettingsError(f"balanced() got {values!r}; allowed: a list of values, or a mapping to lists")
    if isinstance(values, Mapping):
        if by is None:
            raise SettingsError("balanced() got a mapping without by=; name the column of its keys")
        return Balanced({str(key): tuple(some) for key, some in values.items()}, by, weight, seed)
    return Balanced(tuple(values), by, weight, seed)


class BalancedTotals:
    """The totals of balanced values over the rows so far."""

    def __init__(self, rule: Balanced) -> None:
        self.rule = rule
        self._totals: dict[str | None, dict[str, float]] = {}

    def choose(self, group: str | None, weight: float) -> str | None:
        """Return the value of the next row, or None if its group has no values."""
        if group not in self._totals:
            values = self.rule.values
            own = list(dict.fromkeys(values.get(group or "", ()) if isinstance(values, Mapping) else values))
            # Each group has an order of its own, so that the first value is not first everywhere.
            random.Random(f"{self.rule.seed} {group}").shuffle(own)  # noqa: S311 - nothing is secret
            self._totals[group] = dict.fromkeys(own, 0.0)
        totals = self._totals[group]
        value = min(totals, key=totals.__getitem__, default=None)
        if value is not None:
            totals[value] += weight
        return value
