"""The verb `say`, which speaks one text without a run."""

from typing import TYPE_CHECKING, Any

from speechframe.audio.clip import Clip
from speechframe.backends.speech import WIRE_OF_ARGUMENT
from speechframe.batch.backend import Request
from speechframe.errors import InvalidRows, make_problem
from speechframe.spec.billing import convert_to_credits
from speechframe.spec.check import FieldProblem
from speechframe.spec.speech import Format
from speechframe.verbs.generate import GenerateBackend

if TYPE_CHECKING:
    from speechframe.client import Spoken


async def say(
    text: str, voice: str, *, format: str = Format.FLAC.value, service: Any = None, **fields: Any
) -> Clip:
    """Return one text as speech, in a clip that plays in a notebook.

    Parameters
    ----------
    text
        The text. It may contain pause markers such as ``[pause 1s]``.
    voice
        Full voice id or bare name. The error for an unknown voice lists the nearest names.
    format
        ``FLAC`` (default), ``WAV``, ``MP3``, ``OGG``, ``PCM``, ``ALAW`` or ``ULAW``.
    service
        The service: :class:`Settings` or a local service. The default is the configured service.
    **fields
        Any other argument of :func:`generate`, such as ``locale`` or ``rate``, and ``take``.

    Raises
    ------
    InvalidRows
        If an argument is unknown or out of range. Nothing was spent.
    ServiceError, ConnectionFailed, SettingsError
        If the service refuses the call, cannot be reached, or is not configured.

    Examples
    --------
    >>> clip = say("Good morning.", voice="nora")  # doctest: +SKIP
    >>> clip.save("morning.wav")  # doctest: +SKIP
    """
    if unknown := sorted(set(fields) - set(WIRE_OF_ARGUMENT) - {"take"}):
        allowed = ", ".join(sorted(WIRE_OF_ARGUMENT))
        raise InvalidRows(
            [make_problem(name, "is not an argument of say()", allowed=allowed) for name in unknown]
        )
    take = fields.pop("take", None) or 0
    given = {"text": text, "voice": voice, "format": format, **fields}
    backend = GenerateBackend(service, fields)
    try:
        await backend.open()
        checked = backend.check({name: value for name, value in given.items() if value is not None})
        if not isinstance(checked, Request):
            found = checked if isinstance(checked, list) else [FieldProblem("text", checked.reason)]
            raise InvalidRows(
                [make_problem(p.field, p.problem, value=p.value, allowed=p.allowed) for p in found]
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
        convert_to_credits(checked.price),
        answer.warnings,
    )
