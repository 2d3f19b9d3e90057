"""The page about the ledger's layout is true."""

import re
from pathlib import Path

from speechframe.store.schema import LEDGER_SCHEMA

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


def test_the_page_lists_each_column_with_its_type():
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    kinds = {field.name: str(field.type).split(" (")[0] for field in LEDGER_SCHEMA}
    assert dict(rows) == kinds
    assert f"number {LEDGER_SCHEMA.metadata[b'speechframe:ledger'].decode()};" in PAGE.read_text("utf-8")
