"""The command starts light: nobody waits for Arrow to read a help page."""

import subprocess
import sys

import pytest

HEAVY = ("pandas", "pyarrow", "aiohttp", "numpy", "soundfile", "pydantic")


def loaded(*words):
    code = (
        "import sys\nfrom speechframe.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code, *words], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]


@pytest.mark.parametrize("word", ["--help", "--version", "nonsense"])
def test_nothing_heavy_is_imported_before_a_command_is_known(word):
    assert loaded(word) == "[]"


def test_the_document_and_the_service_options_need_no_tables_and_no_web_client():
    for words in (["spec"], ["serve", "--help"]):
        assert loaded(*words) == "['pydantic']"
