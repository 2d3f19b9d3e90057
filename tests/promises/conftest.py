"""What the tests of promises share: services that fail as told, and runs through public names alone."""

import socket
import subprocess
import sys
import uuid
import zlib
from pathlib import Path

import fsspec
import pytest

import speechframe as spf
from speechframe.testing import FaultyService

sys.path.insert(0, str(Path(__file__).parent))

RATE_HZ = 8000
S3_SERVER = Path(__file__).with_name("s3_server.py")


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

    run.folder = tmp_path
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


@pytest.fixture(scope="module")
def port():
    process = subprocess.Popen([sys.executable, str(S3_SERVER), "0"], stdout=subprocess.PIPE, text=True)
    yield int(process.stdout.readline())
    process.kill()
    process.wait(60)
    process.stdout.close()


@pytest.fixture
def address(port, monkeypatch, tmp_path):
    """Return the address of a run that is not there yet, on a local S3 server."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKLOCALTEST", "AWS_SECRET_ACCESS_KEY": "made-up-secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true", "XDG_STATE_HOME": str(tmp_path / "state"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    files = fsspec.filesystem("s3")
    if not files.exists("runs"):
        files.mkdir("runs")
    return f"s3://runs/{uuid.uuid4().hex}"
