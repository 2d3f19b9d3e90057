"""A function that speaks a table with the local service, again and again into one folder."""

import pytest

import speechframe as spf


@pytest.fixture
def speak(service, tmp_path):
    def call(table, **options):
        fixed = {"voice": "en-US-nora", "id": "id", "run_dir": tmp_path / "audio", "progress": False}
        return spf.generate(table, service=service.settings, **fixed | options)

    return call


@pytest.fixture
def sent():
    """Return a function that counts the calls of a run that were sent so far."""

    def count(run):
        return int((run.ledger["status"] == "done").sum())

    return count
