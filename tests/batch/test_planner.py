"""Rows to keyed, priced calls; problems before anything is spent."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.errors import InvalidRows
from speechframe.old_batch.catalogue import VoiceBook
from speechframe.old_batch.columns import col
from speechframe.old_batch.generate import GenerateOperation
from speechframe.old_batch.keys import KeyColumn, among, as_keys, first_of_each, repeated
from speechframe.old_batch.naming import ROW_ID
from speechframe.old_batch.options import Options
from speechframe.old_batch.plan import Plan, calls
from speechframe.old_batch.planner import plan_table
from speechframe.spec.speech import StyleDetails, Voice

VOICES = [
    Voice(
        voice_id="en-US-nora",
        locale="en-US",
        supported_locales={
            "en-US": StyleDetails(available_styles=["Conversational", "Narration"]),
            "fr-FR": StyleDetails(available_styles=["Conversational"]),
        },
    ),
    Voice(voice_id="de-DE-greta", locale="de-DE", supported_locales={"de-DE": StyleDetails()}),
]
OPERATION = GenerateOperation(VoiceBook(VOICES), "local/test-1")


def planned(table, *, options=None, **arguments):
    planner = plan_table(table, {"text": "text", **arguments}, OPERATION, options or Options())
    batches = list(planner.batches())
    return planner, pa.Table.from_batches(batches, planner.schema)


def problems_of(table, **arguments):
    return planned(table, **arguments)[0].problems


def keys_of(table, **arguments):
    return planned(table, **arguments)[1].column("request_key").to_pylist()


def test_equal_calls_have_equal_keys_and_others_differ():
    keys = keys_of(["a", "b", "a"], voice="nora")
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize(
    "other",
    [
        {"voice": "greta"}, {"style": "Narration"}, {"locale": "fr-FR"}, {"rate": 3}, {"pitch": -3}, {"variation": 2},
        {"format": "WAV"}, {"sample_rate": 8000}, {"channel_type": "STEREO"}, {"audio_duration": 2.5},
        {"word_durations_as_original_text": True},
        {"pronunciation_dictionary": {"a": {"type": "SAY_AS", "pronunciation": "eh"}}},
    ],
    ids=lambda value: next(iter(value)),
)  # fmt: skip
def test_whatever_changes_the_audio_changes_the_key(other):
    assert keys_of(["a"], voice="nora", format="FLAC") != keys_of(
        ["a"], **{"voice": "nora", "format": "FLAC", **other}
    )


@pytest.mark.parametrize(
    "same",
    [{"voice": "en-US-nora"}, {"voice": "NORA"}, {"encode_as_base64": False}, {"sample_rate": 44100}, {"variation": 1},
     {"sample_rate": "44100.0"}, {"take": 0}],
    ids=str,
)  # fmt: skip
def test_whatever_means_the_same_keeps_the_key(same):
    assert keys_of(["a"], voice="nora") == keys_of(["a"], **{"voice": "nora", **same})


def test_take_and_service_are_part_of_the_key():
    first = keys_of(["a"], voice="nora")
    assert keys_of(["a"], voice="nora", options=Options.of(take=1)) != first
    other = GenerateOperation(VoiceBook(VOICES), "local/test-2")
    assert other.check({"text": "a", "voice": "nora"}, 0).planned.request_key != first[0]


@pytest.mark.parametrize(
    "take",
    [pd.Series([0, 1]), pd.Series([None, 1], dtype="Int64"), np.array([0, 1]), [0, 1], pa.array([0, 1])],
    ids=lambda take: type(take).__name__,
)
def test_takes_by_row_come_as_any_kind_of_list(take):
    keys = [keys_of(["a"], voice="nora", options=Options.of(take=take))[0] for take in (0, 1)]
    assert keys_of(["a", "a"], voice="nora", options=Options.of(take=take)) == keys
    single = np.array(1)
    assert keys_of(["a"], voice="nora", options=Options.of(take=single)) == keys[1:]


@pytest.mark.parametrize("take", ["", {}, False, 0.0, pd.NA, np.array(0.5)], ids=repr)
def test_what_is_no_take_is_not_the_first_one(take):
    planner, _ = planned(["a", "b"], voice="nora", options=Options.of(take=take))
    assert [(p["field"], p["problem"]) for p in planner.problems] == [("take", "is no take")]


def test_a_take_by_row_is_one_for_each_row():
    with pytest.raises(InvalidRows, match="take: has 0 values, the table has more rows"):
        planned(["a"], voice="nora", options=Options.of(take=[]))


def test_a_take_without_variation_is_the_first_one():
    planner, table = planned(["a"], voice="nora", variation=0, options=Options.of(take=3))
    assert table.column("request_key").to_pylist() == keys_of(["a"], voice="nora", variation=0)
    assert planner.identical_retakes == 1


def test_columns_lists_and_constants():
    frame = pd.DataFrame({"text": ["a", "b"], "who": ["nora", "greta"], "speed": [1.0, np.nan]})
    by_column = keys_of(frame, voice=col("who"), rate=col("speed"))
    by_list = keys_of(frame, voice=["nora", "greta"], rate=pd.Series([1, None]))
    assert by_column == by_list == [keys_of(["a"], voice="nora", rate=1)[0], keys_of(["b"], voice="greta")[0]]


def test_every_problem_of_every_row_is_named():
    frame = pd.DataFrame({"text": ["fine", None, "  ", "<speak>hi</speak>", "x" * 5001, "fine too"],
                          "who": ["nora", "nora", "nora", "nora", "nora", "norra"], "speed": [1, 1, 1, 1, 1, 99]})  # fmt: skip
    found = problems_of(frame, voice=col("who"), rate=col("speed"))
    assert [(p["row"], p["field"]) for p in found] == [
        (1, "text"), (2, "text"), (3, "text"), (4, "text"), (5, "rate"), (5, "voice"),
    ]  # fmt: skip
    by_field = {(p["row"], p["field"]): p for p in found}
    assert "[pause 1s]" in by_field[3, "text"]["allowed"]
    assert "nora" in by_field[5, "voice"]["allowed"]
    assert "-50" in by_field[5, "rate"]["allowed"]
    assert "99" in str(by_field[5, "rate"]["value"])


def test_a_wrong_constant_is_said_once_and_offers_the_column():
    frame = pd.DataFrame({"text": ["a"] * 50, "voice": ["nora"] * 50})
    (found,) = problems_of(frame, voice="voice")
    assert found["row"] is None
    assert 'col("voice")' in found["allowed"]


@pytest.mark.parametrize(
    ("arguments", "field", "allowed"),
    [
        ({"voice": "nora", "locale": "fr"}, None, None),
        ({"voice": "nora", "locale": "es-ES"}, "locale", "en-US"),
        ({"voice": "nora", "style": "Narrations"}, "style", "Narration"),
        ({"voice": "nora", "locale": "fr-FR", "style": "Narration"}, "style", "Conversational"),
        ({"voice": "nora", "pitch": 51}, "pitch", "50"),
        ({"voice": "nora", "variation": 6}, "variation", "5"),
        ({"voice": "nora", "sample_rate": 16000}, "sample_rate", "24000"),
        ({"voice": "nora", "format": "AIFF"}, "format", "FLAC"),
        ({"voice": "nora", "audio_duration": -1}, "audio_duration", "0"),
        ({"voice": "nora", "rate": True}, "rate", "-50"),
        ({"voice": "nora", "model": "falcon-2"}, "model", "gen2"),
        ({"voice": "en-US-norra"}, "voice", "en-US-nora"),
    ],
)
def test_values_out_of_range_say_what_is_allowed(arguments, field, allowed):
    found = problems_of(["a"], **arguments)
    if field is None:
        # A bare language is no locale the voice lists; the nearest one is offered.
        assert [p["field"] for p in found] == ["locale"]
        return
    assert [p["field"] for p in found] == [field]
    assert allowed in found[0]["allowed"]


def test_duplicate_and_missing_ids():
    frame = pd.DataFrame({"text": list("abcd"), "id": ["x", "y", "x", None]})
    found = problems_of(frame, voice="nora", options=Options.of(id="id"))
    assert sorted((p["row"], p["field"], p["problem"].split()[0]) for p in found) == [
        (2, "id", "stands"), (3, "id", "is"),
    ]  # fmt: skip


def test_duplicate_index_is_a_problem_too():
    frame = pd.DataFrame({"text": ["a", "b"]}, index=["same", "same"])
    (found,) = problems_of(frame, voice="nora")
    assert "the index" in found["problem"]
    assert (found["row"], found["row_id"], found["value"]) == (1, "same", "same")


@pytest.mark.parametrize(
    ("table", "arguments", "words"),
    [
        (pd.DataFrame({"text": [1, 2]}), {}, "column 'text' is int64, not text"),
        (pd.DataFrame({"text": [1.5, np.nan]}), {}, "column 'text' is double, not text"),
        (pd.DataFrame({"line": [b"a"]}), {"text": "line"}, "names a column of bytes, not of text"),
        (["a"], {"text": "line"}, "names a column the table does not have"),
        (["a"], {"voice": col("who")}, "names a column the table does not have"),
        (["a", "b"], {"voice": ["nora"]}, "one value a row"),
        (["a"], {"voice": ["nora", "nora"]}, "one value a row"),
        (["a"], {"voice": [["nora"], 3]}, "several kinds"),
        (["a"], {"voice": ["nora\ud800"]}, "voice: .*cannot be stored: .*surrogates"),
        (["a"], {"pronunciation_dictionary": [{}]}, "pronunciation_dictionary: cannot be stored: .*no child"),
        (pd.DataFrame({"text": ["a"], "audio": ["b"], "speech_audio": ["c"]}), {}, "needs for itself"),
    ],
)
def test_what_is_wrong_with_the_whole_table(table, arguments, words):
    with pytest.raises(InvalidRows, match=words):
        planned(table, **{"voice": "nora", **arguments})


def test_values_that_are_no_text_are_named_by_row():
    found = problems_of(["a", 7, "b"], voice="nora")
    assert [(p["row"], p["problem"]) for p in found] == [(1, "is int, not text")]


def test_columns_with_our_names_are_prefixed():
    planner, _ = planned(pd.DataFrame({"text": ["a"], "status": ["x"], "request_key": ["y"]}), voice="nora")
    assert planner.names["status"] == "speech_status"
    assert planner.names["request_key"] == "speech_request_key"


def test_a_hundred_thousand_rows_with_one_bad():
    texts = [f"line {i}" for i in range(100_000)]
    texts[77_777] = ""
    found = problems_of(texts, voice="nora")
    assert [(p["row"], p["row_id"], p["problem"]) for p in found] == [(77_777, "77777", "is empty")]


def test_many_problems_are_counted_but_not_all_kept():
    planner, _ = planned([""] * 12_000, voice="nora")
    assert (planner.problem_count, len(planner.problems)) == (12_000, 10_000)
    error = InvalidRows(planner.problems, total=planner.problem_count)
    assert "12,000 problems" in str(error)
    assert "11,995 more" in str(error)


def test_plan_counts_unique_finished_and_price():
    planner, table = planned(["aa", "bbb", "aa", ""], voice="nora")
    keys = table.column("request_key").to_pylist()
    plan = Plan.of(planner.keys.to_array(), planner.costs, as_keys(keys[1:2]), invalid=planner.invalid)
    e = plan.estimate
    assert (e.rows, e.unique, e.finished, e.invalid, e.calls, e.credits) == (4, 2, 1, 1, 1, 2.0)
    assert plan.todo.tolist() == [True, False, False, False]


@settings(max_examples=30)
@given(
    rows=st.integers(1, 150),
    ends=st.sets(st.integers(1, 150), max_size=4),
    take=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_calls_are_those_that_were_planned_in_order_and_to_the_byte(rows, ends, take, seed):
    chance = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "text": [
                f"Line {number}, \u00fc [pause 1s] {number}." for number in chance.integers(0, 60, rows)
            ],
            "rate": [None if rate > 50 else rate for rate in chance.integers(-50, 100, rows).tolist()],
            "format": chance.choice(["WAV", "FLAC"], rows),
        }
    )
    todo = chance.random(rows) < 0.7
    ends = sorted({end for end in ends if end < rows} | {rows})
    arguments = {"text": "text", "voice": "nora", "rate": col("rate"), "format": col("format")}
    planner = plan_table(frame, arguments, OPERATION, Options(take=take))
    table = pa.Table.from_batches(list(planner.batches()), planner.schema)
    batches = [
        table.slice(start, end - start).combine_chunks().to_batches()[0]
        for start, end in itertools.pairwise([0, *ends])
    ]
    whole = Plan.of(planner.keys.to_array(), planner.costs, as_keys([]), invalid=planner.invalid)
    plan = replace(whole, todo=todo & whole.todo, cached=todo & whole.todo & (np.arange(len(todo)) % 3 == 0))
    made = list(calls(batches, planner.sources, OPERATION, plan, row_id=ROW_ID))
    wanted = []
    for row in np.flatnonzero(plan.todo).tolist():
        values = {"text": frame.text[row], "voice": "nora", "format": frame.format[row]}
        if not pd.isna(frame.rate[row]):
            values["rate"] = int(frame.rate[row])
        planned = OPERATION.check(values, take).planned
        wanted.append((planned, (str(row),), bool(plan.cached[row])))
    assert [(todo.planned, todo.row_ids, todo.is_cached) for todo in made] == wanted
    assert [todo.planned.call.body for todo in made] == [planned.call.body for planned, *_ in wanted]
    keys = table.column("request_key").to_pylist()
    assert [todo.planned.request_key for todo in made] == [keys[row] for row in np.flatnonzero(plan.todo)]


def test_calls_are_made_a_few_ahead_and_not_all_at_once():
    planner, table = planned(map(str, range(1000)), voice="nora")
    plan = Plan.of(planner.keys.to_array(), planner.costs, as_keys([]), invalid=0)
    checked = []

    class Counting(GenerateOperation):
        def check(self, values, take):
            checked.append(values["text"])
            return super().check(values, take)

    operation = Counting(OPERATION.book, OPERATION.service)
    source = calls(table.combine_chunks().to_batches(), planner.sources, operation, plan, row_id=ROW_ID)
    assert next(source).planned.text == "0"
    assert len(checked) < 100


@given(st.lists(st.integers(0, 5) | st.none(), max_size=30), st.sets(st.integers(0, 7)))
def test_key_sets_behave_like_sets(numbers, known):
    def hexed(number):
        # Zero bytes at either end must count.
        return f"{number + 1:02x}".ljust(32, "0") if number % 2 else f"{number + 1:032x}"

    column = KeyColumn()
    for number in numbers:
        column.append(None if number is None else hexed(number))
    keys = column.to_array()
    seen, first, again = set(), [], []
    for number in numbers:
        first.append(number is not None and number not in seen)
        again.append(number in seen)
        seen.add(number)
    assert first_of_each(keys).tolist() == first
    assert repeated(keys).tolist() == again
    inside = among(keys, as_keys(hexed(n) for n in known))
    assert inside.tolist() == [number is not None and number in known for number in numbers]
