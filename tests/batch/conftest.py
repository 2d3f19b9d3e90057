"""Makes the tools of this folder, `faulty` and `kill_lab` among them, importable for its tests, and faulty services."""

import signal
import sys
from pathlib import Path

import pytest
from tenacity import wait_random_exponential

sys.path.insert(0, str(Path(__file__).parent))

from ends import LINES
from faulty import RATE_HZ, Faulty
from kill_lab import Lab

import speechframe as spf
from speechframe.old_batch import retry


@pytest.fixture
def make_faulty():
    """Start services that fail on command."""
    made = []

    def make(**options):
        server = Faulty(**options)
        server.up()
        made.append(server)
        return server

    yield make
    for server in made:
        server.down()


@pytest.fixture
def faulty(make_faulty):
    """A faulty service that honours Idempotency-Key."""
    return make_faulty()


@pytest.fixture
def hosted(make_faulty):
    """A faulty service without any of our additions."""
    return make_faulty(idempotent=None)


@pytest.fixture
def slow(make_faulty):
    """A service without any of our additions, 400 ms a call: what is lost stays lost."""
    return make_faulty(idempotent=None, delay_s=0.4)


@pytest.fixture
def spawn(lab, tmp_path):
    """Start a client of LINES as a process of its own, as a person does in a terminal."""
    clients = []

    def start(server, way, **options):
        clients.append(lab.start(LINES, server.settings, tmp_path / "run", way=way, **options))
        return clients[-1]

    yield start
    for client in clients:
        client.signal(signal.SIGKILL)
        client.end()


@pytest.fixture
def quick(monkeypatch):
    """Waits between attempts are short."""
    monkeypatch.setattr(retry, "_backoff", wait_random_exponential(multiplier=0.01, max=0.05))


@pytest.fixture
def speak(tmp_path):
    """Speak texts on a faulty service, into one folder a test."""

    def call(server, texts, **options):
        fixed = {"voice": "nora", "sample_rate": RATE_HZ, "progress": False, "max_concurrency": 4}
        given = {"service": server.settings, "run_dir": tmp_path / "run", **fixed, **options}
        return spf.generate(texts, **given)

    call.folder = tmp_path / "run"
    return call


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """Clients as processes of their own, to be stopped and killed."""
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()
