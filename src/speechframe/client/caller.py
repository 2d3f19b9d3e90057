"""Send calls to one service with one key, in one attempt or with retries."""

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

from speechframe.client.answers import RawAnswer, complete_error
from speechframe.client.calls import MIB, Bounds, PreparedCall, Timeouts
from speechframe.client.download import DownloadSource, fetch_audio
from speechframe.client.exchange import Admit, CutOffError, Exchange, Progress, ignore_progress
from speechframe.client.masking import Redactor, remove_secrets
from speechframe.client.upload import Body
from speechframe.errors import (
    BadAnswer,
    ConnectionFailed,
    ServiceError,
    SettingsError,
    SpeechframeError,
    Unavailable,
)
from speechframe.settings import Settings, resolve_settings
from speechframe.settings.hidden import make_header_text, mask_address, wrap_key
from speechframe.spec.chosen import (
    API_KEY_HEADER,
    IDEMPOTENCY_HEADER,
    PROGRESS_HEADER,
    TAKE_HEADER,
    TRACE_HEADER,
)
from speechframe.spec.codes import HttpErrorCode, Status
from speechframe.spec.endpoints import get_endpoint
from speechframe.wire.answers import MAX_TRACE_CHARACTERS, decode_json, decode_object, shorten_to_line
from speechframe.wire.errors import decode_error

T = TypeVar("T")

JSON_TYPE = "application/json"
# Matches a field of a JSON answer that contains audio in Base64.
_BASE64_AUDIO = re.compile(rb'"encoded(?:Audio|_audio)"\s*:\s*"[^"]')
# Larger answers are decoded in a thread, so that other calls go on meanwhile.
_MIN_THREAD_BYTES = 4 * MIB
# For this many seconds after a failure of a region, the other regions are tried first.
REGION_PAUSE_S = 30.0
# Number of endpoint URLs that a client caches.
_MAX_CACHED_URLS = 256

_log = logging.getLogger("speechframe")


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of the retries by ``Client.call``, both in attempts and in time.

    Parameters
    ----------
    attempts
        Largest number of attempts, including the first. Immediate retries in other regions do not count.
    patience_s
        No attempt starts later than this many seconds after the first. If a service requests a longer wait,
        its error is raised at once, with ``retry_after_s``.
    first_wait_s, longest_wait_s
        Each wait is random between 0 and a bound in seconds, so that many callers do not retry together. The
        bound doubles with each retry, from `first_wait_s` to `longest_wait_s`. A wait that the service
        requests is always kept in full.
    repeat_unknown
        True also retries calls that may have been billed. The service did not answer such a call, or its
        answer cannot be used. Set True for calls that cost nothing, and for calls with an idempotency key if
        the service honours the key. Default False.
    """

    attempts: int = 5
    patience_s: float = 120.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    repeat_unknown: bool = False

    def may_retry(self, error: BaseException) -> bool:
        """Return whether the same request may be sent again after `error`."""
        if isinstance(error, ServiceError):
            # A gateway may have lost the answer to a call that was billed.
            return error.retryable or (self.repeat_unknown and Status.is_from_gateway(error.status))
        if isinstance(error, ConnectionFailed):
            return self.repeat_unknown or not error.sent
        return self.repeat_unknown and isinstance(error, BadAnswer)

    def draw_wait_s(self, error: BaseException | None, attempt: int) -> float:
        """Return the seconds to wait after the `attempt`-th attempt failed with `error`."""
        bound_s = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(attempt - 1, 30))
        drawn_s = random.uniform(0.0, bound_s)  # noqa: S311 - spreads callers, keeps no secret
        required_s = error.retry_after_s if isinstance(error, ServiceError) else None
        # Add a random part, because callers that were refused together got the same Retry-After.
        return drawn_s if required_s is None else required_s + min(drawn_s, self.first_wait_s)


class Caller:
    """Base class of :class:`Client`, without the endpoints. `Client` documents parameters and errors."""

    settings: Settings
    """The settings in force."""
    regions: tuple[str, ...]
    """Names of the regions in order of preference. The global address is usually the last."""

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
        # Hide the keys first. A detailed traceback of any error below shows these locals.
        api_key, base_url = wrap_key(api_key), mask_address(base_url)
        if api_key is not None:
            make_header_text(api_key, "the api key")
        given: dict[str, Any] = {"api_key": api_key, "base_url": base_url, "regions": regions}
        given = {name: value for name, value in given.items() if value is not None}
        settings = resolve_settings(**given) if settings is None else replace(settings, **given)
        addresses = settings.addresses()
        if settings.api_key is None or not addresses:
            raise SettingsError(
                "the client lacks an address or a key; set SPEECHFRAME_BASE_URL and SPEECHFRAME_API_KEY, or "
                "pass base_url and api_key. Without an account, speechframe.local_service() provides both"
            )
        self.settings, self.regions = settings, tuple(addresses)
        key = make_header_text(settings.api_key, "the api key")
        dub_key = make_header_text(settings.dub_api_key or settings.api_key, "the dub api key")
        self.timeouts, self.bounds = timeouts or Timeouts(), bounds or Bounds()
        self.patience = patience or Patience()
        self.redactor = Redactor(*{key, dub_key})
        self.key_header, self.dub_key_header = {API_KEY_HEADER: key}, {API_KEY_HEADER: dub_key}
        self.addresses = addresses
        # `url(region, endpoint, id)` returns the URL of an endpoint. It raises SettingsError if the region
        # does not exist.
        self.url = lru_cache(_MAX_CACHED_URLS)(partial(_make_url, addresses))
        # Failed region to the time (of `time.monotonic`) until which the other regions are tried first.
        self._down_until_s: dict[str, float] = {}
        self.exchange = Exchange(
            connect_s=self.timeouts.connect_s,
            max_connections=max_connections,
            trust_env=settings.trust_env,
            ca_file=settings.ca_file,
        )
        # Streams and sessions, which `close` closes.
        self.opened: weakref.WeakSet[Any] = weakref.WeakSet()

    def __repr__(self) -> str:
        """Return the service and its regions, never the key."""
        # A traceback may show a client without settings, because its `__init__` failed.
        if (settings := getattr(self, "settings", None)) is None:
            return "Client()"
        return f"Client(service={settings.identity()!r}, regions={self.regions!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every stream, session and connection. Further calls raise RuntimeError."""
        for closable in list(self.opened):
            await closable.close()
        await self.exchange.close()

    async def call(self, call: PreparedCall[Any]) -> Any:
        """Return the :class:`Spoken` or :class:`Translated` answer of a call, with retries.

        The statuses 408, 429, 500 and 503 are retried, within this client's :class:`Patience`. So is a
        connection that failed before the request was sent. After a 503 or such a failed connection, the
        other regions are tried at once. A call that may have been billed is retried only with
        ``Patience(repeat_unknown=True)``.

        Raises
        ------
        SpeechframeError
            The error of the last attempt, see :meth:`send_raw`. A :class:`ServiceError` has the number of
            ``attempts``.
        """
        answer, attempts = await self.send_with_retries(lambda region: self.send_once(call, region=region))
        return answer if attempts == 1 else replace(answer, attempts=attempts)

    async def send_with_retries(
        self, send: Callable[[str], Awaitable[T]], patience: Patience | None = None
    ) -> tuple[T, int]:
        """Call `send` with a region, again after failures that `patience` allows.

        Return the result of `send` and the number of attempts, or raise the error of the last attempt. The
        default of `patience` is the client's own.
        """
        patience = patience or self.patience
        began_s, order, attempts, rounds = time.monotonic(), list[str](), 0, 0
        while True:
            if not order:
                # Keep the order of preference, but put regions that failed in the last `REGION_PAUSE_S` at
                # the end.
                now_s, down_s = time.monotonic(), self._down_until_s
                order = sorted(self.regions, key=lambda name: max(now_s, down_s.get(name, now_s)))
            region, attempts = order[0], attempts + 1
            try:
                return await send(region), attempts
            except SpeechframeError as error:
                if isinstance(error, ServiceError):
                    error.attempts = attempts
                if not patience.may_retry(error):
                    raise
                wait_s, message = 0.0, str(error)
                # Try each other region once without a wait, before a new round of all regions.
                if elsewhere := isinstance(error, Unavailable) or not getattr(error, "sent", True):
                    self._down_until_s[region] = time.monotonic() + REGION_PAUSE_S
                    order = order[1:]
                if not elsewhere or not order:
                    rounds += 1
                    wait_s = patience.draw_wait_s(error, rounds)
                if rounds >= patience.attempts or time.monotonic() + wait_s >= began_s + patience.patience_s:
                    raise
            _log.info("attempt %d failed at %s, again in %.2f s: %s", attempts, region, wait_s, message)
            await asyncio.sleep(wait_s)

    async def send_once(
        self, call: PreparedCall[Any], *, region: str | None = None, timeout_s: float | None = None
    ) -> Any:
        """Make one attempt, as :meth:`send_raw` does, and return the decoded answer with its audio.

        Parameters
        ----------
        region
            One of :attr:`regions`. The default is the first.
        timeout_s
            Time limit from the request to the end of the answer, in seconds. The default is the limit of
            :class:`Timeouts`, which grows with the text.

        Raises
        ------
        SpeechframeError
            The errors of :meth:`send_raw`. :class:`BadAnswer` also if the audio cannot be fetched or read.
        """
        began_s = time.perf_counter()
        raw = await self.send_raw(call, region=region, deadline_s=timeout_s)
        url, audio = call.find_audio_url(raw), None
        if url is not None:
            most_bytes = call.compute_limits(self.timeouts, self.bounds)[2]
            try:
                audio = await self.fetch(url, max_bytes=most_bytes, region=raw.region)
            except BadAnswer as error:
                raise complete_error(error, raw) from None
        if len(raw.body) < _MIN_THREAD_BYTES:
            answer = call.decode(raw, audio=audio)
        else:
            answer = await asyncio.to_thread(call.decode, raw, audio=audio)
        spent_ms = (time.perf_counter() - began_s) * 1000
        return answer if audio is None else replace(answer, latency_ms=spent_ms)

    def send_raw(
        self,
        call: PreparedCall[Any],
        *,
        region: str | None = None,
        deadline_s: float | None = None,
        max_bytes: int | None = None,
        admit: Admit | None = None,
        progress: Progress = ignore_progress,
        hold: bool = False,
    ) -> Awaitable[RawAnswer]:
        """Make one attempt and return the answer undecoded, for :meth:`PreparedCall.decode`.

        `deadline_s` and `max_bytes` replace the limits of :class:`Timeouts` and :class:`Bounds`. `admit` is
        awaited with the number of further bytes before these bytes are read into memory. The service may
        report that the call is queued or in work. Without `deadline_s`, each such report restarts the time
        limit and calls `progress`. With `hold`, no other call gets the connection before
        ``raw.reply.close()``. Call ``raw.reply.drop()`` before that if the answer belongs to another call.

        Raises
        ------
        ServiceError
            An error status. A redirect is an error too, because the key would go to another address.
        ConnectionFailed, TimedOut
            No answer came. ``sent`` is False only if certainly no byte of the request left.
        BadAnswer
            An answer with status 200 is too large, truncated or wrongly encoded. It was most likely billed.
        AudioError
            The file of a clip cannot be read, or has changed. The request was not completed.
        """
        limit_s, most_bytes, _ = call.compute_limits(self.timeouts, self.bounds)
        return self.ask(
            "POST",
            call.operation,
            region or self.regions[0],
            self.make_headers(call),
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
        resource_id: str = "",
        redactor: Redactor | None = None,
        **exchange_options: Any,
    ) -> RawAnswer:
        """Send one request and return an answer with a status from 200 to 299, without keys in its texts.

        Any other status raises an error. Errors contain no secrets. `resource_id` is the id in the
        endpoint's path, such as a job id. `exchange_options` are further arguments of :meth:`Exchange.ask`.
        """
        began_s, redactor = time.perf_counter(), redactor or self.redactor
        url = self.url(region, endpoint, resource_id)
        exchange_options["max_error_bytes"] = self.bounds.error_bytes
        url = url if query is None else url.with_query(query)
        try:
            reply = await self.exchange.ask(method, url, headers=headers, **exchange_options)
            if reply.ok:
                body, headers = reply.body, reply.headers
                joined = "\n".join(headers.values())
                if redactor.clean(joined) is not joined:
                    headers = CIMultiDict((name, redactor.clean(value)) for name, value in headers.items())
                has_audio = endpoint == "stream" or _BASE64_AUDIO.search(body) is not None
                if not has_audio:
                    text = body.decode("utf-8", "surrogateescape")
                    body = redactor.for_content.clean(text).encode("utf-8", "surrogateescape")
                spent_ms = (time.perf_counter() - began_s) * 1000
                trace_id = shorten_to_line(headers.get(TRACE_HEADER, ""), MAX_TRACE_CHARACTERS) or None
                return RawAnswer(body, headers, trace_id, spent_ms, region, has_audio, redactor, reply)
            error: SpeechframeError = decode_error(reply.status, reply.body, reply.headers, redactor.clean)
        except CutOffError as cut:
            balance = cut.remaining_characters
            error = BadAnswer(str(cut), trace_id=cut.trace_id, remaining_characters=balance)
        except SpeechframeError as raised:
            error = raised
        raise remove_secrets(error, redactor)

    async def fetch(
        self,
        url: str,
        *,
        deadline_s: float | None = None,
        max_bytes: int | None = None,
        admit: Admit | None = None,
        region: str | None = None,
    ) -> bytes:
        """Return the audio behind a URL in an answer. A relative URL begins at the address of `region`.

        Failures that may pass are retried within the time limit. `deadline_s`, `max_bytes` and `admit` are as
        in :meth:`send_raw`.

        Raises
        ------
        BadAnswer
            The audio cannot be fetched, or its URL is forbidden. Private networks are forbidden, and so is
            plain http to another host.
        """
        try:
            base = self.url(region or self.regions[0], "generate")
            return await fetch_audio(
                DownloadSource(self.exchange, self.addresses.values(), url, base),
                timeout_s=self.timeouts.download_s if deadline_s is None else deadline_s,
                max_bytes=self.bounds.download_bytes if max_bytes is None else max_bytes,
                admit=admit,
            )
        except SpeechframeError as error:
            raise remove_secrets(error, self.redactor) from None

    async def limits(self) -> dict[str, Any] | None:
        """Return the limits page of a speechframe service (our addition), or None from any other service."""
        try:
            page = await self.read("limits", decode_object, self.key_header)
        except ServiceError as error:
            # Other services may return any status at this address. A 403 is about the key only if the error
            # code says so.
            if error.retryable or error.code == HttpErrorCode.INVALID_KEY:
                raise
            return None
        except BadAnswer:
            return None
        return page if page.get("service") == "speechframe" else None

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
        **ask_options: Any,
    ) -> T:
        """Return the decoded JSON answer of an endpoint, from one attempt (`once`) or with retries.

        A GET costs nothing, so a GET is retried even if the service may have received it. `ask_options`
        are further arguments of :meth:`ask`.
        """
        method = get_endpoint(endpoint).method
        headers = {"Accept": JSON_TYPE, "Accept-Encoding": "gzip, deflate", **headers}
        ask_options |= {
            "timeout_s": timeout_s or self.timeouts.base_s,
            "max_bytes": self.bounds.other_answer_bytes,
        }

        def send(any_region: str) -> Awaitable[RawAnswer]:
            return self.ask(method, endpoint, region or any_region, headers, **ask_options)

        if once:
            raw = await send(self.regions[0])
        else:
            usual = replace(self.patience, repeat_unknown=method == "GET")
            raw, _ = await self.send_with_retries(send, patience or usual)
        try:
            return decode(raw.body)
        except BadAnswer as error:
            raise complete_error(error, raw, decode_json) from None

    def make_headers(self, call: PreparedCall[Any]) -> dict[str, str]:
        """Return the HTTP headers of a call, including the key."""
        headers = {
            "Accept": "*/*" if call.operation == "stream" else JSON_TYPE,
            # Request no compression. Base64 audio does not shrink, and compression costs both ends time.
            "Accept-Encoding": "identity",
            "Content-Type": call.body.form.content_type if isinstance(call.body, Body) else JSON_TYPE,
            PROGRESS_HEADER: "102",
            **self.key_header,
        }
        if call.idempotency_key is not None:
            headers[IDEMPOTENCY_HEADER] = call.idempotency_key
        if call.take:
            headers[TAKE_HEADER] = str(call.take)
        return headers


def _make_url(addresses: Mapping[str, str], region: str, endpoint: str, resource_id: str = "") -> URL:
    if region not in addresses:
        raise SettingsError(f"the region {region!r} is not configured; allowed: {', '.join(addresses)}")
    found = get_endpoint(endpoint)
    path = found.path.format(**dict.fromkeys(found.path_fields, quote(resource_id, safe="")))
    return URL(addresses[region] + path)
