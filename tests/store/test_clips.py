"""Clips that a run keeps: whole, or put in their place again; what is wrong with them is named."""

import hashlib
import uuid

import pyarrow as pa
import pytest
from store_cases import TABLE_SCHEMA, key_of, manifest, table_batch

from speechframe.old_store import Problem, RunFolder, clips, is_remote, remote

DATA = [bytes([k]) * 700 for k in range(4)]
NAMES = [f"input/audio/{hashlib.sha256(data).hexdigest()}" for data in DATA]
SCHEMA = TABLE_SCHEMA.append(pa.field("speech_arg_audio", clips.REFERENCE))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch, tmp_path):
    monkeypatch.setattr(clips, "_PIECE_BYTES", 256)
    monkeypatch.setattr(remote, "LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=["here", "away"])
def kept(request, tmp_path):
    """A run of five rows: two share a clip, one has none, and one is of a file that lies elsewhere."""
    place = tmp_path / "run" if request.param == "here" else f"memory://clips/{uuid.uuid4().hex}/run"
    run = RunFolder.create(place, manifest())
    keep_all(run)
    given = [
        reference(NAMES[0]),
        reference(NAMES[1]),
        reference(NAMES[0]),
        None,
        reference("/a.wav", is_kept=False),
    ]
    with run.lock(), run.add_table(SCHEMA) as table:
        batch = table_batch([key_of(number) for number in range(5)])
        audio = pa.array(given, clips.REFERENCE)
        table.write(pa.RecordBatch.from_arrays([*batch.columns, audio], schema=SCHEMA))
    return RunFolder.open(place)


def keep_all(run):
    for data in DATA[:2]:
        clips.keep(run.path, hashlib.sha256(data).hexdigest(), data)


def reference(path, *, is_kept=True):
    return {"path": path, "is_kept": is_kept, "sha256": "", "size_bytes": 700}


def overwrite(path, content):
    write = path.replace_content if is_remote(path) else path.write_bytes
    write(content)


FLIPPED = DATA[0][:300] + b"x" + DATA[0][301:]


@pytest.mark.parametrize("content", [b"", DATA[0][:-1], DATA[0] + b"x", FLIPPED, DATA[1]])
def test_a_clip_that_is_not_what_was_handed_in_is_named(kept, content):
    assert kept.verify() == []
    overwrite(kept.path / NAMES[0], content)
    words = "is not the clip that was handed in: restore it, or hand the table in again"
    assert kept.verify() == [Problem(NAMES[0], None, words)]


def test_a_clip_that_is_gone_is_named_once_for_all_its_rows(kept):
    (kept.path / NAMES[0]).unlink()
    (found,) = kept.verify()
    assert (found.file, found.request_key) == (NAMES[0], None)
    assert found.words.startswith("is missing, and rows of input/0001.parquet are made of it: restore it")
    (kept.path / NAMES[1]).unlink()
    assert [problem.file for problem in kept.verify()] == sorted(NAMES[:2])


def test_a_clip_that_no_row_needs_and_files_of_others_are_no_trouble(kept):
    clips.keep(kept.path, NAMES[2].rpartition("/")[2], DATA[2])
    overwrite(kept.path / "input/audio/notes.txt", b"mine")
    assert kept.verify() == []


def test_a_clip_nobody_can_read_is_named_beside_the_others(run):
    keep_all(run)
    (run.path / NAMES[0]).unlink()
    (run.path / NAMES[0]).mkdir()
    overwrite(run.path / NAMES[1], b"")
    assert {p.file: p.words.partition(":")[0] for p in run.verify()} == {
        NAMES[0]: "cannot be read", NAMES[1]: "is not the clip that was handed in",
    }  # fmt: skip


@pytest.mark.parametrize("content", [None, b"", DATA[0][:-1], DATA[0] + b"x"])
def test_a_clip_that_is_torn_or_gone_is_put_in_its_place_when_it_is_kept_again(kept, content):
    path = kept.path / NAMES[0]
    path.unlink() if content is None else overwrite(path, content)
    keep_all(kept)
    assert path.read_bytes() == DATA[0]
    assert kept.verify() == []


@pytest.mark.parametrize("content", [FLIPPED, DATA[1], DATA[0][:-1] + b"x"])
def test_other_bytes_of_the_same_length_are_replaced_on_this_machine(run, content):
    keep_all(run)
    overwrite(run.path / NAMES[0], content)
    keep_all(run)
    assert (run.path / NAMES[0]).read_bytes() == DATA[0]


def test_a_whole_clip_is_not_written_again(kept, monkeypatch):
    def refuse(*_):
        raise AssertionError("it is there")

    monkeypatch.setattr("speechframe.old_store.files.write_whole", refuse)
    keep_all(kept)


def test_the_clips_of_a_draft_take_the_place_of_what_is_there(run, tmp_path):
    draft = RunFolder.create(tmp_path / "draft", manifest())
    keep_all(draft)
    (run.path / "input" / "audio").mkdir(parents=True)
    overwrite(run.path / NAMES[0], FLIPPED)
    overwrite(run.path / NAMES[2], DATA[2])
    with run.lock():
        run.take_clips(draft)
        run.take_clips(draft)
    assert [(run.path / name).read_bytes() for name in NAMES[:3]] == DATA[:3]
    assert run.verify() == []
