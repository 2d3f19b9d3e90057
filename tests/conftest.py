"""What every test gets: no settings of the person who runs it, and one embedded service for the session."""

import atexit
import gc
import itertools
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

import speechframe as spf
from speechframe.local.start import local_service

sys.path.insert(0, str(Path(__file__).parent))  # what all tests share lies beside this

import forked

subprocess.Popen = forked.ForkedPopen

# Several test runs may share a machine: how long one example takes says nothing about the code. Each run has other
# examples: half of the usual number finds as much within two runs.
hypothesis_settings.register_profile("speechframe", deadline=None, max_examples=50)
hypothesis_settings.load_profile("speechframe")


PYTHONPATH = os.environ.get("PYTHONPATH")

# Thousands of tests are made and kept: looking through them again and again finds nothing to free.
gc.disable()


def pytest_ignore_collect(collection_path, config):
    """Read no file without a quiet test where only those are asked for."""
    if config.option.markexpr.startswith("quiet") and collection_path.suffix == ".py":
        return "mark.quiet" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_finish():
    """Leave out of every later look what is there now."""
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Begin with the browser's tests: a file that takes a minute must not be left to one worker at the end."""
    items.sort(key=lambda item: item.path.parent.name != "widgets")
    variations = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            variations[item.path, item.originalname].append(item)
    for of_one in variations.values():
        (wanted,) = of_one[0].get_closest_marker("sampled").args
        kept = {place * len(of_one) // wanted for place in range(wanted)}
        for place, item in enumerate(of_one):
            if place not in kept:
                item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item):
    """Let only the service's own tests know the engine they install; before any fixture is made."""
    forked.prepared.is_wanted = item.get_closest_marker("fresh") is None
    if item.path.parent.name != "service":
        os.environ.pop("PYTHONPATH", None)
        if PYTHONPATH is not None:
            os.environ["PYTHONPATH"] = PYTHONPATH


CONFIGURED = {*spf.RunOptions.__annotations__, *spf.Settings.__dataclass_fields__}
numbers = itertools.count()
"""Of folders: to find the next free number, pytest would look at thousands of them for each test."""


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch, tmp_path_factory):
    """Forget what the environment or an earlier test configured; local data lies in a temp folder."""
    for name in [n for n in os.environ if n.startswith("SPEECHFRAME_") and n != "SPEECHFRAME_SOAK_ROUNDS"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPEECHFRAME_SERVICE", str(tmp_path_factory.getbasetemp() / "service"))
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path_factory.getbasetemp() / "ledger"))
    # Ports come again within the hour: what a test learned of one is nothing for the next test.
    permits = tmp_path_factory.mktemp(f"permits{next(numbers)}", numbered=False)
    monkeypatch.setattr(tempfile, "tempdir", str(permits))
    spf.configure(**dict.fromkeys(CONFIGURED))
    yield
    # Fixtures of the next module are set up before its first test forgets anything.
    spf.configure(**dict.fromkeys(CONFIGURED))


@pytest.fixture(scope="session")
def service():
    """The embedded local service, with speech, on a free port."""
    with local_service(quota=50_000_000, concurrency=8, workers=1) as running:
        yield running
