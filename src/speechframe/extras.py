"""Import libraries of the extra ``listening``, each at its first use, because an extra may be missing."""

import sys
import warnings
from functools import partial
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any

from speechframe.errors import AnalysisError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL_COMMAND = "pip install 'speechframe[listening]'"
"""The command that installs the extra."""
_PICTURE_DPI = 110
"""Resolution of figures in notebooks, in dots per inch."""


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
    """Return `ax`, or the axes of a new figure. pyplot does not keep the new figure. Notebooks show it."""
    if ax is not None:
        shown: Any = get_figure(ax)
        shown._ipython_display_ = partial(_take_from_pyplot, shown)
        return ax
    figure = import_library("matplotlib.figure").Figure(
        figsize=(width_inches, height_inches), layout="constrained"
    )
    # Notebooks show figures only after an import of pyplot, unless the figure has this method.
    figure._repr_png_ = partial(_render_png, figure)
    made: Axes = figure.subplots()
    return made


def _take_from_pyplot(figure: Any) -> None:
    """Remove a figure that is about to be shown from pyplot, which would show it again after the cell."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and "inline" in pyplot.get_backend():
        pyplot.close(figure)
    raise NotImplementedError  # IPython then shows the figure as usual


def _render_png(figure: Any) -> bytes:
    file = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format="png", dpi=_PICTURE_DPI)
    return file.getvalue()


def get_figure(ax: "Axes") -> "Figure":
    """Return the figure of some axes, also if the axes are in a part of the figure."""
    figure: Any = ax.figure
    while figure.figure is not figure:
        figure = figure.figure
    made: Figure = figure
    return made


def set_date_axis(ax: "Axes") -> None:
    """Label the horizontal axis with as many dates as can be read, whether it covers hours or years."""
    dates = import_library("matplotlib.dates")
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
