"""Child processes that serve on this machine. They end with their ``with`` block, or when this process dies.

A child writes one line of JSON when it is ready, and runs while its standard input is open. So it ends when
this process dies, for any reason.
"""

import asyncio
import contextlib
import json
import logging
import os
import selectors
import subprocess
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from io import BytesIO
from types import TracebackType
from typing import IO, Any, Self

from speechframe.errors import SettingsError
from speechframe.settings.hidden import Hidden, copy_environment_without_keys, wrap_key

log = logging.getLogger("speechframe.local")

_MAX_START_S = 90.0
"""Longest wait in seconds for the first line of a child."""
_MAX_STOP_S = 15.0
"""Longest wait in seconds for the end of a child, before it is killed."""
_MAX_KILL_S = 5.0
"""Longest wait in seconds for the end of a child that was killed or has reported an error."""
_MAX_LOG_LINES = 40
"""Number of lines of a child's log that are kept for error messages."""
_READ_BYTES = 65_536
"""Largest number of bytes of the first line that are read at a time."""


class Running:
    """Base of services that start and stop with ``with`` or ``async with``."""

    @abstractmethod
    def start(self) -> Self:
        """Start the service and return when it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the service. A second call has no effect."""

    def give_up(self) -> None:
        """Make a :meth:`start` that runs in another thread end soon. By default this has no effect."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A running thread cannot be stopped. Wait for its end, then stop the process that it started.
            self.give_up()
            with contextlib.suppress(SettingsError):
                await starting
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


class Child:
    """One child process that runs a service, with the pipes to the process.

    `key_lines` are the lines with keys that the child reads from its standard input. `name` is the name of
    the service in error messages.
    """

    def __init__(
        self, command: Sequence[str], key_lines: Sequence[Hidden], name: str = "the local service"
    ) -> None:
        self._name = name
        self._last_lines: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self._process = subprocess.Popen(  # noqa: S603 - our own module, with our own options
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=copy_environment_without_keys(),
            # Ctrl-C in a notebook or terminal must reach this process only. The child ends with the block.
            start_new_session=True,
        )
        assert self._process.stdin is not None  # noqa: S101 - true, because the arguments request pipes
        assert self._process.stderr is not None  # noqa: S101 - same
        self._log_thread = threading.Thread(
            target=_read_log,
            args=(self._process.stderr, self._last_lines),
            name="speechframe-local-log",
            daemon=True,
        )
        self._log_thread.start()
        with contextlib.suppress(BrokenPipeError):
            # Send keys through the pipe, because every user of the machine can read arguments.
            self._process.stdin.write("".join(f"{key}\n" for key in key_lines).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def is_alive(self) -> bool:
        """True if the process still runs."""
        return self._process.poll() is None

    def read_announcement(self) -> dict[str, Any]:
        """Wait for the child's first line, and return its JSON object.

        Raise SettingsError, with the end of the child's log, if the child cannot start.
        """
        process = self._process
        assert process.stdout is not None  # noqa: S101 - true, because the arguments request a pipe
        try:
            message: dict[str, Any] = json.loads(read_first_line(process.stdout, _MAX_START_S))
            message["keys"] = tuple(map(wrap_key, message.get("keys", ())))
        except ValueError:
            code = process.poll()
            failure = (
                f"ended with exit code {code}"
                if code is not None
                else f"did not answer within {_MAX_START_S:.0f} s"
            )
            raise SettingsError(
                f"{self._name} {failure}: {' / '.join(self._last_lines) or 'it wrote nothing'}"
            ) from None
        if "error" in message:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_MAX_KILL_S)
            self._log_thread.join(_MAX_KILL_S)
            # The cause may be outside the service. Then the last line of the child's log usually contains it.
            hints = [line for line in self._last_lines if message["error"] not in line][-1:]
            raise SettingsError("; ".join((f"{self._name} cannot start: {message['error']}", *hints)))
        return message

    def terminate(self) -> None:
        """Send the process SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self.wait()

    def wait(self) -> None:
        """Wait until the process ends. Kill it if this takes too long. Then close the pipes."""
        try:
            self._process.wait(_MAX_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_MAX_KILL_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def let_go(self) -> None:
        """Close the pipe to the child's standard input, so that the child ends."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def _read_log(stream: IO[bytes], kept: deque[str]) -> None:
    # Read until the end, because a full pipe would block the child.
    with stream:
        for line in stream:
            text = line.decode(errors="replace").rstrip()
            kept.append(text)
            log.debug("%s", text)


def read_first_line(stream: IO[bytes], limit_s: float) -> bytes:
    """Return the first line of a stream, with its line end.

    If the stream ends or `limit_s` seconds pass before the line end, return the bytes read so far.
    """
    # The line contains keys. Collect it in a BytesIO, because tracebacks do not show the content of a
    # BytesIO.
    line, end = BytesIO(), time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not line.getvalue().endswith(b"\n"):
            if not selector.select(max(0.0, end - time.monotonic())):
                break
            if not line.write(os.read(stream.fileno(), _READ_BYTES)):
                break
    return line.getvalue()
