"""``speechframe listening-test``: real processes, real ports; no service is needed."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "listening"))

from listening_lab import CONDITIONS, begin, made, vote

from speechframe.cli import exits, main
from speechframe.listening.test import open_test


@pytest.fixture
def folder(tmp_path):
    made(tmp_path / "test")
    return tmp_path / "test"


def call(capfd, *words):
    try:
        code = main([str(word) for word in words])
    except SystemExit as end:
        code = end.code
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture
def serve(folder):
    """Serve the test in a process of its own; returns it with what it said first."""
    started = []

    def starter(*words):
        command = [sys.executable, "-m", "speechframe", "listening-test", "serve", folder, "--json", *words]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield starter
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def listen(link):
    """Vote on every trial by a link."""
    with urllib.request.urlopen(link, timeout=60) as answer:
        page = answer.read().decode()
    plan = json.loads(re.search(r'id="spf-state">(.*?)</script>', page, re.DOTALL)[1])["plan"]
    for message in [begin(), *(vote(plan, trial) for trial in range(len(plan["trials"])))]:
        data, kind = json.dumps(message).encode(), {"content-type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{link}messages", data, kind), timeout=60
        ) as answer:
            assert json.load(answer)["kind"] in {"begun", "stored"}


def test_a_test_is_served_until_all_have_finished(serve, folder):
    process, said = serve("--listeners", "2")
    assert list(said["links"]) == ["listener-01", "listener-02"]
    for link in said["links"].values():
        listen(link)
    _, err = process.communicate(timeout=60)
    assert process.returncode == exits.OK
    assert "listener-02 has finished (2 of 2)" in err
    assert len(open_test(folder).votes) == 8
    assert not any(name in err for name in CONDITIONS)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, exits.OK), (signal.SIGTERM, 143)])
def test_whoever_stops_it_keeps_every_vote(serve, folder, how, code):
    process, said = serve("--listeners", "2")
    listen(said["links"]["listener-02"])
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == code
    assert set(open_test(folder).votes["listener"]) == {"listener-02"}


def test_a_vote_survives_the_death_of_the_server_and_the_link_does_too(serve, folder):
    process, said = serve("--listeners", "1")
    listen(said["links"]["listener-01"])
    process.kill()
    process.wait()
    assert len(open_test(folder).votes) == 4
    _, again = serve("--listeners", "1", "--port", said["url"].rsplit(":", 1)[1])
    assert again["links"] == said["links"]


def test_pages_are_written_one_for_each_listener(folder, tmp_path, capfd):
    code, out, _ = call(
        capfd, "listening-test", "pages", folder, "--listeners", 2, "--out", tmp_path / "pages"
    )
    assert code == exits.OK
    assert "2 pages" in out
    names = sorted(path.name for path in (tmp_path / "pages").iterdir())
    assert names == ["listener-01.html", "listener-02.html"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_votes_by_link_and_by_file_come_together_in_one_table(folder, tmp_path, capfd, ending):
    from test_offline import handed_in

    test = open_test(folder)
    handed_in(test.to_html(listener=2), tmp_path / "came-back")
    assert test.reply(1, begin())["kind"] == "begun"
    assert test.reply(1, vote(test.plan(1), 1))["kind"] == "stored"
    out = tmp_path / f"votes.{ending}"
    code, said, _ = call(
        capfd, "listening-test", "votes", folder, "--files", tmp_path / "came-back", "--out", out, "--json"
    )
    assert code == exits.OK
    assert json.loads(said) == {
        "test": test.test_id,
        "votes": 4,
        "practice": 1,
        "listeners": 2,
        "out": str(out),
    }
    frame = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert list(frame["listener"]) == ["listener-01"] + ["listener-02"] * 4


def test_a_table_of_votes_is_written_with_the_folders_it_lies_in(folder, tmp_path, capfd):
    out = tmp_path / "missing" / "folder" / "votes.csv"
    code, said, _ = call(capfd, "listening-test", "votes", folder, "--out", out)
    assert (code, "0 votes of 0 listeners, and 0 for practice" in said) == (exits.OK, True)
    assert out.read_text().startswith("test_id,listener,")
    (tmp_path / "a file").touch()
    below = tmp_path / "a file" / "votes.csv"
    code, _, err = call(capfd, "listening-test", "votes", folder, "--out", below)
    assert code == exits.FOLDER_UNUSABLE
    assert f"{below} cannot be written: File exists ({below.parent}); name another place with --out" in err


def test_pages_that_cannot_be_written_say_where_and_why(folder, tmp_path, capfd):
    (tmp_path / "a file").touch()
    code, _, err = call(capfd, "listening-test", "pages", folder, "--out", tmp_path / "a file")
    assert code == exits.FOLDER_UNUSABLE
    assert f"{tmp_path / 'a file'} cannot be written: File exists; name another place with --out" in err


def test_a_file_that_is_none_of_its_own_is_named(folder, tmp_path, capfd):
    (tmp_path / "came-back").mkdir()
    (tmp_path / "came-back" / "odd.json").write_text("{}")
    code, _, err = call(capfd, "listening-test", "votes", folder, "--files", tmp_path / "came-back")
    assert code == exits.ROWS_FAILED
    assert "odd.json: does not contain votes" in err


@pytest.mark.parametrize(
    "words",
    [("serve", ".", "--port", "70000"), ("votes", ".", "--out", "votes.txt"), ()],
    ids=lambda words: " ".join(words) or "nothing",
)  # fmt: skip
def test_wrong_words_are_a_wrong_usage(words, capfd):
    code, _, err = call(capfd, "listening-test", *words)
    assert code == exits.WRONG_USAGE
    assert err


@pytest.mark.parametrize(
    "action", [("serve",), ("votes",), ("pages", "--out", "pages")], ids=lambda words: words[0]
)
def test_a_folder_without_a_test_is_said(action, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capfd, "listening-test", action[0], tmp_path / "nothing", *action[1:])
    assert code == exits.FOLDER_UNUSABLE
    assert "nothing" in err
