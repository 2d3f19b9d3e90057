"""Show the voices of a catalogue as cards, with filters, samples and a comparison of selected voices."""

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import traitlets as t

from speechframe import aio
from speechframe.audio.clip import Clip
from speechframe.backends.speech import WIRE_OF_ARGUMENT
from speechframe.client import Client
from speechframe.errors import InvalidRows, SpeechframeError, make_problem
from speechframe.page.arguments import check_text
from speechframe.processes.loop import run_sync, start_in_background
from speechframe.spec.locales import find_nearest, get_language, is_within
from speechframe.spec.speech import Voice, VoiceKind
from speechframe.spec.texts import count_billed_characters
from speechframe.widgets.base import PageWidget
from speechframe.widgets.comparison import VoiceComparison, compare_voices
from speechframe.widgets.samples import make_sample
from speechframe.writing.notebook import format_table

if TYPE_CHECKING:
    import pandas as pd

SAMPLE_TEXTS = {
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
"""Texts of samples, by language code. Voices of other languages speak the English text."""

_SEARCHED_FACTS = ("id", "name", "description", "gender", "language", "engine", "kind")
"""Facts of a voice in which the search looks. The page looks in the same facts."""


class VoiceGallery(PageWidget):
    """A list of voices with filters and samples. :func:`gallery` makes this widget.

    Attributes
    ----------
    query, gender, engine, locale, style
        The current filters. Setting a filter has the same effect as its control on the page. ``""`` removes
        the filter. Each word of `query` must be the beginning of a word of the voice.
    value
        Id of the voice whose sample was played last.
    selection
        Ids of the voices that are selected for a comparison.
    samples
        Clips of the samples that were made so far, by voice, locale and style.
    """

    script = "gallery"

    voices = t.List(t.Dict()).tag(sync=True)
    query = t.Unicode().tag(sync=True)
    gender = t.Unicode().tag(sync=True)
    engine = t.Unicode().tag(sync=True)
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
        lengths = [count_billed_characters(line) for line in ([text] if text else SAMPLE_TEXTS.values())]
        super().__init__(
            voices=[_make_card(voice) for voice in voices],
            shown=[card["id"] for card in _filter_cards(map(_make_card, voices))],
            cost=f"A sample costs {_format_range(lengths)} credits the first time you play it.",
        )
        self.observe(self._apply_filters, ["query", "gender", "engine", "locale", "style"])

    def _apply_filters(self, _: Any) -> None:
        """Set the shown voices from the filters. The page does the same, so filters work without a kernel."""
        matching = _filter_cards(
            self.voices, query=self.query, gender=self.gender, engine=self.engine, locale=self.locale
        )
        style, warning = self.style, ""
        if style and not any(style in _list_styles(card, self.locale) for card in matching):
            style, warning = "", f"No voice here has the style {style}, so the style filter was removed."
        shown = [card["id"] for card in matching if not style or style in _list_styles(card, self.locale)]
        # If the page has shown the same voices already, its style and its warning are kept.
        if warning or shown != self.shown:
            with self.hold_trait_notifications():
                self.style, self.shown, self.warning = style, shown, warning

    @t.validate("locale")
    def _normalise_locale(self, proposal: Any) -> str:
        """Return a locale in the spelling of the catalogue, if the catalogue has it."""
        given = str(proposal["value"]).replace("_", "-")
        tags = {tag for voice in self._catalogue.values() for tag in voice.supported_locales}
        listed = {tag.lower(): tag for tag in tags | {get_language(tag) for tag in tags}}
        return listed.get(given.lower(), given)

    def sample_text(self, locale: str) -> str:
        """Return the text of a sample in a locale."""
        return self._text or SAMPLE_TEXTS.get(get_language(locale), SAMPLE_TEXTS["en"])

    def on_load(self, message: dict[str, Any]) -> None:
        """Make a sample and send it to the page, or send an error."""
        start_in_background(self._send_sample(str(message.get("clip"))))

    async def _send_sample(self, clip_id: str) -> None:
        try:
            voice_id, locale, style = map(str, json.loads(clip_id))
            clip = await self._make_sample(voice_id, locale, style)
        except (SpeechframeError, OSError, ValueError) as error:
            self.send({"kind": "error", "clip": clip_id, "message": str(error)})
        else:
            data, mime = clip.playable()
            self.send({"kind": "audio", "clip": clip_id, "mime": mime}, buffers=[data])

    async def _make_sample(self, voice_id: str, locale: str, style: str) -> Clip:
        """Return a sample of a voice. Make the sample if this gallery does not have it."""
        key = (voice_id, locale, style)
        if key not in self.samples:
            own_locale = self._catalogue[voice_id].locale if voice_id in self._catalogue else None
            wanted: dict[str, Any] = {"locale": locale} if locale and locale != own_locale else {}
            if style:
                wanted["style"] = style
            text = self.sample_text(locale or own_locale or "en")
            self.samples[key] = await make_sample(text, voice_id, **{**self._options, **wanted})
        return self.samples[key]

    def _get_shown_voices(self) -> list[Voice]:
        return [self._catalogue[voice_id] for voice_id in self.shown]

    @property
    def filtered(self) -> "pd.DataFrame":
        """The voices that match the filters, one row a voice."""
        import pandas as pd

        rows = [
            {
                "voice_id": voice.voice_id,
                "name": voice.display_name,
                "gender": None if voice.gender is None else str(voice.gender),
                "locale": voice.locale,
                "locales": list(voice.supported_locales),
            }
            for voice in self._get_shown_voices()
        ]
        return pd.DataFrame(rows, columns=["voice_id", "name", "gender", "locale", "locales"])

    def compare(self, texts: list[str] | str | None = None, **options: Any) -> VoiceComparison:
        """Return a comparison of the voices in :attr:`selection`. See :func:`compare_voices`.

        Parameters
        ----------
        texts
            Texts that each voice speaks. None uses the sample in the language of the first voice.
        **options
            Options of :func:`speechframe.generate`.
        """
        first = self._catalogue[self.selection[0]].locale if self.selection else None
        lines = texts if texts is not None else [self.sample_text(self.locale or first or "en")]
        return compare_voices(self.selection, lines, **{**self._options, **options})

    def to_text(self) -> str:
        """Return the numbers of shown voices and of all voices as text."""
        return f"<VoiceGallery: {len(self.shown):,} of {len(self._catalogue):,} voices>"

    def to_table(self) -> str:
        """Return the voices that match the filters as a table."""
        voices = self._get_shown_voices()
        rows = [[voice.voice_id, str(voice.gender or ""), voice.locale or ""] for voice in voices]
        return format_table(["voice", "gender", "locale"], rows, caption=self.to_text())


def _make_card(voice: Voice) -> dict[str, Any]:
    """Return a voice as plain values for its card on the page."""
    locale_details = voice.supported_locales.get(voice.locale or "")
    licence = f"The licence of this voice is {voice.licence}." if voice.licence else ""
    return {
        "id": voice.voice_id,
        "name": voice.display_name or voice.voice_id,
        "gender": None if voice.gender is None else str(voice.gender),
        "locale": voice.locale or "",
        "language": (locale_details and locale_details.detail) or voice.locale or "",
        "engine": voice.engine or "",
        "kind": "" if voice.kind is None else str(voice.kind),
        "clarity": dict(voice.clarity or {}),
        "description": " ".join(filter(None, (voice.description, licence))),
        "locales": {tag: details.available_styles for tag, details in voice.supported_locales.items()},
    }


def _format_range(lengths: list[int]) -> str:
    low, high = min(lengths), max(lengths)
    return str(low) if low == high else f"{low} to {high}"


def gallery(
    model: str = "gen2", *, locale: str = "", text: str | None = None, service: Any = None, **options: Any
) -> VoiceGallery:
    """Return a gallery of the voices of a catalogue, with filters and samples.

    Parameters
    ----------
    model
        Model of the voices, samples and comparisons: ``"gen2"`` or ``"falcon-2"``.
    locale
        Locale (``"fr-FR"``) or language (``"fr"``) of the filter at the start. ``""`` shows all voices.
    text
        Text of the samples. None uses a sentence in the language of each voice.
    service
        Service with the voices. See :func:`speechframe.aio.resolve_service`.
    **options
        Options of :func:`speechframe.say`, such as ``format`` and ``rate``.

    Raises
    ------
    InvalidRows
        No voice speaks the locale, or an option does not exist.
    ValueError
        An argument is not a text.
    ServiceError, ConnectionFailed, SettingsError
        The service did not return its voices, or there are no settings for a service.

    Examples
    --------
    >>> import speechframe as spf
    >>> voices = spf.gallery(locale="fr")  # doctest: +SKIP
    >>> voices.value  # doctest: +SKIP
    """
    if text is not None:
        check_text("text", text)
    if locale:
        check_text("locale", locale)
    known = {*WIRE_OF_ARGUMENT, "format", "take"}
    for name in options:
        if name not in known:
            raise InvalidRows(
                [make_problem(name, "is not an argument of a gallery", allowed=", ".join(sorted(known)))]
            )
    found = run_sync(_fetch_voices(check_text("model", model), service))
    if service is not None:
        options["service"] = service
    voice_gallery = VoiceGallery(found, text=text, model=model, **options)
    voice_gallery.locale = locale
    if locale and not voice_gallery.shown:
        spoken = sorted({tag for voice in found for tag in voice.supported_locales})
        allowed = ", ".join(find_nearest(locale, spoken) or spoken)
        raise InvalidRows(
            [make_problem("locale", "is not spoken by any voice", value=locale, allowed=allowed)]
        )
    return voice_gallery


def _split_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _filter_cards(
    cards: Iterable[dict[str, Any]], *, query: str = "", gender: str = "", engine: str = "", locale: str = ""
) -> list[dict[str, Any]]:
    """Return the voices that match the filters, neural voices first, then voices of the locale itself."""
    sought = _split_words(query)
    matching = []
    for card in cards:
        # A search for "male" must not find "female".
        words = _split_words(" ".join(str(card[name] or "") for name in _SEARCHED_FACTS))
        if (
            all(any(word.startswith(start) for word in words) for start in sought)
            and gender in ("", card["gender"])
            and engine in ("", card["engine"])
            and (not locale or any(is_within(tag, locale) for tag in card["locales"]))
        ):
            matching.append(card)
    return sorted(
        matching, key=lambda card: (card["kind"] != VoiceKind.NEURAL, not is_within(card["locale"], locale))
    )


def _list_styles(card: dict[str, Any], locale: str) -> set[str]:
    """Return the styles of a voice in a locale or language. Without a locale, return all styles."""
    matching = [styles for tag, styles in card["locales"].items() if not locale or is_within(tag, locale)]
    return {style for styles in matching for style in styles}


async def _fetch_voices(model: str, service: Any) -> list[Voice]:
    async with Client(await aio.resolve_service(service)) as client:
        return await client.voices(model)
