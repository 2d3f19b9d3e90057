"""Glossaries: whole words, the longest counts, and the line for just this locale comes first."""

import pandas as pd
import pytest

import speechframe as spf
from speechframe.old_batch.glossary import Glossary, read_glossary
from speechframe.old_batch.placeholders import find, protect


def backs(lines, text, target="fr-FR"):
    glossary = Glossary([[source, None, back] for source, back in lines], target)
    return [(text[s.start : s.end], s.back) for s in glossary.find(text, find(text))]


def test_the_longest_term_counts():
    lines = [("data", "D"), ("data set", "DS"), ("set", "S")]
    assert backs(lines, "The data  set, the data, the set") == [
        ("data  set", "DS"),
        ("data", "D"),
        ("set", "S"),
    ]


def test_terms_are_whole_words():
    assert backs([("cat", "chat")], "cat, concat, cats, cat's, Cat_1") == [("cat", "chat"), ("cat", "chat")]
    assert backs([("C++", "C++"), (".NET", ".NET")], "C++ or .NET, ASP.NET") == [
        ("C++", "C++"),
        (".NET", ".NET"),
    ]
    assert backs([("東京", "Tokyo")], "私は東京に住む") == [("東京", "Tokyo")]


def test_case_follows_the_text_unless_the_term_has_capitals():
    lines = [("account", "compte"), ("IT", "Informatique")]
    assert backs(lines, "Account, ACCOUNT, account; it and IT and It") == [
        ("Account", "Compte"), ("ACCOUNT", "COMPTE"), ("account", "compte"), ("IT", "Informatique"),
    ]  # fmt: skip


def test_a_term_inside_a_placeholder_is_left_alone():
    assert backs([("name", "nom")], "name {name} <name> https://name.org/name name") == [("name", "nom")] * 2


@pytest.mark.parametrize(
    ("target", "back"), [("fr-FR", "un"), ("fr-CA", "deux"), ("fr", "deux"), ("es-ES", "trois")]
)
def test_the_line_for_just_this_locale_comes_first(target, back):
    lines = [["one", "fr-FR", "un"], ["one", "fr", "deux"], ["one", None, "trois"]]
    for order in (lines, lines[::-1]):
        assert [span.back for span in Glossary(order, target).find("one", [])] == [back]


def test_a_line_for_another_locale_does_not_hold():
    assert Glossary([["one", "fr-FR", "un"]], "fr-CA").find("one", []) == []
    assert Glossary([["one", "de", "eins"]], "fr-CA").find("one", []) == []


def test_terms_come_back_or_are_missed():
    text = "Sign in, {name}"
    spans = find(text)
    protected = protect(
        text, [*spans, *Glossary([["sign in", None, "se connecter"]], "fr-FR").find(text, spans)]
    )
    assert protected.sent == "PZ0, PZ1"
    good = protected.restore("PZ0, PZ1")
    assert (good.text, good.placeholders_ok, good.terms_ok) == ("Se connecter, {name}", True, True)
    lost = protected.restore("bonjour PZ1")
    assert (lost.placeholders_ok, lost.terms_ok) == (True, False)


def test_a_glossary_is_a_frame_a_list_a_file_or_a_dict(tmp_path):
    lines = [
        {"source": "a", "locale": "fr_fr", "target": "b"},
        {"source": "c", "locale": None, "target": "d"},
    ]
    want = [["a", "fr-FR", "b"], ["c", None, "d"]]
    pd.DataFrame(lines).to_csv(tmp_path / "terms.csv", index=False)
    assert read_glossary(lines) == read_glossary(pd.DataFrame(lines)) == want
    assert read_glossary(tmp_path / "terms.csv") == read_glossary(str(tmp_path / "terms.csv")) == want
    assert read_glossary({"c": "d"}) == [["c", None, "d"]]
    assert read_glossary(None) is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([{"source": "a", "translation": "b"}], "has no column 'target'"),
        ([{"source": "a", "target": " "}], "has an empty term in row 1"),
        ({"a": "b", "c": ""}, "has an empty term in row 2"),
        ([{"source": "a", "locale": "klingonish", "target": "b"}], "is no locale"),
        ([{"source": "a", "target": "b"}, {"source": "a", "target": "c"}], "translates 'a' twice"),
        (5, "is no table"),
    ],
)
def test_what_is_no_glossary_is_said_before_anything_is_sent(table, words):
    with pytest.raises(spf.InvalidRows, match=words):
        read_glossary(table)


def test_capitals_of_other_alphabets_are_no_trouble():
    assert backs([("sign in", "se connecter")], "SIGN \u0130N, s\u0131gn in, sign in") == [
        ("SIGN \u0130N", "SE CONNECTER"),
        ("s\u0131gn in", "se connecter"),
        ("sign in", "se connecter"),
    ]


@pytest.mark.parametrize("empty", [{}, [], pd.DataFrame({"source": [], "target": []})])
def test_a_glossary_may_be_empty(empty):
    assert read_glossary(empty) == []


def test_a_line_that_is_wrong_is_named_by_its_place_whatever_came_before():
    lines = [{"source": "", "target": "x"}, {"source": "a", "target": "b"}, {"source": "c", "target": ""}]
    with pytest.raises(spf.InvalidRows) as caught:
        read_glossary(lines)
    assert [p["problem"] for p in caught.value.problems] == [
        "has an empty term in row 1",
        "has an empty term in row 3",
    ]


@pytest.mark.parametrize(
    ("name", "place"),
    [("terms.csv", "row 2 below its header"), ("terms.tsv", "row 2 below its header"),
     ("terms.xlsx", "row 2 below its header"), ("terms.jsonl", "line 2"), ("terms.parquet", "row 2")],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named_as_its_file_counts(tmp_path, name, place):
    frame = pd.DataFrame({"source": ["a", "b"], "locale": [None, "klingonish"], "target": ["A", "B"]})
    path = tmp_path / name
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    with pytest.raises(spf.InvalidRows) as caught:
        read_glossary(str(path))
    (found,) = caught.value.problems
    assert found["problem"].startswith(f"{place}: ")
    assert "is no locale" in found["problem"]


def test_a_glossary_that_cannot_be_read_is_not_called_a_table(tmp_path):
    with pytest.raises(spf.InvalidRows, match=r"glossary: .*nope.csv does not exist"):
        read_glossary(tmp_path / "nope.csv")
