"""No key of a widget changes the notebook, in JupyterLab and in Notebook 7, whatever it means there."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from test_dub_player import CUES, SAID, film
from test_lab import START, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

RUN = """
lines = pd.DataFrame({"line": ["Good morning, it is late.", "Mind the gap, please.", "The last line of all."]})
runs = [spf.generate(lines, text="line", voice=voice, service=service, run_dir=voice, progress=False)
        for voice in ["en-US-nora", "en-US-miles"]]
"""
DUB = """
from pathlib import Path
from speechframe.widgets.dub_player import DubPlayer, DubView
film = Path("film.webm")
dub = DubView("a.pt-BR", "a", "pt-BR", "done", film, film, {cues}, utterances={utterances})
DubPlayer([dub], lambda dub, changes: dub)
"""
JUDGED = "spf.listening_test(runs, {method!r}, item='line', trials_per_listener=2, training=0, folder={method!r}{more})"
REFERENCE = ", reference='en-US-nora'"
WIDGETS = {
    "play": ("clips", "spf.play(runs[0])", ".spf-clip"),
    "gallery": (None, "spf.gallery(service=service)", ".spf-card button"),
    "compare": (
        "comparison",
        "spf.compare_voices(['en-US-nora', 'en-US-miles'], ['Good morning.'], run_dir='v', service=service).generate()",
        ".spf-clip",
    ),
    "watch": ("run", "spf.watch(runs[0])", ".spf-clip"),
    "browse": ("rows", "spf.browse(runs[0])", "tbody tr"),
    "stream": ("stream", "spf.play(spf.stream('Good morning.', voice='ivy', service=service))", ".spf-clip"),
    "dub": ("dubs", DUB.format(cues=CUES, utterances=SAID), ".spf-clip"),
    "correct": ("dubs", DUB.format(cues=CUES, utterances=SAID), "summary"),
    **{
        method: ("listening test", JUDGED.format(method=method, more=more), "button")
        for method, more in [("ab", ""), ("abx", ""), ("mos", ""), ("multi", ""), ("mushra", REFERENCE)]
    },
}  # fmt: skip
"""Name to a row of the table of keys in docs/widgets.md, a cell, and the element that gets the focus."""

ALWAYS = [" ", "Enter", "Escape"]
"""Keys that are tried in every widget."""

NAMES = {
    "Space": " ", "←": "ArrowLeft", "→": "ArrowRight", "↑": "ArrowUp", "↓": "ArrowDown", "Page Up": "PageUp",
    "Page Down": "PageDown", "Shift ↑": "Shift+ArrowUp", "Shift ↓": "Shift+ArrowDown", "Ctrl Enter": "Control+Enter",
}  # fmt: skip
"""Names of keys in the documentation, to those in the browser."""

COMMANDS = [
    *"abcdfhijklmoprsvxyzABCDFHIJKLMOPRSVXYZ",
    "d",
    "d",
    "0",
    "0",
    "1",
    "6",
    "Enter",
    "Shift+M",
    "Delete",
    "Backspace",
]
"""Keys that are commands of a notebook. They act on the cell if the focus is not in the widget."""

ROOT = Path(__file__).resolve().parents[2]


def documented_keys():
    """Return the keys of each row of the table in docs/widgets.md."""
    section = (ROOT / "docs/widgets.md").read_text(encoding="utf-8").split("## Keys")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    keys = {name: re.findall("`(.+?)`", text) for name, text in rows if name != "widget"}
    return {name.split(" (")[0]: [NAMES.get(key, key) for key in those] for name, those in keys.items()}


STATE = """() => {
  const { content } = jupyterapp.shell.currentWidget;
  return JSON.stringify(content.widgets.map(({ model }) => [model.id, model.type, model.sharedModel.source, model.executionCount]));
}"""


@pytest.mark.parametrize("program", ["jupyterlab", "notebook"])
def test_no_key_of_any_widget_changes_the_notebook(program, tmp_path, page):
    documented = documented_keys()
    assert documented.keys() == {row for row, _, _ in WIDGETS.values() if row}
    with started(tmp_path, program) as lab:
        film(lab.folder / "film.webm")
        lab.notebook("keys.ipynb", [START, RUN, *(code for _, code, _ in WIDGETS.values())])
        lab.open(page, "keys.ipynb")
        lab.run_all(page, "keys.ipynb")
        page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
        cells = json.loads((lab.folder / "keys.ipynb").read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell["outputs"]]
        assert [output["traceback"][-1] for output in outputs if output["output_type"] == "error"] == []
        before = page.evaluate(STATE)
        for number, (name, (row, _, place)) in enumerate(WIDGETS.items()):
            keys = [*documented.get(row, []), *ALWAYS]
            # Letters act in both cases.
            keys += [key.lower() for key in keys if len(key) == 1 and key.isalpha()]
            page.evaluate(
                "(k) => { jupyterapp.shell.currentWidget.content.activeCellIndex = k; }", number + 2
            )
            page.evaluate("(k) => jupyterapp.shell.currentWidget.content.scrollToItem(k)", number + 2)
            box = page.locator(".jp-Cell").nth(number + 2).locator(".spf")
            if row == "listening test":
                box.get_by_role("button", name="Begin").click()
                box.locator(".spf-lt-trial").wait_for()
            target = box.locator(place).first
            target.wait_for(timeout=60_000)
            # Once from the element with the focus, and once after each key from where the focus went.
            target.focus()
            for key in [*keys, *COMMANDS]:
                page.keyboard.press(key)
                assert page.evaluate(STATE) == before, f"{name}: {key}"
            for key in keys:
                target.focus() if target.count() else None
                page.keyboard.press(key)
                page.wait_for_timeout(30)
                for command in ("x", "d", "d", "v", "y"):
                    page.keyboard.press(command)
                assert page.evaluate(STATE) == before, f"{name}: {key} and then a command"
            # A click beside everything.
            box.click(position={"x": 2, "y": 2})
            for key in ("x", "d", "d", "r"):
                page.keyboard.press(key)
            assert page.evaluate(STATE) == before, f"{name}: after a click"


def test_a_saved_widget_shows_its_rows_and_says_why_it_does_not_play(tmp_path, page):
    with started(tmp_path, "jupyterlab") as lab:
        settings = lab.folder / "jupyter/jupyterlab_settings_dir/@jupyter-widgets/jupyterlab-manager"
        settings.mkdir(parents=True)
        (settings / "plugin.jupyterlab-settings").write_text('{"saveState": true}', encoding="utf-8")
        lab.notebook("saved.ipynb", [START, RUN, "spf.play(runs[0])", "spf.browse(runs[0])"])
        lab.open(page, "saved.ipynb")
        lab.run_all(page, "saved.ipynb")
        page.locator(".spf-panel .spf-clip").wait_for()
        page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
        page.evaluate("async () => { await jupyterapp.serviceManager.sessions.shutdownAll(); }")
        lab.open(page, "saved.ipynb")
        expect(page.locator("tbody th[scope=row]")).to_have_text(["0", "1", "2"])
        expect(page.locator(".spf-clip").first).to_contain_text("Good")
        page.get_by_role("button", name="Play").first.click()
        page.locator(".spf-clip .spf-error", has_text="does not reply").first.wait_for(timeout=20_000)
        expect(page.locator(".spf-time", has_text="loading")).to_have_count(0)


def test_a_restart_of_the_kernel_is_said_and_nothing_is_lost(tmp_path, page):
    with started(tmp_path, "jupyterlab") as lab:
        lab.notebook("lost.ipynb", [START, RUN, "spf.play(runs[0])", "spf.browse(runs[0])"])
        lab.open(page, "lost.ipynb")
        lab.run_all(page, "lost.ipynb")
        clips, rows = (
            page.locator(".jp-Cell").nth(2).locator(".spf"),
            page.locator(".jp-Cell").nth(3).locator(".spf"),
        )
        rows.locator(".spf-panel .spf-clip").wait_for()
        page.evaluate(
            "async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"
        )
        for box in (clips, rows):
            box.get_by_role("alert").first.get_by_text("The kernel was restarted").wait_for()
        rows.locator("tbody tr").first.focus()
        page.keyboard.press("r")
        rows.get_by_text("not saved").first.wait_for()
        lab.run_all(page, "lost.ipynb")
        rows.get_by_role("button", name="Try again to save 1 row").click()
        expect(rows.get_by_role("button", name="Try again")).to_have_count(0)
        with lab.kernel("lost.ipynb") as ask:
            assert ask("list(runs[0].reviews['verdict'])") == ["reject"]
