"""Real processes of the command, on a real embedded service that lives as long as the session."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from speechframe.local.start import local_service

SMALL_QUOTA = 60


@pytest.fixture(scope="session")
def service():
    """A running service with one rich key and one that is soon used up."""
    with local_service(keys=["rich-key", f"poor-key:{SMALL_QUOTA}"], workers=2) as running:
        rich, poor = (key.get_secret_value() for key in running.keys)
        yield SimpleNamespace(url=running.url, rich=rich, poor=poor)


def clean_environment():
    """Return no setting of this project, and not that output is unbuffered: its end is part of a command."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SPEECHFRAME_") and name != "PYTHONUNBUFFERED"
    }


@pytest.fixture
def environment(service):
    """What a process needs to find the service."""
    return {
        **clean_environment(),
        "SPEECHFRAME_API_KEY": service.rich,
        "SPEECHFRAME_BASE_URL": service.url,
        "PYTHONFAULTHANDLER": "1",
    }


@pytest.fixture
def start(environment, tmp_path):
    """Start ``speechframe ...`` in the test's folder; whatever still runs at the end is ended."""
    started = []

    def starter(*words, env=None, **how):
        merged = {k: v for k, v in {**environment, **(env or {})}.items() if v is not None}
        how = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            "cwd": tmp_path,
        } | how
        command = [sys.executable, "-m", "speechframe", *map(str, words)]
        process = subprocess.Popen(command, env=merged, **how)
        started.append(process)
        return process

    yield starter
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def cli(start):
    """Run ``speechframe ...`` to its end: ``.code``, ``.out``, ``.err``."""

    def runner(*words, env=None, **how):
        process = start(*words, env=env, **how)
        out, err = process.communicate(timeout=150)
        said = SimpleNamespace(code=process.returncode, raw=out)
        said.out, said.err = ((words or b"").decode(errors="replace") for words in (out, err))
        return said

    return runner


@pytest.fixture
def table(tmp_path):
    """A table of three short rows; returns its path."""
    path = tmp_path / "lines.csv"
    path.write_text("id,line,who\n01,Good morning.,nora\n02,See you soon.,hugo\n03,Good morning.,nora\n")
    return path


@pytest.fixture
def here(service, monkeypatch, tmp_path, capfd):
    """Run a command in this process: for what a usage error or a plan says, where a process is no part of it."""
    from speechframe.cli import main

    for name in ("REGIONS", "PROFILE", "SERVICE"):
        monkeypatch.delenv(f"SPEECHFRAME_{name}", raising=False)
    monkeypatch.setenv("SPEECHFRAME_API_KEY", service.rich)
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", service.url)
    monkeypatch.chdir(tmp_path)

    def runner(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return runner
