"""Every notebook runs from top to bottom on a real kernel, twice, and lies in git without outputs."""

import base64
import itertools
import os
import re
import struct
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SMALLEST_PLOT_BYTES = 20_000

pytestmark = pytest.mark.timeout(400)

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def execute(tmp_path_factory):
    """Runs a notebook as `make lab` opens it, in a copy of the clone; the executed one is kept there."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "datasets").symlink_to(ROOT / "datasets")
    (folder / "notebooks").mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPEECHFRAME_", "HF_"))}
    env |= {
        "SPEECHFRAME_SERVICE": str(folder / "service"),
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "IPYTHONDIR": str(folder / "ipython"),
    }
    kept = {}

    def run(path, *, again=False):
        if path not in kept or again:
            notebook = nbformat.read(path, as_version=4)
            client = NotebookClient(
                notebook, timeout=180, resources={"metadata": {"path": str(folder / "notebooks")}}
            )
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
                client.execute(env=env)
            nbformat.write(notebook, folder / "notebooks" / path.name)
            kept[path] = notebook
        return kept[path]

    return run


def outputs(notebook, cell_id=None):
    return [
        output
        for cell in notebook.cells
        if cell.cell_type == "code" and cell_id in {None, cell.id}
        for output in cell.outputs
    ]


def test_there_are_notebooks():
    assert NOTEBOOKS


@by_name
def test_it_runs_without_errors_or_warnings(execute, path):
    notebook = execute(path)
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    errors = "".join(streams(notebook, "stderr"))
    assert "Warning" not in errors, errors
    assert "Traceback" not in errors, errors


@by_name
def test_run_all_works_again_on_what_the_first_time_left(execute, path):
    before = streams(execute(path), "stdout")
    notebook = execute(path, again=True)
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    assert _without_figures(streams(notebook, "stdout")) == _without_figures(before)


def _without_figures(texts):
    # Files are named after the process that wrote them, and sizes vary by a few bytes.
    return [sorted(re.sub(r"\b[0-9a-f]{6}-|[\d.,]+|[ \t]+", " ", text).splitlines()) for text in texts]


@by_name
def test_plots_are_there(execute, path):
    notebook = execute(path)
    plotting = [c.id for c in notebook.cells if c.cell_type == "code" and "plt.show()" in c.source]
    for cell_id in plotting:
        (png,) = [
            base64.b64decode(o.data["image/png"])
            for o in outputs(notebook, cell_id)
            if "image/png" in o.get("data", {})
        ]
        width, height = struct.unpack(">II", png[16:24])
        assert png.startswith(b"\x89PNG")
        assert len(png) > SMALLEST_PLOT_BYTES
        assert width > 600
        assert height > 200


@by_name
def test_git_keeps_it_without_outputs_and_with_stable_ids(path):
    notebook = nbformat.reads(_in_git(path), as_version=4)
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert [cell_id for cell_id in ids if not re.fullmatch(r"[a-z][a-z0-9-]*[a-z]", cell_id)] == []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    dirty = [cell.id for cell in code if cell.outputs or cell.execution_count is not None]
    assert dirty == [], "clear all outputs before you commit"
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


def _in_git(path):
    """Return what would be committed; the file itself where git does not know it."""
    name = path.relative_to(ROOT).as_posix()
    try:
        said = subprocess.run(["git", "show", f":{name}"], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return path.read_text(encoding="utf-8")
    return said.stdout.decode() if said.returncode == 0 else path.read_text(encoding="utf-8")


# -- what the first notebook promises to a newcomer ----------------------------------


@pytest.fixture
def first(execute):
    return execute(ROOT / "notebooks/01-first-dataset.ipynb")


@pytest.mark.parametrize("cell_id", ["say", "say-more", "listen", "change-made"])
def test_clips_are_players(first, cell_id):
    shown = [html for html in results(first, cell_id) if "<audio controls" in html]
    assert len(shown) == 1
    assert len(shown[0]) > 10_000


def test_the_first_twenty_are_kept(first):
    assert "20 done before, 114 calls" in words(first, "rest")


def test_one_changed_line_is_one_call(first):
    assert "0 new, 1 changed, 0 removed, 135 unchanged" in words(first, "change")


def test_the_budget_stops_the_run_and_a_higher_one_ends_it(first):
    assert "stopped because of budget" in words(first, "budget")
    assert "12 rows: 12 done" in words(first, "budget-more")


def test_bad_rows_are_listed(first):
    said = words(first, "bad-rows")
    assert said.count("invalid") == 2 * said.count("INVALID_REQUEST") > 0


def test_other_tools_read_the_files(first):
    assert "minutes" in words(first, "duckdb")
    assert "135 clips; the first one has" in words(first, "datasets")


def results(notebook, cell_id):
    return [o.data.get("text/html", "") for o in outputs(notebook, cell_id) if "data" in o]


def streams(notebook, name, cell_id=None):
    return [o.text for o in outputs(notebook, cell_id) if o.output_type == "stream" and o.name == name]


def words(notebook, cell_id):
    """Everything a cell shows as text."""
    shown = (
        streams(notebook, "stdout", cell_id),
        streams(notebook, "stderr", cell_id),
        results(notebook, cell_id),
    )
    return "\n".join(itertools.chain(*shown))
