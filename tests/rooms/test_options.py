"""Run options: what is refused, and how the error helps."""

import pytest

from speechframe.api import configure
from speechframe.batch.options import Options, configure_options, option_names
from speechframe.cli.app import main
from speechframe.errors import SettingsError


class Column:
    name = "speaker"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_credit": 3}, "there is no option 'max_credit'; did you mean 'max_credits'? there are "),
        ({"colour": 3}, "there is no option 'colour'; there are "),
        ({"max_concurrency": 0}, "max_concurrency=0; allowed: a whole number of at least 1"),
        ({"max_attempts": True}, "max_attempts=True; allowed: a whole number"),
        ({"max_credits": float("nan")}, "max_credits=nan; allowed: a number of at least 0"),
        ({"max_answer_mb": 0}, "max_answer_mb=0; allowed: a number of at least 0.001"),
        ({"wait": 1}, "wait=1; allowed: True, False"),
        ({"progress": "board"}, "progress='board'; allowed: True, False, 'dashboard'"),
        ({"on_error": "rise"}, "on_error='rise'; allowed: 'column', 'raise'"),
        ({"sep": ";;"}, "sep=';;'; allowed: one character"),
        ({"quoting": "all"}, "quoting='all'; allowed: None, 'none'"),
        ({"tags": ["ads"]}, "tags=['ads']; allowed: a mapping of name to value or column"),
        ({"tags": {"team": ["ads"]}}, "tags['team']=['ads']; allowed: a text, a number"),
        ({"cache": ""}, "cache=''; allowed: a folder"),
        ({"run_dir": 7}, "run_dir=7; allowed: a folder"),
    ],
)
def test_what_is_not_allowed_is_refused_in_words_that_help(given, words):
    with pytest.raises(SettingsError) as refused:
        Options.of(**given)
    assert str(refused.value).startswith(words)


def test_given_options_go_before_configured_ones_and_none_takes_one_back():
    configure_options(max_credits=5, tags={"team": "ads", "character": Column()})
    try:
        assert Options.of(max_credits=7).max_credits == 7
        assert Options.of(max_credits=None).max_credits == 5
        assert Options.of().tags["team"] == "ads"
        with pytest.raises(SettingsError):
            Options.of(max_credits=3, sep="")
    finally:
        configure_options(**dict.fromkeys(option_names()))
    assert Options.of() == Options()


def test_configure_and_the_command_name_the_nearest_option_too(tmp_path, capsys):
    with pytest.raises(SettingsError, match=r"did you mean 'max_credits'\?"):
        configure(max_credit=3)
    table = tmp_path / "lines.csv"
    table.write_text("text\nhello\n")
    with pytest.raises(SystemExit):
        main(["generate", str(table), "--voice", "nora", "--max-credit", "3"])
    assert "did you mean '--max-credits'?" in capsys.readouterr().err
