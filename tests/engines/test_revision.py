"""The engine's version names the way it speaks: whoever changes that must raise `REVISION`."""

from speechframe.engines.base import Utterance
from speechframe.local.engines.espeak import speaker as espeak

SPOKEN = {
    4: {
        ("en-US-nora", "en-US", "Good morning, Dr. Smith. It is 10:30."): (68866, 3093),
        ("de-DE-greta", "de-DE", "Guten Morgen."): (15182, 659),
        ("zh-CN-mei", "zh-CN", "今天天气很好。"): (42682, 1906),
    }
}
"""Revision to length in frames and end of the last word, in ms."""


def test_a_revision_always_speaks_the_same():
    speaker = espeak.EspeakSpeaker()
    assert f"+{espeak.REVISION}" in speaker.version
    for (voice, locale, text), expected in SPOKEN[espeak.REVISION].items():
        speech = speaker.speak(Utterance(text, voice, locale))
        assert (len(speech.samples), speech.words[-1].end_ms) == expected, text
