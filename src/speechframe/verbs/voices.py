"""The verb `voices`, which lists the voices of a catalogue (sections 2.4 and 4.1 of the service document)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from speechframe.client import Client
from speechframe.errors import refuse
from speechframe.spec.locales import find_nearest, is_within
from speechframe.spec.speech import Model, Voice

if TYPE_CHECKING:
    import pandas as pd

_VOICE_COLUMNS = [
    *("voice_id", "name", "gender", "locale", "styles", "supported_locales", "description"),
    *("engine", "kind", "licence", "bandwidth_hz", "output_terms", "clarity", "clearest_in"),
]


async def voices(
    model: str = Model.GEN2.value, *, locale: str | None = None, service: Any = None
) -> "pd.DataFrame":
    """Return the voices of a catalogue, one in each row (sections 2.4 and 4.1).

    Parameters
    ----------
    model
        ``"gen2"`` or ``"falcon-2"``. Each has its own catalogue.
    locale
        Return only voices that speak this locale (``"fr-FR"``) or language (``"fr"``). Voices with this own
        locale come first.
    service
        The service: :class:`Settings` or a local service. The default is the configured service.

    Returns
    -------
    pandas.DataFrame
        ``voice_id name gender locale styles supported_locales description engine kind licence bandwidth_hz
        output_terms clarity clearest_in``. ``styles`` are those of the voice's own locale. Only the local
        service fills the last seven columns. ``kind`` is ``neural`` or ``formant``. ``bandwidth_hz`` is the
        highest frequency of the voice's sound, and a higher sample rate adds no sound above it.
        ``output_terms`` tells what is known about the terms of its audio. ``clarity`` has, for each locale,
        the share of words (in Japanese, of characters) that a recogniser gets wrong. ``clearest_in`` lists
        the locales in which this voice has the smallest share.

    Raises
    ------
    ServiceError, ConnectionFailed, SettingsError, InvalidRows
        If the service cannot be reached, the model is unknown, or no voice speaks the locale.
    """
    import pandas as pd

    models = [each.value for each in Model]
    if model not in models:
        raise refuse("model", "is not a model", value=model, allowed=", ".join(models))
    async with Client(service) as client:
        found = await client.voices(model)
    clearest = _find_clearest(found)
    if locale is not None:
        spoken = sorted({voice.locale for voice in found if voice.locale})
        found = [
            v for v in found if any(is_within(t, locale) for t in (v.locale or "", *v.supported_locales))
        ]
        if not found:
            allowed = ", ".join(find_nearest(locale, spoken) or spoken)
            allowed += "; `speechframe models` shows how to add voices to the local service"
            raise refuse("locale", "is spoken by no voice", value=locale, allowed=allowed)
        found.sort(key=lambda voice: not is_within(voice.locale or "", locale))
    lines = [
        {
            **voice.model_dump(mode="json", by_alias=False),
            "name": voice.display_name,
            "styles": getattr(voice.supported_locales.get(voice.locale or ""), "available_styles", []),
            "supported_locales": list(voice.supported_locales),
            "clarity": voice.clarity or {},
            "clearest_in": [tag for tag, voice_id in clearest.items() if voice_id == voice.voice_id],
        }
        for voice in found
    ]
    return pd.DataFrame(lines, columns=_VOICE_COLUMNS)


def _find_clearest(voices: Sequence[Voice]) -> dict[str, str]:
    """Return the id of the voice with the smallest share of misheard words, for each measured locale."""
    best: dict[str, tuple[float, str]] = {}
    for voice in voices:
        for tag, misheard_share in (voice.clarity or {}).items():
            best[tag] = min(best.get(tag, (misheard_share, voice.voice_id)), (misheard_share, voice.voice_id))
    return {tag: voice_id for tag, (_, voice_id) in best.items()}
