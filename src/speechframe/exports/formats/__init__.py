"""The formats of an export. Each writes one kind of manifest beside the clips."""

from importlib.metadata import entry_points

from speechframe.errors import ExportError
from speechframe.exports.formats.base import ExportFormat

__all__ = ["ExportFormat"]

_GROUP = "speechframe.exports"
"""The entry points of formats, ours and those of other packages."""


def load_format(name: str) -> type[ExportFormat]:
    """Return the format of a name. Only this format is imported, so a broken package disturbs no other."""
    entries = entry_points(group=_GROUP)
    if name not in entries.names:
        raise ExportError(f"{name!r} is not an export format; allowed: {', '.join(sorted(entries.names))}")
    entry = entries[name]
    try:
        kind = entry.load()
    except Exception as error:
        fault = f"the export format {name!r} ({entry.value}) cannot be imported"
        raise ExportError(f"{fault}: {error}. Mend or remove its package") from error
    if not (isinstance(kind, type) and issubclass(kind, ExportFormat)):
        raise ExportError(f"the export format {name!r} ({entry.value}) must be a subclass of ExportFormat")
    return kind
