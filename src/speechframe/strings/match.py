"""Match strings with those of an earlier reading, so that changed strings keep their ids."""

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from speechframe.errors import refuse
from speechframe.strings.cues import find_overlaps
from speechframe.strings.entries import StringEntry
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

_LEAST_RATIO = 0.8
"""Least similarity of two texts of the same string, as `difflib` measures it."""
_MAX_SIMILAR_ROWS, _COMPARED_TEXTS = 500, 5
"""Largest number of new strings, and of removed strings, whose texts are compared. For each new string, the
exact ratio is computed of so many texts, because its time grows with the square of their length."""
_LEAST_OVERLAP = 0.5
"""Least overlap of two cues with different texts, as a share of the shorter cue."""


def match_previous(rows: Sequence[StringEntry], frame: "pd.DataFrame") -> list[str]:
    """Give each row the id of the same string in `frame`, and other rows an id that `frame` does not have.

    Return remarks for the user.
    """
    previous = list(_read_previous(frame))
    notes: list[str] = []
    _match_by_unit(rows, previous)
    _match_similar(rows, previous, notes)
    _match_cues(rows, previous)
    texts = {one.id: one.text for one in previous}
    _name_new_rows(rows, texts)
    matched = [row for row in rows if row.previous_id is not None]
    changed, new = sum(row.text != texts[row.id] for row in matched), len(rows) - len(matched)
    removed = [one.id for one in previous if one.previous_id is None]
    notes.append(f"compared with previous: {changed:,} changed, {new:,} new, {len(removed):,} removed")
    if removed:
        shown = ", ".join(map(repr, removed[:3]))
        more = f" and {len(removed) - 3:,} more" if removed[3:] else ""
        notes.append(f"{format_count(len(removed), 'removed string')}: {shown}{more}")
    return notes


def _read_previous(frame: "pd.DataFrame") -> Iterator[StringEntry]:
    if missing := [name for name in ("id", "text") if name not in frame.columns]:
        raise refuse("previous", f"has no column {missing[0]!r}", "a frame of read_strings, or a run of it")
    names = ["id", "text", "unit", "file", "start_s", "end_s", "form"]
    frame = frame.drop_duplicates("id").reindex(columns=names).astype(object)
    values = frame.where(frame.notna(), None).itertuples(index=False)
    for id_, text, own, file, start_s, end_s, form in values:
        unit = str(id_) if own is None else f"{file}:{own}" if file is not None else str(own)
        made = StringEntry(unit, 0, "" if text is None else str(text), id=str(id_))
        made.form = None if form is None else int(float(form))
        if start_s is not None and end_s is not None:
            made.start_ms, made.end_ms = round(1000 * float(start_s)), round(1000 * float(end_s))
        yield made


def _pair(row: StringEntry, former: StringEntry | None, basis: str) -> None:
    """Give a row the id of a previous string, unless one of the two has a partner."""
    if former is None or row.previous_id is not None or former.previous_id is not None:
        return
    row.id = row.previous_id = former.previous_id = former.id
    row.previous_basis = basis


def _list_unmatched(entries: Iterable[StringEntry], *, are_cues: bool) -> list[StringEntry]:
    """Return the entries without a partner, either cues or other strings."""
    return [one for one in entries if one.previous_id is None and (one.start_ms is not None) == are_cues]


def _match_by_unit(rows: Sequence[StringEntry], previous: Sequence[StringEntry]) -> None:
    by_unit = {one.unit: one for one in _list_unmatched(previous, are_cues=False)}
    for row in _list_unmatched(rows, are_cues=False):
        _pair(row, by_unit.get(row.id), "id")
    for row in _list_unmatched(rows, are_cues=False):
        if row.former is not None:
            _pair(row, by_unit.get(row.id.removesuffix(row.unit) + row.former), "previous msgid")


def _match_equal(rows: Sequence[StringEntry], previous: Sequence[StringEntry], basis: str) -> None:
    """Match entries with equal texts and plural forms, in their order."""
    equal: dict[Any, deque[StringEntry]] = defaultdict(deque)
    for one in previous:
        equal[one.text, one.form].append(one)
    for row in rows:
        if same := equal.get((row.text, row.form)):
            _pair(row, same.popleft(), basis)


def _match_similar(rows: Sequence[StringEntry], previous: Sequence[StringEntry], notes: list[str]) -> None:
    """Match the other strings by similar texts, the most similar ones first."""
    new, removed = (_list_unmatched(entries, are_cues=False) for entries in (rows, previous))
    _match_equal(new, removed, "similar")
    new, removed = (_list_unmatched(entries, are_cues=False) for entries in (new, removed))
    if removed and max(len(new), len(removed)) > _MAX_SIMILAR_ROWS:
        notes.append(
            f"similar texts were looked for only among the first {_MAX_SIMILAR_ROWS:,} of {len(new):,} new "
            f"and {len(removed):,} removed strings"
        )
    new, removed = new[:_MAX_SIMILAR_ROWS], removed[:_MAX_SIMILAR_ROWS]
    pairs, matcher = [], SequenceMatcher(autojunk=False)
    for at, row in enumerate(new):
        matcher.set_seq2(row.text)
        likely = []
        for other, former in enumerate(removed):
            matcher.set_seq1(former.text)
            if former.form == row.form and matcher.real_quick_ratio() >= _LEAST_RATIO:
                likely.append((matcher.quick_ratio(), other))
        for _, other in heapq.nlargest(_COMPARED_TEXTS, likely):
            matcher.set_seq1(removed[other].text)
            pairs.append((-matcher.ratio(), at, other))
    for ratio, at, other in sorted(pairs):
        if -ratio >= _LEAST_RATIO:
            _pair(new[at], removed[other], "similar")


def _match_cues(rows: Sequence[StringEntry], previous: Sequence[StringEntry]) -> None:
    """Match cues by equal texts, first in runs of several cues, and other cues by their times."""
    new, removed = (_list_unmatched(entries, are_cues=True) for entries in (rows, previous))
    texts = ([row.text for row in new], [one.text for one in removed])
    for at, other, length in SequenceMatcher(None, *texts).get_matching_blocks():
        for row, former in zip(new[at : at + length], removed[other : other + length], strict=True):
            _pair(row, former, "text and time")
    removed = _list_unmatched(removed, are_cues=True)
    _match_equal(_list_unmatched(new, are_cues=True), removed, "text and time")
    starts = {one.id: one.span[0] for one in previous}
    changed, spans, shift = [], [], 0
    for row in new:  # other cues have moved in time as far as the cue before them
        start, end = row.span
        if row.previous_id is not None:
            shift = start - starts[row.id]
        else:
            changed.append(row)
            spans.append((start - shift, end - shift))
    removed = _list_unmatched(removed, are_cues=True)
    pairs = find_overlaps(spans, [one.span for one in removed], _LEAST_OVERLAP)
    for at, other in pairs.items():
        _pair(changed[at], removed[other], "time")


def _name_new_rows(rows: Iterable[StringEntry], former_ids: Collection[str]) -> None:
    """Give rows without a partner an id that no other row has or had: their own id, or ``<id>~2``."""
    taken = set(former_ids)
    for row in rows:
        if row.previous_id is None:
            own = row.id
            names = itertools.chain([own], (f"{own}~{number}" for number in itertools.count(2)))
            row.id = next(name for name in names if name not in taken)
            taken.add(row.id)
