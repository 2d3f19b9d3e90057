"""Our own recogniser does what every recogniser must do."""

import pytest

from speechframe.local.engines.piper.speaker import PiperSpeaker
from speechframe.local.engines.whisper.recogniser import WhisperRecogniser
from speechframe.testing.suites import RecogniserSuite
from speechframe.testing.suites.common import measure_word_error


# What is Whisper's own is tested at every commit in test_whisper, and what it hears in test_world_voices.
@pytest.mark.slow
class TestWhisper(RecogniserSuite):
    engine = WhisperRecogniser
    speaker = PiperSpeaker
    voice_id = "en-US-joe"
    most_errors = 0.12


def test_word_error_counts_what_is_wrong_missing_and_added():
    assert measure_word_error("The cat sat.", "the cat sat") == 0
    assert measure_word_error("the cat sat", "the bat sat") == pytest.approx(1 / 3)
    assert measure_word_error("the cat sat", "the sat down") == pytest.approx(2 / 3)
    assert measure_word_error("the cat", "") == 1
