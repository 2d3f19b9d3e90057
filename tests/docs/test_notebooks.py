"""Every notebook runs from top to bottom on a real kernel, twice, and shows what it promises."""

import base64
import io
import itertools
import re
import runpy
import struct
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib.pyplot as plt
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = ROOT / "docs" / "notebooks"
SMALLEST_DRAWN_SHARE = 0.04
"""Least share of the pixels of a plot that are not background. Empty axes with labels have .024."""
WIDGET = "application/vnd.jupyter.widget-view+json"

MAKE_NOTEBOOKS = runpy.run_path(str(ROOT / "scripts" / "make-notebooks"))

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

OF_RUNS = re.compile(
    r"^(?:(?:generate|change_voice|translate)\b.*? on |run folder: |stopped \(|your columns |words of ).*\n?",
    re.MULTILINE,
)
"""Lines that runs write beside their bars."""

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def execute(tmp_path_factory):
    """Runs a notebook as `make notebooks` does, each in a folder of its own."""
    folders = {path: tmp_path_factory.mktemp(path.stem) for path in NOTEBOOKS}
    kept = {}

    def run(path, *, again=False):
        if path not in kept or again:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("JUPYTER_RUNTIME_DIR", str(folders[path] / "runtime"))
                kept[path] = MAKE_NOTEBOOKS["run_notebook"](path, folders[path])
        return kept[path]

    return run


def outputs(notebook, cell_id=None):
    return [
        output
        for cell in notebook.cells
        if cell.cell_type == "code" and cell_id in {None, cell.id}
        for output in cell.outputs
    ]


@by_name
def test_it_runs_without_errors_or_warnings(execute, path):
    notebook = execute(path)
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    # Front ends show it in red boxes.
    assert streams(notebook, "stderr") == []


@by_name
def test_its_page_in_docs_has_what_it_shows(execute, path):
    there = (PAGES / f"{path.stem}.md").read_text(encoding="utf-8")
    made, _ = MAKE_NOTEBOOKS["make_page"](path, execute(path), there)
    assert made == there, "`make notebooks` makes it anew"


@by_name
def test_run_all_works_again_on_what_the_first_time_left(execute, path):
    before = printed(execute(path))
    notebook = execute(path, again=True)
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    assert _without_figures(printed(notebook)) == _without_figures(before)


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
        pixels = plt.imread(BytesIO(png))
        assert (abs(pixels - pixels[0, 0]).max(axis=2) > 0.05).mean() > SMALLEST_DRAWN_SHARE
        assert width > 600
        assert height > 200


# -- what the one on streams promises: its figures are times, which its page does not fix --


@pytest.fixture
def streaming(execute):
    return execute(ROOT / "notebooks/05-stream-as-it-is-written.ipynb")


@pytest.mark.parametrize("cell_id", ["heard", "writer"])
def test_streams_are_players(streaming, cell_id):
    (shown,) = [html for html in results(streaming, cell_id) if re.search("<audio +controls", html)]
    assert len(shown) > 100_000


def test_the_first_audio_of_a_long_text_comes_long_before_its_last(streaming):
    waits = frame(streaming, "first")
    assert waits["sentences"].tolist() == [1, 3, 6, 12]
    longest = waits.iloc[-1]
    assert longest["first_audio_ms"] < longest["all_of_it_ms"] / 2
    assert longest["audio_seconds"] > 5 * waits["audio_seconds"][0]


def test_what_is_spoken_as_it_is_written_begins_sooner_and_has_no_gaps(streaming):
    ways = frame(streaming, "arrivals").set_index("spoken")
    sooner, later = ways.loc["as it is written"], ways.loc["when it is written"]
    assert sooner["first_audio_s"] < later["first_audio_s"] / 2
    assert sooner["audio_s"] == pytest.approx(later["audio_s"], rel=0.1)
    assert (
        float(re.search(r"shortest lead while it was written: (-?[\d.]+) s", words(streaming, "plot"))[1]) > 0
    )


def test_turns_share_a_socket_and_wait_for_nobody(streaming):
    assert "4 turns under way over 1 socket" in words(streaming, "turns")
    turns = frame(streaming, "turns").set_index("turn")
    assert turns["complete"].all()
    assert turns.loc["quick", "first_audio_s"] < turns.loc["slow", "first_audio_s"]
    assert turns.loc["slow", "first_audio_s"] < turns.loc["slow, by sentences", "first_audio_s"]


@pytest.mark.parametrize(
    ("cell_id", "error"), [("interrupt", "StreamBroken"), ("broken", "StreamBroken"), ("writer", "ConnectionError")]
)  # fmt: skip
def test_broken_streams_keep_what_came(streaming, cell_id, error):
    said = words(streaming, cell_id)
    assert said.startswith(f"{error}: ")
    assert float(re.search(r"kept: .*?([\d.]+) s of audio", said)[1]) > 0


def test_a_broken_stream_is_no_file(streaming):
    assert "a file: False" in words(streaming, "broken")


def test_words_of_streamed_rows_are_aligned(streaming):
    spoken = frame(streaming, "run")
    assert spoken["status"].tolist() == ["done"]
    assert set(spoken["words_basis"]) == {"aligned"}
    found = frame(streaming, "words")
    assert found["word"].tolist()[:3] == ["Good", "morning", "and"]
    assert (found["end_ms"] > found["start_ms"]).all()


def results(notebook, cell_id):
    return [o.data.get("text/html", "") for o in outputs(notebook, cell_id) if "data" in o]


def frame(notebook, cell_id):
    """The one frame that a cell shows; its index is a column without a name."""
    (shown,) = [html for html in results(notebook, cell_id) if "<table" in html]
    table = ET.fromstring(re.search("<table.*</table>", shown, re.DOTALL)[0])
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iterfind("tbody/tr")]
    names = [cell.text or "" for cell in table.find("thead/tr")]
    return pd.read_csv(io.StringIO(pd.DataFrame(rows, columns=names).to_csv(index=False)))


def streams(notebook, name, cell_id=None):
    """What each cell wrote, whole: a kernel sends it in any number of pieces."""
    written = [
        "".join(o.text for o in outputs(notebook, cell.id) if o.output_type == "stream" and o.name == name)
        for cell in notebook.cells
        if cell_id in {None, cell.id}
    ]
    return [text for text in written if text]


def printed(notebook, cell_id=None):
    """What the code of each cell printed, without what runs say of themselves."""
    texts = (OF_RUNS.sub("", text) for text in streams(notebook, "stdout", cell_id))
    return [text for text in texts if text]


def words(notebook, cell_id):
    """Everything a cell shows as text."""
    shown = (
        printed(notebook, cell_id),
        OF_RUNS.findall("\n".join(streams(notebook, "stdout", cell_id))),
        results(notebook, cell_id),
    )
    return "\n".join(itertools.chain(*shown))
