"""A sample is asked for once in a process, however many galleries and pages show it."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from speechframe.processes.loop import get_background_loop
from speechframe.spec.speech import Voice
from speechframe.testing import FaultyService
from speechframe.widgets.voice_gallery import VoiceGallery

TEXT = "Hello there."
VOICE = Voice.model_validate(
    {"voiceId": "en-US-nora", "displayName": "Nora", "locale": "en-US", "gender": "Female",
     "supportedLocales": {"en-US": {"detail": "English", "availableStyles": []}}}
)  # fmt: skip


@pytest.fixture(scope="module")
def faulty():
    with FaultyService(latency=0.3, retry_after_s=0) as service:
        yield service


@pytest.fixture
def spent(faulty):
    """Return what was asked for and billed since the test began."""
    before = faulty.books()

    def since():
        now = faulty.books()
        return now.requests - before.requests, now.billed_characters - before.billed_characters

    return since


def a_gallery(faulty, text):
    made = VoiceGallery([VOICE], service=faulty, text=text)
    made.told = []
    made.send = lambda message, buffers=(): made.told.append((message["kind"], [bytes(b) for b in buffers]))
    return made


def click(made):
    made.on_load({"clip": json.dumps(["en-US-nora", "en-US", ""])})


def until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


@contextlib.contextmanager
def at_once():
    """Hold the loop that asks for samples: what is clicked meanwhile is asked for together."""
    held, release = threading.Event(), threading.Event()

    def hold():
        held.set()
        release.wait(60)

    get_background_loop().call_soon_threadsafe(hold)
    assert held.wait(60)
    try:
        yield
    finally:
        release.set()


def test_clicks_in_two_galleries_and_in_two_views_of_one_pay_once(faulty, spent):
    galleries = [a_gallery(faulty, TEXT) for _ in range(2)]
    with at_once(), ThreadPoolExecutor(4) as threads:
        list(threads.map(click, galleries * 2))
    until(lambda: all(len(made.told) == 2 for made in galleries))
    assert spent() == (1, len(TEXT))
    heard = [told for made in galleries for told in made.told]
    assert heard == [heard[0]] * 4, "all of them hear it"
    later = a_gallery(faulty, TEXT)
    click(later)
    until(lambda: later.told)
    assert later.told == heard[:1]
    assert spent() == (1, len(TEXT)), "it is kept"


def test_another_text_is_another_sample(faulty, spent):
    for made in (a_gallery(faulty, "One."), a_gallery(faulty, "Two!")):
        click(made)
        until(lambda made=made: made.told)
    assert spent() == (2, 8)


def test_one_that_failed_is_told_to_all_and_asked_for_again(faulty, spent):
    faulty.set(scripts={"Once more.": ["400", "ok"]})
    galleries = [a_gallery(faulty, "Once more.") for _ in range(2)]
    with at_once():
        for made in galleries:
            click(made)
    until(lambda: all(made.told for made in galleries))
    assert [made.told[0][0] for made in galleries] == ["error", "error"]
    click(galleries[0])
    until(lambda: len(galleries[0].told) == 2)
    assert galleries[0].told[1][0] == "audio"
    assert spent() == (2, len("Once more."))


def test_a_key_hears_only_what_it_has_paid_for():
    with FaultyService(keys=["the key of ann", "the key of bob"], retry_after_s=0) as service:
        ann = service.settings
        bob = replace(ann, api_key="the key of bob")
        for paid, settings in enumerate((ann, bob, ann), 1):
            made = a_gallery(settings, "One sample for each key.")
            click(made)
            until(lambda made=made: made.told)
            assert service.books().requests == min(paid, 2)
