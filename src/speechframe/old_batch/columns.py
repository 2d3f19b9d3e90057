"""Columns and constants: what an argument of a verb takes its values from.

Data arguments (``text``) name a column: a bare string is a column. Option
arguments (``voice``, ``rate``, ...) take a constant: a bare string is always a
constant, ``col("x")`` names a column, and a Series, list or array of the
table's length gives one value a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any


@dataclass(frozen=True)
class Column:
    """A column of the table, by name; made by :func:`col`."""

    name: str


def col(name: str) -> Column:
    """Take an option's value from the column `name`, row by row.

    Parameters
    ----------
    name
        A column of the table that is handed to the verb.

    Examples
    --------
    >>> col("voice")
    Column(name='voice')
    """
    if not name:
        raise ValueError("col() takes the name of a column, not an empty one")
    return Column(name)


@dataclass(frozen=True)
class Source:
    """Where one argument's values come from, once it is resolved against a table.

    Exactly one of `column` and `constant` counts: `column` unless it is None. `taken_from` is the caller's
    column whose values were taken in: `column` holds references to them.
    """

    field: str
    column: str | None = None
    constant: Any = None
    taken_from: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what run.json keeps, so that a resume needs nothing from the caller."""
        if self.column is None:
            return {"constant": _plain(self.constant)}
        taken = {} if self.taken_from is None else {"taken_from": self.taken_from}
        return {"column": self.column, **taken}

    @classmethod
    def from_json(cls, field: str, kept: Mapping[str, Any]) -> "Source":
        """Return the source that :meth:`to_json` described."""
        return cls(
            field,
            column=kept.get("column"),
            constant=kept.get("constant"),
            taken_from=kept.get("taken_from"),
        )


def is_per_row(value: Any) -> bool:
    """Whether `value` is a Series, list or array: one value a row.

    Mappings and strings are single values; a one-dimensional array of any
    library counts, one without dimensions is a single value.

    Examples
    --------
    >>> is_per_row(["a", "b"]), is_per_row("ab"), is_per_row({"a": 1})
    (True, False, False)
    """
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0:
        return False
    if isinstance(value, Sequence):
        return True
    return hasattr(value, "__len__") and (hasattr(value, "__array__") or hasattr(value, "to_pylist"))


def as_list(value: Any) -> list[Any]:
    """Return a per-row value as plain Python values.

    Examples
    --------
    >>> as_list(("a", "b"))
    ['a', 'b']
    """
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(value, method):
            return list(getattr(value, method)())
    return list(value)


def _plain(value: Any) -> Any:
    """Return a constant as JSON has it: the check takes more kinds of numbers and mappings than that."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    # Also Decimal, and the scalars of libraries.
    return float(value) if isinstance(value, (Real, Decimal)) and not isinstance(value, bool) else value
