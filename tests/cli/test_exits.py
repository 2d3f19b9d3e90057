"""Every exit code, met for real; what each one means is one table."""

import fcntl
import json
import re

import pytest

from speechframe import errors
from speechframe.cli import exits
from speechframe.store.schema import StopReason


def test_the_table_is_what_help_prints(here):
    said = here("--help")
    assert said.code == 0
    assert exits.make_epilog() in said.out
    assert {0, 1, 2, 3, 4, 5, 6, 130} <= set(exits.EXIT_CODES)


def test_every_error_has_a_code_of_the_table():
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.SpeechframeError)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        assert exits.find_error_code(kind.__new__(kind)) in exits.EXIT_CODES


def test_every_reason_to_stop_has_a_code_of_the_table():
    reasons = {reason.value for reason in StopReason} - {"failed"}
    assert reasons == set(exits._CODE_BY_REASON)
    assert {exits.find_run_code(reason, {}) for reason in reasons} <= {
        exits.LIMIT_REACHED,
        exits.SERVICE_UNUSABLE,
        exits.INTERRUPTED,
    }


def test_0_everything_was_done(here, table):
    said = here("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run")
    assert said.code == exits.OK
    assert "3 rows: 3 done" in said.out
    assert said.out.endswith("run folder: run\n")


def test_1_some_rows_failed(here, tmp_path):
    (tmp_path / "odd.csv").write_text("text\nGood morning.\n今日今日\n", encoding="utf-8")
    said = here("generate", "odd.csv", "--voice", "nora", "--run-dir", "run")
    assert said.code == exits.ROWS_FAILED
    assert "1 done, 1 failed" in said.out
    assert re.search(r"^1 +failed +INVALID_REQUEST", said.out, flags=re.MULTILINE)
    assert "continue with: speechframe resume run" in said.out


def test_1_invalid_rows_that_were_left_out_have_no_audio_either(here, tmp_path):
    (tmp_path / "odd.csv").write_text("id,text\n1,Good morning.\n2,\n")
    said = here(
        "generate", "odd.csv", "--id", "id", "--voice", "nora", "--run-dir", "run", "--on-invalid", "skip"
    )
    assert said.code == exits.ROWS_FAILED
    assert "1 done, 1 invalid" in said.out
    assert re.search(r"^2 +invalid +text is missing", said.out, flags=re.MULTILINE)
    words = "correct these rows in the table, then continue with: speechframe resume run --table TABLE\n"
    assert said.out.endswith(f"\n{words}")
    (tmp_path / "odd.csv").write_text("id,text\n1,Good morning.\n2,Good night.\n")
    assert here("resume", "run", "--table", "odd.csv").code == exits.OK


@pytest.mark.parametrize(
    "words", [["--voic", "nora"], ["--voic=nora"], ["--voice", "nora", "--fromat", "WAV"]]
)
def test_2_a_misspelt_option_is_told_with_the_nearest(here, table, words):
    said = here("generate", table, *words)
    assert said.code == exits.WRONG_USAGE
    nearest = (
        "--fromat: did you mean '--format'?" if "--fromat" in words else "--voic: did you mean '--voice'?"
    )
    assert said.err.endswith(f"; {nearest}\n")
    assert here("runs", "ls", "--jsn").err.endswith("; --jsn: did you mean '--json'?\n")


def test_messages_name_options_instead_of_python_arguments(here, table, tmp_path):
    words = ["generate", table, "--text", "line", "--voice", "nora"]
    assert (
        "--model gen2, or another voice; see speechframe voices --model falcon-2,"
        in here(*words, "--model", "falcon-2").err
    )
    (tmp_path / "speechframe.toml").write_text('max_credits_per_run = 10\nrequire_tags = ["team"]\n')
    assert "Give --tag team=..." in here(*words).err
    said = here(*words, "--tag", "team=a", "--max-credits", "12")
    assert "--max-credits 12 is above max_credits_per_run=10" in said.err
    assert "Give a smaller --max-credits" in said.err
    assert "--max-attempts 0" in here(*words, "--max-attempts", "0").err
    said = here(*words, "--tag", "team=a", "--max-credits", "5", "--no-progress")
    assert "with a higher --max-credits" in said.out


@pytest.mark.parametrize("words", [["--port", "99999"], ["--workers", "-1"], ["--host", "0.0.0.0"]])
def test_2_an_option_of_serve_is_wrong(here, words):
    said = here("serve", *words)
    assert said.code == exits.WRONG_USAGE
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        [], ["nonsense"], ["translate", "lines.csv"], ["generate", "nowhere.csv", "--voice", "nora"],
        ["generate", "lines.csv", "--voice", "nora", "--max-attempts", "0"],
        ["generate", "lines.csv", "--voice", "nora", "--voice-col", "who"],
        ["resume", "run", "--table", "lines.csv", "--redo", "1"], ["say", "Hello", "--voice", "nora", "-o", "nowhere/hello.wav"],
        ["say", "Hello", "--voice", "nora", "-o", "hello.txt"], ["voices", "--model", "gen9"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_2_usage(here, table, words):
    said = here(*words)
    assert said.code == exits.WRONG_USAGE
    assert "usage:" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("words", "usage", "refused"),
    [
        (["runs", "ls", "--deep"], "runs ls", "--deep"),
        (
            ["generate", "lines.csv", "--voice", "nora", "--max-credit", "5"],
            "generate TABLE",
            "--max-credit 5",
        ),
        (["voices", "fr-FR"], "voices", "fr-FR"),
    ],
)
def test_2_an_unknown_option_shows_the_usage_of_its_command(here, table, words, usage, refused):
    said = here(*words)
    assert (said.code, said.out) == (exits.WRONG_USAGE, "")
    command = usage.removesuffix(" TABLE")
    assert said.err.startswith(f"usage: speechframe {usage} ")
    assert f"error: unrecognized arguments: {refused}; allowed: see speechframe {command} --help" in said.err
    assert here(*command.split(), "--help").code == exits.OK


def test_2_an_unknown_option_before_any_command_shows_the_usage_of_all(here):
    said = here("--nonsense")
    assert (said.code, said.out) == (exits.WRONG_USAGE, "")
    assert said.err.startswith("usage: speechframe [-h]")
    assert "allowed: see speechframe --help" in said.err


def test_3_invalid_rows_and_nothing_spent(here, table, tmp_path):
    said = here("generate", table, "--text", "line", "--voice", "norah", "--run-dir", "run", "--id", "id")
    assert said.code == exits.ROWS_INVALID
    assert "nothing was sent" in said.err
    assert "nora" in said.err
    assert not (tmp_path / "run").exists()


def test_3_names_the_option_that_was_meant(here, table):
    assert "cast" in here("generate", table, "--text", "line").err
    said = here("generate", table, "--text", "line", "--voice", "who")
    assert said.code == exits.ROWS_INVALID
    assert "did you mean --voice-col who?" in said.err
    assert "Traceback" not in said.err


def test_4_the_budget(here, table):
    said = here(
        "generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run", "--max-credits", "15"
    )
    assert said.code == exits.LIMIT_REACHED
    assert "(budget)" in said.out
    assert "continue with: speechframe resume run" in said.out


def test_4_the_budget_of_the_month(here, table, tmp_path):
    (tmp_path / "speechframe.toml").write_text("max_credits_per_month = 15\n")
    said = here("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run", "--no-progress")
    assert said.code == exits.LIMIT_REACHED
    assert "(budget)" in said.out
    assert "max_credits_per_month=15" in said.out


def test_4_the_quota_of_the_key(here, service, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", service.poor)
    (tmp_path / "long.csv").write_text(
        "text\n" + "".join(f"This is line number {n} of many.\n" for n in range(5))
    )
    said = here("generate", "long.csv", "--voice", "nora", "--run-dir", "run", "--max-concurrency", "1")
    assert said.code == exits.LIMIT_REACHED
    assert "(quota)" in said.out
    assert service.poor not in said.out + said.err


def test_5_a_wrong_key(here, table, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", "very-wrong-key")
    said = here("generate", table, "--text", "line", "--voice", "nora")
    assert said.code == exits.SERVICE_UNUSABLE
    assert "403" in said.err
    assert "very-wrong-key" not in said.err


def test_5_no_service_at_the_address(here, table):
    said = here("generate", table, "--text", "line", "--voice", "nora", "--base-url", "http://127.0.0.1:9")
    assert said.code == exits.SERVICE_UNUSABLE
    assert "127.0.0.1:9" in said.err


def test_5_settings_that_are_incomplete(here, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_BASE_URL")
    said = here("voices")
    assert said.code == exits.SERVICE_UNUSABLE
    assert "SPEECHFRAME_BASE_URL" in said.err


def test_6_no_run_folder(here, tmp_path):
    (tmp_path / "other").mkdir()
    said = here("resume", "other")
    assert said.code == exits.FOLDER_UNUSABLE
    assert "other" in said.err


def test_6_a_folder_that_is_in_use(here, table, tmp_path):
    assert here("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "run").code == 0
    with (tmp_path / "run" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = here("resume", "run", "--redo", "0")
    assert said.code == exits.FOLDER_UNUSABLE
    assert "run" in said.err


def test_6_a_folder_that_cannot_be_made(here, table, tmp_path):
    (tmp_path / "file").write_text("")
    said = here("generate", table, "--text", "line", "--voice", "nora", "--run-dir", "file/run")
    assert said.code == exits.FOLDER_UNUSABLE


def test_an_error_is_one_line_and_debug_shows_where_it_comes_from(here):
    said = here("resume", "nowhere")
    assert said.code == exits.FOLDER_UNUSABLE
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("speechframe resume: ")
    shown = here("resume", "nowhere", "--debug")
    assert shown.code == exits.FOLDER_UNUSABLE
    assert "Traceback" in shown.err


def test_json_tells_an_error_too(here, table):
    said = here("generate", table, "--text", "line", "--voice", "norah", "--json")
    facts = json.loads(said.out)
    assert facts["error"] == "InvalidRows"
    assert facts["exit_code"] == said.code == exits.ROWS_INVALID
    assert facts["problems"][0]["field"] == "voice"


@pytest.mark.parametrize("words", [["--api-key=sk-secret"], ["--key", "sk-secret"]])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(here, table, words):
    said = here("generate", table, "--voice", "nora", *words)
    assert said.code == exits.WRONG_USAGE
    assert "SPEECHFRAME_API_KEY" in said.err
    assert "sk-secret" not in said.err
