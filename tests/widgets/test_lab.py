"""JupyterLab and Notebook 7, from end to end: a real kernel, a real run on the embedded service, a real browser."""

import contextlib
import json
import os
import time

import pytest
from bridge import until_lit
from lab import Lab

pytestmark = pytest.mark.timeout(300)

START = """
import pandas as pd
import speechframe as spf
service = spf.local_service(workers=2, concurrency=2).start()
"""
A_RUN = """
lines = pd.DataFrame({"line": [f"This is line number {n} of a table that takes a while to be spoken." for n in range(400)]})
run = spf.generate(lines, text="line", voice="en-US-nora", service=service, run_dir="watched", wait=False, progress=False)
dashboard = spf.watch(run)
dashboard
"""
TWO_VOICES = """
texts = pd.DataFrame({"line": ["Good morning.", "Good night."]})
runs = [spf.generate(texts, text="line", voice=voice, service=service, run_dir=voice, progress=False)
        for voice in ["en-US-nora", "en-US-miles"]]
test = spf.listening_test(runs, method="ab", item="line", trials_per_listener=2, training=0, folder="judged")
test
"""


MANY = """
lines = pd.DataFrame({"line": [f"Number {n}." for n in range(200)]})
run = spf.generate(lines, text="line", voice="en-US-nora", service=service, run_dir="many", progress=False)
"""


@contextlib.contextmanager
def started(folder, program):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPEECHFRAME_")}
    environment["SPEECHFRAME_SERVICE"] = str(folder / "service")
    lab = Lab(folder, environment, program)
    try:
        yield lab
    finally:
        lab.stop()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with started(tmp_path_factory.mktemp("lab"), "jupyterlab") as lab:
        yield lab


def until(page, true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        page.wait_for_timeout(200)


@pytest.mark.slow
def test_a_run_is_watched_stopped_and_resumed(lab, page, picture):
    lab.notebook("watch.ipynb", [START, A_RUN])
    lab.open(page, "watch.ipynb")
    lab.run_all(page, "watch.ipynb")
    box = page.locator(".spf").first
    box.wait_for(timeout=90_000)
    with lab.kernel("watch.ipynb") as ask:
        until(page, lambda: ask("run.progress.ended") > 5)
        box.get_by_role("button", name="Stop").click()
        until(page, lambda: ask("dashboard.run.status") == "stopped")
        stopped = ask("dict(dashboard.run.stats)")
        assert 0 < stopped["done"] < 400
        assert stopped["pending"] == 400 - stopped["done"]
        picture(box, "lab-dashboard-stopped")
        # The page forgets what is not saved; the kernel goes on and has the state.
        page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
        page.reload()
        page.wait_for_function("window.jupyterapp !== undefined", timeout=60_000)
        box.wait_for(timeout=60_000)
        box.get_by_role("button", name="Resume").click()
        until(page, lambda: ask("dashboard.run.stats['done']") == 400, seconds=120)
        ledger = ask("dashboard.run.ledger['request_key'].value_counts().max().item()")
        assert ledger == 1, "only the rows that were missing were made"


# The same in a page of its own is tested at every commit.
@pytest.mark.slow
def test_a_blind_test_is_done_to_the_end(lab, page, picture):
    lab.notebook("judge.ipynb", [START, TWO_VOICES])
    lab.open(page, "judge.ipynb")
    lab.run_all(page, "judge.ipynb")
    box = page.locator(".spf").first
    box.wait_for(timeout=90_000)
    assert "nora" not in box.inner_html()
    assert "miles" not in box.inner_html()
    box.get_by_role("button", name="Begin").click()
    for number in (1, 2):
        box.get_by_text(f"Trial {number} of 2").first.wait_for()
        for slot in ("A", "B"):
            box.get_by_role("button", name=f"Play {slot}").click()
            box.get_by_role("button", name=f"Play {slot}, heard").wait_for()
        picture(box, "lab-listening-test")
        box.get_by_label("B is better").check()
        box.get_by_role("button", name="Next").click()
    box.get_by_text("Thank you.").wait_for()
    with lab.kernel("judge.ipynb") as ask:
        assert ask("len(test.votes)") == 2
        assert ask("sorted(test.votes['choice'] != test.votes['left'])") == [True, True], (
            "B is what is not on the left"
        )
        assert ask("len(spf.open_test('judged').votes)") == 2, "they are on the disk"


@pytest.mark.slow
def test_two_hundred_clips_make_a_notebook_little_longer(lab, page):
    lab.notebook("many.ipynb", [START, MANY, "spf.play(run)"])
    lab.open(page, "many.ipynb")
    before = (lab.folder / "many.ipynb").stat().st_size
    lab.run_all(page, "many.ipynb")
    page.locator(".spf-clip").nth(199).wait_for(state="attached")
    page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
    until(
        page,
        lambda: (
            b"many clips" in (lab.folder / "many.ipynb").read_bytes()
            or before < (lab.folder / "many.ipynb").stat().st_size
        ),
    )
    saved = (lab.folder / "many.ipynb").read_text(encoding="utf-8")
    assert len(saved) - before < 50_000
    html = "".join(json.dumps(output) for cell in json.loads(saved)["cells"] for output in cell["outputs"])
    assert html.count("<tr>") >= 200, "without a kernel it is a table"


@pytest.mark.slow
def test_a_saved_notebook_shows_what_the_docs_say(lab, page):
    def shown(name):
        lab.open(page, name)
        output = page.locator(".jp-CodeCell").last.locator(".jp-OutputArea-output")
        output.last.wait_for()
        until(page, lambda: "Loading widget" not in output.last.inner_text())
        return output.last

    save_state = "@jupyter-widgets/jupyterlab-manager:saveWidgetState"
    for name, with_state in (("plain", False), ("state", True)):
        lab.notebook(
            f"{name}.ipynb",
            [
                "import speechframe as spf",
                f"spf.play(spf.generate(['One.'], voice='nora', run_dir='{name}'))",
            ],
        )
        lab.open(page, f"{name}.ipynb")
        if with_state:
            page.evaluate("(name) => jupyterapp.commands.execute(name).then(() => 0)", save_state)
        lab.run_all(page, f"{name}.ipynb")
        page.locator(".spf").first.wait_for(timeout=90_000)
        page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
        path = lab.folder / f"{name}.ipynb"
        until(
            page,
            lambda path=path, wanted=with_state: (
                b"ClipPlayer" in path.read_bytes() and wanted == (b"widget-state" in path.read_bytes())
            ),
        )
        page.evaluate("async () => { await jupyterapp.commands.execute('kernelmenu:shutdown'); }")
        if with_state:
            shown(path.name).locator(".spf").get_by_text("One.").first.wait_for()
        else:
            shown(path.name).get_by_text("Error displaying widget").wait_for()
    # Another text has another signature, as the notebook of another person.
    text = path.read_text().replace("import speechframe", "import  speechframe")
    (lab.folder / "copy.ipynb").write_text(text)
    shown("copy.ipynb").locator("table").get_by_text("One.").wait_for()
    page.evaluate("(name) => jupyterapp.commands.execute(name).then(() => 0)", save_state)


@pytest.mark.slow
def test_notebook_7_shows_a_run_that_is_watched_and_stopped_and_plays_a_clip_of_it(tmp_path, page, picture):
    with started(tmp_path, "notebook") as notebook:
        notebook.notebook("watch.ipynb", [START.replace("workers=2", "workers=1"), A_RUN])
        notebook.open(page, "watch.ipynb")
        notebook.run_all(page, "watch.ipynb")
        box = page.locator(".spf").first
        box.wait_for(timeout=90_000)
        with notebook.kernel("watch.ipynb") as ask:
            until(page, lambda: ask("run.progress.ended") > 5)
            clip = box.locator(".spf-clip").first
            clip.wait_for(timeout=60_000)
            box.get_by_role("button", name="Stop").click()
            until(page, lambda: ask("dashboard.run.status") == "stopped")
            assert 0 < ask("dashboard.run.stats['done']") < 400
            box.locator("[data-role=status]", has_text="stopped").wait_for()
            key = clip.get_attribute("data-clip")
            # A key of the notebook's own, and one of ours: the focus is in the widget.
            clip.press(" ")
            until_lit(page)
            until(page, lambda: ask("dashboard.loads") == [key])
            assert page.locator(".jp-Cell").count() == 2, "the space bar changed no cell"
            picture(box, "notebook-7-dashboard")
