"""The doctor: it really tries, and a broken engine does not take it along."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution

import pytest

from speechframe.cli import installed
from speechframe.settings import fingerprint_key
from speechframe.spec.speech import Format, Model

ENGINE = """
import os, signal
import numpy as np
from speechframe.engines.base import Capabilities, EngineVoice, Speech
from speechframe.spec.speech import Gender, Model, StyleDetails


class Rough:
    name = "rough"
    version = "1.0"
    capabilities = Capabilities()

    def voices(self):
        details = {"en-US": StyleDetails(available_styles=["Plain"], detail="English")}
        return [EngineVoice("en-US-rough", "Rough", "Falls over", Gender.MALE, "en-US", details, frozenset({Model.GEN2}))]

    def speak(self, utterance):
        os.kill(os.getpid(), signal.SIGSEGV)


class Smooth(Rough):
    def left_out(self):
        return ["the file rough.bin is cut off"]

    def speak(self, utterance):
        return Speech(np.full(2205, 0.5, np.float32), 22050, ())
"""


def install(folder, name, version, *, requires=(), extras=(), entry_points="", url=None):
    """Put a distribution of this name into `folder`, as a path entry makes it known."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Provides-Extra: {e}" for e in extras)]
    lines += [f"Requires-Dist: {r}" for r in requires]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
    if entry_points:
        (info / "entry_points.txt").write_text(entry_points)
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps(url))


def of(said, group):
    return {check["name"]: check for check in said["checks"] if check["group"] == group}


@pytest.fixture
def local(environment):
    """The environment of a process that has no key and no address."""
    return {"SPEECHFRAME_API_KEY": None, "SPEECHFRAME_BASE_URL": None}


def beside(folder):
    """Return PYTHONPATH with a folder in front of it."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


@pytest.fixture
def espeak_alone(tmp_path_factory, monkeypatch):
    """A package that brings one engine: what is tried here is not how long all of them take to load."""
    folder = tmp_path_factory.mktemp("package")
    own = distribution("speechframe")
    info = folder / f"speechframe-{own.version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(own.read_text("METADATA"), encoding="utf-8")
    points = "[speechframe.speakers]\nespeak = speechframe.local.engines.espeak.speaker:EspeakSpeaker\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", beside(folder))
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.slow
def test_everything_is_looked_at(cli, local, tmp_path):
    ended = cli("doctor", "--json", env={**local, "SPEECHFRAME_SERVICE": str(tmp_path / "svc")})
    assert ended.code == 0, ended.out
    said = json.loads(ended.out)
    assert said["ok"]
    assert said["python"] in sys.version
    assert {"all", "excel", "local", "notebook", "speed"} <= set(of(said, "extras"))
    espeak = of(said, "engines")["espeak"]
    assert espeak["state"] == "ok"
    assert "'Hello'" in espeak["words"]
    assert " ms" in espeak["words"]
    for kind, name in (
        ("engines", "piper"),
        ("changers", "world"),
        ("translators", "firefox"),
        ("recognisers", "whisper"),
    ):
        assert of(said, kind)[name]["state"] == "ok", name
    assert of(said, "translators")["apertium"]["state"] in {"ok", "missing"}, "it is nobody's duty to have it"
    assert set(of(said, "voices")) == {model.value for model in Model}
    assert all(kind.value in of(said, "audio")["formats"]["words"] for kind in Format)
    assert str(tmp_path / "svc") in of(said, "folders")["service data"]["words"]
    # It looks, and leaves nothing behind.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("espeak_alone")
def test_a_hosted_service_is_asked_and_its_key_not_told(here, service):
    ended = here("doctor")
    assert ended.code == 0, ended.out
    assert service.rich not in ended.out
    assert fingerprint_key(service.rich) in ended.out
    assert "answered in" in ended.out
    assert "service data" not in ended.out


@pytest.mark.usefixtures("espeak_alone")
def test_what_does_not_work_ends_with_1(cli, local, tmp_path):
    plugins = tmp_path / "plugins"
    install(
        plugins,
        "rough-speech",
        "1.0",
        entry_points="[speechframe.speakers]\nrough = rough_speech:Rough\nsmooth = rough_speech:Smooth\n",
    )
    (plugins / "rough_speech.py").write_text(ENGINE)
    (tmp_path / "file").write_text("")
    env = {
        **local,
        "PYTHONPATH": beside(plugins),
        "SPEECHFRAME_SERVICE": str(tmp_path / "file/svc"),
        "SPEECHFRAME_VOICES": str(tmp_path / "nowhere"),
    }
    ended = cli("doctor", "--json", env=env)
    said = json.loads(ended.out)
    assert ended.code == said["exit_code"] == 1
    engines = of(said, "engines")
    assert engines["espeak"]["state"] == "ok"
    assert engines["rough"]["state"] == "failed"
    assert "crashed with SIGSEGV" in engines["rough"]["words"]
    assert engines["smooth"]["state"] == "ok"
    left_out = [(check["name"], check["words"]) for check in said["checks"] if check["state"] == "left out"]
    assert left_out == [
        ("smooth", "the file rough.bin is cut off"),
        ("duplicate", "voice en-US-rough of smooth is left out: rough has the name"),
    ]
    # The service would not start with a folder that is missing.
    (folder,) = (check for check in said["checks"] if check["name"] == "folder")
    assert folder["state"] == "failed"
    assert str(tmp_path / "nowhere") in folder["words"]
    folders = of(said, "folders")
    assert (folders["service data"]["state"], folders["working folder"]["state"]) == ("failed", "ok")


OTHERS = """
import numpy as np
from speechframe.engines.base import Quality, Transcript, TranslationPair
from speechframe.errors import EngineError


class Shifter:
    name = "shifter"
    version = "2.0"

    def change(self, recording, conversion, *, speak):
        raise AssertionError("nobody asked for a change")


class Words:
    name = "words"
    version = "3.1"

    def pairs(self):
        return [TranslationPair("pt-BR", "en", Quality.ROUGH), TranslationPair("en", "pt-BR", Quality.ROUGH)]

    def translate(self, texts, pair):
        return [f"{text} em {pair.target}" for text in texts]


class Absent(Words):
    name = "absent"

    @property
    def version(self):
        raise EngineError("no models here: pip install 'speechframe[translate]'")


class Ear:
    name = "ear"
    version = "4"

    def recognise(self, recording, *, language=None, words=False):
        return Transcript("", None)


class Liar(Ear):
    name = "liar"

    def recognise(self, recording, *, language=None, words=False):
        return Transcript("Thanks for watching!", "en")


class Dying(Ear):
    name = "dying"

    def recognise(self, recording, *, language=None, words=False):
        import os

        os.abort()
"""
OTHER_POINTS = """
[speechframe.changers]
shifter = other_engines:Shifter
gone = other_engines:Gone

[speechframe.translators]
absent = other_engines:Absent
words = other_engines:Words

[speechframe.recognisers]
dying = other_engines:Dying
ear = other_engines:Ear
liar = other_engines:Liar
"""


@pytest.mark.slow
@pytest.mark.usefixtures("espeak_alone")
def test_engines_of_every_kind_are_told_and_what_is_missing_with_its_command(cli, local, tmp_path):
    install(tmp_path, "other-engines", "1.0", entry_points=OTHER_POINTS)
    (tmp_path / "other_engines.py").write_text(OTHERS)
    ended = cli("doctor", "--json", env={**local, "PYTHONPATH": beside(tmp_path)})
    said = json.loads(ended.out)
    assert ended.code == 1
    changers, translators, recognisers = (
        of(said, f"{kind}s") for kind in ("changer", "translator", "recogniser")
    )
    assert (changers["shifter"]["state"], changers["shifter"]["words"]) == ("ok", "2.0")
    assert changers["gone"]["state"] == "failed"
    assert changers["gone"]["command"] == "pip install --upgrade other-engines"
    assert translators["words"]["words"] == "3.1: 2 pairs; 'Hello' is 'Hello em pt-BR' in pt-BR"
    # Not installed is not broken: nobody needs it until it is asked for.
    assert translators["absent"]["state"] == "missing"
    assert translators["absent"]["command"] == installed.make_install_command("translate")
    assert recognisers["ear"]["words"] == "4; found no words in silence"
    assert recognisers["liar"]["state"] == "failed"
    assert "Thanks for watching" in recognisers["liar"]["words"]
    assert "crashed with SIGABRT" in recognisers["dying"]["words"]


@pytest.mark.slow
def test_extras_that_are_missing_break_nothing_and_are_told(cli, local, tmp_path):
    # A path hook that knows no neural engine: what an install without the extras looks like.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find, hidden = u.find_spec, {'piper', 'faster_whisper'}\n"
        "u.find_spec = lambda name, package=None: None if name in hidden else find(name, package)\n"
    )
    ended = cli("doctor", "--json", env={**local, "PYTHONPATH": beside(tmp_path)})
    said = json.loads(ended.out)
    assert ended.code == 0, ended.out
    for kind, name, extra in (("engines", "piper", "neural"), ("recognisers", "whisper", "asr")):
        check = of(said, kind)[name]
        assert (check["state"], check["command"]) == ("missing", installed.make_install_command(extra))


@pytest.mark.slow
@pytest.mark.usefixtures("espeak_alone")
def test_settings_that_contradict_are_told(here, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_BASE_URL")
    ended = here("doctor")
    assert ended.code == 1
    assert "failed" in ended.out
    assert "SPEECHFRAME_BASE_URL" in ended.out
    assert "1 thing does not work" in ended.out


@pytest.fixture
def metadata(tmp_path, monkeypatch):
    """Make another distribution of this package the one that is found."""

    def make(**facts):
        install(tmp_path, "speechframe", "9.0", **facts)
        monkeypatch.syspath_prepend(tmp_path)

    return make


def test_extras_are_read_from_the_metadata(metadata):
    metadata(
        extras=["a", "b", "every"],
        requires=[
            "pandas>=2", "numpy>=1.0; extra == 'a'", "no-such-package-here[x]>=3.1; extra == 'b'",
            'pandas (>=999.1) ; extra == "b"', "speechframe[a,b]; extra == 'every'",
        ],
    )  # fmt: skip
    found = installed.list_extras()
    assert [str(p).split()[0] for p in found["a"]] == ["numpy"]
    assert all(p.is_usable for p in found["a"])
    assert str(found["b"][0]) == "no-such-package-here is missing"
    assert str(found["b"][1]).endswith("is older than 999.1")
    assert not any(p.is_usable for p in found["b"])
    assert [p.name for p in found["every"]] == ["numpy", "no-such-package-here", "pandas"]


@pytest.mark.parametrize(
    ("url", "target"),
    [
        (None, "'speechframe[local]'"),
        ({"url": "file:///a%20b/c", "dir_info": {"editable": True}}, "-e '/a b/c[local]'"),
        ({"url": "file:///x.whl", "archive_info": {}}, "'speechframe[local] @ file:///x.whl'"),
    ],
)
def test_the_command_gets_the_extra_the_way_the_package_came(metadata, url, target):
    metadata(url=url)
    command = installed.make_install_command("local")
    assert command.endswith(f" {target}")
    assert sys.executable in command
    assert installed.adapt_install_command("pip install 'speechframe[local]'") == command
    assert installed.adapt_install_command("apt install other") == "apt install other"


@pytest.mark.slow
def test_the_command_is_one_that_the_installer_understands():
    command = installed.make_install_command("speed")
    assert " -m pip " in command, "scripts/make-venv always gives the environment a pip"
    ended = subprocess.run(
        ["sh", "-c", f"{command} --dry-run --no-deps --no-index --no-build-isolation --quiet"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert "Invalid requirement" not in ended.stderr
    assert "no such option" not in ended.stderr


@pytest.mark.parametrize(
    ("found", "at_least", "fits"),
    [
        ("1.10", "1.9", True),
        ("1.9.1", "1.10", False),
        ("2.0rc1", "2.0", True),
    ],
)
def test_versions_are_compared_by_figures(found, at_least, fits):
    assert installed.RequiredPackage("x", at_least, found).is_usable == fits
