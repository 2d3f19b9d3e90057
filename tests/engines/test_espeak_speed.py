"""One short line costs milliseconds: spoken, timed and written as a file."""

import time

import numpy as np
import pytest

from speechframe.audio import codec
from speechframe.engines.base import Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.spec.speech import Format

LINE = "The quick brown fox jumps over the lazy dog by the old mill."


@pytest.mark.quiet
def test_a_line_is_spoken_and_written_in_milliseconds():
    speaker = EspeakSpeaker()
    lasted_ms = []
    for take in range(15):
        started = time.process_time()
        speech = speaker.speak(Utterance(LINE, "en-US-nora", "en-US", take=take))
        codec.encode(speech.samples, speech.sample_rate_hz, format=Format.FLAC, output_rate_hz=44100)
        lasted_ms.append(1000 * (time.process_time() - started))
    # About 15 on a laptop; the bound is for machines that are slow or busy.
    assert np.median(lasted_ms) < 60
    assert speech.audio_seconds > 2
