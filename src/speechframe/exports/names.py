"""Name the clips of an export from a template over the columns of their rows."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from string import Formatter
from typing import Any

from speechframe.errors import ExportError, make_problem
from speechframe.exports.chosen_rows import ChosenRows
from speechframe.store.rows import ROW_ID_COLUMN, Selection
from speechframe.writing.words import format_count

_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069\ud800-\udfff]')
"""Characters that a file name cannot contain on one of the usual systems, or that reorder text."""
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices."""
_MAX_PART_BYTES, _MAX_PATH_BYTES = 200, 800
"""Longest part of a path and longest path, with room for a suffix and for the folder of the export."""
_MAX_PROBLEMS = 1000


def name_clips(chosen: Sequence[ChosenRows], template: str) -> int:
    """Set the paths of all rows. Return the number of rows whose values were changed for their path.

    Raise ExportError for an unusable template, a row without a value, or two rows with the same path.
    """
    parts = _parse_template(template)
    columns = list(dict.fromkeys(name for _, name, _ in parts if name))
    problems: list[dict[str, Any]] = []
    first_with: dict[str, str] = {}
    changed = 0
    for rows in chosen:
        for row_id, values in _read_values(rows, columns):
            path, is_changed, fault = _fill_template(parts, values)
            changed += is_changed
            # Some file systems do not distinguish case, so such paths clash, too.
            plain = path.casefold()
            if not fault and plain in first_with:
                fault = f"has the path of row {first_with[plain]!r}, {path!r}"
            if fault:
                problems.append(
                    {
                        **make_problem("name", fault, allowed="a path of its own for each row"),
                        "row_id": row_id,
                    }
                )
            first_with.setdefault(plain, row_id)
            rows.paths.append(path)
    if problems:
        raise ExportError(
            f"the template {template!r} does not name every clip",
            problems=problems[:_MAX_PROBLEMS],
            total=len(problems),
        )
    return changed


def _parse_template(template: str) -> list[tuple[str, str | None, str]]:
    """Return the parts of a template: the text before a column, the column, and its format."""
    try:
        parts = [(text, name, spec or "") for text, name, spec, _ in Formatter().parse(template)]
    except ValueError as error:
        raise ExportError(
            f"name={template!r} is not a template: {error}. Example: '{{locale}}/{{row_id}}'"
        ) from None
    if not any(name for _, name, _ in parts):
        raise ExportError(
            f"name={template!r} must contain a column in braces, such as '{{locale}}/{{row_id}}'"
        )
    if template.startswith("/") or any(part in {"", ".", ".."} for part in template.split("/")):
        raise ExportError(f"name={template!r} must be a path below the export's folder, without '..'")
    return parts


def _read_values(rows: ChosenRows, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the row id, and the values of some columns, of each row of a run."""
    run, row_id = rows.run, rows.run.name_of(ROW_ID_COLUMN)
    known = {*run.columns, ROW_ID_COLUMN}
    if unknown := [name for name in columns if name not in known]:
        allowed = ", ".join(sorted(known))
        fault = f"the run {run.short_path} has no column {unknown[0]!r} for name="
        raise ExportError(f"{fault}; it has {allowed}")
    wanted = {name: row_id if name == ROW_ID_COLUMN else name for name in columns}
    names = list(dict.fromkeys([row_id, *wanted.values()]))
    for batch in Selection(run, rows.places).batches(names, audio=False):
        values = [batch.column(name).to_pylist() for name in wanted.values()]
        row_ids = map(str, batch.column(row_id).to_pylist())
        for each_id, row in zip(row_ids, zip(*values, strict=True), strict=True):
            yield each_id, dict(zip(wanted, row, strict=True))


def _fill_template(
    parts: Sequence[tuple[str, str | None, str]], values: dict[str, Any]
) -> tuple[str, bool, str]:
    """Return the path of a row, whether a value was changed for it, and its fault if there is one."""
    pieces, is_changed = [], False
    for text, name, spec in parts:
        pieces.append(text)
        if name is None:
            continue
        value = values[name]
        if value is None or value == "":
            return "", False, f"has no value in the column {name!r}"
        try:
            given = unicodedata.normalize("NFC", format(value, spec))
        except (TypeError, ValueError) as error:
            return "", False, f"cannot write its {name!r} as {spec!r}: {error}"
        safe = _UNSAFE.sub("_", given)
        is_changed |= safe != given
        pieces.append(safe)
    path = "".join(pieces)
    steps = [_make_safe(step) for step in path.split("/")]
    is_changed |= "/".join(steps) != path
    path = "/".join(steps)
    if max(len(step.encode()) for step in steps) > _MAX_PART_BYTES or len(path.encode()) > _MAX_PATH_BYTES:
        limit = f"at most {_MAX_PART_BYTES} bytes a part and {_MAX_PATH_BYTES} in all"
        return "", is_changed, f"has a path of {format_count(len(path.encode()), 'byte')}; {limit}"
    return path, is_changed, ""


def _make_safe(step: str) -> str:
    """Return a part of a path without names that a usual system refuses or hides."""
    stripped = step.strip(" .") or "_"
    return f"{stripped}_" if _RESERVED.fullmatch(stripped) else stripped
