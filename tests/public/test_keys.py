"""Whatever goes wrong with a key at hand, no crash report shows it: every entry fails in a way of its own."""

import argparse
import contextlib
import copy
import io
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import psutil
import pytest
import rich.console
import rich.traceback
from IPython.core import ultratb
from pydantic import SecretStr

import speechframe as spf
from speechframe.cli import main as command
from speechframe.client import Client, SyncClient
from speechframe.local.service import serve
from speechframe.local.service.books import keys
from speechframe.local.service.config import parse_key, remove_duplicate_keys
from speechframe.settings import Settings, read_settings
from speechframe.testing import FaultyService

ADDRESS = "https://speech.example"
OURS = str(Path(spf.__file__).parent)


def key():
    """Called where the key is needed: no local and no global of the tests shows it, so whatever does is ours."""
    return "sk-9f8e7d6c5b4a" + "39281706"


def address():
    return f"https://me:{key()}@speech.example"


class Place:
    """An empty working folder, and the environment of a test."""

    def __init__(self, folder, patch):
        self.folder, self._patch = folder, patch
        patch.chdir(folder)

    def set(self, **variables):
        for name, value in variables.items():
            self._patch.setenv(f"SPEECHFRAME_{name}", value)

    def write(self, name, *lines):
        (self.folder / name).write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
        return self.folder / name

    def toml(self, *lines):
        self.write("speechframe.toml", *lines)


def _options(*words):
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(words)


def _end(code):
    raise SystemExit(code)


def _refused(at):
    with FaultyService() as service:
        settings = Settings(api_key=key(), base_url=service.url)
        spf.generate([{"text": "One."}], text="text", voice="nora", service=settings, run_dir=at.folder / "r")


ENTRIES = {
    "user part": lambda at: Settings(base_url=address()),
    "user part without a scheme": lambda at: Settings(base_url=f"me:{key()}@speech.example"),
    "user part of a region": lambda at: Settings(region_urls={"uk": address()}),
    "query": lambda at: Settings(base_url=f"{ADDRESS}/?api-key={key()}"),
    "bad characters": lambda at: Settings(api_key=f"{key()}\r\nX: 1", base_url=ADDRESS),
    "unknown setting": lambda at: Settings(api_key=key(), colour="red"),
    "bytes": lambda at: Settings(api_key=key().encode()),
    "configure": lambda at: spf.configure(api_key=key(), speed=3),
    "configure a user part": lambda at: spf.configure(base_url=address(), api_key="other"),
    "no address": lambda at: (at.set(API_KEY=key()), spf.voices()),
    "bad key of the environment": lambda at: (at.set(API_KEY=f"{key()}\n{key()}"), spf.voices()),
    "plain http": lambda at: (at.set(API_KEY=key(), BASE_URL="http://speech.example"), spf.voices()),
    "broken file": lambda at: (at.toml(f'api_key = "{key()}"', "base_url = "), spf.voices()),
    "bad key of the file": lambda at: (at.toml(f'api_key = "{key()}\\n{key()}"'), spf.voices()),
    "misspelt name of the file": lambda at: (at.toml(f'apikey = "{key()}"'), spf.voices()),
    "user part of the file": lambda at: (at.toml(f'base_url = "{address()}"'), spf.voices()),
    "unknown profile": lambda at: (at.toml("[profiles.a]", f'api_key = "{key()}"'), read_settings(profile="b")),
    "bad profile": lambda at: (at.toml("[profiles.a]", f'api_key = "{key()}"', "regions = 5"), read_settings(profile="a")),
    "service that is none": lambda at: spf.aio._settings.resolve_settings(service=5, api_key=key()),
    "client": lambda at: Client(api_key=key(), base_url="nonsense"),
    "sync client with a user part": lambda at: SyncClient(api_key="other", base_url=address()),
    "sync client's options": lambda at: SyncClient(api_key=key(), base_url=ADDRESS, speed=3),
    "refused run": _refused,
    "local service, bad figures": lambda at: spf.local_service(keys=[f"BAD:{key()}"]).start(),
    "local service, one text": lambda at: spf.local_service(keys=key()),
    "local service, line break": lambda at: spf.local_service(keys=[f"{key()}\n{key()}"]),
    "local service, no folder": lambda at: spf.local_service(keys=[key()], data=at.write("file")).start(),
    "local service, second region fails": lambda at: spf.local_service(
        keys=[key()], regions=["uk", "us-east"], workers=1, data=at.folder, options=["--port=1"]
    ).start(),
    "serve": lambda at: serve.build_config(_options("--key", f"BAD:{key()}")),
    "serve, a second key": lambda at: serve.build_config(_options("--key", key(), f"--key={key()} {key()}")),
    "keys file": lambda at: serve.build_config(_options(f"--keys-file={at.write('keys', key(), f'{key()}:x')}")),
    "own key": lambda at: (at.write("key", f"{key()}:x"), keys.load_own_key(at.folder)),
    "keys that differ": lambda at: remove_duplicate_keys(map(parse_key, (f"{key()}:1", f"{key()}:2"))),
    "command: key=": lambda at: command(["voices", f"--api-key={key()}"]),
    "command: misspelt": lambda at: command(["voices", "--apikey", key()]),
    "command: user part": lambda at: _end(command(["voices", "--base-url", address()])),
    "command: serve, no folder": lambda at: _end(command(["serve", f"--data={at.write('file')}", "--key", key()])),
    "pickled settings": lambda at: pickle.dumps(Settings(api_key=key(), base_url=ADDRESS)),
    "pickled local service": lambda at: pickle.dumps(spf.local_service(keys=[key()])),
}  # fmt: skip

by_entry = pytest.mark.parametrize("entry", ENTRIES)


@pytest.fixture
def place(tmp_path, monkeypatch):
    return Place(tmp_path, monkeypatch)


@by_entry
def test_no_report_shows_the_key(entry, place, capfd, caplog):
    caplog.set_level("DEBUG")
    error = _raised(entry, place)
    reports = {name: report(error) for name, report in REPORTS.items()}
    assert _showing({**reports, "output": "".join(capfd.readouterr()), "log": caplog.text}) == {}


@pytest.mark.slow
@by_entry
def test_no_report_of_rich_or_ipython_shows_the_key(entry, place):
    error = _raised(entry, place)
    assert _showing({"rich": _rich(error), "ipython": _ipython(error)}) == {}


def _raised(entry, place):
    try:
        ENTRIES[entry](place)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def _showing(reports):
    # Not within the assertion: explaining it over megabytes takes minutes.
    return {
        name: report[max(0, report.find(key()) - 300) :][:400]
        for name, report in reports.items()
        if key() in report
    }


def _with_locals(error):
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def _rich(error):
    console = rich.console.Console(file=io.StringIO(), width=20_000)
    options = {
        "show_locals": True,
        "locals_max_string": None,
        "locals_max_length": 1000,
        "locals_hide_dunder": False,
    }
    console.print(rich.traceback.Traceback.from_exception(type(error), error, error.__traceback__, **options))
    return console.file.getvalue()


def _ipython(error):
    return ultratb.VerboseTB(include_vars=True).text(type(error), error, error.__traceback__)


def _own_frames(error):
    """Locals of our frames, also of errors that reports leave out because of `raise ... from None`."""
    found = []
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.startswith((OURS, "<string>")):
                found += [
                    f"{frame.f_code.co_qualname}: {name}={value!r}" for name, value in frame.f_locals.items()
                ]
        error = error.__cause__ or error.__context__
    return "\n".join(found)


def _plain(error):
    return repr(error) + repr(vars(error)) + str(error)


def _pickled(error):
    with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):
        return repr(pickle.dumps(error))
    return ""


REPORTS = {
    "traceback": _with_locals,
    "own frames": _own_frames,
    "plain": _plain,
    "pickled": _pickled,
}


@pytest.mark.slow
def test_the_output_of_pytest_and_a_dump_of_threads_show_no_key(tmp_path):
    (tmp_path / "test_all.py").write_text(
        "import faulthandler, sys\nimport pytest\nfrom test_keys import ENTRIES, place\n"
        "@pytest.mark.parametrize('entry', ENTRIES)\n"
        "def test_entry(entry, place):\n"
        "    try:\n"
        "        ENTRIES[entry](place)\n"
        "    finally:\n"
        "        faulthandler.dump_traceback(sys.__stdout__)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--showlocals", "-vv", "-rA", "-s", "-p", "no:cacheprovider", "-c", os.devnull, tmp_path],
        env={**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parent)},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    shown = ended.stdout + ended.stderr
    assert f"{len(ENTRIES)} failed" in shown, shown[-3000:]
    assert "Current thread" in shown or "most recent call first" in shown
    place = shown.find(key())
    assert place == -1, shown[max(0, place - 1500) : place + 300]


def test_processes_of_the_local_service_get_no_key(place):
    place.set(API_KEY=key())
    with spf.local_service(workers=1, data=place.folder) as service:
        started = psutil.Process(service.pid)
        processes = [started, *started.children(recursive=True)]
        assert len(processes) > 1
        assert [one.cmdline() for one in processes if key() in one.environ().values()] == []


def test_copies_keep_the_key():
    for one in (Settings(api_key=key()).api_key, spf.local_service(keys=[key()])._key_lines[0]):
        copied = copy.deepcopy(one), copy.copy(one)
        assert [SecretStr(c) if isinstance(c, str) else c for c in copied] == [SecretStr(key())] * 2
        with pytest.raises(
            TypeError, match=r"a key cannot be pickled\. Let the other process read SPEECHFRAME_API_KEY"
        ):
            pickle.dumps(one)
