"""The pages of the notebooks in docs/ are of the notebooks there are; what they show is compared by the long tests."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"
MOST_BYTES = 1_000_000

hash_cells = runpy.run_path(str(ROOT / "scripts" / "make-notebooks"))["hash_cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_page_in_docs_is_of_the_cells_it_has(path):
    there = (PAGES / f"{path.stem}.md").read_text(encoding="utf-8")
    assert f"<!-- cells: {hash_cells(path)} -->" in there, "`make notebooks` makes it anew"
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", there)
    assert [name for name in pictures if not (PAGES / name).exists()] == []
    assert re.findall(r"/(?:home|root|tmp|work)/\S*|(?:127\.0\.0\.1|localhost):\d+", there) == [], (
        "of one machine"
    )


def test_pages_in_docs_are_those_of_the_notebooks_and_getting_started_leads_to_them():
    assert [path.stem for path in sorted(PAGES.glob("*.md"))] == [path.stem for path in NOTEBOOKS]
    start = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS if f"](notebooks/{path.stem}.md)" not in start] == []
    assert sum(path.stat().st_size for path in PAGES.rglob("*") if path.is_file()) < MOST_BYTES
