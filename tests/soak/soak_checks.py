"""What must hold of a run folder and of the service's books, to the character, whoever was killed when."""

import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import speechframe as spf
from speechframe.spec.texts import count_billed_characters
from speechframe.store import parts
from speechframe.testing import tag_in, tag_of

HEARD = {"done", "cached", "suspect"}
WITHOUT_AUDIO = {"failed", "charged_unknown"}


@dataclass(frozen=True)
class Account:
    """One text in the ledger, counted in calls of its price.

    Attributes
    ----------
    sure
        Attempts that were billed for sure, also those whose answer could not be used.
    doubtful
        Attempts that may have been billed.
    not_billed
        Doubts of which a later attempt showed that nothing was billed.
    """

    sure: int = 0
    doubtful: int = 0
    not_billed: int = 0

    @property
    def most(self):
        """How often it was billed at most: what the ledger's credits add up to."""
        return self.sure + self.doubtful - self.not_billed


def accounts_of(run):
    """Return the account of every text, and check that each row of the ledger costs its call or nothing."""
    table = run.to_arrow(["text", "request_key"]).to_pandas()
    text_of = dict(zip(table["request_key"], table["text"], strict=True))
    counts = {text: Counter() for text in text_of.values()}
    ledger = run.ledger
    for row in ledger[["request_key", "status", "credits", "credits_basis"]].itertuples(index=False):
        text = text_of[row.request_key]
        price = count_billed_characters(text)
        assert row.credits in {0, price, -price}, (text, row)
        if row.credits < 0:
            counts[text]["not_billed"] += 1
        elif row.credits:
            counts[text]["doubtful" if row.credits_basis == "unknown" else "sure"] += 1
    found = {text: Account(**count) for text, count in counts.items()}
    assert ledger["credits"].sum() == sum(count_billed_characters(t) * a.most for t, a in found.items())
    return found


def check_rows(run, texts):
    """Return status by text: no row is lost or has another's audio, and what has none says why."""
    frame = run.to_pandas(audio=True)
    assert frame["text"].tolist() == texts, "rows are lost"
    swapped, mute = [], []
    for row in frame.to_dict("records"):
        audio = (row["audio"] or {}).get("bytes")
        if row["status"] in HEARD:
            if audio is None or tag_in(audio) != tag_of(row["text"]):
                swapped.append(row["text"])
        elif audio is not None or (row["status"] in WITHOUT_AUDIO and not row["error_code"]):
            mute.append(row["text"])
    assert not swapped, f"these have no audio, or that of another text: {swapped}"
    assert not mute, f"these are without audio and do not say why: {mute}"
    statuses = dict(zip(frame["text"], frame["status"], strict=True))
    allowed = HEARD | WITHOUT_AUDIO | ({"pending"} if run.status == "stopped" else set())
    assert set(statuses.values()) <= allowed
    return statuses


def check_bills(run, books, *, honours):
    """Return the accounts of a run: ledger and books agree on every text."""
    accounts = accounts_of(run)
    tags = {tag_of(text): text for text in accounts}
    assert set(books.billed) <= set(tags), "something was billed that is in no row"
    times = {text: books.billed[tag].times for tag, text in tags.items() if tag in books.billed}
    assert books.billed_characters == sum(count_billed_characters(text) * n for text, n in times.items())
    wrong = {
        text: (account, times.get(text, 0))
        for text, account in accounts.items()
        if not account.sure <= times.get(text, 0) <= account.most
    }
    assert not wrong, f"ledger and times billed differ: {wrong}"
    if honours:
        assert not books.duplicates
        assert not {text: account for text, account in accounts.items() if account.most > 1}
    return accounts


def check_doubts(accounts, statuses):
    """Check that each call in doubt is listed as such, and that what is listed was paid once and not sent again."""
    in_doubt = {text for text, account in accounts.items() if account.most > account.sure}
    listed = {text for text, status in statuses.items() if status == "charged_unknown"}
    assert in_doubt <= listed, f"in doubt and not listed: {in_doubt - listed}"
    wrong = {text: accounts[text] for text in listed if accounts[text].most != 1}
    assert not wrong, f"listed as perhaps billed, and not paid once: {wrong}"


def check_lost(run, calls_lost):
    """Return how many attempts have no end: no more than `calls_lost`, that were in flight when clients died."""
    ledger = run.ledger
    # An attempt whose end somebody saw has an error code.
    unseen = ledger[(ledger["status"] == "charged_unknown") & ledger["error_code"].isna()]
    assert len(unseen) <= calls_lost, "more calls without an end than can have been in flight"
    return len(unseen)


def check_files(run, *, calls):
    """Check that the folder is whole, and opens in pandas and pyarrow without us."""
    assert not run.verify()
    assert not list((run.path / "log").iterdir())
    by_pandas = pd.concat([pd.read_parquet(path) for path in run.part_files], ignore_index=True)
    by_pyarrow = pq.ParquetDataset(run.part_files).read(["request_key", "status", "audio"])
    assert len(by_pandas) == by_pyarrow.num_rows == run.dataset.count_rows() == calls
    assert by_pandas["request_key"].is_unique
    keys = by_pyarrow["request_key"].to_numpy(zero_copy_only=False)
    assert np.array_equal(np.sort(keys), np.sort(by_pandas["request_key"].to_numpy()))
    assert set(by_pandas["status"]) <= HEARD
    for path in (run.path / "attempts").glob("*.parquet"):
        assert len(pd.read_parquet(path)) == pq.read_metadata(path).num_rows > 0


def recovered(folder):
    """Return the run of a dead client's folder (a copy: the next client must recover the real one itself)."""
    run = spf.open_run(folder)
    with run.folder.lock():
        parts.recover_journal(run.folder, run.manifest.schema, {"run_id": run.run_id}, time.time())
    assert not run.verify()
    return run
