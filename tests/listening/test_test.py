"""A test in its folder: made once, gone on with, blind in all that a page gets."""

import json

import pandas as pd
import pytest
from votes_lab import frame_of, vote_of

from speechframe.errors import ListeningError, StoreError
from speechframe.listening.making import make_test
from speechframe.listening.test import open_test

NAMES = ("zephyrine", "quillon", "wolfram")
OPTIONS = {"trials_per_listener": 4, "training": 1, "listeners": 3}


def made(folder, method="ab", names=NAMES, **options):
    return make_test(
        frame_of(names, items=("lantern", "meadow", "harbour")),
        method,
        folder=folder,
        **{**OPTIONS, **options},
    )


@pytest.mark.parametrize("method", ["ab", "mos", "mushra", "abx"])
def test_a_plan_tells_nothing_of_what_is_heard(tmp_path, method):
    test = made(tmp_path / "t", method, **({"reference": NAMES[2]} if method == "mushra" else {}))
    plans = [test.plan(listener) for listener in test.listeners]
    text = json.dumps(plans)
    for word in (*NAMES, "lantern", "meadow", "harbour", "anchor", "khz", "kHz", "seed", str(tmp_path)):
        assert word not in text
    clips = [clip for listener in test.listeners for clip in test.list_clips(listener)]
    assert len(set(clips)) == len(clips), "no name stands in two places, of no two listeners"
    assert sum(text.count(clip) for clip in clips) == len(clips)
    sizes = {len(test.read_audio(1, clip)[0]) for clip in test.list_clips(1)}
    assert len(sizes) == 1, "sounds of one length have one size"
    assert len({test.read_audio(1, clip)[0] for clip in test.list_clips(1)}) == len(test.list_clips(1)), (
        "and no two are equal"
    )


def test_a_sound_of_another_listener_is_not_there(tmp_path):
    test = made(tmp_path / "t")
    with pytest.raises(KeyError):
        test.read_audio(2, test.list_clips(1)[0])
    with pytest.raises(ListeningError, match=r"no listener 'anna'.*'listener-01'"):
        test.plan("anna")
    with pytest.raises(ListeningError, match="no listener 0"):
        test.plan(0)


def test_the_same_call_and_the_folder_alone_go_on_with_the_test(tmp_path):
    first = made(tmp_path / "t", consent="Yes?", questions=["Age"], title="Ours")
    assert first.reply(2, {"kind": "begin", "consent": True, "answers": {"Age": "4"}}) == {"kind": "begun"}
    first.reply(2, vote_of(first.plan(2), 0, {"choice": "A"}))
    again, opened = (
        made(tmp_path / "t", consent="Yes?", questions=["Age"], title="Ours"),
        open_test(tmp_path / "t"),
    )
    for test in (again, opened):
        assert test.setup == first.setup
        assert test.plan(2) == first.plan(2)
        assert test.plan(2)["done"] == [0]
        pd.testing.assert_frame_equal(test.design, first.design)
        pd.testing.assert_frame_equal(test.votes, first.votes)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"seed": 1}, "seed"), ({"method": "mos"}, "method"), ({"names": NAMES[:2]}, "conditions, source")],
)
def test_another_test_is_refused_by_a_folder(tmp_path, change, said):
    made(tmp_path / "t")
    with pytest.raises(ListeningError, match=f"holds another test .*differs in: {said};"):
        made(tmp_path / "t", **change)


def test_a_test_stands_under_its_own_name_where_no_folder_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = made(None)
    assert test.folder.resolve() == tmp_path / "listening" / test.test_id
    assert made(None, seed=1).folder != test.folder


def test_more_listeners_can_be_invited_and_nobody_hears_otherwise(tmp_path):
    test = made(tmp_path / "t")
    before = test.design
    assert test.invite(2) == ("listener-01", "listener-02")
    assert len(test.invite(6)) == 6
    assert test.name_of(8) == "listener-08"
    pd.testing.assert_frame_equal(test.design[: len(before)], before)
    assert open_test(tmp_path / "t").listeners == test.listeners
    assert made(tmp_path / "t").listeners == test.listeners, "the same call forgets nobody"


def test_without_a_reference_mushra_is_multi_and_says_so(tmp_path, capsys):
    test = made(tmp_path / "t", "mushra")
    assert "needs a natural reference, and none was given" in capsys.readouterr().err
    assert test.method == "multi"
    assert test.plan(1)["trials"][0]["reference"] is None
    assert set(test.design["condition"]) == set(NAMES)


def test_mushra_hides_the_reference_and_has_anchors(tmp_path):
    test = made(tmp_path / "t", "mushra", reference=NAMES[0])
    page = test.design.query("listener == 'listener-01' and trial == 1")["condition"]
    assert sorted(page) == ["anchor 3.5 kHz", "anchor 7 kHz", *sorted(NAMES)]
    assert test.plan(1)["trials"][1]["reference"]["slot"] == "R"
    test.reply(1, {"kind": "begin"})
    vote = vote_of(test.plan(1), 1, {"scores": dict.fromkeys("ABCDE", 50)})
    for silent in ("R", "C"):
        heard = {**vote["listened_s"], silent: 0}
        assert f"listen to {silent} first" in test.reply(1, {**vote, "listened_s": heard})["message"]
    assert test.reply(1, vote)["kind"] == "stored"


def test_a_condition_with_the_name_of_an_anchor_is_refused(tmp_path):
    with pytest.raises(ListeningError, match="'anchor 7 kHz' is the name of one of them"):
        made(tmp_path / "t", "mushra", ("human", "anchor 7 kHz"), reference="human")
    made(tmp_path / "t", "multi", ("human", "anchor 7 kHz"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "best"}, "there is no method 'best'"),
        ({"reference": NAMES[0]}, 'a reference cannot be used with method="ab"'),
        ({"method": "mushra", "reference": "wolfgang"}, "did you mean 'wolfram'"),
        ({"method": "mos", "reveal": True}, "ab and abx only"),
        ({"method": ["ab"]}, r"there is no method \['ab'\]"),
        ({"trials_per_listener": 0}, "trials_per_listener must be a whole number, 1 or more, not 0"),
        ({"trials_per_listener": 2.5}, "trials_per_listener must be a whole number, 1 or more, not 2.5"),
        ({"training": -1}, "training must be a whole number, 0 or more, not -1"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"listeners": 2**40}, "listeners must be a whole number, 1 to 10,000"),
        ({"listener": 0}, "there is no listener 0"),
        ({"listener": "anna"}, "there is no listener 'anna'"),
        ({"consent": ""}, "consent must be a text, not ''"),
        ({"reference": ["ada"]}, "reference must be a text"),
        ({"reveal": "no"}, "reveal must be True or False, not 'no'"),
        ({"questions": 3}, "3 is not a question"),
        ({"questions": [{"label": "a", "choices": "yes"}]}, "is not a question"),
        ({"item": ""}, "item must be a text"),
        ({"condition": "voice"}, "did you mean 'voice_id'"),
        ({"locale": "fr"}, "built in are en and de"),
        ({"locale": "de_AT"}, "locale must be a locale such as 'de' or 'de-AT'"),
        ({"texts": {"begin": 3}}, "texts has no text for begin"),
    ],
)
def test_errors_come_before_anything_is_written(tmp_path, options, words):
    with pytest.raises(ListeningError, match=words):
        made(tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_what_is_no_test_cannot_be_opened(tmp_path):
    with pytest.raises(StoreError, match="does not contain a listening test"):
        open_test(tmp_path)
    test = made(tmp_path / "t")
    setup = tmp_path / "t" / "test.json"
    setup.write_text(setup.read_text().replace(NAMES[0], "somebody"))
    with pytest.raises(
        StoreError, match=f"was changed by hand, so it does not fit the votes of {test.test_id}"
    ):
        open_test(tmp_path / "t")
    setup.write_text("{}")
    with pytest.raises(StoreError, match="cannot be read as the set-up of a test"):
        open_test(tmp_path / "t")


def test_votes_become_results_power_and_methods(tmp_path):
    test = made(tmp_path / "t", "mos", trials_per_listener=9, training=0)
    marks = {NAMES[0]: 5, NAMES[1]: 3, NAMES[2]: 1}
    for listener in test.listeners:
        test.reply(listener, {"kind": "begin"})
        asked = test.design[test.design["listener"] == listener].set_index("trial")["condition"]
        for trial, condition in asked.items():
            assert (
                test.reply(
                    listener, vote_of(test.plan(listener), trial, {"scores": {"A": marks[condition]}})
                )["kind"]
                == "stored"
            )
    scores = test.results.scores.set_index("condition")["mean"]
    assert scores.to_dict() == marks
    assert "9 trials" in test.methods()
    assert "seed 0" in test.methods()
    assert test.power(effect=2, listeners=6, simulations=20).listeners == 6


@pytest.mark.parametrize("folder", ["", 3])
def test_a_folder_is_a_path(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ListeningError, match="folder must be a path"):
        made(folder)
    with pytest.raises(StoreError, match="folder must be a path"):
        open_test(folder)
    assert list(tmp_path.iterdir()) == []


def test_conditions_by_name_have_names(tmp_path):
    with pytest.raises(
        ListeningError,
        match="every condition of a mapping must have a name that is not empty, not '' and 'ours'",
    ):
        make_test({"": frame_of(("ada",)), "ours": frame_of(("bob",))}, "ab", folder=tmp_path / "t")


def test_a_listener_of_the_design_is_who_the_test_is_for(tmp_path):
    assert made(tmp_path / "t").listener == "listener-01"
    assert made(tmp_path / "t", listener=3).listener == "listener-03"
    assert made(tmp_path / "t", listener="listener-02").listener == "listener-02"
    assert made(tmp_path / "t", listener=5).listener == "listener-05", "the design is drawn for a new one"
    assert made(tmp_path / "t", listener="listener-05").listener == "listener-05"
    assert "listener-05" in made(tmp_path / "t", listener=5).to_html()


def test_anchors_are_rated_and_named_and_not_compared(tmp_path):
    test = made(tmp_path / "t", "mushra", reference=NAMES[0], trials_per_listener=3, training=0)
    marks = {NAMES[0]: 100, NAMES[1]: 70, NAMES[2]: 60, "anchor 7 kHz": 40, "anchor 3.5 kHz": 20}
    for place, listener in enumerate(test.listeners):
        test.reply(listener, {"kind": "begin"})
        of = test.design[test.design["listener"] == listener].set_index(["trial", "slot"])["condition"]
        for trial in range(3):
            scores = {"ABCDE"[slot]: marks[of[trial, slot]] - place for slot in range(5)}
            assert (
                test.reply(listener, vote_of(test.plan(listener), trial, {"scores": scores}))["kind"]
                == "stored"
            )
    assert set(test.votes["condition"]) == set(test.design["condition"]) == set(marks)
    result = test.results
    assert set(result.scores["condition"]) == set(marks)
    assert set(result.pairs["condition_a"]) | set(result.pairs["condition_b"]) == set(NAMES)
    assert len(test.analyse(compare_anchors=True).pairs) == 10
    assert "Anchors of ITU-R BS.1534 were anchor 3.5 kHz and anchor 7 kHz" in test.methods()
    assert result.screening["anchor_missed"].tolist() == [0, 0, 0]
    assert test.power(effect=30, listeners=6, simulations=5).conditions == 3
