"""Numbers of any kind, as Python has them."""

import math
from contextlib import suppress
from decimal import Decimal
from numbers import Integral, Real
from typing import Any


def plain_number(value: Any) -> Any:
    """Return a number as an int or a float: a limit is often the sum of a column, of numpy or of Decimals.

    What is no number comes back as it is, and so does what is finite and beyond all floats: as infinity it
    would lift a limit.

    Examples
    --------
    >>> from fractions import Fraction
    >>> plain_number(Fraction(1, 2)), plain_number(Decimal("Infinity")), plain_number("7")
    (0.5, inf, '7')
    >>> plain_number(Decimal("1E+400"))
    Decimal('1E+400')
    """
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        return value
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan
    with suppress(OverflowError):
        number = int(value) if isinstance(value, Integral) else float(value)
        if math.isfinite(number) or not value < math.inf:
            return number
    return value
