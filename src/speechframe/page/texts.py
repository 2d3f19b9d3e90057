"""Provide the words of saved pages in English, German or another language."""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["is_right_to_left", "resolve_texts"]

_TABLE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "counter": ("{done} of {total} reviewed", "{done} von {total} geprüft"),
        "rows": ("{total} rows", "{total} Zeilen"),
        "position": ("{at} of {count}", "{at} von {count}"),
        "first": ("The first {count} of {total} rows.", "Die ersten {count} von {total} Zeilen."),
        "filter": ("Filter", "Filter"),
        "all": ("all rows", "alle Zeilen"),
        "open": ("not reviewed", "nicht geprüft"),
        "kept": ("kept", "angenommen"),
        "rejected": ("rejected", "abgelehnt"),
        "suspect": ("suspect", "auffällig"),
        "failed": ("failed", "fehlgeschlagen"),
        "keep": ("keep", "angenommen"),
        "reject": ("reject", "abgelehnt"),
        "corrected": ("corrected", "korrigiert"),
        "locale": ("Locale", "Sprache"),
        "all_locales": ("all locales", "alle Sprachen"),
        "search": ("Search in texts and ids", "Suche in Texten und Namen"),
        "none": ("No rows match.", "Keine Zeile passt."),
        "list": ("Rows", "Zeilen"),
        "panel": ("The chosen row", "Die gewählte Zeile"),
        "name": ("Your name", "Ihr Name"),
        "name_first": ("Please enter your name first.", "Bitte geben Sie zuerst Ihren Namen ein."),
        "save": ("Save the file", "Datei speichern"),
        "load": ("Load a file", "Datei laden"),
        "saved": (
            "Saved as {file}. Please send this file to the person who sent you the page.",
            "Gespeichert als {file}. Bitte senden Sie die Datei an die Person, von der Sie die Seite haben.",
        ),
        "unsaved": ("Not in a file yet: {count}", "Noch in keiner Datei: {count}"),
        "loaded": (
            "Reviews loaded: {count}. Left out, because they are about other audio: {other}.",
            "Geladene Urteile: {count}. Ausgelassen, weil sie andere Aufnahmen betreffen: {other}.",
        ),
        "broken": ("The file does not contain reviews.", "Die Datei enthält keine Urteile."),
        "foreign": ("The file is about another run.", "Die Datei betrifft einen anderen Lauf."),
        "refused": (
            "This browser does not keep reviews when you close the page. Save the file before.",
            "Dieser Browser behält Urteile nicht, wenn Sie die Seite schließen. Speichern Sie vorher.",
        ),
        "previous": ("Previous (P)", "Zurück (P)"),
        "next": ("Next (N)", "Weiter (N)"),
        "keep_key": ("Keep (K)", "Annehmen (K)"),
        "reject_key": ("Reject (R)", "Ablehnen (R)"),
        "comment": ("Comment (C)", "Kommentar (C)"),
        "corrected_text": ("Corrected text (T)", "Korrigierter Text (T)"),
        "rating": ("Rating", "Bewertung"),
        "rate": ("{mark} of 5", "{mark} von 5"),
        "undo": ("Undo (U)", "Rückgängig (U)"),
        "auto": ("Go on and play the next row", "Weitergehen und die nächste Zeile abspielen"),
        "keep_row": ("{row}: kept", "{row}: angenommen"),
        "reject_row": ("{row}: rejected", "{row}: abgelehnt"),
        "rated_row": ("{row}: rated {mark} of 5", "{row}: mit {mark} von 5 bewertet"),
        "undone": ("{row}: undone", "{row}: rückgängig gemacht"),
        "nothing": ("Nothing to undo.", "Nichts rückgängig zu machen."),
        "end": ("This was the last row of the list.", "Das war die letzte Zeile der Liste."),
        "source": ("Text", "Text"),
        "translated_text": ("Translation", "Übersetzung"),
        "spoken_text": ("Spoken text", "Gesprochener Text"),
        "transcription": ("Transcription", "Transkription"),
        "slot": ("Slot", "Zeitfenster"),
        "slot_fits": ("{slot} s, the audio fits.", "{slot} s, die Aufnahme passt."),
        "slot_over": ("{slot} s, {over} s too short for the audio.", "{slot} s, {over} s zu kurz."),
        "lose": ("Characters to lose: {count}.", "Zu kürzende Zeichen: {count}."),
        "earlier": ("Earlier audio", "Frühere Aufnahme"),
        "keys": (
            "Space plays · ↑ ↓ other row · Escape leaves a text",
            "Leertaste spielt ab · ↑ ↓ andere Zeile · Escape verlässt einen Text",
        ),
        "rating_keys": (
            "Space plays · ↑ ↓ other row · 1 to 5 rate",
            "Leertaste spielt ab · ↑ ↓ andere Zeile · 1 bis 5 bewerten",
        ),
        "play_keys": ("Space plays · ↑ ↓ other row", "Leertaste spielt ab · ↑ ↓ andere Zeile"),
        "clip": (
            "{name}. Space plays, left and right arrows move by word",
            "{name}. Leertaste spielt ab, Pfeile nach links und rechts gehen zum nächsten Wort",
        ),
        "waveform": ("Waveform of {name}, {length}", "Wellenform von {name}, {length}"),
        "play": ("Play {name}", "{name} abspielen"),
        "pause": ("Pause {name}", "{name} anhalten"),
        "loading": ("loading…", "lädt…"),
        "clipped": ("Clipped audio, places: {count}", "Übersteuerte Stellen: {count}"),
        "unsaid": ("Not spoken, parts: {count}", "Nicht gesprochene Teile: {count}"),
        "unplayable": ("This browser cannot play the clip.", "Dieser Browser kann den Clip nicht abspielen."),
    }
)  # fmt: skip
"""English and German text of each place of a page. Parts in braces are replaced by the page."""

_LANGUAGES = ("en", "de")
_RIGHT_TO_LEFT = frozenset({"ar", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})


def resolve_texts(locale: str, texts: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the texts of a page by name.

    Parameters
    ----------
    locale
        Locale of the page, such as ``de`` or ``de-AT``.
    texts
        Texts that replace or complete those of the language. For a language other than English and German,
        all texts are needed.

    Raises
    ------
    ValueError
        A text is missing, or a name is unknown.

    Examples
    --------
    >>> resolve_texts("de-AT")["save"], resolve_texts("en", {"save": "Done"})["save"]
    ('Datei speichern', 'Done')
    """
    language = locale.partition("-")[0].lower()
    place = _LANGUAGES.index(language) if language in _LANGUAGES else None
    if place is None and texts is None:
        built_in = " and ".join(_LANGUAGES)
        raise ValueError(f"locale={locale!r} has no texts; built in are {built_in}. Pass all texts as texts=")
    found = {} if place is None else {name: both[place] for name, both in _TABLE.items()}
    found |= texts or {}
    for fault, names in (("misses", _TABLE.keys() - found), ("has unknown names:", found.keys() - _TABLE)):
        if names:
            raise ValueError(f"texts {fault} {', '.join(sorted(names))}; allowed: {', '.join(_TABLE)}")
    return found


def is_right_to_left(locale: str) -> bool:
    """Return whether the language of a locale is written from right to left."""
    return locale.partition("-")[0].lower() in _RIGHT_TO_LEFT
