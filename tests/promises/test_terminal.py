"""Whatever a service or the run of somebody else says, no terminal is told anything by it."""

import io
import json
import logging
import re
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import soundfile as sf
from aiohttp import web
from dub_service import DubService

import speechframe as spf
from speechframe.cli.app import main

ODD = "\x1b]0;a new title\x07\x1b[2J\x9b31m\u202eabc\u2066\u2028x\r"
"""A new title, a clear screen, red letters, letters from right to left, a new line, and the line over again."""
HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class OddWords(DubService):
    """Each text for people that a status has is odd."""

    async def status(self, request):
        answer = json.loads((await super().status(request)).body)
        for detail in answer["download_details"]:
            detail |= {"step": f"step {ODD}", "error_message": f"error {ODD}"}
            detail.pop("download_url", None)
        return web.json_response(answer | {"failure_reason": f"reason {ODD}"})


@pytest.fixture
def service():
    found = OddWords(statuses=["IN_PROGRESS", "FAILED"])
    found.up()
    yield found
    found.down()


@pytest.fixture
def said(service, monkeypatch, tmp_path):
    """Run a command; return what it wrote to both outputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", service.settings.base_url)
    monkeypatch.setenv("SPEECHFRAME_API_KEY", service.settings.api_key.get_secret_value())

    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            main(words)
        return out.getvalue(), err.getvalue()

    return run


def test_words_of_a_service_and_of_another_s_run_do_nothing_to_a_terminal(service, said, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    sf.write(tmp_path / "film.wav", np.zeros(8000), 8000)
    out, err = said("dub", "film.wav", "--targets", "pt-BR", "--run-dir", "run")
    assert "step" in err
    assert "error" in out
    jobs = said("jobs", "run")[0]
    assert "step" in jobs
    told = said("jobs", "run", "--json")[0]
    assert "reason" in json.loads(told)["jobs"][0]["failure_reason"]
    run = spf.open_run(tmp_path / "run")
    assert "error" in run.to_pandas()["error_message"].iloc[0]
    # A run that came from elsewhere: its files hold anything.
    manifest = json.loads((tmp_path / "run/run.json").read_text())
    manifest |= {"service": f"service {ODD}", "state": "stopped", "stopped_because": "budget"}
    (tmp_path / "run/run.json").write_text(json.dumps(manifest | {"stopped_words": f"why {ODD}"}))
    run = spf.open_run(tmp_path / "run")
    assert "why" in repr(run)
    with pytest.raises(spf.SpeechframeError) as caught:
        spf.resume(run, service=service.settings, progress=False)
    texts = {
        "out": out,
        "err": err.replace("\r", "").replace("\x1b[A", ""),  # the progress bar's own
        "jobs": jobs,
        "json": told,
        "repr": repr(run),
        "summary": run.summary(),
        "message": run.failed["error_message"].iloc[0],
        "error": str(caught.value),
        "runs": "".join(said("runs", "ls", ".", "--json")) + "".join(said("runs", "ls", ".")),
        "log": caplog.text,
    }
    assert {name for name, text in texts.items() if HARMFUL.search(text)} == set()
