"""The rows of a run in any order: what is kept to find and sort them."""

import pandas as pd
import pyarrow as pa
import pytest
from run_lab import run_of

from speechframe.page.clips import make_shelf, read_entry
from speechframe.store.arranged import SORT_KEYS, Arrangement, RowReader

TEXTS = (
    "Straße nach Łódź",
    "a line of some length, as people write them",
    "STRASSE",
    "ÉTÉ",
    "zoo",
    "Zoo",
    "",
    "été 3",
)
VOICES = ("nora", None, "luc", "Änne")
STATUSES = ("done", "suspect", "done", "failed")


def made_run(path, rows, text=lambda k: TEXTS[k % len(TEXTS)]):
    """Make a run of which two thirds have an outcome."""
    records = {
        k: (
            {
                "status": STATUSES[k % 4],
                "audio": "a.wav",
                "format": "WAV",
                "audio_seconds": None if k % 5 == 0 else (k * 7 % 11) / 4,
                "voice_id": VOICES[k % 4],
            },
            None if STATUSES[k % 4] == "failed" else b"RIFF",
        )
        for k in range(rows * 2 // 3)
    }
    for record, audio in records.values():
        if audio is None:
            record["audio"] = None
    return run_of(path, {"line": [text(k) for k in range(rows)]}, records, name=lambda k: f"r{k}")


@pytest.fixture(scope="module")
def rows(run):
    """All that is known of the rows, as pandas has it."""
    frame = run.to_pandas()
    verdicts = run.reviews.set_index("row_id")["verdict"]
    facts = pd.DataFrame(
        {
            "text": frame["line"].astype(object),
            "voice": frame["voice_id"].astype(object),
            "locale": frame["locale"].astype(object),
            "status": frame["status"].astype(object),
            "seconds": frame["audio_seconds"].astype(float),
            "verdict": frame["row_id"].map(verdicts).astype(object),
        }
    ).reset_index(drop=True)
    facts["row"] = range(len(facts))
    facts["sought"] = [f"{i}\n{t}".casefold() for i, t in zip(frame["row_id"], frame["line"], strict=True)]
    return facts


def plainly(facts, arranged):
    """Return the places as pandas finds and sorts them."""
    keep = facts["sought"].str.contains(arranged.search.casefold(), regex=False)
    if arranged.status:
        keep &= facts["status"] == arranged.status
    if arranged.verdict:
        keep &= (
            facts["verdict"].isna() if arranged.verdict == "none" else facts["verdict"] == arranged.verdict
        )
    ordered = facts[arranged.by][keep].sort_values(ascending=not arranged.descending, kind="stable")
    return ordered.index.tolist()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = made_run(tmp_path_factory.mktemp("rows") / "run", 120)
    for k, verdict in enumerate(("keep", "reject", "keep", None)):
        made.review(f"r{k * 9}", verdict, comment="said")
    return made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("by", SORT_KEYS)
@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
def test_rows_are_found_and_sorted_as_pandas_does_it(run, rows, by, descending):
    reader = RowReader(run)
    for search in ("", "strasse", "ÉT", "R1", "some LENGTH", "nowhere"):
        for status, verdict in (("", ""), ("done", ""), ("", "keep"), ("pending", "none")):
            arranged = Arrangement(search, status, verdict, by, descending)
            found = list(reader.find_places(arranged))
            assert found == plainly(rows, arranged)
            assert {type(place) for place in found} <= {int}


def test_a_row_is_read_alike_alone_and_with_others(run):
    entries = make_shelf(run, limit=None).entries
    for position in (0, 1, 3, 119):
        entry, other = read_entry(run, position, RowReader(run).text_columns), entries[position]
        ours = ("row_id", "words", "audio_seconds", "voice_id", "locale", "status", "problem", "fields")
        assert [getattr(entry, name) for name in ours] == [getattr(other, name) for name in ours]
        assert (entry.text, entry.label) == (TEXTS[position % len(TEXTS)], f"r{position}")


def test_numbers_are_texts_too(tmp_path):
    run = run_of(tmp_path / "run", {"line": [3, 20, 100, None]}, {}, name="abcd".__getitem__)
    reader = RowReader(run)
    assert [row["text"] for row in reader.read_page([3, 1])] == ["", "20"]
    assert list(reader.find_places(Arrangement(search="0", by="text"))) == [2, 1]


def test_what_is_kept_of_a_row_is_its_text_and_little_more(tmp_path):
    texts = [f"Line {k} of the script, which somebody says in a while." for k in range(5000)]
    run = made_run(tmp_path / "run", 5000, text=texts.__getitem__)
    reader = RowReader(run)
    before = pa.total_allocated_bytes()
    places = reader.find_places(Arrangement(search="line", by="text"))
    kept = pa.total_allocated_bytes() - before
    assert len(places) == 5000
    assert 0 < kept < 2 * sum(map(len, texts)), "text, id and some numbers, in no objects"
    assert all(isinstance(value, pa.Table | tuple) for value in reader._known)
