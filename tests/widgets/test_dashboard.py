"""A run watched, stopped and resumed, in a browser."""

import subprocess
import sys
import threading
import time

import pandas as pd
import pytest
from bridge import LIGHT_AND_LONG_DARK, until_lit
from playwright.sync_api import expect

import speechframe as spf
from speechframe.cli.exits import ROWS_FAILED
from speechframe.errors import StoreError
from speechframe.processes.loop import get_background_loop
from speechframe.testing import FaultyService
from speechframe.widgets.dashboard import watch
from speechframe.widgets.watcher import Watcher

TICKS_A_SECOND = 4
LONG = {"count": 60, "latency": 1.0}
"""A run of half a minute: what a test does with it on a slow machine, it does while it is made."""


@pytest.fixture(scope="module")
def service():
    with FaultyService(quota=10**7) as running:
        yield running


@pytest.fixture
def start(service, tmp_path):
    """Start a live run of some lines; whatever it does, it has ended when the test has."""
    runs = []

    def started(count, *, latency=0.0, scripts=None, lines=None, **options):
        service.set(latency=latency, scripts=scripts or {})
        texts = lines or [f"Line {k} of {count}." for k in range(count)]
        given = {"service": service.settings, "progress": False, "wait": False, "max_concurrency": 2}
        frame = pd.DataFrame({"line": texts})
        run = spf.generate(frame, text="line", voice="nora", run_dir=tmp_path / "run", **given | options)
        runs.append(run)
        return run

    yield started
    for run in runs:
        run.stop()
        run.wait(60)


@pytest.fixture
def watched():
    """Make dashboards that are closed after the test."""
    made = []

    def make(run, **options):
        made.append(watch(run, **options))
        return made[-1]

    yield make
    for widget in made:
        widget.close()


def until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def updates(bridge):
    return [m for m in bridge.to_page if m["method"] == "update" and "figures" in m["state"]]


def figure(bridge, name):
    return int(bridge.page.locator(f"[data-figure={name}]").text_content().split()[0].replace(",", ""))


def test_it_shows_the_run_s_own_counters_a_few_times_a_second_and_ends_with_it(start, watched, show):
    bad = {"Line 7 of 300.": ["503", "ok"], "Line 9 of 300.": ["400", "..."]}
    run = start(300, latency=0.01, scripts=bad, max_concurrency=2)
    bridge = show(lambda: watched(run))
    began = time.monotonic()
    bridge.until(lambda: run.status == "finished", 60)
    bridge.page.locator("[data-role=status]", has_text="finished").wait_for()
    told, seconds = len(updates(bridge)), time.monotonic() - began
    assert seconds / 2 <= told <= TICKS_A_SECOND * seconds + 2
    page, counted = bridge.widget.figures, run.progress.to_dict()
    assert {name: page[name] for name in counted} == counted
    assert (figure(bridge, "done"), figure(bridge, "failed"), figure(bridge, "retries")) == (299, 1, 1)
    assert bridge.page.get_by_role("progressbar").get_attribute("aria-valuetext") == "300 of 300 calls"
    assert "Failed: " in bridge.box.text_content()
    assert sum(page["failed_by"].values()) == 1
    bridge.page.wait_for_timeout(700)
    assert len(updates(bridge)) == told, "what has ended is told no more"
    assert bridge.widget._following.done()


def test_what_is_left_falls_by_exactly_what_was_spent(start, watched, service):
    run = start(60, latency=0.3)
    widget = watched(run)
    until(lambda: widget.burn["forecast"])
    burn = widget.burn
    service.set(latency=0)
    (now, then), price = burn["forecast"], run.estimate.credits
    until(lambda: run.status == "finished" and widget._following.done())
    points = widget.burn["points"]
    lefts = [left for _, left in points]
    assert widget.burn["unit"] == "characters"
    assert lefts == sorted(lefts, reverse=True)
    assert run.estimate.balance - lefts[-1] == run.ledger["credits"].sum() == price
    # At every moment: so much as the calls cost that had been settled by then, each of whole characters.
    assert {left % 1 for left in lefts} == {0}
    assert now == burn["points"][-1]
    assert then[0] > now[0]
    assert then[1] == run.estimate.balance - price, "the dashed line ends where the run's price does"
    assert widget.burn["forecast"] == []


def test_the_forecast_ends_at_max_credits(start, watched, service):
    lines = [f"Line {k:02} of this run." for k in range(60)]
    price = len(lines[0])
    run = start(60, lines=lines, latency=0.3, max_credits=20 * price)
    widget = watched(run)
    until(lambda: widget.burn["forecast"])
    burn = widget.burn
    (_, left), (end_s, least) = burn["forecast"]
    assert (burn["of"], burn["points"][0][1]) == ("budget", 20 * price)
    assert (left > 0, least) == (True, 0)
    assert end_s < burn["points"][-1][0] + widget.figures["eta_s"]
    assert "the run stops at max_credits" in burn["words"]
    assert int(burn["words"].split("about call ")[1].split(" of 60")[0]) in range(19, 22)
    service.set(latency=0)
    until(lambda: run.status == "stopped")
    assert run.progress.done == 20


def test_resume_keeps_max_credits_and_another_button_takes_a_higher_one(start, watched, show):
    lines = [f"Line {k:02} of this run." for k in range(10)]
    price = len(lines[0])
    run = start(10, lines=lines, max_credits=4 * price)
    run.wait(60)
    bridge = show(lambda: watched(run))
    page, widget, most = bridge.page, bridge.widget, bridge.page.get_by_label("max_credits")
    more = page.get_by_role("button", name="Resume with more")
    expect(most).to_have_value(str(10 * price))
    page.get_by_role("button", name="Resume", exact=True).click()
    bridge.until(lambda: len(updates(bridge)) > 1 and widget.asked == "" and widget.offer)
    assert (run.stats["done"], run.manifest.max_credits) == (4, 4 * price)
    # What is refused is said each time, and nothing says that the run goes on.
    for _ in range(2):
        most.fill(str(4 * price))
        more.click()
        page.get_by_role("alert").filter(has_text="allows no further call").wait_for()
        expect(bridge.box.get_by_role("status")).not_to_contain_text("resuming")
        expect(page.locator("[data-role=status]")).to_have_text("stopped")
    most.fill(str(7 * price))
    more.click()
    bridge.until(lambda: (widget.figures["status"], widget.figures["done"]) == ("stopped", 7))
    assert (run.stats["done"], run.manifest.max_credits) == (7, 7 * price)
    lefts = [left for _, left in widget.burn["points"]]
    assert (lefts[0], lefts[-1]) == (3 * price, 0), "of the new budget"


def test_a_chart_of_a_large_balance_does_not_look_like_its_end(start, watched, show):
    run = start(3)
    run.wait(60)
    bridge = show(lambda: watched(run.path))
    (_, balance), *_ = bridge.widget.burn["points"]
    assert balance > 9_000_000
    assert bridge.page.locator(".spf-scale span").all_text_contents() == [f"{balance:,.0f}", "0"]
    *_, height = bridge.page.locator(".spf-burn").get_attribute("viewBox").split()
    assert float(height) == balance


@pytest.mark.slow
def test_resume_takes_a_higher_max_credits_and_the_page_goes_on_where_it_was(
    start, watched, show, service, accessible
):
    lines = [f"Line {k:02} of this run." for k in range(40)]
    price = len(lines[0])
    run = start(40, lines=lines, max_credits=10 * price)
    run.wait(60)
    bridge = show(lambda: watched(run))
    page = bridge.page
    page.set_viewport_size({"width": 600, "height": 500})
    most, more = page.get_by_label("max_credits"), page.get_by_role("button", name="Resume with more")
    expect(most).to_have_value(str(40 * price))
    expect(bridge.box).to_contain_text(
        f"{10 * price} of {10 * price} credits are spent; the rest costs {30 * price}"
    )
    accessible(bridge.box)
    # What cannot help is refused, and what was typed stays.
    most.fill(str(10 * price))
    more.click()
    page.get_by_role("alert").filter(has_text="allows no further call").wait_for()
    expect(most).to_have_value(str(10 * price))
    most.fill(str(30 * price))
    page.locator("summary", has_text="Newest clips").click()
    page.evaluate("scrollTo(0, 100)")
    height = "document.querySelector('#host').scrollHeight"
    before, scrolled = page.evaluate(height), page.evaluate("scrollY")
    page.evaluate("""() => {
      const bar = document.querySelector("[role=progressbar]");
      window.__seen = [];
      new MutationObserver(() => __seen.push(Number(bar.ariaValueNow))).observe(bar, { attributes: true });
    }""")
    service.set(latency=0.2)
    more.click()
    bridge.until(lambda: 12 <= bridge.widget.figures["done"] < 25)
    assert page.locator("details").evaluate("(node) => node.open") is False
    # A line or two of text come and go; the line of what is left stays.
    assert abs(page.evaluate(height) - before) < 100
    assert abs(page.evaluate("scrollY") - scrolled) < 100
    expect(page.locator(".spf-burn")).to_be_visible()
    service.set(latency=0)
    page.locator("[data-role=status]", has_text="stopped").wait_for()
    assert run.stats["done"] == 30
    assert bridge.widget.figures["so_far"] == "30 of 40 calls"
    assert page.evaluate("Math.min(...__seen)") >= 10, "the bar never went back"
    lefts = [left for _, left in bridge.widget.burn["points"]]
    assert (lefts[0], lefts[-1]) == (20 * price, 0), "of the new budget"
    expect(most).to_have_value(str(40 * price))


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK, ids=["light", "dark"])
def test_a_run_is_watched_stopped_by_keys_and_resumed_after_a_reload(
    start, watched, show, accessible, picture, service, light
):
    lines = [f"Line {k}, which goes on" + " and on" * 12 for k in range(40)]
    scripts = {lines[0]: ["503", "ok"], lines[1]: ["400", "..."]}
    run = start(40, lines=lines, latency=1.0, scripts=scripts)
    bridge = show(lambda: watched(run), light=light)
    page, look = bridge.page, "light" if light else "dark"
    bridge.until(lambda: run.progress.done >= 2)
    expect(page.locator(".spf-clip")).not_to_have_count(0)
    accessible(bridge.box)
    picture(bridge.box, f"dashboard-{look}")
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.press("Enter")
    page.locator("[data-role=status]", has_text="stopped").wait_for()
    done = run.progress.done
    assert run.stopped_because == "stopped"
    assert run.stats["pending"] == 39 - done > 0
    assert run.stats.get("charged_unknown", 0) == 0, "calls in flight came to their end"
    before = service.books().requests
    # A page that is loaded again shows the run as it is now, and its newest clips play.
    page.reload()
    bridge.wait("window.__ready === true")
    assert (figure(bridge, "done"), figure(bridge, "failed"), figure(bridge, "retries")) == (done, 1, 1)
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    newest = run.newest(4)
    assert [clip["id"] for clip in bridge.widget.clips] == newest
    assert bridge.widget.loads == []
    page.locator(".spf-play").first.click()
    until_lit(page)
    assert bridge.widget.loads == newest[:1]
    service.set(latency=0)
    page.get_by_role("button", name="Resume").click()
    page.locator("[data-role=status]", has_text="finished").wait_for()
    assert service.books().requests - before == 40 - done
    # The run that is held is the one that was resumed.
    assert bridge.widget.run is run
    assert (run.status, run.stats["done"]) == ("finished", 39)
    expect(page.get_by_role("button", name="Resume")).to_be_disabled()
    accessible(bridge.box)
    picture(bridge.box, f"dashboard-{look}-finished")


def test_a_click_that_comes_in_another_thread_stops_a_run(start, watched):
    run = start(**LONG)
    widget = watched(run)
    click = {"content": {"data": {"method": "custom", "content": {"kind": "stop"}}}, "buffers": []}
    other = threading.Thread(target=widget._handle_msg, args=(click,))
    other.start()
    other.join(60)
    until(lambda: run.status == "stopped")


def test_a_click_waits_for_nobody(start, watched):
    run = start(**LONG)
    widget = watched(run)
    held, release = threading.Event(), threading.Event()

    def hold():
        held.set()
        release.wait(60)

    get_background_loop().call_soon_threadsafe(hold)
    assert held.wait(60)
    try:
        # The loop that makes the run stands still, and the handler returns all the same.
        widget._handle_msg(
            {"content": {"data": {"method": "custom", "content": {"kind": "stop"}}}, "buffers": []}
        )
        until(lambda: widget.asked == "stop")
        assert run.status == "running"
    finally:
        release.set()
    until(lambda: run.status == "stopped")


def test_a_stop_that_comes_after_the_end_leaves_nothing_behind(start, watched):
    run = start(2)
    widget = watched(run)
    run.wait(60)
    until(lambda: widget.figures["status"] == "finished")
    widget.on_stop({"kind": "stop"})
    assert widget.asked == "", "the buttons wait for nothing"


def test_where_the_run_cannot_be_looked_at_any_more_it_says_so(start, watched, monkeypatch):
    def gone(_):
        raise StoreError("the folder is gone")

    run = start(**LONG)
    widget = watched(run)
    monkeypatch.setattr(Watcher, "read_figures", gone)
    until(lambda: widget.trouble == "the folder is gone")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("step", "because"), [("402", "quota"), ("403", "refused")])
def test_an_empty_or_refused_key_is_said_in_red_and_nothing_more_is_sent(
    start, watched, show, service, step, because
):
    # The first ones are made, then the key is refused.
    scripts = {"*": [step, "..."]} | {f"Line {k} of 20.": ["ok"] for k in range(4)}
    run = start(20, latency=0.02, scripts=scripts)
    bridge = show(lambda: watched(run))
    banner = bridge.page.get_by_role("alert").filter(has_text="The run stopped")
    banner.wait_for()
    assert because in banner.text_content()
    assert str(run.stopped_by) in banner.text_content()
    red = bridge.page.evaluate("getComputedStyle(document.querySelector('.spf-banner')).color")
    assert red == "rgb(179, 38, 30)"
    sent = service.books().requests
    bridge.page.wait_for_timeout(500)
    assert service.books().requests == sent
    assert run.stopped_because == because
    # When the key is good again, Resume goes on.
    service.set(scripts={}, latency=0)
    bridge.page.get_by_role("button", name="Resume").click()
    bridge.page.locator("[data-role=status]", has_text="finished").wait_for()
    assert run.stats["done"] == 20
    expect(banner).to_have_count(0)


@pytest.mark.slow
def test_what_keeps_resume_from_going_on_is_said(start, watched, show, service):
    run = start(4, scripts={"*": ["403", "..."]})
    run.wait(60)
    bridge = show(lambda: watched(run, service="nowhere"))
    bridge.page.get_by_role("button", name="Resume").click()
    banner = bridge.page.get_by_role("alert").filter(has_text="service='nowhere' is not a service")
    banner.wait_for()
    assert run.status == "stopped"


def test_the_folder_tells_what_the_run_itself_tells(start, service):
    lines = [f"Line {k}." for k in (0, 1, 2, 3, 4, 4)]
    refused = {"Line 3.": ["400", "..."]}
    run = start(6, lines=lines, scripts={"Line 1.": ["503", "ok"], "Line 2.": ["400", "..."], **refused})
    run.wait(60)
    service.set(scripts=refused)
    stats = spf.resume(run.path, service=service.settings, progress=False).stats
    seen = Watcher(spf.open_run(run.path)).read_figures()
    assert (seen.counts["total"], seen.counts["done"], stats["rows"]) == (5, 4, 6), "equal calls count once"
    named = ("failed", "retries", "credits")
    assert [seen.counts[name] for name in named] == [stats[name] for name in named]
    assert (sorted(seen.failed_by.values()), sorted(seen.retried_by.values())) == ([1], [1, 2])


@pytest.mark.slow
def test_a_run_of_another_process_is_watched_but_not_stopped(watched, show, service, tmp_path, monkeypatch):
    # Slow at first: the page takes its time to open, and it is to see the run while it is made.
    service.set(
        latency=1.0, scripts={"Line 3 from afar.": ["503", "ok"], "Line 5 from afar.": ["400", "..."]}
    )
    folder, table = tmp_path / "afar", tmp_path / "lines.txt"
    table.write_text("".join(f"Line {k} from afar.\n" for k in range(30)))
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", service.url)
    monkeypatch.setenv("SPEECHFRAME_API_KEY", "faulty-key")
    command = ["generate", str(table), "--voice", "nora", "--run-dir", str(folder), "--max-concurrency", "2"]
    writer = subprocess.Popen([sys.executable, "-m", "speechframe", *command])
    try:
        until(lambda: (folder / "run.json").exists() and spf.open_run(folder).status == "running")
        bridge = show(lambda: watched(folder))
        first = bridge.widget.figures["done"]
        assert bridge.page.get_by_role("button", name="Stop").is_disabled()
        assert "another process makes this run" in bridge.box.text_content()
        bridge.until(lambda: first < bridge.widget.figures["done"] < 29)
        service.set(latency=0.02)
        bridge.page.locator("[data-role=status]", has_text="finished").wait_for()
    finally:
        assert writer.wait(60) == ROWS_FAILED
    counts = bridge.widget.figures
    assert (counts["total"], counts["done"], counts["failed"], counts["retries"]) == (30, 29, 1, 1)
    assert (len(counts["failed_by"]), len(counts["retried_by"])) == (1, 1)
    assert counts["credits"] == spf.open_run(folder).ledger["credits"].sum()
    lefts = [left for _, left in bridge.widget.burn["points"]]
    assert lefts[0] - lefts[-1] == counts["credits"]
    assert lefts == sorted(lefts, reverse=True)


def test_a_run_that_takes_long_to_look_at_is_looked_at_less_often(start, tmp_path, monkeypatch):
    start(3).wait(60)
    widget = watch(spf.open_run(tmp_path / "run"))
    look = Watcher.read_figures
    monkeypatch.setattr(Watcher, "read_figures", lambda watcher: (time.sleep(0.2), look(watcher))[1])
    widget._update_page()
    widget.close()
    assert 9 * 0.2 <= widget._pause_s < 9


def test_a_closed_dashboard_leaves_nothing_behind_and_the_run_goes_on(start):
    run = start(**LONG)  # stopped by the fixture, long before its end
    threads = threading.active_count()
    widgets = [watch(run) for _ in range(8)]
    until(lambda: all(widget.burn["points"] for widget in widgets))
    for widget in widgets:
        widget.close()
    until(lambda: all(widget._following.done() for widget in widgets))
    told = [len(widget.burn["points"]) for widget in widgets]
    time.sleep(0.6)
    assert [len(widget.burn["points"]) for widget in widgets] == told
    assert run.status == "running"
    # The loop's own pool is all there ever is, however many are watched.
    assert threading.active_count() - threads <= 8
    again = threading.active_count()
    for _ in range(8):
        watch(run).close()
    assert threading.active_count() <= again + 1


def test_without_a_front_end_it_is_text(start, watched):
    run = start(6, scripts={"Line 2 of 6.": ["400", "..."]})
    run.wait(60)
    widget = watched(run)
    assert repr(widget) == "<RunDashboard generate on faulty-0: finished, 6 of 6 calls, 1 failed, 60 credits>"
    shown = widget._repr_mimebundle_()[0]
    assert shown["text/plain"] == repr(widget)
    assert ">finished</td>" in shown["text/html"]
    assert "<script" not in shown["text/html"]


@pytest.mark.slow
def test_a_planned_run_is_started_by_resume(start, watched, show, service):
    plan = start(5, dry_run=True)
    bridge = show(lambda: watched(plan))
    assert bridge.page.locator("[data-role=status]").text_content() == "planned"
    # A dry run is no call that could be gone on with: the service is named.
    bridge.widget._options["service"] = service.settings
    bridge.page.get_by_role("button", name="Resume").click()
    bridge.page.locator("[data-role=status]", has_text="finished").wait_for()
    assert plan.stats["done"] == 5
