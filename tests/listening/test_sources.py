"""What can be compared, and what is said where nothing can."""

import pandas as pd
import pytest
from votes_lab import frame_of, tone

from speechframe.errors import ListeningError
from speechframe.listening.sources import collect_material
from speechframe.page.clips import make_shelf


def test_conditions_by_name_and_by_column_are_the_same_material():
    ours, human = frame_of(("ada",)), frame_of(("bob",))
    named = collect_material({"ada": ours, "bob": human})
    listed = collect_material([ours, human])
    assert named.identity == listed.identity
    assert named.conditions == ("ada", "bob")
    assert named.items == ("s1", "s2", "s3")
    assert named.clips["s2", "bob"]().audio == human["audio"][1]
    assert collect_material(frame_of(("ada", "cy"))).identity != named.identity


def test_identity_follows_what_is_heard():
    frame = frame_of()
    other = frame.assign(audio=[tone(333), *frame["audio"][1:]])
    assert collect_material(frame).identity != collect_material(other).identity
    assert collect_material(frame).identity == collect_material(frame.sample(frac=1, random_state=1)).identity


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (
            frame_of(),
            {"condition": "voice"},
            r"condition='voice' is not a column; did you mean 'voice_id' or 'locale'\? there are: id, locale, text, voice_id",
        ),
        (frame_of(), {"item": "sentence"}, "item='sentence' is not a column; .*there are: id, locale"),
        (frame_of(("ada",)), {}, "there is only 'ada'"),
        ({"ours": frame_of(("ada",))}, {}, "there is only 'ours'"),
        (
            frame_of(),
            {"item": "voice_id"},
            r"item 'ada' occurs twice in condition 'ada' \(rows '0' and '1'\)",
        ),
        (frame_of(text="same"), {"item": "text"}, "item 'same' occurs twice"),
        (frame_of().assign(voice_id=["ada", None] * 3), {}, "row '1' has an empty voice_id"),
        (frame_of().assign(voice_id=["ada", float("nan")] * 3), {}, "row '1' has an empty voice_id"),
        (
            [frame_of(("ada",)), frame_of(("bob",), items=("x1", "x2"))],
            {},
            "there is nothing to compare, because no item",
        ),
    ],
)
def test_what_cannot_be_compared_is_named(source, options, words):
    with pytest.raises(ListeningError, match=words):
        collect_material(source, **options)


def test_items_that_lack_a_condition_are_listed():
    frame = frame_of(items=[f"s{k}" for k in range(9)])
    lacking = frame[~((frame["voice_id"] == "bob") & frame["id"].isin([f"s{k}" for k in range(7)]))]
    with pytest.raises(ListeningError, match="7 of 9 items cannot be heard in every condition") as refused:
        collect_material(lacking)
    assert refused.value.missing == tuple((f"s{k}", "bob") for k in range(7))
    assert "item 's0' in condition 'bob'" in str(refused.value)
    assert "and 2 more" in str(refused.value)


def test_a_clip_that_cannot_be_read_lacks_too():
    frame = frame_of()
    frame.loc[4, "audio"] = b"no audio"
    with pytest.raises(ListeningError, match="item 's2' in condition 'bob': row 4: no audio") as refused:
        collect_material(frame)
    assert refused.value.missing == (("s2", "bob"),)


def test_the_row_id_names_items_where_no_column_does():
    named = {
        name: pd.DataFrame({"audio": [tone(200), tone(300)]}, index=["k1", "k2"])
        for name in ("ours", "human")
    }
    assert collect_material(named).items == ("k1", "k2")


@pytest.mark.parametrize(
    "form",
    [
        lambda path: path.read_bytes(),
        lambda path: bytearray(path.read_bytes()),
        lambda path: path,
        str,
        lambda path: {"bytes": path.read_bytes(), "path": None},
        lambda path: {"bytes": None, "path": str(path)},
        lambda path: make_shelf(pd.DataFrame({"audio": [path.read_bytes()]})).read_clip("0"),
    ],
    ids=["bytes", "bytearray", "path", "text of a path", "dict of bytes", "dict of a path", "clip"],
)
def test_recordings_come_in_every_form_that_holds_them(tmp_path, form):
    path = tmp_path / "spoken.wav"
    path.write_bytes(tone(300))
    given = frame_of(("human",), items=("s1",)).assign(audio=[form(path)])
    found = collect_material({"ours": frame_of(("ada",), items=("s1",)), "human": given})
    assert found.clips["s1", "human"]().audio == path.read_bytes()


@pytest.mark.parametrize("audio", [None, float("nan"), 7, "", "no/such/file.wav", {"path": None}, [0.0, 0.1]])
def test_what_is_no_recording_is_named_with_its_row(audio):
    given = frame_of(("human",), items=("s1", "s2")).assign(audio=[tone(), audio])
    with pytest.raises(ListeningError, match=r"item 's2' in condition 'human': row ('1'|1): ") as refused:
        collect_material({"ours": frame_of(("ada",), items=("s1", "s2")), "human": given})
    assert refused.value.missing == (("s2", "human"),)
