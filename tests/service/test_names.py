"""Host names that never resolve cost only the key that gave them. Real threads hang in a real service process."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import threading
from types import SimpleNamespace

import pytest
from convert_lab import CLIP, OURS, convert

from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.http.fetch import fetch_file
from speechframe.local.service.http.guard import Guard
from speechframe.local.service.http.threads import FairThreads
from speechframe.spec import chosen

# Python imports this module at its start if the folder is on its path: what it adds behaves as a name server that
# does not answer. It works where nobody may change the system's resolver.
HANGING = """
import os, socket, time

known = socket.getaddrinfo


def getaddrinfo(host, *arguments, **options):
    while str(host).endswith(".hangs.example") and not os.path.exists(os.path.join({folder!r}, "go")):
        open(os.path.join({folder!r}, f"asked-{{host}}"), "w").close()
        time.sleep(0.05)
    return known(host, *arguments, **options)


socket.getaddrinfo = getaddrinfo
"""


@pytest.fixture
def hanging(engines, tmp_path):
    """Give a PYTHONPATH under which names of hangs.example resolve only once the test is over.

    Each name that was asked for leaves a file ``asked-<name>`` in `tmp_path`.
    """
    go = tmp_path / "go"
    (tmp_path / "sitecustomize.py").write_text(HANGING.format(folder=str(tmp_path)), encoding="utf-8")
    yield os.pathsep.join([str(tmp_path), engines])
    go.touch()


@pytest.mark.fresh  # a new interpreter: it imports sitecustomize
async def test_names_that_hang_hold_up_nobody_else_and_not_the_end_of_the_service(
    start_with, hanging, http_to, tmp_path, tools
):
    options = [*OURS, "--grace-s", "0.5", "--body-timeout-s", "300"]
    keys = ["stuck", "other"]
    with start_with(hanging, keys=keys, workers=1, options=options, allow_private_urls=True) as running:
        stuck, other = http_to(running, "stuck"), http_to(running, "other")
        urls = [f"http://n{number}.hangs.example/a.wav" for number in range(15)]
        calls = [asyncio.create_task(convert(stuck, None, file_url=url)) for url in urls]
        try:
            await tools.until(lambda: len(list(tmp_path.glob("asked-*"))) == chosen.LOOKUPS_PER_KEY)
            # The names hang until the test is over: whoever waits for their threads gets no answer.
            assert (await convert(other, CLIP)).status == 200
        finally:
            os.kill(running.pid, signal.SIGTERM)
            for call in calls:
                call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*calls, return_exceptions=True)
        await tools.until(lambda: not tools.alive(running.pid))


async def test_a_name_that_hangs_is_refused_in_time_and_the_next_waits_for_its_own_key(tmp_path, monkeypatch):
    go, known = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host, *arguments, **options):
        while str(host).endswith(".hangs.example") and not go.wait(0.05):
            pass
        return known("127.0.0.1" if "example" in str(host) else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    guard, threads = Guard(allow_private=True, lookup_s=0.5), FairThreads(1)

    async def refused(name, key):
        path = tmp_path / secrets.token_hex(8)
        parts = SimpleNamespace(config=ServiceConfig(data=tmp_path), guard=guard, threads=threads)
        with pytest.raises(Refusal) as caught:
            await fetch_file(f"http://{name}:1/a.wav", parts, key, path)
        return caught.value.code.status, caught.value.message

    try:
        names = [f"n{number}.hangs.example" for number in range(chosen.LOOKUPS_PER_KEY)]
        for status, message in await asyncio.gather(*[refused(name, b"stuck") for name in names]):
            assert (status, "its host was not found within" in message) == (400, True)
        # Their threads hang still.
        status, message = await refused("good.example", b"stuck")
        assert (status, f"{chosen.LOOKUPS_PER_KEY} host names of this key" in message) == (503, True)
        assert await refused("good.example", b"other") == (
            400,
            "file_url cannot be fetched: the connection to its host failed",
        )
    finally:
        go.set()
    # As soon as they end, the key goes on.
    assert (await refused("good.example", b"stuck"))[0] == 400
