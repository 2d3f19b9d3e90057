"""The gallery of voices, in a browser, over the embedded service."""

import json
import time

import pytest
from bridge import LIGHT_AND_LONG_DARK, cut_off
from playwright.sync_api import expect

from speechframe.errors import InvalidRows
from speechframe.spec.speech import Voice
from speechframe.widgets.voice_gallery import VoiceGallery, gallery


@pytest.fixture(scope="module")
def voices(service):
    return gallery(service=service)


def cards(bridge):
    return bridge.page.locator(".spf-card").evaluate_all("(nodes) => nodes.map((node) => node.dataset.voice)")


def agree(bridge):
    """Wait until Python has what the page shows."""
    bridge.until(lambda: list(bridge.widget.filtered["voice_id"]) == cards(bridge))
    return cards(bridge)


def made_up(name, locale, styles):
    return Voice.model_validate(
        {"voiceId": f"{locale}-{name}", "displayName": name, "locale": locale, "gender": "Female",
         "supportedLocales": {tag: {"detail": tag, "availableStyles": list(given)} for tag, given in styles.items()}}
    )  # fmt: skip


@pytest.mark.slow
def test_a_style_that_a_locale_does_not_have_is_given_up_with_a_warning(show):
    voices = [
        made_up("Ann", "en-US", {"en-US": ["Calm", "Angry"], "fr-FR": ["Calm"]}),
        made_up("Bea", "fr-FR", {"fr-FR": ["Calm"]}),
    ]
    bridge = show(lambda: VoiceGallery(voices))
    bridge.page.get_by_label("style").select_option("Angry")
    assert agree(bridge) == ["en-US-Ann"]
    bridge.page.get_by_label("locale").select_option("fr-FR")
    bridge.page.locator(".spf-status.spf-error", has_text="Angry").wait_for()
    bridge.until(lambda: bridge.widget.style == "")
    assert agree(bridge) == ["fr-FR-Bea", "en-US-Ann"], "whose own locale it is comes first"
    bridge.page.get_by_label("gender").select_option("Female")
    expect(bridge.page.locator(".spf-status.spf-error")).to_have_count(0)


@pytest.mark.slow
def test_voices_of_falcon_2_speak_their_samples_and_comparisons_themselves(service, tmp_path):
    shown = gallery("falcon-2", service=service, locale="en-US", text="Hello there.")
    voice = shown.filtered["voice_id"].iloc[0]
    asked = (voice, "en-US", "")
    shown.on_load({"clip": json.dumps(asked)})
    until(lambda: asked in shown.samples)
    # Only gen2 says when words are heard.
    assert shown.samples[asked].words == ()
    assert shown.samples[asked].audio_seconds > 0.3
    shown.selection = list(shown.filtered["voice_id"].iloc[:2])
    frame = shown.compare(run_dir=tmp_path / "run").generate().frame
    assert list(frame["voice_id"]) == shown.selection
    assert frame["audio"].notna().all()


def test_a_locale_that_nobody_speaks_is_answered_with_the_nearest(service):
    with pytest.raises(InvalidRows, match=r"fr-FX.*fr-FR"):
        gallery(locale="fr-FX", service=service)


def test_a_catalogue_without_voices_is_an_empty_gallery(service, monkeypatch):
    async def nobody(*_):
        return []

    monkeypatch.setattr("speechframe.widgets.voice_gallery._fetch_voices", nobody)
    assert gallery(service=service).shown == []


def until(true, seconds=60):
    for _ in range(seconds * 50):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize("light", LIGHT_AND_LONG_DARK, ids=["light", "dark"])
def test_voices_are_filtered_heard_and_compared(show, service, accessible, picture, light):
    bridge = show(lambda: gallery(service=service, text="Hello there."), light=light)
    page, widget = bridge.page, bridge.widget
    everything = agree(bridge)
    assert len(everything) > 100
    # Filtered by who sees it.
    page.get_by_role("searchbox").type("fr-FR")
    french = agree(bridge)
    assert set(french) < set(everything)
    page.get_by_role("searchbox").fill("")
    page.get_by_label("locale").select_option("de")
    page.get_by_label("gender").select_option(index=1)
    german = agree(bridge)
    assert french
    assert german
    assert set(widget.filtered["gender"]) == {widget.gender}
    assert all(any(tag.startswith("de-") for tag in tags) for tags in widget.filtered["locales"])
    expect(page.get_by_role("status")).to_contain_text(f"{len(german)} of {len(everything)} voices")
    page.get_by_label("gender").select_option("")
    bridge.until(lambda: widget.gender == "")
    # And by Python.
    widget.locale = "fr_ch"
    assert widget.locale == "fr-CH"
    swiss = list(widget.filtered["voice_id"])
    assert swiss
    bridge.until(lambda: cards(bridge) == swiss)
    expect(page.get_by_label("locale")).to_have_value("fr-CH")
    widget.query = "LUC"
    bridge.until(lambda: cards(bridge) == ["fr-CH-lucien"])
    expect(page.get_by_role("searchbox")).to_have_value("LUC")
    widget.style = "Whispering to cats"
    page.locator(".spf-status.spf-error", has_text="Whispering to cats").wait_for()
    assert widget.style == ""
    page.get_by_role("searchbox").fill("")
    assert agree(bridge) == swiss
    # A sample is spoken when it is asked for, and paid for once.
    first = page.locator(".spf-card").first
    assert "12 credits" in bridge.box.inner_text()
    first.get_by_role("button", name="Play").click()
    bridge.until(lambda: len(widget.samples) == 1)
    bridge.until(lambda: widget.value == swiss[0])
    ((asked, clip),) = widget.samples.items()
    assert asked[0] == swiss[0]
    assert clip.text == "Hello there."
    expect(page.locator(".spf-card[aria-current]")).to_have_attribute("data-voice", swiss[0])
    first.get_by_role("button", name="Play").click()
    loads = [m for m in bridge.to_python if m["method"] == "custom" and m["content"]["kind"] == "load"]
    assert len(loads) == 1
    # Marked by either, and compared.
    compare, boxes = page.get_by_role("button", name="Compare"), page.get_by_role("checkbox")
    assert compare.is_disabled()
    boxes.nth(0).check()
    bridge.until(lambda: widget.selection == swiss[:1])
    widget.selection = [swiss[1]]
    expect(boxes.nth(1)).to_be_checked()
    expect(boxes.nth(0)).not_to_be_checked()
    boxes.nth(0).check()
    bridge.until(lambda: set(widget.selection) == set(swiss[:2]))
    accessible(bridge.box)
    picture(bridge.box, f"voice-gallery-{'light' if light else 'dark'}")
    compare.click()
    page.get_by_role("heading", name="Side by side").wait_for()
    assert widget.compare().stage == "planned"
    assert "24 credits" in widget.compare().price


@pytest.mark.slow
def test_neural_voices_come_first_an_engine_can_be_chosen_and_an_id_is_copied(show, service):
    bridge = show(lambda: gallery(service=service, locale="fr"))
    page, widget = bridge.page, bridge.widget
    kinds = {voice["id"]: voice["kind"] for voice in widget.voices}
    shown = [kinds[voice_id] for voice_id in agree(bridge)]
    assert shown == sorted(shown, reverse=True)
    assert {*shown} == {"neural", "formant"}
    page.get_by_role("searchbox").fill("male")
    assert {card["gender"] for card in widget.voices if card["id"] in agree(bridge)} == {"Male"}
    assert list(widget.filtered["gender"].unique()) == ["Male"]
    page.get_by_label("engine").select_option("espeak")
    expect(page.locator(".spf-card").first).to_contain_text("formant")
    first = agree(bridge)[0]
    page.get_by_role("button", name=f"Copy the id {first}").click()
    # This page is not on HTTPS, so the id is selected instead.
    page.get_by_text("Press Ctrl+C to copy the id").wait_for()
    assert page.evaluate("getSelection().toString()") == first


@pytest.mark.slow
def test_a_card_says_who_it_is_at_a_glance_and_its_styles_open(show, service):
    bridge = show(lambda: gallery(service=service, locale="en-US"))
    bridge.page.set_viewport_size({"width": 600, "height": 700})
    card = bridge.page.locator("[data-voice='en-US-nora']")
    for said in (
        "Nora",
        "English (United States)",
        "Female",
        "espeak",
        "formant",
        "9 % of words misheard",
        "en-US-nora",
        "8 styles: Conversational",
    ):
        expect(card).to_contain_text(said)
    expect(card.get_by_role("button", name="Play a sample of Nora")).to_be_visible()
    heights = "(all) => all.map((node) => node.getBoundingClientRect().height)"
    assert max(bridge.page.locator(".spf-card").evaluate_all(heights)[:8]) < 175
    summary = card.locator("summary")
    assert summary.evaluate_all(heights)[0] < 25, "one line"
    assert cut_off(bridge.page) == []
    summary.click()
    expect(card.get_by_text("A female voice, clear")).to_be_visible()
    assert summary.evaluate("(node) => node.scrollWidth <= node.clientWidth"), "all styles can be read"
    # A filter that leaves the card leaves it open.
    bridge.page.get_by_label("gender").select_option("Female")
    expect(card.get_by_text("A female voice, clear")).to_be_visible()


@pytest.mark.slow
def test_python_filters_as_the_page_does(show, service):
    bridge = show(lambda: gallery(service=service))
    told = gallery(service=service)
    for label in ["gender", "engine", "locale", "style"]:
        box = bridge.page.get_by_label(label)
        options = box.locator("option").evaluate_all("(all) => all.map((o) => o.value)")[1:]
        for option in options[:: max(1, len(options) // 12)]:
            box.select_option(option)
            setattr(told, label, option)
            assert told.shown == agree(bridge), (label, option)
            assert told.shown, (label, option)
        box.select_option("")
        setattr(told, label, "")
    for query in ("male", "FRENCH neural", "ko"):
        told.query = query
        bridge.page.get_by_role("searchbox").fill(query)
        assert told.shown == agree(bridge), query
    told.query = " EN-gb  f"
    bridge.page.get_by_role("searchbox").fill(told.query)
    assert 0 < len(told.shown) < len(told.voices)
    assert told.shown == agree(bridge)


def test_whatever_happens_a_sample_does_not_load_for_ever(service, monkeypatch):
    async def full(*_, **__):
        raise OSError("no space left on the disk")

    said = []
    widget = gallery(service=service, locale="en-US")
    monkeypatch.setattr("speechframe.widgets.voice_gallery.make_sample", full)
    monkeypatch.setattr(widget, "send", said.append)
    widget.on_load({"clip": '["en-US-nora", "en-US", ""]'})
    until(lambda: said)
    assert (said[0]["kind"], said[0]["message"]) == ("error", "no space left on the disk")


def test_without_a_front_end_it_is_a_table(voices):
    html = voices._repr_mimebundle_()[0]["text/html"]
    assert "en-US-nora" in html
    assert html.count("<tr>") == len(voices.filtered) + 1
