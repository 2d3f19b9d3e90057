"""Apply reviews to the next table of a run: keep audio that a review keeps, and keep corrected texts."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from speechframe.backends.slots import keep_slot_values
from speechframe.backends.speech import read_text
from speechframe.batch.backend import CORRECTION_COLUMNS, HELD_COLUMN, EarlierRows, Request, RowWithoutCall
from speechframe.store.schema import columns

LOCK_COLUMNS = columns(held_back=pa.string(), last_kept=pa.string(), **{HELD_COLUMN: pa.string()})
"""Row columns of a run with a lock. The first names the changed arguments of a row that was held back. The
second is the ``request_key`` of the last kept audio, if the row now has other audio or none. The third is the
request that is held back."""


def keep_audio(
    request: Request,
    earlier: Request | None,
    rows: EarlierRows,
    differences: Callable[[bytes, bytes], tuple[str, ...]],
) -> Request:
    """Return the earlier request of a row if a review keeps its audio and the spoken text is the same."""
    if earlier is None:
        return request
    kept = rows.find_kept(request.row_id or earlier.row_id)
    if kept is None or read_text(earlier.body) != read_text(request.body):
        last = kept or earlier.row_values.get("last_kept")
        return replace(request, row_values={**request.row_values, "last_kept": last})
    if earlier.body == request.body:
        return request
    names, row_values = list(differences(earlier.body, request.body)), dict(request.row_values)
    if (available_s := row_values.get("available_s")) is not None:
        # The requested length follows from the slot.
        is_same_slot = earlier.row_values.get("available_s") == available_s
        names = [name for name in names if name != "audio_duration"] + ([] if is_same_slot else ["slot"])
        row_values |= keep_slot_values(earlier.row_values, available_s)
    changed = ", ".join(names)
    return replace(
        earlier,
        row_values={**row_values, "held_back": changed},
        held=request,
        note=f"kept audio is not made again (changed: {changed})",
    )


def add_last_kept(row: RowWithoutCall, earlier: Request | None, rows: EarlierRows) -> RowWithoutCall:
    """Return a row without a call, with the key of the last kept audio."""
    if earlier is None:
        return row
    last = rows.find_kept(earlier.row_id) or earlier.row_values.get("last_kept")
    return replace(row, row_values={**row.row_values, "last_kept": last})


def find_correction(earlier: Request | None, text: str | None) -> dict[str, str]:
    """Return the values of the correction columns if a review corrected this text of a row before."""
    values = {} if earlier is None else earlier.row_values
    if text is None or values.get("corrected_from") != text:
        return {}
    return {name: values[name] for name in CORRECTION_COLUMNS.names}
