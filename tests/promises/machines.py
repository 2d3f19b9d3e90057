"""An executor over processes that share no state folder, as machines do. A machine can be lost for ever."""

import itertools
import os
import shutil
import signal
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context


def begin(environment, state, broken_after):
    os.environ |= environment | {"XDG_STATE_HOME": state}
    if broken_after is not None:
        from speechframe.store.remote import RemoteFolder

        real, count = RemoteFolder._call_filesystem, itertools.count()

        def break_down(folder, method, name, *args, **options):
            if method == "pipe_file" and next(count) >= broken_after:
                raise OSError("the store is full")
            return real(folder, method, name, *args, **options)

        RemoteFolder._call_filesystem = break_down


class Machine:
    """One process with a state folder of its own."""

    def __init__(self, state, broken_after):
        state.mkdir()
        self.state, self._broken_after = state, broken_after
        self.start()

    def start(self):
        self.pool = ProcessPoolExecutor(
            1,
            mp_context=get_context("forkserver"),
            initializer=begin,
            initargs=(dict(os.environ), str(self.state), self._broken_after),
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
    """Hands functions out to machines that live; the function of a lost one fails.

    A machine whose process died is `renewed` if wanted: it is another process on the same disk.
    """

    def __init__(self, folder, count, *, renewed=False, broken_after=None):
        self._renewed, self._given_up = renewed, {}
        self.machines = [Machine(folder / f"machine-{number}", broken_after) for number in range(count)]
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
        self._given_up[machine] = outcome
        try:
            result = machine.pool.submit(function, *args).result()
            if not outcome.done():
                outcome.set_result(result)
        except BrokenProcessPool:
            if not outcome.done():
                outcome.set_exception(OSError("the machine is lost"))
            if not self._renewed:
                return
            machine.start()
        except BaseException as error:  # noqa: BLE001 - the driver gets it
            if not outcome.done():
                outcome.set_exception(error)
        with self._changed:
            self._free.append(machine)
            self._changed.notify()

    def give_up(self, machine):
        """Take a machine for dead, although its function may go on."""
        self._given_up[machine].set_exception(OSError("the machine does not answer"))

    def shutdown(self, wait=True, *, cancel_futures=False):
        for machine in self.machines:
            machine.pool.shutdown(wait=wait, cancel_futures=cancel_futures)
