"""The verb `stream` returns speech while it is still being made (section 2.2)."""

from typing import Any

from speechframe.client import Client, Stream
from speechframe.client.session import Pieces


async def stream(
    text: Pieces, *, voice: str, model: str | None = None, service: Any = None, **fields: Any
) -> Stream:
    """Return speech that is heard while it is still being made, from a text or from one still being written.

    Parameters
    ----------
    text
        What to say, with pause markers such as ``[pause 1s]``. Or an iterable of pieces of text, async or
        not, such as the tokens of a language model: they are spoken as they come, over the WebSocket. It
        may block.
    voice
        Full voice id or bare name, of the model's catalogue: ``voices("falcon-2")`` lists it.
    model
        ``"falcon-2"`` or ``"gen2"`` (deprecated here); by default what the region takes (section 2.2).
    service
        Where to say it; see :class:`Settings`.
    **fields
        ``format`` (``WAV`` by default), ``sample_rate``, ``channel_type``, ``locale``, ``style``, ``rate``,
        ``pitch``, ``variation``, ``pronunciation_dictionary``; for pieces ``min_buffer_size``,
        ``max_buffer_delay_in_ms``, ``predictive_chunking``; for a text ``take``, ``idempotency_key``.

    Returns
    -------
    Stream
        To be iterated, read or saved; ``speechframe.stream`` returns a :class:`SyncStream`, the same without
        ``await``. Leaving its loop closes the connection.

    Raises
    ------
    InvalidRows
        When something is out of range or unknown; nothing was sent.
    ServiceError, ConnectionFailed, SettingsError
        When the service refuses, cannot be reached, or is not configured. Of pieces, and once audio has
        come, the stream raises them.

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
    return found.owning(client.close)
