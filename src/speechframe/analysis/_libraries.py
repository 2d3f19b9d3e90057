"""Libraries that a core install does not have, imported when they are used."""

from importlib import import_module
from typing import Any

from speechframe.errors import AnalysisError

INSTALL = "pip install 'speechframe[listening]'"


def needed(module: str) -> Any:
    """Return a module of the extra ``listening``.

    Raises
    ------
    AnalysisError
        It is not installed; names the extra.

    Examples
    --------
    >>> round(float(needed("scipy.special").stdtr(9, 2.262)), 3)
    0.975
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise AnalysisError(f"{package} is needed for the statistics of votes: {INSTALL}") from None
