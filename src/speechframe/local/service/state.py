"""The objects that all handlers share. They are opened when the service starts, and closed when it stops."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from aiohttp import web

from speechframe.engines import registry
from speechframe.engines.faults import warn_once
from speechframe.errors import SettingsError
from speechframe.local.engines.translation.routes import Routes
from speechframe.local.service.books import idempotency, keys, shelf
from speechframe.local.service.books.database import FILE_NAME, Database
from speechframe.local.service.books.keys import KeyRing
from speechframe.local.service.books.owners import Owner
from speechframe.local.service.config import MEBIBYTE, KeySpec, ServiceConfig, remove_duplicate_keys
from speechframe.local.service.dubbing.languages import Languages
from speechframe.local.service.dubbing.queue import DubQueue
from speechframe.local.service.dubbing.webhooks import Webhooks
from speechframe.local.service.http.guard import Guard
from speechframe.local.service.http.progress import InterimAnswers
from speechframe.local.service.http.readers import Readers
from speechframe.local.service.http.slots import RequestSlots
from speechframe.local.service.http.threads import FairThreads
from speechframe.local.service.http.uploads import Uploads
from speechframe.local.service.speech.catalogue import Catalogues
from speechframe.local.service.speech.live import OpenSockets
from speechframe.local.service.workers.pools import Pools
from speechframe.spec import chosen

log = logging.getLogger("speechframe.service")

_CLEAN_UP_INTERVAL_S = 60.0
"""Seconds between two clean-ups of the data folder."""
_LARGE_BODY_BYTES = 4096
"""Bytes above which a body counts as large. To parse so many takes about one turn of the event loop."""
_LOOP_TURNS_PER_LARGE_BODY = 8
"""Turns of the event loop before each large body. A short request needs about 8 turns from start to end."""


@dataclass
class State:
    """The objects that handlers use.

    Parameters
    ----------
    config
        The configuration of this process.
    specs
        The accepted keys: those of `config`, or the key in the data folder.
    database
        The SQLite file with balances, dubbing jobs and webhooks.
    ring, dub_ring
        Find the key that a caller sent, for speech calls and for dubbing calls. One key has separate balances
        for both.
    owner
        The lock file by which other processes see that this process is alive.
    shelf, uploads
        The folder of audio behind ``audioFile`` links, and the folder of files that running requests need.
    slots
        Requests in flight, by key.
    pools
        The worker processes and their queues.
    progress
        Sends interim answers (status 102) to long calls.
    live
        Open WebSockets, by key.
    readers
        Disconnects clients that read their answers too slowly.
    catalogues
        The voices, by model.
    languages
        The locales that can be dubbed from and into.
    dubs
        The queue of dubbing jobs, and their folders.
    routes
        The pairs of languages that the installed translators can translate.
    guard
        Checks addresses that callers name.
    threads
        Threads of each key, for work that blocks.
    stopping
        True once the service begins to stop. New requests then get 503.
    """

    config: ServiceConfig
    specs: tuple[KeySpec, ...]
    database: Database
    ring: KeyRing
    dub_ring: KeyRing
    owner: Owner
    shelf: shelf.Shelf
    uploads: Uploads
    slots: RequestSlots
    pools: Pools
    progress: InterimAnswers
    live: OpenSockets
    readers: Readers
    catalogues: Catalogues
    routes: Routes
    languages: Languages
    dubs: DubQueue
    guard: Guard
    threads: FairThreads
    stopping: bool = field(default=False)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def wait_for_turn(self, size: int) -> None:
        """Let other work of the event loop run before the caller parses a piece of `size` bytes.

        Large pieces take turns. Otherwise twenty large bodies that arrive together would block the event loop
        without a pause, for milliseconds each.
        """
        await asyncio.sleep(0)
        if size > _LARGE_BODY_BYTES:
            async with self._reading:
                for _ in range(_LOOP_TURNS_PER_LARGE_BODY):
                    await asyncio.sleep(0)

    async def wait_until_idle(self) -> None:
        """Wait until no request holds a slot and no WebSocket is open."""
        await self.slots.idle.wait()
        await self.live.idle.wait()


STATE: web.AppKey[State] = web.AppKey("state", State)
"""Key under which the aiohttp application contains the state."""


@contextlib.asynccontextmanager
async def open_state(config: ServiceConfig) -> AsyncIterator[State]:
    """Open the data folder and start the workers. Close everything at the end of the block.

    Raises
    ------
    SettingsError
        The folder cannot be used, a key is invalid, a chosen engine does not work, or no worker starts.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = Owner(config.data)
            stack.callback(owner.close)
            folder = shelf.Shelf(config.data, config.shelf_mb * MEBIBYTE)
            uploads = Uploads(config.data, owner.name)
            stack.callback(uploads.close)
        except OSError as error:
            raise SettingsError(
                f"the data folder {config.data} cannot be used: {error.strerror or error}. Give another one "
                "(--data, SPEECHFRAME_SERVICE)."
            ) from None
        specs = remove_duplicate_keys(config.keys or (keys.load_own_key(config.data),))
        database = Database(config.data / FILE_NAME)
        stack.callback(database.close)
        salt = await database.run(keys.load_salt)
        ring, dub_ring = (
            KeyRing(salt, specs),
            KeyRing(salt, _choose_dub_specs(config, specs), balance="dubbing"),
        )
        for each in (ring, dub_ring):
            await database.run(functools.partial(keys.record_keys, ring=each))
        await database.run(owner.register)
        stack.push_async_callback(database.run, owner.unregister)
        webhooks = Webhooks(config, database)
        dubs = DubQueue(config, database, owner.name, webhooks)
        tidy = functools.partial(_clean_up, database, owner, folder, uploads, dubs)
        await tidy()
        pools = Pools(config)
        stack.push_async_callback(pools.close)
        await pools.start()
        for message in pools.fast.left_out:
            warn_once(message)
        _check_engines(config, pools)
        catalogues = Catalogues.load(pools.engines)
        pools.fast_engines = catalogues.fast_engines
        working = pools.installed.get("translator", {})
        translators = {
            name: engine for name, engine in registry.load_translators().items() if name in working
        }
        routes = await asyncio.to_thread(Routes, translators)
        recognisers = pools.installed.get("recogniser", ())
        languages = await asyncio.to_thread(Languages.load, routes, recognisers, pools.engines)
        tidying = asyncio.create_task(_repeat_clean_up(tidy))
        stack.callback(tidying.cancel)
        progress = InterimAnswers(config.progress_s)
        for work in (webhooks.run(), dubs.run(), progress.run()):
            stack.push_async_callback(_cancel_task, asyncio.create_task(work))
        slots = RequestSlots(config.region)
        readers = Readers(config.slow_reader_s, config.unread_bytes)
        watching = asyncio.create_task(readers.watch())
        stack.callback(watching.cancel)
        yield State(
            config,
            specs,
            database,
            ring,
            dub_ring,
            owner,
            folder,
            uploads,
            slots,
            pools,
            progress,
            OpenSockets(),
            readers,
            catalogues,
            routes,
            languages,
            dubs,
            Guard(allow_private=config.allow_private_urls),
            FairThreads(chosen.THREADS_PER_KEY),
        )


def _choose_dub_specs(config: ServiceConfig, specs: tuple[KeySpec, ...]) -> tuple[KeySpec, ...]:
    if config.dub_keys:
        return remove_duplicate_keys(config.dub_keys)
    return tuple(replace(spec, quota_characters=chosen.DEFAULT_DUB_CREDITS) for spec in specs)


def _check_engines(config: ServiceConfig, pools: Pools) -> None:
    for kind, name in (("changer", config.changer), ("recogniser", config.recogniser)):
        working = pools.installed.get(kind, {})
        if name is not None and name not in working:
            broken = pools.fast.broken.get(f"{kind} {name}")
            why = f"it cannot be used ({broken})" if broken else f"there is no {kind} of this name"
            raise SettingsError(f"--{kind} {name}: {why}; usable here: {', '.join(working) or 'none'}")


async def _cancel_task(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _repeat_clean_up(tidy: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(_CLEAN_UP_INTERVAL_S)
        await tidy()


async def _clean_up(
    database: Database, owner: Owner, folder: shelf.Shelf, uploads: Uploads, dubs: DubQueue
) -> None:
    """Clean up the data folder, part by part. A part that fails is logged, and the next part still runs."""

    async def remove_dead_uploads() -> None:
        await asyncio.to_thread(uploads.remove_dead_folders, owner.remove_lock_if_dead)

    async def release_dead_owners() -> None:
        if dead := await database.run(owner.release_dead_owners):
            log.info("released the reservations of %d service process(es) that ended abruptly", dead)

    async def remove_expired_audio() -> None:
        old_files = await asyncio.to_thread(folder.list_old_files)
        removed = await database.run(lambda c: folder.remove_expired(c, old_files))
        await asyncio.to_thread(folder.remove, removed)

    for part in (
        remove_dead_uploads,
        release_dead_owners,
        lambda: database.run(idempotency.remove_old),
        remove_expired_audio,
        dubs.clean_up,
    ):
        try:
            await part()
        except Exception:
            log.exception("the data folder cannot be tidied; the service tries again in a minute")
