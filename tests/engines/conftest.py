"""The espeak engine, a short way to ask it, and a sentence for every locale. `world_lab` and `processes` are importable."""

import sys
import tomllib
from functools import lru_cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from speechframe.engines.base import Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.engines.espeak.voices import list_espeak_voices

SENTENCES = tomllib.loads((Path(__file__).parent / "sentences.toml").read_text(encoding="utf-8"))
_IDS = {voice.name: voice_id for voice_id, voice in list_espeak_voices().items()}


def pytest_generate_tests(metafunc):
    if "locale" in metafunc.fixturenames:
        metafunc.parametrize("locale", sorted(SENTENCES))


@pytest.fixture(scope="session")
def sentences() -> dict:
    return SENTENCES


@pytest.fixture(scope="session")
def say():
    """Speak with a voice called by its name alone; without variation unless asked."""
    speaker = EspeakSpeaker()

    @lru_cache(maxsize=512)
    def remembered(utterance):
        return speaker.speak(utterance)

    def say(text, name="nora", locale=None, **fields):
        voice = list_espeak_voices()[_IDS[name]]
        fields = {"variation": 0} | fields
        utterance = Utterance(text, voice.voice_id, locale or voice.locale, **fields)
        return speaker.speak(utterance) if "pronunciations" in fields else remembered(utterance)

    return say
