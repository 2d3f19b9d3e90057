"""The service a run talks to: where it is, what it offers, which voices it has."""

import asyncio
import contextlib
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from speechframe.errors import SettingsError, SpeechframeError
from speechframe.old_batch.cap import Cap
from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.limiter import MOST_CONCURRENCY, Lane
from speechframe.old_batch.operation import Service
from speechframe.old_batch.options import Options
from speechframe.old_batch.permits import SharedPermits, shared_folder
from speechframe.old_client import Client
from speechframe.old_client.limits import published_cap
from speechframe.settings import GLOBAL_REGION, Settings, fingerprint
from speechframe.settings.hidden import without_keys
from speechframe.spec.limits import LARGEST_CONCURRENCY, LEAST_CONCURRENCY, REGIONS, Pool
from speechframe.spec.speech import Model
from speechframe.wire.answers import whole_number

LOCAL_PREFIX = "local/"
"""How the identity of an embedded local service begins."""

_ASK_S = 5.0
_LONGEST_IDENTITY = 200
_LONGEST_MEMORY_S = 366 * 86_400.0


def settings_of(options: Options) -> Settings:
    """Return the settings of the service to use."""
    if not isinstance(options.service, Settings):
        raise SettingsError(
            f"service={without_keys(options.service)!r} is no service: use local_service() or Settings(...)"
        )
    return options.service


@dataclass
class Connection:
    """An open client and what its service said of itself.

    Made by :meth:`open`; an async context manager that closes the client.

    Attributes
    ----------
    client
        For single attempts.
    limits
        The page of limits of a speechframe service, empty for any other.
    book
        The voices.
    verb
        What it is for.
    """

    client: Client
    limits: dict[str, Any]
    book: VoiceBook
    verb: str = "generate"

    @classmethod
    async def open(
        cls,
        settings: Settings,
        *,
        most: int | None = None,
        verb: str = "generate",
        model: Model = Model.GEN2,
    ) -> Self:
        """Return a connection to the service of `settings`.

        Parameters
        ----------
        settings
            Where it is.
        most
            The caller's ``max_concurrency``: so many connections a region may be open at once.
        verb
            What it is for: a service may be another one for another verb.
        model
            Whose voices are wanted.

        Raises
        ------
        ServiceError, ConnectionFailed, SettingsError
            When the service cannot be used: nothing was spent.
        """
        client = Client(
            settings, max_connections=(most or MOST_CONCURRENCY) * max(1, len(settings.addresses()))
        )
        try:
            limits = await client.limits() or {}
            voices = await client.voices(model.value)
        except BaseException:
            await client.close()
            raise
        listing = "voices()" if model is Model.GEN2 else f'voices("{model.value}")'
        return cls(client, limits, VoiceBook(voices, listing=listing), verb)

    async def __aenter__(self) -> Self:
        """Return the connection."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.client.close()

    @property
    def identity(self) -> str:
        """What stands for the service in request keys and run.json: never an address or port."""
        several = self.limits.get("identities")
        said = several.get(self.verb) if isinstance(several, dict) else None
        said = self.limits.get("identity") if said is None else said
        if isinstance(said, str) and 0 < len(said) <= _LONGEST_IDENTITY and said.isprintable():
            return said
        return self.client.settings.identity()

    @property
    def service(self) -> Service:
        """What a verb's operation has to know of the service."""
        return Service(self.identity, self.book, self.limits)

    @property
    def is_local(self) -> bool:
        """Whether it is an embedded local service."""
        return self.identity.startswith(LOCAL_PREFIX)

    @property
    def key_fingerprint(self) -> str:
        """What tells the key apart without giving it away."""
        key = self.client.settings.api_key
        return fingerprint(key) if key is not None else ""

    @property
    def balance(self) -> int | None:
        """Characters left on the key, if the service says."""
        return whole_number(self.limits, "remaining_characters")

    async def asked_balance(self) -> int | None:
        """Return the characters that are left now, where the service can be asked."""
        if self.balance is None:
            return None
        with contextlib.suppress(SpeechframeError, TimeoutError):
            async with asyncio.timeout(_ASK_S):
                page = await self.client.limits()
            if page is not None:
                self.limits = page
                return self.balance
        # What the page said before is no answer: others may have used the key since.
        return None

    @property
    def repeat_is_free(self) -> bool:
        """Whether the service honours ``Idempotency-Key``."""
        return self.limits.get("idempotency") is True

    @property
    def repeat_seconds(self) -> float:
        """How long the service remembers an ``Idempotency-Key``."""
        value = self.limits.get("idempotency_seconds")
        if not self.repeat_is_free or isinstance(value, bool) or not isinstance(value, (int, float)):
            return 0.0
        # A page may hold anything: NaN, with which no comparison is true, and integers that are no float.
        return float(min(value, _LONGEST_MEMORY_S)) if value > 0 else 0.0

    @property
    def takes(self) -> bool:
        """Whether the service honours the header of takes."""
        return bool(self.limits.get("take_header"))

    def lanes(self, pool: str, most: int | None) -> list[Lane]:
        """Return one lane a region, the global address as the last resort where regions are named.

        Their places are shared with other processes of this machine; to be closed at the end.

        Parameters
        ----------
        pool
            The pool of the operation.
        most
            The caller's ``max_concurrency``; it never raises what the service publishes.
        """
        names = self.client.settings.regions or self.client.regions
        lanes = [self._lane(region, pool, most) for region in names]
        if GLOBAL_REGION in self.client.regions and GLOBAL_REGION not in names:
            last = self._lane(GLOBAL_REGION, pool, most)
            last.stands_in_for = tuple(lanes)
            lanes.append(last)
        return lanes

    def width(self, pool: str, most: int | None) -> int:
        """Return how many calls a run begins with, in all regions together; see :meth:`lanes`."""
        regions = self.client.settings.regions or self.client.regions
        return sum(min(self._cap(region, pool, most).limit, most or MOST_CONCURRENCY) for region in regions)

    def _lane(self, region: str, pool: str, most: int | None) -> Lane:
        # The address tells the embedded services of two processes apart, each with caps of its own.
        address = self.client.settings.addresses()[region]
        name = f"{self.identity} {address} {self.key_fingerprint} {region} {pool}"
        permits = SharedPermits(shared_folder(), name=name)
        return Lane(
            region, self._cap(region, pool, most), pool, width=most or MOST_CONCURRENCY, permits=permits
        )

    def _cap(self, region: str, pool: str, most: int | None) -> Cap:
        published = published_cap(self.limits, pool)
        if published is None:
            known = REGIONS.get(region) if pool == Pool.STREAMING else None
            return first_cap(None, most, documented=None if known is None else known.streaming_concurrency)
        return first_cap(published, most)


def first_cap(offered: int | None, most: int | None, *, documented: int | None = None) -> Cap:
    """Return the cap a lane starts with.

    Parameters
    ----------
    offered
        What the service publishes: known, and never passed.
    most
        What the caller allows: the first guess, up to the largest cap of the document.
    documented
        What the document gives the lane's region and pool, a better guess; a key may have another cap.

    Examples
    --------
    >>> first_cap(None, 100).limit, first_cap(None, 3).limit, first_cap(None, None).limit
    (15, 3, 2)
    >>> first_cap(5, 9).limit, first_cap(5, 9).most
    (5, 5)
    >>> first_cap(None, 100, documented=2).limit
    2
    """
    if offered is not None:
        return Cap(offered, offered)
    if documented is not None:
        start = min(documented, most or documented)
    else:
        start = LEAST_CONCURRENCY if most is None else min(most, LARGEST_CONCURRENCY)
    return Cap(start, max(MOST_CONCURRENCY, start))
