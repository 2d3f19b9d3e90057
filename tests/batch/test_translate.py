"""`translate` from end to end, on a scripted service on a real port: rows, languages, packs, money, faults."""

import math
import threading
from collections import Counter

import pandas as pd
import pyarrow as pa
import pytest
from babel import KEY, Babel, check_books, translated
from tenacity import wait_random_exponential

import speechframe as spf
from speechframe.old_batch import retry
from speechframe.spec.chosen import MAX_TEXTS_PER_CALL, route_warning

TARGETS = ["fr-FR", "es-ES"]
LINES = [f"Line {i} says hello to the world." for i in range(50)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(retry, "_backoff", wait_random_exponential(multiplier=0.01, max=0.05))


@pytest.fixture
def make_babel():
    made = []

    def make(**options):
        server = Babel(**options)
        server.up()
        made.append(server)
        return server

    yield make
    for server in made:
        server.down()


@pytest.fixture
def babel(make_babel):
    return make_babel()


@pytest.fixture
def turn(tmp_path):
    """Translate on a scripted service, into one folder a test."""

    def call(server, table, **options):
        given = {"targets": TARGETS, "run_dir": tmp_path / "run", "progress": False, **options}
        return spf.translate(table, service=server.settings, **given)

    call.folder = tmp_path / "run"
    return call


def statuses(run):
    frame = run.to_pandas()
    return Counter(frame["status"])


# -- rows and languages -----------------------------------------------------------------


def test_every_row_comes_in_every_language(babel, turn):
    frame = pd.DataFrame({"line": ["Good day", "Well then"], "who": [1, 2]}, index=["a", "b"])
    run = turn(babel, frame, text="line")
    found = run.to_pandas()
    assert found.index.tolist() == ["a", "a", "b", "b"]
    assert found["who"].tolist() == [1, 1, 2, 2]
    assert found["locale"].tolist() == TARGETS * 2
    assert found["translated_text"].tolist() == [translated(t, x) for t in frame["line"] for x in TARGETS]
    assert found["credits"].tolist() == [8, 8, 9, 9]
    assert set(found["status"]) == {"done"}
    ids = [row_id for batch in run.batches(["speech_row_id"]) for row_id in batch.column(0).to_pylist()]
    assert ids == ["a:fr-FR", "a:es-ES", "b:fr-FR", "b:es-ES"]
    assert not {"audio", "audio_seconds", "word_durations", "format"} & set(found)
    check_books(run, babel)


def _csv(folder):
    pd.DataFrame({"text": LINES}).to_csv(folder / "lines.csv", index=False)
    return folder / "lines.csv"


@pytest.mark.parametrize(
    "table",
    [
        lambda _: LINES,
        lambda _: pd.DataFrame({"text": LINES}),
        lambda _: pd.DataFrame({"text": LINES}, index=range(7, 57)),
        lambda _: pa.table({"text": LINES}),
        lambda _: pa.table({"text": LINES}).to_reader(7),
        lambda _: ({"text": line} for line in LINES),
        _csv,
    ],
)
def test_any_table_is_spread(babel, turn, tmp_path, table):
    run = turn(babel, table(tmp_path))
    found = run.to_pandas()
    assert found["text"].tolist() == [line for line in LINES for _ in TARGETS]
    assert found["locale"].tolist() == TARGETS * len(LINES)
    assert len(babel.seen) == len(TARGETS)
    assert run.failed.empty


@pytest.mark.parametrize("index", [range(4), range(7, 11), [3, 1, 4, 15], list("abcd")])
def test_failed_rows_stand_under_the_index_of_the_whole(make_babel, turn, index):
    frame = pd.DataFrame({"text": ["one", "two", "three", "four"]}, index=index)
    run = turn(make_babel(bad={"three"}), frame)
    found = run.to_pandas()
    failed = found[found["status"] == "failed"]
    assert failed["text"].tolist() == ["three", "three"]
    columns = ["text", "locale", "status", "error_code"]
    pd.testing.assert_frame_equal(run.failed[columns], failed[columns], check_index_type=False)
    ids = [row_id for batch in run.batches(["speech_row_id"]) for row_id in batch.column(0).to_pylist()]
    assert ids == [f"{row_id}:{target}" for row_id in index for target in TARGETS]


def test_texts_and_languages_may_be_lists_beside_the_table(babel, turn):
    frame = pd.DataFrame({"n": [1, 2, 3]})
    run = turn(babel, frame, text=["one", "two", "three"], source_locale=["en", "en", "de"])
    found = run.to_pandas()
    assert found["text"].tolist() == ["one", "one", "two", "two", "three", "three"]
    assert found["route"].tolist()[::2] == ["en>fr-FR", "en>fr-FR", "de>fr-FR"]


@pytest.mark.parametrize("targets", ["fr_FR", ["FR-fr"], ("fr-FR", "fr_fr")])
def test_targets_are_spelled_as_the_house_does(babel, turn, targets):
    run = turn(babel, ["Good day"], targets=targets)
    assert run.to_pandas()["locale"].tolist() == ["fr-FR"]
    assert babel.seen[0].target == "fr-FR"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": []}, "targets: is empty"),
        ({"targets": ["fr-FR", "tlhh"]}, "targets: is no language"),
        ({"targets": [None]}, "targets: is no language"),
        ({"source_locale": "??"}, "is no language"),
        ({"source_locale": "fr-FR"}, "the language that is asked for"),
        ({"text": "words"}, "names a column the table does not have"),
        ({"take": 1}, "is nothing that translate has"),
        ({"glossary": [{"source": ""}]}, "has no column 'target'"),
    ],
)
def test_what_cannot_be_translated_is_said_before_anything_is_spent(babel, turn, options, words):
    with pytest.raises(spf.InvalidRows, match=words):
        turn(babel, ["Good day"], **options)
    assert babel.seen == []
    assert not turn.folder.exists()


def test_a_language_the_service_does_not_know_is_said_before_anything_is_spent(make_babel, turn):
    pairs = [{"source": "en", "target": "pt-BR"}, {"source": "pt", "target": "en"}]
    server = make_babel(limits={"translation": {"pairs": pairs}})
    with pytest.raises(spf.InvalidRows, match=r"translates into \(value fr-FR\); allowed: pt-BR, en"):
        turn(server, ["Good day"], targets=["pt-PT", "fr-FR"])
    with pytest.raises(spf.InvalidRows, match=r"is not translated into pt-PT by this service .* allowed: en"):
        turn(server, ["Good day"], targets=["pt-PT"], source_locale="de")
    assert server.seen == []
    assert statuses(turn(server, ["Good day"], targets=["pt-PT"], source_locale="en_gb")) == {"done": 1}


def test_bad_rows_are_all_said_or_left_out(babel, turn):
    table = pd.DataFrame({"text": ["Good day", None, "  ", "x" * 100_001]}, index=list("abcd"))
    with pytest.raises(spf.InvalidRows) as error:
        turn(babel, table)
    assert [(p["row_id"], p["problem"]) for p in error.value.problems][::2] == [
        ("b:fr-FR", "is missing"),
        ("c:fr-FR", "is empty"),
        ("d:fr-FR", "is too long (100,001 characters)"),
    ]
    assert babel.seen == []
    run = turn(babel, table, on_invalid="skip")
    found = run.to_pandas()
    assert found["status"].tolist() == ["done"] * 2 + ["invalid"] * 6
    assert found["locale"].tolist() == TARGETS * 4


def test_one_bad_row_of_two_is_left_out_though_it_stands_in_two_languages(babel, turn):
    assert statuses(turn(babel, ["Good day", ""], on_invalid="skip")) == {"done": 2, "invalid": 2}


def test_the_source_language_is_sent_only_to_a_service_that_takes_it(make_babel, turn, tmp_path):
    turn(make_babel(), ["Good day"], source_locale="en_us")
    told = make_babel(limits={"source_language": True})
    run = turn(told, pd.DataFrame({"text": ["a b", "c d"], "l": ["en", "de"]}), source_locale=spf.col("l"),
               run_dir=tmp_path / "other")  # fmt: skip
    assert sorted((s.source, s.target) for s in told.seen) == [
        ("de", "es-ES"), ("de", "fr-FR"), ("en", "es-ES"), ("en", "fr-FR"),
    ]  # fmt: skip
    assert run.to_pandas()["route"].tolist() == ["en>fr-FR", "en>es-ES", "de>fr-FR", "de>es-ES"]


def test_a_pivot_is_a_column_and_a_warning_stands_at_its_row(make_babel, turn):
    def warnings(seen):
        places = [i for i, text in enumerate(seen.texts) if "pivot" in text]
        same = [i for i, text in enumerate(seen.texts) if "same" in text]
        return [
            route_warning(f"en>pt-BR>{seen.target}", places),
            f"already in {seen.target} and returned as they are: texts {','.join(map(str, same))}",
            "a word to all",
        ]

    run = turn(
        make_babel(warnings=warnings), ["pivot one", "same here", "plain", "pivot two"], targets=["es"]
    )
    found = run.to_arrow().to_pydict()
    assert found["route"] == ["en>pt-BR>es", None, None, "en>pt-BR>es"]
    told = "already in es and returned as they are"
    assert found["warnings"] == [
        ["a word to all"],
        ["a word to all", told],
        ["a word to all"],
        ["a word to all"],
    ]


# -- packs, money ---------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("rows", "limit"), [(1000, None), (1001, 200), (7, 3), (50, 1)])
def test_calls_are_as_few_as_the_limit_allows(make_babel, turn, rows, limit):
    server = make_babel(limits={} if limit is None else {"max_texts_per_call": limit})
    run = turn(server, [f"Line {i}" for i in range(rows)])
    wanted = math.ceil(rows / (limit or MAX_TEXTS_PER_CALL))
    assert Counter(s.target for s in server.seen) == dict.fromkeys(TARGETS, wanted)
    assert statuses(run) == {"done": rows * len(TARGETS)}
    assert check_books(run, server)["status"].value_counts().to_dict() == {"done": rows * len(TARGETS)}


def test_characters_limit_a_call_too(make_babel, turn):
    server = make_babel(limits={"max_translate_characters": 100})
    run = turn(server, ["x" * 40 + str(i) for i in range(9)], targets=["fr-FR"])
    assert sorted(len(s.texts) for s in server.seen) == [1, 2, 2, 2, 2]
    assert statuses(run) == {"done": 9}


def test_calls_go_side_by_side(make_babel, turn):
    server = make_babel(delay_s=0.2, limits={"max_texts_per_call": 10})
    turn(server, LINES, max_concurrency=4)
    assert server.most_in_flight == 4


def test_equal_rows_are_one_and_the_same_again_costs_nothing(babel, turn):
    first = turn(babel, ["Good day"] * 5 + ["Well then"])
    assert [len(s.texts) for s in babel.seen] == [2, 2]
    assert (first.estimate.rows, first.estimate.unique) == (12, 4)
    again = turn(babel, ["Well then", "Good day", "Never heard"])
    assert (again.estimate.calls, [s.texts for s in babel.seen[2:]]) == (2, [["Never heard"]] * 2)
    more = turn(babel, ["Well then", "Good day"], targets=[*TARGETS, "de"])
    assert [(s.target, len(s.texts)) for s in babel.seen[4:]] == [("de", 2)]
    assert more.to_pandas()["locale"].tolist() == [*TARGETS, "de"] * 2
    check_books(more, babel)


def test_a_cache_serves_other_runs(babel, turn, tmp_path):
    first = turn(babel, [*LINES, "Hi {x}"], cache=tmp_path / "cache", glossary={"hello": "salut"})
    sent = len(babel.seen)
    again = turn(
        babel,
        [*LINES, "Hi {x}"],
        cache=tmp_path / "cache",
        run_dir=tmp_path / "b",
        glossary={"hello": "salut"},
    )
    assert len(babel.seen) == sent
    assert statuses(again) == {"cached": 102}
    same = ["text", "translated_text", "locale", "route", "length_ratio", "placeholders_ok", "glossary_ok"]
    pd.testing.assert_frame_equal(first.to_pandas(same), again.to_pandas(same))
    other = turn(babel, [*LINES, "Hi {x}"], cache=tmp_path / "cache", run_dir=tmp_path / "c")
    assert statuses(other) == {"done": 100, "cached": 2}


def test_a_cache_serves_what_lies_behind_the_end_of_a_budget(make_babel, turn, tmp_path):
    babel = make_babel(limits={"max_texts_per_call": 10})
    turn(babel, LINES[30:], cache=tmp_path / "cache")
    sent = len(babel.seen)
    run = turn(babel, LINES, cache=tmp_path / "cache", run_dir=tmp_path / "b", max_credits=0)
    assert (run.stopped_because, len(babel.seen)) == ("budget", sent)
    assert statuses(run) == {"pending": 60, "cached": 2 * len(LINES) - 60}


def test_a_changed_glossary_makes_only_the_rows_it_concerns(babel, turn):
    turn(babel, ["the cat sleeps", "the dog sleeps"], glossary={"cat": "chat"})
    run = turn(babel, ["the cat sleeps", "the dog sleeps"], glossary={"cat": "matou", "cow": "vache"})
    assert [s.texts for s in babel.seen[2:]] == [["the PZ0 sleeps"]] * 2
    assert run.to_pandas()["translated_text"].tolist()[0] == "eht matou speels (fr-FR)"
    assert run.to_pandas()["glossary_ok"].tolist() == [True, True, None, None]


def test_a_budget_is_used_up_to_the_last_text_that_fits(babel, turn):
    lines = [f"{i:09d}x" for i in range(64)]
    run = turn(babel, lines, targets=["fr-FR"], max_credits=335)
    assert (run.stopped_because, statuses(run)) == ("budget", {"done": 33, "pending": 31})
    assert check_books(run, babel)["credits"].sum() == 330
    assert run.to_pandas()["locale"].tolist() == ["fr-FR"] * 64
    done = spf.resume(run, max_credits=640, service=babel.settings, progress=False)
    assert (done.status, statuses(done), babel.characters) == ("finished", {"done": 64}, 640)


def test_a_balance_that_runs_out_stops_the_run_and_leaves_nothing_unspent(make_babel, turn):
    server = make_babel(quota=335)
    run = turn(server, [f"{i:09d}x" for i in range(64)], targets=["fr-FR"])
    assert (run.stopped_because, statuses(run)) == ("quota", {"done": 33, "pending": 31})
    assert 402 not in [s.step for s in server.seen]
    check_books(run, server)


def test_a_dry_run_prices_every_language_and_sends_nothing(babel, turn):
    run = turn(babel, ["Good day", "Hi {name}"], dry_run=True)
    assert (run.estimate.calls, run.estimate.credits, babel.seen) == (4, 2 * (8 + 6), [])
    assert "4 texts, 28 credits" in run.estimate.line()


# -- faults ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bad", "poison"])
def test_one_bad_row_costs_one_row(make_babel, turn, kind):
    server = make_babel(**{kind: {LINES[17]}})
    run = turn(server, LINES, targets=["fr-FR"], max_attempts=2)
    failed = run.failed
    assert failed["text"].tolist() == [LINES[17]]
    assert failed["error_status"].tolist() == [400 if kind == "bad" else 500]
    assert statuses(run) == {"done": 49, "failed": 1}
    calls = 1 + 2 * math.ceil(math.log2(50))
    assert len(server.seen) <= (calls if kind == "bad" else 2 * calls)
    assert set(server.billed.values()) == {1}
    check_books(run, server)
    server.bad, server.poison = set(), set()
    done = spf.resume(run, service=server.settings, progress=False)
    assert (statuses(done), set(server.billed.values())) == ({"done": 50}, {1})


@pytest.mark.parametrize("status", [404, 405])
def test_a_service_without_translations_is_not_asked_for_every_row(make_babel, turn, status):
    server = make_babel(forever=status)
    assert statuses(turn(server, LINES)) == {"failed": 100}
    assert len(server.seen) == len(TARGETS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", [429, 503, 500, "reset", "reset billed", "broken json", "swapped", "short"])
def test_a_pack_that_failed_once_goes_again_and_is_billed_once(make_babel, turn, step):
    server = make_babel(script=[step])
    run = turn(server, LINES, targets=["fr-FR"])
    assert statuses(run) == {"done": 50}
    assert run.to_pandas()["translated_text"].tolist() == [translated(line, "fr-FR") for line in LINES]
    assert len({s.key for s in server.seen}) == 1
    assert set(server.billed.values()) == {1}
    check_books(run, server)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", ["reset billed", "broken json"])
def test_a_pack_whose_answers_were_all_lost_is_billed_once_after_a_resume(make_babel, turn, step):
    server = make_babel(forever=step)
    run = turn(server, LINES, targets=["fr-FR"], max_attempts=3)
    assert statuses(run) == {"charged_unknown": 50}
    check_books(run, server)
    server.forever = "ok"
    # Other rows beside them: the pack is sent as it was, for nothing.
    table, paid = ["Another", *LINES, "And another"], server.characters
    some = spf.resume(run, table=table, max_credits=paid, service=server.settings, progress=False)
    assert (some.estimate.paid, some.estimate.credits) == (50, len("Another") + len("And another"))
    assert (statuses(some), server.characters) == ({"done": 50, "pending": 2}, paid)
    assert some.stopped_by.needed_credits == some.estimate.credits
    done = spf.resume(some, max_credits=math.inf, service=server.settings, progress=False)
    assert statuses(done) == {"done": 52}
    assert set(server.billed.values()) == {1}
    check_books(done, server)


def test_a_pack_of_which_a_row_is_gone_is_not_sent_again_unasked(make_babel, turn):
    server = make_babel(forever="reset billed")
    run = turn(server, LINES, targets=["fr-FR"], max_attempts=2)
    server.forever = "ok"
    less = spf.resume(run, table=LINES[1:], service=server.settings, progress=False)
    assert statuses(less) == {"charged_unknown": 49}
    assert set(server.billed.values()) == {1}
    check_books(less, server)
    paid = spf.resume(run, table=LINES[1:], on_unknown="retry", service=server.settings, progress=False)
    assert statuses(paid) == {"done": 49}
    assert Counter(server.billed.values()) == {2: 49, 1: 1}
    check_books(paid, server)


def test_without_idempotency_what_may_have_been_billed_is_not_sent_again(make_babel, turn):
    server = make_babel(idempotent=None, script=["reset billed"])
    run = turn(server, LINES)
    assert statuses(run) == {"charged_unknown": 50, "done": 50}
    assert set(server.billed.values()) == {1}
    check_books(run, server)
    again = spf.resume(run, service=server.settings, progress=False)
    assert statuses(again) == {"charged_unknown": 50, "done": 50}
    done = spf.resume(run, on_unknown="retry", service=server.settings, progress=False)
    assert (statuses(done), Counter(server.billed.values())) == ({"done": 100}, {1: 50, 2: 50})
    check_books(done, server)


def test_a_pack_that_may_have_been_billed_is_not_split(make_babel, turn):
    server = make_babel(script=["reset billed", 400, 400, 400])
    run = turn(server, LINES, targets=["fr-FR"])
    assert (statuses(run), len(server.seen)) == ({"charged_unknown": 50}, 2)
    check_books(run, server)


# -- what is in a translation -------------------------------------------------------------


def test_placeholders_come_back_and_lost_ones_are_flagged(make_babel, turn):
    lost = {"Bye PZ0, PZ1": "bye PZ1 PZ1"}
    server = make_babel(edit=lambda text, _, said: lost.get(text, said))
    run = turn(server, ["Hello {name}, you have %d of 12", "Bye {name}, %s", "None here"], targets=["fr-FR"])
    found = run.to_pandas()
    assert found["translated_text"].tolist() == [
        "olleH {name}, uoy evah %d fo 12 (fr-FR)",
        "bye %s %s",
        "enoN ereh (fr-FR)",
    ]
    assert found["placeholders_ok"].tolist() == [True, False, True]
    assert set(found["status"]) == {"done"}
    assert found["billed_characters"].tolist() == [
        len("Hello PZ0, you have PZ1 of 12"),
        len("Bye PZ0, PZ1"),
        9,
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        ("Good day to you", "", "empty"),
        ("Good day to you", "  ", "empty"),
        ("one two three four five six seven", None, "untranslated"),
        ("one two three four five six seven", "x", "length"),
        ("one two three four five six seven", "x" * 400, "length"),
        ("one two three four five six seven", "la la La la la la la", "repeating"),
    ],
)
def test_a_translation_that_cannot_be_true_is_suspect(make_babel, turn, text, said, code):
    server = make_babel(edit=lambda t, _, good: good if t == "Fine" else (t if said is None else said))
    run = turn(server, [text, "Fine"], targets=["fr-FR"])
    found = run.to_pandas()
    assert found["status"].tolist() == ["suspect", "done"]
    assert found["error_code"].tolist()[0] == code
    assert "error_message says what is suspect" in run.summary()
    taken = turn(
        server, [text, "Fine"], targets=["fr-FR"], truth_checks=False, run_dir=turn.folder.parent / "b"
    )
    assert statuses(taken) == {"done": 2}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("says", "statuses_of"),
    [
        ("es-ES", {"suspect": 2}),
        ("fr-CA", {"suspect": 2}),
        ("fr", {"done": 2}),
        ("fr_FR", {"done": 2}),
        ("?", {"done": 2}),
    ],
)
def test_a_translation_into_another_language_is_suspect(make_babel, turn, says, statuses_of):
    run = turn(make_babel(says=says), ["Good day", "Fine"], targets=["fr-FR"])
    assert statuses(run) == statuses_of
    if "suspect" in statuses_of:
        found = run.to_pandas()
        assert set(found["error_code"]) == {"target"}
        assert set(found["error_message"]) == {f"the answer says it is in {says}, fr-FR was asked for"}


def test_another_region_that_the_service_owns_up_to_is_not_suspect(make_babel, turn):
    server = make_babel(says="fr-FR", warnings=lambda _: ["French of fr-CA is not here; it is that of fr-FR"])
    assert statuses(turn(server, ["Good day"], targets=["fr-CA"])) == {"done": 1}


def test_what_the_client_notes_itself_is_no_reason_for_a_text_that_was_not_translated(make_babel, turn):
    server = make_babel(edit=lambda text, *_: text, has_metadata=False)
    row = turn(server, ["one two three four five six seven"], targets=["fr-FR"]).to_pandas().iloc[0]
    assert (row["status"], row["error_code"]) == ("suspect", "untranslated")
    assert list(row["warnings"]) == ["the answer has no metadata"]


@pytest.mark.parametrize("text", ["Berlin", "OK", "iPhone 15 Pro Max", "John Smith, London"])
def test_names_may_stay_as_they_are(make_babel, turn, text):
    run = turn(make_babel(edit=lambda t, *_: t), [text], targets=["fr-FR"])
    assert statuses(run) == {"done": 1}


# -- going on ----------------------------------------------------------------------------


def test_a_run_takes_another_table_with_the_languages_it_was_made_for(babel, turn):
    frame = pd.DataFrame({"text": ["Good day", "Well then"]}, index=["a", "b"])
    run = turn(babel, frame, glossary={"day": "jour"})
    frame = pd.DataFrame({"text": ["Good day", "Well now", "New day"]}, index=["a", "b", "c"])
    found = spf.changes(run, frame, service=babel.settings)
    assert (found.new, found.changed) == (("c:fr-FR", "c:es-ES"), ("b:fr-FR", "b:es-ES"))
    assert (found.unchanged, found.credits) == (("a:fr-FR", "a:es-ES"), 2 * (8 + 7))
    assert found.columns["b:fr-FR"] == ("text",)
    again = spf.resume(run, table=frame, service=babel.settings, progress=False)
    assert [sorted(s.texts) for s in babel.seen[2:]] == [["New PZ0", "Well now"]] * 2
    assert statuses(again) == {"done": 6}
    assert again.to_pandas()["glossary_ok"].tolist() == [True, True, None, None, True, True]
    check_books(again, babel)


def test_there_is_no_other_take_of_a_translation(babel, turn):
    run = turn(babel, ["Good day"])
    with pytest.raises(spf.InvalidRows, match="translate has none"):
        spf.resume(run, redo="done", service=babel.settings)


def test_a_translation_run_is_spoken(babel, turn, service, tmp_path):
    frame = pd.DataFrame(
        {"text": ["Good day", "Bad day", "Fine day"], "voice": "nora"}, index=["a", "b", "c"]
    )
    babel.bad = {"Bad day"}
    run = turn(babel, frame, targets=["en-GB"], run_dir=tmp_path / "t")
    with pytest.raises(spf.InvalidRows, match="'b:en-GB', text: is missing"):
        spf.generate(
            run, text="translated_text", voice=spf.col("voice"), service=service, run_dir=tmp_path / "g"
        )
    for table in (run, tmp_path / "t"):
        spoken = spf.generate(
            table, text="translated_text", voice=spf.col("voice"), on_invalid="skip", service=service, progress=False,
            run_dir=tmp_path / "g",
        )  # fmt: skip
        found = spoken.to_pandas()
        assert found["status"].tolist() == ["done", "invalid", "done"]
        assert found["translated_text"].tolist()[::2] == ["dooG yad (en-GB)", "eniF yad (en-GB)"]
        assert (found["locale"].tolist(), found.index.tolist()) == (["en-GB"] * 3, ["a", "b", "c"])
        assert found["credits"].tolist()[::2] == [16, 16]
    assert spoken.clip("a:en-GB").text == "dooG yad (en-GB)"


def test_a_frame_names_its_rows_by_id_and_language(babel, turn):
    run = turn(babel, pd.DataFrame({"id": [2, 1], "text": ["Good day", "Bad day"]}), id="id")
    frame = run.to_pandas().sort_values("locale").reset_index(drop=True)
    assert frame.loc[:1, ["id", "locale"]].to_numpy().tolist() == [[2, "es-ES"], [1, "es-ES"]]
    found = run.select(frame.iloc[[0]]).to_pandas()
    assert found[["id", "locale"]].to_numpy().tolist() == [[2, "es-ES"]]
    with pytest.raises(KeyError, match="takes one column 'locale'; select by ids"):
        run.select(frame.iloc[[0]].drop(columns="locale"))


def test_an_index_of_ids_needs_the_language_beside_it(babel, turn):
    run = turn(babel, pd.DataFrame({"id": [2, 1], "text": ["Good day", "Bad day"]}), id="id")
    frame = run.to_pandas().sort_values(["id", "locale"])
    for some in (frame.set_index(["id", "locale"]), frame.set_index(["locale", "id"])):
        asked = [(2, "es-ES") in {(i, locale), (locale, i)} for i, locale in some.index]
        mask = pd.Series(asked, index=some.index)
        for rows in (mask, some[mask]):
            found = run.select(rows).to_pandas()
            assert found[["id", "locale"]].to_numpy().tolist() == [[2, "es-ES"]]
    found = run.select(frame.set_index("id").loc[[2]].query("locale == 'es-ES'")).to_pandas()
    assert found[["id", "locale"]].to_numpy().tolist() == [[2, "es-ES"]]
    with pytest.raises(KeyError, match="takes one column 'locale'; select by ids"):
        run.select(frame.set_index("id")[["text"]])
    with pytest.raises(ValueError, match="goes by its index"):
        run.select(frame.set_index("id")["locale"] == "es-ES")


def test_runs_of_several_languages_are_one_table(babel, turn, service, tmp_path):
    runs = [turn(babel, ["Good day"], targets=[t], run_dir=tmp_path / t) for t in ("en-GB", "en-US")]
    spoken = spf.generate(
        runs, text="translated_text", voice="nora", service=service, progress=False, run_dir=tmp_path / "g"
    )
    assert spoken.to_pandas()["locale"].tolist() == ["en-GB", "en-US"]
    assert statuses(spoken) == {"done": 2}


def test_a_chain_of_runs_never_runs_out_of_names(babel, turn, service, tmp_path):
    frame = pd.DataFrame({"text": ["Good day"], "locale": ["en"], "status": ["mine"], "credits": [0.5]})
    first = turn(babel, frame, targets=["de"], source_locale=spf.col("locale"), run_dir=tmp_path / "1")
    assert first.to_pandas()["speech_locale"].tolist() == ["de"]
    second = turn(babel, first, text="translated_text", targets=["fr"], run_dir=tmp_path / "2")
    spoken = spf.generate(
        second, text="translated_text", voice="nora", service=service, progress=False, run_dir=tmp_path / "3"
    )
    found = spoken.to_pandas()
    assert (found["locale"].tolist(), found["speech_locale"].tolist()) == (["en"], ["de"])
    assert (found["status"].tolist(), found["credits"].tolist()) == (["mine"], [0.5])
    assert found["speech_status"].tolist() == ["done"]


def test_what_people_read_speaks_of_texts(babel, turn, capsys):
    run = turn(babel, LINES, progress=True)
    said = capsys.readouterr().err
    assert "translate on babel/1: 100 rows, 100 unique, 100 texts" in said
    assert "audio" not in run.summary() + said
    assert f"{sum(map(len, run.to_pandas()['translated_text'])):,} characters of translation" in run.summary()
    assert run.stats["translated_characters"] == sum(map(len, run.to_pandas()["translated_text"]))
    with pytest.raises(KeyError, match="has no audio"):
        run.clip("0:fr-FR")
    assert KEY not in repr(run) + run.summary() + said


def test_outcomes_come_by_row(babel, turn):
    run = turn(babel, LINES, wait=False)
    assert sorted(o.row_id for o in run.outcomes()) == sorted(f"{i}:{t}" for i in range(50) for t in TARGETS)
    run.wait()


async def test_the_async_face_is_the_same(babel, tmp_path):
    run = await spf.aio.translate(
        ["Good day"], targets=["fr"], service=babel.settings, run_dir=tmp_path / "r", progress=False
    )
    assert run.to_pandas()["translated_text"].tolist() == ["dooG yad (fr)"]


@pytest.mark.slow
def test_a_long_table_is_read_as_it_is_sent(make_babel, turn):
    server = make_babel(delay_s=0.01)
    threads = threading.active_count()
    run = turn(server, [f"Line {i}" for i in range(5000)], targets=["fr-FR", "es-ES", "de-DE"])
    assert len(server.seen) == 3 * 25
    assert statuses(run) == {"done": 15_000}
    assert threading.active_count() <= threads + 8


def test_one_credit_is_one_credit(babel, turn, capsys):
    run = turn(babel, ["a", "b", "c"], targets=["fr"], max_credits=1, progress=True, max_concurrency=1)
    said = capsys.readouterr().err
    assert "more than the 1 that its budget leaves" in said
    assert "max_credits=1: 1 is spent, 0 are left, the 2 texts to come would cost 2." in said
    assert "1 credit in 1 attempt on babel/1" in run.summary()
    assert (
        "1 row, 1 unique, 1 text, 1 credit, 4 at a time"
        in turn(
            babel, ["a"], dry_run=True, targets=["es"], run_dir=turn.folder.parent / "one"
        ).estimate.line()
    )


def test_an_empty_text_is_shown_as_it_is(babel, turn):
    with pytest.raises(spf.InvalidRows, match=r"text: is empty \(value '  '\)"):
        turn(babel, ["fine", "  "])
    with pytest.raises(spf.InvalidRows, match="has 1 value, the table has more rows"):
        turn(babel, pd.DataFrame({"a": [1, 2]}), text=["one"])


def test_what_a_resume_does_not_send_again_by_itself_says_so(make_babel, turn):
    server = make_babel(idempotent=None, script=["reset billed"])
    run = turn(server, ["one", "two"], targets=["fr"])
    assert statuses(run) == {"charged_unknown": 2}
    assert 'resume(run, on_unknown="retry") sends them again' in run.summary()
    assert statuses(spf.resume(run.path, service=server.settings, progress=False)) == {"charged_unknown": 2}
    again = spf.resume(run.path, service=server.settings, progress=False, on_unknown="retry")
    assert statuses(again) == {"done": 2}
