"""A test as one file, and the files of votes that come back."""

import base64
import json
import re
from hashlib import sha256

import pandas as pd
import pytest
from listening_lab import CONDITIONS, begin, made, vote

from speechframe.errors import ListeningError, StoreError
from speechframe.listening.offline import read_votes
from speechframe.statistics.votes import VOTE_SCHEMA


def state_in(page):
    return json.loads(re.search(r'id="spf-state">(.*?)</script>', page, re.DOTALL)[1])


def handed_in(page, folder, *, trials=None, name=None, said=None, listener=None, test_id=None):
    """Write what a page's listener would save: all votes, or some, or something made up."""
    plan = state_in(page)["plan"]
    if said is None:
        places = range(len(plan["trials"])) if trials is None else trials
        said = [begin(), *(vote(plan, trial) for trial in places)]
    record = json.dumps(
        {"test_id": test_id or plan["test_id"], "listener": listener or plan["listener"], "said": said},
        separators=(",", ":"),
    )
    checksum = sha256(record.encode()).hexdigest()
    folder.mkdir(exist_ok=True)
    path = folder / (name or f"votes-{plan['listener']}.json")
    path.write_text(
        json.dumps({"format": "speechframe listening votes 2", "record": record, "sha256": checksum})
    )
    return path


@pytest.fixture(scope="module")
def test_made(tmp_path_factory):
    return made(tmp_path_factory.mktemp("offline") / "test")


@pytest.fixture(scope="module")
def pages(test_made):
    return [test_made.to_html(listener=name) for name in test_made.listeners]


@pytest.fixture
def came_back(tmp_path):
    return tmp_path / "came-back"


def test_a_page_holds_its_listeners_sounds_and_nothing_from_elsewhere(pages, test_made):
    for name, page in zip(test_made.listeners, pages, strict=True):
        held = dict(re.findall(r'id="spf-clip-(\w+)" data-mime="audio/wav">([^<]*)<', page))
        assert set(held) == set(test_made.list_clips(name))
        for clip, text in held.items():
            assert base64.b64decode(text) == test_made.read_audio(name, clip)[0]
        assert "default-src 'none'" in page
        assert not re.findall(r"https?://", page)


def test_what_a_page_could_reveal_is_not_in_it(tmp_path):
    test = made(tmp_path / "test", reveal=True)
    page = test.to_html(listener=1)
    assert not [name for name in CONDITIONS if name in page]


def test_votes_that_came_back_become_votes_by_the_design(test_made, pages, came_back):
    for page in pages:
        handed_in(page, came_back)
    votes = read_votes(came_back, test_made)
    assert list(votes.columns) == VOTE_SCHEMA["ab"].names
    assert len(votes) == 12
    # All voted for the slot A, which is what stood on the left.
    assert (votes["choice"] == votes["left"]).all()
    wanted = test_made.design[["listener", "trial", "item", "condition_a", "condition_b", "left"]]
    pd.testing.assert_frame_equal(votes[list(wanted.columns)], wanted, check_dtype=False)
    assert set(votes.attrs["answers"]) == set(test_made.listeners)
    assert test_made.votes.empty, "reading changes nothing"


def test_answers_that_came_back_are_what_other_pages_answers_are(tmp_path, came_back):
    asked = [{"label": "Age", "kind": "number"}]
    test = made(tmp_path / "test", questions=asked, consent="I take part.")
    page = test.to_html()
    handed_in(page, came_back, said=[{**begin(), "answers": {"Age": "31"}}])
    assert read_votes(came_back, test).attrs["answers"] == {"listener-01": {"Age": 31.0}}
    handed_in(page, came_back, said=[{**begin(), "consent": False, "answers": {"Age": "31"}}])
    with pytest.raises(
        ListeningError, match="breaks a rule of the test: the test begins when you have agreed"
    ):
        read_votes(came_back, test)


def test_votes_that_came_back_can_be_analysed(test_made, pages, came_back):
    for page in pages:
        handed_in(page, came_back)
    votes = read_votes(came_back, test_made)
    assert test_made.analyse(votes, replicates=10).everyone.listeners == len(pages)
    assert "3 listeners took part" in test_made.methods(votes=votes, replicates=10)


def test_votes_of_some_trials_are_taken_in_the_order_of_trials(test_made, pages, came_back):
    handed_in(pages[1], came_back, trials=[2, 0])
    assert list(read_votes(came_back, test_made)["trial"]) == [0, 2]


def refusal(came_back, test):
    with pytest.raises(ListeningError) as refused:
        read_votes(came_back, test)
    return str(refused.value)


def test_a_file_that_was_changed_is_refused_by_name(test_made, pages, came_back):
    handed_in(pages[0], came_back, name="good.json")
    path = handed_in(pages[1], came_back, name="bad.json")
    text = path.read_text()
    assert r"\"choice\":\"A\"" in text
    path.write_text(text.replace(r"\"choice\":\"A\"", r"\"choice\":\"B\"", 1))
    said = refusal(came_back, test_made)
    assert "bad.json: changed after it was saved" in said
    assert "good.json" not in said


def test_a_file_of_another_test_or_of_an_unknown_listener_is_refused_by_name(
    test_made, pages, came_back, tmp_path
):
    other = made(tmp_path / "other", seed=8)
    handed_in(other.to_html(listener=1), came_back, name="other.json")
    handed_in(pages[0], came_back, name="nobody.json", listener="listener-99")
    handed_in(pages[0], came_back, name="number.json", listener=10**9)
    said = refusal(came_back, test_made)
    assert f"other.json: belongs to another test ({other.test_id})" in said
    assert "nobody.json: belongs to a listener who is not in this test ('listener-99')" in said
    assert "number.json: belongs to a listener" in said
    assert len(test_made.listeners) == 3, "nobody was invited by a file"


def test_a_second_file_of_a_listener_is_refused_by_name(test_made, pages, came_back):
    handed_in(pages[0], came_back, name="a.json", trials=[0])
    handed_in(pages[0], came_back, name="b.json")
    assert "b.json: a second file of listener-01, whose first file is a.json" in refusal(came_back, test_made)


def test_a_file_of_a_listener_who_voted_by_link_is_refused_by_name(pages, came_back, tmp_path):
    test = made(tmp_path / "test")
    plan = test.plan(1)
    assert test.reply(1, begin())["kind"] == "begun"
    assert test.reply(1, vote(plan, 0))["kind"] == "stored"
    handed_in(test.to_html(listener=1), came_back, name="again.json")
    assert "again.json: listener-01 has voted already, on a served page" in refusal(came_back, test)


def test_a_vote_that_breaks_a_rule_is_refused_with_its_file_and_trial(test_made, pages, came_back):
    plan = state_in(pages[0])["plan"]
    unheard = {**vote(plan, 1), "plays": {}, "listened_s": {}}
    handed_in(pages[0], came_back, name="unheard.json", said=[begin(), unheard])
    handed_in(pages[1], came_back, name="twice.json", said=[begin(), vote(plan, 1), vote(plan, 1)])
    said = refusal(came_back, test_made)
    assert "unheard.json: breaks a rule of the test (trial 2): listen to" in said
    assert "twice.json: has more than one vote of trial 1" in said


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": "speechframe listening votes 2"}', "[" * 100_000,
     '{"format": "speechframe listening votes 2", "record": "{}", "sha256": ""}'],
    ids=range(5),
)  # fmt: skip
def test_what_holds_no_votes_is_refused_by_name(test_made, came_back, text):
    came_back.mkdir()
    (came_back / "odd.json").write_text(text)
    assert "1 file is refused, and no votes were read" in refusal(came_back, test_made)
    assert "odd.json" in refusal(came_back, test_made)


@pytest.mark.parametrize("said", [None, "x", [1], [{"kind": "load"}], [{}]], ids=str)
def test_what_is_whole_but_no_vote_is_refused_by_name(test_made, pages, came_back, said):
    handed_in(pages[0], came_back, name="odd.json", said=said if said is not None else {})
    assert "odd.json: contains other messages than votes" in refusal(came_back, test_made)


def test_a_folder_without_files_is_said(test_made, came_back):
    with pytest.raises(StoreError, match="is not a folder"):
        read_votes(came_back, test_made)
    came_back.mkdir()
    with pytest.raises(StoreError, match=r"no \.json files"):
        read_votes(came_back, test_made)
