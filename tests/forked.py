"""Processes of the project forked from one that has imported everything: half a second of CPU less for each.

They are real processes with a pid, pipes, signals and an exit code of their own; only their imports are done.
Tests of the start itself are marked ``fresh`` and get new interpreters. Code for ``python -c`` gets a new one, too,
unless it is a `Program`.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from pathlib import Path

MODULES = ("speechframe", "speechframe.local.service", "speechframe.testing.faulty")
PRELOADED = (
    *("aiohttp.web", "pandas", "pyarrow.dataset", "pyarrow.parquet", "soundfile", "tqdm"),
    *(
        "speechframe.local.service.app",
        "speechframe.local.service.http.connection",
        "speechframe.local.service.serve",
    ),
    *(
        "speechframe.local.service.workers.main",
        "speechframe.local.engines.espeak.speaker",
        "speechframe.local.engines.world.changer",
    ),
    *("speechframe.aio", "speechframe.cli", "speechframe.testing.faulty"),
)
WORKERS = ("speechframe.local.service.workers.main", "speechframe.local.dubbing.job")
READ_AT_START = ("PYTHON", "LANG", "LC_", "MALLOC_")
"""Variables that an interpreter reads when it starts: where they differ, only a new one will do."""
FOLLOWED = ("PYTHONPATH", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
"""Those of them that `become` follows, or that make no difference once all is imported."""


def read_at_start(variables):
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(READ_AT_START) and name not in FOLLOWED
    }


class Program(str):
    """Code for ``python -c`` that may run in a fork: a program of a test that asks nothing about its start."""

    __slots__ = ()


def command_of(args):
    """Return module or code, arguments and whether ``-P`` was given, of a command that may be forked."""
    if isinstance(args, str | bytes | os.PathLike):
        return None
    match [os.fsdecode(word) for word in args]:
        case [sys.executable, "-c", Program() as code, *arguments]:
            return code, arguments, False
        case [sys.executable, "-m", module, *arguments] if module in MODULES:
            return module, arguments, False
        case [sys.executable, "-P", "-m", module, *arguments] if module in MODULES:
            return module, arguments, True
    return None


def standard(rest):
    """Return input, output and error output of a process from the last arguments of ``_execute_child``."""
    return [pipe if pipe != -1 else own for own, pipe in enumerate((rest[3], rest[6], rest[8]))]


class ForkedPopen(subprocess.Popen):
    """``subprocess.Popen`` that forks ``python -m speechframe...`` from the prepared process."""

    _ended = None
    """The pipe on which the exit status of a forked process comes."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        variables = os.environ if env is None else env
        match command_of(args):
            case (module, arguments, is_safe_path) if (
                prepared.is_wanted
                and not pass_fds
                and preexec_fn is None
                and read_at_start(variables) == read_at_start(os.environ)
            ):
                asked = {
                    "module": module,
                    "is_code": isinstance(module, Program),
                    "arguments": arguments,
                    "is_safe_path": is_safe_path,
                    "is_session": bool(rest[14]),
                    "cwd": str(Path(os.fsdecode(cwd or ".")).absolute()),
                    "env": {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()},
                }
            case _:
                super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
                return
        self._ended, ended = os.pipe()
        try:
            self.pid = prepared.fork(asked, [*standard(rest), ended])
        finally:
            os.close(ended)
        self._child_created = True
        self._close_pipe_fds(*rest[3:9])

    def _try_wait(self, wait_flags):
        if self._ended is None:
            return super()._try_wait(wait_flags)
        if wait_flags & os.WNOHANG and not select.select([self._ended], [], [], 0)[0]:
            return 0, 0
        status = os.read(self._ended, 16)
        os.close(self._ended)
        return self.pid, int(status or signal.SIGKILL)

    def _internal_poll(self, *args, **kwargs):
        if self._ended is None:
            return super()._internal_poll(*args, **kwargs)
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                pid, status = (0, 0) if self.returncode is not None else self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


class Prepared:
    """The process that has imported everything, started when it is first needed."""

    is_wanted = True

    def __init__(self):
        self._lock = threading.Lock()
        self._socket = None
        self._process = None

    def fork(self, asked, pipes):
        with self._lock:
            if self._socket is None:
                self._socket, theirs = socket.socketpair()
                with theirs:
                    command = [sys.executable, "-P", __file__, str(theirs.fileno())]
                    # Whoever looks at the processes of a test finds its settings in those it started alone.
                    clean = {k: v for k, v in os.environ.items() if not k.startswith("SPEECHFRAME_")}
                    self._process = subprocess.Popen(
                        command, pass_fds=[theirs.fileno()], start_new_session=True, env=clean
                    )
                    atexit.register(self.end)
            body = json.dumps(asked).encode()
            socket.send_fds(self._socket, [len(body).to_bytes(4)], pipes)
            self._socket.sendall(body)
            return int.from_bytes(received(self._socket, 4))

    def end(self):
        """End it, as it also ends when this process is killed: by the end of its socket."""
        self._socket.close()
        self._process.wait(10)


prepared = Prepared()
# A forked child, such as a worker of a pool, must not write into its parent's socket.
os.register_at_fork(after_in_child=lambda: setattr(prepared, "is_wanted", False))


def received(connection, size):
    data = b""
    while len(data) < size:
        if not (chunk := connection.recv(size - len(data))):
            raise EOFError
        data += chunk
    return data


def serve(connection):
    """Fork for as long as the test process lives; return what to run, in each process that was forked."""
    ended, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    ended.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = {}
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            ended.recv(4096)
            while waiting:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                os.write(waiting[pid], b"%d" % status)
                os.close(waiting.pop(pid))
        if connection in ready:
            head, pipes, _, _ = socket.recv_fds(connection, 4, 4)
            if not head:
                os._exit(0)
            asked = json.loads(received(connection, int.from_bytes(head)))
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (connection, ended, wakeup):
                    one.close()
                for pipe in (*waiting.values(), pipes[3]):
                    os.close(pipe)
                return asked, pipes[:3]
            connection.sendall(pid.to_bytes(4))
            waiting[pid] = pipes[3]
            for pipe in pipes[:3]:
                os.close(pipe)


def become(asked, pipes):
    """Make this process what a new interpreter with this command would be."""
    if asked["is_session"]:
        os.setsid()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    time.tzset()
    sys.path[:] = [folder for folder in sys.path if folder not in before]
    sys.path[:0] = [str(Path(p).absolute()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if not asked["is_safe_path"]:
        sys.path.insert(0, asked["cwd"])
    sys.argv = ["-c" if asked["is_code"] else asked["module"], *asked["arguments"]]
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, mode in (("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb")):
        was = getattr(sys, f"__{name}__")
        number = ("stdin", "stdout", "stderr").index(name)
        buffering = 0 if is_unbuffered and mode == "wb" else -1
        raw = open(number, mode, buffering, closefd=False)  # noqa: SIM115 - for good
        by_line = name == "stderr" or raw.isatty()
        how = {"line_buffering": by_line and not is_unbuffered, "write_through": is_unbuffered}
        opened = io.TextIOWrapper(raw, was.encoding, was.errors, **how)
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    if "PYTHONFAULTHANDLER" in os.environ:
        import faulthandler

        faulthandler.enable()
    sys.modules.pop(asked["module"], None)


class WorkerPopen(subprocess.Popen):
    """``subprocess.Popen`` of a forked service: its workers are forks, too."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        match args:
            case [sys.executable, "-P", "-m", module, *arguments] if module in WORKERS:
                self.pid = os.fork()
                if not self.pid:
                    asked = {"module": module, "arguments": arguments, "env": env, "cwd": "."}
                    work(
                        {**asked, "is_code": False, "is_safe_path": True, "is_session": False}, standard(rest)
                    )
                self._child_created = True
                self._close_pipe_fds(*rest[3:9])
            case _:
                super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)


def work(asked, pipes):
    """Be a worker and end here: what follows is the service's."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        pipes = [os.dup(pipe) for pipe in pipes]
        for open_one in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if open_one not in {0, 1, 2, *pipes}:
                with contextlib.suppress(OSError):
                    os.close(open_one)
        become(asked, pipes)
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - nothing may go on as a second service
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    asked, pipes = serve(socket.socket(fileno=int(sys.argv[1])))
    become(asked, pipes)
    subprocess.Popen = WorkerPopen
    if asked["is_code"]:
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(asked["module"], vars(sys.modules["__main__"]))
    else:
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
