"""Read and write the set-up (settings and texts) and the design (trials of each listener) of a test."""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from speechframe.errors import ListeningError, StoreError
from speechframe.listening.design import design_trials
from speechframe.listening.private import write_private
from speechframe.listening.questions import Question
from speechframe.listening.signals import ANCHOR_CUTOFFS_HZ
from speechframe.page.texts import LISTENING, resolve_texts
from speechframe.statistics.votes import MUSHRA
from speechframe.store.folder import convert_os_errors
from speechframe.writing.files import parse_json

if TYPE_CHECKING:
    import pandas as pd

SETUP_NAME = "test.json"
"""Name of the file with the set-up, in the folder of a test."""

_DESIGN_NAME = "design.parquet"
_FORMAT_VERSION = 2
"""Version of the files of a test. A set-up file with another version is refused."""

_ID_DIGITS = 8
"""Number of hexadecimal digits of the hash in the name of a test."""

_DESIGN_FIELDS = ("method", "items", "conditions", "trials_per_listener", "training", "seed")
"""Fields from which the design is drawn."""

_IDENTIFYING_FIELDS = (*_DESIGN_FIELDS[:3], "reference", "source", *_DESIGN_FIELDS[3:])
"""Fields that identify a test. If one of them changes, the votes belong to another test."""


class Setup(BaseModel):
    """The settings of a test.

    Parameters
    ----------
    method
        Name of the test method, such as ``ab`` or ``mos``.
    items, conditions
        Names of the items (usually texts) and of the compared conditions (such as voices), including the
        anchors of ``mushra``.
    reference
        The condition that is both the open and the hidden reference. None if the test has no reference.
    source
        Hash of the clips, from :attr:`~speechframe.listening.sources.Material.identity`.
    trials_per_listener, training, seed
        As in :func:`~speechframe.listening.design.design_trials`.
    title, intro, prompt
        Title of the page, text before the test, and text above each trial.
    consent
        Text that listeners must agree to. None requires no consent.
    questions
        Questions before the first trial.
    reveal
        Whether the page names the conditions after each vote.
    locale, texts
        Locale of the pages, and words that replace or complete those of the locale.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    items: tuple[str, ...]
    conditions: tuple[str, ...]
    reference: str | None
    source: str
    trials_per_listener: int
    training: int
    seed: int
    title: str
    intro: str
    prompt: str
    consent: str | None = None
    questions: tuple[Question, ...] = ()
    reveal: bool = False
    locale: str = "en"
    texts: Mapping[str, str] = {}

    @property
    def test_id(self) -> str:
        """Name of the test, made of the method and a hash of the settings that identify the test."""
        identifying_values = json.dumps(
            [getattr(self, name) for name in _IDENTIFYING_FIELDS], ensure_ascii=False
        )
        return f"{self.method}-{hashlib.sha256(identifying_values.encode()).hexdigest()[:_ID_DIGITS]}"

    @property
    def anchors(self) -> tuple[str, ...]:
        """The conditions that are anchors, the lowest first."""
        return tuple(ANCHOR_CUTOFFS_HZ) if self.method == MUSHRA else ()

    @property
    def words(self) -> dict[str, str]:
        """All words of the pages, by name."""
        return resolve_texts(self.locale, self.texts, page=LISTENING, error=ListeningError)

    def write(self, folder: Path) -> None:
        """Write the set-up into a test's folder."""
        text = json.dumps(
            {"format": _FORMAT_VERSION, "test_id": self.test_id, **self.model_dump()},
            ensure_ascii=False,
            indent=1,
        )
        with convert_os_errors(folder, "writing the set-up of a test"):
            write_private(folder / SETUP_NAME, text.encode())

    @classmethod
    def read(cls, folder: Path) -> "Setup":
        """Return the set-up of the test in a folder.

        Raises
        ------
        StoreError
            The folder does not contain a set-up, the set-up cannot be read, or it was changed by hand.
        """
        path = folder / SETUP_NAME
        if not path.exists():
            raise StoreError(
                f"{folder} does not contain a listening test, because it has no {SETUP_NAME}; "
                "name the folder of a test"
            )
        with convert_os_errors(folder, "reading the set-up of a test"):
            text = path.read_text(encoding="utf-8")
        try:
            fields = parse_json(text)
            if fields.pop("format") != _FORMAT_VERSION:
                raise StoreError(f"{path} was written by another version of speechframe; use that version")
            stored_id = fields.pop("test_id")
            found = cls.model_validate(fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{path} cannot be read as the set-up of a test ({error}); restore the original file"
            ) from error
        if found.test_id != stored_id:
            raise StoreError(
                f"{path} was changed by hand, so it does not fit the votes of {stored_id}; restore the "
                "original file"
            )
        return found

    def refuse_other_test(self, folder: Path) -> None:
        """Raise ListeningError if a folder contains another test."""
        if not (folder / SETUP_NAME).exists():
            return
        stored = Setup.read(folder)
        if stored.test_id != self.test_id:
            names = ", ".join(
                name for name in _IDENTIFYING_FIELDS if getattr(stored, name) != getattr(self, name)
            )
            raise ListeningError(
                f"{folder} holds another test ({stored.test_id}), which differs in: {names}; votes of two "
                "tests cannot be mixed: choose another folder, or leave folder out"
            )


def draw_design(setup: Setup, listeners: int, *, first_listener: int = 1) -> "pd.DataFrame":
    """Return the design of a test for `listeners` listeners, from number `first_listener` on.

    See :func:`~speechframe.listening.design.design_trials`.
    """
    settings = setup.model_dump(include=set(_DESIGN_FIELDS))
    return design_trials(**settings, listeners=listeners, first_listener=first_listener)


def write_design(frame: "pd.DataFrame", folder: Path) -> None:
    """Write the design of a test into its folder."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    with convert_os_errors(folder, "writing the design of a test"):
        write_private(folder / _DESIGN_NAME, buffer.getvalue())


def read_design(folder: Path) -> "pd.DataFrame":
    """Return the design of the test in a folder."""
    import pandas as pd

    with convert_os_errors(folder, "reading the design of a test"):
        return pd.read_parquet(folder / _DESIGN_NAME)


def extend_design(planned: "pd.DataFrame", folder: Path) -> "pd.DataFrame":
    """Return the stored design of a folder, plus the rows of `planned` for listeners that it lacks.

    If the folder has no design, return `planned`.
    """
    import pandas as pd

    if not (folder / _DESIGN_NAME).exists():
        return planned
    stored = read_design(folder)
    return pd.concat([stored, planned[~planned["listener"].isin(stored["listener"])]], ignore_index=True)
