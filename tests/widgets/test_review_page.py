"""The one saved page: rows are heard, judged and rated in a browser alone, and what was said comes back."""

import hashlib
import json

import pytest
from bridge import ADDRESS, KEEP_AUDIO, PRESS_AT_ONCE, cut_off, until_lit, until_seen
from clips_lab import spoken
from playwright.sync_api import expect
from run_lab import run_of

import speechframe as spf
from speechframe.cli import main
from speechframe.page import review
from speechframe.page.texts import resolve_texts
from speechframe.widgets.browser import browse
from speechframe.widgets.player import play

SUSPECT, FAILED = 3, 5
HEBREW = "בוקר טוב"
REFUSED = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } });"
STORED = "() => Object.keys(localStorage).filter((k) => k.startsWith('speechframe-review:')).map((k) => JSON.parse(localStorage[k]))"


def make_run(path, rows=8):
    records = {}
    for k in range(rows):
        clip = spoken(
            ["The", "line", f"number{k}"], word_s={1: 3.0, 6: 1.2}.get(k, 0.2), pitch_hz=200 + 10 * k
        )
        has_audio = k != FAILED
        records[k] = (
            {
                "status": {SUSPECT: "suspect", FAILED: "failed"}.get(k, "done"), "audio": "a.wav" if has_audio else None,
                "word_durations": clip.words, "format": "WAV", "sample_rate": 8000, "channels": 1,
                "audio_seconds": clip.audio_seconds if has_audio else None, "voice_id": "nora",
                "locale": ["de-DE", "he-IL"][k % 2],
                "error_message": {SUSPECT: "too short for its text", FAILED: "no such voice"}.get(k),
                "sha256": hashlib.sha256(clip.audio).hexdigest() if has_audio else None,
            },
            clip.audio if has_audio else None,
        )  # fmt: skip
    columns = {
        "text": [f"Source <b>{k}</b>" for k in range(rows)],
        "translated_text": [HEBREW if k % 2 else f"Zeile {k}" for k in range(rows)],
        "slot_s": [0.5] * rows, "over_s": [0.25] * rows, "characters_to_lose": [4] * rows,
    }  # fmt: skip
    return run_of(path, columns, records, text="translated_text", name=lambda k: f"cue{k}")


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


@pytest.fixture
def opened(page):
    """Open a saved page; the test fails when the page had an error or asked anybody for anything."""
    errors, asked = [], []

    def opens(path, on=page):
        on.on("pageerror", lambda error: errors.append(str(error)))
        on.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        on.on("request", lambda request: asked.append(request.url))
        on.goto(path.as_uri())
        return on

    yield opens
    assert errors == []
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:", ADDRESS))] == []


def item(page, row):
    return page.locator(".spf-item").filter(has=page.get_by_text(row, exact=True))


def saved(page, folder):
    folder.mkdir(exist_ok=True)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the file").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_a_clip_takes_one_key_and_what_was_said_outlives_the_page_and_comes_back(
    run, page, opened, accessible, tmp_path
):
    run.review("cue7", "reject", sha256="0" * 64)
    path = browse(run).to_html(tmp_path / "review.html", editable=True, title="Film & <more>")
    opened(path)
    page.keyboard.type("Ann")
    item(page, "cue0").click()
    page.keyboard.press("k")
    # The verdict is in the storage before the next clip, which plays by itself.
    until_lit(page)
    assert [review["verdict"] for review in page.evaluate(STORED)] == ["keep"]
    expect(page.locator(".spf-panel strong")).to_have_text("cue1")
    page.keyboard.press("r")
    expect(page.locator("section.spf")).to_contain_text("2 of 8 reviewed")
    page.keyboard.press("u")
    expect(page.locator(".spf-panel strong")).to_have_text("cue1")
    expect(page.locator("section.spf")).to_contain_text("1 of 8 reviewed")
    page.keyboard.press("c")
    page.keyboard.type("k, r: rushed")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    page.get_by_label("Corrected text").fill("תוקן")
    # Closed in the middle of a word, without a warning.
    again = page.context.new_page()
    page.close()
    opened(path, again)
    expect(again.get_by_label("Your name")).to_have_value("Ann")
    item(again, "cue1").click()
    expect(again.get_by_label("Comment")).to_have_value("k, r: rushed")
    expect(again.get_by_label("Corrected text")).to_have_value("תוקן")
    again.keyboard.press("r")
    file = saved(again, tmp_path / "back")
    said = json.loads(file.read_text())
    assert {**said, "reviews": len(said["reviews"]), "saved_at": ""} == {
        "speechframe_reviews": 1, "run_id": "r1", "title": "Film & <more>", "reviewer": "Ann", "saved_at": "", "reviews": 6,
    }  # fmt: skip
    conflicts = run.read_reviews(tmp_path / "back")
    assert (len(conflicts), conflicts.attrs["new"]) == (0, 6)
    found = run.reviews.set_index("row_id")
    assert found.loc["cue0", ["verdict", "reviewer"]].tolist() == ["keep", "Ann"]
    assert found.loc["cue1", ["verdict", "comment", "corrected_text"]].tolist() == [
        "reject",
        "k, r: rushed",
        "תוקן",
    ]
    # The file goes into another browser, where a new page of the run knows the reviews of the run as well.
    other = again.context.browser.new_context().new_page()
    opened(path, other)
    with other.expect_file_chooser() as chooser:
        other.get_by_role("button", name="Load a file").click()
    chooser.value.set_files(file)
    expect(other.locator("section.spf")).to_contain_text("Reviews loaded: 6.")
    expect(other.locator("section.spf")).to_contain_text("2 of 8 reviewed")
    assert len(other.evaluate(STORED)) == 6
    other.get_by_label("Filter").select_option("rejected")
    expect(other.locator("ol li")).to_have_count(1)
    other.context.close()


def test_rows_are_found_by_any_column_and_several_get_one_verdict(run, page, opened, tmp_path):
    opened(browse(run).to_html(tmp_path / "review.html", editable=True))
    search, rows = page.get_by_label("Search"), page.locator("ol strong")
    page.keyboard.type("Ann")
    # No letter of a search is a verdict.
    search.press_sequentially("cuer")
    expect(page.locator("section.spf")).to_contain_text("No rows match.")
    expect(search).to_be_focused()
    for column, sought, expected in (
        ("audio_seconds", ">2", ["cue1", "cue6"]),
        ("audio_seconds", "<= 2", ["cue0", "cue2", "cue3", "cue4", "cue7"]),
        ("error_message", "VOICE", ["cue5"]),
        ("locale", "he-", ["cue1", "cue3", "cue5", "cue7"]),
    ):
        page.get_by_label("Column").select_option(column)
        search.fill(sought)
        expect(rows).to_have_text(expected)
    item(page, "cue1").click()
    page.keyboard.press("Shift+ArrowDown")
    item(page, "cue5").click(modifiers=["Shift"])
    page.get_by_role("button", name="Reject (R) · 3 rows").wait_for()
    page.keyboard.press("r")
    expect(page.locator("section.spf")).to_contain_text("3 of 8 reviewed")
    search.fill("")
    item(page, "cue0").click()
    page.keyboard.press("k")
    page.keyboard.press("u")
    page.keyboard.press("u")
    expect(page.locator("section.spf")).to_contain_text("0 of 8 reviewed")
    assert [(r["row_id"], r["verdict"]) for r in sorted(page.evaluate(STORED), key=lambda r: r["reviewed_at"])] == [
        ("cue1", "reject"), ("cue3", "reject"), ("cue5", "reject"), ("cue0", "keep"),
        ("cue0", ""), ("cue1", ""), ("cue3", ""), ("cue5", ""),
    ]  # fmt: skip
    # A row without the others.
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    expect(page.locator("section.spf")).to_contain_text("1 of 8 reviewed")


@pytest.mark.slow
def test_the_controls_of_the_players_play_one_row_after_the_other(run, page, opened, tmp_path):
    opened(browse(run).to_html(tmp_path / "review.html", editable=True, locale="de"))
    page.evaluate(KEEP_AUDIO)
    heading = page.locator(".spf-panel strong")
    item(page, "cue4").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Herunterladen").click()
    assert download.value.suggested_filename == "cue4.wav"
    page.get_by_label("Tempo").select_option("1.25")
    page.get_by_role("button", name="Alle abspielen").click()
    # The failed row is passed.
    page.evaluate(PRESS_AT_ONCE, ["cue6", "k"])
    expect(page.locator("section.spf")).to_contain_text("Drücken Sie noch einmal")
    assert page.evaluate("window.__audio.map((one) => one.playbackRate)") == [1.25, 1.25]
    # Somebody who writes is not taken to another row.
    page.keyboard.press("c")
    page.keyboard.type("to")
    until_seen(page, ".spf-clip[data-state='still']")
    page.keyboard.type("o slow")
    expect(heading).to_have_text("cue6")
    assert [(r["row_id"], r["comment"]) for r in page.evaluate(STORED)] == [("cue6", "too slow")]
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    page.get_by_role("button", name="Bis hier wiederholen (L)").wait_for()


@pytest.mark.slow
def test_two_hundred_clips_take_one_key_each_and_outlive_the_browser(tmp_path, page, opened):
    run = make_run(tmp_path / "run", 200)
    path = browse(run).to_html(tmp_path / "review.html", editable=True)
    opened(path)
    page.keyboard.type("Ann")
    page.keyboard.press("Tab")
    item(page, "cue0").focus()
    presses = 0
    for k in range(200):
        if k in {50, 51, 120}:  # the page is closed at any moment
            again = page.context.new_page()
            page.close()
            page = opened(path, again)
            expect(page.locator("section.spf")).to_contain_text(f"{k} of 200 reviewed")
            item(page, f"cue{k}").focus()
            page.keyboard.press("Enter")
            presses += 1
        expect(page.locator(".spf-panel strong")).to_have_text(f"cue{k}")
        page.keyboard.press("kr"[k % 2])
        presses += 1
        expect(page.locator("section.spf")).to_contain_text(f"{k + 1} of 200 reviewed")
    assert presses <= 3 * 200
    conflicts = run.read_reviews(saved(page, tmp_path / "back"))
    assert (len(conflicts), conflicts.attrs["new"]) == (0, 200)
    verdicts = run.reviews.set_index("row_id")["verdict"]
    assert [verdicts[f"cue{k}"] for k in range(200)] == ["keep", "reject"] * 100


@pytest.mark.slow
def test_a_row_shows_all_that_is_needed_to_judge_it_at_any_width(run, page, opened, accessible, tmp_path):
    opened(browse(run).to_html(tmp_path / "review.html", editable=True, locale="de"))
    assert page.locator("html").get_attribute("lang") == "de"
    expect(page.get_by_role("button", name="Annehmen (K)")).to_be_visible()
    item(page, "cue3").click()
    panel = page.locator(".spf-panel")
    for text in (
        "auffällig",
        "too short for its text",
        "Source <b>3</b>",
        HEBREW,
        "nora",
        "he-IL",
        "0,5 s, 0,25 s zu kurz. Zu kürzende Zeichen: 4.",
    ):
        expect(panel).to_contain_text(text)
    directions = "(all) => all.map((node) => getComputedStyle(node).direction)"
    assert panel.locator("dd").evaluate_all(directions) == ["ltr", "rtl", "ltr"]
    assert page.get_by_label("Korrigierter Text").evaluate_all(directions) == ["rtl"]
    item(page, "cue5").click()
    expect(panel).to_contain_text("row 'cue5' has no audio, because its status is failed (no such voice)")
    for width, scheme in ((600, "dark"), (1200, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert cut_off(page) == []
        accessible(page.locator("html"))


def test_a_browser_that_keeps_nothing_says_so_at_once_and_gives_the_file(run, page, opened, tmp_path):
    page.add_init_script(REFUSED)
    opened(browse(run).to_html(tmp_path / "review.html", editable=True))
    expect(page.get_by_role("alert").filter(has_text="does not keep reviews")).to_be_visible()
    item(page, "cue2").click()
    page.keyboard.press("k")
    page.get_by_role("button", name="Save the file").click()
    expect(page.locator("section.spf")).to_contain_text("Please enter your name first.")
    page.keyboard.type("Bo")
    said = json.loads(saved(page, tmp_path / "back").read_text())
    assert [(r["row_id"], r["verdict"], r["reviewer"]) for r in said["reviews"]] == [("cue2", "keep", "Bo")]


def test_without_editing_rows_are_found_and_heard_in_the_order_of_the_browser(run, page, opened, tmp_path):
    run.review("cue1", "reject")
    widget = browse(run)
    widget.show(status="done", by="seconds", descending=True)
    order = list(widget.frame["row_id"])
    opened(widget.to_html(tmp_path / "rows.html", limit=5))
    assert page.locator("ol strong").all_inner_texts() == order[:5]
    expect(page.locator("section.spf")).to_contain_text("The first 5 of 6 rows.")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    until_lit(page)
    for name in ("Keep", "Save", "Undo"):
        assert page.get_by_role("button", name=name).count() == 0
    page.get_by_label("Search").fill("source <B>1")
    expect(page.locator("ol li")).to_have_count(1)
    page.get_by_label("Search").fill("")
    page.get_by_label("Locale").select_option("de-DE")
    expect(page.locator("ol li")).to_have_count(sum(int(row[3:]) % 2 == 0 for row in order[:5]))


@pytest.mark.slow
def test_ratings_of_a_saved_player_come_back_and_those_of_the_widget_are_in_the_run(
    run, page, opened, show, tmp_path
):
    path = play(run).to_html(tmp_path / "clips.html")
    opened(path)
    page.keyboard.type("Ann")
    item(page, "cue0").click()
    page.keyboard.press("4")
    page.keyboard.press("2")
    assert page.get_by_role("button", name="Keep").count() == 0
    assert len(run.read_reviews(saved(page, tmp_path / "back"))) == 0
    assert run.reviews.set_index("row_id")["rating"].to_dict() == {"cue0": 4, "cue1": 2}
    bridge = show(lambda: play(run))
    assert bridge.widget.ratings == {"0": 4, "1": 2}
    bridge.page.locator("[data-clip='1']").get_by_role("radio", name="5 of 5").click()
    bridge.until(lambda: len(run.reviews) == 2 and run.reviews.set_index("row_id")["rating"]["cue1"] == 5)
    assert play(run).results["rating"].tolist()[:2] == [4, 5]
    # What cannot be stored is said. A rating of other audio is not shown.
    run.path.rename(run.path.with_name("away"))
    bridge.page.locator("[data-clip='2']").get_by_role("radio", name="1 of 5").click()
    expect(
        bridge.page.get_by_role("alert").filter(has_text="the rating of cue2 was not saved")
    ).to_be_visible()
    run.path.with_name("away").rename(run.path)
    run.review("cue0", rating=1, sha256="0" * 64)
    assert play(run).ratings == {"1": 5}


def test_a_page_that_is_too_large_or_has_no_words_is_refused_and_leaves_nothing(run, tmp_path, monkeypatch):
    path = tmp_path / "pages" / "review.html"
    for arguments, fault in (
        ({"locale": "fr"}, "built in are en and de"),
        ({"texts": {"sav": "x"}}, "unknown names: sav"),
    ):
        with pytest.raises(ValueError, match=fault):
            browse(run).to_html(path, **arguments)
    browse(run).to_html(path, locale="fr", texts=resolve_texts("en"))
    before = path.read_bytes()
    monkeypatch.setattr(review, "_MAX_AUDIO_BYTES", 20_000)
    with pytest.raises(spf.StoreError, match="make several pages"):
        browse(run).to_html(path)
    assert [(file.name, file.read_bytes()) for file in path.parent.iterdir()] == [("review.html", before)]


def test_a_shell_packs_a_page_and_applies_what_comes_back(run, tmp_path, capsys, page, opened):
    page_path = tmp_path / "review.html"
    assert main(["review", "pack", str(run.path), "--out", str(page_path), "--rows", "suspect"]) == 0
    assert "1 row (" in capsys.readouterr().out
    opened(page_path)
    expect(page.locator("ol strong")).to_have_text(["cue3"])
    sheet = tmp_path / "back.csv"
    sheet.write_text("row_id,verdict\ncue1,keep\n")
    assert main(["review", "apply", str(run.path), str(sheet)]) == 0
    assert capsys.readouterr().err.startswith("1 review applied, 0 reviews already in the run, 0 conflicts")
    sheet.write_text("row_id,verdict\ncue9,keep\n")
    assert main(["review", "apply", str(run.path), str(sheet)]) == 7
    assert "no row of the run has the id 'cue9'" in capsys.readouterr().out
