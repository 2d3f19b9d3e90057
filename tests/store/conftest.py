"""Makes `store_cases`, the builders and checks of this folder, importable for its tests and scripts."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from store_cases import TABLE_SCHEMA, manifest, table_batch

from speechframe.old_store import RunFolder


@pytest.fixture
def run(tmp_path):
    """A new run folder without a table."""
    return RunFolder.create(tmp_path / "run", manifest())


@pytest.fixture
def add_rows():
    """Hands a table of text and keys to a run."""

    def add(run, keys, **options):
        with run.add_table(TABLE_SCHEMA, **options) as table:
            table.write(table_batch(keys))

    return add
