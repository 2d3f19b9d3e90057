"""Anything that is a table goes in, comes back as it was, and other tools read what comes out."""

import datetime as dt
import re
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accounts import billed, check_audio, price, statuses

import datasets
import speechframe as spf


@pytest.fixture(scope="module")
def service(services):
    return services(idempotent=False, limits_page=False)


def frame_of(lines):
    return pd.DataFrame({"text": lines, "speaker": ["ann", None, "bob", "ann"]})


def _file(name, write):
    def make(lines, folder):
        path = folder / name
        write(frame_of(lines), path)
        return path

    return make


def _text_file(lines, folder):
    path = folder / "lines.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


KINDS = {
    "list": lambda lines, _: lines,
    "series": lambda lines, _: pd.Series(lines, name="text"),
    "pandas": lambda lines, _: frame_of(lines),
    "pandas with an index": lambda lines, _: frame_of(lines).set_index(
        pd.Index(["x", "y", "z", "w"], name="key")
    ),
    "polars": lambda lines, _: pl.from_pandas(frame_of(lines)),
    "polars, lazy": lambda lines, _: pl.from_pandas(frame_of(lines)).lazy().collect(),
    "arrow": lambda lines, _: pa.Table.from_pandas(frame_of(lines)),
    "batches": lambda lines, _: iter(pa.Table.from_pandas(frame_of(lines)).to_batches(max_chunksize=2)),
    "duckdb": lambda lines, _: duckdb.from_arrow(pa.Table.from_pandas(frame_of(lines))),
    "datasets": lambda lines, _: datasets.Dataset.from_pandas(frame_of(lines)),
    "csv": _file("lines.csv", lambda frame, path: frame.to_csv(path, index=False)),
    "tsv": _file("lines.tsv", lambda frame, path: frame.to_csv(path, index=False, sep="\t")),
    "jsonl": _file("lines.jsonl", lambda frame, path: frame.to_json(path, orient="records", lines=True)),
    "parquet": _file("lines.parquet", lambda frame, path: frame.to_parquet(path)),
    "xlsx": _file("lines.xlsx", lambda frame, path: frame.to_excel(path, index=False)),
    "text file": _text_file,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table(service, speak, lines, tmp_path, kind):
    texts = lines(4)
    run = speak(service, KINDS[kind](texts, tmp_path))
    found = run.to_pandas()
    assert list(found["text"]) == texts
    assert statuses(run) == ["done"] * 4
    check_audio(run)
    assert billed(service, texts) == price(texts)
    if "speaker" in found:
        assert [None if pd.isna(name) else name for name in found["speaker"]] == ["ann", None, "bob", "ann"]


@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_a_field_that_begins_with_a_quote_swallows_no_lines(service, speak, lines, tmp_path, kind):
    texts = lines(60)
    texts[7], texts[14] = f'"{texts[7]}', f'{texts[14]} 5"'
    path = tmp_path / f"lines.{kind}"
    path.write_text("id\ttext\n".replace("\t", "\t" if kind == "tsv" else ","))
    with path.open("a") as file:
        file.writelines(
            f"{number}{chr(9) if kind == 'tsv' else ','}{text}\n" for number, text in enumerate(texts)
        )
    try:
        run = speak(service, path, id="id")
    except spf.SettingsError as refused:
        assert "line 9" in str(refused)  # noqa: PT017 - one of two good ends
    else:
        assert len(run.to_pandas()) == 60


def test_a_quote_that_nothing_closes_is_part_of_its_text(service, speak, lines, tmp_path):
    texts = lines(6)
    texts[2] = f'"{texts[2]}'
    path = tmp_path / "lines.tsv"
    path.write_text("id\ttext\n" + "".join(f"{number}\t{text}\n" for number, text in enumerate(texts)))
    assert list(speak(service, path, id="id").to_pandas()["text"]) == texts


def test_how_a_file_is_quoted_and_separated_can_be_said(service, speak, lines, tmp_path):
    path = tmp_path / "lines.txt.csv"
    path.write_text("text|note\n" + "".join(f'"{text}|5"\n' for text in lines(4)))
    run = speak(service, path, sep="|", quoting="none")
    assert list(run.to_pandas()["text"]) == [f'"{text}' for text in lines(4)]


def test_a_source_that_raises_says_at_which_row(service, speak, lines):
    def rows():
        yield from ({"text": text} for text in lines(3))
        raise ValueError("the database is gone")

    with pytest.raises(
        spf.SpeechframeError, match=r"(?s)\b[34]\b.*the database is gone|the database is gone.*\b[34]\b"
    ):
        speak(service, rows())


def test_the_caller_s_columns_come_back_as_they_were(service, speak, lines):
    table = frame_of(lines(4)).assign(
        when=pd.Timestamp("2026-01-02 03:04:05", tz="Europe/Berlin"),
        day=dt.date(2026, 1, 2),
        share=[0.5, np.nan, 1.5, 2.0],
        count=pd.array([1, None, 3, 4], dtype="Int64"),
        kind=pd.Categorical(["a", "b", "a", None]),
        notes=[["x", "y"], [], None, ["z"]],
        status=["mine", "mine", "mine", "mine"],
    )
    table.index = pd.Index([10, 20, 30, 40], name="line")
    found = speak(service, table).to_pandas()
    assert list(found["speech_status"]) == ["done"] * 4
    mine = found[list(table.columns)]
    assert mine.index.equals(table.index)
    assert [str(kind) for kind in mine.dtypes.drop("notes")] == [
        str(kind) for kind in table.dtypes.drop("notes")
    ]
    pd.testing.assert_frame_equal(mine.drop(columns="notes"), table.drop(columns="notes"))
    assert [None if note is None else list(note) for note in mine["notes"]] == list(table["notes"])


def test_bytes_and_nested_columns_come_back_as_they_were_or_are_refused_by_name(service, speak, lines):
    table = frame_of(lines(4)).assign(
        raw=[b"\x00\xff", b"", None, b"x"], nested=[{}, {"a": 1}, {"a": None}, None]
    )
    try:
        found = speak(service, table).to_pandas()
    except spf.SpeechframeError as refused:
        assert "raw" in str(refused) or "nested" in str(refused)  # noqa: PT017 - one of two good ends
        assert billed(service, list(table["text"])) == 0
    else:
        assert list(found["raw"]) == list(table["raw"])
        assert list(found["nested"]) == list(table["nested"])


@pytest.mark.parametrize("text", ["...", "\u200b\u200b"])
def test_what_is_no_text_is_a_problem_before_anything_is_sent(service, speak, lines, text):
    with pytest.raises(spf.InvalidRows):
        speak(service, [*lines(2), text])


def test_an_id_that_is_missing_is_called_so(service, speak, lines):
    table = frame_of(lines(4)).assign(id=["a", None, "c", None])
    with pytest.raises(spf.SpeechframeError) as refused:
        speak(service, table, id="id")
    assert "twice" not in str(refused.value)


def test_a_twice_given_id_is_refused(service, speak, lines):
    with pytest.raises(spf.SpeechframeError, match="twice"):
        speak(service, frame_of(lines(4)).assign(id=["a", "b", "a", "d"]), id="id")


def test_other_tools_read_the_parts_as_they_are(service, speak, lines):
    texts = lines(5)
    run = speak(service, texts)
    parts = [str(path) for path in run.part_files]
    assert duckdb.sql(f"select count(*) from read_parquet({parts})").fetchall() == [(5,)]
    assert sorted(pl.read_parquet(parts)["text"]) == sorted(texts)
    heard = datasets.Dataset.from_parquet(parts).cast_column("audio", datasets.Audio(decode=False))
    assert all(row["audio"]["bytes"] for row in heard)
    assert pq.read_schema(parts[0]).field("audio").type.field(0).type == pa.binary()


def test_a_run_and_its_selections_go_wherever_a_table_goes(service, speak, lines, tmp_path):
    table = pd.DataFrame({"id": ["a", "b", "c"], "text": lines(3)})
    run = speak(service, table, id="id")
    chosen = run.select(["c", "a"])
    assert sorted(chosen.to_pandas()["id"]) == ["a", "c"]
    assert len(run.sample(2).to_pandas()) == 2
    again = speak(service, [run, chosen], text="text", run_dir=tmp_path / "again", rate=10)
    assert len(again.to_pandas()) == 5


def test_columns_constants_and_lists_are_told_apart(service, speak, lines):
    table = pd.DataFrame({"id": ["a", "b"], "text": lines(2), "who": ["en-US-nora", "en-GB-finley"]})
    run = speak(service, table, id="id", voice=spf.col("who"), rate=[0, 10])
    assert list(run.to_pandas()["voice_id"]) == ["en-US-nora", "en-GB-finley"]
    with pytest.raises(spf.InvalidRows, match="col"):
        speak(service, table, id="id", voice="who")


def test_a_misspelled_option_says_the_nearest_one(service, speak, lines):
    with pytest.raises((TypeError, spf.SpeechframeError), match=r"mean.*max_credits"):
        speak(service, lines(2), max_credit=5)


@pytest.mark.parametrize("place", ["configure", "toml", "command"])
def test_a_misspelled_setting_says_the_nearest_one(service, speak, lines, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if place == "command":
        path = _text_file(lines(2), tmp_path)
        command = ["generate", path, "--voice", "nora", "--max-credit_", "5", "--dry-run"]
        ended = subprocess.run(
            [sys.executable, "-m", "speechframe", *command], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 2
        said = ended.stderr
    else:
        if place == "toml":
            (tmp_path / "speechframe.toml").write_text("max_credit_per_run = 5")
        with pytest.raises((TypeError, spf.SpeechframeError)) as refused:
            spf.configure(max_credit_per_run=5) if place == "configure" else speak(service, lines(2))
        said = str(refused.value)
    assert re.search("mean.*max[_-]credits", said, re.DOTALL)


def test_the_default_folder_is_named_by_what_is_asked(service, speak, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"voice": "en-US-nora", "sample_rate": 8000, "progress": False, "service": service.settings}
    first = spf.generate(lines(3), **options)
    again = spf.generate(lines(3), **options)
    other = spf.generate(lines(2, "other"), **options)
    beside = spf.generate(frame_of([*lines(3), lines(1)[0]]).iloc[:3].assign(note="mine"), **options)
    assert (first.path, again.estimate.calls) == (again.path, 0) == (beside.path, beside.estimate.calls)
    assert other.path != first.path
    assert set(first.path.parent.iterdir()) == {first.path, other.path}, "something else was left behind"


def test_a_language_finds_the_one_locale_of_the_voice(service, speak, lines):
    run = speak(service, lines(1), locale="de")
    assert list(run.to_pandas()["locale"]) == ["de-DE"]


def test_a_voice_of_the_other_model_says_which_model_it_needs(service, speak, lines):
    with pytest.raises(spf.InvalidRows, match='model="falcon-2"'):
        speak(service, lines(1), voice="fr-FR-luc")
