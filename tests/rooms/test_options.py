"""Run options: what is refused, and how the error helps."""

import pytest
from tests.rooms.scripted import make

import speechframe as spf


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"colour": 3}, "there is no option 'colour'; there are "),
        ({"max_concurrency": 0}, "max_concurrency=0; allowed: a whole number of at least 1"),
        (
            {"max_credits": float("nan")},
            "max_credits=nan; allowed: a number of credits from 0 to 1,000,000,000,000,000, inf",
        ),
        ({"wait": 1}, "wait=1; allowed: True or False"),
        ({"progress": "board"}, "progress='board'; allowed: True, False, 'dashboard'"),
        ({"sep": ";;"}, "sep=';;'; allowed: one character"),
        ({"tags": ["ads"]}, "tags=['ads']; allowed: a mapping of name to value or column"),
        ({"tags": {"team": ["ads"]}}, "tags['team']=['ads']; allowed: a text, a number"),
        ({"tags": {"team": "\ud800"}}, r"tags['team']='\ud800'; allowed: a text, a number"),
        ({"tags": {"": "ads"}}, "tags['']=''; allowed: a name as text"),
        ({"max_retakes": True}, "max_retakes=True; allowed: a whole number of at least 0"),
        ({"on_error": "cry"}, "on_error='cry'; allowed: 'column' or 'raise'"),
        ({"cache": ""}, "cache=''; allowed: a folder"),
    ],
)
def test_what_is_not_allowed_is_refused_in_words_that_help(given, words):
    with pytest.raises(spf.SettingsError) as refused:
        spf.generate(["Hello."], voice="nora", **given)
    assert str(refused.value).startswith(words)


def test_given_options_go_before_configured_ones_and_none_takes_one_back(tmp_path):
    lines = [f"line {number}" for number in range(9)]

    def done(name, **given):
        run = make(tmp_path / name, lines, **given)
        return run.stats["done"], {str(dict(tags)) for tags in run.ledger["tags"]}

    spf.configure(max_credits=5, tags={"team": "ads", "character": spf.col("text")})
    assert done("given", max_credits=7, tags={}) == (7, {"{}"})
    found, tags = done("configured", max_credits=None)
    assert (found, len(tags)) == (5, 5)
    assert all("'team': 'ads'" in said for said in tags)
    with pytest.raises(spf.SettingsError):
        spf.configure(max_credits=3, sep="")
    assert done("refused")[0] == 5
    spf.configure(max_credits=None, tags=None)
    assert done("taken back")[0] == 9
