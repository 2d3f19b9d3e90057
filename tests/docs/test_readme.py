"""README, CONTRIBUTING and the pages of docs/ are true. Every example runs, and every table agrees with the code."""

import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

import speechframe
from speechframe.cli.app import list_commands
from speechframe.cli.exits import EXIT_CODES
from speechframe.engines import voice_folders
from speechframe.local.engines.translation import firefox_models
from speechframe.local.engines.whisper import recogniser as whisper
from speechframe.settings import FIELD_BY_VARIABLE
from speechframe.settings.spending import read_budgets, read_prices

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

NAMES = (ROOT / "docs" / "pages.txt").read_text(encoding="utf-8").split()
PATHS = {"README": ROOT / "README.md"} | {name: ROOT / "docs" / f"{name}.md" for name in NAMES}
PAGES = {name: path.read_text(encoding="utf-8") for name, path in PATHS.items()}
"""The text of the README and of each page, in order."""

LARGEST_PICTURE_BYTES = 120_000
MOST_LINES = {"README.md": 180, "CHANGELOG.md": 40, "CONTRIBUTING.md": 120}

_PO_FILE = """msgid ""
msgstr "Language: {}\\nContent-Type: text/plain; charset=UTF-8\\n"

msgid "Your order has {{count}} parts."
msgstr "{}"
"""

FILES_OF_LOCALIZATION = {
    "app.de.po": _PO_FILE.format("de", "Ihre Bestellung hat {count} Teile."),
    "app.ja.po": _PO_FILE.format("ja", "ご注文は{count}点です。"),
    "fill.json": '{"*": {"count": "3"}}',
    "cast.csv": "locale,voice\npt-BR,pt-BR-larissa\nde-DE,de-DE-greta\n",
    "words.csv": "word,locale,say_as\npedido,pt-BR,encomenda\n",
    "reviews/anna.csv": "row_id,verdict\n0/pt-BR,keep\n",
}
"""The files that the commands of the page on localization read, by name."""

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Reads pages as JSON. Runs the blocks of each page in a namespace and a folder of its own, and writes their output.
_RUNNER = """
import contextlib, io, json, os, sys
home = os.getcwd()
for page, blocks in json.load(sys.stdin):
    os.chdir(os.path.join(home, page))
    namespace = {"__name__": "__main__"}
    for line, source in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\\n" * line + source, page + ".md", "exec"), namespace)
        print(json.dumps([page, line, printed.getvalue()]))
"""


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    source: str
    line: int


def blocks_of(text, page=""):
    return [
        Block(page, found[1], found[2], text[: found.start()].count("\n") + 1)
        for found in _FENCE.finditer(text)
    ]


BLOCKS = [block for page, text in PAGES.items() for block in blocks_of(text, page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language == "sh"]


def section(text, heading):
    return re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


def table(text, first):
    """Return the rows below the header whose first cell is `first`, as lists of cells without markup."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "").replace("*", "") for cell in line.strip("|").split("|")])
    return rows


def names_in(words):
    """Return the names of packages in a cell or a list of requirements."""
    return {re.match(r"[\w-]+", word.strip())[0].lower() for word in words}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder for each page, as after a clone, and an environment without settings of speechframe."""
    folder = tmp_path_factory.mktemp("clone")
    for page in PAGES:
        (folder / page).mkdir()
        (folder / page / "datasets").symlink_to(ROOT / "datasets")
    for name, content in FILES_OF_LOCALIZATION.items():
        path = folder / "localization" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPEECHFRAME_", "HF_"))}
    env |= {
        "SPEECHFRAME_SERVICE": str(folder / ".service"),
        "XDG_STATE_HOME": str(folder / ".state"),
        "HF_HOME": str(folder / ".huggingface"),
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}",
    }
    return folder, env


@pytest.fixture(scope="module")
def executed(home):
    """The output of each python block, by page and line. One process and one local service run all pages."""
    folder, env = home
    pages = itertools.groupby(PYTHON, key=lambda block: block.page)
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER],
        input=json.dumps([(page, [(block.line, block.source) for block in blocks]) for page, blocks in pages]),
        cwd=folder, env=env, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return {(page, line): printed for page, line, printed in map(json.loads, done.stdout.splitlines())}


# -- examples ------------------------------------------------------------------------


def test_every_python_block_runs_in_order_and_each_page_alone(executed):
    assert list(executed) == [(block.page, block.line) for block in PYTHON]
    assert len(PYTHON) >= 25


def test_blocks_that_are_not_run_are_python_too():
    for block in BLOCKS:
        if block.language == "py":
            compile(block.source, f"{block.page}.md", "exec")


def test_what_a_block_prints_is_what_the_page_shows(executed):
    shown = 0
    for block, after in itertools.pairwise(BLOCKS):
        if block.language == "python" and after.language == "text" and "──" not in after.source:
            assert _unmeasured(executed[block.page, block.line]) == _unmeasured(after.source), block.page
            shown += 1
    assert shown == 3


def _unmeasured(printed):
    # How long a voice takes may change with the engine; all else is exact.
    return re.sub(r"\d+\.\d{3,}", "0.0", re.sub(r"[ \t]+", " ", printed)).strip()


def test_the_first_example_has_ten_lines_at_most():
    assert len([line for line in PYTHON[0].source.splitlines() if line]) <= 10


def test_the_tree_shows_what_lies_in_a_run_folder(executed, home):
    del executed
    drawn = set(re.findall(r"[├└]── ([\w.]+)", section(PAGES["tables-and-runs"], "A run is a folder")))
    run = home[0] / "tables-and-runs/runs/hello"
    there = {path.name for path in run.iterdir()}
    # The log is empty once everything in it is in parts, and no call of this run failed.
    assert drawn - {"log", "failed"} == there - {"log"}
    assert {"log", "failed"} <= drawn


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", [b for b in SHELL if b.source.startswith("speechframe")], ids=lambda b: f"{b.page} {b.line}"
)
def test_shell_blocks_run(block, home, service):
    # One service for all of them: that each command can start its own is tested with the commands.
    folder, env = home
    hosted = {"SPEECHFRAME_BASE_URL": service.url, "SPEECHFRAME_API_KEY": service.api_key.get_secret_value()}
    # Doctor tries every engine for seconds: it is tested with the commands, too.
    source = "\n".join(line for line in block.source.splitlines() if line != "speechframe doctor")
    done = shell(source, (folder / block.page, {**env, **hosted}))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_three_lines_reach_a_hosted_service(home, service):
    """The block of the page, with another service's address and key in place of the made-up ones."""
    (block,) = [b for b in SHELL if b.source.startswith("export")]
    assert len(block.source.splitlines()) == 3
    source = re.sub(r"(?<=BASE_URL=)\S+", service.url, block.source)
    source = re.sub(r"(?<=API_KEY=)\S+", service.api_key.get_secret_value(), source)
    folder, env = home
    done = shell(source, (folder / block.page, env))
    assert done.returncode == 0, done.stdout + done.stderr
    # It was this service and not one of the program's own.
    made = json.loads((folder / block.page / "runs/hosted/run.json").read_text(encoding="utf-8"))
    assert made["key_fingerprint"] == speechframe.settings.fingerprint_key(service.api_key)


def shell(source, home):
    folder, env = home
    return subprocess.run(
        ["sh", "-eu", "-c", source], cwd=folder, env=env, capture_output=True, text=True, timeout=170, check=False
    )  # fmt: skip


# -- tables --------------------------------------------------------------------------


def test_the_tables_of_settings_are_those_of_the_code():
    models = (voice_folders.FOLDERS_VARIABLE, firefox_models.FOLDERS_VARIABLE, whisper.MODEL_VARIABLE)
    page = PAGES["settings"]
    assert [row[0] for row in table(page, "variable")] == [*FIELD_BY_VARIABLE, *models]
    # And no variable is named that nothing reads.
    named = set(re.findall(r"SPEECHFRAME_[A-Z_]+", "".join(PAGES.values())))
    assert named == {*FIELD_BY_VARIABLE, *models, "SPEECHFRAME_DEBUG"}
    settings = {field.name for field in fields(speechframe.Settings)}
    assert {name for row in table(page, "field") for name in row[0].split(", ")} == settings
    (example,) = [block for block in blocks_of(page) if block.language == "toml"]
    assert set(tomllib.loads(example.source)) - {"profiles"} <= settings


def test_the_examples_of_budgets_and_prices_can_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(PAGES["quota-and-cost"]):
        if block.language == "toml":
            Path(block.source.split()[1]).write_text(block.source, encoding="utf-8")
    assert read_prices().find_price("generate", "local", date(2026, 11, 1)).price == Decimal("0.00003")
    assert [budget.name for budget in read_budgets(Path("budgets.toml"))] == ["ads"]


def test_the_table_of_extras_is_the_project_s():
    extras = PROJECT["project"]["optional-dependencies"]
    rows = {row[0]: row for row in table(PAGES["extras"], "extra")}
    assert set(rows) == {"(none)", *extras}
    for name, requirements in {"(none)": PROJECT["project"]["dependencies"], **extras}.items():
        if name == "all":
            continue
        # Licences stand in parentheses; what is left are the packages.
        packages = re.sub(r"\([^()]*\)", "", rows[name][2])
        assert names_in(packages.split(",")) == names_in(requirements), name


def test_the_extras_say_what_the_gpl_engine_means():
    row = next(row for row in table(PAGES["extras"], "extra") if row[0] == "local")
    assert "GPL-3.0-or-later" in row[2]
    assert "worker processes" in section(PAGES["extras"], "Licences")


def test_the_tables_of_the_command_line_are_the_command_s():
    text = PAGES["command-line"]
    assert {row[0] for row in table(text, "command")} == set(list_commands())
    assert [(int(code), words) for code, words in table(text, "exit code")] == list(EXIT_CODES.items())


def test_the_names_to_rely_on_are_the_public_ones():
    text = PAGES["names"].partition("| | |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", text)
    assert sorted(named) == sorted(speechframe.__all__)


def test_make_targets_exist():
    texts = [*PAGES.values(), CONTRIBUTING]
    named = {
        t
        for text in texts
        for b in blocks_of(text)
        for t in re.findall(r"^make ([a-z-]+)", b.source, re.MULTILINE)
    }
    named |= set(re.findall(r"`make ([a-z-]+)", _FENCE.sub("", "".join(texts))))
    assert named >= {"demo", "test", "lab"}
    assert named <= MAKE_TARGETS


# -- pages, links and pictures -------------------------------------------------------


def test_each_page_is_listed_and_the_readme_leads_to_it():
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} == set(NAMES)
    assert [name for name in NAMES if f"](docs/{name}.md)" not in PAGES["README"]] == []


def test_files_and_headings_that_are_named_exist():
    paths = [
        *PATHS.values(),
        *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "datasets/README.md")),
    ]
    missing = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for name, heading in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", text):
            target = path.parent / name if name else path
            if not target.exists() or (heading and heading not in headings_of(target)):
                missing.append(f"{path.name}: {name}#{heading}")
        named = re.findall(r"`((?:src|tests|datasets|notebooks|docs)/[\w./-]*\w)`", text)
        missing += [f"{path.name}: {name}" for name in named if not (ROOT / name).exists()]
    assert missing == []


def headings_of(path):
    """Return the anchors of a page, as GitHub and Sphinx make them."""
    found = re.findall(r"^#+ (.*)$", _FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in found}


def test_pictures_are_small_and_exist_for_dark_pages_too():
    shown = [
        path.parent.joinpath(name).relative_to(ROOT).as_posix()
        for page, path in PATHS.items()
        for name in re.findall(r"!\[[^\]]+\]\(([\w/-]+-light\.png)\)", PAGES[page])
    ]
    assert len(shown) == sum(text.count("![") for text in PAGES.values()) >= 6
    kept = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/pictures").iterdir()}
    assert kept == {name.replace("-light", f"-{look}") for name in shown for look in ("light", "dark")}
    pictures = {name: (ROOT / name).read_bytes() for name in kept}
    assert [name for name, data in pictures.items() if not data.startswith(b"\x89PNG")] == []
    # Every clone carries them.
    assert [name for name, data in pictures.items() if len(data) >= LARGEST_PICTURE_BYTES] == []


def test_the_picture_of_the_layers_is_the_one_lint_keeps():
    drawn = blocks_of(section(CONTRIBUTING, "Rooms are layers"))[0].source
    rooms = [re.split(r"\s{2,}", line)[0] for line in drawn.splitlines()]
    contract = next(c for c in PROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    assert rooms == contract["layers"]


def test_pages_and_their_lines_are_short_enough_to_read():
    lines = {path: path.read_text(encoding="utf-8").splitlines() for path in PATHS.values()}
    lines |= {ROOT / name: (ROOT / name).read_text(encoding="utf-8").splitlines() for name in MOST_LINES}
    wide = [line for text in lines.values() for line in text if len(line) > 128 and not line.startswith("|")]
    assert wide == [], textwrap.shorten(str(wide), 300)
    assert [name for name, most in MOST_LINES.items() if len(lines[ROOT / name]) > most] == []


# -- notebooks, which run with the long tests ----------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_git_keeps_notebooks_without_outputs_and_with_stable_ids(path):
    notebook = json.loads(in_git(path))
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert [cell_id for cell_id in ids if not re.fullmatch(r"[a-z][a-z0-9-]*[a-z]", cell_id)] == []
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    dirty = [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    assert dirty == [], "clear all outputs before you commit"
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}


def in_git(path):
    """Return what would be committed; the file itself where git does not know it."""
    name = path.relative_to(ROOT).as_posix()
    try:
        said = subprocess.run(["git", "show", f":{name}"], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return path.read_text(encoding="utf-8")
    return said.stdout.decode() if said.returncode == 0 else path.read_text(encoding="utf-8")
