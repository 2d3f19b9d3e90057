"""What people send back is applied once, to the audio that they heard; everything else is a conflict."""

import hashlib
import json

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_lab import run_of

import speechframe as spf

COLUMNS = ["row_id", "reviewer", "verdict", "corrected_text", "file", "problem"]


def sha_of(k, take=0):
    return hashlib.sha256(f"{k} {take}".encode()).hexdigest()


def make_run(path, rows=4):
    records = {
        k: (
            {"status": "done", "audio": "a.wav", "format": "WAV", "sha256": sha_of(k), "text": f"line {k}"},
            b"RIFF",
        )
        for k in range(rows)
    }
    return run_of(path, {"line": [f"line {k}" for k in range(rows)]}, records)


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


def said(k, minute=0, *, sha256=None, **values):
    time = f"2024-03-01T10:{minute:02d}:00.000Z"
    return {"row_id": str(k), "sha256": sha256 or sha_of(k), "reviewed_at": time, **values}


def write(folder, reviewer, *reviews, run_id="r1", **more):
    folder.mkdir(exist_ok=True)
    file = {
        "speechframe_reviews": 1,
        "run_id": run_id,
        "title": "t",
        "reviewer": reviewer,
        "reviews": reviews,
    }
    path = folder / f"{reviewer}.json"
    path.write_text(json.dumps({**file, **more}))
    return path


def verdicts(run):
    return {
        row: verdict
        for row, verdict in zip(run.reviews["row_id"], run.reviews["verdict"], strict=True)
        if verdict
    }


def test_a_folder_of_files_is_applied_once_with_the_reviewers_and_times_of_the_files(run, tmp_path, capsys):
    folder = tmp_path / "back"
    write(
        folder,
        "ann",
        said(0, 1, verdict="reject"),
        said(0, 2, verdict="", rating=4),
        said(1, 3, verdict="keep"),
    )
    write(folder, "bob", said(2, 4, verdict="reject", comment="too fast", corrected_text="Line, 2."))
    conflicts = run.read_reviews(folder)
    assert list(conflicts.columns) == COLUMNS
    assert len(conflicts) == 0
    assert "4 reviews applied, 0 reviews already in the run, 0 conflicts" in capsys.readouterr().err
    found = spf.open_run(run.path).reviews.set_index("row_id")
    assert verdicts(run) == {"1": "keep", "2": "reject"}
    assert found.loc["0", "rating"] == 4
    assert list(found.loc["2", ["comment", "corrected_text", "reviewer", "is_current"]]) == [
        "too fast",
        "Line, 2.",
        "bob",
        True,
    ]
    assert found.loc["2", "reviewed_at"] == pd.Timestamp("2024-03-01T10:04Z")
    # A later review of the run settles what was applied. Reading the files again changes nothing.
    run.review("2", "keep")
    again = run.read_reviews(folder)
    assert (len(again), again.attrs) == (0, {"new": 0, "known": 4})
    assert len(pq.read_table(run.path / "reviews.parquet")) == 5
    assert verdicts(run) == {"1": "keep", "2": "keep"}
    # What is read later but was said earlier is history.
    run.review("3", "keep", reviewer="ann")
    write(folder, "ann", said(3, 5, verdict="reject"))
    assert len(run.read_reviews(folder)) == 0
    assert verdicts(run)["3"] == "keep"


def test_what_cannot_be_applied_is_named_and_everything_else_is_read(run, tmp_path):
    folder = tmp_path / "back"
    write(
        folder,
        "ann",
        said(0, verdict="keep"),
        said(1, verdict="keep", sha256=sha_of(1, take=1)),
        said(9, verdict="keep"),
    )
    write(
        folder,
        "bob",
        said(2, verdict="maybe"),
        said(3, rating=6),
        {**said(3, verdict="keep"), "reviewed_at": None},
    )
    write(folder, "cy", said(3, verdict="keep"), run_id="r2")
    write(folder, "di", said(3, verdict="keep"), speechframe_reviews=2)
    (folder / "ed.json").write_text('{"speechframe_reviews": 1, "run')
    (folder / "fay.csv").write_bytes("row_id;comment\n3;za głośno\n".encode("cp1250"))
    conflicts = run.read_reviews(folder)
    found = list(zip(conflicts["file"], conflicts["row_id"], conflicts["problem"], strict=True))
    for (file, row, problem), expected in zip(found, [
        ("ann.json", "1", "the audio of the row has changed"), ("ann.json", "9", "no row of the run has the id '9'"),
        ("bob.json", "2", "'maybe' is not a verdict; allowed: keep, reject"), ("bob.json", "3", "6 is not a rating; allowed: 1 to 5"),
        ("bob.json", "3", "reviewed_at=None is not a time"), ("cy.json", None, "about another run (r2); this run is r1"),
        ("di.json", None, "version 2"), ("ed.json", None, "damaged"), ("fay.csv", None, "not in UTF-8"),
    ], strict=True):  # fmt: skip
        assert (file, row) == expected[:2]
        assert expected[2] in problem
    assert verdicts(run) == {"0": "keep"}
    with pytest.raises(spf.StoreError, match="no file with reviews; allowed: "):
        run.read_reviews(run.path / "parts")


def test_people_who_differ_are_both_named_and_neither_is_applied(run, tmp_path):
    folder = tmp_path / "back"
    ann = [
        said(0, 1, verdict="keep"),
        said(1, 1, verdict="reject", corrected_text="A"),
        said(2, 1, verdict="keep"),
    ]
    bob = [
        said(0, 2, verdict="reject", comment="hm"),
        said(1, 2, verdict="reject", corrected_text="B"),
        said(2, 2, verdict="keep"),
    ]
    write(folder, "ann", *ann)
    last = write(folder, "bob", *bob)
    for _ in range(2):
        conflicts = run.read_reviews(folder)
        assert [tuple(row) for row in conflicts[["row_id", "reviewer", "file"]].to_numpy()] == [
            ("0", "ann", "ann.json"), ("0", "bob", "bob.json"), ("1", "ann", "ann.json"), ("1", "bob", "bob.json"),
        ]  # fmt: skip
        assert list(conflicts["corrected_text"]) == [None, None, "A", "B"]
        assert "verdicts of these people differ: ann, bob" in conflicts["problem"][0]
        assert verdicts(run) == {"1": "reject", "2": "keep"}
        assert run.reviews["corrected_text"].isna().all()
    # One after the other is the same: what the run has already stays.
    other = make_run(tmp_path / "other")
    assert len(other.read_reviews(folder / "ann.json")) == 0
    conflicts = other.read_reviews(last)
    assert set(conflicts["file"]) == {"reviews.parquet", "bob.json"}
    assert verdicts(other) == {"0": "keep", "1": "reject", "2": "keep"}


def test_a_sheet_is_about_the_audio_that_the_rows_have_now(run, tmp_path):
    frame = pd.DataFrame(
        {
            "row_id": [0, 1],
            "verdict": ["Reject", ""],
            "Comment": ["", "fine"],
            "reviewer": "ann",
            "rating": ["", 5],
        }
    )
    frame.to_excel(tmp_path / "back.xlsx", index=False)
    (tmp_path / "back.csv").write_bytes("\ufeffrow_id;verdict;sha256\r\n2;keep;\r\n3;keep;old\r\n".encode())
    for known in (0, 3):
        conflicts = run.read_reviews([tmp_path / "back.xlsx", tmp_path / "back.csv"])
        assert list(conflicts["row_id"]) == ["3"]
        assert conflicts.attrs["known"] == known
    assert verdicts(run) == {"0": "reject", "2": "keep"}
    found = run.reviews.set_index("row_id")
    assert list(found.loc["1", ["comment", "rating", "reviewer"]]) == ["fine", 5, "ann"]
    assert found["is_current"].all()


def test_files_of_earlier_versions_have_no_ratings(run):
    run.review("0", "keep", rating=3)
    path = run.path / "reviews.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["rating"]), path)
    assert spf.open_run(run.path).reviews["rating"].isna().all()
    run.review("0", rating=2)
    assert run.reviews["rating"].tolist() == [2]
    with pytest.raises(spf.InvalidRows, match="rating"):
        run.review("0", rating=6)


reviews = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob"]), st.integers(0, 1), st.integers(0, 59),
        st.sampled_from(["keep", "reject", "", None]), st.sampled_from(["A", "B", None]),
    ),
    max_size=8, unique_by=lambda review: review[2],
)  # fmt: skip


@settings(max_examples=6, deadline=None)
@given(reviews)
def test_whatever_comes_back_a_disputed_field_is_never_applied_and_a_second_time_changes_nothing(
    tmp_path_factory, given
):
    folder = tmp_path_factory.mktemp("back")
    run = make_run(folder / "run", rows=2)
    newest = {}
    for who in ("ann", "bob"):
        mine = [
            said(k, minute, verdict=v, corrected_text=t) for name, k, minute, v, t in given if name == who
        ]
        write(folder / "files", who, *mine)
    for who, k, _, verdict, text in sorted(given, key=lambda review: review[2]):
        for field, value in (("verdict", verdict), ("corrected_text", text)):
            if value is not None:
                newest.setdefault((str(k), field), {})[who] = value
    for is_first in (True, False):
        conflicts = run.read_reviews(folder / "files")
        assert is_first or conflicts.attrs["new"] == 0
        found = run.reviews.set_index("row_id")
        for row in ("0", "1"):
            for field in ("verdict", "corrected_text"):
                opinions = newest.get((row, field), {})
                applied = found[field].get(row)
                values = {value for value in opinions.values() if value}
                assert applied in (values if len(values) == 1 else {None})
