"""The demo, and every line it says to try."""

import re
import shlex
import subprocess
import sys

import pytest

from speechframe.cli import exits

LINES = """id,kind,voice,text
0001,greeting,en-US-nora,Good morning.
0002,greeting,fr-FR-hugo,Bonjour à tous.
0003,number,en-US-nora,It is 8 o'clock.
0004,number,en-US-nora,It is 8 o'clock.
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lines.csv").write_text(LINES, encoding="utf-8")
    return tmp_path


def tries(words):
    """Return the Python blocks and the shell lines of what the demo printed."""
    blocks = re.findall(r"(?:^ {4}.*\n)+", words, flags=re.MULTILINE)
    python = [
        re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in blocks if not block.startswith("    $")
    ]
    shell = [line[6:] for block in blocks for line in block.splitlines() if line.startswith("    $ ")]
    return python, shell


def test_the_demo_speaks_and_everything_it_says_to_try_works(cli, here, folder, environment):
    # No key, no address: the service is its own, and what is set for another one does not matter.
    own = {"SPEECHFRAME_SERVICE": str(folder / "svc")}
    ended = cli("demo", "--table", "lines.csv", "--run-dir", "runs/a demo", env=own)
    assert ended.code == 0, ended.err
    assert "4 rows in 2 locales (en-US, fr-FR) by 2 voices" in ended.out
    assert "minutes of audio" in ended.out
    assert "44 credits" in ended.out
    assert "run folder: runs/a demo" in ended.out
    assert "\r" not in ended.err

    python, shell = tries(ended.out)
    assert len(python) == 4
    assert len(shell) == 4
    # The session's service has the same engine, so it is the same service to a run folder.
    command = [sys.executable, "-c", "\n".join(python)]
    ran = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "en-US-nora" in ran.stdout
    assert "4 rows in the dataset" in ran.stdout
    assert (folder / "first.wav").stat().st_size > 1000
    for line in shell:
        command, *words = shlex.split(line)
        again = here(*words)
        assert (command, again.code) == ("speechframe", 0), again.err


def test_the_demo_without_its_table_says_what_to_pass(here):
    ended = here("demo")
    assert ended.code == exits.WRONG_USAGE
    assert "--table" in ended.err
    assert "text,voice" in ended.err


def test_a_table_without_voices_is_refused_by_name(here, folder):
    (folder / "odd.csv").write_text("text,speaker\nHello.,nora\n")
    ended = here("demo", "--table", "odd.csv")
    assert ended.code == exits.WRONG_USAGE
    assert "odd.csv lacks the column voice; it has text, speaker" in ended.err
