"""The verbs, async: the code behind the functions people type.

``speechframe.generate`` is ``sync(aio.generate)``; in an async program use
these. Here, and nowhere below, "no key and no address" becomes the embedded
local service.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from speechframe import settings as _settings
from speechframe.errors import InvalidRows, SettingsError
from speechframe.local import LocalService, shared_service
from speechframe.old_batch import aligning as _aligning
from speechframe.old_batch import change_voice as _change_voice
from speechframe.old_batch import generate as _generate
from speechframe.old_batch import resume as _resume
from speechframe.old_batch import translate as _translate
from speechframe.old_batch.clip import Clip
from speechframe.old_batch.connection import Connection
from speechframe.old_batch.naming import argument_of
from speechframe.old_batch.speech_fields import ARGUMENTS
from speechframe.old_batch.table import problem
from speechframe.old_batch.verbs import VERBS, model_of
from speechframe.old_client import Client, Stream
from speechframe.old_client.pieces import Pieces
from speechframe.settings import Settings
from speechframe.settings.hidden import without_keys
from speechframe.spec.billing import to_credits
from speechframe.spec.locales import is_within, nearest
from speechframe.spec.speech import Format, Model, Voice

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
T = TypeVar("T")

ServiceLike = Settings | LocalService | None
"""What ``service=`` takes: a hosted service's settings, a running local one, or None: what is configured."""


async def resolve_service(service: Any = None) -> Settings:
    """Return where calls go: `service`, else what is configured, else this process's embedded local service.

    Parameters
    ----------
    service
        :class:`Settings`, a :class:`LocalService`, or None.

    Raises
    ------
    SettingsError
        When what is configured is incomplete, or the local service cannot start.
    """
    if isinstance(service, Settings):
        return service
    if isinstance(service, LocalService):
        return service.settings
    if isinstance(found := getattr(service, "settings", None), Settings):
        # Whatever serves and says where: a service of the user's own tests, for instance.
        return found
    if service is not None:
        raise SettingsError(
            f"service={without_keys(service)!r} is no service; allowed: Settings(...), a local_service(), "
            "or None"
        )
    found = _settings.resolve()
    if not found.is_local:
        return found
    started = await asyncio.to_thread(shared_service, found.service)
    return started.settings


def _with_service(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    @functools.wraps(function)
    async def resolved(*args: P.args, **kwargs: P.kwargs) -> T:
        kwargs["service"] = await resolve_service(kwargs.get("service"))
        return await function(*args, **kwargs)

    resolved.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return resolved


def __getattr__(name: str) -> Any:
    # A verb that is declared elsewhere (by a plug-in, by a test) appears here by itself.
    if name in VERBS:
        return _with_service(VERBS[name].function)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _make_aligner() -> _aligning.Aligner:
    from speechframe.analysis.alignment import WordAligner

    return WordAligner.installed()


# The one place that knows both runs and what listens to them.
_aligning.provide(_make_aligner)

generate = _with_service(_generate.generate)
change_voice = _with_service(_change_voice.change_voice)
translate = _with_service(_translate.translate)
resume = _with_service(_resume.resume)
changes = _with_service(_resume.changes)


async def say(
    text: str,
    voice: str,
    *,
    format: str = Format.FLAC.value,
    service: ServiceLike = None,
    **fields: Any,
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
        Where to say it; see :func:`resolve_service`.
    **fields
        Any other argument of :func:`generate`: ``locale``, ``style``, ``rate``, ``pitch``, ``variation``,
        ``take`` ...

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
    unknown = sorted(set(fields) - set(ARGUMENTS) - {"take"})
    if unknown:
        allowed = ", ".join(sorted(ARGUMENTS))
        raise InvalidRows([problem(name, "is no argument of say()", allowed=allowed) for name in unknown])
    model = model_of(fields.get("model"))
    async with await Connection.open(await resolve_service(service), model=model) as connection:
        operation = VERBS["generate"].operation_of(model).on(connection.service)
        take = fields.pop("take", 0)
        given = {"text": text, "voice": voice, "format": format, **fields}
        checked = operation.check({k: v for k, v in given.items() if v is not None}, take)
        if checked.planned is None:
            raise InvalidRows(
                [
                    problem(argument_of(p.field, operation), p.problem, value=p.value, allowed=p.allowed)
                    for p in checked.problems
                ]
            )
        planned = checked.planned
        answer = await connection.client.call(planned.call)
        cost = to_credits(planned.millicredits)
        return Clip.of(answer, text=text, voice_id=planned.voice_id, credits=cost)


async def stream(
    text: Pieces,
    *,
    voice: str,
    model: str | None = None,
    service: ServiceLike = None,
    **fields: Any,
) -> Stream:
    """Return speech that is heard while it is still being made, from a text or from one still being written.

    Parameters
    ----------
    text
        What to say, with pause markers such as ``[pause 1s]``. Or an iterable of pieces of text, async or
        not, such as the tokens of a language model: they are spoken as they come, over the WebSocket. An
        iterable that blocks is waited for in a thread.
    voice
        Full voice id or bare name, of the model's catalogue: ``voices("falcon-2")`` lists it.
    model
        ``"falcon-2"`` or ``"gen2"`` (deprecated here); by default what the region takes (section 2.2).
    service
        Where to say it; see :func:`resolve_service`.
    **fields
        ``format`` (``WAV`` by default), ``sample_rate``, ``channel_type``, ``locale``, ``style``, ``rate``,
        ``pitch``, ``variation``, ``pronunciation_dictionary``. For pieces also ``min_buffer_size``,
        ``max_buffer_delay_in_ms`` and ``predictive_chunking``; for a text also ``take`` and
        ``idempotency_key``.

    Returns
    -------
    Stream
        To be iterated, read or saved. ``speechframe.stream`` returns a :class:`SyncStream`, of which the same
        is asked without ``await``. Leaving its loop closes the connection.

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
    client = Client(await resolve_service(service))
    try:
        if isinstance(text, str):
            found = await client.stream(text, voice=voice, model=model, **fields)
        else:
            session = client.stream_session(voice=voice, model=model, **fields)
            found = session.speak(text).owning(session.close)
    except BaseException:
        await client.close()
        raise
    return found.owning(client.close)


async def voices(
    model: str = Model.GEN2.value, *, locale: str | None = None, service: ServiceLike = None
) -> "pd.DataFrame":
    """Return the voices of a catalogue, one a line (sections 2.4 and 4.1 of the service document).

    Parameters
    ----------
    model
        ``"gen2"`` or ``"falcon-2"``; their catalogues are separate.
    locale
        Only voices that speak this locale (``"fr-FR"``) or language (``"fr"``); those whose own it is
        come first.
    service
        Whose voices; see :func:`resolve_service`.

    Returns
    -------
    pandas.DataFrame
        ``voice_id name gender locale styles supported_locales description``; ``styles`` are those of the
        voice's own locale.

    Raises
    ------
    ServiceError, ConnectionFailed, SettingsError, InvalidRows
        When the service cannot be asked, or there is no such model or no voice of this locale.
    """
    import pandas as pd

    try:
        Model(model)
    except ValueError:
        raise InvalidRows(
            [problem("model", "is no model", value=model, allowed=", ".join(m.value for m in Model))]
        ) from None
    async with Client(await resolve_service(service)) as client:
        found = await client.voices(model)
    if locale is not None:
        found = _speaking(found, locale)
    columns = ["voice_id", "name", "gender", "locale", "styles", "supported_locales", "description"]
    return pd.DataFrame(map(_line, found), columns=columns)


def _line(voice: Voice) -> tuple[Any, ...]:
    own = voice.supported_locales.get(voice.locale or "")
    styles = own.available_styles if own is not None else []
    gender = None if voice.gender is None else str(voice.gender)
    return (
        voice.voice_id,
        voice.display_name,
        gender,
        voice.locale,
        styles,
        list(voice.supported_locales),
        voice.description,
    )


def _speaking(found: list[Voice], locale: str) -> list[Voice]:
    speaking = [
        v for v in found if any(is_within(tag, locale) for tag in (v.locale or "", *v.supported_locales))
    ]
    if not speaking:
        spoken = sorted({v.locale for v in found if v.locale})
        close = nearest(locale, spoken) or spoken
        raise InvalidRows(
            [problem("locale", "is spoken by no voice", value=locale, allowed=", ".join(close))]
        )
    return sorted(speaking, key=lambda v: not is_within(v.locale or "", locale))
