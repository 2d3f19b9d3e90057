"""Rows share voices evenly, as they come."""

from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import speechframe as spf
from speechframe.tables.table import Table, make_rows, resolve_sources
from speechframe.tables.table_input import open_table


def chosen(table, voice):
    """Return the voices of a table's rows, as a run chooses them."""
    opened: Table = open_table(table)
    sources = resolve_sources({"text": "text", "voice": voice}, {"text"}, (), opened)
    return [row.get("voice") for batch, _ in opened.batches() for row in make_rows(batch, sources)]


some_rows = st.lists(st.tuples(st.sampled_from(["en-US", "pt-BR"]), st.text("ab ", max_size=9)), min_size=1)


@given(some_rows, some_rows, st.integers(0, 3))
def test_shares_are_even_and_later_rows_change_nothing(table, more, seed):
    voice = spf.balanced(["nora", "joe", "hank"], by="locale", seed=seed)
    table, whole = (
        [{"locale": locale, "text": text} for locale, text in some] for some in (table, [*table, *more])
    )
    voices = chosen(whole, voice)
    assert voices[: len(table)] == chosen(table, voice)
    for locale in {row["locale"] for row in whole}:
        shares, lengths = Counter({"nora": 0, "joe": 0, "hank": 0}), []
        for row, name in zip(whole, voices, strict=True):
            if row["locale"] == locale:
                lengths.append(len(row["text"]))
                shares[name] += lengths[-1]
        assert max(shares.values()) - min(shares.values()) <= max(lengths)


def test_a_run_keeps_its_rule_and_a_value_without_voices_is_a_problem_of_its_row(service, tmp_path):
    table = pd.DataFrame({
        "id": list("abcdef"), "locale": ["en-US", "pt-BR", "en-US", "en-US", "xx", "en-US"], "seconds": [1, 1, 5, 1, 1, 1],
        "text": [f"Line {number}." for number in range(6)],
    })  # fmt: skip
    voice = spf.balanced({"en-US": ["nora", "hank"], "pt-BR": ["larissa"]}, by="locale", weight="seconds")
    options = {"id": "id", "service": service.settings, "progress": False, "dry_run": True}
    run = spf.generate(table, voice=voice, run_dir=tmp_path / "run", **options)
    assert [problem["row_id"] for problem in run.problems] == ["e"]
    assert run.problems[0]["allowed"] == "locale 'xx' has none; there are values for en-US, pt-BR"
    by_voice = run.estimate.by("voice_id", "id")
    voices = dict(zip(by_voice["id"], by_voice["voice_id"], strict=True))
    assert voices["b"] == "pt-BR-larissa"
    assert voices["a"] != voices["c"] != voices["d"] == voices["f"] == voices["a"]
    longer = pd.concat([table, table.assign(id=list("ABCDEF"), text=table["text"] + " Again.")])
    found = spf.changes(run, longer, service=service.settings, on_invalid="skip")
    assert (found.new, found.changed, found.removed) == (tuple("ABCDEF"), (), ())


@pytest.mark.parametrize(
    ("rule", "words"), [({"by": "speaker"}, "allowed: text"), ({"weight": "text"}, "rows, characters")]
)
def test_columns_that_cannot_balance_are_refused(rule, words):
    with pytest.raises(spf.InvalidRows, match=words):
        chosen(["One.", "Two."], spf.balanced(["nora"], **rule))
