"""A browser, and a page a test."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # what these tests share lies beside them

from bridge import Bridge, record_comms

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
    # Neither a renderer that plays a graphics card nor a process for each site: pages are ours and small.
    "--disable-software-rasterizer", "--disable-site-isolation-trials",
    "--disable-features=IsolateOrigins,site-per-process",
]  # fmt: skip
PICTURES = Path(folder).absolute() if (folder := os.environ.get("SPEECHFRAME_PICTURES")) else None
"""Folder for pictures for people. Without one none are taken: each costs some tenths of a second."""


def chromium():
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "the tests of widgets need Chromium: `make test` installs it, CHROMIUM names another one"
    return found


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch, tmp_path):
    """Runs that name no folder lie where the test lies, not where the tests were started."""
    monkeypatch.chdir(tmp_path)


running = []
"""Playwright and its browser, as long as tests that need them follow one another."""


@pytest.fixture
def browser():
    """Give the browser that tests of several files share."""
    if not running:
        from playwright.sync_api import expect, sync_playwright

        expect.set_options(timeout=60_000)
        running.append(sync_playwright().start())
        running.append(running[0].chromium.launch(executable_path=chromium(), args=FLAGS, timeout=60_000))
    return running[1]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """End the browser after the last test of this folder: its loop keeps that of other tests away."""
    is_kept = nextitem and nextitem.path.parent == item.path.parent
    if running and not is_kept:
        running[1].close()
        running[0].stop()
        running.clear()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()


@pytest.fixture
def show(page, monkeypatch):
    """Show a widget; the test fails when the page had an error or asked anybody for anything."""
    record_comms(monkeypatch)
    shown = []

    def shows(make, *, light=True):
        bridge = Bridge(page, make(), light=light)
        shown.append(bridge)
        return bridge

    yield shows
    for bridge in shown:
        assert bridge.errors == []
        assert bridge.requests == []


@pytest.fixture
def accessible(page):
    """Assert that axe finds nothing to complain of in an element."""
    import axe_playwright_python

    script = Path(axe_playwright_python.__file__).parent / "axe.min.js"

    def check(box):
        # Not by an element: a page's own policy may forbid foreign scripts.
        if not page.evaluate("'axe' in window"):
            page.evaluate(script.read_text(encoding="utf-8"))
        rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = box.evaluate("(node, rules) => axe.run(node, { runOnly: rules })", rules)
        bad = [(v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in found["violations"]]
        assert bad == []
        assert found["passes"], "axe looked at something"

    return check


@pytest.fixture(scope="session")
def picture():
    """Keep a picture of an element for people to look at, if they named a folder for it."""

    def keep(element, name):
        if PICTURES is not None:
            PICTURES.mkdir(parents=True, exist_ok=True)
            element.screenshot(path=PICTURES / f"{name}.png")

    return keep
