"""The scripts as text: what they weigh, that they fit together, and their logic in node."""

import itertools
import re
import subprocess
from pathlib import Path

from speechframe.page import assets
from speechframe.page.assets import build_script, read_style

HERE = Path(__file__).parent
STATIC = Path(__file__).parents[2] / "src/speechframe/page/static"
MODULES = sorted(STATIC.rglob("*.js"))
SCRIPT_NAMES = sorted(path.stem for path in STATIC.glob("*.js"))
CHECK = """
const [fs, vm] = [require("node:fs"), require("node:vm")];
for (const path of process.argv.slice(1)) new vm.SourceTextModule(fs.readFileSync(path, "utf-8"), { identifier: path });
"""


def node(*arguments):
    """Run the node that comes with Playwright."""
    from playwright._impl._driver import compute_driver_executable

    program = compute_driver_executable()[0]
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_all_scripts_together_are_small():
    assert len(MODULES) > len(SCRIPT_NAMES)
    # Pages get the scripts without comments and indents.
    assert sum(len(text.encode()) for text in collected().values()) < 110_000


def collected():
    parts = {}
    for name in [*SCRIPT_NAMES, "core/page", "core/served", "core/offline"]:
        assets._collect(f"{name}.js", parts)
    return parts


def test_every_script_belongs_to_a_widget_or_a_page():
    parts = collected()
    assert set(parts) == {path.relative_to(STATIC).as_posix() for path in MODULES}


def test_scripts_can_be_put_together_as_text():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        # Indents are taken away on the way to a page; a name is the same everywhere.
        assert not re.search(r"^import .* as ", text, re.MULTILINE), path
        assert all(line.count("`") % 2 == 0 for line in text.splitlines()), path


def test_scripts_put_together_are_modules_that_import_nothing(tmp_path):
    for name, as_page in itertools.product(SCRIPT_NAMES, (False, True)):
        whole = build_script(name, as_page=as_page)
        assert not re.search(r"^\s*import\b", whole, re.MULTILINE), name
        assert whole.count("export ") == (0 if as_page else 1), name
        (tmp_path / f"{name}-{as_page}.mjs").write_text(whole, encoding="utf-8")
    checked = node("--experimental-vm-modules", "--eval", CHECK, *map(str, sorted(tmp_path.glob("*.mjs"))))
    assert checked.returncode == 0, checked.stderr


def test_nothing_is_fetched_or_evaluated_or_written_as_html():
    for path in MODULES:
        # The name of what SVG is; nobody asks that address for anything.
        text = path.read_text(encoding="utf-8").replace('"http://www.w3.org/2000/svg"', "")
        found = re.findall(
            r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|https?://|import\(|XMLHttpRequest",
            text,
        )
        assert found == [], path


def test_the_style_sheet_fetches_nothing():
    assert "url(" not in read_style()
    assert "@import" not in read_style()


def test_the_logic_of_the_scripts_in_node():
    ran = node("--test", "--test-reporter=tap", *map(str, sorted(HERE.glob("*.test.mjs"))))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(re.search(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)[1]) > 5
