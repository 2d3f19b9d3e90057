"""The folder of a job: what the service writes there, and what its worker leaves.

- ``source``: the medium, ``task.json``: what is asked for. Both are the service's.
- ``<locale>/outcome.json``: what became of a locale (:class:`LocaleOutcome`), beside its files.
- everything else is the worker's own.

Files are written beside their place and renamed into it: what is there is whole.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from speechframe.spec.chosen import ORIGINAL_GAIN_DB
from speechframe.spec.dubbing import DubbedUtterance, FailureCode, UtteranceCorrection

SOURCE, TASK, OUTCOME = "source", "task.json", "outcome.json"
DUB = "dub"
"""What the files of a dub are called, before their endings."""
SRT, VTT = f"{DUB}.srt", f"{DUB}.vtt"


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yield where to write a file; it becomes `path` when the block ends, and is removed where that fails."""
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
        """Put it in its place, whole."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written(path) as beside:
            beside.write_text(self.model_dump_json(indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return what is there; None where there is nothing, or what a machine that lost its power left."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None


class Failure(JsonFile):
    """Why something failed: a code, and a sentence for people."""

    code: FailureCode
    reason: str


class Refused(Exception):
    """A job, or a locale of it, that cannot be dubbed, and why."""

    def __init__(self, code: FailureCode, reason: str) -> None:
        self.failure = Failure(code=code, reason=reason)
        super().__init__(reason)


class LocaleOutcome(JsonFile):
    """What became of a locale.

    Parameters
    ----------
    version
        Of the task that it was made for.
    failure
        Why there is nothing; beside a medium: why a correction was not made, so that this is the version
        before it.
    media
        Name of the dubbed medium; empty where there is none. Its cues are beside it.
    utterances, overlap, cues_over
        As :class:`~speechframe.spec.dubbing.DubUtterances` has them.
    warnings
        What was replaced or left out, for people.
    """

    version: int
    failure: Failure | None = None
    media: str = ""
    utterances: tuple[DubbedUtterance, ...] = ()
    overlap: float = 0.0
    cues_over: int = 0
    warnings: tuple[str, ...] = ()


class Task(JsonFile):
    """What a job asks for.

    Parameters
    ----------
    targets
        Locales to dub into, with hyphens.
    source_locale
        Locale that the medium is in, as far as somebody said.
    script, script_locale
        SRT or WebVTT that stands in for what would be recognised, and its locale.
    cast
        Speaker to voice id.
    original_gain_db
        Level of the original under the dub.
    version
        1, and one more with each correction.
    corrected, corrections
        What is to be changed in the dub of a locale that is there already.
    """

    targets: tuple[str, ...]
    source_locale: str | None = None
    script: str | None = None
    script_locale: str | None = None
    cast: Mapping[str, str] = Field(default_factory=dict)
    original_gain_db: float = ORIGINAL_GAIN_DB.default or 0.0
    version: int = 1
    corrected: str | None = None
    corrections: tuple[UtteranceCorrection, ...] = ()

    def is_done(self, locale: str, outcome: LocaleOutcome | None) -> bool:
        """Return whether an outcome is what the task asks for of its locale; a correction is of one alone."""
        is_another = self.corrected not in {None, locale}
        return is_another or (outcome is not None and outcome.version == self.version)
