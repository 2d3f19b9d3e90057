"""Import libraries of the extra ``listening``, each at its first use, because an extra may be missing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from speechframe.errors import AnalysisError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL_COMMAND = "pip install 'speechframe[listening]'"
"""The command that installs the extra."""


def import_library(module: str) -> Any:
    """Return a module of the extra ``listening``.

    Raises
    ------
    AnalysisError
        If the module is not installed. The message contains the command that installs the extra.

    Examples
    --------
    >>> round(float(import_library("scipy.special").stdtr(9, 2.262)), 3)
    0.975
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise AnalysisError(f"{package} is not installed: {INSTALL_COMMAND}") from None


def provide_axes(ax: "Axes | None", width_inches: float, height_inches: float) -> "Axes":
    """Return `ax`, or the axes of a new figure. pyplot does not keep or show the new figure."""
    if ax is not None:
        return ax
    figure = import_library("matplotlib.figure").Figure(
        figsize=(width_inches, height_inches), layout="constrained"
    )
    made: Axes = figure.subplots()
    return made
