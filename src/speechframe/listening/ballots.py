"""What listeners said: beginnings and votes, a book each, in the folder of their test."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speechframe.analysis.votes import VOTE_SCHEMA
from speechframe.errors import VoteRefused
from speechframe.listening.session import begun, refuse_stored
from speechframe.listening.setup import Setup
from speechframe.listening.votes import BEGIN, VOTE, VoteBook, votes_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Ballots"]

log = logging.getLogger("speechframe.listening")

_VOTES = "votes"
_SHOWN = 5


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
        """All votes so far, practice among them; a log names what is stored and cannot be read."""
        tables = [VOTE_SCHEMA[self._setup.method].empty_table()]
        unreadable: list[str] = []
        for listener, (lines, broken) in self._books():
            trials: set[int] = set()
            for number, line in lines.items():
                if line["kind"] != VOTE:
                    continue
                try:
                    tables.append(self._counted(listener, line, trials))
                except (ValueError, TypeError) as error:
                    broken[number] = str(error)
            unreadable += [f"{listener}.jsonl, line {number} ({why})" for number, why in broken.items()]
        if unreadable:
            more = f" and {len(unreadable) - _SHOWN} more" if len(unreadable) > _SHOWN else ""
            log.warning(
                "stored votes in %s that cannot be read are left out of the results: %s%s; put the file back "
                "as it was, or take the line out",
                self._folder,
                "; ".join(unreadable[:_SHOWN]),
                more,
            )
        frame: pd.DataFrame = pa.concat_tables(tables).to_pandas()
        return frame

    def _counted(self, listener: str, line: Mapping[str, Any], trials: set[int]) -> pa.Table:
        """Return the rows of a stored vote, and add its trial to those that have one."""
        setup, trial = self._setup, line["trial"]
        if trial in trials:
            raise ValueError(f"a second vote of trial {trial}")
        known = {"test_id": setup.test_id, "seed": setup.seed, "listener": listener, "trial": trial}
        names = {"item": setup.items} | dict.fromkeys(
            ("condition", "condition_a", "condition_b"), setup.conditions
        )
        for row in line["rows"]:
            refuse_stored(row, method=setup.method, known=known, names=names)
        table = votes_table(line["rows"], setup.method)
        trials.add(trial)
        return table

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
            for listener, (lines, _) in self._books()
            for line in lines.values()
            if line["kind"] == BEGIN
        ]
        return pd.DataFrame(rows, columns=["listener", "begun_utc", "consent", *names])

    def _book(self, listener: str) -> VoteBook:
        return VoteBook(self._folder / f"{listener}.jsonl")

    def _books(self) -> Iterator[tuple[str, tuple[dict[int, dict[str, Any]], dict[int, str]]]]:
        for path in sorted(self._folder.glob("*.jsonl")):
            yield path.stem, VoteBook(path).read()
