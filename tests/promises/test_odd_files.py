"""Files that somebody else wrote, or damaged, end in an error of the package that says what to do."""

import fcntl
import json
import pickle
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accounts import statuses

import speechframe as spf
from speechframe.errors import InvalidRows, RunLocked, StoreError

DEEP = "[" * 100_000
YEAR_290000_US = 9_090_000_000_000_000_000


@pytest.fixture(scope="module")
def service(services):
    return services()


@pytest.fixture(scope="module")
def finished(service, tmp_path_factory):
    path = tmp_path_factory.mktemp("odd") / "run"
    options = {"voice": "en-US-nora", "sample_rate": 8000, "progress": False, "service": service.settings}
    spf.generate(["One line.", "Another line."], run_dir=path, **options)
    return path


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def test_a_run_is_pickled_as_its_folder(service, speak, lines):
    run = speak(service, lines(2))
    for one in (run, spf.open_run(run.path)):
        again = pickle.loads(pickle.dumps(one))
        assert again.run_id == run.run_id
        assert statuses(again) == ["done"] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda said: DEEP,
        lambda said: json.dumps(said | {"columns": "x"}),
        lambda said: json.dumps(said | {"tags": {"team": {}}}),
        lambda said: json.dumps(said | {"tags": 5}),
    ],
)
def test_a_run_json_of_another_kind_is_said_to_be_damaged(folder, change):
    path = folder / "run.json"
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(StoreError, match=r"run\.json is damaged"):
        spf.open_run(folder)


@pytest.mark.parametrize("holder", ["5", "[1]", '{"pid": 5}', DEEP])
def test_a_lock_whose_holder_says_something_else_is_a_lock(folder, service, holder):
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in folder.glob("*holder*"):
            path.write_text(holder)
        (folder / "holder.json").write_text(holder)
        with pytest.raises(RunLocked, match="another process"):
            spf.resume(folder, service=service.settings, progress=False)


@pytest.mark.parametrize("note", [DEEP, "[]", "{}", '{"since": 5}', '{"since": "soon"}'])
def test_a_note_in_the_ledger_that_says_nothing_is_named(tmp_path, note):
    (tmp_path / "open").mkdir()
    (tmp_path / "attempts").mkdir()
    (tmp_path / "open/one.json").write_text(note)
    with pytest.raises(StoreError, match=r"open/one\.json is damaged"):
        spf.usage(tmp_path)


def test_a_time_that_no_calendar_has_is_damage(folder):
    for kind in ("parts", "attempts"):
        (path,) = (folder / kind).glob("*.parquet")
        table, notes = pq.read_table(path), pq.read_metadata(path).metadata
        for place, known in enumerate(table.schema):
            if pa.types.is_timestamp(known.type):
                later = pa.array([YEAR_290000_US] * table.num_rows, known.type)
                table = table.set_column(place, known, later)
        with pq.ParquetWriter(path, table.schema) as file:
            file.write_table(table)
            file.add_key_value_metadata(
                {name.decode(): notes[name].decode() for name in notes if name[:4] == b"spf:"}
            )
    run = spf.open_run(folder)
    for read in (run.to_pandas, lambda: run.ledger, lambda: spf.usage(folder)):
        with pytest.raises(StoreError, match="after 9999"):
            read()
    assert "after 9999" in run.verify()[0].words


def test_a_date_that_python_has_not_is_no_id_and_no_tag(service, speak):
    table = pa.table({"text": ["One."], "when": pa.array([YEAR_290000_US], pa.timestamp("us", "UTC"))})
    for options in ({"id": "when"}, {"tags": {"when": spf.col("when")}}):
        with pytest.raises(InvalidRows, match="after 9999"):
            speak(service, table, **options)


def test_problems_are_counted_in_all_rows(service, speak):
    with pytest.raises(InvalidRows, match=r"^3,000 problems in 3,000 rows"):
        speak(service, [""] * 3000)


@pytest.mark.parametrize("name", ["input", "parts", "log"])
def test_a_file_in_the_place_of_a_folder_is_named(folder, service, name):
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).write_text("")
    with pytest.raises(StoreError, match=name):
        spf.resume(folder, table=["A third line."], service=service.settings, progress=False)
