"""A column of a table, by name. This module loads no Arrow, so that help pages are fast."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of the table, by name. Create it with :func:`col`."""

    name: str


def col(name: str) -> Column:
    """Take an option's value from the column `name`, row by row.

    Parameters
    ----------
    name
        A column of the verb's table.

    Examples
    --------
    >>> col("voice")
    Column(name='voice')
    """
    return Column(name)
