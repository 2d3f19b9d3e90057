"""Our own recogniser does what every recogniser must do."""

from speechframe.engines.piper import PiperSpeaker
from speechframe.engines.whisper import WhisperRecogniser
from speechframe.testing.suites import RecogniserSuite


class TestWhisper(RecogniserSuite):
    engine = WhisperRecogniser
    speaker = PiperSpeaker
    voice_id = "en-US-joe"
    most_errors = 0.12
