"""Accept what runs functions in other processes: an executor, or a client of Dask."""

from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from speechframe.errors import SettingsError

_COUNT_NAMES = ("num_workers", "_max_workers")
"""Attributes with the number of workers: of mpi4py, and of the pools of Python and loky."""


def open_executor(given: Any, workers: int | None = None) -> tuple[Executor, int]:
    """Return an executor, and the number of its workers.

    Parameters
    ----------
    given
        A ``concurrent.futures.Executor``, any object with its method ``submit``, or a client of Dask.
    workers
        Number of workers. None (default) reads the number from `given`.

    Raises
    ------
    SettingsError
        If `given` runs no functions, or if its number of workers is unknown or 0.
    """
    executor, count = given, workers
    if hasattr(given, "get_executor") and hasattr(given, "scheduler_info"):
        # With `pure`, Dask would take two equal tasks for one task.
        executor = given.get_executor(pure=False)
        count = workers or len(given.scheduler_info(n_workers=-1)["workers"])
    elif not hasattr(given, "submit"):
        raise SettingsError(
            f"executor={type(given).__name__} runs no functions: use a concurrent.futures.Executor or a "
            "client of Dask"
        )
    elif count is None:
        found = (getattr(given, name, None) for name in _COUNT_NAMES)
        count = next((each for each in found if isinstance(each, int)), None)
    if not count:
        fault = "has no workers yet" if count == 0 else "does not show its number of workers"
        raise SettingsError(f"{type(given).__name__} {fault}: start workers, or set executor_workers=")
    return executor, count


def connect_executor(address: str | None) -> AbstractContextManager[Any]:
    """Return a client of the Dask scheduler at an address such as ``tcp://scheduler:8786``.

    The client closes at the end of its context. Without an address, return a context of None.

    Raises
    ------
    SettingsError
        If Dask is not installed, or if no scheduler answers at the address.
    """
    if address is None:
        return nullcontext()
    try:
        client: AbstractContextManager[Any] = import_module("distributed").Client(address)
    except ModuleNotFoundError:
        raise SettingsError(f"the executor {address} needs Dask: pip install 'speechframe[dask]'") from None
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"no Dask scheduler answers at {address} ({error}): give an address such as tcp://scheduler:8786"
        ) from error
    return client
