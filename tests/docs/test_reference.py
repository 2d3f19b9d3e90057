"""Each public name has its page in the reference, and Sphinx builds the pages without a warning."""

import inspect
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import speechframe
from speechframe import aio, testing
from speechframe.engines import base
from speechframe.testing import suites

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"

_MODULE = re.compile(r"\.\. (?:currentmodule|py:module|automodule):: ([\w.]+)")
_DATA = re.compile(r"\.\. py:data:: (\w+)")
_NAME = re.compile(r"   (\w+)")


def names_in(page):
    """Yield the full names with a page of their own, or a place on this page: modules, data and entries of a table."""
    module, has_pages = "", False
    for line in page.read_text(encoding="utf-8").splitlines():
        if found := _MODULE.fullmatch(line):
            if "currentmodule" not in line:
                yield found[1]
            module = found[1]
        elif found := _DATA.fullmatch(line):
            yield f"{module}.{found[1]}"
        elif line and not line.startswith("   "):
            has_pages = False
        elif ":toctree: generated" in line:
            has_pages = True
        elif has_pages and (found := _NAME.fullmatch(line)):
            yield f"{module}.{found[1]}"


def test_each_public_name_is_in_the_reference_once():
    pages = sorted(REFERENCE.glob("*.rst"))
    listed = Counter(name for page in pages if page.stem != "index" for name in names_in(page))
    public = {
        f"{module.__name__}.{name}"
        for module in (speechframe, testing, suites, base)
        for name in module.__all__
    }
    assert public - set(listed) == set(), "name these in a page of docs/reference"
    modules = {module.__name__ for module in (testing, suites, base)}
    assert set(listed) - public == modules | {"speechframe.aio.resolve_service"}
    assert [name for name, count in listed.items() if count > 1] == []


def test_the_page_of_async_verbs_lists_all_of_them():
    page = (REFERENCE / "aio.rst").read_text(encoding="utf-8")
    functions = {name for name, value in vars(aio).items() if inspect.iscoroutinefunction(value)}
    assert set(re.findall(r"^   (\w+)$", page, re.MULTILINE)) == functions


def test_each_page_of_the_reference_is_in_its_index():
    index = (REFERENCE / "index.rst").read_text(encoding="utf-8")
    assert set(re.findall(r"^   (\w+)$", index, re.MULTILINE)) == {
        path.stem for path in REFERENCE.glob("*.rst") if path.stem != "index"
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sphinx_builds_the_pages_without_a_warning(tmp_path):
    for path in ROOT.iterdir():
        if path.name != "docs":
            (tmp_path / path.name).symlink_to(path)
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("build", "generated"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", "html"],
        cwd=tmp_path, capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html/reference/generated/speechframe.generate.html").exists()
