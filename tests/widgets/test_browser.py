"""A run's rows by pages in a browser: found, heard, kept, rejected and made anew."""

import hashlib
import re
import time
from pathlib import Path

import pandas as pd
import pytest
from bridge import KEEP_AUDIO, LIGHT_AND_LONG_DARK, PRESS_AT_ONCE, cut_off, until_lit, until_seen
from clips_lab import spoken
from playwright.sync_api import expect
from run_lab import key_of, run_of

import speechframe as spf
from speechframe.store.folder import Folder
from speechframe.store.reviews import read_reviews
from speechframe.testing import FaultyService
from speechframe.widgets.browser import browse

VOICES = ("en-US-nora", "fr-FR-luc", None)
SUSPECT, FAILED, SPOKEN = 3, 5, 40
PLAYED = {2, 3, 12}
"""Their words are still lit when a busy machine comes to look."""


def spoken_run(path, rows, *, rate_hz=8000, padding=lambda k: "", name=str):
    """Make a run: the first rows have audio, one of them is suspect, one failed, the others are pending."""
    records = {}
    for k in range(min(rows, SPOKEN)):
        clip = spoken(
            ["The", "line", f"number{k}"],
            word_s=5.0 if k in PLAYED else 0.5 + 0.01 * (k % 7),
            pitch_hz=200 + 10 * k,
            rate_hz=rate_hz,
        )
        has_audio = k != FAILED
        record = {
            "status": {SUSPECT: "suspect", FAILED: "failed"}.get(k, "done"),
            "audio": f"{k}.wav" if has_audio else None,
            "word_durations": clip.words,
            "format": "WAV",
            "sample_rate": rate_hz,
            "channels": 1,
            "audio_seconds": clip.audio_seconds if has_audio else None,
            "voice_id": VOICES[k % 3],
            "locale": "en-US",
            "error_message": {SUSPECT: "too short for its text", FAILED: "no such voice"}.get(k),
            "sha256": hashlib.sha256(clip.audio).hexdigest() if has_audio else None,
        }
        records[k] = record, clip.audio if has_audio else None
    columns = {
        "line": [f"The line with number {k:,} of the Script {padding(k)}" for k in range(rows)],
        "chapter": [f"chapter {k // 1000}" for k in range(rows)],
    }
    return run_of(path, columns, records, name=name)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    return spoken_run(
        tmp_path_factory.mktemp("long") / "run",
        40_000,
        rate_hz=48000,
        padding=lambda k: hashlib.sha512(str(k).encode()).hexdigest(),
    )


@pytest.fixture
def run(tmp_path):
    return spoken_run(tmp_path / "run", 120)


@pytest.fixture
def browsing(show):
    made = []

    def shows(*args, light=True, **keys):
        bridge = show(lambda: browse(*args, **keys), light=light)
        made.append(bridge.widget)
        return bridge

    yield shows
    for widget in made:
        widget.close()


def shown(bridge):
    return bridge.page.locator("tbody tr").evaluate_all("nodes => nodes.map((n) => Number(n.dataset.place))")


def row(bridge, place):
    return bridge.page.locator(f"tbody tr[data-place='{place}']")


def bytes_read():
    facts = Path("/proc/self/io").read_text()
    return int(facts.partition("rchar: ")[2].split()[0])


def test_of_many_rows_one_page_is_read(long_run, run):
    browse(run.path).close()  # what is imported is read, too
    size = sum(path.stat().st_size for path in (long_run.path / "input").glob("*.parquet"))
    audio = sum(path.stat().st_size for path in long_run.part_files)
    began, before = time.process_time(), bytes_read()
    widget = browse(long_run.path)
    seconds, read = time.process_time() - began, bytes_read() - before
    assert (widget.total, widget.found, len(widget.rows)) == (40_000, 40_000, 50)
    assert read < size / 3
    assert read < audio / 3, "no audio is read"
    assert seconds < 5
    state = {name: value for name, value in widget.get_state().items() if not name.startswith("_")}
    assert len(str(state)) < 25_000
    widget.close()


def test_any_page_is_the_rows_of_its_places(long_run):
    widget = browse(long_run)
    widget.show(234)
    assert [r["row"] for r in widget.rows] == [str(k) for k in range(11_700, 11_750)]
    assert widget.rows[0]["text"].startswith("The line with number 11,700 of")
    widget.show(10**9)
    assert widget.rows[-1]["row"] == "39999"
    widget.show(0, search="NUMBER 4,01", by="row", descending=True)
    assert [r["row"] for r in widget.rows] == [str(k) for k in range(4019, 4009, -1)]
    widget.close()


def reviewed(run, *names):
    """Return what is on the disk, the oldest first."""
    return list(read_reviews(Folder(run.path)).to_pandas()[list(names)].itertuples(index=False, name=None))


def heading(bridge):
    return bridge.page.locator(".spf-panel strong").first


def test_a_verdict_is_of_the_row_that_the_panel_shows(run, browsing):
    bridge = browsing(run, page_rows=20)
    page, key = bridge.page, bridge.page.keyboard.press
    row(bridge, 7).click()
    expect(heading(bridge)).to_have_text("row 7")
    # Other rows are shown by a filter, an order and a page; no key refers to row 7 any more.
    said = []
    for act, first, place in (
        (lambda: page.get_by_label("Search", exact=True).fill("number 11"), 11, 11),
        (lambda: page.get_by_role("button", name="Row ▲").click(), 119, 110),
        (lambda: page.get_by_label("Search", exact=True).fill(""), 119, 119),
        (lambda: page.get_by_role("button", name="Next").click(), 99, 99),
    ):
        act()
        bridge.until(lambda first=first: shown(bridge)[:1] == [first])
        expect(heading(bridge)).to_have_text(f"row {place}")
        page.get_by_role("button", name="Reject (R)").click()
        said.append(str(place))
        bridge.until(lambda: [one for (one,) in reviewed(run, "row_id")] == said)
    hashes = run.to_pandas(["sha256"])["sha256"]
    assert reviewed(run, "sha256") == [(hashes[int(one)],) for one in said]
    # Without a row there is nothing to reject.
    page.get_by_label("Search", exact=True).fill("nothing is like this")
    page.get_by_text("no rows match").wait_for()
    expect(page.locator(".spf-panel")).to_be_hidden()
    page.get_by_role("region", name="List of rows").focus()
    key("r")
    page.get_by_label("Search", exact=True).fill("")
    bridge.until(lambda: bridge.widget.found == 120)
    assert len(reviewed(run, "row_id")) == len(said)


@pytest.mark.slow
def test_each_verdict_is_on_the_disk_before_the_next_clip_plays(run, browsing, monkeypatch):
    bridge = browsing(run, page_rows=3)
    page, key = bridge.page, bridge.page.keyboard.press
    verdicts, order = {}, []
    review, read = bridge.widget.run.review, bridge.widget.shelf.__class__.read_playable

    def slowly(row_id, *args, **keys):
        time.sleep(0.05)
        review(row_id, *args, **keys)
        order.append(f"stored {row_id}")

    monkeypatch.setattr(bridge.widget.run, "review", slowly)
    monkeypatch.setattr(
        "speechframe.page.clips.ClipShelf.read_playable",
        lambda shelf, clip: (order.append(f"played {int(clip, 16) - 1}"), read(shelf, clip))[1],
    )
    row(bridge, 1).click()
    for place, name in ((1, "k"), (2, "r"), (3, "k"), (4, "r")):
        expect(heading(bridge)).to_have_text(f"row {place}")
        key(name)
        verdicts[str(place)] = {"k": "keep", "r": "reject"}[name]
        bridge.until(lambda: dict(reviewed(run, "row_id", "verdict")) == verdicts)
        until_lit(page) if place == 2 else None
    # The failed row is shown in its turn, over the end of each page. It has nothing to play.
    expect(heading(bridge)).to_have_text("row 5")
    assert order == ["stored 1", "played 2", "stored 2", "played 3", "stored 3", "played 4", "stored 4"]
    expect(page.locator("section.spf")).to_contain_text("4 of 120 reviewed")
    # Each step back is a review of its own, also over the start of a page.
    key("u")
    expect(heading(bridge)).to_have_text("row 4")
    key("u")
    bridge.until(lambda: len(reviewed(run, "row_id")) == 6)
    assert reviewed(run, "row_id", "verdict")[4:] == [("4", ""), ("3", "")]
    # Several rows at once, and all of them back.
    key("PageUp")
    expect(heading(bridge)).to_have_text("row 0")
    key("Shift+ArrowDown")
    key("Shift+ArrowDown")
    page.get_by_role("button", name="Keep 3 rows (K)").wait_for()
    key("k")
    bridge.until(lambda: len(reviewed(run, "row_id")) == 9)
    key("u")
    bridge.until(lambda: len(reviewed(run, "row_id")) == 12)
    newest = run.reviews.set_index("row_id")["verdict"].to_dict()
    assert newest == {"0": None, "1": "keep", "2": "reject", "3": None, "4": None}


@pytest.mark.slow
def test_the_controls_of_the_players_play_one_row_after_the_other(run, browsing):
    bridge = browsing(run, page_rows=6)
    page, key = bridge.page, bridge.page.keyboard.press
    page.evaluate(KEEP_AUDIO)
    row(bridge, 4).click()
    page.locator(".spf-word", has_text="number 4").wait_for()
    page.get_by_label("Speed").select_option("2")
    page.get_by_role("button", name="Play all").click()
    # A text is written while other rows play. It belongs to its row, and no letter of it is a verdict.
    page.get_by_role("button", name="Comment (C)").click()
    page.keyboard.type("k, r")
    # The failed row is passed, and so is the end of the page.
    expect(heading(bridge)).to_have_text("row 6")
    until_seen(page, ".spf-clip[data-state='playing']")
    assert page.evaluate("window.__audio.map((one) => one.playbackRate)") == [2, 2]
    assert page.get_by_label("Comment for row 4").input_value() == "k, r"
    key("Escape")
    page.get_by_role("button", name="Stop").click()
    until_seen(page, ".spf-clip[data-state='still']")
    assert reviewed(run, "row_id") == []
    # A key soon after a row began by itself may be meant for the row before.
    row(bridge, 11).click()
    page.get_by_role("button", name="Play all").click()
    page.evaluate(PRESS_AT_ONCE, ["row 12", "k"])
    page.get_by_text("The next row has just begun. Press again for this row.").wait_for()
    page.wait_for_timeout(800)
    key("k")
    bridge.until(lambda: reviewed(run, "row_id") == [("12",)])
    # The keys of a clip also work in the list. Up and down go to another row from everywhere.
    expect(heading(bridge)).to_have_text("row 13")
    until_seen(page, ".spf-clip[data-state='playing']")
    row(bridge, 13).focus()
    key("l")
    expect(page.get_by_role("button", name="Loop to here (L)")).to_be_visible()
    page.locator(".spf-clip").focus()
    key("ArrowDown")
    expect(heading(bridge)).to_have_text("row 14")
    expect(page.get_by_role("button", name="Play all")).to_be_visible()


@pytest.mark.slow
def test_two_hundred_clips_take_one_key_each_and_outlive_the_browser(tmp_path, browsing):
    clip = spoken(["One"], word_s=0.1)
    record = {
        "status": "done", "audio": "a.wav", "word_durations": clip.words, "format": "WAV", "sample_rate": 8000, "channels": 1,
        "audio_seconds": clip.audio_seconds, "voice_id": "nora", "sha256": hashlib.sha256(clip.audio).hexdigest(),
    }  # fmt: skip
    records = dict.fromkeys(range(200), (record, clip.audio))
    run = run_of(tmp_path / "run", {"line": [f"Line {k}" for k in range(200)]}, records)
    bridge = browsing(run, page_rows=50)
    row(bridge, 0).focus()
    for place in range(200):
        expect(heading(bridge)).to_contain_text(str(place))
        bridge.page.locator(".spf-clip").wait_for()
        bridge.page.keyboard.press("kr"[place % 2])
        # On the disk as soon as the next clip may play. So the browser can be closed at any moment.
        bridge.until(lambda place=place: len(reviewed(run, "row_id")) == place + 1)
    bridge.page.get_by_text("This was the last row of the list.").wait_for()
    verdicts = spf.open_run(run.path).reviews["verdict"]
    assert list(verdicts) == ["keep", "reject"] * 100


@pytest.mark.slow
def test_pages_of_a_filter_keep_their_rows_while_they_are_reviewed(run, browsing):
    bridge = browsing(run, page_rows=3)
    bridge.page.get_by_label("Verdict", exact=True).select_option("none")
    bridge.until(lambda: bridge.widget.wanted["verdict"] == "none")
    row(bridge, 0).focus()
    for place in range(5):
        expect(heading(bridge)).to_contain_text(str(place))
        bridge.page.keyboard.press("k")
        bridge.until(lambda place=place: len(reviewed(run, "row_id")) == place + 1)
    assert [one for (one,) in reviewed(run, "row_id")] == list("01234"), "no row was left out"


def test_any_column_is_searched_and_numbers_are_compared(run):
    widget = browse(run, page_rows=200)
    for column, sought, expected in (
        ("error_message", "no such", [5]),
        ("audio_seconds", ">15", sorted(PLAYED)),
        ("audio_seconds", "<= 1.9", [0, 7, 14, 21, 28, 35]),
        ("chapter", "CHAPTER 0", list(range(120))),
    ):
        widget.show(search=sought, column=column)
        assert [r["place"] for r in widget.rows] == expected
    with pytest.raises(ValueError, match="column='audio'; allowed"):
        widget.show(search="x", column="audio")
    widget.close()


def test_what_is_said_after_the_kernel_is_gone_waits_for_the_next_one(run, browsing, page):
    bridge = browsing(run, page_rows=20)
    row(bridge, 2).click()
    expect(heading(bridge)).to_have_text("row 2")
    page.keyboard.press("c")
    page.keyboard.type("a long thought")
    # A restarted kernel: the comm throws, as that of a notebook does.
    page.evaluate("() => { __model.send = () => { throw new Error('Cannot send'); }; }")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert").first).to_contain_text("The kernel was restarted, run the cell again")
    assert page.get_by_label("Comment for row 2").input_value() == "a long thought"
    assert row(bridge, 2).locator(".spf-badge").all_inner_texts() == ["not saved"]
    page.get_by_role("button", name="Play row 2").click()
    expect(page.locator(".spf-error", has_text="The kernel was restarted")).to_be_visible()
    page.reload()
    page.get_by_role("button", name="Try again to save 1 row").click()
    bridge.until(lambda: reviewed(run, "row_id", "comment") == [("2", "a long thought")])
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK, ids=["light", "dark"])
def test_rows_are_heard_judged_and_found_and_what_was_said_is_on_the_disk(
    run, browsing, accessible, picture, light
):
    bridge = browsing(run, page_rows=20, reviewer="ann", light=light)
    page, look = bridge.page, "light" if light else "dark"
    row(bridge, 2).click()
    page.locator(".spf-clip").wait_for()
    expect(page.locator(".spf-word")).to_have_text(["The", "line", re.compile("with number 2 of ")])
    assert bridge.widget.loads == []
    expect(page.locator(".spf-fields")).to_contain_text("chapter 0")
    row(bridge, 2).focus()
    page.keyboard.press("Space")
    until_lit(page)
    assert bridge.widget.loads == [key_of(2)]
    page.keyboard.press("ArrowDown")
    page.locator(".spf-word", has_text="number 3").wait_for()
    page.keyboard.press("Space")
    until_lit(page)
    assert bridge.widget.loads == [key_of(2), key_of(3)]
    accessible(bridge.box)
    picture(bridge.box, f"browser-{look}")
    row(bridge, 0).click()
    page.locator(".spf-clip").wait_for()
    row(bridge, 0).focus()
    page.keyboard.press("k")
    row(bridge, 0).locator(".spf-badge", has_text="keep").wait_for()
    # It went on to the next row.
    page.keyboard.press("r")
    row(bridge, 1).locator(".spf-badge", has_text="reject").wait_for()
    page.keyboard.press("ArrowUp")
    page.locator(".spf-word", has_text="number 1").wait_for()
    page.keyboard.press("c")
    accessible(bridge.box)
    picture(bridge.box, f"browser-comment-{look}")
    page.keyboard.type("c, r: rushed")
    page.keyboard.press("Control+Enter")
    row(bridge, 1).get_by_text("c, r: rushed").wait_for()
    page.keyboard.press("t")
    page.get_by_label("Corrected text for row 1").fill("The line, number one.")
    page.keyboard.press("Control+Enter")
    row(bridge, 1).get_by_text("The line, number one.").wait_for()
    # Back in the list, where the next key counts.
    expect(page.locator("textarea")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("r")
    row(bridge, 2).locator(".spf-badge", has_text="reject").wait_for()
    page.keyboard.press("u")
    expect(page.locator(".spf-panel strong").first).to_have_text("row 2")
    bridge.until(lambda: spf.open_run(run.path).reviews.set_index("row_id").loc["2", "verdict"] is None)
    said = spf.open_run(run.path).reviews.set_index("row_id")
    assert list(said["verdict"]) == ["keep", "reject", None]
    assert said.loc["1", "comment"] == "c, r: rushed"
    assert said.loc["1", "corrected_text"] == "The line, number one."
    assert set(said["reviewer"]) == {"ann"}
    assert list(said["sha256"]) == list(run.to_pandas(["sha256"])["sha256"][:3])
    page.get_by_label("Verdict", exact=True).select_option("reject")
    bridge.until(lambda: shown(bridge) == [1])
    page.get_by_label("Verdict", exact=True).select_option("none")
    bridge.until(lambda: bridge.widget.found == 118)
    page.get_by_label("Verdict", exact=True).select_option("")
    page.get_by_label("Search", exact=True).fill("number 1")
    bridge.until(lambda: bridge.widget.found == 31)
    assert len(bridge.widget.view) == 31
    page.get_by_label("Status", exact=True).select_option("done")
    bridge.until(lambda: bridge.widget.found == 11)
    expected = run.to_pandas()
    expected = expected[expected["line"].str.contains("number 1") & expected["status"].eq("done")]
    assert list(bridge.widget.view.to_pandas().index) == list(expected.index)
    page.get_by_role("button", name="Length").click()
    bridge.until(lambda: bridge.widget.wanted["by"] == "seconds")
    ordered = expected.sort_values("audio_seconds", kind="stable")
    bridge.until(lambda: shown(bridge) == [int(k) for k in ordered.index])
    assert list(bridge.widget.frame.index) == list(ordered.index)
    page.locator("th[aria-sort=ascending]", has_text="Length").wait_for()
    page.get_by_role("button", name="Length").click()
    page.locator("th[aria-sort=descending]").wait_for()
    page.get_by_label("Search", exact=True).fill("nothing is like this")
    page.get_by_text("no rows match").wait_for()
    assert shown(bridge) == []
    assert len(bridge.widget.view) == 0


@pytest.mark.slow
def test_a_narrow_page_shows_all_columns_and_no_row_is_higher_than_a_few_lines(tmp_path, browsing):
    run = spoken_run(
        tmp_path / "run",
        6,
        padding=lambda k: "and on " * 900 if k < 2 else "",
        name=lambda k: f"{k}-" + "id" * 200,
    )
    ids = run.to_pandas()["row_id"]
    hebrew = "בוקר טוב " * 200
    run.review(ids[1], "reject", comment=hebrew, corrected_text=hebrew, reviewer="ann")
    run.review(ids[2], "keep", comment="unbroken" * 300, reviewer="ann")
    bridge = browsing(run)
    page = bridge.page
    page.set_viewport_size({"width": 600, "height": 500})
    for place in (1, 2):
        row(bridge, place).click()
        page.get_by_role("button", name=f"Play row {ids[place]}").wait_for()
        assert cut_off(page) == []
    heights = "(all) => all.map((node) => node.getBoundingClientRect().height)"
    assert max(page.locator("tbody tr").evaluate_all(heights)) < 80
    list_box = page.get_by_role("region", name="List of rows")
    assert list_box.evaluate("(node) => node.scrollWidth <= node.clientWidth")
    # Each text in its own direction, in the list and where all of it is read.
    row(bridge, 1).click()
    page.get_by_role("button", name=f"Play row {ids[1]}").wait_for()
    direction = "(node) => getComputedStyle(node).direction"
    for text in (row(bridge, 1).locator("td > div").first, row(bridge, 1).get_by_text("בוקר").last):
        assert text.evaluate(direction) == "rtl"
    said = page.locator(".spf-panel p", has_text=hebrew.strip())
    assert said.evaluate_all("(all) => all.map((node) => getComputedStyle(node).direction)") == ["rtl", "rtl"]
    assert row(bridge, 0).locator("td > div").first.evaluate(direction) == "ltr"
    page.keyboard.press("t")
    assert page.locator("textarea").evaluate(direction) == "rtl"


@pytest.mark.slow
def test_who_types_and_chooses_a_row_at_once_gets_both(run, browsing):
    bridge = browsing(run, page_rows=20)
    # In one go: a moment later the search would have been asked already.
    bridge.page.evaluate(
        """() => {
          const search = document.querySelector("input[type=search]");
          search.value = "number 1";
          search.dispatchEvent(new Event("input"));
          document.querySelector("tr[data-place='1']").click();
        }"""
    )
    bridge.until(lambda: bridge.widget.found == 31)
    bridge.until(lambda: bridge.widget.opened.get("place") == 1)


def test_what_is_not_there_sorts_last_both_ways(run):
    widget = browse(run, page_rows=200)
    for descending in (False, True):
        widget.show(by="seconds", descending=descending)
        lengths = [r["seconds"] for r in widget.rows]
        heard = [s for s in lengths if s]
        assert lengths[: len(heard)] == sorted(heard, reverse=descending)
        assert set(lengths[len(heard) :]) == {0.0}
    with pytest.raises(ValueError, match="allowed: row, text"):
        widget.show(by="size")
    widget.close()


@pytest.mark.slow
def test_pages_turn_by_button_and_by_key(run, browsing):
    bridge = browsing(run, page_rows=50)
    bridge.page.get_by_role("button", name="Next").click()
    bridge.until(lambda: shown(bridge)[:1] == [50])
    row(bridge, 50).focus()
    bridge.page.keyboard.press("PageDown")
    bridge.until(lambda: shown(bridge) == list(range(100, 120)))
    expect(bridge.page.get_by_role("button", name="Next")).to_be_disabled()
    bridge.page.keyboard.press("PageUp")
    bridge.until(lambda: shown(bridge)[:1] == [50])


@pytest.mark.slow
def test_rows_that_went_wrong_have_a_badge_and_say_why(run, browsing):
    bridge = browsing(run)
    for place, status, why in ((SUSPECT, "suspect", "too short"), (FAILED, "failed", "no such voice")):
        badge = row(bridge, place).locator(".spf-badge")
        assert badge.text_content() == status
        assert why in badge.get_attribute("title")
    assert row(bridge, 0).locator(".spf-badge").count() == 0
    row(bridge, FAILED).click()
    bridge.page.get_by_text("row '5' has no audio, because its status is failed (no such voice)").wait_for()


@pytest.mark.slow
def test_what_somebody_is_writing_is_not_lost_to_another_row_or_page(run, browsing):
    bridge = browsing(run, page_rows=20)
    page = bridge.page
    row(bridge, 3).focus()
    page.keyboard.press("c")
    page.keyboard.type("a long thought")
    row(bridge, 7).click()
    page.locator(".spf-word", has_text="number 7").wait_for()
    page.keyboard.press("c")
    field = page.get_by_label("Comment for row 3")
    assert field.input_value() == "a long thought"
    page.get_by_role("button", name="Next").click()
    bridge.until(lambda: shown(bridge)[:1] == [20])
    assert field.input_value() == "a long thought"
    page.get_by_role("button", name="Save").click()
    bridge.until(lambda: list(run.reviews["comment"]) == ["a long thought"])
    assert list(run.reviews["row_id"]) == ["3"]


@pytest.mark.slow
def test_buttons_say_the_same_as_keys(run, browsing):
    bridge = browsing(run)
    row(bridge, 4).click()
    bridge.page.get_by_label("Go on and play the next row").uncheck()
    keep = bridge.page.get_by_role("button", name="Keep (K)")
    keep.click()
    bridge.page.locator("button[aria-pressed=true]", has_text="Keep").wait_for()
    bridge.page.get_by_role("button", name="Reject (R)").click()
    bridge.page.locator("button[aria-pressed=true]", has_text="Reject").wait_for()
    expect(keep).to_have_attribute("aria-pressed", "false")
    bridge.page.get_by_role("button", name="Comment (C)").click()
    bridge.page.get_by_label("Comment for row 4").fill("hm")
    bridge.page.get_by_role("button", name="Save").click()
    bridge.until(lambda: list(run.reviews["comment"]) == ["hm"])


@pytest.mark.slow
def test_what_somebody_else_said_is_there_with_the_next_look(run, browsing):
    bridge = browsing(run, page_rows=20)
    spf.open_run(run.path).review("21", "keep", reviewer="bob")
    bridge.page.get_by_role("button", name="Next").click()
    badge = row(bridge, 21).locator(".spf-badge", has_text="keep")
    badge.wait_for()
    assert badge.get_attribute("title") == "by bob"


@pytest.mark.slow
def test_decisions_that_cannot_be_kept_stay_in_the_page_for_another_try(run, browsing, caplog):
    bridge = browsing(run, page_rows=20)
    page, away = bridge.page, run.path.with_name("away")
    row(bridge, 0).click()
    page.locator(".spf-clip").wait_for()
    run.path.rename(away)
    row(bridge, 0).focus()
    page.keyboard.press("k")
    again = page.get_by_role("button", name="Try again to save 1 row")
    again.wait_for()
    assert row(bridge, 0).locator(".spf-badge").all_inner_texts() == ["not saved"]
    assert not run.path.exists(), "no folder was made for it"
    expect(page.locator(".spf-status")).to_contain_text("row 0: not saved")
    assert "the review of row 0 was not saved" in caplog.text
    # As often as one likes.
    again.click()
    bridge.until(lambda: caplog.text.count("row 0 was not saved") >= 2)
    away.rename(run.path)
    # Those before go with the next one, from whatever page of the list.
    page.get_by_role("button", name="Next").click()
    bridge.until(lambda: shown(bridge)[:1] == [20])
    row(bridge, 21).focus()
    page.keyboard.press("r")
    bridge.until(lambda: len(run.reviews) == 2)
    said = run.reviews.set_index("row_id")
    assert said["verdict"].to_dict() == {"0": "keep", "21": "reject"}
    assert said.loc["0", "is_current"]
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    assert bridge.widget.trouble == ""


@pytest.mark.slow
def test_a_real_run_is_reviewed_and_its_rejected_rows_are_made_anew(browsing, tmp_path):
    lines = pd.DataFrame({"text": [f"Line {k} to be heard." for k in range(4)]})
    with FaultyService(quota=10**6) as service:
        given = {"service": service.settings, "progress": False}
        made = spf.generate(lines, text="text", voice="nora", run_dir=tmp_path / "run", **given)
        bridge = browsing(made)
        row(bridge, 2).focus()
        bridge.page.keyboard.press("r")
        row(bridge, 2).locator(".spf-badge", has_text="reject").wait_for()
        before = service.books().requests
        again = spf.resume(made, redo="rejected", **given)
        assert service.books().requests == before + 1
    assert list(again.to_pandas()["take"]) == [0, 0, 1, 0]
    assert not again.reviews["is_current"][0]
    bridge.widget.show()
    row(bridge, 2).get_by_text("of an earlier take").wait_for()


def said_of(row, verdict):
    """A decision as a page sends it: with what it shows."""
    return {"decision": "1", "reviews": [{"row": row["row"], "sha256": row["sha256"], "verdict": verdict}]}


@pytest.mark.slow
@pytest.mark.parametrize("was_open", [True, False], ids=["open", "closed"])
def test_a_verdict_is_of_the_take_that_is_heard(tmp_path, was_open):
    with FaultyService(quota=10**6) as service:
        made = {"service": service.settings, "progress": False}
        frame = pd.DataFrame({"line": ["One line.", "Another line."]})
        run = spf.generate(frame, text="line", voice="nora", run_dir=tmp_path / "made", **made)
        widget = browse(run)
        if was_open:
            widget.on_open({"place": 1})
        widget.on_review(said_of(widget.rows[1], "reject"))
        spf.resume(run, redo="rejected", **made)
    if was_open:
        widget.show()
    else:
        widget.on_open({"place": 1})
    assert [row["is_old"] for row in widget.rows] == [False, True]
    widget.on_review(said_of(widget.rows[1], "keep"))
    said = run.reviews.iloc[-1]
    heard = hashlib.sha256(widget.shelf.read_clip(widget.opened["id"]).audio).hexdigest()
    assert (said["verdict"], said["sha256"], said["is_current"]) == ("keep", heard, True)
    widget.close()


@pytest.mark.slow
def test_a_translation_s_rows_are_read_without_a_player(tmp_path, browsing):
    record = {"text": "Hello", "translated_text": "Bonjour", "locale": "fr-FR"}
    run = run_of(tmp_path / "run", {"line": ["Hello"]}, {0: (record, None)}, operation="translate")
    bridge = browsing(run)
    row(bridge, 0).click()
    bridge.page.locator(".spf-panel", has_text="Hello").wait_for()
    expect(bridge.page.locator(".spf-panel")).to_contain_text("Bonjour")
    assert bridge.page.locator(".spf-clip").count() == 0


def test_without_a_front_end_it_is_a_table(run):
    run.review("1", "reject", comment="<b>no</b>")
    widget = browse(run, page_rows=10)
    assert repr(widget) == "<DatasetBrowser: 120 of 120 rows, 0 kept, 1 rejected>"
    shown = widget._repr_mimebundle_()[0]
    assert shown["text/html"].count("<tr>") == 11
    assert "&lt;b&gt;no" in shown["text/html"]
    assert "failed: no such voice" in shown["text/html"]
    widget.close()
