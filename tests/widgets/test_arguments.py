"""What people type is looked at first: what is wrong is named, with what is allowed."""

import pytest
from clips_lab import spoken

import speechframe as spf
from speechframe.errors import InvalidRows, SettingsError, StoreError

NAN = float("nan")


def a_clip():
    return spoken(["one", "two"])


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: spf.play(a_clip(), limit=0), "limit must be a whole number, 1 or more, not 0"),
        (lambda: spf.play(a_clip(), limit="3"), "limit must be a whole number"),
        (lambda: spf.play(a_clip(), rates=None), "rates must be True or False, not None"),
        (lambda: spf.play(a_clip()).to_html(title=""), "title must be a text, not ''"),
        (lambda: spf.play(a_clip()).to_html(3), "path must be a path, not 3"),
        (lambda: spf.browse("runs/x", page_rows=0), "page_rows must be a whole number, 1 to 1,000, not 0"),
        (lambda: spf.browse("runs/x", reviewer=""), "reviewer must be a text"),
        (lambda: spf.browse(3), "the type int is not a run; pass a run, or the path of its folder"),
        (lambda: spf.watch(None), "the type NoneType is not a run"),
        (lambda: spf.compare_voices(["nora", "miles"], NAN), "texts must be a list of texts, not nan"),
        (lambda: spf.compare_voices(["nora", "miles"], [3]), "each of texts must be a text, not 3"),
        (lambda: spf.compare_voices(["nora", None], ["x"]), "each of voices must be a text, not None"),
        (lambda: spf.gallery(model=None), "model must be a text, not None"),
        (lambda: spf.gallery(text=""), "text must be a text, not ''"),
    ],
)
def test_a_value_that_cannot_be_is_named(act, words):
    with pytest.raises(ValueError, match=words):
        act()


def test_an_option_that_is_not_there_is_named():
    with pytest.raises(InvalidRows, match=r"spede.*allowed.*rate"):
        spf.gallery(spede=3)
    with pytest.raises(SettingsError, match="there is no option 'max_credit'"):
        spf.watch("runs/x", max_credit=3)
    with pytest.raises(SettingsError, match="max_credits"):
        spf.watch("runs/x", max_credits=-1)
    with pytest.raises(TypeError, match="'conditions'"):
        spf.listening_test([], conditions="voice_id")


def test_a_page_is_written_with_the_folders_it_lies_in(tmp_path):
    path = tmp_path / "missing" / "folder" / "clips.html"
    assert spf.play(a_clip()).to_html(path) == path
    assert "spf-clip-0" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["", "a file/clips.html"])
def test_where_no_page_can_be_written_is_said(tmp_path, name):
    (tmp_path / "a file").touch()
    with pytest.raises(StoreError, match=r"the page cannot be written to .*; name a file such as"):
        spf.play(a_clip()).to_html(tmp_path / name)
