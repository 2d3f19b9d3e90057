"""Engines come in by entry points, and a broken one harms nobody else."""

import logging
import os
import subprocess
import sys
import textwrap

import pytest

from speechframe.engines import registry
from speechframe.spec.speech import Model

PLUG_IN = """
import numpy as np
from speechframe.engines.base import Capabilities, EngineVoice, Speech, Word
from speechframe.spec.speech import Gender, Model, StyleDetails

class ToneSpeaker:
    name = "tone"
    version = "7.1"
    capabilities = Capabilities()

    def voices(self):
        locales = {"en-US": StyleDetails(available_styles=["Plain"], detail="English")}
        make = lambda name: EngineVoice(
            f"en-US-{name}", name.title(), "A tone.", Gender.NON_BINARY, "en-US", locales, frozenset({Model.GEN2})
        )
        return [make("hum"), make("nora")]

    def speak(self, utterance):
        return Speech(np.zeros(22050, np.float32), 22050, (Word(utterance.text, 0, 1000),))

class BrokenSpeaker:
    def __init__(self):
        raise RuntimeError("model file not found")

class OtherEspeak(ToneSpeaker):
    name = "espeak"

class HalfSpeaker:
    name = "half"

class ListlessSpeaker(ToneSpeaker):
    def voices(self):
        raise OSError("disk gone")
"""
ENTRY_POINTS = """
[speechframe.speakers]
absent = no_such_package:Speaker
broken = tone_plug_in:BrokenSpeaker
espeak = tone_plug_in:OtherEspeak
half = tone_plug_in:HalfSpeaker
listless = tone_plug_in:ListlessSpeaker
tone = tone_plug_in:ToneSpeaker
"""


@pytest.fixture
def with_plug_ins(tmp_path):
    """Run code in a process where a package with one good and four bad engines is installed."""
    (tmp_path / "tone_plug_in.py").write_text(PLUG_IN)
    info = tmp_path / "tone_plug_in-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tone-plug-in\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)

    def run(code):
        paths = filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    return run


def test_a_plug_in_joins_and_broken_ones_are_left_out_and_named(with_plug_ins):
    told, log = with_plug_ins(
        """
        import logging
        logging.basicConfig(level="WARNING", format="%(message)s")
        from speechframe.engines import registry
        from speechframe.spec.speech import Model
        print(*registry.load_speakers())
        voice, engine = registry.find_voice("hum", Model.GEN2)
        print(voice.voice_id, engine)
        print(registry.find_voice("nora", Model.GEN2).engine)
        for report in registry.report_engines():
            print(report.name, report.package, report.version, report.works, report.command)
        """
    )
    assert {"espeak", "tone"} <= set(told[0].split())
    assert not {"absent", "broken", "half", "listless"} & set(told[0].split())
    assert told[1:3] == ["en-US-hum tone", "espeak"]
    assert "'espeak' (tone_plug_in:OtherEspeak) is left out: speechframe.local.engines.espeak" in log
    assert "'absent' (no_such_package:Speaker) cannot be used: ModuleNotFoundError" in log
    assert "'broken' (tone_plug_in:BrokenSpeaker) cannot be used: RuntimeError: model file not found" in log
    assert "'half' (tone_plug_in:HalfSpeaker) is not a Speaker" in log
    assert "'listless' (tone_plug_in:ListlessSpeaker) cannot be used: OSError: disk gone" in log
    assert "voice en-US-nora of tone is left out: espeak has the name" in log
    reports = {line.split()[0]: line for line in told[3:]}
    assert reports["absent"] == "absent tone-plug-in None False pip install --upgrade tone-plug-in"
    assert reports["espeak"].startswith("espeak speechframe 1.")
    assert reports["espeak"].endswith("True None")
    assert reports["tone"] == "tone tone-plug-in 7.1 True None"


def test_a_voice_is_found_by_id_and_by_name_in_any_case():
    for called in ("en-US-nora", "nora", "NORA", "EN_us-Nora", " nora "):
        assert registry.find_voice(called, Model.GEN2).voice.voice_id == "en-US-nora"


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("norah", "en-US-nora"),
        ("lucía", "es-ES-lucia"),
    ],
)
def test_the_nearest_names_are_offered(asked, nearest):
    assert registry.find_similar_voices(asked, Model.GEN2)[0] == nearest


def test_nothing_is_offered_for_nonsense():
    assert registry.find_similar_voices("qqqqqqqqqq", Model.GEN2) == []
    assert registry.find_similar_voices("", Model.GEN2) == []


def test_listing_is_silent(caplog):
    registry.build_catalogue.cache_clear()
    with caplog.at_level(logging.WARNING):
        registry.build_catalogue(Model.GEN2)
    assert not caplog.records
