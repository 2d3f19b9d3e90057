"""One line at once: `say`, `stream` and the list of voices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from speechframe.audio.clip import Clip
from speechframe.client import Client, Spoken, Stream
from speechframe.client.session import Pieces
from speechframe.errors import InvalidRows
from speechframe.spec.billing import to_credits
from speechframe.spec.locales import is_within, nearest
from speechframe.spec.speech import Format, Model, Voice
from speechframe.tables.table import problem
from speechframe.verbs.generate import ARGUMENTS, GenerateBackend, model_of

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = [
    *("voice_id", "name", "gender", "locale", "styles", "supported_locales", "description"),
    *("engine", "kind", "licence", "clarity", "clearest_in"),
]


async def say(
    text: str, voice: str, *, format: str = Format.FLAC.value, service: Any = None, **fields: Any
) -> Clip:
    """Return one line spoken, as a clip that plays in a notebook.

    Parameters
    ----------
    text
        What to say; may hold pause markers such as ``[pause 1s]``.
    voice
        Full voice id or bare name; an unknown one is answered with the nearest names.
    format
        ``FLAC`` (default), ``WAV``, ``MP3``, ``OGG``, ``PCM``, ``ALAW`` or ``ULAW``.
    service
        Where to say it; see :class:`Settings`.
    **fields
        Any other argument of :func:`generate`, such as ``locale`` or ``rate``, and ``take``.

    Raises
    ------
    InvalidRows
        When something is out of range or unknown; nothing was spent.
    ServiceError, ConnectionFailed, SettingsError
        When the service refuses, cannot be reached, or is not configured.

    Examples
    --------
    >>> clip = say("Good morning.", voice="nora")  # doctest: +SKIP
    >>> clip.save("morning.wav")  # doctest: +SKIP
    """
    if unknown := sorted(set(fields) - set(ARGUMENTS) - {"take"}):
        allowed = ", ".join(sorted(ARGUMENTS))
        raise InvalidRows([problem(name, "is no argument of say()", allowed=allowed) for name in unknown])
    take = fields.pop("take", None) or 0
    given = {"text": text, "voice": voice, "format": format, **fields}
    backend = GenerateBackend(service, model_of(fields.get("model")))
    try:
        await backend.open()
        checked = backend.check({name: value for name, value in given.items() if value is not None})
        if isinstance(checked, list):
            raise InvalidRows(
                [problem(p.field, p.problem, value=p.value, allowed=p.allowed) for p in checked]
            )
        call = backend.call(checked, take=take if checked.varies else 0)
        answer: Spoken = await backend.client.call(call)
    finally:
        await backend.close()
    return Clip(
        answer.audio,
        answer.format,
        answer.sample_rate_hz,
        answer.channels,
        text,
        tuple(answer.words),
        checked.facts["voice_id"],
        to_credits(checked.price),
        answer.warnings,
    )


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


async def voices(
    model: str = Model.GEN2.value, *, locale: str | None = None, service: Any = None
) -> "pd.DataFrame":
    """Return the voices of a catalogue, one a line (sections 2.4 and 4.1).

    Parameters
    ----------
    model
        ``"gen2"`` or ``"falcon-2"``; their catalogues are separate.
    locale
        Only voices that speak this locale (``"fr-FR"``) or language (``"fr"``); those whose own it is
        come first.
    service
        Whose voices; see :class:`Settings`.

    Returns
    -------
    pandas.DataFrame
        ``voice_id name gender locale styles supported_locales description engine kind licence clarity
        clearest_in``; ``styles`` are those of the voice's own locale. The last five are known of the local
        service alone: ``kind`` is ``neural`` or ``formant``, ``clarity`` the share of words (in Japanese, of
        characters) that a recogniser hears wrong, by locale, and ``clearest_in`` the locales in which no
        other voice of the catalogue was heard better.

    Raises
    ------
    ServiceError, ConnectionFailed, SettingsError, InvalidRows
        When the service cannot be asked, or there is no such model or no voice of this locale.
    """
    import pandas as pd

    models = [each.value for each in Model]
    if model not in models:
        raise InvalidRows([problem("model", "is no model", value=model, allowed=", ".join(models))])
    async with Client(service) as client:
        found = await client.voices(model)
    clearest = _clearest(found)
    if locale is not None:
        spoken = sorted({voice.locale for voice in found if voice.locale})
        found = [
            v for v in found if any(is_within(t, locale) for t in (v.locale or "", *v.supported_locales))
        ]
        if not found:
            allowed = ", ".join(nearest(locale, spoken) or spoken)
            raise InvalidRows([problem("locale", "is spoken by no voice", value=locale, allowed=allowed)])
        found.sort(key=lambda voice: not is_within(voice.locale or "", locale))
    lines = [
        (
            voice.voice_id,
            voice.display_name,
            None if voice.gender is None else str(voice.gender),
            voice.locale,
            getattr(voice.supported_locales.get(voice.locale or ""), "available_styles", []),
            list(voice.supported_locales),
            voice.description,
            voice.engine,
            None if voice.kind is None else str(voice.kind),
            voice.licence,
            voice.clarity or {},
            [tag for tag, voice_id in clearest.items() if voice_id == voice.voice_id],
        )
        for voice in found
    ]
    return pd.DataFrame(lines, columns=_COLUMNS)


def _clearest(voices: Sequence[Voice]) -> dict[str, str]:
    """Return the id of the voice with the least error in each locale that one was measured in."""
    best: dict[str, tuple[float, str]] = {}
    for voice in voices:
        for tag, error in (voice.clarity or {}).items():
            best[tag] = min(best.get(tag, (error, voice.voice_id)), (error, voice.voice_id))
    return {tag: voice_id for tag, (_, voice_id) in best.items()}
