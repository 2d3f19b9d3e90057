"""A run's rows by pages in a browser: found, heard, kept, rejected and made anew."""

import hashlib
import time
from pathlib import Path

import pandas as pd
import pytest
from bridge import LIGHT_AND_LONG_DARK, cut_off, until_lit
from clips_lab import spoken
from playwright.sync_api import expect
from run_lab import key_of, run_of

import speechframe as spf
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


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK, ids=["light", "dark"])
def test_rows_are_heard_judged_and_found_and_what_was_said_is_on_the_disk(
    run, browsing, accessible, picture, light
):
    bridge = browsing(run, page_rows=20, reviewer="ann", light=light)
    page, look = bridge.page, "light" if light else "dark"
    row(bridge, 2).click()
    page.locator(".spf-clip").wait_for()
    expect(page.locator(".spf-word")).to_have_text(["The", "line", "number2"])
    assert bridge.widget.loads == []
    expect(page.locator(".spf-fields")).to_contain_text("chapter 0")
    row(bridge, 2).focus()
    page.keyboard.press("Space")
    until_lit(page)
    assert bridge.widget.loads == [key_of(2)]
    page.keyboard.press("ArrowDown")
    page.locator(".spf-word", has_text="number3").wait_for()
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
    page.keyboard.press("ArrowDown")
    page.keyboard.press("r")
    row(bridge, 1).locator(".spf-badge", has_text="reject").wait_for()
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
    page.keyboard.press("ArrowDown")
    page.keyboard.press("r")
    row(bridge, 2).locator(".spf-badge", has_text="reject").wait_for()
    page.keyboard.press("u")
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
    page.locator(".spf-word", has_text="number7").wait_for()
    page.keyboard.press("c")
    field = page.get_by_label("Comment for row 3")
    assert field.input_value() == "a long thought"
    page.get_by_role("button", name="Next").click()
    bridge.until(lambda: shown(bridge)[:1] == [20])
    page.get_by_role("button", name="Save").click()
    page.get_by_text("row 3 is not on this page").wait_for()
    assert field.input_value() == "a long thought"
    page.get_by_role("button", name="Previous").click()
    bridge.until(lambda: shown(bridge)[:1] == [0])
    page.get_by_role("button", name="Save").click()
    bridge.until(lambda: list(run.reviews["comment"]) == ["a long thought"])
    assert list(run.reviews["row_id"]) == ["3"]


@pytest.mark.slow
def test_buttons_say_the_same_as_keys(run, browsing):
    bridge = browsing(run)
    row(bridge, 4).click()
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
    assert "holds no run any more" in bridge.widget.trouble
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
    return {
        "decision": "1", "reviews": [{"row": row["row"], "sha256": row["sha256"], "verdict": verdict}]
    }


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
