"""The client: a method for each endpoint of the document; those of dubbing are in `dubbing`."""

import asyncio
from collections.abc import Sequence
from os import PathLike
from typing import Any

from pydantic import SecretStr

from speechframe.client.answers import Spoken, Translated
from speechframe.client.caller import Caller
from speechframe.client.calls import change_call, generate_call, stream_call, translate_call
from speechframe.client.dubbing import Dubbing
from speechframe.client.session import StreamSession
from speechframe.client.stream import Stream, start
from speechframe.settings.hidden import header_text, hidden_key
from speechframe.spec.auth import AuthToken
from speechframe.spec.chosen import TOKEN_HEADER
from speechframe.spec.speech import Voice
from speechframe.wire.speech import decode_token, decode_voices
from speechframe.wire.turns import Slots

AudioLike = bytes | str | PathLike[str] | tuple[Any, int]
"""A clip: the bytes of a file, the path of one, or an array and its rate in Hz."""


class Client(Caller):
    """Calls to one service, with one key, from one event loop.

    Every method raises :class:`InvalidRows` before anything is sent where a field is unknown or out of range,
    and else what :meth:`call` raises. `take` and `idempotency_key` are those of :class:`Call`. Methods warn
    with a DeprecationWarning of fields that the document calls deprecated.

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

    @property
    def dubbing(self) -> Dubbing:
        """The dubbing calls (section 4.5)."""
        return Dubbing(self)

    _takes_source: bool | None = None
    """Whether the service takes the language of texts to translate; None until it was asked."""
    _slots: Slots | None = None
    """The turns that are active in all sessions, from the first session on; a cap of 0 is not known yet."""

    async def generate(
        self,
        /,
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
        **fields
            Any other field of :class:`speechframe.spec.speech.GenerateRequest` by its Python name:
            ``locale``, ``style``, ``rate``, ``pronunciation_dictionary`` ...
        """
        made = generate_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        spoken: Spoken = await self.call(made)
        return spoken

    async def stream(
        self,
        /,
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
        :meth:`call` does it, and never afterwards; then the stream raises :class:`StreamBroken`.

        Parameters
        ----------
        text, voice
            As of :meth:`generate`; the voice is one of the model's catalogue.
        model
            ``"falcon-2"`` or ``"gen2"`` (deprecated here); by default what the region takes (section 2.2).
        **fields
            Any other field of :class:`speechframe.spec.speech.StreamRequest` by its Python name:
            ``format``, ``sample_rate``, ``channel_type``, ``locale``, ``style``, ``rate``, ``pitch`` ...

        Examples
        --------
        >>> stream = await client.stream("Good morning.", voice="ivy", format="MP3")  # doctest: +SKIP
        >>> async for chunk in stream:  # doctest: +SKIP
        ...     player.write(chunk)
        """
        call = stream_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        return await start(self, call)

    def stream_session(
        self, /, *, voice: str | None = None, max_contexts: int | None = None, **fields: Any
    ) -> StreamSession:
        """Return a session over the WebSocket: text as it is written, many turns at once (sections 3 and 6).

        Parameters
        ----------
        voice
            Full voice id or bare name of all turns that name none; the service's default voice without.
        max_contexts
            How many turns of this client may be active at once (at least 1, else ValueError); by default what
            the service publishes for the key, else the document's number for the region.
        **fields
            ``model``, ``format``, ``sample_rate``, ``channel_type``; ``locale``, ``style``, ``rate``,
            ``pitch``, ``variation``, ``pronunciation_dictionary``; ``min_buffer_size``,
            ``max_buffer_delay_in_ms``, ``predictive_chunking``.

        Examples
        --------
        >>> async with client.stream_session(voice="ivy", format="PCM") as session:  # doctest: +SKIP
        ...     async for chunk in session.speak(tokens):
        ...         player.write(chunk)
        """
        slots = self._slots = self._slots or Slots(0)
        session = StreamSession(self, slots, {"voice_id": voice, **fields})
        if max_contexts is not None:
            if max_contexts < 1:
                raise ValueError(f"max_contexts is 1 or more, not {max_contexts}")
            slots.cap = max_contexts
        return session

    async def change_voice(
        self,
        /,
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
        **fields
            Any other field of :class:`speechframe.spec.changer.ConvertRequest` by its name: ``pitch``,
            ``retain_accent``, ``return_transcription``, ``format`` ...

        Raises
        ------
        AudioError
            The file has changed or gone while it was to be sent.
        """
        asked = {"voice": voice, "locale": locale, "take": take, "idempotency_key": idempotency_key, **fields}
        changed: Spoken = await self.call(await asyncio.to_thread(change_call, audio, **asked))
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
            says in its limits that it takes it, and to no other.

        Raises
        ------
        SpeechframeError
            As :meth:`call`. An unknown pair of languages is a ``BadRequest``, and an answer that lacks the
            translation of a text is a ``BadAnswer``: texts are told apart by what the answer says was their
            source.

        Examples
        --------
        >>> answer = await client.translate(["Good morning."], target="pt-BR")  # doctest: +SKIP
        >>> answer.translations, answer.routes  # doctest: +SKIP
        (('Bom dia.',), ('en>pt-BR',))
        """
        made = translate_call(texts, target=target, source=source, idempotency_key=idempotency_key)
        if source is not None:
            if self._takes_source is None:
                self._takes_source = (await self.limits() or {}).get("source_language") is True
            if not self._takes_source:
                made = translate_call(texts, target=target, idempotency_key=idempotency_key)
        found: Translated = await self.call(made)
        return found

    async def voices(self, model: str = "gen2", *, token: str | SecretStr | None = None) -> list[Voice]:
        """Return the voices of the catalogue of a model, ``"gen2"`` or ``"falcon-2"`` (sections 2.4 and 4.1).

        A `token` from :meth:`token` is sent instead of the key. Listing costs nothing, so that dropped
        connections are retried as well.
        """
        token = hidden_key(token)
        secret = None if token is None else {TOKEN_HEADER: header_text(token, "the token")}
        return await self.get("voices", decode_voices, {"model": model}, secret)

    async def token(self) -> AuthToken:
        """Return a short-lived token in exchange for the key (2.7 and 4.4); a bad key is PermissionDenied."""
        return await self.get("token", decode_token)
