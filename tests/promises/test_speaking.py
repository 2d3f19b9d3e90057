"""What is spoken is made from what is written: spoken text, pronunciations and cast; on the local service."""

import json

import pandas as pd
import pytest
from accounts import statuses

import speechframe as spf

CAST = [
    {"character": "Anna", "locale": "*", "voice": "en-US-nora", "rate": 10},
    {"character": "Ben", "locale": "en-US", "voice": "en-US-hank", "rate": None},
    {"character": None, "locale": "en-US", "voice": "en-US-joe", "rate": -5},
    {"character": "*", "locale": None, "voice": "en-US-ruby", "rate": None},
]


@pytest.fixture
def plan(service, tmp_path):
    """Plan a run, or make it with ``dry_run=False``."""

    def call(table, run_dir="run", **options):
        fixed = {"voice": "en-US-nora", "sample_rate": 8000, "dry_run": True, "progress": False}
        given = {"run_dir": tmp_path / run_dir, "service": service.settings, **fixed, **options}
        return spf.generate(table, **given)

    return call


def requests(run):
    """Return the fields of the request of each row, as the run's table has them."""
    table = pd.read_parquet(run.path / max((run.path / "input").glob("*.parquet")))
    return [None if r is None else json.loads(r.partition(b"\n")[2]) for r in table["spf:request"]]


WRITTEN = {
    "<v Anna><i>Hi</i> <b>there</b></v>,\nyou<br/>two": "Hi there, you two",
    "Salt &amp; pepper&nbsp;&#33; 1 &lt; 2": "Salt & pepper ! 1 < 2",
    "<00:00:01.000>{\\an8}One\\nline [pause 0.5s] \\u00e9": "One line [pause 0.5s] é",
    "%s has %d of 100%%, %2$s": "Ana has 3 of 100%, 3",
    "{} {} {1} {{ count | number }} %(count)d": "zero Ana Ana 3 3",
    ":count ${count} #{count} %{count} {count:,.2f} <%= count %>": "3 3 3 3 3 3",
    "{n, plural, one {# file} other {# files}}": "many files",
    "https://a.example/b?c=1 me@a.example $5 7:45": "https://a.example/b?c=1 me@a.example $5 7:45",
    "[b]{city}[/b] [_1] [count] of [[count]] [optional]": "São Paulo Ana [count] of 3 [optional]",
}
FILL = {
    "en": {"count": "none"},
    "en-us": {"count": 3.0},
    "*": {"count": "x", "0": "zero", "1": "Ana", "2": 3, "{n, plural, one {# file} other {# files}}": "many files"},
}  # fmt: skip


def test_the_spoken_text_is_the_written_text_without_code_and_is_what_is_priced(plan):
    table = pd.DataFrame({"line": [*WRITTEN], "city": "São Paulo"})
    run = plan(table, text="line", spoken=True, fill=FILL)
    frame = run.to_pandas()
    assert dict(zip(frame["line"], frame["spoken_text"], strict=True)) == WRITTEN
    assert [request["text"] for request in requests(run)] == [*WRITTEN.values()]
    letters = [text.replace("[pause 0.5s]", "") for text in WRITTEN.values()]
    assert run.estimate.credits == sum(map(len, letters))


def test_texts_without_code_have_the_same_calls_whether_they_are_spoken_or_not(plan):
    table = pd.DataFrame({"text": ["Good morning.", "See you soon."]})
    plain, spoken = plan(table, "plain"), plan(table, "spoken", spoken=True)
    assert requests(plain) == requests(spoken)
    made = [
        plan(table, "plain", dry_run=False),
        plan(table, "spoken", spoken=True, pronunciations={"nowhere": "x"}, dry_run=False),
    ]
    assert len({tuple(run.to_pandas()["request_key"]) for run in made}) == 1
    assert "spoken_text" not in plain.to_pandas().columns


@pytest.mark.parametrize(
    "written", ["{count} files", "%d files", ":count files", "%@", "{n, plural, other {#}}"]
)
def test_a_placeholder_without_a_value_is_a_problem_before_the_run(plan, written):
    with pytest.raises(spf.InvalidRows) as refused:
        plan([written, "Fine."], spoken=True, dry_run=False)
    (problem,) = refused.value.problems
    assert (problem["field"], problem["row"]) == ("fill", 0)
    assert problem["value"].strip("'") in written
    assert "fill=" in problem["allowed"]


def test_values_of_a_row_may_come_from_a_column(plan):
    table = pd.DataFrame(
        {"text": ["{n} of {all}"] * 2, "own": ['{"n": 1}', '{"n": 2, "all": 9}'], "all": [7, 8]}
    )
    spoken = plan(table, spoken=True, fill=spf.col("own")).to_pandas()["spoken_text"]
    assert list(spoken) == ["1 of 7", "2 of 9"]
    with pytest.raises(spf.InvalidRows, match="JSON text"):
        plan(table.assign(own="{"), spoken=True, fill=spf.col("own"))
    with pytest.raises(spf.InvalidRows, match="needs a dict of values for each locale"):
        plan(table, spoken=True, fill={"count": "3"})


def test_rows_with_nothing_to_speak_are_skipped_and_counted(plan, capsys):
    table = pd.DataFrame(
        {
            "text": ["Hello.", None, "", "<b> </b>", "&nbsp;...", "Old."],
            "translation_state": [None, None, "stale", "current", "unchecked", "stale"],
        }
    )
    frame = plan(table, spoken=True, dry_run=False, progress=True).to_pandas()
    assert list(frame["status"]) == ["done", *["skipped"] * 5]
    said = capsys.readouterr().err
    assert "3 rows: there is nothing to speak" in said
    assert "2 rows: the source has changed since its translation by people" in said
    assert frame["error_message"][5] == "the source has changed since its translation by people"
    with pytest.raises(spf.InvalidRows):
        plan(table, "other", dry_run=False)


def test_a_new_word_makes_only_the_rows_again_that_contain_it(plan, capsys):
    lines = ["Learn SQL now.", "The sql file of Nguyen.", "Good morning.", "MySQL"]
    words = [{"word": "SQL", "say_as": "sequel"}]
    run = plan(lines, pronunciations=words, dry_run=False)
    sequel = {"SQL": {"type": "SAY_AS", "pronunciation": "sequel"}}
    assert [r.get("pronunciationDictionary") for r in requests(run)] == [sequel, None, None, None]
    words += [{"word": "nguyen", "ipa": "wɪn"}, {"word": "Absent", "say_as": "x", "locale": "fr"}]
    again = plan(lines, pronunciations=words, dry_run=False, progress=True)
    assert again.estimate.calls == 1
    assert "1 word of pronunciations: in no row: 'Absent' (fr)" in capsys.readouterr().err
    assert spf.resume(again, table=["Nguyen again."], dry_run=True, progress=False).estimate.calls == 1
    assert requests(again)[1]["pronunciationDictionary"] == {
        "nguyen": {"type": "IPA", "pronunciation": "wɪn"}
    }


def test_the_voice_and_then_the_locale_decide_between_pronunciations(plan):
    sheet = pd.DataFrame(
        [
            ("SQL", None, None, "any"), ("SQL", "en", "*", "language"), ("SQL", "en-US", "", "locale"),
            ("SQL", "*", "Hank", "voice"), ("SQL", "en", "en-US-hank", "full"),
        ],
        columns=["Word", "locale", "voice", "say_as"],
    )  # fmt: skip
    voices = ["en-US-nora", "en-US-hank", "en-GB-edith", "fr-FR-hugo"]

    def said(sheet):
        run = plan(pd.DataFrame({"text": "SQL", "v": voices}), voice=spf.col("v"), pronunciations=sheet)
        return [r["pronunciationDictionary"]["SQL"]["pronunciation"] for r in requests(run)]

    assert said(sheet) == ["locale", "full", "language", "any"]
    assert said(sheet[:4])[1] == "voice"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"pronunciation_dictionary": {}}, "cannot be combined"),
        ({"pronunciations": [{"word": "a", "ipa": "a"}, {"word": "A", "ipa": "b"}, {"word": "a", "ipa": "b"}]},
         "rows 1 and 3 differ for a"),
        ({"pronunciations": [{"word": "a", "ipa": "a", "say_as": "b"}]}, "row 1: 'a' needs either ipa or say_as"),
        ({"pronunciations": [{"word": "a" * 201, "ipa": "a"}]}, "row 1: needs a word"),
        ({"pronunciations": [{"word": "a", "ipa": "a" * 501}]}, "row 1: the ipa of 'a'"),
        ({"pronunciations": [{"word": "a", "ipa": "a", "locale": "Klingonish"}]}, "row 1: 'Klingonish'"),
    ],
)  # fmt: skip
def test_sheets_of_words_that_cannot_be_used_are_refused_by_row(plan, given, fault):
    with pytest.raises(spf.InvalidRows, match=fault):
        plan(["a"], **{"pronunciations": {"a": "b"}, **given})


def test_a_column_of_dictionaries_may_hold_json(plan):
    said = {"SQL": {"type": "SAY_AS", "pronunciation": "sequel"}}
    table = pd.DataFrame({"text": ["SQL", "SQL"], "words": [said, None]})
    with pytest.raises(spf.InvalidRows, match=r"map\(json.dumps\)"):
        plan(table.assign(words=[said, {"GIF": {"type": "IPA", "pronunciation": "x"}}]))
    column = spf.col("words")
    run = plan(table.assign(words=[json.dumps(said), None]), pronunciation_dictionary=column)
    assert [r.get("pronunciationDictionary") for r in requests(run)] == [said, None]
    with pytest.raises(spf.InvalidRows, match="JSON text"):
        plan(table.assign(words="{"), pronunciation_dictionary=column)


def test_the_cast_gives_each_row_its_voice(plan):
    rows = [("ANNA", "en-US"), ("Ben", "en-US"), ("Cid", "en-US"), ("Cid", "en-GB"), (None, "en-US")]
    table = pd.DataFrame(rows, columns=["character", "locale"]).assign(text="Hi.")
    given = {"voice": None, "cast": CAST}
    run = plan(table, **given, locale=spf.col("locale"))
    made = [(r["voiceId"], r.get("rate")) for r in requests(run)]
    nora, hank, joe = ("en-US-nora", 10), ("en-US-hank", None), ("en-US-joe", -5)
    assert made == [nora, hank, joe, ("en-US-ruby", None), joe]
    table["own"] = ["en-US-ruby", *[None] * 4]
    run = plan(table[:2], **given | {"voice": spf.col("own")}, rate=3)
    assert [(r["voiceId"], r["rate"]) for r in requests(run)] == [("en-US-ruby", 3), ("en-US-ruby", 3)]


def test_a_character_without_a_line_is_a_problem_of_its_row(plan):
    table = pd.DataFrame({"id": ["1"], "text": ["Hi."], "character": ["Anne"]})
    with pytest.raises(spf.InvalidRows) as refused:
        plan(table, id="id", voice=None, cast=CAST[:2], locale="fr-FR", dry_run=False)
    (problem,) = refused.value.problems
    assert (problem["field"], problem["row_id"]) == ("cast", "1")
    assert problem["problem"] == "has no line for the character 'Anne' and the locale fr-FR"
    assert "nearest: Anna in *" in problem["allowed"]
    with pytest.raises(spf.InvalidRows, match="rows 1 and 3 differ for anna, "):
        plan(table, voice=None, cast=[*CAST[:2], {"character": "anna", "voice": "en-US-ruby"}])
    with pytest.raises(spf.InvalidRows, match="row 1: rate 'fast' is not an integer"):
        plan(table, voice=None, cast=[{"character": "Anne", "voice": "en-US-ruby", "rate": "fast"}])
    with pytest.raises(spf.InvalidRows, match="cast= with a voice for each character"):
        plan(table, voice=None)


def test_a_resumed_run_keeps_its_sheets(plan, service):
    options = {"spoken": True, "fill": {"*": {"n": 2}}, "pronunciations": {"SQL": "sequel"}, "cast": CAST}
    table = pd.DataFrame({"text": ["{n} SQL"], "character": ["Ben"]})
    run = plan(table, voice=None, locale="en-US", dry_run=False, **options)
    more = pd.concat([table, pd.DataFrame({"text": ["<b>{n} more</b>"], "character": ["Anna"]})])
    run = spf.resume(run, table=more.reset_index(drop=True), service=service.settings, progress=False)
    assert statuses(run) == ["done", "done"]
    frame = run.to_pandas()
    assert list(frame["spoken_text"]) == ["2 SQL", "2 more"]
    assert list(frame["voice_id"]) == ["en-US-hank", "en-US-nora"]
    assert "spf:character" not in frame
