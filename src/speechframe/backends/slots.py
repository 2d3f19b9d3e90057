"""Fit spoken lines to their slots, the times in a film or a player that a line may take.

A line is first spoken at its natural length. A line that is somewhat too long is spoken again with a fixed
length (``audio_duration``). A line that is much too long keeps its natural length and must be shortened.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from speechframe.backends.speech import change_fields, split_options
from speechframe.batch.backend import EarlierRows, Request
from speechframe.spec.check import FieldProblem, shorten_value
from speechframe.store.schema import columns

MAX_FIT_RATIO = 1.3
"""Largest natural length of a line, divided by the available time, that is fitted. A faster line sounds
hurried."""
MAX_BORROWED_S = 0.5
"""Longest time in seconds that a line may take from the gap before the next line."""
_TOLERANCE_S = 0.01
"""A line may be so many seconds too long, because nobody hears that."""
_MIN_PREDICTING_LINES = 20
"""Number of measured lines from which the length of further lines with the same options is predicted."""
_PREDICTED_RATIOS = 1.05, 1.25
"""A predicted length counts only if its ratio to the available time lies between these two. Otherwise the
line is measured, because the prediction could be wrong about what to do."""

FITS, FITTED, NEEDS_SHORTENING = "fits", "fitted", "needs_shortening"
"""Values of the column ``slot_status``."""
MEASURED, PREDICTED = "measured", "predicted"
"""Values of the column ``natural_basis``."""

SLOT_COLUMNS = columns(
    available_s=pa.float64(),
    natural_s=pa.float64(),
    natural_basis=pa.string(),
    fit_ratio=pa.float64(),
    slot_status=pa.string(),
    over_s=pa.float64(),
    characters_to_lose=pa.int64(),
)
"""Row columns of a line with a slot."""


def compute_available_s(slot: Any, gap: Any) -> float | FieldProblem:
    """Return the time that a line may take in seconds: its slot, and a part of the gap that follows."""
    seconds = []
    for name, value in (("slot", slot), ("gap", gap)):
        try:
            found = float(value or 0)  # a CSV file has numbers as texts
        except (TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found) or isinstance(value, bool) or (name == "slot" and found <= 0):
            return FieldProblem(name, "is not a length of time", shorten_value(value), "seconds above 0")
        seconds.append(found)
    return round(seconds[0] + min(MAX_BORROWED_S, max(0.0, seconds[1])), 3)


def fit_line(
    available_s: float, natural_s: float, basis: str, characters: int, max_ratio: float = MAX_FIT_RATIO
) -> dict[str, Any]:
    """Return the row values of a line. If it is over `max_ratio` times its time, it needs shortening."""
    ratio = natural_s / available_s
    found = {"available_s": available_s, "natural_s": natural_s, "natural_basis": basis, "fit_ratio": ratio}
    if natural_s <= available_s + _TOLERANCE_S:
        return {**found, "slot_status": FITS, "over_s": 0.0}
    if ratio <= max_ratio:
        return {**found, "slot_status": FITTED, "over_s": 0.0}
    lost = math.ceil(characters * (1 - max_ratio / ratio))
    over_s = natural_s - available_s
    return {**found, "slot_status": NEEDS_SHORTENING, "over_s": over_s, "characters_to_lose": lost}


def keep_slot_values(earlier: Mapping[str, Any], available_s: float) -> dict[str, Any]:
    """Return the row values of a line that keeps its audio. In another slot, most of them are unknown yet."""
    if earlier.get("available_s") == available_s:
        return {name: earlier.get(name) for name in SLOT_COLUMNS.names}
    return {**dict.fromkeys(SLOT_COLUMNS.names), "available_s": available_s}


class SlotFitter:
    """Fits the lines of a table to their slots. `rows` are the rows of the run's table so far.

    `undecided_millicredits` is the price of the lines whose length is not known yet, in thousandths of a
    credit. Each of them may be paid a second time.
    """

    def __init__(self, rows: EarlierRows) -> None:
        self._rows, self.undecided_millicredits = rows, 0

    def fit(self, request: Request, earlier: Request | None, available_s: float) -> Request:
        """Return the request of a line with a slot. Its length may be known, predicted, or not yet known."""
        line, known = split_options(request.body), {} if earlier is None else earlier.row_values
        is_same = earlier is not None and earlier.body != b"" and split_options(earlier.body) == line
        basis = known.get("natural_basis") if is_same else None
        # A decision by prediction stays while the slot stays.
        if basis == MEASURED or (basis == PREDICTED and known.get("available_s") == available_s):
            natural_s = known["natural_s"]
        else:
            natural_s, basis = self._predict(line[0], request.characters, available_s), PREDICTED
        if natural_s is None:
            self.undecided_millicredits += request.price
            return replace(request, row_values={**request.row_values, "available_s": available_s})
        return _apply_fit(request, fit_line(available_s, natural_s, basis, request.characters))

    def _predict(self, options: bytes, characters: int, available_s: float) -> float | None:
        """Return the predicted length of a line in seconds, or None if the line should be measured."""
        lines, all_characters, all_seconds = self._measured_totals.get(options, (0, 0, 0.0))
        if lines < _MIN_PREDICTING_LINES:
            return None
        predicted = characters * all_seconds / all_characters
        low, high = _PREDICTED_RATIOS
        return predicted if low <= predicted / available_s <= high else None

    @cached_property
    def _measured_totals(self) -> dict[bytes, tuple[int, int, float]]:
        """Number, characters and seconds of the measured lines with the same options."""
        found: dict[bytes, tuple[int, int, float]] = {}
        for line in self._rows:
            if line.row_values.get("natural_basis") == MEASURED:
                options = split_options(line.body)[0]
                lines, characters, seconds = found.get(options, (0, 0, 0.0))
                seconds += line.row_values["natural_s"]
                found[options] = lines + 1, characters + line.characters, seconds
        return found


def revise_line(request: Request, natural_s: float | None) -> Request | None:
    """Return the new request of a line with audio of a known length, or None if nothing is to be decided."""
    available_s = request.row_values.get("available_s")
    if available_s is None or natural_s is None or "slot_status" in request.row_values:
        return None
    if "held_back" in request.row_values:  # the audio stays as it is
        fit = fit_line(available_s, natural_s, MEASURED, request.characters, max_ratio=1.0)
        unknown = dict.fromkeys(("natural_s", "natural_basis"))
        return replace(request, row_values={**request.row_values, **fit, **unknown})
    return _apply_fit(request, fit_line(available_s, natural_s, MEASURED, request.characters))


def _apply_fit(request: Request, fit: Mapping[str, Any]) -> Request:
    """Return a request with the row values and the length that fit a line to its slot."""
    found = replace(request, row_values={**request.row_values, **fit})
    if fit["slot_status"] != FITTED:
        return found
    content, body = change_fields(request.body, audioDuration=fit["available_s"])
    return replace(found, content=content, body=body, base_key="", key="", take=0)
