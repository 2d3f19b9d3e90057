"""Provide the words of review pages and listening tests in English, German or another language."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from speechframe.page.arguments import check_text

REVIEW, LISTENING = "review", "listening"
"""Names of the kinds of pages."""

_SHARED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "play": ("Play {name}", "{name} abspielen"),
        "pause": ("Pause {name}", "{name} anhalten"),
        "saved": (
            "Saved as {file}. Please send this file to the person who sent you the page.",
            "Gespeichert als {file}. Bitte senden Sie die Datei an die Person, von der Sie die Seite haben.",
        ),
    }
)  # fmt: skip

_REVIEW: Mapping[str, tuple[str, str]] = MappingProxyType(
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
        "search": ("Search", "Suche"),
        "search_hint": ("A text, or a comparison such as >2", "Ein Text oder ein Vergleich wie >2"),
        "column": ("Column", "Spalte"),
        "all_columns": ("in texts and ids", "in Texten und Namen"),
        "in_column": ("in {column}", "in {column}"),
        "none": ("No rows match.", "Keine Zeile passt."),
        "list": ("Rows", "Zeilen"),
        "panel": ("The chosen row", "Die gewählte Zeile"),
        "name": ("Your name", "Ihr Name"),
        "name_first": ("Please enter your name first.", "Bitte geben Sie zuerst Ihren Namen ein."),
        "save": ("Save the file", "Datei speichern"),
        "load": ("Load a file", "Datei laden"),
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
        "too_soon": (
            "The next row has just begun. Press again for this row.",
            "Die nächste Zeile hat gerade begonnen. Drücken Sie noch einmal für diese Zeile.",
        ),
        "deck": ("Controls", "Bedienung"),
        "play_all": ("Play all", "Alle abspielen"),
        "stop_all": ("Stop", "Anhalten"),
        "speed": ("Speed", "Tempo"),
        "volume": ("Volume", "Lautstärke"),
        "zoom": ("Zoom", "Zoom"),
        "loop": ("Loop (L)", "Wiederholen (L)"),
        "loop_to": ("Loop to here (L)", "Bis hier wiederholen (L)"),
        "loop_end": ("End loop (L)", "Wiederholung beenden (L)"),
        "loop_hint": (
            "Press at the start and at the end of a part, or drag over the waveform",
            "Am Anfang und am Ende eines Teils drücken, oder über die Wellenform ziehen",
        ),
        "download": ("Download", "Herunterladen"),
        "downloaded": ("{file} is downloaded", "{file} wird heruntergeladen"),
        "copy": ("Copy id", "Namen kopieren"),
        "copied": ("copied: {id}", "kopiert: {id}"),
        "id": ("id: {id}", "Name: {id}"),
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
            ("Space plays · ← → by word · L loops · ↑ ↓ other row · Shift ↑ ↓ several rows · "
            "Escape leaves a text"),
            ("Leertaste spielt ab · ← → Wort · L wiederholt · ↑ ↓ andere Zeile · "
            "Umschalt ↑ ↓ mehrere Zeilen · Escape verlässt einen Text"),
        ),
        "rating_keys": (
            "Space plays · ← → by word · L loops · ↑ ↓ other row · Shift ↑ ↓ several rows · 1 to 5 rate",
            ("Leertaste spielt ab · ← → Wort · L wiederholt · ↑ ↓ andere Zeile · "
            "Umschalt ↑ ↓ mehrere Zeilen · 1 bis 5 bewerten"),
        ),
        "play_keys": (
            "Space plays · ← → by word · L loops · ↑ ↓ other row",
            "Leertaste spielt ab · ← → Wort · L wiederholt · ↑ ↓ andere Zeile",
        ),
        "clip": (
            "{name}. Space plays, left and right arrows move by word",
            "{name}. Leertaste spielt ab, Pfeile nach links und rechts gehen zum nächsten Wort",
        ),
        "waveform": ("Waveform of {name}, {length}", "Wellenform von {name}, {length}"),
        "loading": ("loading…", "lädt…"),
        "clipped": ("Clipped audio, places: {count}", "Übersteuerte Stellen: {count}"),
        "unsaid": ("Not spoken, parts: {count}", "Nicht gesprochene Teile: {count}"),
        "unplayable": ("This browser cannot play the clip.", "Dieser Browser kann den Clip nicht abspielen."),
    }
)  # fmt: skip

_LISTENING: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "title": ("Listening test", "Hörtest"),
        "intro_ab": (
            "You hear two recordings, A and B, and choose the one you prefer.",
            "Sie hören zwei Aufnahmen, A und B, und wählen die aus, die Ihnen besser gefällt.",
        ),
        "intro_mos": (
            "You hear one recording at a time and rate it on a scale of five steps.",
            "Sie hören jeweils eine Aufnahme und bewerten sie auf einer Skala mit fünf Stufen.",
        ),
        "intro_multi": (
            "You hear several recordings of the same thing and rate each from 0 to 100.",
            "Sie hören mehrere Aufnahmen desselben Inhalts und bewerten jede von 0 bis 100.",
        ),
        "intro_mushra": (
            ("You hear a reference and several recordings of the same thing, and rate each from 0 to 100, "
            "compared with the reference. One recording is the reference itself. It should get 100."),
            ("Sie hören eine Referenz und mehrere Aufnahmen desselben Inhalts und bewerten jede von 0 bis "
            "100 verglichen mit der Referenz. Eine Aufnahme ist die Referenz selbst. Sie soll 100 bekommen."),
        ),
        "intro_abx": (
            ("You hear two recordings, A and B, and a third, X. X is the same as A or the same as B. You "
            "choose which."),
            ("Sie hören zwei Aufnahmen, A und B, und eine dritte, X. X ist gleich A oder gleich B. Sie "
            "wählen aus, was zutrifft."),
        ),
        "prompt_ab": ("Which one sounds better?", "Welche Aufnahme klingt besser?"),
        "prompt_mos": (
            "How good is the quality of what you hear?",
            "Wie gut ist die Qualität der Aufnahme?",
        ),
        "prompt_multi": (
            "How good is the quality of each recording?",
            "Wie gut ist die Qualität jeder Aufnahme?",
        ),
        "prompt_mushra": (
            "How good is the quality of each recording, compared with the reference?",
            "Wie gut ist die Qualität jeder Aufnahme im Vergleich mit der Referenz?",
        ),
        "prompt_abx": ("Is X the same as A, or the same as B?", "Ist X gleich A oder gleich B?"),
        "example": ("an example", "Beispiel"),
        "volume": (
            "Use headphones in a quiet place. Set the volume now, and then leave it as it is.",
            ("Benutzen Sie Kopfhörer an einem ruhigen Ort. Stellen Sie jetzt die Lautstärke ein, und lassen "
            "Sie sie dann so."),
        ),
        "unplayable": (
            "This browser cannot play the sound.",
            "Dieser Browser kann das Beispiel nicht abspielen.",
        ),
        "begin": ("Begin", "Beginnen"),
        "stop": (
            "You may stop at any time. Your votes are kept, and you can continue later.",
            "Sie können jederzeit aufhören und später weitermachen. Ihre Urteile bleiben erhalten.",
        ),
        "trial": ("Trial {at} of {total}", "Durchgang {at} von {total}"),
        "trials_done": ("Trials done", "Abgeschlossene Durchgänge"),
        "practice": ("Practice: does not count", "Übung: zählt nicht"),
        "reference": ("Reference", "Referenz"),
        "the_reference": ("the reference", "die Referenz"),
        "heard": ("{label}, heard", "{label}, gehört"),
        "better": ("{slot} is better", "{slot} ist besser"),
        "tie": ("No difference", "Kein Unterschied"),
        "same": ("X is {slot}", "X ist {slot}"),
        "score_of": ("Score of {slot}", "Punkte für {slot}"),
        "not_rated": ("not rated yet", "noch nicht bewertet"),
        "bad": ("Bad", "Schlecht"),
        "poor": ("Poor", "Dürftig"),
        "fair": ("Fair", "Ordentlich"),
        "good": ("Good", "Gut"),
        "excellent": ("Excellent", "Ausgezeichnet"),
        "listen_first": (
            "Listen to {slots} first, for {seconds} s or to the end.",
            "Hören Sie zuerst {slots}, {seconds} s lang oder bis zum Ende.",
        ),
        "choose_now": ("Now choose one.", "Wählen Sie jetzt eine Antwort."),
        "rate_now": ("Now rate {slots}.", "Bewerten Sie jetzt {slots}."),
        "next_trial": ("Next", "Weiter"),
        "saving": ("Saving…", "Wird gespeichert…"),
        "no_sound": (
            "{slots} cannot be played. Please continue without.",
            "{slots} lässt sich nicht abspielen. Bitte machen Sie ohne weiter.",
        ),
        "no_reply": (
            "Your vote is not saved yet, because there was no reply. Please try again.",
            "Ihr Urteil ist noch nicht gespeichert, weil keine Antwort kam. Bitte versuchen Sie es neu.",
        ),
        "not_stored": (
            "Your vote could not be stored. Please try again, and inform the person who invited you.",
            ("Ihr Urteil konnte nicht gespeichert werden. Bitte versuchen Sie es noch einmal, und geben Sie "
            "der Person Bescheid, die Sie eingeladen hat."),
        ),
        "not_accepted": (
            "This was not accepted. Please load the page again. ({reason})",
            "Das wurde nicht angenommen. Bitte laden Sie die Seite neu. ({reason})",
        ),
        "was": ("{slot} was {condition}", "{slot} war {condition}"),
        "go_on": ("Continue", "Weiter"),
        "last": ("Thank you. That was the last trial.", "Vielen Dank. Das war der letzte Durchgang."),
        "all_saved": ("All your votes are saved.", "Alle Ihre Urteile sind gespeichert."),
        "keys_ab": (
            ("Keys: A and B play; left arrow chooses A, right arrow B, down arrow no difference; Enter "
            "continues."),
            ("Tasten: A und B spielen ab; Pfeil nach links wählt A, nach rechts B, nach unten keinen "
            "Unterschied; Eingabe geht weiter."),
        ),
        "keys_abx": (
            "Keys: A, B and X play; left arrow chooses X is A, right arrow X is B; Enter continues.",
            ("Tasten: A, B und X spielen ab; Pfeil nach links wählt „X ist A“, nach rechts „X ist B“; "
            "Eingabe geht weiter."),
        ),
        "keys_mos": (
            "Keys: Space plays; 1 to 5 or arrows choose; Enter continues.",
            "Tasten: Leertaste spielt ab; 1 bis 5 oder Pfeile wählen; Eingabe geht weiter.",
        ),
        "keys_multi": (
            "Keys: {first} to {last} play; arrows move the score, 1 to 5 choose a label; Enter continues.",
            ("Tasten: {first} bis {last} spielen ab; Pfeile ändern die Punkte, 1 bis 5 wählen eine Stufe; "
            "Eingabe geht weiter."),
        ),
        "keys_reference": (
            ("Keys: R and {first} to {last} play; arrows move the score, 1 to 5 choose a label; Enter "
            "continues."),
            ("Tasten: R und {first} bis {last} spielen ab; Pfeile ändern die Punkte, 1 bis 5 wählen eine "
            "Stufe; Eingabe geht weiter."),
        ),
        "no_connection": ("No connection.", "Keine Verbindung."),
        "server_failed": (
            "The server could not save your answer.",
            "Der Server konnte Ihre Antwort nicht speichern.",
        ),
        "server_away": ("The server is not available right now.", "Der Server ist gerade nicht erreichbar."),
        "sends_again": (
            "This page keeps your answer and sends it again. Please leave this page open.",
            "Diese Seite behält Ihre Antwort und sendet sie noch einmal. Bitte lassen Sie die Seite offen.",
        ),
        "tries_again": ("This page tries again by itself.", "Diese Seite versucht es von selbst wieder."),
        "link_ended": (
            "This link does not work any more. Please inform the person who sent it to you.",
            "Dieser Link gilt nicht mehr. Bitte geben Sie der Person Bescheid, die ihn geschickt hat.",
        ),
        "your_votes": ("Your votes", "Ihre Urteile"),
        "save_votes": ("Save my votes as a file", "Meine Urteile als Datei speichern"),
        "votes_done": ("{done} of {total} trials done.", "{done} von {total} Durchgängen abgeschlossen."),
        "cannot_save": (
            "This browser cannot save votes. Please open this page in another browser.",
            "Dieser Browser kann nichts speichern. Bitte öffnen Sie die Seite in einem anderen Browser.",
        ),
        "save_now": (
            ("Your votes are not in a file yet. Please save them, and send the file to the person who sent "
            "you this page."),
            ("Ihre Urteile sind noch in keiner Datei. Bitte speichern Sie sie, und senden Sie die Datei an "
            "die Person, von der Sie die Seite haben."),
        ),
        "loses_votes": (
            "This browser loses your votes when you close the page, so save them before.",
            "Dieser Browser verliert Ihre Urteile, wenn Sie die Seite schließen. Speichern Sie vorher.",
        ),
        "keeps_votes": (
            "This browser keeps your votes. You can close the page and continue later.",
            "Dieser Browser behält Ihre Urteile. Sie können die Seite schließen und später weitermachen.",
        ),
    }
)  # fmt: skip

_TABLES: Mapping[str, Mapping[str, tuple[str, str]]] = MappingProxyType(
    {REVIEW: {**_SHARED, **_REVIEW}, LISTENING: {**_SHARED, **_LISTENING}}
)
"""English and German text of each place of a page, by kind of the page. The page replaces parts in braces."""

_LANGUAGES = ("en", "de")
_LOCALE = re.compile(r"[a-zA-Z]{2,3}(-[a-zA-Z0-9]{2,8})*")
_RIGHT_TO_LEFT = frozenset({"ar", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"})


def resolve_texts(
    locale: str,
    texts: Mapping[str, str] | None = None,
    *,
    page: str = REVIEW,
    error: type[Exception] = ValueError,
) -> dict[str, str]:
    """Return the texts of a page by name.

    Parameters
    ----------
    locale
        Locale of the page, such as ``de`` or ``de-AT``.
    texts
        Texts that replace or complete those of the language. For a language other than English and German,
        all texts are needed.
    page
        Kind of the page, :data:`REVIEW` or :data:`LISTENING`.

    Raises
    ------
    ValueError
        The locale is not valid, a text is missing or not a text, or a name is unknown. `error` is raised
        instead if it is given.

    Examples
    --------
    >>> resolve_texts("de-AT")["save"], resolve_texts("en", {"save": "Done"})["save"]
    ('Datei speichern', 'Done')
    """
    if not _LOCALE.fullmatch(check_text("locale", locale, error=error)):
        raise error(f"locale must be a locale such as 'de' or 'de-AT', not {locale!r}")
    given: Any = texts
    if not (given is None or isinstance(given, Mapping)):
        raise error(f"texts must be a mapping of names to texts, not {given!r:.80}")
    table, language = _TABLES[page], locale.partition("-")[0].lower()
    place = _LANGUAGES.index(language) if language in _LANGUAGES else None
    words = f"the English words are resolve_texts('en', page={page!r}) of {__name__}"
    if place is None and texts is None:
        raise error(
            f"locale={locale!r} has no texts; built in are {' and '.join(_LANGUAGES)}. Pass all texts as "
            f"texts=; {words}"
        )
    found: dict[str, Any] = {} if place is None else {name: both[place] for name, both in table.items()}
    found.update(texts or {})
    for fault, names in (
        ("misses", table.keys() - found),
        ("has unknown names:", found.keys() - table),
        ("has no text for", {name for name in found if not isinstance(found[name], str)}),
    ):
        if names:
            raise error(f"texts {fault} {', '.join(sorted(map(str, names)))}; {words}")
    return found


def get_direction(locale: str) -> str:
    """Return the direction in which the language of a locale is written, ``ltr`` or ``rtl``."""
    return "rtl" if locale.partition("-")[0].lower() in _RIGHT_TO_LEFT else "ltr"
