"""Text of whoever writes it, one that never goes on included."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from speechframe.client.session import iterate_pieces

STUCK = """
import asyncio, threading
from speechframe.client.session import iterate_pieces

def stuck():
    yield "a"
    threading.Event().wait()

async def read():
    pieces = iterate_pieces(stuck())
    print(await anext(pieces))
    async with asyncio.timeout(0.2):
        print(await anext(pieces))

try:
    asyncio.run(read())
except TimeoutError:
    print("over")
"""


async def collected(pieces):
    return [piece async for piece in iterate_pieces(pieces)]


async def test_a_generator_lives_in_one_thread_and_its_error_is_told():
    seen = set()

    def written():
        for _ in range(5):
            seen.add(threading.get_ident())
            yield "a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await collected(written())
    assert len(seen) == 1
    assert threading.get_ident() not in seen


async def test_as_many_as_are_stuck_keep_nobody_waiting_and_a_reader_that_leaves_leaves_no_thread():
    go_on = threading.Event()

    def stuck():
        go_on.wait()
        yield "late"

    readers = [asyncio.create_task(collected(stuck())) for _ in range(60)]
    async with asyncio.timeout(60):
        assert await collected(word for word in ("a", "b")) == ["a", "b"]
        # Nor what else is done in threads.
        await asyncio.to_thread(time.sleep, 0)
    readers[0].cancel()
    await asyncio.wait(readers[:1])
    go_on.set()
    assert await asyncio.gather(*readers[1:]) == [["late"]] * 59
    async for _ in iterate_pieces(one for one in "abc"):
        break
    for thread in threading.enumerate():
        if thread.name == "speechframe-pieces":
            await asyncio.to_thread(thread.join, 60)
            assert not thread.is_alive()


def test_a_program_ends_though_a_generator_is_stuck():
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["a", "over"]
