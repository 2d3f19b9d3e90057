"""Options come from signatures and docstrings: what is declared once appears by itself."""

import argparse
import inspect
import json
import shutil
import subprocess
import sys
import typing
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pytest

import speechframe
from speechframe import aio
from speechframe.cli import declared, docstrings
from speechframe.cli.app import list_commands, make_parser
from speechframe.settings.spending import OPERATIONS
from speechframe.tables.column import Column
from speechframe.verbs import RUN_VERBS

SHOUT = '''
from collections.abc import Mapping
from typing import Any, Unpack

from speechframe.batch.live import Run
from speechframe.batch.run_options import RunOptions
from speechframe.scale.run import make_run
from speechframe.tables.column import Column
from speechframe.verbs.generate import GenerateBackend


class ShoutBackend(GenerateBackend):
    operation = "shout"
    arguments = (*GenerateBackend.arguments, "times")

    def check(self, values):
        values = dict(values)
        times = values.pop("times", 1)
        return super().check({**values, "text": values["text"].upper() * times})


async def shout(
    table: Any,
    *,
    text: str | Column | Any = "text",
    voice: str | Column | Any,
    times: int = 1,
    politely: bool = False,
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run` with every row of `table` shouted.

    Parameters
    ----------
    table
        A table.
    text
        The column of text.
    voice
        Who shouts; ``col("x")`` asks a column, 100 % of the time.
    times
        How often.
    politely
        Add nothing.
    """
    arguments = {"text": text, "voice": voice, "times": times}
    return await make_run(ShoutBackend.from_constants(options.get("service"), arguments), table, arguments, options)
'''

LINES = {
    "aio.py": "from speechframe.verbs import shout as _shout\nshout = _with_service(_shout.shout)\n",
    "api.py": "shout = make_sync(aio.shout)\n",
    "verbs/__init__.py": """
RUN_VERBS = {**RUN_VERBS, "shout": Verb("Shout each row of a table.", "shout:ShoutBackend")}
""",
}
"""What a verb takes beside its own file: a line in the table and in either face (and its public name)."""


@pytest.fixture
def toy(tmp_path, environment):
    """Run a command of a copy of the package that has one verb more."""
    package = tmp_path / "copy" / "speechframe"
    shutil.copytree(Path(speechframe.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "verbs" / "shout.py").write_text(SHOUT)
    for name, lines in LINES.items():
        with (package / name).open("a") as file:
            file.write(lines)

    def runner(*words):
        # Not `-m speechframe`, which tests fork from the package that they have imported.
        command = [sys.executable, "-c", "from speechframe.cli import main; raise SystemExit(main())"]
        return subprocess.run(
            [*command, *map(str, words)],
            check=False, cwd=tmp_path, env={**environment, "PYTHONPATH": str(package.parent)},
            capture_output=True, text=True,
        )  # fmt: skip

    return runner


@pytest.mark.slow
def test_a_toy_verb_is_a_file_and_appears_everywhere(toy, table):
    words = ["--text", "line", "--voice-col", "who", "--times", "2", "--id", "id", "--run-dir", "run"]
    ended = toy("shout", table, *words, "--json")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["operation"], said["done"], said["exit_code"]) == ("shout", 3, 0)
    # "GOOD MORNING." and "SEE YOU SOON.", twice each
    assert said["credits"] == 52
    again = json.loads(toy("resume", "run", "--redo", "02", "--json").stdout)
    assert (again["operation"], again["calls"], again["credits"]) == ("shout", 1, 78)


@pytest.mark.slow
def test_a_toy_verb_says_of_itself_what_the_table_and_its_docstring_say(toy):
    listed, told = toy("--help").stdout, toy("shout", "--help").stdout
    assert "Shout each row of a table." in listed
    words = " ".join(told.split())
    assert "Every row of table shouted." in words
    assert "shout TABLE (--voice VOICE | --voice-col COLUMN) [options]" in words
    assert "Who shouts; --voice-col x asks a column, 100 % of the time." in words
    assert "--politely, --no-politely Add nothing." in words
    assert "--times N How often." in words
    assert "--times-col" not in words
    assert "--max-credits" in words


def options_of(command):
    parser = make_parser([command])
    below = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {name for action in below.choices[command]._actions for name in action.option_strings}


PARAMETERS = {"generate": 20, "translate": 4, "change_voice": 16, "dub": 13, "transcribe": 4}
COLUMNS = {
    "generate": {
        "--voice-col",
        "--rate-col",
        "--spoken",
        "--fill",
        "--fill-col",
        "--cast",
        "--pronunciations",
    },
    "change_voice": {"--audio", "--voice-col", "--transcription-col"},
    "translate": {"--source-locale-col", "--target", "--targets", "--glossary", "--translations"},
    "transcribe": {"--audio", "--reference", "--locale-col", "--recogniser"},
    "dub": {"--target", "--targets", "--media", "--scripts-col", "--seconds", "--out", "--no-wait"},
}


@pytest.mark.parametrize("verb", RUN_VERBS)
def test_every_parameter_of_a_verb_and_every_run_option_is_offered(verb):
    offered = options_of(declared.make_command_name(verb))
    function = getattr(aio, verb)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert len(names) >= PARAMETERS[verb]
    assert {docstrings.make_option_name(name) for name in names if name != "webhook_secret"} <= offered
    run = set(typing.get_type_hints(speechframe.RunOptions)) - {"wait", "service", "tags", "on_alert"}
    assert {docstrings.make_option_name(name) for name in run} | {
        "--tag",
        "--no-progress",
        "--json",
    } <= offered
    assert not {"--wait", "--service", "--on-alert", "--api-keys", "--table", "--tags"} & offered
    assert COLUMNS[verb] <= offered
    assert not {"--text-col", "--webhook-secret", "--target-col", "--model-col", "--run-dir-col"} & offered
    parameters = [*declared.read_parameters(function), *declared.read_run_options()]
    assert [p.name for p in parameters if len(p.help) < 5] == []


def test_the_cache_is_explained_in_words_of_a_shell(here):
    told = " ".join(here("generate", "--help").out.split())
    shared = told.partition("--cache PATH ")[2].partition("--max-attempts")[0]
    assert shared.startswith("Folder of answers that runs share. A call whose answer is in it is free")
    assert "SPEECHFRAME_CACHE" in shared
    assert "--no-cache use no cache, even if the settings name one" in shared
    assert not {"True", "False"} & set(shared.replace(",", " ").split())


def test_a_table_after_the_cache_is_not_taken_for_its_folder(here, table):
    said = here("generate", "--cache", table, "--voice", "nora")
    assert said.code == 2
    assert "required: TABLE" in said.err


def test_the_table_of_verbs_names_their_functions_and_backends():
    # Settings of budgets and prices name the same operations.
    assert tuple(RUN_VERBS) == OPERATIONS
    for name, verb in RUN_VERBS.items():
        read, backend = declared.load_verb_stub(name), verb.backend()
        assert (read.__name__, backend.operation) == (name, name)
        parameters = declared.read_parameters(read)
        assert parameters == declared.read_parameters(getattr(aio, name))
        assert {
            parameter.name for parameter in parameters if parameter.names_column
        } == backend.data_arguments


def test_every_verb_is_a_command():
    names = list(list_commands())
    assert names[:4] == ["demo", "serve", "voices", "say"]
    others = [
        "resume",
        "export",
        "strings",
        "jobs",
        "runs",
        "quality",
        "usage",
        "reconcile",
        "report",
        "cache",
        "listening-test",
        "review",
        "spec",
        "models",
        "doctor",
    ]
    assert {declared.make_command_name(name) for name in RUN_VERBS} == {*names[4 : -len(others)]}
    assert names[-len(others) :] == others


@pytest.mark.parametrize("words", ["team", "=ads"])
def test_a_tag_needs_a_name_and_a_value(here, table, words):
    said = here("generate", table, "--text", "line", "--voice", "nora", "--tag", words)
    assert said.code == 2
    assert f"argument --tag: {words!r} is not of the form NAME=VALUE" in said.err


async def odd(
    table: Any,
    *,
    needed: str,
    line: str | Column | Any = "line",
    count: int | Column | Any = None,
    share: float | None = None,
    flag: bool | Column | Any = None,
    words: list[str] | None = None,
    how: Literal["fast", "slow"] = "fast",
    spelled: Mapping[str, Any] | None = None,
    place: str | PathLike[str] | None = None,
    spot: str | PathLike[str] | bool | None = None,
    anything: Any = 3,
) -> None:
    """Do odd things."""


def parsed(*words):
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    declared.add_options(parser, declared.read_parameters(odd))
    return declared.collect_values(parser.parse_args(words))


def test_words_become_values_of_the_declared_type(tmp_path):
    (tmp_path / "said.json").write_text('{"a": 2}')
    for words, expected in (
        ([], {}),
        (["--count", "-5", "--share", "0.5"], {"count": -5, "share": 0.5}),
        (["--count-col", "n", "--flag-col", "f"], {"count": Column("n"), "flag": Column("f")}),
        (["--flag", "--no-spot"], {"flag": True, "spot": False}),
        (["--no-flag", "--spot", "a/b"], {"flag": False, "spot": "a/b"}),
        (["--word", "a", "--word", "b", "--how", "slow"], {"words": ["a", "b"], "how": "slow"}),
        (["--spelled", '{"a": 1}', "--place", "a/b"], {"spelled": {"a": 1}, "place": "a/b"}),
        (["--spelled", f"@{tmp_path}/said.json", "--anything", "4"], {"spelled": {"a": 2}, "anything": 4}),
    ):
        assert parsed("--needed", "x", *words) == {"needed": "x", **expected}
    found = {p.name: p for p in declared.read_parameters(odd)}
    assert (found["line"].names_column, found["line"].takes_column) == (True, False)
    assert (found["count"].names_column, found["count"].takes_column) == (False, True)


@pytest.mark.parametrize(
    "words",
    ["--count many", "--how other", "--spelled {", "--spelled [1]", "--spelled @nowhere.json", "--count 1 --count-col n",
     "--share-col n", "--need x", "--no-place", "--spot", "--spot a --no-spot"],
)  # fmt: skip
def test_what_does_not_fit_is_a_usage_error(words, capsys):
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        parsed("--needed", "x", *words.split())


def test_a_file_may_hold_the_json(tmp_path):
    (tmp_path / "said.json").write_text('{"Nguyen": {"type": "SAY_AS", "pronunciation": "win"}}')
    assert (
        parsed("--needed", "x", "--spelled", f"@{tmp_path}/said.json")["spelled"]["Nguyen"]["type"]
        == "SAY_AS"
    )


def test_docstrings_are_read_by_section():
    said = docstrings.read_docstring(
        """Return a :class:`Run` with all of `it` made.

        More words,
        on two lines.

        Parameters
        ----------
        pitch, rate
            From ``-50``

            to 50.
        **options
            See :func:`~a.b`.

        Raises
        ------
        ValueError
            Never.
        """
    )
    assert said.summary == "All of it made."
    assert said.body == "More words,\non two lines."
    assert said.parameters == {"pitch": "From -50 to 50.", "rate": "From -50 to 50.", "options": "See a.b."}


def test_sheets_of_generate_are_files(here, table, tmp_path):
    table.write_text("line,character\n<b>{n} SQL</b>,Anna\n<i/>,Ben\n")
    (tmp_path / "cast.csv").write_text("character,voice\nAnna,nora\n")
    (tmp_path / "words.csv").write_text("word,say_as\nSQL,sequel\nGIF,jif\n")
    words = ["--text", "line", "--cast", "cast.csv", "--pronunciations", "words.csv", "--run-dir", "run"]
    told = here("generate", table, *words, "--spoken", "--fill", '{"*": {"n": 2}}')
    assert "1 done, 1 skipped" in told.out
    assert "5 credits" in told.out
    assert "1 row: there is nothing to speak" in told.err
    assert "in no row: 'GIF'" in told.err
    refused = here("generate", table, *words)
    assert refused.code != 0
    assert "has no line for the character 'Ben'" in refused.err
