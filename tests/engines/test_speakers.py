"""Our own speech engines do what every speech engine must do."""

import pytest

from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.piper.speaker import PiperSpeaker
from speechframe.testing.suites import SpeakerSuite


class TestEspeak(SpeakerSuite):
    engine = EspeakSpeaker


# What is Piper's own is tested at every commit in test_piper.
@pytest.mark.slow
class TestPiper(SpeakerSuite):
    engine = PiperSpeaker
