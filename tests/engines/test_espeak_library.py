"""Equal requests give equal bytes: in one process, in another, in any order, after whatever came before."""

import hashlib
import subprocess
import sys
import threading

import pytest

from speechframe.engines import espeak_library
from speechframe.engines.base import Utterance
from speechframe.engines.espeak import EspeakSpeaker
from speechframe.engines.espeak_library import Setting, render
from speechframe.errors import EngineError

TEXT = "It was a quiet morning; nobody had expected the parcel, and yet there it stood."
ASKED = [
    ("en-US-nora", "en-US", {}),
    ("en-US-ruby", "en-US", {"variation": 5, "take": 3}),
    ("en-US-hank", "en-GB", {"style": "Promo", "rate": 20, "pitch": -10}),
    ("en-US-cole", "en-US", {"audio_duration_s": 6.25}),
    ("fr-FR-hugo", "fr-FR", {}),
    ("zh-CN-mei", "en-US", {}),
]


def fingerprints() -> list[str]:
    speaker = EspeakSpeaker()
    speeches = [speaker.speak(Utterance(TEXT, voice, locale, **fields)) for voice, locale, fields in ASKED]
    return [
        hashlib.sha256(speech.samples.tobytes() + repr(speech.words).encode()).hexdigest()
        for speech in speeches
    ]


ELSEWHERE = f"""
import hashlib
from speechframe.engines.base import Utterance
from speechframe.engines.espeak import EspeakSpeaker
speaker = EspeakSpeaker()
for voice, locale, fields in reversed({ASKED!r}):
    speech = speaker.speak(Utterance({TEXT!r}, voice, locale, **fields))
    print(hashlib.sha256(speech.samples.tobytes() + repr(speech.words).encode()).hexdigest())
"""


def test_equal_bytes_again_and_in_other_processes_in_another_order():
    here = fingerprints()
    assert len(set(here)) == len(here)
    assert fingerprints() == here
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, check=True, text=True)
        assert done.stdout.split()[::-1] == here


def test_what_was_spoken_before_leaves_no_trace():
    setting = Setting("gmw/en-US+f3", 165)
    first = render(TEXT, setting).samples.tobytes()
    for other in ("inc/hi", "sit/cmn", "gmw/de+klatt4", "gmw/en-US+grandma"):
        render("1, 2, 3! " * 20, Setting(other, 400, pitch=99), seed=99)
        assert render(TEXT, setting).samples.tobytes() == first


def test_threads_wait_for_each_other():
    setting = Setting("gmw/en-US+m8", 165)
    expected = render(TEXT, setting).samples.tobytes()
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(render(TEXT, setting).samples.tobytes() for _ in range(5))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20


def test_the_seed_changes_a_breathy_voice():
    setting = Setting("gmw/en-US+f2", 165)
    assert render(TEXT, setting, seed=1).samples.tobytes() != render(TEXT, setting, seed=2).samples.tobytes()


def test_the_version_is_told():
    assert EspeakSpeaker().version.startswith("1.")


def test_a_library_that_someone_else_holds_is_refused_because_it_would_not_be_reproducible():
    code = """
import ctypes
import espeakng_loader
from speechframe.engines.espeak_library import Setting, render
held = ctypes.CDLL(espeakng_loader.get_library_path())
try:
    render("Hello", Setting("gmw/en-US", 165))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.startswith("EngineError another library of this process uses espeak-ng")


def test_a_missing_library_is_said_with_the_command_that_helps():
    code = """
import sys
sys.modules["espeakng_loader"] = None
from speechframe.engines.base import Utterance
from speechframe.engines.espeak import EspeakSpeaker
speaker = EspeakSpeaker()
print(len(speaker.voices()) > 100)
for ask in (lambda: speaker.version, lambda: speaker.speak(Utterance("Hi", "en-US-nora", "en-US"))):
    try:
        ask()
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    told = "EngineError espeak-ng is not installed: pip install 'speechframe[local]'"
    assert done.stdout.splitlines() == ["True", told, told]


def test_a_voice_that_is_not_there_is_an_engine_error():
    with pytest.raises(EngineError, match="no voice 'gmw/en-XX'"):
        render("Hello", Setting("gmw/en-XX", 165))


def test_events_come_in_order_and_inside():
    rendered = render(TEXT, Setting("gmw/en-US", 165))
    positions = [event.position for event in rendered.words]
    frames = [event.frame for event in rendered.words]
    assert positions == sorted(positions)
    assert frames == sorted(frames)
    assert positions[0] >= 0
    assert positions[-1] < len(TEXT)
    assert frames[-1] < len(rendered.samples)


def test_the_sounds_of_a_language_are_told_in_ipa():
    assert espeak_library.phoneme_names("gmw/en-US", ("[[tS]]", "[[S|i:]]")) == ["tʃ", "ʃiː"]
