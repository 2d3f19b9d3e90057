"""What the tests of promises share: services that fail as told, and runs through public names alone."""

import socket
import sys
import zlib
from pathlib import Path

import pytest

import speechframe as spf
from speechframe.testing import FaultyService

sys.path.insert(0, str(Path(__file__).parent))

RATE_HZ = 8000


@pytest.fixture(scope="module")
def services():
    """Make a service with the given knobs; one for each set of knobs that is fixed at its start."""
    made = []

    def make(**knobs):
        made.append(FaultyService(**knobs).start())
        return made[-1]

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def speak(tmp_path):
    """Make a run with options that keep it short."""

    def run(service, lines, *, run_dir=None, **options):
        fixed = {
            "voice": "en-US-nora",
            "sample_rate": RATE_HZ,
            "progress": False,
            "service": service.settings,
        }
        return spf.generate(lines, **fixed | {"run_dir": run_dir or tmp_path / "run"} | options)

    return run


@pytest.fixture
def silent():
    """Return the address of a service that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def lines(request):
    """Make lines that no other test sends: bills can be told apart."""
    of_this_test = zlib.crc32(request.node.nodeid.encode())

    def make(count, name=""):
        return [f"{number}: {name or 'a line'} of {of_this_test} goes on." for number in range(count)]

    return make
