"""Stored records that this release cannot read. Each is skipped, logged once and left in place."""

import logging
from typing import TypeVar

from pydantic import BaseModel, ValidationError

log = logging.getLogger("speechframe.service")

M = TypeVar("M", bound=BaseModel)


class UnreadableRecord(Exception):
    """A stored record that this release cannot read.

    Parameters
    ----------
    kind
        The kind of record, such as "dubbing job".
    name
        The id of the record.
    why
        The reason. It must not quote the record, which may contain secrets.
    """

    def __init__(self, kind: str, name: str, why: str) -> None:
        super().__init__(
            f"the {kind} {name} cannot be read ({why}): another release of speechframe wrote it, or it is "
            "damaged. It stays unchanged. Start the release that wrote it"
        )
        self.name = name


def parse_record(model: type[M], text: str | bytes, kind: str, name: str) -> M:
    """Return a record from its JSON text, as an object of `model`.

    Parameters
    ----------
    kind, name
        Kind and id of the record, for the error message.

    Raises
    ------
    Unreadable
        The text is not valid for the model.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'JSON'}: {first['type']}"
    # Raise outside the handler. Otherwise the error would have a cause that shows values of the record.
    raise UnreadableRecord(kind, name, why)


class SkippedRecords:
    """The ids of unreadable records that a loop skips.

    Examples
    --------
    >>> skipped = SkippedRecords()
    >>> skipped.add(UnreadableRecord("dubbing job", "7", "JSON: json_invalid"))
    >>> skipped.names
    ('7',)
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The ids so far."""
        return tuple(self._names)

    def add(self, record: UnreadableRecord) -> None:
        """Skip a record from now on, and log it once."""
        if record.name not in self._names:
            self._names.add(record.name)
            log.error("%s", record)
