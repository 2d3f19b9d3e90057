"""Clips that voices say, changed by the shipped voice changer, and what is measured of them."""

from functools import lru_cache

import numpy as np

from speechframe.audio import measure
from speechframe.engines.base import Conversion, Recording, Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.piper.speaker import PiperSpeaker
from speechframe.local.engines.world.changer import WorldChanger

SENTENCES = (
    "The small boat sailed across the quiet bay before the storm.",
    "We will meet at the station and walk home together with our friends.",
    "Why did you choose that yellow jacket? My father has a green one.",
    "She thought about the weather while the children played in the garden.",
)
NORA = "en-US-nora"

changer = WorldChanger()
speak = EspeakSpeaker().speak
speak_neural = PiperSpeaker().speak


def locale_of(voice_id):
    return voice_id.rpartition("-")[0]


@lru_cache
def spoken(voice_id, sentence=SENTENCES[0]):
    """A sentence as a voice says it: joe by Piper, the others by espeak."""
    say = speak_neural if voice_id == "en-US-joe" else speak
    said = say(Utterance(sentence, voice_id, locale_of(voice_id), variation=0))
    return Recording(said.samples, said.sample_rate_hz)


def change(clip, target=NORA, **fields):
    conversion = Conversion(target, locale_of(target), **{"variation": 0} | fields)
    return changer.change(clip, conversion, speak=speak)


def lufs(audio):
    return measure.measure_loudness_lufs(audio.samples, audio.sample_rate_hz)


def f0_hz(audio):
    return measure.median_f0_hz(audio.samples, audio.sample_rate_hz)


def log_formants(audio):
    return np.log(measure.measure_formants_hz(audio.samples, audio.sample_rate_hz))
