"""Make or continue a run, in this process or with the workers of the option ``executor``."""

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from speechframe.batch.backend import Backend
from speechframe.batch.live import Run
from speechframe.batch.options import Options
from speechframe.batch.plan import ExecutorWorkers
from speechframe.batch.prepare import Prepared, prepare_run, reopen_run
from speechframe.batch.run import EarlierRun, make_calls
from speechframe.errors import SettingsError
from speechframe.processes.executors import count_cores, is_connected, open_executor
from speechframe.scale.driver import Driver, has_own_services


async def make_run(
    backend: Backend, table: Any, arguments: Mapping[str, Any], given: Mapping[str, Any]
) -> Run:
    """Plan the calls for a table, make the missing calls, and return the run.

    Every verb (a public function such as `generate`) calls this function. `backend` must not be open yet.
    `arguments` are the arguments of the rows: constants, columns, or lists with one value for each row.
    `given` contains run options.
    """
    options = Options.from_given(**given)
    prepare = partial(prepare_run, table, {**arguments, "take": options.take})
    return await make_calls(backend, options, prepare, await _find_workers(backend, options))


async def continue_run(
    earlier: EarlierRun, backend: Backend, table: Any, redo: str | Sequence[Any] | None
) -> Run:
    """Make the missing calls of a run, for a new `table`, or for the run's own table if `table` is None.

    `redo` selects rows of the run's own table that get another take (another rendering of the same content).
    `backend` must not be open yet.
    """
    prepare: Callable[..., Prepared] = partial(reopen_run, earlier.folder, redo)
    if table is not None:
        prepare = partial(prepare_run, table, earlier.sources, is_resumed=True)
    options = earlier.options
    return await make_calls(backend, options, prepare, await _find_workers(backend, options))


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
    maker: type[Backend] | bytes = type(backend)
    if not hasattr(type(backend), "from_constants"):
        try:
            maker = pickle.dumps(backend)
        except Exception as error:  # the user's class can raise any error here
            raise SettingsError(
                f"executor= needs a backend that can be pickled, and {type(backend).__name__} cannot "
                f"({type(error).__name__}: {error}): open files and connections in open()"
            ) from error
    make_driver = partial(Driver, executor=executor, is_connected=connected, workers=count, maker=maker)
    return ExecutorWorkers(count, cores, has_own_services, make_driver)
