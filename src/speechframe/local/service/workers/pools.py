"""Two pools of worker processes: one for fast engines, one for all other work.

A text takes a formant engine some milliseconds and a neural engine many seconds.
So fast calls have workers and a queue of their own. The workers for the other
work start with the first job that needs them.
"""

from collections.abc import Collection, Mapping

from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.workers.pool import WorkerPool

TRANSLATE, CHANGE_VOICE = "translate", "change_voice"
"""Names of the slow work beside speech. Work of a speech engine has the engine's name."""

_FORMANT_SPEED, _NEURAL_SPEED = 2000.0, 10.0
_SPEEDS = {TRANSLATE: 300.0, CHANGE_VOICE: 30.0}
"""Usual characters per second of one worker. Clients use their own ledger once it has calls of the voice."""


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
        """Names of the engines whose voices are all formant voices. Set once the voices are known."""

    async def start(self) -> None:
        """Start the workers for fast engines. Raise SettingsError if none can be started."""
        await self.fast.start()

    async def close(self) -> None:
        """End every worker."""
        await self.fast.close()
        await self.slow.close()

    def of_engine(self, engine: str) -> WorkerPool:
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
        """Seconds that a job takes on average in the slower of the pools that are at work."""
        busy = [pool.mean_s for pool in (self.fast, self.slow) if pool.figures()["busy"]]
        return max(busy, default=self.fast.mean_s)

    def figures(self) -> dict[str, int]:
        """Return counts of workers and jobs for the health page."""
        slow = self.slow.figures()
        return {name: count + slow[name] for name, count in self.fast.figures().items()}

    def paces(self, key_cap: int) -> dict[str, dict[str, float]]:
        """Return how many calls the service takes at once for each kind of work, and its usual speed.

        Parameters
        ----------
        key_cap
            Number of calls that the key may have in flight.

        Returns
        -------
        dict
            For each speech engine, and for translation and voice change: ``calls_at_once``, and the usual
            ``characters_per_second`` (billed characters) of all workers together.
        """
        # A call of a fast engine waits for the network more than for a worker, so all calls may be in flight.
        fast = {"calls_at_once": key_cap, "characters_per_second": self.fast.count * _FORMANT_SPEED}
        at_once = min(key_cap, self.slow.count)
        return {
            work: fast
            if self.of_engine(work) is self.fast
            else {
                "calls_at_once": at_once,
                "characters_per_second": self.slow.count * _SPEEDS.get(work, _NEURAL_SPEED),
            }
            for work in (*self.engines, TRANSLATE, CHANGE_VOICE)
        }
