"""Equal requests give equal bytes: in one process, in another, in any order, after whatever came before."""

import threading

import pytest
from processes import in_another_process

from speechframe.errors import EngineError
from speechframe.local.engines.espeak.library import EspeakSetting, render_speech

TEXT = "It was a quiet morning; nobody had expected the parcel, and yet there it stood."


def test_what_was_spoken_before_leaves_no_trace():
    setting = EspeakSetting("gmw/en-US+f3", 165)
    first = render_speech(TEXT, setting).samples.tobytes()
    for other in ("inc/hi", "sit/cmn", "gmw/de+klatt4", "gmw/en-US+grandma"):
        render_speech("1, 2, 3! " * 20, EspeakSetting(other, 400, pitch=99), seed=99)
        assert render_speech(TEXT, setting).samples.tobytes() == first


def test_threads_wait_for_each_other():
    setting = EspeakSetting("gmw/en-US+m8", 165)
    expected = render_speech(TEXT, setting).samples.tobytes()
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(render_speech(TEXT, setting).samples.tobytes() for _ in range(5))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20


def test_a_missing_library_is_said_with_the_command_and_one_that_someone_else_holds_is_refused():
    told = in_another_process(
        """
        import ctypes, sys
        from speechframe.engines.base import Utterance
        from speechframe.local.engines.espeak.speaker import EspeakSpeaker
        from speechframe.local.engines.espeak.library import EspeakSetting, render_speech
        from speechframe.errors import EngineError

        def told(ask):
            try:
                ask()
            except EngineError as error:
                print(error)

        sys.modules["espeakng_loader"] = None
        speaker = EspeakSpeaker()
        print(len(speaker.voices()) > 100)
        told(lambda: speaker.version)
        told(lambda: speaker.speak(Utterance("Hi", "en-US-nora", "en-US")))
        del sys.modules["espeakng_loader"]
        import espeakng_loader
        held = ctypes.CDLL(espeakng_loader.get_library_path())
        told(lambda: render_speech("Hello", EspeakSetting("gmw/en-US", 165)))
        """
    )
    missing = "espeak-ng is not installed: pip install 'speechframe[local]'"
    assert told[:3] == ["True", missing, missing]
    assert told[3].startswith("another library of this process uses espeak-ng"), (
        "else it would not repeat itself"
    )


def test_a_voice_that_is_not_there_is_an_engine_error():
    with pytest.raises(EngineError, match="no voice 'gmw/en-XX'"):
        render_speech("Hello", EspeakSetting("gmw/en-XX", 165))
