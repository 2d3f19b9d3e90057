"""The client: one attempt (`send_once`), a call that keeps trying (`call`), and a method per endpoint."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import SecretStr
from yarl import URL

from speechframe.client import changer
from speechframe.client._hidden import Hidden, Redactor
from speechframe.client._line import SharedSlots
from speechframe.client._refused import refusal, without_secrets
from speechframe.client.audio import inspected
from speechframe.client.calls import Call, Spoken, make_call
from speechframe.client.download import Downloader
from speechframe.client.http_stream import make_stream_call, start
from speechframe.client.limits import MIB, Bounds, Timeouts
from speechframe.client.reach import Reach
from speechframe.client.regions import Regions
from speechframe.client.retry import Patience, persist
from speechframe.client.socket import StreamSession
from speechframe.client.stream import Stream
from speechframe.client.translate import (
    Translated,
    characters_of,
    largest_answer,
    make_translate_call,
    takes_source,
    translated,
    without_source,
)
from speechframe.client.transport import AiohttpTransport, Reply, Transport
from speechframe.client.upload import Body
from speechframe.client.whole import whole_audio
from speechframe.errors import BadAnswer, ServiceError, SettingsError, SpeechframeError
from speechframe.settings import Settings, resolve
from speechframe.spec.auth import AuthToken
from speechframe.spec.billing import billed_characters
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import API_KEY_HEADER, IDEMPOTENCY_HEADER, TAKE_HEADER, TOKEN_HEADER
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.endpoints import by_name
from speechframe.spec.speech import GenerateRequest, StreamRequest, Voice
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.bodies import Generated, decode_generate, decode_object, decode_token, decode_voices
from speechframe.wire.changer import Converted, decode_convert
from speechframe.wire.errors import trace_id_of, warnings_of
from speechframe.wire.translate import decode_translate

T = TypeVar("T")

AudioLike = bytes | str | PathLike[str] | tuple[Any, int]
"""A clip: the bytes of a file, the path of one, or an array and its rate in Hz."""

_JSON = "application/json"
_ANYTHING = "*/*"
_LIMITS_SERVICE = "speechframe"
_LARGE_BYTES = 4 * MIB


@dataclass(frozen=True)
class Chapter:
    """How the calls of one endpoint are sent and their answers read.

    Parameters
    ----------
    timeout_s
        The limit of one exchange with a call.
    max_bytes
        The largest answer to a call.
    answer
        Reads a good answer: call, reply, region, `time.perf_counter` at the beginning.
    accept
        What a good answer is: the header ``Accept``.
    """

    timeout_s: Callable[[Call[Any]], float]
    max_bytes: Callable[[Call[Any]], int]
    answer: Callable[[Call[Any], Reply, str, float], Awaitable[Any]]
    accept: str = "application/json"


class Client:
    """Calls to one service, with one key, from one event loop.

    Parameters
    ----------
    settings
        Where the service is; by default what :func:`speechframe.settings.resolve` finds.
    api_key, base_url, regions
        Override single settings.
    timeouts, bounds, patience
        Time limits, largest answers, and how long ``call`` keeps trying.
    max_connections
        Connections open at once; a call beyond them waits, and one that waits is known to be unsent.
    transport
        Another way to exchange bytes; aiohttp by default.

    Raises
    ------
    SettingsError
        When no address or no key is configured, or one of them cannot be used.

    Examples
    --------
    >>> import asyncio
    >>> async def main() -> None:
    ...     async with Client(base_url="http://127.0.0.1:8099", api_key="my-key") as client:
    ...         print(client.regions, "my-key" in repr(client))
    >>> asyncio.run(main())
    ('global',) False
    """

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
        api_key = hidden_key(api_key)
        if api_key is not None:
            _header_text(api_key, "the api key")
        settings = _settled(settings, {"api_key": api_key, "base_url": base_url, "regions": regions})
        key = _header_text(settings.api_key, "the api key")
        self._settings = settings
        self._timeouts = timeouts or Timeouts()
        self._bounds = bounds or Bounds()
        self._patience = patience or Patience()
        addresses = settings.addresses()
        self._regions = Regions(addresses)
        self._transport = transport or AiohttpTransport(
            connect_s=self._timeouts.connect_s,
            max_connections=max_connections,
            trust_env=settings.trust_env,
            ca_file=settings.ca_file,
        )
        self._downloader = Downloader(self._transport, addresses.values(), self._bounds.error_bytes)
        self._redactor = Redactor(key)
        self._key_header = {API_KEY_HEADER: key}
        # Base64 audio does not shrink: packing it would cost both ends time.
        self._post_headers = {
            "Accept": _JSON,
            "Accept-Encoding": "identity",
            "Content-Type": _JSON,
            **self._key_header,
        }
        self._urls: dict[tuple[str, str], URL] = {}
        self._chapters: dict[str, Chapter] = {
            "generate": Chapter(
                timeout_s=lambda call: self._timeouts.attempt_s(len(call.request.text)),
                max_bytes=lambda call: self._bounds.answer_bytes_for(call.request),
                answer=self._spoken,
            ),
            "stream": Chapter(
                timeout_s=lambda call: self._timeouts.attempt_s(len(call.request.text)),
                max_bytes=lambda call: self._bounds.stream_bytes_for(call.request),
                answer=self._streamed,
                accept=_ANYTHING,
            ),
            "convert": Chapter(
                timeout_s=lambda call: changer.timeout_s(self._timeouts, call),
                max_bytes=lambda call: changer.most_bytes(self._bounds, call)[0],
                answer=self._changed,
            ),
            "translate": Chapter(
                timeout_s=lambda call: self._timeouts.translation_s(characters_of(call.request)),
                max_bytes=lambda call: min(self._bounds.answer_bytes, largest_answer(call.request)),
                answer=self._translated,
            ),
        }
        self._takes_source: bool | None = None
        self._slots = SharedSlots()
        self._reach = Reach(
            transport=self._transport,
            regions=self._regions,
            patience=self._patience,
            timeouts=self._timeouts,
            bounds=self._bounds,
            redactor=self._redactor,
            url=self._url,
            headers=self._headers_of,
            key_header=self._key_header,
            limits=self.limits,
        )

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
        return self._regions.names

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    async def __aenter__(self) -> Self:
        """Return the client; connections are made when they are needed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self.close()

    async def close(self) -> None:
        """Close every stream, session and connection; further calls raise RuntimeError."""
        for one in list(self._reach.open):
            await one.close()
        await self._transport.close()

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
        """
        name = region if region is not None else self._regions.names[0]
        chapter = self._chapters[call.operation]
        started_s = time.perf_counter()
        try:
            reply = await self._transport.exchange(
                "POST",
                self._url(name, call.operation),
                headers=self._headers_of(call, headers),
                body=call.body,
                timeout_s=chapter.timeout_s(call) if timeout_s is None else timeout_s,
                max_bytes=chapter.max_bytes(call),
                max_error_bytes=self._bounds.error_bytes,
            )
            if not reply.ok:
                raise refusal(reply, self._redactor)
            return await chapter.answer(call, reply, name, started_s)
        except SpeechframeError as error:
            failure = without_secrets(error, self._redactor)
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

        spoken, attempts = await persist(send, self._regions, self._patience)
        return spoken if attempts == 1 else replace(spoken, attempts=attempts)

    async def generate(
        self,
        text: str,
        *,
        voice: str,
        model: str = "gen2",
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Spoken:
        """Return `text` spoken (sections 2.1 and 4.1).

        Parameters
        ----------
        text
            The text; may hold pause markers such as ``[pause 1.5s]``.
        voice
            Full voice id or bare name.
        model
            ``"gen2"``; the endpoint knows no other.
        take, idempotency_key
            See :class:`Call`.
        **fields
            Any other field of :class:`speechframe.spec.speech.GenerateRequest` by its Python name:
            ``locale``, ``style``, ``rate``, ``pronunciation_dictionary`` ...

        Raises
        ------
        InvalidRows
            A field is unknown or out of range; nothing was sent.
        SpeechframeError
            See :meth:`call`.

        Warns
        -----
        DeprecationWarning
            For a field that the document calls deprecated.
        """
        made = make_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        spoken: Spoken = await self.call(made)
        return spoken

    async def stream(
        self,
        text: str,
        *,
        voice: str,
        model: str | None = None,
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Stream:
        """Return `text` as audio that is heard while it arrives (sections 2.2 and 4.1).

        The stream is returned when its first audio is there: until then failures are retried as
        :meth:`call` does it, and never afterwards.

        Parameters
        ----------
        text
            The text; may hold pause markers such as ``[pause 1.5s]``.
        voice
            Full voice id or bare name, from the model's catalogue.
        model
            ``"falcon-2"`` or ``"gen2"`` (deprecated here); by default what the region takes: falcon-2 in all
            but US-East.
        take, idempotency_key
            See :class:`Call`.
        **fields
            Any other field of :class:`speechframe.spec.speech.StreamRequest` by its Python name:
            ``format``, ``sample_rate``, ``channel_type``, ``locale``, ``style``, ``rate``, ``pitch`` ...

        Raises
        ------
        InvalidRows
            A field is unknown or out of range; nothing was sent.
        SpeechframeError
            See :meth:`call`. Once audio has come, :class:`StreamBroken`, from the stream.

        Warns
        -----
        DeprecationWarning
            For a field that the document calls deprecated.

        Examples
        --------
        >>> stream = await client.stream("Good morning.", voice="ivy", format="MP3")  # doctest: +SKIP
        >>> async for chunk in stream:  # doctest: +SKIP
        ...     player.write(chunk)
        """
        call = make_stream_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        return await start(self._reach, call)

    def stream_session(
        self, *, voice: str | None = None, max_contexts: int | None = None, **fields: Any
    ) -> StreamSession:
        """Return a session over the WebSocket: text as it is written, many turns at once (sections 3 and 6).

        Parameters
        ----------
        voice
            Full voice id or bare name of all turns that name none; the service's default voice without.
        max_contexts
            How many turns of this client may be active at once; by default what the service publishes for
            the key, else the document's number for the region.
        **fields
            ``model``, ``format``, ``sample_rate``, ``channel_type``; ``locale``, ``style``, ``rate``,
            ``pitch``, ``variation``, ``pronunciation_dictionary``; ``min_buffer_size``,
            ``max_buffer_delay_in_ms``, ``predictive_chunking``.

        Raises
        ------
        InvalidRows
            A field is unknown or out of range.

        Examples
        --------
        >>> async with client.stream_session(voice="ivy", format="PCM") as session:  # doctest: +SKIP
        ...     async for chunk in session.speak(tokens):
        ...         player.write(chunk)
        """
        return StreamSession(self._reach, self._slots, voice=voice, max_contexts=max_contexts, **fields)

    async def change_voice(
        self,
        audio: AudioLike,
        *,
        voice: str,
        locale: str | None = None,
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Spoken:
        """Return a clip in another voice (sections 2.5 and 4.2).

        Parameters
        ----------
        audio
            The bytes of an audio file, the path of one (it is read piece by piece while it is sent), or
            ``(array, rate in Hz)``: floats in [-1, 1] or int16, ``(frames,)`` or ``(frames, channels)``.
        voice
            Full voice id or bare name.
        locale
            Language of the output, the field ``multi_native_locale``.
        take, idempotency_key
            See :class:`Call`.
        **fields
            Any other field of :class:`speechframe.spec.changer.ConvertRequest` by its name: ``pitch``,
            ``retain_accent``, ``return_transcription``, ``format`` ...

        Raises
        ------
        InvalidRows
            A field is unknown or out of range, or the clip is no audio; nothing was sent.
        AudioError
            The file has changed or gone while it was to be sent.
        SpeechframeError
            See :meth:`call`.
        """
        made = await asyncio.to_thread(
            partial(
                changer.make_change,
                audio, voice=voice, locale=locale, take=take, idempotency_key=idempotency_key, **fields,
            )
        )  # fmt: skip
        changed: Spoken = await self.call(made)
        return changed

    async def translate(
        self,
        texts: Sequence[str],
        *,
        target: str,
        source: str | None = None,
        idempotency_key: str | None = None,
    ) -> Translated:
        """Return `texts` translated, in their order (section 2.6).

        Parameters
        ----------
        texts
            A list of texts (one string is a list of one).
        target
            The language wanted: a code or locale in any spelling (``"fr-FR"``, ``"fr_fr"``).
        source
            The language of the texts. The document has no such field: it is sent to a service that
            says in its limits that it takes it, and no other.
        idempotency_key
            See :class:`Call`.

        Raises
        ------
        InvalidRows
            Before anything is sent, when texts or languages cannot be; ``problems`` has every one.
        SpeechframeError
            As :meth:`call`. An unknown pair of languages is a ``BadRequest``, and an answer whose texts are
            not those that were sent, in their order, is a ``BadAnswer``.

        Examples
        --------
        >>> answer = await client.translate(["Good morning."], target="pt-BR")  # doctest: +SKIP
        >>> answer.translations, answer.routes  # doctest: +SKIP
        (('Bom dia.',), ('en>pt-BR',))
        """
        made = make_translate_call(texts, target=target, source=source, idempotency_key=idempotency_key)
        if source is not None and not await self._is_told_sources():
            made = without_source(made)
        found: Translated = await self.call(made)
        return found

    async def voices(self, model: str = "gen2", *, token: str | SecretStr | None = None) -> list[Voice]:
        """Return the voices of a model's catalogue (sections 2.4 and 4.1).

        Parameters
        ----------
        model
            ``"gen2"`` or ``"falcon-2"``; the catalogues differ.
        token
            A token from :meth:`token`; it is then sent instead of the key.

        Raises
        ------
        SpeechframeError
            See :meth:`call`. Listing costs nothing, so that dropped connections are retried as well.
        """
        token = hidden_key(token)
        secret = None if token is None else {TOKEN_HEADER: _header_text(token, "the token")}
        reply = await self._get("voices", {"model": model}, secret)
        return self._decoded(decode_voices, reply)

    async def token(self) -> AuthToken:
        """Return a short-lived token in exchange for the key (sections 2.7 and 4.4).

        Raises
        ------
        SpeechframeError
            See :meth:`call`; a bad key is :class:`PermissionDenied`.
        """
        return self._decoded(decode_token, await self._get("token"))

    async def limits(self) -> dict[str, Any] | None:
        """Return the page of limits of a speechframe service (our addition); None from any other service.

        Raises
        ------
        ServiceError, ConnectionFailed
            When the service cannot be reached or is too busy to say.
        """
        try:
            page = self._decoded(decode_object, await self._get("limits"))
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
            if region not in self._regions.names:
                raise SettingsError(
                    f"there is no region {region!r} here, only {', '.join(self._regions.names)}"
                )
            found = URL(self._regions.address(region) + by_name(endpoint).path)
            self._urls[region, endpoint] = found
        return found

    def _headers_of(self, call: Call[Any], further: Mapping[str, str] | None) -> dict[str, str]:
        accept = self._chapters[call.operation].accept
        is_plain = accept == _JSON and not isinstance(call.body, Body)
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
        headers = {"Accept": _JSON, "Accept-Encoding": "gzip, deflate", **(secret or self._key_header)}
        redactor = Redactor(*self._key_header.values(), *(secret or {}).values())

        async def send(region: str) -> Reply:
            try:
                reply = await self._transport.exchange(
                    "GET",
                    self._url(region, endpoint).with_query(query or {}),
                    headers=headers,
                    timeout_s=self._timeouts.base_s,
                    max_bytes=self._bounds.listing_bytes,
                    max_error_bytes=self._bounds.error_bytes,
                )
                if reply.ok:
                    return reply
                error: SpeechframeError = refusal(reply, redactor)
            except SpeechframeError as raised:
                error = raised
            raise without_secrets(error, redactor)

        reply, _ = await persist(send, self._regions, replace(self._patience, repeat_unknown=True))
        return reply

    async def _spoken(
        self, call: Call[GenerateRequest], reply: Reply, region: str, started_s: float
    ) -> Spoken:
        text = call.request.text
        return await self._heard(
            call,
            reply,
            region,
            started_s,
            decode=partial(decode_generate, characters=len(text)),
            billed_characters=billed_characters(text),
            max_file_bytes=self._bounds.download_bytes_for(call.request),
        )

    async def _changed(
        self, call: Call[ConvertRequest], reply: Reply, region: str, started_s: float
    ) -> Spoken:
        return await self._heard(
            call,
            reply,
            region,
            started_s,
            decode=decode_convert,
            billed_characters=changer.billed_for(changer.upload_in(call)),
            max_file_bytes=changer.most_bytes(self._bounds, call)[1],
        )

    async def _heard(
        self,
        call: Call[Any],
        reply: Reply,
        region: str,
        started_s: float,
        *,
        decode: Callable[[bytes], Generated | Converted],
        billed_characters: int,
        max_file_bytes: int,
    ) -> Spoken:
        trace_id = trace_id_of(reply.headers)
        said: Generated | Converted | None = None
        try:
            said = await _aside(len(reply.body), partial(decode, reply.body))
            audio = said.audio
            if audio is None:
                audio = await self._downloader.fetch(
                    said.audio_url or "",
                    self._url(region, call.operation),
                    timeout_s=self._timeouts.download_s,
                    max_bytes=max_file_bytes,
                )
            look = partial(inspected, audio, call.request, said.audio_seconds)
            info, differences = await _aside(len(audio), look)
        except BadAnswer as error:
            # Whatever came on this connection, nothing more is expected of it.
            reply.drop()
            error.trace_id = trace_id
            if said is not None:
                error.remaining_characters = said.remaining_characters
            raise
        warnings = warnings_of(reply.headers, said.warning, *said.notes, *differences)
        heard = said.transcription if isinstance(said, Converted) else None
        return Spoken(
            audio=audio,
            format=info.format,
            sample_rate_hz=info.sample_rate_hz,
            channels=info.channels,
            audio_seconds=info.audio_seconds,
            words=said.words if isinstance(said, Generated) else [],
            billed_characters=billed_characters,
            remaining_characters=said.remaining_characters,
            warnings=tuple(map(self._redactor.clean, warnings)),
            trace_id=None if trace_id is None else self._redactor.clean(trace_id),
            latency_ms=(time.perf_counter() - started_s) * 1000,
            region=region,
            said_seconds=said.audio_seconds,
            transcription=None if heard is None else self._redactor.clean(heard),
        )

    async def _streamed(
        self, call: Call[StreamRequest], reply: Reply, region: str, started_s: float
    ) -> Spoken:
        trace_id = trace_id_of(reply.headers)
        try:
            look = partial(whole_audio, reply, call.request)
            audio, info, differences = await _aside(len(reply.body), look)
        except BadAnswer as error:
            # Whatever came on this connection, nothing more is expected of it.
            reply.drop()
            error.trace_id = trace_id
            raise
        warnings = warnings_of(reply.headers, None, *differences)
        return Spoken(
            audio=audio,
            format=info.format,
            sample_rate_hz=info.sample_rate_hz,
            channels=info.channels,
            audio_seconds=info.audio_seconds,
            words=[],
            billed_characters=billed_characters(call.request.text),
            remaining_characters=None,
            warnings=tuple(map(self._redactor.clean, warnings)),
            trace_id=None if trace_id is None else self._redactor.clean(trace_id),
            latency_ms=(time.perf_counter() - started_s) * 1000,
            region=region,
        )

    async def _translated(
        self, call: Call[TranslateRequest], reply: Reply, region: str, started_s: float
    ) -> Translated:
        request, trace_id = call.request, trace_id_of(reply.headers)
        try:
            said = await _aside(len(reply.body), partial(decode_translate, reply.body, request.texts))
        except BadAnswer as error:
            # Whatever came on this connection, nothing more is expected of it.
            reply.drop()
            error.trace_id = trace_id
            raise
        warnings = warnings_of(reply.headers, None, *said.notes)
        return translated(
            said,
            request,
            map(self._redactor.clean, warnings),
            trace_id=None if trace_id is None else self._redactor.clean(trace_id),
            latency_ms=(time.perf_counter() - started_s) * 1000,
            region=region,
        )

    async def _is_told_sources(self) -> bool:
        if self._takes_source is None:
            self._takes_source = takes_source(await self.limits() or {})
        return self._takes_source

    def _decoded(self, decode: Callable[[bytes], T], reply: Reply) -> T:
        try:
            return decode(reply.body)
        except BadAnswer as error:
            reply.drop()
            error.trace_id = trace_id_of(reply.headers)
            failure = without_secrets(error, self._redactor)
        raise failure


async def _aside(size: int, work: Callable[[], T]) -> T:
    """Return what `work` returns; a large answer is looked at in a thread, while other calls go on."""
    return work() if size < _LARGE_BYTES else await asyncio.to_thread(work)


def hidden_key(key: str | SecretStr | None) -> SecretStr | None:
    """Return a key that no repr shows."""
    return SecretStr(Hidden(key)) if isinstance(key, str) else key


def _settled(settings: Settings | None, given: dict[str, Any]) -> Settings:
    given = {name: value for name, value in given.items() if value is not None}
    settled = resolve(**given) if settings is None else replace(settings, **given)
    if settled.api_key is None or not settled.addresses():
        raise SettingsError(
            "a client needs an address and a key: set SPEECHFRAME_BASE_URL and SPEECHFRAME_API_KEY, or pass "
            "base_url and api_key. speechframe.local_service() gives both without any account."
        )
    return settled


def _header_text(secret: SecretStr | None, what: str) -> Hidden:
    text = Hidden("" if secret is None else secret.get_secret_value().strip())
    if not text or not text.isascii() or not text.isprintable():
        # The value itself is never repeated.
        raise SettingsError(f"{what} is empty or holds characters that cannot stand in a header")
    return text
