"""The ledger is read whole by time, by columns, or a file at a time."""

import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from store_cases import MOMENT, done, key_of, sent, tried

from speechframe.old_store.ledger import ledger_files, read_attempts, read_ledger
from speechframe.old_store.parts import open_part
from speechframe.old_store.schema import LEDGER_SCHEMA

KEYS = [key_of(i) for i in range(50)]
SOME = ["status", "credits", "request_key"]


@pytest.fixture
def growing(run, add_rows, monkeypatch):
    """A run with two files of the ledger, and attempts that only its log has; the newest come first."""
    monkeypatch.setattr("speechframe.old_store.writer.PART_ROWS", 20)
    add_rows(run, KEYS)
    with run.lock(), run.writer() as out:
        for number, key in enumerate(KEYS):
            out.sent(sent(key))
            out.answer(done(key), tried(key, attempt=1, time=MOMENT - timedelta(seconds=number)))
            if number == 39:
                out.cut()
        yield run


def counted(tables):
    return Counter(str(row) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("columns", [None, SOME])
def test_attempts_are_the_ledger_in_parts(growing, columns):
    tables = list(growing.attempts(columns))
    assert [table.num_rows for table in tables] == [20, 20, 10]
    assert {tuple(table.column_names) for table in tables} == {tuple(columns or LEDGER_SCHEMA.names)}
    assert counted(tables) == counted([growing.ledger(columns)])


@pytest.mark.parametrize("columns", [None, SOME, ["request_key", "time"]])
def test_some_columns_stand_in_the_order_of_time_all_the_same(growing, columns):
    found = growing.ledger(columns)
    assert found.column_names == (columns or LEDGER_SCHEMA.names)
    assert found.column("request_key").to_pylist() == KEYS[::-1]
    assert found == growing.ledger().select(found.column_names)


def test_a_file_of_an_earlier_version_has_nothing_in_the_columns_it_lacks(growing):
    path = ledger_files(growing.path)[0]
    with pq.ParquetFile(path) as file:
        table = file.read()
    pq.write_table(table.drop_columns(["tags", "balance_after"]), path)
    (found,) = read_attempts([path])
    assert found.schema.equals(LEDGER_SCHEMA)
    assert found.column("balance_after").null_count == found.num_rows == 20
    assert found.column("request_key") == table.column("request_key")
    assert read_ledger([path], ["balance_after"]).num_rows == 20


def test_no_ledger_has_its_columns():
    assert read_ledger([]) == LEDGER_SCHEMA.empty_table()
    assert read_ledger([], SOME) == LEDGER_SCHEMA.empty_table().select(SOME)


MEMORY = """
import shutil
import sys
sys.path[:0] = sys.argv[2:]
from peak import peak_kb
from store_cases import TABLE_SCHEMA, key_of, manifest, table_batch, tried
from speechframe import open_run
from speechframe.old_store import RunFolder
from speechframe.old_store.ledger import ledger_path, write_ledger

run = RunFolder.create(sys.argv[1], manifest())
with run.lock(), run.add_table(TABLE_SCHEMA) as table:
    table.write(table_batch([key_of(0)]))
open_run(sys.argv[1]).stats
one = ledger_path(run.path, "one", 0)
write_ledger(one, [tried(key_of(i), lane="global/other", trace_id=key_of(-i)) for i in range(16_000)])
for number in range(1, 160):
    shutil.copy(one, ledger_path(run.path, "one", number))
start = peak_kb()
assert open_run(sys.argv[1]).stats["attempts"] == 2_560_000
print((peak_kb() - start) // 1024)
"""


def test_counting_attempts_takes_the_memory_of_one_file(tmp_path):
    here = Path(__file__).parent
    command = [sys.executable, "-c", MEMORY, tmp_path / "run", here, here.parent]
    more = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert more < 25, f"{more} MB more"


def test_a_note_of_more_than_100_mb_can_be_read_again(tmp_path):
    path = tmp_path / "long.parquet"
    with pq.ParquetWriter(path, LEDGER_SCHEMA) as file:
        file.add_key_value_metadata({"note": "x" * 110_000_000})
    with open_part(path) as file:
        assert len(file.metadata.metadata[b"note"]) == 110_000_000
