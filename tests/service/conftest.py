"""A real service on a real port; its engines are real processes. `convert_lab` is importable for the tests."""

import asyncio
import base64
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from convert_lab import OURS, Work, install, with_path

from speechframe.local.start import local_service
from speechframe.spec import chosen
from speechframe.spec.endpoints import ENDPOINTS, JSON_TYPE
from speechframe.spec.pages.render import build_openapi

VOICE = "en-US-moody"
"""The plug-in's voice: its text says how it behaves, and it needs no time otherwise."""


# A speech engine that misbehaves when its text says so, installed for the service under test as a real plug-in.
ENGINE = """
import os, signal, time
import numpy as np
from speechframe.engines.base import Capabilities, EngineVoice, Speech, Word
from speechframe.errors import EngineError
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind


class Moody:
    name = "moody"
    version = "1.0"
    capabilities = Capabilities()

    def voices(self):
        details = {"en-US": StyleDetails(available_styles=["Plain"], detail="English (United States)")}
        return [EngineVoice("en-US-moody", "Moody", "Does what its text says", Gender.NON_BINARY, "en-US",
                            details, frozenset({Model.GEN2}), VoiceKind.FORMANT)]

    def speak(self, utterance):
        verb, _, figure = utterance.text.partition(" ")
        if verb == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if verb == "vanish":
            os._exit(0)
        if verb == "hang":
            time.sleep(3600)
        if verb == "refuse":
            raise EngineError("has no speakable character for this voice")
        if verb == "raise":
            raise RuntimeError("a secret inside " + utterance.text)
        if verb == "print":
            os.write(1, b"noise of a native library" * 100)
        if verb == "sleep":
            time.sleep(float(figure.split()[0]))
        if verb == "spin":
            while True:
                pass
        if verb == "until":
            path = figure.split()[0]
            open(path + ".begun", "w").close()
            while os.path.isdir(os.path.dirname(path)) and not os.path.exists(path):
                time.sleep(0.01)
        if verb == "nap" and not os.path.exists(figure.split()[0]):
            time.sleep(0.1)
        if verb == "grow":
            self.kept = np.ones(int(figure.split()[0]) << 17)
        frames = 220 * len(utterance.text)
        seed = utterance.take + 1
        samples = np.sin(np.arange(frames) * seed / 9).astype(np.float32) / 2
        return Speech(samples, 22050, (Word(utterance.text.split()[0], 0, 10),), ())
"""

ENTRY_POINTS = "[speechframe.speakers]\nmoody = moody_speech:Moody\n"
METADATA = "Metadata-Version: 2.1\nName: moody-speech\nVersion: 1.0\n"


def install_engine(folder):
    """Put the engine into `folder`, as a distribution that PYTHONPATH makes known."""
    info = folder / "moody_speech-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "moody_speech.py").write_text(ENGINE, encoding="utf-8")
    (info / "METADATA").write_text(METADATA, encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return folder


known = []
"""The PYTHONPATH of these tests, once there is one."""


def pytest_runtest_setup():
    """Make the moody engine known again, after tests of other folders."""
    if known:
        os.environ["PYTHONPATH"] = known[0]


@pytest.fixture(scope="session")
def plugins(tmp_path_factory):
    """Make the moody engine known to every service that is started from here."""
    folder = install_engine(tmp_path_factory.mktemp("plugin"))
    known.append(os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
    os.environ["PYTHONPATH"] = known[0]
    return folder


@pytest.fixture(scope="session")
def start(plugins):
    """Give local_service, with the plug-in."""
    del plugins
    return local_service


@pytest.fixture(scope="session")
def service(start):
    """Give the service most tests share: plenty of quota, and a key of its own for each that counts."""
    # Of a small key every character counts, so that only one test may use it.
    small = ["poor:100", "crash:100", "tiny:10", "tiny-stream:10", "tiny-socket:10", "chain:3000:40"]
    keys = ["main", "second:1000000:3", "slow:1000000:2", "spare:100000", "a-secret::1", *small]
    with start(keys=keys, workers=2, options=["--job-timeout-s", "60"]) as running:
        yield running


@pytest.fixture(scope="session")
def dubbing(start):
    """Give a service with keys of dubbing; without credits, a job fails as soon as it is taken."""
    keys = ["dub:0", "second:0", "rich:1000", "work:1000", "dead:0", "alive:0", "full:1000"]
    options = [word for key in keys for word in ("--dub-key", key)]
    options += ["--dub-workers", "2", "--max-upload-mb", "1"]
    with start(keys=["speech"], workers=1, options=options, allow_private_urls=True) as running:
        yield running


@pytest.fixture(scope="session")
def hasty(start):
    """Give a service that waits a second for headers and bodies, for tests of what stalls alone."""
    with start(keys=["main"], workers=1, options=["--body-timeout-s", "1"]) as running:
        yield running


@pytest.fixture(scope="session")
def engines(plugins, tmp_path_factory):
    """Give the PYTHONPATH that makes the changer and the recogniser of these tests known."""
    del plugins
    return with_path(install(tmp_path_factory.mktemp("changer"), "changer", "recogniser"))


@pytest.fixture
def work(engines):
    """Tell and end what the changer of these tests is at."""
    made = Work(Path(engines.partition(os.pathsep)[0]))
    yield made
    made.let_go()


@pytest.fixture(scope="session")
def start_with(start):
    """Start a service that knows the engines of a PYTHONPATH."""

    @contextlib.contextmanager
    def started(path, **options):
        before = os.environ["PYTHONPATH"]
        os.environ["PYTHONPATH"] = path
        try:
            running = start(**options).start()
        finally:
            os.environ["PYTHONPATH"] = before
        with contextlib.closing(SimpleNamespace(close=running.stop)):
            yield running

    return started


@pytest.fixture(scope="session")
def changing(start_with, engines):
    keys = ["main", "poor:14", "tiny:100", "one:100000:1", "count:100000", "second:100000"]
    options = [*OURS, "--job-timeout-s", "60", "--max-upload-mb", "2"]
    with start_with(engines, keys=keys, workers=2, options=options, allow_private_urls=True) as running:
        yield running


class Hold:
    """Work that goes on until it is let go: `text` tells the moody engines so."""

    def __init__(self, folder):
        self.path = Path(folder) / "go"
        self.text = f"until {self.path}"

    def begun(self):
        """Say whether a worker is at it."""
        return Path(f"{self.path}.begun").exists()

    def let_go(self):
        self.path.touch()


@pytest.fixture
def hold():
    # Of a short name: each character is billed.
    with tempfile.TemporaryDirectory(prefix="hold") as folder:
        made = Hold(folder)
        yield made
        made.let_go()


class Answer:
    """What came back."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def message(self):
        return self.json["error_message"]

    @property
    def code(self):
        return self.json["error_code"]

    @property
    def warnings(self):
        return self.headers.getall(chosen.WARNING_HEADER, [])

    @property
    def audio(self):
        return base64.b64decode(self.json["encodedAudio"], validate=True)


def _exact(schema):
    """Return a schema that refuses fields which it does not name."""
    if isinstance(schema, list):
        return [_exact(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return closed | {key: _exact(value) for key, value in schema.items()}


@functools.cache
def _page():
    return _exact(build_openapi())


@functools.cache
def _validator(method, template):
    from jsonschema import Draft202012Validator

    answer = _page()["paths"][template][method.lower()]["responses"]["200"]
    content = answer["content"].get(JSON_TYPE)
    return content and Draft202012Validator({**content["schema"], "components": _page()["components"]})


def stated_answer(method, path):
    """Return the validator of the stated answer of a call, or None if the answer is not JSON."""
    path = path.partition("?")[0]
    for endpoint in ENDPOINTS:
        is_called = re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", endpoint.path), path)
        if is_called and endpoint.method == method:
            return _validator(method, endpoint.path)
    return None


class Http:
    """A client without any cleverness, bound to one service."""

    def __init__(self, session, service, key):
        self.session, self.url, self.key = session, service.url, key

    async def ask(self, method, path, *, key=..., headers=None, **options):
        sent = dict(headers or {})
        key = self.key if key is ... else key
        if key is not None:
            sent[chosen.API_KEY_HEADER] = key
        url = path if path.startswith("http") else self.url + path
        async with self.session.request(method, url, headers=sent, **options) as response:
            answer = Answer(response.status, response.headers, await response.read())
        assert answer.headers[chosen.TRACE_HEADER], "every answer has a trace id"
        if answer.status >= 400 and method != "HEAD":
            assert set(answer.json) == {"error_message", "error_code", "trace_id"}
            assert answer.json["trace_id"] == answer.headers[chosen.TRACE_HEADER]
        if answer.status == 200 and (stated := stated_answer(method, path)) is not None:
            assert [error.message for error in stated.iter_errors(answer.json)] == []
        return answer

    async def get(self, path, **options):
        return await self.ask("GET", path, **options)

    async def generate(self, text="hello there", *, key=..., headers=None, **fields):
        body = {"text": text, "voiceId": VOICE, "sampleRate": 8000, **fields}
        return await self.ask("POST", "/v1/speech/generate", key=key, headers=headers, json=body)

    async def remaining(self, key=...):
        return (await self.get("/v1/limits", key=key)).json["remaining_characters"]


@pytest.fixture
async def session():
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as opened:
        yield opened


@pytest.fixture
async def http(session, service):
    return Http(session, service, "main")


@pytest.fixture
def http_to(session):
    """Give a client of another service than the shared one."""

    def make(service, key=None):
        return Http(session, service, key or service.api_key.get_secret_value())

    return make


@pytest.fixture(scope="session")
def tools():
    """Give the helpers below: test modules cannot import one another."""
    return SimpleNamespace(
        psutil=psutil,
        until=until,
        worker_pids=worker_pids,
        alive=alive,
        files_below=files_below,
        run_service=run_service,
    )


async def until(condition, limit_s=60.0, every_s=0.02):
    """Wait for a condition of the outside world."""
    end = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(every_s)
    return found


def worker_pids(pid):
    """Return the worker processes of a service process: it has no other children."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def files_below(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def run_service(*options, **popen):
    """Run the service as a command to its end."""
    command = [sys.executable, "-m", "speechframe.local.service", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **popen)
