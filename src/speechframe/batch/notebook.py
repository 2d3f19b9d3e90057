"""The dashboard that a run shows in a notebook."""

import logging
import sys
from collections.abc import Callable

log = logging.getLogger(__name__)

Show = Callable[..., None]
"""Shows the dashboard of the run that it gets."""

load_dashboard: Callable[[], Show] | None = None
"""Returns the function that shows a dashboard, or raises ImportError if a package is missing.

The package sets this function, because widgets import runs and runs must not import widgets.
"""


def dashboard(progress: bool | str) -> Show | None:  # noqa: FBT001 - the run option as it was given
    """Return the function that shows a run's dashboard in a notebook.

    Return None if `progress` does not request the dashboard, outside a notebook, or if a package is missing.
    """
    if progress != "dashboard" or load_dashboard is None or not is_notebook():
        return None
    try:
        return load_dashboard()
    except ImportError as error:
        log.info("no dashboard but a bar is shown, for a package is missing: %s", error)
        return None


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None
