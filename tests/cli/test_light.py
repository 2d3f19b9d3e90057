"""The command starts light: nobody waits for Arrow to read a help page, or to look at folders."""

import json
import subprocess
import sys

from speechframe.cli.app import list_commands

HEAVY = (
    "pydantic",
    "aiohttp",
    "numpy",
    "pandas",
    "pyarrow",
    "soundfile",
    "speechframe.local.service",
    "speechframe.local.start",
)
# One process: what a command imports is there for the next ones.
CODE = f"""
import sys, json
from speechframe.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit:
        pass
    print("\\nLOADED " + json.dumps([m for m in {HEAVY!r} if m in sys.modules]))
"""


def loaded(folder, *commands):
    """Return what is imported after each command, in a process for all of them."""
    command = [sys.executable, "-c", CODE, json.dumps(commands)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    return [json.loads(line[7:]) for line in ended.stdout.splitlines() if line.startswith("LOADED ")]


def test_a_command_imports_no_more_than_it_needs(tmp_path):
    *helps, spec, caches, runs = loaded(
        tmp_path, ["--help"], ["--version"], ["nonsense"], ["spec"], ["cache", "ls"], ["runs", "ls"]
    )
    assert helps == [[], [], []]
    assert spec == ["pydantic"]
    # Listing needs Arrow alone.
    assert not {"pandas", "aiohttp", "speechframe.local.service", "speechframe.local.start"} & {
        *caches,
        *runs,
    }


def test_a_help_page_imports_no_more_than_its_options_need(tmp_path):
    names = [name for name in list_commands() if name not in {"voices", "serve", "spec"}]
    found = loaded(tmp_path, *([name, "--help"] for name in names))
    assert {name: heavy for name, heavy in zip(names, found, strict=True) if heavy} == {}
    assert loaded(tmp_path, ["spec", "--help"], ["voices", "--help"])[-1] == ["pydantic"]
    assert loaded(tmp_path, ["serve", "--help"]) == [["pydantic", "speechframe.local.service"]]
