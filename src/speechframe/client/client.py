"""The client, with a method for each endpoint of the service document except those of dubbing."""

import asyncio
from collections.abc import Sequence
from os import PathLike
from typing import Any

from pydantic import SecretStr

from speechframe.client.answers import Spoken, Translated
from speechframe.client.caller import Caller
from speechframe.client.calls import prepare_convert, prepare_generate, prepare_stream, prepare_translate
from speechframe.client.dubbing import Dubbing
from speechframe.client.masking import Redactor
from speechframe.client.session import StreamSession
from speechframe.client.stream import Stream, start_stream
from speechframe.settings.hidden import make_header_text, wrap_key
from speechframe.spec.auth import AuthToken
from speechframe.spec.chosen import TOKEN_HEADER
from speechframe.spec.speech import Voice
from speechframe.wire.speech import decode_token, decode_voices
from speechframe.wire.turns import TurnSlots

AudioLike = bytes | str | PathLike[str] | tuple[Any, int]
"""A clip as the bytes of a file, the path of a file, or a pair of an array and its rate in Hz."""


class Client(Caller):
    """Calls to one service, with one key, from one event loop.

    If a field is unknown or out of range, every method raises :class:`InvalidRows` before anything is sent.
    Other errors are those of :meth:`call`. :class:`PreparedCall` describes `take` and `idempotency_key`.
    Methods issue a DeprecationWarning for fields that the service document calls deprecated.

    Parameters
    ----------
    settings
        Address, key and regions. The default is the result of :func:`speechframe.settings.resolve_settings`.
    api_key, base_url, regions
        Replace single settings.
    timeouts, bounds, patience
        Time limits, largest answers, and limits of the retries.
    max_connections
        Largest number of open connections. Further calls wait, and a waiting call is certainly unsent.

    Raises
    ------
    SettingsError
        If an address or key is missing or invalid.

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
    """True if the service accepts the language of texts to translate. None until its limits were read."""
    _slots: TurnSlots | None = None
    """Counts the active turns of all sessions. None before the first session. A cap of 0 is unknown."""

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
        """Return `text` as speech, when all of it has arrived (sections 2.1 and 4.1 of the service document).

        Parameters
        ----------
        text
            The text. It may contain pause markers such as ``[pause 1.5s]``.
        voice
            Full voice id or bare name.
        model
            ``"gen2"``, the only model of this endpoint.
        **fields
            Any other field of :class:`speechframe.spec.speech.GenerateRequest` by its Python name:
            ``locale``, ``style``, ``rate``, ``pronunciation_dictionary`` ...
        """
        made = prepare_generate(
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
        """Return `text` as audio that can be played while it arrives (sections 2.2 and 4.1).

        The method returns when the first audio has arrived. Earlier failures are retried like those of
        :meth:`call`. After a later failure the stream raises :class:`StreamBroken`.

        Parameters
        ----------
        text, voice
            As in :meth:`generate`. The voice must be in the model's catalogue.
        model
            ``"falcon-2"`` or ``"gen2"`` (deprecated here). The default is the region's model (section 2.2).
        **fields
            Any other field of :class:`speechframe.spec.speech.StreamRequest` by its Python name:
            ``format``, ``sample_rate``, ``channel_type``, ``locale``, ``style``, ``rate``, ``pitch`` ...

        Examples
        --------
        >>> stream = await client.stream("Good morning.", voice="ivy", format="MP3")  # doctest: +SKIP
        >>> async for chunk in stream:  # doctest: +SKIP
        ...     player.write(chunk)
        """
        call = prepare_stream(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        return await start_stream(self, call)

    def stream_session(
        self, /, *, voice: str | None = None, max_contexts: int | None = None, **fields: Any
    ) -> StreamSession:
        """Return a session for many turns, a text with its speech each, over a WebSocket (sections 3 and 6).

        Parameters
        ----------
        voice
            Full voice id or bare name, for turns without a voice. The default is the service's default voice.
        max_contexts
            Largest number of active turns of this client, at least 1. The default is the published number
            for the key, or else the document's number for the region. A smaller number is a ValueError.
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
        slots = self._slots = self._slots or TurnSlots(0)
        session = StreamSession(self, slots, {"voice_id": voice, **fields})
        if max_contexts is not None:
            if max_contexts < 1:
                raise ValueError(f"max_contexts is {max_contexts}; allowed: 1 or more")
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
            The bytes of an audio file, the path of a file, or ``(array, rate in Hz)``. A file is read piece
            by piece while it is sent. An array has floats in [-1, 1] or int16, and the shape ``(frames,)`` or
            ``(frames, channels)``.
        voice
            Full voice id or bare name.
        locale
            Language of the output, sent as the field ``multi_native_locale``.
        **fields
            Any other field of :class:`speechframe.spec.changer.ConvertRequest` by its name: ``pitch``,
            ``retain_accent``, ``return_transcription``, ``format`` ...

        Raises
        ------
        AudioError
            If the file cannot be read any more, or has changed since its check.
        """
        given = {"voice": voice, "locale": locale, "take": take, "idempotency_key": idempotency_key, **fields}
        changed: Spoken = await self.call(await asyncio.to_thread(prepare_convert, audio, **given))
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
            A list of texts, or one text.
        target
            The language of the translations, as a code or locale in any spelling (``"fr-FR"``, ``"fr_fr"``).
        source
            The language of the texts. The service document lacks this field, so it is sent only to services
            whose published limits list it.

        Raises
        ------
        SpeechframeError
            As in :meth:`call`. An unknown pair of languages is a ``BadRequest``. An answer that lacks the
            translation of a text is a ``BadAnswer``. Each translation is matched to its text by the source
            text in the answer.

        Examples
        --------
        >>> answer = await client.translate(["Good morning."], target="pt-BR")  # doctest: +SKIP
        >>> answer.translations, answer.routes  # doctest: +SKIP
        (('Bom dia.',), ('en>pt-BR',))
        """
        made = prepare_translate(texts, target=target, source=source, idempotency_key=idempotency_key)
        if source is not None:
            if self._takes_source is None:
                self._takes_source = (await self.limits() or {}).get("source_language") is True
            if not self._takes_source:
                made = prepare_translate(texts, target=target, idempotency_key=idempotency_key)
        found: Translated = await self.call(made)
        return found

    async def voices(self, model: str = "gen2", *, token: str | SecretStr | None = None) -> list[Voice]:
        """Return the voices in the catalogue of a model, ``"gen2"`` or ``"falcon-2"`` (sections 2.4 and 4.1).

        A `token` from :meth:`token`, if given, is sent instead of the key. A listing is free, so it is
        retried even if a connection fails after the request was sent.
        """
        token = wrap_key(token)
        headers, redactor = self.key_header, self.redactor
        if token is not None:
            headers = {TOKEN_HEADER: make_header_text(token, "the token")}
            redactor = Redactor(*self.key_header.values(), *headers.values())
        query = {"model": model}
        return await self.read("voices", decode_voices, headers, query=query, redactor=redactor)

    async def token(self) -> AuthToken:
        """Return a short-lived token for the key (2.7 and 4.4). PermissionDenied if the key is invalid."""
        return await self.read("token", decode_token, self.key_header)
