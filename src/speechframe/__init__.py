"""DataFrames in, speech datasets out.

>>> import speechframe as spf
>>> run = spf.generate(["Good morning."], voice="en-US-nora")  # doctest: +SKIP
>>> run.to_pandas()  # doctest: +SKIP

Public names are loaded when they are first used (PEP 562), so that importing
the package costs next to nothing. ``__init__.pyi`` lists these names.
"""

import logging

from speechframe.batch import notebook as _notebook

# A library must not print its log. Only the user's program chooses a handler.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def _read_names() -> dict[str, str]:
    """Return the module of each public name, as listed in ``__init__.pyi``.

    Each line there has the form ``from speechframe.api import say as say``.
    """
    lines = __loader__.get_data(f"{__path__[0]}/__init__.pyi").decode().splitlines()
    parts = (line.split() for line in lines if line.startswith("from "))
    return {name: module for _, module, _, name, _, _ in parts}


_MODULES = _read_names()
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    import importlib

    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module == __name__:
        found = importlib.import_module(f"{module}.{name}")
    else:
        found = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def _load_dashboard() -> _notebook.ShowDashboard:
    """Import the dashboard of a run, and return the function that shows it."""
    from speechframe.widgets.dashboard import show_dashboard

    return show_dashboard


# `batch` must not import `widgets`, so give `batch` the function here.
_notebook.load_dashboard = _load_dashboard


def __dir__() -> list[str]:
    return sorted(__all__)
