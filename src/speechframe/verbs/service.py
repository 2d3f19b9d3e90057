"""The service behind a run: what it offers, where its calls go, and one attempt of a call."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speechframe.batch.backend import Answer, Attempt, Backend, LaneSpec, Opened, Request
from speechframe.client import Call, Client
from speechframe.errors import SettingsError
from speechframe.settings import GLOBAL_REGION, Settings, fingerprint
from speechframe.settings.hidden import without_keys
from speechframe.spec.limits import REGIONS, Pool
from speechframe.wire.answers import published_cap, whole_number

_LOCAL_PREFIX = "local/"  # how the identity of an embedded local service begins
_MOST_CONNECTIONS = 256  # of each lane: the run's permits are the real limit, and no lane has more of them
_LONGEST_IDENTITY = 200
_LONGEST_MEMORY_S = 366 * 86_400.0


class ServiceBackend(Backend):
    """A backend whose calls go to the service of some settings, by a :class:`Client`.

    A subclass gives :meth:`call`, and :meth:`look_up` where it asks the service for more than its limits.
    """

    pool: Pool = Pool.OTHER  # its calls share the service's cap on calls at once
    client: Client  # while the backend is open
    limits: Mapping[str, Any]  # the service's page of limits; empty where it has none

    def __init__(self, settings: Settings) -> None:
        if not isinstance(settings, Settings):
            raise SettingsError(
                f"service={without_keys(settings)!r} is no service: use local_service() or Settings(...)"
            )
        self.settings = settings
        self.limits = {}

    async def open(self) -> Opened:
        """Ask the service for its limits, and for what :meth:`look_up` wants."""
        addresses = self.settings.addresses()
        self.client = Client(self.settings, max_connections=_MOST_CONNECTIONS * max(1, len(addresses)))
        try:
            self.limits = await self.client.limits() or {}
            self.service = self._identity()
            facts = await self.look_up()
        except BaseException:
            await self.client.close()
            raise
        key = self.settings.api_key
        key_fingerprint = fingerprint(key) if key is not None else ""
        return Opened(
            lanes=self._lanes(addresses, key_fingerprint),
            repeats_free_s=self._repeats_free_s(),
            takes=bool(self.limits.get("take_header")),
            balance=whole_number(self.limits, "remaining_characters"),
            key_fingerprint=key_fingerprint,
            is_local=self.service.startswith(_LOCAL_PREFIX),
            facts=facts,
        )

    async def look_up(self) -> Mapping[str, Any]:
        """Ask :attr:`client` for what rows are checked against, and return what run.json says of it."""
        return {}

    async def close(self) -> None:
        """Close the client, if it was opened."""
        if hasattr(self, "client"):
            await self.client.close()

    @abstractmethod
    def call(self, request: Request) -> Call[Any]:
        """Return what the client sends, made of the request's body alone: a resume has nothing else."""

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt; ``data`` of its answer is the call and what came, still to be read."""
        call = self.call(request)
        raw = await self.client.send_raw(
            replace(call, idempotency_key=attempt.idempotency_key, take=attempt.take),
            region=attempt.lane,
            deadline_s=attempt.deadline_s,
            max_bytes=self.max_answer_bytes,
            admit=attempt.admit,
        )
        return Answer((call, raw), raw.trace_id, raw.latency_ms)

    def _identity(self) -> str:
        """Return what names the service in keys and run.json: never an address or port."""
        several, said = self.limits.get("identities"), self.limits.get("identity")
        if isinstance(several, dict):
            said = several.get(self.operation, said)
        is_name = isinstance(said, str) and 0 < len(said) <= _LONGEST_IDENTITY and said.isprintable()
        return str(said) if is_name else self.settings.identity()

    def _repeats_free_s(self) -> float:
        seconds: Any = self.limits.get("idempotency_seconds")
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if self.limits.get("idempotency") is not True or not is_number:
            return 0.0
        # A page may hold anything: NaN, with which no comparison is true, and integers that are no float.
        return float(min(seconds, _LONGEST_MEMORY_S)) if seconds > 0 else 0.0

    def _lanes(self, addresses: Mapping[str, str], key_fingerprint: str) -> tuple[LaneSpec, ...]:
        """Return a lane for each region; the global address is the fallback where regions are named."""
        published, named = published_cap(self.limits, self.pool), self.settings.regions
        # What the document says of regions is a guess, since a key may have another cap.
        known = REGIONS if self.pool is Pool.STREAMING else {}
        return tuple(
            LaneSpec(
                name=region,
                # The address tells the embedded services of two processes apart: each has a cap of its own.
                identity=f"{self.service} {address} {key_fingerprint} {region} {self.pool}",
                published=published,
                guess=known[region].streaming_concurrency if region in known else None,
                is_fallback=bool(named) and region == GLOBAL_REGION and region not in named,
            )
            for region, address in addresses.items()
        )
