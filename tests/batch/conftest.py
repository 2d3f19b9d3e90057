"""Makes `faulty` and `kill_lab`, the tools of this folder, importable for its tests, and faulty services."""

import sys
from pathlib import Path

import pytest
from tenacity import wait_random_exponential

sys.path.insert(0, str(Path(__file__).parent))

from faulty import RATE_HZ, Faulty
from kill_lab import Lab

import speechframe as spf
from speechframe.batch import retry


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
