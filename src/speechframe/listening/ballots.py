"""What listeners said: beginnings and votes, a book each, in the folder of their test."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.errors import VoteRefused
from speechframe.listening.session import begun
from speechframe.listening.setup import Setup
from speechframe.listening.votes import BEGIN, VOTE, VoteBook, votes_frame

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Ballots"]

_VOTES = "votes"


class Ballots:
    """The books of a test.

    Parameters
    ----------
    folder
        The test's folder.
    setup
        What the test was set up with.
    """

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._folder = folder / _VOTES
        self._setup = setup

    def how_far(self, listener: str) -> tuple[bool, list[int]]:
        """Return whether somebody has begun, and which trials they voted on, in that order."""
        lines = self._book(listener).lines()
        done = [line["trial"] for line in lines if line["kind"] == VOTE]
        return any(line["kind"] == BEGIN for line in lines), done

    def begin(self, listener: str, message: Mapping[str, Any]) -> None:
        """Keep what a page says at the beginning.

        Raises
        ------
        VoteRefused
            It is no beginning, breaks a rule, or is there already.
        StoreError
            It could not be kept.
        """
        if message.get("kind") != BEGIN:
            raise VoteRefused("this is neither a beginning nor a vote")
        consent = self._setup.consent
        answers = begun(message, consent=consent, questions=self._setup.questions)
        self._book(listener).add(
            {
                "kind": BEGIN,
                "test_id": self._setup.test_id,
                "begun_utc": datetime.now(UTC).isoformat(),
                "consent": consent is not None,
                "answers": answers,
            }
        )

    def vote(self, listener: str, trial: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the rows of a vote.

        Raises
        ------
        VoteRefused
            The listener has not begun, or the trial has its vote already.
        StoreError
            It could not be kept.
        """
        if not self.how_far(listener)[0]:
            raise VoteRefused("the test has not begun: reload the page", trial=trial)
        self._book(listener).add({"kind": VOTE, "trial": trial, "rows": list(rows)})

    @property
    def votes(self) -> "pd.DataFrame":
        """All votes so far, practice among them."""
        rows = (row for _, line in self._lines() if line["kind"] == VOTE for row in line["rows"])
        return votes_frame(rows, self._setup.method)

    @property
    def answers(self) -> "pd.DataFrame":
        """Who began when, and what they answered: one row a listener."""
        import pandas as pd

        names = [question.name for question in self._setup.questions]
        rows = [
            {
                "listener": listener,
                "begun_utc": pd.Timestamp(line["begun_utc"]),
                "consent": line["consent"],
                **line["answers"],
            }
            for listener, line in self._lines()
            if line["kind"] == BEGIN
        ]
        return pd.DataFrame(rows, columns=["listener", "begun_utc", "consent", *names])

    def _book(self, listener: str) -> VoteBook:
        return VoteBook(self._folder / f"{listener}.jsonl")

    def _lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in VoteBook(path).lines():
                yield path.stem, line
