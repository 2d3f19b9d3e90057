"""The scripts as text: what they weigh, that they fit together, and their logic in node."""

import re
import subprocess
from pathlib import Path

import pytest

from speechframe.page import assets
from speechframe.page.assets import SCRIPTS, script, style

HERE = Path(__file__).parent
STATIC = Path(__file__).parents[2] / "src/speechframe/page/static"
MODULES = sorted(STATIC.rglob("*.js"))


def node(*arguments):
    """Run the node that comes with Playwright."""
    from playwright._impl._driver import compute_driver_executable

    program = compute_driver_executable()[0]
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_all_scripts_together_are_small():
    assert len(MODULES) > len(SCRIPTS)
    assert sum(path.stat().st_size for path in MODULES) < 93_000


def test_every_script_belongs_to_a_widget_or_a_page():
    parts = {}
    for name in [*SCRIPTS, "core/page", "core/served", "core/offline"]:
        assets._collect(f"{name}.js", parts)
    assert set(parts) == {path.relative_to(STATIC).as_posix() for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_a_script_can_be_put_together_as_text(path):
    # Indents are taken away on the way to a page; a name is the same everywhere.
    assert not re.search(r"^import .* as ", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert all(line.count("`") % 2 == 0 for line in path.read_text(encoding="utf-8").splitlines())


def test_every_widget_s_script_is_listed():
    assert set(SCRIPTS) == {path.stem for path in STATIC.glob("*.js")}


@pytest.mark.parametrize("as_page", [False, True])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_put_together_is_a_module_that_imports_nothing(name, as_page, tmp_path):
    whole = script(name, as_page=as_page)
    assert not re.search(r"^\s*import\b", whole, re.MULTILINE)
    assert whole.count("export ") == (0 if as_page else 1)
    path = tmp_path / f"{name}.mjs"
    path.write_text(whole, encoding="utf-8")
    checked = node("--check", str(path))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_nothing_is_fetched_or_evaluated_or_written_as_html(path):
    # The name of what SVG is; nobody asks that address for anything.
    text = path.read_text(encoding="utf-8").replace('"http://www.w3.org/2000/svg"', "")
    found = re.findall(
        r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|https?://|import\(|XMLHttpRequest",
        text,
    )
    assert found == []


def test_the_style_sheet_fetches_nothing():
    assert "url(" not in style()
    assert "@import" not in style()


def test_the_logic_of_the_scripts_in_node():
    ran = node("--test", "--test-reporter=tap", *map(str, sorted(HERE.glob("*.test.mjs"))))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(re.search(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)[1]) > 5
