"""An executor over processes that share no state folder, as machines do. A machine can be lost for ever."""

import os
import shutil
import signal
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context


def begin(state):
    os.environ["XDG_STATE_HOME"] = state
    os.environ["TMPDIR"] = state


class Machine:
    """One process with a state folder of its own."""

    def __init__(self, state):
        state.mkdir()
        self.state = state
        self.pool = ProcessPoolExecutor(
            1, mp_context=get_context("forkserver"), initializer=begin, initargs=(str(state),)
        )
        self.pid = self.pool.submit(os.getpid).result()

    def count_unread_answers(self):
        """Return the number of answers that no other machine can see yet."""
        journals = self.state.glob("speechframe/remote/*/log/*.jsonl")
        return sum(journal.read_bytes().count(b'"ended"') for journal in journals)

    def kill(self, *, with_disk):
        os.kill(self.pid, signal.SIGKILL)
        if with_disk:
            shutil.rmtree(self.state)


class Machines(Executor):
    """Hands functions out to machines that live; the function of a lost one fails."""

    def __init__(self, folder, count):
        self.machines = [Machine(folder / f"machine-{number}") for number in range(count)]
        self.num_workers = count
        self._free, self._changed = list(self.machines), threading.Condition()

    def submit(self, function, *args):
        outcome = Future()
        threading.Thread(target=self._run, args=(outcome, function, args), daemon=True).start()
        return outcome

    def _run(self, outcome, function, args):
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            machine = self._free.pop(0)
        try:
            outcome.set_result(machine.pool.submit(function, *args).result())
        except BrokenProcessPool:
            outcome.set_exception(OSError("the machine is lost"))
            return
        except BaseException as error:  # noqa: BLE001 - the driver gets it
            outcome.set_exception(error)
        with self._changed:
            self._free.append(machine)
            self._changed.notify()

    def shutdown(self, wait=True, *, cancel_futures=False):
        for machine in self.machines:
            machine.pool.shutdown(wait=wait, cancel_futures=cancel_futures)
