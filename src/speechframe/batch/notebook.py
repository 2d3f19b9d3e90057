"""The dashboard that a run shows in a notebook."""

import logging
import sys
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

ShowDashboard = Callable[..., None]
"""Function that shows the dashboard of a run. The run is its argument."""

load_dashboard: Callable[[], ShowDashboard] | None = None
"""Function that returns the function to show a dashboard, or raises ImportError if a package is missing.

The module of widgets sets this function. It imports runs, so this module must not import it.
"""


def find_dashboard(progress: bool | str) -> ShowDashboard | None:  # noqa: FBT001 - the run option as it was given
    """Return the function that shows a run's dashboard in a notebook.

    Return None if `progress` is not ``"dashboard"``, if this is not a notebook, or if a package is missing.
    """
    if progress != "dashboard" or load_dashboard is None or not is_notebook():
        return None
    try:
        return load_dashboard()
    except ImportError as error:
        log.info("a bar is shown instead of the dashboard, because a package is missing: %s", error)
        return None


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return find_cell() is not None


def find_cell() -> int | None:
    """Return the number of the running cell of a notebook, or None if this is not a notebook."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return None if getattr(shell, "kernel", None) is None else int(shell.execution_count)
