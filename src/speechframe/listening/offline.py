"""Read the files with votes that listeners save from offline pages and send back.

A file contains votes on slots (places of sounds on a page). The design of the test gives the condition of
each slot. A checksum shows whether the file was changed on its way.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.errors import ListeningError, StoreError, VoteRefused
from speechframe.listening.questions import check_answers
from speechframe.listening.test import Test, resolve_test
from speechframe.listening.votes import BEGIN, VOTE, make_votes_frame
from speechframe.page.arguments import check_path

if TYPE_CHECKING:
    import pandas as pd

_FILE_FORMAT = "speechframe listening votes 2"
"""Value of the field ``format`` in each file. The script `core/offline.js` writes the same value."""

_MAX_FILE_BYTES = 16 * 1024 * 1024
"""Largest accepted file. Files with votes are far smaller."""


_Messages = Sequence[Mapping[str, Any]]
"""The messages of a listener's page, in a file."""


class _RefusedFileError(Exception):
    """Raised for a file that is refused. The message is the reason."""


def read_votes(folder: str | PathLike[str], test: Any) -> "pd.DataFrame":
    """Return the votes that listeners saved from offline pages.

    Parameters
    ----------
    folder
        Folder with the files of the listeners. All of its ``.json`` files are read.
    test
        The test of the votes, as the result of :func:`listening_test` or the folder of a test. Its design has
        the condition of each slot.

    Returns
    -------
    pandas.DataFrame
        One row a vote, with the columns of ``test.votes``, sorted by listener and trial.
        ``frame.attrs["answers"]`` has the answers of each listener to the questions.

    Raises
    ------
    ListeningError
        A file belongs to another test, was changed, breaks a rule of the test, or is the second file of a
        listener. The message lists all these files with their faults. No votes are returned until these files
        are removed.
    StoreError
        The folder cannot be read or does not contain votes.

    Examples
    --------
    >>> read_votes("came-back", test)  # doctest: +SKIP
    """
    test = resolve_test(test)
    found, refused = _read_files(check_path("folder", folder, error=StoreError), test)
    rows: list[dict[str, Any]] = []
    answers: dict[str, Any] = {}
    for listener, (name, messages) in sorted(found.items()):
        try:
            for message in messages:
                if message["kind"] == BEGIN:
                    questions, consent = test.setup.questions, test.setup.consent
                    answers[listener] = check_answers(message, consent=consent, questions=questions)
                else:
                    rows.extend(test.make_rows(listener, message))
        except VoteRefused as error:
            trial = "" if error.trial is None else f" (trial {error.trial + 1})"
            refused[name] = f"breaks a rule of the test{trial}: {error}"
    if refused:
        lines = "\n".join(f"  {name}: {fault}" for name, fault in sorted(refused.items()))
        files = "1 file is refused" if len(refused) == 1 else f"{len(refused)} files are refused"
        raise ListeningError(
            f"{files}, and no votes were read from {folder}; remove the files listed here:\n{lines}"
        )
    frame = make_votes_frame(sorted(rows, key=lambda row: (row["listener"], row["trial"])), test.method)
    frame.attrs["answers"] = answers
    return frame


def _read_files(folder: Path, test: Test) -> tuple[dict[str, tuple[str, _Messages]], dict[str, str]]:
    """Return two mappings: file name and messages by listener, and faults by name of the refused file."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder; name the folder with the files that listeners sent back")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise StoreError(f"{folder} has no .json files; put the files that listeners sent back into it")
    found: dict[str, tuple[str, _Messages]] = {}
    refused: dict[str, str] = {}
    listeners_with_votes = set(test.votes["listener"])
    for path in paths:
        try:
            listener, messages = _read_file(path, test)
        except _RefusedFileError as error:
            refused[path.name] = str(error)
            continue
        if listener in listeners_with_votes:
            refused[path.name] = f"{listener} has voted already, on a served page or in a notebook"
        elif listener in found:
            other = found[listener][0]
            refused[path.name] = f"a second file of {listener}, whose first file is {other}; keep one of them"
        else:
            found[listener] = (path.name, messages)
    return found, refused


def _read_file(path: Path, test: Test) -> tuple[str, _Messages]:
    """Return the listener of a file and the messages, or raise _RefusedFileError.

    The votes are not checked yet.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise _RefusedFileError("too large for a file of votes")
        outer = json.loads(path.read_bytes())
        if outer["format"] != _FILE_FORMAT:
            raise _RefusedFileError("saved by another version of speechframe; read it with that version")
        record, checksum = str(outer["record"]), str(outer["sha256"])
        inner = json.loads(record)
        test_id, listener, messages = str(inner["test_id"]), str(inner["listener"]), inner["said"]
    except OSError as error:
        raise _RefusedFileError(f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _RefusedFileError("does not contain votes of a listening test") from error
    if test_id != test.test_id:
        raise _RefusedFileError(f"belongs to another test ({test_id}); this test is {test.test_id}")
    if listener not in test.listeners:
        raise _RefusedFileError(f"belongs to a listener who is not in this test ({listener!r})")
    if checksum != sha256(record.encode(errors="replace")).hexdigest():
        raise _RefusedFileError("changed after it was saved: its checksum does not fit its content")
    _refuse_messages(messages)
    return listener, messages


def _refuse_messages(messages: Any) -> None:
    """Raise _RefusedFileError unless all messages of a file are starts or votes, one vote a trial."""
    trials = []
    for message in messages if isinstance(messages, list) else [None]:
        if not isinstance(message, dict) or message.get("kind") not in {BEGIN, VOTE}:
            raise _RefusedFileError("contains other messages than votes")
        if message["kind"] == VOTE:
            trials.append(message.get("trial"))
    repeated_trials = {str(trial) for trial in trials if trials.count(trial) > 1}
    if repeated_trials:
        raise _RefusedFileError(f"has more than one vote of trial {', '.join(sorted(repeated_trials))}")
