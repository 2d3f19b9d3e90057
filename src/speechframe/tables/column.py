"""A column of a table, by name. This module does not import Arrow, so that help pages open fast."""

from dataclasses import dataclass


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
