"""Placeholders are kept out of a translator's reach and put back; what is lost or left behind is told."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.backends.placeholders import find, protect

ICU = "{count, plural, =0 {no files} one {# file of {owner}} other {# files of {owner}}}"
NO_WORDS = "{count, plural, one {#} other {{count} %d}}"


def found(text):
    return [span.replacement for span in find(text)]


def restored(source, translated):
    return protect(source, find(source)).restore(translated)


@pytest.mark.parametrize(
    "kept",
    [
        "{name}", "{0}", "{}", "{user.name}", "{price:.2f}", "{{name}}", "${name}", "%{name}", ICU, "{at, date, short}",
        "{gender, select, male {he} female {she} other {they}}", "%s", "%1$s", "%5.2f", "%(count)d", "%@", "%ld", "%%",
        "<b>", "</b>", "<br/>", '<a href="https://example.org/a?b=c">', "<!-- no -->", "&nbsp;", "&#39;",
        "https://example.org/path?q=1&r=2#top", "www.example.org", "jane.doe+news@example.co.uk",
    ],
)  # fmt: skip
def test_what_is_a_placeholder_is_kept_whole(kept):
    text = f"Look at {kept} now."
    assert found(text) == [kept]
    protected = protect(text, find(text))
    assert protected.sent == "Look at PZ0 now."
    assert protected.restore("Voici PZ0.").text == f"Voici {kept}."


@pytest.mark.parametrize(
    "text",
    [
        "100% of it, 5% discount and 20 % dare", "a < b and b > c", "{ this is a note }", "{open, plural, ", "Tom & Jerry; x",
        "write to me @home", "10 %ige Lösung", "1,234.50 € and 3:45",
    ],
)  # fmt: skip
def test_what_only_looks_like_one_is_translated(text):
    assert found(text) == []


def test_a_url_ends_before_the_sentence_does():
    assert found("See https://example.org/a. Or (http://b.org), or <i>ftp://c.org</i>!") == [
        "https://example.org/a", "http://b.org", "<i>", "ftp://c.org", "</i>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("translated", "text", "is_ok"),
    [
        ("pz1 et PZ 0", "%d et {a}", True),
        ("PZ0", "{a}", False),
        ("PZ0 PZ1 PZ1", "{a} %d %d", False),
        ("PZ0 PZ1 PZ2", "{a} %d PZ2", True),
        ("PZ01 PZ1", "%d %d", False),
        ("PZ0PZ1", "{a}%d", True),
    ],
)
def test_each_must_come_back_once_wherever_it_stands(translated, text, is_ok):
    back = restored("{a} and %d", translated)
    assert (back.text, back.placeholders_ok, back.terms_ok, back.warnings) == (text, is_ok, None, ())


@pytest.mark.parametrize(
    ("source", "translated", "is_ok"),
    [
        ("1,234.5 and 7", "7 et 1.234,5", True),
        ("1,234 km", "1\u202f234 km", True),
        ("1,234 km", "1234 km", True),
        ("room 12", "غرفة ١٢", True),
        ("room 12", "٢١ غرفة", False),
        ("12 and 12", "12", False),
        ("12 files", "douze fichiers", False),
        ("no number", "2 numéros", True),
        ("at 10:30 on 3/4", "le 3/4 à 10h30", True),
        ("A reunião começa às 18h.", "The meeting starts at 6 p.m.", True),
        ("open until 6:30 p.m.", "geöffnet bis 18.30 Uhr", True),
        ("at 18:00", "at 6pm", True),
        ("at 09:05", "um 9.05 Uhr", True),
        ("18h, 18 files", "6 p.m., no file", False),
        ("at 18:30", "at 6 p.m.", False),
        ("13 files", "1 fichier", False),
        ("9" * 5000, "9" * 5000, True),
    ],
)
def test_numbers_are_counted_by_value(source, translated, is_ok):
    assert restored(source, translated).placeholders_ok is is_ok


@pytest.mark.parametrize(
    ("message", "branches"),
    [
        (ICU, "=0 {no files}, one {# file of {owner}}, other {# files of {owner}}"),
        (
            "{g, select, a {{n, plural, one {his} other {#}}} other {#}}",
            "a {{n, plural, one {his} other {#}}}",
        ),
        ("{n, selectordinal, one {#st} other {#}}", "one {#st}"),
        (NO_WORDS, None),
        ("{at, date, long}", None),
    ],
)
def test_branches_that_stay_in_the_source_language_are_told(message, branches):
    back = restored(f"You have {message}", "Vous avez PZ0")
    assert back.text == f"Vous avez {message}"
    assert back.placeholders_ok is (branches is None)
    assert back.warnings == (() if branches is None else (f"branches were not translated: {branches}",))


PIECES = st.sampled_from(
    [*"aé漢 \n.,{}%<>&0123$#@", "PZ", "PZX", "PZ0", "{name}", "%s", "%1$d", NO_WORDS, "<b>", "</b>", "https://a.bc/d", "x@y.zz"]
)  # fmt: skip


@settings(max_examples=50)
@given(st.lists(PIECES, max_size=40).map("".join), st.data())
def test_a_faithful_translator_loses_nothing_and_a_lost_token_is_seen(text, data):
    spans = find(text)
    assert all(a.end <= b.start for a, b in itertools.pairwise(spans))
    assert all(text[span.start : span.end] == span.replacement for span in spans)
    protected = protect(text, spans)
    back = protected.restore(protected.sent)
    assert (back.text, back.placeholders_ok) == (text, True)
    if spans:
        lost = data.draw(st.integers(0, len(spans) - 1))
        cut = re.sub(rf"{protected.form}{lost}(?!\d)", " ", protected.sent)
        assert not protected.restore(cut).placeholders_ok


HALVES = [
    "{" + " " * 99_000, "a" * 99_000, "<!--" * 25_000, "{n, plural, " * 8_000, "a." * 50_000, "%0" * 50_000,
    "%" + "0" * 99_000, "%(n)" + "0" * 99_000, "${a}" * 25_000, "{n,plural,a{" * 4_000 + "x" + "}}" * 4_000, "1:" * 50_000,
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", HALVES, ids=[text[:8] for text in HALVES])
def test_a_hostile_text_takes_no_longer_than_its_length(text):
    def seconds(part):
        began = time.process_time()
        protected = protect(part, find(part))
        protected.restore(protected.sent)
        return time.process_time() - began

    # Ten times the text may take some tens of times as long, never a hundred and more.
    whole, tenth = (min(seconds(part) for _ in range(3)) for part in (text, text[: len(text) // 10]))
    assert whole < 40 * max(tenth, 0.01)
