"""Clips under one another, in a browser."""

import pytest
from clips_lab import spoken

from speechframe.widgets.player import play

WORDS = ["one", "two", "three", "four"]


def clips(count=3, **fields):
    return [spoken(WORDS, **fields) for _ in range(count)]


def lit(bridge):
    return bridge.page.locator(".spf-lit").all_text_contents()


def test_two_hundred_clips_are_there_at_once_and_none_of_their_audio(show):
    source = clips(200)
    bridge = show(lambda: play(source))
    assert bridge.page.locator(".spf-clip").count() == 200
    assert bridge.widget.loads == []
    assert sum(len(str(message)) for message in bridge.to_page) < 50_000


def test_play_sends_one_clip_once_and_lights_its_words(show):
    bridge = show(lambda: play(clips()))
    second = bridge.page.get_by_role("button", name="Play clip 2")
    second.click()
    bridge.page.locator(".spf-lit", has_text="one").wait_for()
    assert bridge.widget.loads == ["1"]
    bridge.page.locator("[data-clip='1'][data-state='still']").wait_for()
    assert lit(bridge) == [], "after the end nothing is lit"
    second.click()
    bridge.page.locator(".spf-lit").wait_for()
    assert bridge.widget.loads == ["1"], "what was loaded is played again from memory"
    bridge.until(lambda: bridge.widget.plays == {"1": 2})


@pytest.mark.parametrize("light", [True, False], ids=["light", "dark"])
def test_everybody_can_use_it(show, accessible, picture, light):
    bridge = show(lambda: play(clips()), light=light)
    bridge.page.get_by_role("button", name="Play clip 2").click()
    bridge.page.locator(".spf-lit", has_text="two").wait_for()
    accessible(bridge.box)
    picture(bridge.box, f"clip-player-{'light' if light else 'dark'}")
