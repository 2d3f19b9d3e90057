"""Two pools of worker processes: one for fast engines, one for all other work.

A formant engine (speech computed from rules) speaks a text in milliseconds, a neural engine in many seconds.
So fast calls have their own workers and their own queue. The workers of the slow pool start with its first
job.
"""

from collections.abc import Collection, Mapping

from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.workers.pool import WorkerPool

TRANSLATE, CHANGE_VOICE = "translate", "change_voice"
"""Kinds of work in :meth:`Pools.list_paces`, beside the names of the speech engines."""

_FORMANT_CHARACTERS_PER_S, _NEURAL_CHARACTERS_PER_S = 2000.0, 10.0
"""Usual characters per second of one worker with a formant engine, and with a neural one.

Clients use these figures for estimates, until they have measured calls of their own.
"""
_CHARACTERS_PER_S = {TRANSLATE: 300.0, CHANGE_VOICE: 30.0}
"""Usual characters per second of one worker for work other than speech."""


class Pools:
    """The two pools of worker processes.

    Parameters
    ----------
    config
        Sizes of the pools and limits of the workers.
    """

    def __init__(self, config: ServiceConfig) -> None:
        self.fast = WorkerPool(config.worker_count, config.waiting_limit, config.limits)
        self.slow = WorkerPool(config.worker_count, config.waiting_limit, config.limits)
        self.fast_engines: Collection[str] = ()
        """Names of the engines that have only formant voices. Set at the start, once the voices are known."""

    async def start(self) -> None:
        """Start the first worker of the fast pool. Raise SettingsError if it cannot be started."""
        await self.fast.start()

    async def close(self) -> None:
        """End all workers of both pools."""
        await self.fast.close()
        await self.slow.close()

    def get_pool(self, engine: str) -> WorkerPool:
        """Return the pool whose workers speak with this engine."""
        return self.fast if engine in self.fast_engines else self.slow

    @property
    def installed(self) -> Mapping[str, Mapping[str, str]]:
        """For each kind of engine, the versions of the engines that work, by name."""
        return self.fast.installed

    @property
    def engines(self) -> Mapping[str, str]:
        """Versions of the speech engines that work, by name."""
        return self.installed.get("speaker", {})

    @property
    def mean_s(self) -> float:
        """Average seconds of a job in the slower of the busy pools. The fast pool's if none is busy."""
        busy = [pool.mean_s for pool in (self.fast, self.slow) if pool.count_workers()["busy"]]
        return max(busy, default=self.fast.mean_s)

    def count_workers(self) -> dict[str, int]:
        """Return the numbers of workers and jobs in both pools for the health call."""
        slow = self.slow.count_workers()
        return {name: count + slow[name] for name, count in self.fast.count_workers().items()}

    def list_paces(self, key_cap: int) -> dict[str, dict[str, float]]:
        """Return for each kind of work how many calls to send at once, and the usual speed.

        Parameters
        ----------
        key_cap
            Largest number of calls that the key may have in flight.

        Returns
        -------
        dict
            For each speech engine, and for translation and voice change: ``calls_at_once``, and the usual
            ``characters_per_second`` (billed characters) of all workers together.
        """
        # A fast call waits longer for the network than for a worker, so all calls may be in flight.
        fast = {
            "calls_at_once": key_cap,
            "characters_per_second": self.fast.count * _FORMANT_CHARACTERS_PER_S,
        }
        at_once = min(key_cap, self.slow.count)
        return {
            work: fast
            if self.get_pool(work) is self.fast
            else {
                "calls_at_once": at_once,
                "characters_per_second": self.slow.count
                * _CHARACTERS_PER_S.get(work, _NEURAL_CHARACTERS_PER_S),
            }
            for work in (*self.engines, TRANSLATE, CHANGE_VOICE)
        }
