"""Make the saved page of rows, on which people play, review and rate clips without a notebook."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from speechframe.errors import SpeechframeError, StoreError
from speechframe.page.arguments import check_text
from speechframe.page.clips import ClipShelf, Entry, compute_outline
from speechframe.page.html import stream_saved_page
from speechframe.page.texts import get_direction, resolve_texts
from speechframe.store.reviews import read_latest_reviews
from speechframe.store.schema import FINISHED_STATUSES

_MAX_AUDIO_BYTES = 500 << 20
"""Largest size of the audio of a page. Browsers cannot open much larger pages."""
_MEBIBYTE = 1 << 20

_TEXT_COLUMNS = ("translated_text", "spoken_text", "transcription")
"""Columns with further texts of a row, which are shown after the text as written."""
_FIT_COLUMNS = ("slot_s", "over_s", "characters_to_lose")
_CONTENT = ("verdict", "comment", "corrected_text", "rating")


def make_review_page(
    shelf: ClipShelf,
    *,
    title: str,
    verdicts: bool = False,
    rates: bool = False,
    order: Sequence[int] | None = None,
    locale: str = "en",
    texts: Mapping[str, str] | None = None,
    fallback: str = "",
) -> Iterator[str]:
    """Return the parts of a saved page with the clips of a shelf.

    Parameters
    ----------
    shelf
        The clips. Rows of one run are shown with their reviews.
    title
        Title of the page.
    verdicts, rates
        Whether users can give verdicts with comments and corrected texts, and ratings from 1 to 5.
    order
        Positions of the clips in the order of the page. None keeps the order of the shelf.
    locale, texts
        Locale of the page, and its words. See :func:`resolve_texts`.
    fallback
        Text for browsers without JavaScript.

    Raises
    ------
    StoreError
        The audio is too large for a page.
    """
    words = resolve_texts(locale, texts)
    runs = {id(entry.run): entry.run for entry in shelf.entries}
    run = next(iter(runs.values())) if len(runs) == 1 else None
    reviews: Mapping[Any, Any] = {} if run is None else read_latest_reviews(run.folder).to_dict("index")
    name_of = str if run is None else cache(run.name_of)
    rows = [_make_row(entry, reviews.get(entry.row_id, {}), name_of) for entry in shelf.entries]
    if run is not None:
        # Rows with equal calls share their audio.
        for entry, row in zip(shelf.entries, rows, strict=True):
            row["id"] = entry.fields.get(name_of("request_key")) or entry.clip_id
    run_id = None if run is None else run.run_id
    columns = _list_searched_columns(shelf)
    for entry, row in zip(shelf.entries, rows, strict=True):
        row["cells"] = [_convert_cell(entry.fields.get(name)) for name in columns]
    identity = json.dumps([title, *((row["row_id"], row["sha256"], row["seconds"]) for row in rows)])
    state = {
        "title": check_text("title", title),
        "run_id": run_id,
        # Reviews of pages of the same run are kept together, so that a later page goes on with them.
        "page_id": run_id or hashlib.sha256(identity.encode()).hexdigest()[:16],
        "rows": rows if order is None else [rows[position] for position in order],
        "columns": columns,
        "total": shelf.total,
        "audible": shelf.audible,
        "verdicts": verdicts,
        "rates": rates,
        "locale": locale,
        "texts": words,
    }
    return stream_saved_page(
        "review",
        state,
        _read_clips(shelf, rows) if shelf.audible else (),
        title=title,
        fallback=fallback,
        lang=locale,
        direction=get_direction(locale),
    )


def _make_row(entry: Entry, review: Mapping[str, Any], name_of: Callable[[str], str]) -> dict[str, Any]:
    """Return a row with its review as plain values for the page."""
    fields, run = entry.fields, entry.run
    spoken = "" if run is None else str(run.manifest.table.arguments.get("text", {}).get("column"))
    source = fields.get("text") or fields.get(spoken) or entry.text
    sha256 = fields.get(name_of("sha256"))
    shown = [("source", source), *((name, fields.get(name)) for name in _TEXT_COLUMNS)]
    distinct = {str(text): (name, str(text)) for name, text in reversed(shown) if text}
    # A verdict, a text and a rating may be about different audio of the row.
    audio = {"corrected_text": "text_sha256", "rating": "rating_sha256"}
    current = {
        name: review[name] if review and review[audio.get(name, "sha256")] == sha256 else None
        for name in _CONTENT
    }
    return {
        **entry.to_page(),
        **{name: round(fields[name], 3) for name in _FIT_COLUMNS if _is_number(fields.get(name))},
        "row_id": entry.row_id,
        "sha256": sha256,
        "texts": list(reversed(distinct.values())),
        "text": str(fields.get("translated_text") or fields.get(spoken) or source or ""),
        "why": fields.get(name_of("error_message")) if entry.status in FINISHED_STATUSES else None,
        "before": {name: value for name, value in current.items() if isinstance(value, (str, int))},
        "earlier": review["verdict"] if review and not current["verdict"] else None,
    }


def _list_searched_columns(shelf: ClipShelf) -> list[str]:
    """Return the names of the columns with a value in any row, without the times of the words."""
    names = dict.fromkeys(
        name for entry in shelf.entries for name, value in entry.fields.items() if value is not None
    )
    words = {
        "word_durations" if entry.run is None else entry.run.name_of("word_durations")
        for entry in shelf.entries
    }
    return [name for name in names if name not in words]


def _convert_cell(value: Any) -> str | float | None:
    """Return a value of a table as a number, if it is one, or as text."""
    if _is_number(value):
        return value  # type: ignore[no-any-return]
    return None if value is None or value != value else str(value)  # noqa: PLR0124 - NaN differs from itself


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _read_clips(shelf: ClipShelf, rows: list[dict[str, Any]]) -> Iterator[tuple[str, bytes, str]]:
    """Yield id, audio and content type of each playable clip once, and add the waveforms to the rows."""
    size_bytes = 0
    outlines: dict[str, bytes] = {}
    for entry, row in zip(shelf.entries, rows, strict=True):
        if entry.problem is not None:
            continue
        if (clip_id := row["id"]) not in outlines:
            try:
                clip = entry.read_clip()
                data, mime = clip.playable()
            except (SpeechframeError, OSError) as error:
                row["problem"] = str(error)
                continue
            size_bytes += len(data)
            if size_bytes > _MAX_AUDIO_BYTES:
                raise StoreError(
                    f"the audio of {len(rows):,} rows is larger than {_MAX_AUDIO_BYTES // _MEBIBYTE} MB, the "
                    "limit of a page: make several pages, each with some of the rows (filters or limit=)"
                )
            yield clip_id, data, mime
            outlines[clip_id] = compute_outline(clip)
        row["outline"] = outlines[clip_id]
