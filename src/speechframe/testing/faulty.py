"""The child process of a FaultyService: ``python -m speechframe.testing.faulty``.

The child reads its settings as JSON from the first line of its standard input. It writes the addresses of its
regions, or an error, as one line of JSON to its standard output. It ends when its standard input ends, for
example because the parent process died.
"""

import asyncio
import contextlib
import functools
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from speechframe.errors import SpeechframeError
from speechframe.testing.handler import RequestHandler
from speechframe.testing.knobs import Knobs

HOST = "127.0.0.1"

_MAX_WAITING_CONNECTIONS = 1024
"""Number of connections that may wait to be accepted in each region, enough for a burst of a large test."""
_CHUNK_BYTES = 4096
"""Number of bytes read at a time from standard input, whose content after the first line is ignored."""


def main() -> int:
    """Run the service until standard input ends. Return 1 if the service cannot start, else 0."""
    start_message = json.loads(sys.stdin.buffer.readline())
    try:
        asyncio.run(
            _serve(
                Knobs.from_values(start_message["knobs"]), Path(start_message["data"]), start_message["ports"]
            )
        )
    except (OSError, SpeechframeError) as error:
        _write_line({"error": str(error)})
        return 1
    return 0


async def _serve(knobs: Knobs, data: Path, ports: dict[str, int]) -> None:
    loop = asyncio.get_running_loop()
    handler = RequestHandler(knobs, data)
    with contextlib.ExitStack() as servers:
        urls = {}
        for region in knobs.regions:
            server = await loop.create_server(
                functools.partial(handler.make_connection, region),
                HOST,
                ports.get(region, 0),
                backlog=_MAX_WAITING_CONNECTIONS,
            )
            # Do not wait until the server is closed, because clients may keep their connections open.
            servers.callback(server.close)
            urls[region] = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        handler.open(urls)
        # Exclude all objects that exist now from garbage collection, so that its pauses are shorter.
        gc.freeze()
        _write_line({"urls": urls, "pid": os.getpid()})
        await _wait_for_end_of_input()


async def _wait_for_end_of_input() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    source = sys.stdin.fileno()

    def read() -> None:
        if not os.read(source, _CHUNK_BYTES):
            ended.set()

    loop.add_reader(source, read)
    await ended.wait()
    loop.remove_reader(source)


def _write_line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
