"""The verb `stream`, which returns speech while it is still being made.

Section 2.2 of the service document describes the call.
"""

from typing import Any

from speechframe.client import Client, Stream
from speechframe.client.session import Pieces


async def stream(
    text: Pieces, *, voice: str, model: str | None = None, service: Any = None, **fields: Any
) -> Stream:
    """Return speech that can be played while it is made. The text may arrive in pieces.

    Parameters
    ----------
    text
        A text, which may contain pause markers such as ``[pause 1s]``. Or an async or sync iterable of
        pieces of a text, such as the tokens of a language model. Pieces go to a WebSocket, and are spoken as
        they arrive. A sync iterable may block.
    voice
        Full voice id or bare name from the model's catalogue, which ``voices("falcon-2")`` lists.
    model
        ``"falcon-2"`` or ``"gen2"`` (deprecated here). The default is the region's model (section 2.2).
    service
        The service: :class:`Settings` or a local service. The default is the configured service.
    **fields
        ``format`` (default ``WAV``), ``sample_rate``, ``channel_type``, ``locale``, ``style``, ``rate``,
        ``pitch``, ``variation`` and ``pronunciation_dictionary``. Only for pieces: ``min_buffer_size``,
        ``max_buffer_delay_in_ms`` and ``predictive_chunking``. Only for a text: ``take`` and
        ``idempotency_key``.

    Returns
    -------
    Stream
        The audio, which can be iterated, read or saved. Leaving the iteration closes the connection.
        ``speechframe.stream`` returns a :class:`SyncStream`, which works without ``await``.

    Raises
    ------
    InvalidRows
        If an argument is unknown or out of range. Nothing was sent.
    ServiceError, ConnectionFailed, SettingsError
        If the service refuses the call, cannot be reached, or is not configured. Reading the stream raises
        the errors of a text in pieces, and all errors after the first audio.

    Examples
    --------
    >>> for chunk in stream("Good morning.", voice="ivy"):  # doctest: +SKIP
    ...     player.write(chunk)
    >>> stream(tokens, voice="ivy", format="MP3").save("answer.mp3")  # doctest: +SKIP
    """
    client = Client(service)
    try:
        if isinstance(text, str):
            found = await client.stream(text, voice=voice, model=model, **fields)
        else:
            found = client.stream_session(voice=voice, model=model, **fields).speak(text)
    except BaseException:
        await client.close()
        raise
    return found.call_at_end(client.close)
