"""The bridge between synchronous callers and asynchronous code."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from speechframe.processes.loop import get_background_loop, make_sync, run_sync


async def double(number: int) -> int:
    """Return twice the number."""
    await asyncio.sleep(0)
    return 2 * number


def test_result_and_error():
    assert run_sync(double(4)) == 8

    async def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_sync(fail())


def test_an_error_that_looks_like_our_own_wait():
    async def late():
        raise TimeoutError("theirs")

    with pytest.raises(TimeoutError, match="theirs"):
        run_sync(late())


async def test_works_inside_a_running_loop():
    assert run_sync(double(5)) == 10


def test_twin_keeps_name_signature_and_docstring():
    twin = make_sync(double)
    assert twin(3) == 6
    assert (twin.__name__, twin.__doc__, str(inspect.signature(twin))) == (
        "double", "Return twice the number.", "(number: int) -> int",
    )  # fmt: skip
    assert not inspect.iscoroutinefunction(twin)


def test_a_call_from_the_loop_itself_is_refused_instead_of_waiting_for_ever():
    async def inner():
        return run_sync(double(1))

    with pytest.raises(RuntimeError, match="Await the async version"):
        run_sync(inner())


def test_a_forked_child_gets_a_loop_of_its_own():
    run_sync(double(1))
    parent = get_background_loop()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ok = b"y" if run_sync(double(2)) == 4 and get_background_loop() is not parent else b"n"
        os.write(write, ok)
        os._exit(0)
    os.close(write)
    assert os.read(read, 1) == b"y"
    os.waitpid(child, 0)
    os.close(read)


@pytest.mark.parametrize(("answers", "expected"), [(True, "kept 1"), (False, "KeyboardInterrupt cleaned")])
def test_ctrl_c_waits_for_the_finish(answers, expected):
    code = textwrap.dedent(f"""
        import asyncio
        from speechframe.processes.loop import INTERRUPT_MESSAGE, run_sync
        state = []
        async def work():
            print("started", flush=True)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as order:
                assert order.args == (INTERRUPT_MESSAGE,)
                await asyncio.sleep(0.3)
                state.append("cleaned")
                if {answers}:
                    return "kept 1"
                raise
        try:
            print(run_sync(work()))
        except KeyboardInterrupt:
            print("KeyboardInterrupt", *state)
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().strip() == expected
