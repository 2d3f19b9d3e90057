"""What the scripted services of these tests have in common: a real port, and a loop and thread of their own."""

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
        self._thread = _Thread(self)

    def down(self):
        """Refuse connections, and drop those that are open."""
        self._thread.stop()

    def until(self, condition, limit_s=60.0):
        """Wait until `condition` of this service holds."""
        end = time.monotonic() + limit_s
        while not condition(self):
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.005)


class _Thread:
    """The service's own loop in its own thread: it answers whatever the client's loop is doing."""

    def __init__(self, server):
        self.server = server
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.ready.wait(60)

    def stop(self):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        runner = self.loop.run_until_complete(self._start())
        self.ready.set()
        self.loop.run_forever()
        self.loop.run_until_complete(runner.cleanup())
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()

    async def _start(self):
        app = web.Application(client_max_size=1 << 26)
        for method, path, handler in self.server.routes():
            app.router.add_route(method, path, handler)
        # A client that goes away does not stop the work: it is billed, as by a service that is far away.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.server.port).start()
        self.server.port = runner.addresses[0][1]
        return runner
