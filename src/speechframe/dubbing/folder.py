"""The folder of a job: what the service writes there, and what its worker leaves.

- ``source``: the medium, ``task.json``: what is asked for. Both are the service's.
- ``failed.json``: why nothing can be dubbed (:class:`Failure`), for all locales.
- ``<locale>/outcome.json``: what became of a locale (:class:`Outcome`), with the names of its files.
- everything else is the worker's own.

Files are written beside their place and renamed into it: what is there is whole.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from speechframe.spec.chosen import ORIGINAL_GAIN_DB
from speechframe.spec.dubbing import DubbedUtterance, FailureCode, UtteranceCorrection

SOURCE = "source"


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
        """Return what is there; None where there is nothing."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None


class Task(JsonFile):
    """What a job asks for.

    Parameters
    ----------
    file_name
        Name of the medium; its ending says nothing about what it is.
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
    corrections
        Locale to everything that was corrected in it so far.
    """

    file_name: str
    targets: tuple[str, ...]
    source_locale: str | None = None
    script: str | None = None
    script_locale: str | None = None
    cast: Mapping[str, str] = Field(default_factory=dict)
    original_gain_db: float = ORIGINAL_GAIN_DB.default or 0.0
    version: int = 1
    corrections: Mapping[str, tuple[UtteranceCorrection, ...]] = Field(default_factory=dict)


class Failure(JsonFile):
    """Why something failed: a code, and a sentence for people."""

    code: FailureCode
    reason: str


class Outcome(JsonFile):
    """What became of a locale.

    Parameters
    ----------
    version
        The task's version that it is of: an older one is to be made again.
    failure
        Why there is nothing; None where it succeeded.
    media, srt, vtt
        Names of its files, beside this one.
    content_type
        Of ``media``.
    utterances, overlap, cues_over
        As :class:`~speechframe.spec.dubbing.DubUtterances` has them.
    warnings
        What was replaced or left out, for people.
    """

    version: int
    failure: Failure | None = None
    media: str = ""
    content_type: str = ""
    srt: str = ""
    vtt: str = ""
    utterances: tuple[DubbedUtterance, ...] = ()
    overlap: float = 0.0
    cues_over: int = 0
    warnings: tuple[str, ...] = ()


class Step(BaseModel):
    """A line that the worker prints when something begins.

    Parameters
    ----------
    locale
        What it is for; None for all of them.
    step
        One word: ``audio``, ``recognise``, ``translate``, ``speak``, ``mix``, ``done``.
    share
        How much of it is done, 0 to 1.
    """

    model_config = ConfigDict(frozen=True)

    locale: str | None
    step: str
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0


def task_path(folder: Path) -> Path:
    """Return where the task is."""
    return folder / "task.json"


def failure_path(folder: Path) -> Path:
    """Return where the failure of the whole job is."""
    return folder / "failed.json"


def outcome_path(folder: Path, locale: str) -> Path:
    """Return where the outcome of a locale is, which has hyphens."""
    return folder / locale / "outcome.json"
