"""The formats of an export. Each writes one kind of manifest beside the clips."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType

from speechframe.errors import ExportError
from speechframe.exports.formats.base import ExportFormat

__all__ = ["ExportFormat", "find_format", "list_formats"]

GROUP = "speechframe.exports"
"""The entry points of formats, ours and those of other packages."""


@lru_cache(maxsize=1)
def list_formats() -> Mapping[str, type[ExportFormat]]:
    """Return the formats by name. Each call of a process returns the same formats.

    Raises
    ------
    ExportError
        A package offers a format that cannot be imported, or that is not an :class:`ExportFormat`.
    """
    found: dict[str, type[ExportFormat]] = {}
    for entry in entry_points(group=GROUP):
        try:
            kind = entry.load()
        except Exception as error:
            raise ExportError(
                f"the export format {entry.name!r} ({entry.value}) cannot be imported: {error}"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, ExportFormat)):
            raise ExportError(
                f"the export format {entry.name!r} ({entry.value}) must be a class of ExportFormat"
            )
        found[entry.name] = kind
    return MappingProxyType(found)


def find_format(name: str) -> type[ExportFormat]:
    """Return the format of a name, or raise ExportError with the allowed names."""
    if name not in list_formats():
        raise ExportError(f"{name!r} is not an export format; allowed: {', '.join(sorted(list_formats()))}")
    return list_formats()[name]
