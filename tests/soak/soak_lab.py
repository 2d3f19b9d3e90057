"""One run and one service, both of which die again and again; afterwards every row and every character is there."""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random

from soak_checks import HEARD, check_bills, check_doubts, check_files, check_lost, check_rows, recovered
from soak_client import CONCURRENCY, RATE_HZ, Client, pause

import speechframe as spf
from speechframe.spec.texts import count_billed_characters
from speechframe.testing import FaultyService, Lognormal
from speechframe.testing.audio import SECONDS_PER_CHARACTER
from speechframe.testing.plan import Fault

BYTES_PER_CHARACTER = round(SECONDS_PER_CHARACTER * RATE_HZ) * 2
STATUSES = ("400", "408", "429", "500", "502", "503")
FAULTS = dict.fromkeys((*Fault, *STATUSES), 0.01)
"""1 % of each; 402 and 403 stop a run, and have tests of their own."""
IMPATIENT = {"timeout_s": 1.0, "patience_s": 6.0, "max_attempts": 4}
"""A call that hangs ends soon, and so does a client whose service is gone."""
PATIENT = {"timeout_s": 30.0, "patience_s": 120.0, "max_attempts": 4}
QUIET_S = 30.0
EARLY_SHARE, EARLY_S = 0.25, 0.6
"""Share of kills that may come while a client plans or recovers, and how long that takes at most."""
LATER_S = 0.1
JOURNAL = "billed.journal"


def texts_for(rows, draw):
    """Return short texts of some lengths, one in twenty of which comes twice."""
    texts = [f"{row} goes on{' on' * draw.randrange(4)}." for row in range(rows)]
    repeats = [draw.randrange(rows) for _ in range(rows // 20)]
    for row in repeats:
        texts[row] = texts[draw.randrange(rows)]
    return texts


@dataclass
class Soak:
    """A run against a service that fails, and whose processes are killed.

    Parameters
    ----------
    folder
        Where run, copies and the service's journal lie.
    draw
        Decides all that is random here.
    rows
        Of the table.
    honours
        Whether the service honours ``Idempotency-Key``. One that does not has no page of limits either.
    kills_early
        Whether some kills come before the first call.
    part_rows
        Rows of a part at most, so that kills meet the writing of parts too; None for the usual number.
    retry_after
        How the service says when to come again; every form but ``"float"`` takes a second at least.
    calls_lost
        The most calls that clients that died can have sent without writing down an end.
    legs
        What was played so far, for a failure's words.
    spent
        Credits by the run's own ledger, after the last leg.
    """

    folder: Path
    draw: Random
    rows: int
    honours: bool
    kills_early: bool = False
    part_rows: int | None = None
    retry_after: str = "mixed"
    calls_lost: int = 0
    legs: list = field(default_factory=list)
    spent: float = 0.0

    def __post_init__(self):
        self.texts = texts_for(self.rows, self.draw)
        self.cost = sum(map(count_billed_characters, set(self.texts)))
        self.dearest = max(map(count_billed_characters, self.texts))
        self.run_dir = self.folder / "run"
        (self.folder / "service").mkdir(parents=True)
        self.service = FaultyService(
            seed=self.draw.randrange(2**31), faults=FAULTS, latency=Lognormal(0.02), cap=CONCURRENCY - 2,
            retry_after=self.retry_after, retry_after_s=0.05, slow_s=0.3,
            idempotent=self.honours, limits_page=self.honours, data=self.folder / "service",
        )  # fmt: skip

    def __enter__(self):
        self.service.start()
        return self

    def __exit__(self, kind, error, trace):
        self.service.stop()
        if error is not None:
            error.add_note(f"legs so far: {self.legs}")

    @property
    def enough(self):
        """The budget that completes the table, as a share of its price."""
        # With idempotency its price is enough, whatever goes wrong; without it, broken answers cost twice.
        return 1 if self.honours else None

    # -- legs ----------------------------------------------------------------------

    def leg(self, victims, *, share, credits, **options):
        """Let a client go on with the run, kill `victims` at a random moment, and check what is left.

        Parameters
        ----------
        victims
            Of ``client``, ``service`` and ``disk``; nobody when empty.
        share
            Of the rows that may be billed in this leg before somebody is killed.
        credits
            ``max_credits``, as a share of what the table costs; None for none.
        """
        self.legs.append((victims, round(share, 3), credits and round(credits, 3)))
        max_credits = None if credits is None else int(credits * self.cost)
        file_bytes = self._nearly_full(share) if "disk" in victims else None
        client = self._client(max_credits, file_bytes, options)
        if victims and "disk" not in victims:
            self._until_moment(share, client)
        if "service" in victims:
            self.service.kill()
            pause(self.draw.random() * 0.5, client)
        if "client" in victims:
            client.kill()
        if "service" in victims:
            self.service.restart()
        said = client.end()
        # For each call in flight, an answer may have come that was not written down yet.
        self.calls_lost += 2 * CONCURRENCY * (said is None or "store_error" in said)
        assert said is not None or "client" in victims
        assert ("disk" in victims) == ("store_error" in (said or ())), said
        self._checkpoint(max_credits)
        return said

    def _client(self, max_credits, file_bytes, options):
        started = any(self.run_dir.glob("input/*.parquet"))
        order = {
            "environment": dict(os.environ),
            "verb": self.draw.choice(["resume", "generate"]) if started else "generate",
            "texts": self.texts,
            "folder": str(self.run_dir),
            "url": self.service.url,
            "key": str(self.service.api_key.get_secret_value()),
            "profile": self.service.settings.profile,
            "file_bytes": file_bytes,
            "part_rows": self.part_rows,
            "options": IMPATIENT | {"max_credits": inf if max_credits is None else max_credits} | options,
        }
        return Client(order, self.folder / f"client-{len(self.legs)}.err")

    def _nearly_full(self, share):
        """Return a file size that a log of `share` of the rows does not stay below."""
        # What lies there already was written before the disk was full.
        recovered(self.run_dir)
        return round(share * self.cost * BYTES_PER_CHARACTER)

    def _until_moment(self, share, client):
        """Wait for the moment to kill: while calls are made, or now and then while the client starts."""
        if self.kills_early and self.draw.random() < EARLY_SHARE:
            pause(self.draw.random() * EARLY_S, client)
            return
        self._until_billed(1 + self.draw.random() * share * self.rows, client)
        pause(self.draw.random() * LATER_S, client)

    def _until_billed(self, calls, client):
        """Wait until the service has billed so many calls more; its journal tells without asking it."""
        journal = self.folder / "service" / JOURNAL
        wanted = journal.read_bytes().count(b"\n") + calls
        while client.lives and journal.read_bytes().count(b"\n") < wanted:
            time.sleep(0.003)

    def books(self):
        """Return the service's books, when nothing is under way there any more."""
        end = time.monotonic() + QUIET_S
        while (books := self.service.books()).in_flight:
            assert time.monotonic() < end, "calls of dead clients are still in flight"
            time.sleep(0.01)
        return books

    def _checkpoint(self, max_credits):
        if not any(self.run_dir.glob("input/*.parquet")):
            assert not self.books().billed_characters
            return
        copy = self.folder / "copy"
        shutil.copytree(self.run_dir, copy)
        run = recovered(copy)
        accounts = check_bills(run, self.books(), honours=self.honours)
        statuses = check_rows(run, self.texts)
        check_lost(run, self.calls_lost)
        if not self.honours:
            check_doubts(accounts, statuses)
        self.spent = float(run.ledger["credits"].sum())
        assert max_credits is None or self.spent <= max_credits, "max_credits was passed"
        shutil.rmtree(copy)

    # -- the end ---------------------------------------------------------------------

    def spend(self, credits):
        """Let a client run into its budget: it stops when nothing more fits, not before."""
        said = self.leg((), share=1, credits=credits)
        assert (said["status"], said["because"]) == ("stopped", "budget")
        ledger = spf.open_run(self.run_dir).ledger
        given_back = -ledger.loc[ledger["credits"] < 0, "credits"].sum()
        assert int(credits * self.cost) - (ledger["credits"].sum() + given_back) < self.dearest

    def finish(self):
        """Resume until everything is there, with a service that works, and check every row and character."""
        self.service.set(faults={}, latency=0)
        said = self.leg((), share=1, credits=self.enough, **PATIENT)
        assert said["status"] == "finished"
        run = spf.open_run(self.run_dir)
        statuses = check_rows(run, self.texts)
        assert set(statuses.values()) <= (HEARD if self.honours else {*HEARD, "charged_unknown"})
        if not self.honours:
            self._pay_again(statuses)
        self._check_end()

    def _pay_again(self, statuses):
        in_doubt = {text for text, status in statuses.items() if status == "charged_unknown"}
        before = self.books()
        said = self._client(None, None, PATIENT | {"on_unknown": "retry"}).end()
        assert (said["status"], said["calls"]) == ("finished", len(in_doubt))
        paid = self.books().billed_characters - before.billed_characters
        # Of an answer that came with an address only the audio is fetched.
        assert paid <= sum(map(count_billed_characters, in_doubt))

    def _check_end(self):
        run = spf.open_run(self.run_dir)
        assert set(check_rows(run, self.texts).values()) <= HEARD
        books = self.books()
        accounts = check_bills(run, books, honours=self.honours)
        assert check_lost(run, self.calls_lost), "nobody was ever caught in the middle of a call"
        check_files(run, calls=len(set(self.texts)))
        if self.honours:
            assert run.ledger["credits"].sum() == books.billed_characters == self.cost
        else:
            in_doubt = sum(account.doubtful - account.not_billed for account in accounts.values())
            times = sum(billed.times for billed in books.billed.values())
            assert times - sum(account.sure for account in accounts.values()) <= in_doubt
        # And once more: there is nothing left to do.
        rows = len(run.ledger)
        said = self._client(0, None, {}).end()
        assert (said["status"], said["calls"]) == ("finished", 0)
        assert len(spf.open_run(self.run_dir).ledger) == rows
        assert self.books().billed_characters == books.billed_characters


@contextlib.contextmanager
def soak(folder, seed, *, rows, honours, **options):
    """Give a :class:`Soak`; a failure says its seed."""
    try:
        with Soak(Path(folder), Random(f"{seed}/{rows}/{honours}"), rows, honours, **options) as made:
            yield made
    except BaseException as error:
        error.add_note(f"seed {seed}: SPEECHFRAME_SOAK_SEED={seed} plays the same kills again")
        raise
