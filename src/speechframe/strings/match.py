"""Match strings with those of an earlier reading, so that changed strings keep their ids."""

import itertools
import re
import string
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from speechframe.strings.cues import find_overlaps
from speechframe.strings.entries import StringEntry, refuse
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

_LEAST_RATIO = 0.8
"""Least similarity of two texts of the same string, as `difflib` measures it."""
_MAX_SIMILAR_ROWS, _COMPARED_TEXTS = 500, 5
"""Largest number of new strings, and of removed strings, whose texts are compared. For each new string, the
exact ratio is computed of so many texts, because its time grows with the square of their length."""
_MAX_EQUAL_PAIRS = 1_000_000
"""Largest number of pairs of cues with the same text that are compared in their order."""
_LEAST_OVERLAP = 0.5
"""Least overlap of two cues with different texts, as a share of the shorter cue."""


class _Matches:
    """Pairs of a new row and a previous row, both one to one."""

    def __init__(self, rows: Sequence[StringEntry], previous: Sequence[StringEntry]) -> None:
        self.rows, self.previous = rows, previous
        self.pairs: dict[int, int] = {}
        self._taken: set[int] = set()

    def add(self, row: int, previous: int | None, basis: str) -> None:
        """Add a pair, unless one of the two has a partner."""
        if previous is None or row in self.pairs or previous in self._taken:
            return
        self.pairs[row] = previous
        self._taken.add(previous)
        found = self.rows[row]
        found.previous_id = found.id = self.previous[previous].id
        found.previous_basis = basis

    def list_new(self, *, are_cues: bool) -> list[int]:
        """Return the rows without a partner, either of cues or of other strings."""
        ats = (at for at in range(len(self.rows)) if at not in self.pairs)
        return [at for at in ats if (self.rows[at].start_ms is not None) == are_cues]

    def list_removed(self, *, are_cues: bool) -> list[int]:
        """Return the previous rows without a partner, either of cues or of other strings."""
        ats = (at for at in range(len(self.previous)) if at not in self._taken)
        return [at for at in ats if (self.previous[at].start_ms is not None) == are_cues]


def match_previous(rows: Sequence[StringEntry], frame: "pd.DataFrame") -> list[str]:
    """Give each row the id of the same string in `frame`, and other rows an id that `frame` does not have.

    Return remarks for the user.
    """
    previous = list(_read_previous(frame))
    notes: list[str] = []
    matches = _Matches(rows, previous)
    _match_by_unit(matches)
    _match_similar(matches, notes)
    _match_cues(matches)
    _name_new_rows(rows, {one.id for one in previous})
    changed = sum(rows[row].text != previous[one].text for row, one in matches.pairs.items())
    removed = [previous[at].id for kind in (False, True) for at in matches.list_removed(are_cues=kind)]
    new = len(rows) - len(matches.pairs)
    notes.append(f"compared with previous: {changed:,} changed, {new:,} new, {len(removed):,} removed")
    if removed:
        shown = ", ".join(map(repr, removed[:3]))
        more = f" and {len(removed) - 3:,} more" if removed[3:] else ""
        notes.append(f"{format_count(len(removed), 'removed string')}: {shown}{more}")
    return notes


def _read_previous(frame: "pd.DataFrame") -> Iterator[StringEntry]:
    if missing := [name for name in ("id", "text") if name not in frame.columns]:
        raise refuse("previous", f"has no column {missing[0]!r}", "a frame of read_strings, or a run of it")
    names = ("id", "text", "unit", "file", "start_s", "end_s", "form")
    frame = frame.drop_duplicates("id")
    columns = [frame[name].tolist() if name in frame else [None] * len(frame) for name in names]
    for values in zip(*columns, strict=True):
        id_, text, unit, file, start_s, end_s, form = (None if _is_missing(one) else one for one in values)
        unit = str(id_) if unit is None else f"{file}:{unit}" if file is not None else str(unit)
        made = StringEntry(
            unit, 0, "" if text is None else str(text), id=str(id_), form=None if form is None else int(form)
        )
        if start_s is not None and end_s is not None:
            made.start_ms, made.end_ms = round(1000 * start_s), round(1000 * end_s)
        yield made


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or value != value  # noqa: PLR0124 - NaN


def _match_by_unit(matches: _Matches) -> None:
    by_unit = {one.unit: at for at, one in enumerate(matches.previous) if one.start_ms is None}
    prefixes = [row.id.removesuffix(row.unit) for row in matches.rows]
    for at in matches.list_new(are_cues=False):
        matches.add(at, by_unit.get(matches.rows[at].id), "id")
    for at in matches.list_new(are_cues=False):
        if (former := matches.rows[at].former) is not None:
            matches.add(at, by_unit.get(prefixes[at] + former), "previous msgid")


def _match_similar(matches: _Matches, notes: list[str]) -> None:
    """Match the other strings by similar texts, the most similar ones first."""
    new, removed = matches.list_new(are_cues=False), matches.list_removed(are_cues=False)
    equal: dict[Any, list[int]] = defaultdict(list)
    for at in removed:
        equal[matches.previous[at].text, matches.previous[at].form].append(at)
    for at in new:
        if same := equal.get((matches.rows[at].text, matches.rows[at].form)):
            matches.add(at, same.pop(0), "similar")
    new, removed = matches.list_new(are_cues=False), matches.list_removed(are_cues=False)
    if not removed:
        return
    if max(len(new), len(removed)) > _MAX_SIMILAR_ROWS:
        notes.append(
            f"similar texts were looked for only among the first {_MAX_SIMILAR_ROWS:,} of {len(new):,} new "
            f"and {len(removed):,} removed strings"
        )
    for at, other in _find_similar(matches, new[:_MAX_SIMILAR_ROWS], removed[:_MAX_SIMILAR_ROWS]):
        matches.add(at, other, "similar")


def _find_similar(matches: _Matches, new: list[int], removed: list[int]) -> list[tuple[int, int]]:
    """Return the pairs of new and removed strings with similar texts, the most similar ones first."""
    removed = sorted(removed, key=lambda at: len(matches.previous[at].text))
    lengths = [len(matches.previous[at].text) for at in removed]
    pairs = []
    matcher = SequenceMatcher(autojunk=False)
    for at in new:
        row = matches.rows[at]
        matcher.set_seq2(row.text)
        # Texts whose lengths differ by more than half cannot reach the least ratio.
        low, high = bisect_left(lengths, len(row.text) * 2 / 3), bisect_right(lengths, len(row.text) * 3 / 2)
        likely = []
        for other in removed[low:high]:
            matcher.set_seq1(matches.previous[other].text)
            if matches.previous[other].form == row.form and (bound := matcher.quick_ratio()) >= _LEAST_RATIO:
                likely.append((-bound, other))
        for _, other in sorted(likely)[:_COMPARED_TEXTS]:
            matcher.set_seq1(matches.previous[other].text)
            if (ratio := matcher.ratio()) >= _LEAST_RATIO:
                pairs.append((-ratio, at, other))
    return [(at, other) for _, at, other in sorted(pairs)]


def _match_cues(matches: _Matches) -> None:
    """Match cues by equal texts, in order and then nearest in time, and other cues by their times."""
    rows, previous = matches.rows, matches.previous
    new, removed = matches.list_new(are_cues=True), matches.list_removed(are_cues=True)
    counts = Counter(previous[at].text for at in removed)
    if sum(counts[rows[at].text] for at in new) <= _MAX_EQUAL_PAIRS:
        texts = ([rows[at].text for at in new], [previous[at].text for at in removed])
        for at, other, length in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks():
            for one, former in zip(new[at : at + length], removed[other : other + length], strict=True):
                matches.add(one, former, "text and time")
    by_text: dict[str, list[int]] = defaultdict(list)
    for at in matches.list_removed(are_cues=True):
        by_text[previous[at].text].append(at)
    for at in matches.list_new(are_cues=True):
        former_cues = by_text.get(rows[at].text)
        if former_cues:
            start_ms = rows[at].start_ms or 0
            distances = [
                (abs((previous[one].start_ms or 0) - start_ms), one)
                for one in former_cues[:_MAX_SIMILAR_ROWS]
            ]
            former_cues.remove(nearest := min(distances)[1])
            matches.add(at, nearest, "text and time")
    new, removed = matches.list_new(are_cues=True), matches.list_removed(are_cues=True)
    shifts, shift = {}, 0
    for at, row in enumerate(rows):  # other cues have moved in time as far as the cue before them
        if at in matches.pairs and row.start_ms is not None:
            shift = row.start_ms - (previous[matches.pairs[at]].start_ms or 0)
        shifts[at] = shift
    found = find_overlaps(
        [rows[at] for at in new], [previous[at] for at in removed], [shifts[at] for at in new], _LEAST_OVERLAP
    )
    for one, other in found.items():
        matches.add(new[one], removed[other], "time")


def _name_new_rows(rows: Sequence[StringEntry], former_ids: set[str]) -> None:
    """Give rows without a partner free ids. A new cue after the cue ``12`` gets ``12a``."""
    taken = former_ids | {row.id for row in rows if row.previous_id is not None}
    before, file = "0", None
    for row in rows:
        if row.file != file:
            before, file = row.id.removesuffix(row.unit) + "0", row.file
        if row.previous_id is None:
            is_cue = row.start_ms is not None
            if is_cue or row.id in taken:
                base = re.sub(r"(?<=\d)[a-z]+$", "", before) if is_cue else f"{row.id}~"
                suffixes = (
                    "".join(one)
                    for n in itertools.count(1)
                    for one in itertools.product(string.ascii_lowercase, repeat=n)
                )
                row.id = next(name for one in suffixes if (name := base + one) not in taken)
            taken.add(row.id)
        before = row.id
