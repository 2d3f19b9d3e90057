"""The files in the folder of a dubbing job.

- ``source`` (the media file) and ``task.json`` (a :class:`Task`) are written by the service.
- ``<locale>/outcome.json`` (a :class:`LocaleOutcome`) and the files of the dub are written by the worker,
which
  is the process of the job.
- All other files are private to the worker.

Each file is written under a temporary name and then renamed, so an existing file is complete.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from speechframe.spec.chosen import ORIGINAL_GAIN_DB_RANGE
from speechframe.spec.dubbing import DubbedUtterance, FailureCode, UtteranceCorrection

SOURCE, TASK, OUTCOME = "source", "task.json", "outcome.json"
DUB_STEM = "dub"
"""Name of the files of a dub, without their extensions."""
SRT, VTT = f"{DUB_STEM}.srt", f"{DUB_STEM}.vtt"


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path. The file is renamed to `path` when the block ends, or removed on an error."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


class JsonFile(BaseModel):
    """A JSON file of the folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def write(self, path: Path) -> None:
        """Replace the file at `path` by this object, atomically. Create the folder if it is missing."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with write_atomically(path) as beside:
            beside.write_text(self.model_dump_json(indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the content of a file. None if it is missing, or invalid, as after a power failure."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None


class Failure(JsonFile):
    """The reason of a failure: a code, and a sentence for people."""

    code: FailureCode
    reason: str


class Refused(Exception):
    """Raised with the reason if a job, or one of its locales, cannot be dubbed."""

    def __init__(self, code: FailureCode, reason: str) -> None:
        self.failure = Failure(code=code, reason=reason)
        super().__init__(reason)


class LocaleOutcome(JsonFile):
    """The result of dubbing into one locale.

    Parameters
    ----------
    version
        Version of the task for which this outcome was written.
    failure
        The reason why the dub failed, or None. If `media` is not empty, a correction failed, and the other
        fields describe the dub before the correction.
    media
        Name of the dubbed media file, in the folder of the locale. Empty if there is none.
    utterances, overlap, cues_over
        As in :class:`~speechframe.spec.dubbing.DubUtterances`.
    warnings
        Sentences for people about replaced or omitted parts.
    """

    version: int
    failure: Failure | None = None
    media: str = ""
    utterances: tuple[DubbedUtterance, ...] = ()
    overlap: float = 0.0
    cues_over: int = 0
    warnings: tuple[str, ...] = ()


class Task(JsonFile):
    """The request of a job.

    Parameters
    ----------
    targets
        Locales to dub into, with hyphens.
    source_locale
        Locale of the media file's speech. None if it was not given.
    script, script_locale
        SRT or WebVTT text that replaces recognition, and its locale. None if they were not given.
    cast
        Speaker to voice id.
    original_gain_db
        Gain of the original audio during speech.
    version
        1, increased by 1 with each correction.
    corrected, corrections
        Locale whose existing dub is corrected, and the corrections. None and empty for a new dub.
    """

    targets: tuple[str, ...]
    source_locale: str | None = None
    script: str | None = None
    script_locale: str | None = None
    cast: Mapping[str, str] = Field(default_factory=dict)
    original_gain_db: float = ORIGINAL_GAIN_DB_RANGE.default or 0.0
    version: int = 1
    corrected: str | None = None
    corrections: tuple[UtteranceCorrection, ...] = ()

    def is_done(self, locale: str, outcome: LocaleOutcome | None) -> bool:
        """Return True if `outcome` has the task's version, or if the task corrects another locale."""
        is_another = self.corrected not in {None, locale}
        return is_another or (outcome is not None and outcome.version == self.version)
