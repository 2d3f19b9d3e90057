"""What scripted services of tests have in common: a real port, and a loop and thread of their own."""

import asyncio
import threading
import time

from aiohttp import web


class Served:
    """A service that a test starts, stops and waits for; it has a ``port``, 0 for a free one."""

    def routes(self):
        """Method, path and handler of each endpoint."""
        raise NotImplementedError

    def up(self):
        """Listen; after `down`, on the same port."""
        self._thread = LoopThread(self._start)

    def down(self):
        """Refuse connections, and drop those that are open."""
        self._thread.stop()

    def until(self, condition, limit_s=60.0):
        """Wait until `condition` of this service holds."""
        end = time.monotonic() + limit_s
        while not condition(self):
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.005)

    async def _start(self):
        app = web.Application(client_max_size=1 << 26)
        for method, path, handler in self.routes():
            app.router.add_route(method, path, handler)
        # A client that goes away does not stop the work: it is billed, as by a service that is far away.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        self.port = runner.addresses[0][1]
        return runner


class LoopThread:
    """A service's own loop in its own thread: it answers whatever the client's loop is doing.

    `start` is awaited there and returns the runner of what listens.
    """

    def __init__(self, start):
        self._start = start
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()
