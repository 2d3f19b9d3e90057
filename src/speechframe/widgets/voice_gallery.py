"""The voices of a catalogue as cards: filtered, heard by a sample, chosen, compared."""

import json
from typing import TYPE_CHECKING, Any

import traitlets as t

from speechframe import aio
from speechframe.audio.clip import Clip
from speechframe.client import Client
from speechframe.errors import InvalidRows, SpeechframeError
from speechframe.page.arguments import text as said
from speechframe.processes.loop import run_sync, submit
from speechframe.spec.locales import is_within, language_of, nearest
from speechframe.spec.speech import Voice
from speechframe.spec.texts import billed_characters
from speechframe.tables.table import problem
from speechframe.verbs.generate import ARGUMENTS
from speechframe.widgets.base import PageWidget, table
from speechframe.widgets.comparison import VoiceComparison, compare_voices
from speechframe.widgets.samples import sample

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SAMPLES", "VoiceGallery", "gallery"]

SAMPLES = {
    "de": "Guten Morgen. Heute scheint die Sonne, und der Zug kommt um sieben Uhr.",
    "en": "Good morning. The sun is out today, and the train leaves at seven.",
    "es": "Buenos días. Hoy brilla el sol y el tren sale a las siete.",
    "fr": "Bonjour. Aujourd'hui le soleil brille et le train part à sept heures.",
    "it": "Buongiorno. Oggi c'è il sole e il treno parte alle sette.",
    "nl": "Goedemorgen. Vandaag schijnt de zon en de trein vertrekt om zeven uur.",
    "pl": "Dzień dobry. Dziś świeci słońce, a pociąg odjeżdża o siódmej.",
    "pt": "Bom dia. Hoje faz sol e o trem sai às sete.",
    "ja": "おはようございます。今日は晴れです。電車は七時に出ます。",
    "ko": "좋은 아침입니다. 오늘은 맑고 기차는 일곱 시에 떠납니다.",
    "zh": "早上好。今天天气晴朗。火车七点出发。",
    "hi": "सुप्रभात। आज धूप निकली है और ट्रेन सात बजे चलेगी।",
}
"""What a voice says as a sample, by language; other languages hear the English one."""


class VoiceGallery(PageWidget):
    """Voices to look through, hear and choose.

    Made by :func:`gallery`.

    Attributes
    ----------
    query, gender, locale, style
        The filters as they stand; setting one filters, as its control does.
    value
        Id of the voice that was heard last.
    selection
        Ids of the voices that are marked for a comparison.
    samples
        What was heard: (voice, locale, style) to clip.
    """

    script = "gallery"

    voices = t.List(t.Dict()).tag(sync=True)
    query = t.Unicode().tag(sync=True)
    gender = t.Unicode().tag(sync=True)
    locale = t.Unicode().tag(sync=True)
    style = t.Unicode().tag(sync=True)
    shown = t.List(t.Unicode()).tag(sync=True)
    warning = t.Unicode().tag(sync=True)
    value = t.Unicode().tag(sync=True)
    selection = t.List(t.Unicode()).tag(sync=True)
    cost = t.Unicode().tag(sync=True)

    def __init__(self, voices: list[Voice], *, text: str | None = None, **options: Any) -> None:
        self._text, self._options = text, options
        self._catalogue = {voice.voice_id: voice for voice in voices}
        self.samples: dict[tuple[str, str, str], Clip] = {}
        lengths = [billed_characters(said) for said in ([text] if text else SAMPLES.values())]
        super().__init__(
            voices=[_card(voice) for voice in voices],
            shown=list(self._catalogue),
            cost=f"A sample costs {_between(lengths)} credits when it is first heard.",
        )
        self.observe(self._filter, ["query", "gender", "locale", "style"])

    def _filter(self, _: Any) -> None:
        """Show what the filters leave. The page does the same by itself: it needs no kernel for it."""
        voices = list(self._catalogue.values())
        left = _passing(voices, query=self.query, gender=self.gender, locale=self.locale)
        style, warning = self.style, ""
        if style and not any(style in _styles(voice, self.locale) for voice in left):
            style, warning = "", f"No voice here has the style {style}: it is not filtered by any more."
        shown = [voice.voice_id for voice in left if not style or style in _styles(voice, self.locale)]
        # What the page has set is as it should be; its warning, too.
        if warning or shown != self.shown:
            with self.hold_trait_notifications():
                self.style, self.shown, self.warning = style, shown, warning

    @t.validate("locale")
    def _as_listed(self, proposal: Any) -> str:
        given = str(proposal["value"]).replace("_", "-")
        tags = {tag for voice in self._catalogue.values() for tag in voice.supported_locales}
        listed = {tag.lower(): tag for tag in tags | {language_of(tag) for tag in tags}}
        return listed.get(given.lower(), given)

    def sample_text(self, locale: str) -> str:
        """Return what is said as a sample in a locale."""
        return self._text or SAMPLES.get(language_of(locale), SAMPLES["en"])

    def on_load(self, message: dict[str, Any]) -> None:
        """Have a sample spoken and send it, or say why there is none."""
        submit(self._load(str(message.get("clip"))))

    async def _load(self, clip_id: str) -> None:
        try:
            voice_id, locale, style = map(str, json.loads(clip_id))
            clip = await self._sample(voice_id, locale, style)
        except (SpeechframeError, OSError, ValueError) as error:
            self.send({"kind": "error", "clip": clip_id, "message": str(error)})
        else:
            data, mime = clip.playable()
            self.send({"kind": "audio", "clip": clip_id, "mime": mime}, buffers=[data])

    async def _sample(self, voice_id: str, locale: str, style: str) -> Clip:
        asked = (voice_id, locale, style)
        if asked not in self.samples:
            own = self._catalogue[voice_id].locale if voice_id in self._catalogue else None
            wanted: dict[str, Any] = {"locale": locale} if locale and locale != own else {}
            if style:
                wanted["style"] = style
            text = self.sample_text(locale or own or "en")
            self.samples[asked] = await sample(text, voice_id, **{**self._options, **wanted})
        return self.samples[asked]

    def _seen(self) -> list[Voice]:
        return [self._catalogue[voice_id] for voice_id in self.shown]

    @property
    def filtered(self) -> "pd.DataFrame":
        """The voices that pass the filters, a row each."""
        import pandas as pd

        rows = [
            {
                "voice_id": voice.voice_id,
                "name": voice.display_name,
                "gender": None if voice.gender is None else str(voice.gender),
                "locale": voice.locale,
                "locales": list(voice.supported_locales),
            }
            for voice in self._seen()
        ]
        return pd.DataFrame(rows, columns=["voice_id", "name", "gender", "locale", "locales"])

    def compare(self, texts: list[str] | str | None = None, **options: Any) -> VoiceComparison:
        """Return a comparison of the voices in :attr:`selection`; see :func:`compare_voices`.

        Parameters
        ----------
        texts
            What each of them says; the sample of the first one's language by default.
        **options
            Of :func:`speechframe.generate`.
        """
        first = self._catalogue[self.selection[0]].locale if self.selection else None
        said = texts if texts is not None else [self.sample_text(self.locale or first or "en")]
        return compare_voices(self.selection, said, **{**self._options, **options})

    def to_text(self) -> str:
        """Return how many voices there are."""
        return f"<VoiceGallery: {len(self.shown):,} of {len(self._catalogue):,} voices>"

    def to_table(self) -> str:
        """Return the voices that pass the filters as a table."""
        rows = [[voice.voice_id, str(voice.gender or ""), voice.locale or ""] for voice in self._seen()]
        return table(["voice", "gender", "locale"], rows, caption=self.to_text())


def _card(voice: Voice) -> dict[str, Any]:
    own = voice.supported_locales.get(voice.locale or "")
    licence = f"What speaks is under {voice.licence}." if voice.licence else ""
    return {
        "id": voice.voice_id,
        "name": voice.display_name or voice.voice_id,
        "gender": None if voice.gender is None else str(voice.gender),
        "locale": voice.locale or "",
        "language": (own and own.detail) or voice.locale or "",
        "engine": " · ".join(filter(None, (voice.engine, voice.kind and str(voice.kind)))),
        "clarity": dict(voice.clarity or {}),
        "description": " ".join(filter(None, (voice.description, licence))),
        "locales": {tag: details.available_styles for tag, details in voice.supported_locales.items()},
    }


def _between(lengths: list[int]) -> str:
    low, high = min(lengths), max(lengths)
    return str(low) if low == high else f"{low} to {high}"


def gallery(
    model: str = "gen2", *, locale: str = "", text: str | None = None, service: Any = None, **options: Any
) -> VoiceGallery:
    """Return the voices of a catalogue to look through, hear and choose.

    Parameters
    ----------
    model
        ``"gen2"`` or ``"falcon-2"``: whose catalogue is shown, and who speaks the samples and comparisons.
    locale
        Show this locale (``"fr-FR"``) or language (``"fr"``) first.
    text
        What samples say; a sentence in each voice's own language by default.
    service
        Whose voices; see :func:`speechframe.aio.resolve_service`.
    **options
        Of :func:`speechframe.say`: ``format``, ``rate`` ...

    Raises
    ------
    InvalidRows
        When no voice speaks the locale, or there is no such option.
    ValueError
        When an argument is no text.
    ServiceError, ConnectionFailed, SettingsError
        When the service cannot be asked.

    Examples
    --------
    >>> import speechframe as spf
    >>> voices = spf.gallery(locale="fr")  # doctest: +SKIP
    >>> voices.value  # doctest: +SKIP
    """
    if text is not None:
        said("text", text)
    if locale:
        said("locale", locale)
    known = {*ARGUMENTS, "format", "take"}
    for name in options:
        if name not in known:
            raise InvalidRows(
                [problem(name, "is no argument of a gallery", allowed=", ".join(sorted(known)))]
            )
    found = run_sync(_listed(said("model", model), service))
    if service is not None:
        options["service"] = service
    made = VoiceGallery(found, text=text, model=model, **options)
    made.locale = locale
    if locale and not made.shown:
        spoken = sorted({tag for voice in found for tag in voice.supported_locales})
        allowed = ", ".join(nearest(locale, spoken) or spoken)
        raise InvalidRows([problem("locale", "is spoken by no voice", value=locale, allowed=allowed)])
    return made


def _passing(voices: list[Voice], *, query: str = "", gender: str = "", locale: str = "") -> list[Voice]:
    """Return the voices that pass filters; those whose own locale is asked for come first."""
    words = query.lower().split()
    left = []
    for voice in voices:
        card = _card(voice)
        said = " ".join(str(card[name] or "") for name in ("id", "name", "description", "gender")).lower()
        if (
            all(word in said for word in words)
            and gender in ("", card["gender"])
            and (not locale or any(is_within(tag, locale) for tag in voice.supported_locales))
        ):
            left.append(voice)
    return sorted(left, key=lambda voice: not is_within(voice.locale or "", locale))


def _styles(voice: Voice, locale: str) -> set[str]:
    """Return the styles of a voice in what is asked for; in all its locales when nothing is."""
    spoken = voice.supported_locales.items()
    heard = [details for tag, details in spoken if not locale or is_within(tag, locale)]
    return {style for details in heard for style in details.available_styles}


async def _listed(model: str, service: Any) -> list[Voice]:
    async with Client(await aio.resolve_service(service)) as client:
        return await client.voices(model)
