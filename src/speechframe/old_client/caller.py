"""Who calls: one service, one key, and attempts, tried once or until one works."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import SecretStr
from yarl import URL

from speechframe.errors import BadAnswer, ServiceError, SettingsError, SpeechframeError
from speechframe.old_client._closing import AsyncClosing
from speechframe.old_client._hidden import Redactor
from speechframe.old_client._refused import refusal, without_secrets
from speechframe.old_client._slots import SharedSlots
from speechframe.old_client.calls import Call
from speechframe.old_client.chapters import JSON, Answering, Arrived, make_chapters
from speechframe.old_client.download import Downloader
from speechframe.old_client.limits import Bounds, Timeouts
from speechframe.old_client.reach import Reach
from speechframe.old_client.regions import Regions
from speechframe.old_client.retry import Patience, persist
from speechframe.old_client.transport import AiohttpTransport, Reply, Transport
from speechframe.old_client.upload import Body
from speechframe.settings import Settings, resolve
from speechframe.settings.hidden import header_text, hidden_key, without_keys
from speechframe.spec.chosen import API_KEY_HEADER, IDEMPOTENCY_HEADER, TAKE_HEADER
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.endpoints import by_name
from speechframe.wire.answers import decode_object

__all__ = ["Caller"]

T = TypeVar("T")

_LIMITS_SERVICE = "speechframe"


class Caller(AsyncClosing):
    """What a :class:`Client` is beside its endpoints; parameters and errors stand there."""

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
        transport: Transport | None = None,
    ) -> None:
        # Hidden at once: whatever is raised below shows these locals in a detailed traceback.
        api_key, base_url = hidden_key(api_key), without_keys(base_url)
        if api_key is not None:
            header_text(api_key, "the api key")
        settings = _settled(settings, {"api_key": api_key, "base_url": base_url, "regions": regions})
        key = header_text(settings.api_key, "the api key")
        self._settings = settings
        timeouts, bounds = timeouts or Timeouts(), bounds or Bounds()
        addresses = settings.addresses()
        transport = transport or AiohttpTransport(
            connect_s=timeouts.connect_s,
            max_connections=max_connections,
            trust_env=settings.trust_env,
            ca_file=settings.ca_file,
        )
        self._reach = Reach(
            transport=transport,
            regions=Regions(addresses),
            patience=patience or Patience(),
            timeouts=timeouts,
            bounds=bounds,
            redactor=Redactor(key),
            url=self._url,
            headers=self._headers_of,
            key_header={API_KEY_HEADER: key},
            limits=self.limits,
        )
        # Base64 audio does not shrink: packing it would cost both ends time.
        self._post_headers = {
            "Accept": JSON,
            "Accept-Encoding": "identity",
            "Content-Type": JSON,
            **self._reach.key_header,
        }
        self._urls: dict[tuple[str, str], URL] = {}
        self._chapters = make_chapters(
            self._reach, Downloader(transport, addresses.values(), bounds.error_bytes)
        )
        self._slots = SharedSlots()

    def __repr__(self) -> str:
        """Return the service and its regions, never the key."""
        # Also of a client whose making failed: its repr stands in the traceback.
        settings = getattr(self, "_settings", None)
        if settings is None:
            return "Client()"
        return f"Client(service={settings.identity()!r}, regions={tuple(settings.addresses())!r})"

    @property
    def regions(self) -> tuple[str, ...]:
        """Names of the regions in order of preference; the global address usually stands last."""
        return self._reach.regions.names

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    async def close(self) -> None:
        """Close every stream, session and connection; further calls raise RuntimeError."""
        for one in list(self._reach.open):
            await one.close()
        await self._reach.transport.close()

    async def send_once(
        self,
        call: Call[Any],
        *,
        region: str | None = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the answer to one attempt, the download of a URL answer included.

        Parameters
        ----------
        call
            What to send.
        region
            One of :attr:`regions`; the first by default.
        timeout_s
            Limit of the exchange in seconds, instead of the one that grows with the text (:class:`Timeouts`).
            A download has a limit of its own, since the call was billed by then.
        headers
            Further headers; ours win.

        Raises
        ------
        ServiceError
            An error status; the subclass tells which. A redirect is one too: none is followed, as the key
            would go along.
        ConnectionFailed, TimedOut
            No answer; ``sent`` is False only when it is certain that no byte of the request left.
        BadAnswer
            A 200 that cannot be used; most likely billed. Carries the balance and trace id where they could
            be read.
        AudioError
            The file of a clip cannot be read, or is another one by now; the request was not completed.
        SettingsError
            There is no such region.
        """
        name = region if region is not None else self._reach.regions.names[0]
        chapter = self._chapters[call.operation]
        started_s = time.perf_counter()
        try:
            reply = await self._reach.transport.exchange(
                "POST",
                self._url(name, call.operation),
                headers=self._headers_of(call, headers),
                body=call.body,
                timeout_s=chapter.timeout_s(call) if timeout_s is None else timeout_s,
                max_bytes=chapter.max_bytes(call),
                max_error_bytes=self._reach.bounds.error_bytes,
            )
            if not reply.ok:
                raise refusal(reply, self._reach.redactor)
            return await chapter.answer(call, Arrived(reply, name, started_s))
        except SpeechframeError as error:
            failure = without_secrets(error, self._reach.redactor)
        raise failure

    async def call(self, call: Call[Any]) -> Any:
        """Return the answer, retrying and changing regions within this client's :class:`Patience`.

        Retried are 408, 429, 500, 503 and connections that failed before the request was sent. After a 503,
        and after a connection that could not be made, the other regions are tried at once. What may have
        been billed is not repeated, unless ``Patience(repeat_unknown=True)`` says so.

        Raises
        ------
        SpeechframeError
            What :meth:`send_once` raised at the last attempt; a :class:`ServiceError` counts its
            ``attempts``.
        """

        async def send(region: str) -> Any:
            return await self.send_once(call, region=region)

        spoken, attempts = await persist(send, self._reach.regions, self._reach.patience)
        return spoken if attempts == 1 else replace(spoken, attempts=attempts)

    async def limits(self) -> dict[str, Any] | None:
        """Return the page of limits of a speechframe service (our addition); None from any other service.

        Raises
        ------
        ServiceError, ConnectionFailed
            When the service cannot be reached or is too busy to say.
        """
        try:
            page = self._decoded(decode_object, await self._get("limits"))
            page = self._reach.redactor.for_content().clean_value(page)
        except ServiceError as error:
            # What a service answers to an address it does not have is its own business: 404, 403, 302 ...
            # Only the code tells that a 403 is about the key.
            if error.retryable or error.code == HttpErrorCode.INVALID_KEY:
                raise
            return None
        except BadAnswer:
            return None
        return page if page.get("service") == _LIMITS_SERVICE else None

    def _url(self, region: str, endpoint: str) -> URL:
        found = self._urls.get((region, endpoint))
        if found is None:
            if region not in self._reach.regions.names:
                raise SettingsError(
                    f"there is no region {region!r} here, only {', '.join(self._reach.regions.names)}"
                )
            found = URL(self._reach.regions.address(region) + by_name(endpoint).path)
            self._urls[region, endpoint] = found
        return found

    def _headers_of(self, call: Call[Any], further: Mapping[str, str] | None) -> dict[str, str]:
        accept = self._chapters[call.operation].accept
        is_plain = accept == JSON and not isinstance(call.body, Body)
        if is_plain and call.idempotency_key is None and not call.take and not further:
            return self._post_headers
        headers = {**self._post_headers, "Accept": accept}
        if isinstance(call.body, Body):
            headers["Content-Type"] = call.body.form.content_type
        if call.idempotency_key is not None:
            headers[IDEMPOTENCY_HEADER] = call.idempotency_key
        if call.take:
            headers[TAKE_HEADER] = str(call.take)
        if further:
            ours = {name.lower() for name in headers}
            headers |= {name: value for name, value in further.items() if name.lower() not in ours}
        return headers

    async def _get(
        self, endpoint: str, query: Mapping[str, str] | None = None, secret: Mapping[str, str] | None = None
    ) -> Reply:
        headers = {"Accept": JSON, "Accept-Encoding": "gzip, deflate", **(secret or self._reach.key_header)}
        redactor = self._redactor(secret)

        async def send(region: str) -> Reply:
            try:
                reply = await self._reach.transport.exchange(
                    "GET",
                    self._url(region, endpoint).with_query(query or {}),
                    headers=headers,
                    timeout_s=self._reach.timeouts.base_s,
                    max_bytes=self._reach.bounds.listing_bytes,
                    max_error_bytes=self._reach.bounds.error_bytes,
                )
                if reply.ok:
                    return reply
                error: SpeechframeError = refusal(reply, redactor)
            except SpeechframeError as raised:
                error = raised
            raise without_secrets(error, redactor)

        # Asking costs nothing.
        patience = replace(self._reach.patience, repeat_unknown=True)
        reply, _ = await persist(send, self._reach.regions, patience)
        return reply

    def _redactor(self, secret: Mapping[str, str] | None) -> Redactor:
        if secret is None:
            return self._reach.redactor
        return Redactor(*self._reach.key_header.values(), *secret.values())

    def _decoded(
        self, decode: Callable[[bytes], T], reply: Reply, secret: Mapping[str, str] | None = None
    ) -> T:
        try:
            with Answering(reply):
                return decode(reply.body)
        except BadAnswer as error:
            failure = without_secrets(error, self._redactor(secret))
        raise failure


def _settled(settings: Settings | None, given: dict[str, Any]) -> Settings:
    given = {name: value for name, value in given.items() if value is not None}
    settled = resolve(**given) if settings is None else replace(settings, **given)
    if settled.api_key is None or not settled.addresses():
        raise SettingsError(
            "a client needs an address and a key: set SPEECHFRAME_BASE_URL and SPEECHFRAME_API_KEY, or pass "
            "base_url and api_key. speechframe.local_service() gives both without any account."
        )
    return settled
