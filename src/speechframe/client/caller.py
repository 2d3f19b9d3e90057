"""Who calls: one service, one key, and attempts, made once or until one works."""

import asyncio
import logging
import random
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Self, TypeVar
from urllib.parse import quote

from multidict import CIMultiDict
from pydantic import SecretStr
from yarl import URL

from speechframe.client.answers import Raw, explained
from speechframe.client.calls import MIB, Bounds, Call, Timeouts
from speechframe.client.download import fetch
from speechframe.client.exchange import Admit, CutOffError, Exchange, Progress, ignore
from speechframe.client.masking import Redactor, refusal, without_secrets
from speechframe.client.upload import Body
from speechframe.errors import (
    BadAnswer,
    ConnectionFailed,
    ServiceError,
    SettingsError,
    SpeechframeError,
    Unavailable,
)
from speechframe.settings import Settings, resolve
from speechframe.settings.hidden import header_text, hidden_key, without_keys
from speechframe.spec.chosen import (
    API_KEY_HEADER,
    IDEMPOTENCY_HEADER,
    PROGRESS_HEADER,
    TAKE_HEADER,
    TRACE_HEADER,
)
from speechframe.spec.codes import HttpErrorCode, Status
from speechframe.spec.endpoints import by_name
from speechframe.wire.answers import MAX_TRACE_CHARACTERS, decode_object, loaded, one_line

T = TypeVar("T")

JSON = "application/json"
_AUDIO_INSIDE = re.compile(rb'"encoded(?:Audio|_audio)"\s*:\s*"[^"]')
# Answers from this size on are read in a thread, while other calls go on.
_LARGE_BYTES = 4 * MIB
# How long a region that could not serve is not the first choice.
COOL_S = 30.0
_MOST_URLS = 256

_log = logging.getLogger("speechframe")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long ``Client.call`` keeps trying; attempts and time are both capped.

    Parameters
    ----------
    attempts
        The most attempts, the first included. Moving on to another region at once is not counted.
    patience_s
        Seconds from the first attempt after which no further one is started. A service that asks for a longer
        wait is not waited for: its error is raised at once, with ``retry_after_s``.
    first_wait_s, longest_wait_s
        Waits grow from one to the other, each drawn at random up to its bound, so that callers spread. A
        wait that the service asks for is kept in full.
    repeat_unknown
        Also repeat what may have been billed: a request that was sent and not answered, an answer that
        cannot be used. Right for calls with an idempotency key that the service honours, and for calls that
        cost nothing.
    """

    attempts: int = 5
    patience_s: float = 120.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    repeat_unknown: bool = False

    def allows(self, error: BaseException) -> bool:
        """Return whether the same request may be sent again after `error`."""
        if isinstance(error, ServiceError):
            # A gateway may have lost an answer that the service was paid for.
            return error.retryable or (self.repeat_unknown and Status.is_gateways(error.status))
        if isinstance(error, ConnectionFailed):
            return self.repeat_unknown or not error.sent
        return self.repeat_unknown and isinstance(error, BadAnswer)

    def wait_s(self, error: BaseException | None, attempt: int) -> float:
        """Return the seconds to wait after the `attempt`-th attempt failed with `error`."""
        bound_s = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(attempt - 1, 30))
        drawn_s = random.uniform(0.0, bound_s)  # noqa: S311 - spreads callers, keeps no secret
        asked_s = error.retry_after_s if isinstance(error, ServiceError) else None
        # All who were refused together got the same Retry-After: a random part keeps them apart.
        return drawn_s if asked_s is None else asked_s + min(drawn_s, self.first_wait_s)


class Caller:
    """What a :class:`Client` is beside its endpoints; parameters and errors stand there."""

    settings: Settings
    """The settings in force."""
    regions: tuple[str, ...]
    """Names of the regions in order of preference; the global address usually stands last."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        regions: tuple[str, ...] | None = None,
        timeouts: Timeouts | None = None,
        bounds: Bounds | None = None,
        patience: Patience | None = None,
        max_connections: int = 256,
    ) -> None:
        # Hidden at once: a detailed traceback of whatever is raised below shows these locals.
        api_key, base_url = hidden_key(api_key), without_keys(base_url)
        if api_key is not None:
            header_text(api_key, "the api key")
        given: dict[str, Any] = {"api_key": api_key, "base_url": base_url, "regions": regions}
        given = {name: value for name, value in given.items() if value is not None}
        settings = resolve(**given) if settings is None else replace(settings, **given)
        addresses = settings.addresses()
        if settings.api_key is None or not addresses:
            raise SettingsError(
                "a client needs an address and a key: set SPEECHFRAME_BASE_URL and SPEECHFRAME_API_KEY, or "
                "pass base_url and api_key. speechframe.local_service() gives both without any account."
            )
        self.settings, self.regions = settings, tuple(addresses)
        key = header_text(settings.api_key, "the api key")
        dub_key = header_text(settings.dub_api_key or settings.api_key, "the dub api key")
        self.timeouts, self.bounds = timeouts or Timeouts(), bounds or Bounds()
        self.patience = patience or Patience()
        self.redactor = Redactor(*{key, dub_key})
        self.key_header, self.dub_key_header = {API_KEY_HEADER: key}, {API_KEY_HEADER: dub_key}
        self.addresses = addresses
        # Returns the address of an endpoint in a region, with what its path names; SettingsError where there
        # is no such region.
        self.url = lru_cache(_MOST_URLS)(partial(_url, addresses))
        self._down_until_s: dict[str, float] = {}  # regions that could not serve
        self.exchange = Exchange(
            connect_s=self.timeouts.connect_s,
            max_connections=max_connections,
            trust_env=settings.trust_env,
            ca_file=settings.ca_file,
        )
        # What is closed with the client.
        self.opened: weakref.WeakSet[Any] = weakref.WeakSet()

    def __repr__(self) -> str:
        """Return the service and its regions, never the key."""
        # Without settings if `__init__` failed: a traceback shows the repr.
        if (settings := getattr(self, "settings", None)) is None:
            return "Client()"
        return f"Client(service={settings.identity()!r}, regions={self.regions!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every stream, session and connection; further calls raise RuntimeError."""
        for one in list(self.opened):
            await one.close()
        await self.exchange.close()

    async def call(self, call: Call[Any]) -> Any:
        """Return the :class:`Spoken` or :class:`Translated` answer of a call, sent until one attempt works.

        Retried, within this client's :class:`Patience`, are 408, 429, 500, 503 and connections that failed
        before the request was sent. After a 503, and after a connection that could not be made, the other
        regions are tried at once. What may have been billed is not repeated, unless
        ``Patience(repeat_unknown=True)`` says so.

        Raises
        ------
        SpeechframeError
            What the last attempt met, see :meth:`send_raw`; a :class:`ServiceError` counts its ``attempts``.
        """
        answer, attempts = await self.persist(lambda region: self.send_once(call, region=region))
        return answer if attempts == 1 else replace(answer, attempts=attempts)

    async def persist(
        self, send: Callable[[str], Awaitable[T]], patience: Patience | None = None
    ) -> tuple[T, int]:
        """Return what `send` returns for a region, and the number of attempts that took."""
        patience = patience or self.patience
        began_s, order, made, rounds = time.monotonic(), list[str](), 0, 0
        while True:
            if not order:
                # By preference, those that are down last, the soonest back first.
                now_s, down_s = time.monotonic(), self._down_until_s
                order = sorted(self.regions, key=lambda name: max(now_s, down_s.get(name, now_s)))
            region, made = order[0], made + 1
            try:
                return await send(region), made
            except SpeechframeError as error:
                if isinstance(error, ServiceError):
                    error.attempts = made
                if not patience.allows(error):
                    raise
                wait_s, words = 0.0, str(error)
                # Then each other region is tried once without a wait, before all begin anew.
                if elsewhere := isinstance(error, Unavailable) or not getattr(error, "sent", True):
                    self._down_until_s[region] = time.monotonic() + COOL_S
                    order = order[1:]
                if not elsewhere or not order:
                    rounds += 1
                    wait_s = patience.wait_s(error, rounds)
                if rounds >= patience.attempts or time.monotonic() + wait_s >= began_s + patience.patience_s:
                    raise
            _log.info("attempt %d failed at %s, again in %.2f s: %s", made, region, wait_s, words)
            await asyncio.sleep(wait_s)

    async def send_once(
        self, call: Call[Any], *, region: str | None = None, timeout_s: float | None = None
    ) -> Any:
        """Return the answer to one attempt, read and with its audio; see :meth:`send_raw`.

        Parameters
        ----------
        region
            One of :attr:`regions`; the first by default.
        timeout_s
            Limit of the exchange in seconds, instead of the one that grows with the text (:class:`Timeouts`).

        Raises
        ------
        SpeechframeError
            As :meth:`send_raw`; :class:`BadAnswer` also for audio that cannot be fetched or read.
        """
        began_s = time.perf_counter()
        raw = await self.send_raw(call, region=region, deadline_s=timeout_s)
        url, audio = call.audio_url(raw), None
        if url is not None:
            most_bytes = call.limits(self.timeouts, self.bounds)[2]
            try:
                audio = await self.fetch(url, max_bytes=most_bytes, region=raw.region)
            except BadAnswer as error:
                raise explained(error, raw) from None
        if len(raw.body) < _LARGE_BYTES:
            answer = call.decode(raw, audio=audio)
        else:
            answer = await asyncio.to_thread(call.decode, raw, audio=audio)
        spent_ms = (time.perf_counter() - began_s) * 1000
        return answer if audio is None else replace(answer, latency_ms=spent_ms)

    def send_raw(
        self,
        call: Call[Any],
        *,
        region: str | None = None,
        deadline_s: float | None = None,
        max_bytes: int | None = None,
        admit: Admit | None = None,
        progress: Progress = ignore,
        hold: bool = False,
    ) -> Awaitable[Raw]:
        """Await the answer to one attempt as it came: :meth:`Call.decode` reads it.

        `deadline_s` and `max_bytes` stand in for :class:`Timeouts` and :class:`Bounds`; `admit` is awaited
        before so many more bytes of the answer are read. Without `deadline_s` the time limit begins anew, and
        `progress` is called, each time that the service reports the call as queued or worked on.
        before so many more bytes of the answer are read. With `hold` no other call gets the connection before
        ``raw.reply.close()``; call ``raw.reply.drop()`` first if the answer belongs to another call.

        Raises
        ------
        ServiceError
            An error status. A redirect is one too: none is followed, as the key would go along.
        ConnectionFailed, TimedOut
            No answer; ``sent`` is False only when it is certain that no byte of the request left.
        BadAnswer
            A 200 that is too large, truncated or wrongly encoded; most likely billed.
        AudioError
            The file of a clip cannot be read, or is another one by now; the request was not completed.
        """
        limit_s, most_bytes, _ = call.limits(self.timeouts, self.bounds)
        return self.ask(
            "POST",
            call.operation,
            region or self.regions[0],
            self.headers_of(call),
            body=call.body,
            timeout_s=limit_s if deadline_s is None else deadline_s,
            max_bytes=most_bytes if max_bytes is None else max_bytes,
            admit=admit,
            progress=progress if deadline_s is None else None,
            hold=hold,
        )

    async def ask(
        self,
        method: str,
        endpoint: str,
        region: str,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        place: str = "",
        redactor: Redactor | None = None,
        **how: Any,
    ) -> Raw:
        """Return a good answer to one request, with no key in what may be written down of it.

        Any other answer is an error without secrets. `place` is the id that the endpoint's path names; `how`
        are further arguments of :meth:`Exchange.ask`.
        """
        began_s, redactor = time.perf_counter(), redactor or self.redactor
        url = self.url(region, endpoint, place)
        how["max_error_bytes"] = self.bounds.error_bytes
        url = url if query is None else url.with_query(query)
        try:
            reply = await self.exchange.ask(method, url, headers=headers, **how)
            if reply.ok:
                body, headers = reply.body, reply.headers
                joined = "\n".join(headers.values())
                if redactor.clean(joined) is not joined:
                    headers = CIMultiDict((name, redactor.clean(value)) for name, value in headers.items())
                has_audio = endpoint == "stream" or _AUDIO_INSIDE.search(body) is not None
                if not has_audio:
                    text = body.decode("utf-8", "surrogateescape")
                    body = redactor.content.clean(text).encode("utf-8", "surrogateescape")
                spent_ms = (time.perf_counter() - began_s) * 1000
                trace_id = one_line(headers.get(TRACE_HEADER, ""), MAX_TRACE_CHARACTERS) or None
                return Raw(body, headers, trace_id, spent_ms, region, has_audio, redactor, reply)
            error: SpeechframeError = refusal(reply.status, reply.headers, reply.body, redactor)
        except CutOffError as cut:
            balance = cut.remaining_characters
            error = BadAnswer(str(cut), trace_id=cut.trace_id, remaining_characters=balance)
        except SpeechframeError as raised:
            error = raised
        raise without_secrets(error, redactor)

    async def fetch(
        self,
        url: str,
        *,
        deadline_s: float | None = None,
        max_bytes: int | None = None,
        admit: Admit | None = None,
        region: str | None = None,
    ) -> bytes:
        """Return audio that an answer named a URL of, or a path of the `region` that answered.

        What may pass is tried again within the time limit; limits and `admit` are as of :meth:`send_raw`.

        Raises
        ------
        BadAnswer
            It cannot be fetched, or must not: the address is in a private network, or plain http elsewhere.
        """
        try:
            return await fetch(
                self.exchange,
                self.addresses.values(),
                url,
                self.url(region or self.regions[0], "generate"),
                timeout_s=self.timeouts.download_s if deadline_s is None else deadline_s,
                max_bytes=self.bounds.download_bytes if max_bytes is None else max_bytes,
                admit=admit,
            )
        except SpeechframeError as error:
            raise without_secrets(error, self.redactor) from None

    async def limits(self) -> dict[str, Any] | None:
        """Return the page of limits of a speechframe service (our addition); None from any other service."""
        try:
            page = await self.get("limits", decode_object)
        except ServiceError as error:
            # A service may answer anything for an address it does not have; only the code of a 403 tells that
            # it is about the key.
            if error.retryable or error.code == HttpErrorCode.INVALID_KEY:
                raise
            return None
        except BadAnswer:
            return None
        return page if page.get("service") == "speechframe" else None

    async def get(
        self,
        endpoint: str,
        decode: Callable[[bytes], T],
        query: Mapping[str, str] | None = None,
        secret: Mapping[str, str] | None = None,
    ) -> T:
        """Return what a listing holds; `secret` is a header that is sent instead of the key."""
        redactor = Redactor(*self.key_header.values(), *secret.values()) if secret else None
        return await self.read(endpoint, decode, secret or self.key_header, query=query, redactor=redactor)

    async def read(
        self,
        endpoint: str,
        decode: Callable[[bytes], T],
        headers: Mapping[str, str],
        *,
        region: str | None = None,
        patience: Patience | None = None,
        once: bool = False,
        timeout_s: float | None = None,
        **how: Any,
    ) -> T:
        """Return what is read in an answer of JSON, in one attempt (`once`) or as many as it takes.

        Asking for something costs nothing, so that is tried again whatever failed. `how` are further
        arguments of :meth:`ask`.
        """
        method = by_name(endpoint).method
        headers = {"Accept": JSON, "Accept-Encoding": "gzip, deflate", **headers}
        how |= {"timeout_s": timeout_s or self.timeouts.base_s, "max_bytes": self.bounds.listing_bytes}

        def send(any_region: str) -> Awaitable[Raw]:
            return self.ask(method, endpoint, region or any_region, headers, **how)

        if once:
            raw = await send(self.regions[0])
        else:
            usual = replace(self.patience, repeat_unknown=method == "GET")
            raw, _ = await self.persist(send, patience or usual)
        try:
            return decode(raw.body)
        except BadAnswer as error:
            raise explained(error, raw, loaded) from None

    def headers_of(self, call: Call[Any]) -> dict[str, str]:
        """Return the headers that a call is sent with."""
        headers = {
            "Accept": "*/*" if call.operation == "stream" else JSON,
            # Uncompressed: Base64 audio does not shrink, and compressing would cost both ends time.
            "Accept-Encoding": "identity",
            "Content-Type": call.body.form.content_type if isinstance(call.body, Body) else JSON,
            PROGRESS_HEADER: "102",
            **self.key_header,
        }
        if call.idempotency_key is not None:
            headers[IDEMPOTENCY_HEADER] = call.idempotency_key
        if call.take:
            headers[TAKE_HEADER] = str(call.take)
        return headers


def _url(addresses: Mapping[str, str], region: str, endpoint: str, place: str = "") -> URL:
    if region not in addresses:
        raise SettingsError(f"there is no region {region!r} here, only {', '.join(addresses)}")
    found = by_name(endpoint)
    path = found.path.format(**dict.fromkeys(found.path_fields, quote(place, safe="")))
    return URL(addresses[region] + path)
