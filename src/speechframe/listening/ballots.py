"""Store the start and the votes of each listener in the folder of the test, one file for each listener."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speechframe.errors import ListeningError, StoreError, VoteRefused
from speechframe.listening.questions import check_answers
from speechframe.listening.setup import SETUP_NAME, Setup
from speechframe.listening.votes import BEGIN, VOTE, VoteBook
from speechframe.store.folder import convert_os_errors

log = logging.getLogger("speechframe.listening")

_VOTES_FOLDER = "votes"
"""Name of the subfolder with the files of votes."""

_MAX_SHOWN_LINES = 5
"""Largest number of unreadable lines that one warning names."""


class Ballots:
    """The stored votes of a test, from all listeners.

    Parameters
    ----------
    folder
        The test's folder.
    setup
        The settings of the test.
    """

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._test_folder = folder
        self._folder = folder / _VOTES_FOLDER
        self._setup = setup
        self._books: dict[str, VoteBook] = {}

    def read_progress(self, listener: str) -> tuple[bool, list[int]]:
        """Return whether a listener has begun, and the trials with a vote, in the order of the votes."""
        return self._get_vote_book(listener).read_progress()

    def store_start(self, listener: str, message: Mapping[str, Any]) -> None:
        """Store the start of a listener, with the consent and the answers.

        Raises
        ------
        VoteRefused
            The message is not a start, the consent or an answer is missing or invalid, or the listener has
            begun already.
        StoreError
            The message could not be stored.
        """
        if message.get("kind") != BEGIN:
            raise VoteRefused("a message must have the kind begin or vote: reload the page")
        consent = self._setup.consent
        answers = check_answers(message, consent=consent, questions=self._setup.questions)
        self._require_test()
        self._get_vote_book(listener).add_line(
            {
                "kind": BEGIN,
                "test_id": self._setup.test_id,
                "begun_utc": datetime.now(UTC).isoformat(),
                "consent": consent is not None,
                "answers": answers,
            }
        )

    def store_vote(self, listener: str, trial: int, vote: Mapping[str, Any]) -> None:
        """Store a valid vote, as the fields of its message.

        Raises
        ------
        VoteRefused
            The listener has not begun, or the trial has a vote already.
        StoreError
            The vote could not be stored.
        """
        self._require_test()
        if not self.read_progress(listener)[0]:
            raise VoteRefused("the test has not begun yet: reload the page", trial=trial)
        self._get_vote_book(listener).add_line({"kind": VOTE, "trial": trial, **vote})

    def read_lines(
        self,
        kind: str,
        check_listener: Callable[[str], object],
        read_line: Callable[[str, Mapping[str, Any]], Any],
    ) -> list[Any]:
        """Return the results of `read_line` for the listener and the line, for all stored lines of a kind.

        Lines that cannot be read are left out, with one warning in the log. So are files of listeners for
        whom `check_listener` raises ListeningError.
        """
        found: list[Any] = []
        unreadable: list[str] = []
        for path in self._list_vote_files():
            try:
                check_listener(path.stem)
                lines, broken = VoteBook(path).read_with_faults()
            except (ListeningError, StoreError) as error:
                unreadable.append(f"{path.name} ({error.__cause__ or error})")
                continue
            for number, line in lines.items():
                if line["kind"] != kind:
                    continue
                try:
                    found.append(read_line(path.stem, line))
                except (ValueError, TypeError, KeyError, OverflowError, VoteRefused) as error:
                    broken[number] = str(error)
            unreadable += [f"{path.name}, line {number} ({why})" for number, why in broken.items()]
        if unreadable:
            more = (
                f" and {len(unreadable) - _MAX_SHOWN_LINES} more"
                if len(unreadable) > _MAX_SHOWN_LINES
                else ""
            )
            log.warning(
                "stored votes in %s cannot be read and are left out of the results: %s%s; restore the "
                "original file",
                self._folder,
                "; ".join(unreadable[:_MAX_SHOWN_LINES]),
                more,
            )
        return found

    def _list_vote_files(self) -> list[Path]:
        """Return the paths of the files with votes, one for each listener who has begun."""
        with convert_os_errors(self._folder, "reading votes"):
            # glob would return no files for a folder without read permission. iterdir raises an error.
            paths = sorted(self._folder.iterdir()) if self._folder.exists() else []
        return [path for path in paths if path.suffix == ".jsonl"]

    def _get_vote_book(self, listener: str) -> VoteBook:
        """Return the file of a listener. Its index stays in memory."""
        return self._books.setdefault(listener, VoteBook(self._folder / f"{listener}.jsonl"))

    def _require_test(self) -> None:
        """Raise StoreError if the set-up of the test is missing, because votes are useless without it."""
        with convert_os_errors(self._test_folder, "writing a vote"):
            (self._test_folder / SETUP_NAME).stat()
