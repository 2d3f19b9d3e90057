"""Accept what runs functions in other processes: an executor, or a client of Dask."""

import os
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from speechframe.errors import SettingsError

_COUNT_NAMES = ("num_workers", "_max_workers")
"""Attributes with the number of workers: of mpi4py, and of the pools of Python and loky."""
CONNECT_TIMEOUT_S, CORES_TIMEOUT_S = 5.0, 2.0
"""Longest wait in seconds for a scheduler of Dask, and for the number of cores of its workers."""


def is_connected(given: Any) -> bool:
    """Return whether a client of Dask has a connection to its scheduler. True for other executors."""
    return not _is_dask_client(given) or given.status == "running"


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
    if _is_dask_client(given):
        if not is_connected(given):
            raise SettingsError(
                f"the client of Dask is {given.status}: make a new one with dask.distributed.Client(address)"
            )
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


def _is_dask_client(given: Any) -> bool:
    return hasattr(given, "get_executor") and hasattr(given, "scheduler_info")


def count_cores(given: Any) -> int | None:
    """Return the number of cores of all machines with workers of an executor, or None if unknown."""
    if not _is_dask_client(given):
        # A pool of Python or loky runs on this machine. Workers of other executors may run anywhere.
        return os.cpu_count() if hasattr(given, "_max_workers") else None
    machines = {
        urlsplit(address).hostname: address for address in given.scheduler_info(n_workers=-1)["workers"]
    }
    call, where = given._run, [*machines.values()]  # noqa: SLF001 - `client.run` has no timeout
    try:
        found = given.sync(call, os.cpu_count, workers=where, callback_timeout=CORES_TIMEOUT_S)
    except Exception:  # noqa: BLE001 - a worker may be gone, and the number only serves the estimate
        return None
    return sum(found.values()) or None


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
        client: AbstractContextManager[Any] = import_module("distributed").Client(
            address, timeout=CONNECT_TIMEOUT_S
        )
    except ModuleNotFoundError:
        raise SettingsError(f"the executor {address} needs Dask: pip install 'speechframe[dask]'") from None
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"no Dask scheduler answers at {address} ({error}): give an address such as tcp://scheduler:8786"
        ) from error
    return client
