"""Read the votes of listeners that come back as files from pages of their own.

A file contains scores of slots. They become votes by the design of the test. A seal shows whether the file
was changed on its way (see `offline_page`).
"""

import hmac
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from speechframe.errors import ListeningError, StoreError, VoteRefused
from speechframe.listening.given import given_test
from speechframe.listening.offline_page import seal_of
from speechframe.listening.questions import begun
from speechframe.listening.test import Test
from speechframe.listening.votes import BEGIN, VOTE, votes_frame
from speechframe.page.arguments import place

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_votes"]

_FORMAT = "speechframe listening votes 1"
_MAX_FILE_BYTES = 16 * 1024 * 1024


class _Returned(NamedTuple):
    """What a listener handed in."""

    listener: str
    said: tuple[Mapping[str, Any], ...]


class _ForeignError(Exception):
    """A file that is not taken; says why."""


def read_votes(folder: str | PathLike[str], test: Any) -> "pd.DataFrame":
    """Return the votes that listeners saved from pages of their own.

    Parameters
    ----------
    folder
        Where the files lie that came back: all of its ``.json`` files.
    test
        The test they are of: what :func:`listening_test` returned, or the folder of a test. Its design says
        which condition was heard where.

    Returns
    -------
    pandas.DataFrame
        One row a vote, as ``test.votes`` has them, in the order of listeners and trials;
        ``frame.attrs["answers"]`` holds what each listener answered to the questions.

    Raises
    ------
    ListeningError
        When a file is none of this test's, was changed, breaks a rule of the test, or is a listener's second
        one; names every such file and says why. Nothing is read then: take these files out of the folder.
    StoreError
        When the folder cannot be read, or holds no votes.

    Examples
    --------
    >>> read_votes("came-back", test)  # doctest: +SKIP
    """
    test = given_test(test)
    found, refused = _taken(place("folder", folder, error=StoreError), test)
    rows: list[dict[str, Any]] = []
    answers: dict[str, Any] = {}
    for listener, (name, returned) in sorted(found.items()):
        try:
            for message in returned.said:
                if message["kind"] == BEGIN:
                    asked, consent = test.setup.questions, test.setup.consent
                    answers[listener] = begun(message, consent=consent, questions=asked)
                else:
                    rows.extend(test.rows(listener, message))
        except VoteRefused as error:
            where = "" if error.trial is None else f" (trial {error.trial + 1})"
            refused[name] = f"breaks a rule of the test{where}: {error}"
    if refused:
        lines = "\n".join(f"  {name}: {why}" for name, why in sorted(refused.items()))
        files = "1 file is" if len(refused) == 1 else f"{len(refused)} files are"
        raise ListeningError(f"{files} not taken; nothing was read from {folder}:\n{lines}")
    frame = votes_frame(sorted(rows, key=lambda row: (row["listener"], row["trial"])), test.method)
    frame.attrs["answers"] = answers
    return frame


def _taken(folder: Path, test: Test) -> tuple[dict[str, tuple[str, _Returned]], dict[str, str]]:
    """Return listener to file and content of what is theirs, and the other files with what is wrong."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is no folder; put the files that listeners sent back into one")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise StoreError(f"{folder} holds no .json files; they are what listeners send back")
    found: dict[str, tuple[str, _Returned]] = {}
    refused: dict[str, str] = {}
    by_link = set(test.votes["listener"])
    for path in paths:
        try:
            returned = _read(path, test)
        except _ForeignError as error:
            refused[path.name] = str(error)
            continue
        listener = returned.listener
        if listener in by_link:
            refused[path.name] = f"{listener} has voted already, by link or in a notebook"
        elif listener in found:
            other = found[listener][0]
            refused[path.name] = f"a second file of {listener}, whose first is {other}; keep one of them"
        else:
            found[listener] = (path.name, returned)
    return found, refused


def _read(path: Path, test: Test) -> _Returned:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise _ForeignError("far too large for votes")
        outer = json.loads(path.read_bytes())
        if outer["format"] != _FORMAT:
            raise _ForeignError("votes of another version of speechframe")
        record, seal = str(outer["record"]), str(outer["seal"])
        inner = json.loads(record)
        test_id, listener, said = str(inner["test_id"]), str(inner["listener"]), inner["said"]
    except OSError as error:
        raise _ForeignError(f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _ForeignError("holds no votes of a listening test") from error
    if test_id != test.test_id:
        raise _ForeignError(f"of another test ({test_id}); this one is {test.test_id}")
    if listener not in test.listeners:
        raise _ForeignError(f"of a listener this test does not have ({listener!r})")
    if not hmac.compare_digest(seal.encode(), seal_of(record, listener, test.folder).encode()):
        raise _ForeignError("changed after it was saved: its seal does not fit what it says")
    return _Returned(listener, _checked(said))


def _checked(said: Any) -> tuple[Mapping[str, Any], ...]:
    """Return what was said, if it is what a page says: at most one vote a trial."""
    trials = []
    for message in said if isinstance(said, list) else [None]:
        if not isinstance(message, dict) or message.get("kind") not in {BEGIN, VOTE}:
            raise _ForeignError("holds something else than votes")
        if message["kind"] == VOTE:
            trials.append(message.get("trial"))
    doubles = {str(trial) for trial in trials if trials.count(trial) > 1}
    if doubles:
        raise _ForeignError(f"has more than one vote of trial {', '.join(sorted(doubles))}")
    return tuple(said)
