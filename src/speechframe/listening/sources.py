"""Collect the clips of a listening test by item (usually the text) and condition (usually the voice)."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from speechframe.audio.clip import Clip
from speechframe.errors import ListeningError
from speechframe.page.arguments import check_text
from speechframe.page.clips import Entry, make_shelf
from speechframe.tables.column import Column
from speechframe.writing.words import format_count

_MAX_SHOWN_CLIPS = 5
"""Largest number of missing clips that an error message lists."""

_ROW_ID = "id"
"""Name that means the row id, if the source has no column of this name."""

_CLIP_ATTRIBUTES = ("voice_id", "locale", "text")
"""Attributes of every clip that can be used as columns, even if the source has no such column."""

_REQUEST_KEY_COLUMNS = ("speech_request_key", "request_key")
"""Columns whose value identifies the request of a clip. The first column with a value is used."""


@dataclass(frozen=True)
class Material:
    """The clips of a test. There is one clip for every item (text) in every condition (voice).

    Parameters
    ----------
    items, conditions
        Names of items and conditions, in the order of the source.
    clips
        Functions that read the clips, by item and condition.
    identity
        Hash of all names, and of the request key or the audio of each clip. Equal material has an equal hash.
    """

    items: tuple[str, ...]
    conditions: tuple[str, ...]
    clips: Mapping[tuple[str, str], Callable[[], Clip]] = field(repr=False)
    identity: str


@dataclass(frozen=True)
class _PlacedClip:
    """A clip of the source with its item and condition."""

    item: str
    condition: str
    entry: Entry


def collect_material(source: Any, *, condition: str = "voice_id", item: str = "id") -> Material:
    """Return the clips of a source by item and condition.

    Parameters
    ----------
    source
        A run, a selection of rows, a list of these, or a DataFrame with a column ``audio``. A mapping of
        conditions to any of these is also accepted, such as ``{"ours": run, "human": recordings}``.
    condition
        The column with the condition of each clip. Not used if `source` is a mapping.
    item
        The column with the item of each clip. ``"id"`` means the row id if the source has no such column.

    Raises
    ------
    ListeningError
        A column is unknown, or there are fewer than two conditions. Or an item has no playable clip in a
        condition (``missing`` lists these), or more than one clip.
    StoreError
        The source does not contain clips.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from speechframe.audio.codec import encode
    >>> from speechframe.spec.speech import Format
    >>> audio = encode(np.zeros(800, np.float32), 8000, format=Format.WAV)
    >>> rows = [{"line": k, "voice": v, "audio": audio} for k in (1, 2) for v in ("ada", "bob")]
    >>> found = collect_material(pd.DataFrame(rows), condition="voice", item="line")
    >>> found.items, found.conditions
    (('1', '2'), ('ada', 'bob'))
    """
    found = list(
        _find_clips(source, _check_column_name("condition", condition), _check_column_name("item", item))
    )
    conditions = tuple(dict.fromkeys(one.condition for one in found))
    if len(conditions) < 2:  # noqa: PLR2004 - one thing cannot be compared
        only = f"only {conditions[0]!r}" if conditions else "none"
        raise ListeningError(
            f"a listening test compares two conditions or more, and there is {only}; name the column with "
            f'the conditions (condition="..."), or pass a mapping such as {{"ours": run, "theirs": frame}}'
        )
    items = tuple(dict.fromkeys(one.item for one in found))
    by_place = _index_by_place(found, condition, item)
    _refuse_missing(items, conditions, by_place)
    clips = {place: one.entry.read_clip for place, one in by_place.items()}
    return Material(items, conditions, clips, _hash_material(by_place))


def describe_nearest_names(name: str, known: Collection[str]) -> str:
    """Return text for an error message about an unknown name: first similar names, then all known names."""
    close = get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{meant}there are: {', '.join(sorted(known)) or 'none'}"


def _check_column_name(argument: str, column: str | Column) -> str:
    return column.name if isinstance(column, Column) else check_text(argument, column, error=ListeningError)


def _find_clips(source: Any, condition: str, item: str) -> Iterator[_PlacedClip]:
    """Yield each clip of a source with its item and condition."""
    parts = list(source.items()) if isinstance(source, Mapping) else [(None, source)]
    if isinstance(source, Mapping) and not all(str(name or "").strip() for name in source):
        raise ListeningError(
            f"every condition of a mapping must have a name that is not empty, not "
            f"{' and '.join(map(repr, source))}"
        )
    for mapping_key, part in parts:
        for entry in make_shelf(part, limit=None).entries:
            condition_name = (
                str(mapping_key) if mapping_key is not None else _get_value(entry, condition, "condition")
            )
            yield _PlacedClip(_get_value(entry, item, "item"), condition_name, entry)


def _get_value(entry: Entry, column: str, argument: str) -> str:
    """Return the value of a column for a clip as text. `argument` is ``item`` or ``condition``."""
    if column in entry.fields:
        value = entry.fields[column]
    elif column in _CLIP_ATTRIBUTES:
        value = getattr(entry, column)
    elif column == _ROW_ID:
        value = entry.row_id
    else:
        known = {*entry.fields, *_CLIP_ATTRIBUTES, _ROW_ID}
        raise ListeningError(
            f"{argument}={column!r} is not a column; {describe_nearest_names(column, known)}"
        )
    # Among values, only a missing value such as NaN is not equal to itself.
    if value is None or value != value or value == "":  # noqa: PLR0124
        raise ListeningError(
            f"row {entry.row_id!r} has an empty {column}, which is its {argument}; fill it in, or leave the "
            "row out"
        )
    return str(value)


def _index_by_place(
    found: list[_PlacedClip], condition: str, item: str
) -> dict[tuple[str, str], _PlacedClip]:
    """Return the clips by item and condition. Raise ListeningError if two clips have the same of both."""
    by_place: dict[tuple[str, str], _PlacedClip] = {}
    for placed_clip in found:
        first = by_place.setdefault((placed_clip.item, placed_clip.condition), placed_clip)
        if first is not placed_clip:
            raise ListeningError(
                f"item {placed_clip.item!r} occurs twice in condition {placed_clip.condition!r} (rows "
                f"{first.entry.row_id!r} and {placed_clip.entry.row_id!r}); each item needs one clip a "
                f"condition: select rows, or use another column than item={item!r} or condition={condition!r}"
            )
    return by_place


def _refuse_missing(
    items: tuple[str, ...], conditions: tuple[str, ...], found: Mapping[tuple[str, str], _PlacedClip]
) -> None:
    """Raise ListeningError if an item has no playable clip in a condition."""
    missing = {
        (item, condition): found[item, condition].entry.problem if (item, condition) in found else None
        for item in items
        for condition in conditions
        if (item, condition) not in found or found[item, condition].entry.problem is not None
    }
    if not missing:
        return
    lines = [
        f"  item {item!r} in condition {condition!r}" + (f": {problem}" if problem else "")
        for (item, condition), problem in list(missing.items())[:_MAX_SHOWN_CLIPS]
    ]
    if len(missing) > _MAX_SHOWN_CLIPS:
        lines.append(f"  ... and {len(missing) - _MAX_SHOWN_CLIPS:,} more; .missing lists all")
    lacking = {item for item, _ in missing}
    if len(lacking) == len(items):
        head = (
            "there is nothing to compare, because no item has a clip in every condition. Use a column whose "
            'values are equal across the conditions, often item="text":'
        )
    else:
        head = (
            f"{len(lacking):,} of {format_count(len(items), 'item')} cannot be heard in every condition; "
            "leave these items out, or make the missing clips:"
        )
    raise ListeningError("\n".join([head, *lines]), missing=list(missing))


def _hash_material(found: Mapping[tuple[str, str], _PlacedClip]) -> str:
    """Return a hash of the names of items and conditions, and of all clips."""
    digest = hashlib.sha256()
    for place, placed_clip in sorted(found.items()):
        entry = placed_clip.entry
        key = next(filter(None, map(entry.fields.get, _REQUEST_KEY_COLUMNS)), None)
        # A clip without a request key is identified by a hash of its audio.
        audio_id = str(key) if key else hashlib.sha256(entry.read_clip().audio).hexdigest()
        digest.update("\0".join([*place, audio_id, ""]).encode())
    return digest.hexdigest()
