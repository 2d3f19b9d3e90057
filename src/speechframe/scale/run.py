"""Make or continue a run, in this process or with the workers of the option ``executor``."""

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from speechframe.batch import run as batch
from speechframe.batch.backend import Backend, Opened
from speechframe.batch.live import Run
from speechframe.batch.options import Options
from speechframe.batch.run import EarlierRun
from speechframe.errors import SettingsError
from speechframe.processes.executors import count_cores, is_connected, open_executor
from speechframe.scale.driver import Driver, has_own_services


@dataclass(frozen=True)
class ExecutorWorkers:
    """The executor of a run, and the facts about its workers that an estimate and a driver need.

    `cores` is the number of cores of their machines, or None if unknown.
    """

    executor: Executor
    is_connected: Callable[[], bool]
    workers: int
    cores: int | None
    maker: type[Backend] | bytes  # the backend's class, or the pickled backend before it is opened

    def has_own_services(self, opened: Opened, options: Options) -> bool:
        """Return whether each worker starts a local service of its own."""
        return has_own_services(opened, options)

    def make_engine(self, *args: Any, **parts: Any) -> Driver:
        """Return a driver. The arguments are those of :class:`~speechframe.batch.engine.Engine`."""
        return Driver(
            *args,
            executor=self.executor,
            is_connected=self.is_connected,
            workers=self.workers,
            maker=self.maker,
            **parts,
        )


async def make_run(
    backend: Backend, table: Any, arguments: Mapping[str, Any], given: Mapping[str, Any]
) -> Run:
    """Make a run for a table. See :func:`speechframe.batch.run.make_run`."""
    workers = await _find_workers(backend, Options.from_given(**given))
    return await batch.make_run(backend, table, arguments, given, workers)


async def continue_run(
    earlier: EarlierRun, backend: Backend, table: Any, redo: str | Sequence[Any] | None
) -> Run:
    """Make the missing calls of a run. See :func:`speechframe.batch.run.continue_run`."""
    workers = await _find_workers(backend, earlier.options)
    return await batch.continue_run(earlier, backend, table, redo, workers)


async def _find_workers(backend: Backend, options: Options) -> ExecutorWorkers | None:
    """Return the workers of the option ``executor``, or None without the option.

    SettingsError is raised if workers cannot get the backend.
    """
    if options.executor is None and options.executor_workers is None:
        return None
    if options.executor is None:
        raise SettingsError("executor_workers= needs executor=: pass the executor, or leave both out")
    executor, count = await asyncio.to_thread(open_executor, options.executor, options.executor_workers)
    connected = partial(is_connected, options.executor)
    cores = await asyncio.to_thread(count_cores, options.executor)
    if hasattr(type(backend), "from_constants"):
        return ExecutorWorkers(executor, connected, count, cores, type(backend))
    try:
        return ExecutorWorkers(executor, connected, count, cores, pickle.dumps(backend))
    except Exception as error:  # the user's class can raise any error here
        raise SettingsError(
            f"executor= needs a backend that can be pickled, and {type(backend).__name__} cannot "
            f"({type(error).__name__}: {error}): open files and connections in open()"
        ) from error
