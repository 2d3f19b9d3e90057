"""Translations by people are used as they are, and never after their source has changed."""

import logging

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import speechframe as spf
from speechframe.testing import FaultyService

STRINGS = {"hello": "Hello, Tom.", "bye": "See you soon.", "new": "A new line.", "brand": "Speechframe"}


@pytest.fixture(scope="module")
def faulty():
    started = FaultyService().start()
    yield started
    started.stop()


@pytest.fixture
def translate(faulty, tmp_path, caplog):
    caplog.set_level(logging.INFO)

    def call(table, people=None, **options):
        if isinstance(table, dict):
            table = pd.DataFrame({"id": [*table], "text": [*table.values()]})
        fixed = {"targets": ["pt-BR"], "id": "id", "run_dir": tmp_path / "run", "progress": False}
        return spf.translate(table, translations=people, service=faulty.settings, **fixed | options)

    return call


def wide(texts, **columns):
    return pd.DataFrame({"id": [*texts], "pt-BR": [*texts.values()], **columns})


def read(run, *columns):
    """Return a row id to its values in some columns, with None for missing values."""
    frame = run.to_pandas().set_index("row_id")[[*columns]].astype(object)
    return frame.where(frame.notna(), None).apply(tuple, axis=1).to_dict()


def test_people_come_first_and_the_service_fills_the_gaps(translate, caplog):
    table = pd.DataFrame({"id": [*STRINGS], "text": [*STRINGS.values()], "state": [None, None, None, "no"]})
    people = wide({"hello": "Olá, Tom.", "bye": "Até logo.", "new": " ", "gone": "Fora"})
    people["state"] = ["final", "fuzzy", None, None]
    run = translate(table, people)
    assert read(run, "origin", "translation_state", "status", "locale") == {
        "hello/pt-BR": ("human", "unchecked", "done", "pt-BR"),
        "bye/pt-BR": ("engine", None, "done", "pt-BR"),
        "new/pt-BR": ("engine", None, "done", "pt-BR"),
        "brand/pt-BR": ("source", None, "done", "pt-BR"),
    }
    texts = read(run, "translated_text")
    assert texts["hello/pt-BR"] == ("Olá, Tom.",)
    assert texts["brand/pt-BR"] == ("Speechframe",)
    assert run.ledger["credits"].sum() == len("See you soon.") + len("A new line.")
    for note in ("1 row: translated by people", "state 'fuzzy'", "state 'no'", "no such row (gone)"):
        assert note in caplog.text


def test_a_changed_source_is_stale_until_people_answer(translate, faulty, caplog):
    people = wide({"hello": "Olá, Tom.", "bye": "Até logo."})
    translate(STRINGS, people)
    changed = STRINGS | {"hello": "Hello, Ann."}
    for _ in range(2):
        run = translate(changed, people)
        found = read(run, "translation_state", "status", "translated_text", "stale_text", "error_message")
        reason = "the source has changed since its translation by people"
        assert found["hello/pt-BR"] == ("stale", "skipped", None, "Olá, Tom.", reason)
        assert found["bye/pt-BR"][:3] == ("unchecked", "done", "Até logo.")
    with pytest.raises(spf.InvalidRows, match="hello/pt-BR"):
        spf.generate(run, text="translated_text", voice="pt-BR-larissa", service=faulty.settings)
    assert read(translate(STRINGS, people), "translation_state")["hello/pt-BR"] == ("unchecked",)
    run = translate(changed, wide({"hello": "Olá, Ann."}))
    assert read(run, "translation_state", "translated_text")["hello/pt-BR"] == ("unchecked", "Olá, Ann.")
    assert "1 row: translated by the engine, because the text by people is no longer given" in caplog.text


@pytest.mark.parametrize("form", ["wide", "long", "file"])
def test_the_source_text_of_a_translation_decides(translate, tmp_path, form):
    people = wide(
        {"hello": "Olá, Tom.", "bye": "Até logo.", "new": "Nova."},
        source_text=["Hello, Tom.", "Goodbye.", None],
    ).rename(columns={"pt-BR": "pt_br"})
    if form != "wide":
        people = people.assign(locale="PT-br").rename(columns={"pt_br": "translated_text"})
    if form == "file":
        people.to_csv(tmp_path / "people.csv", index=False)
        people = tmp_path / "people.csv"
    run = translate(STRINGS, people)
    states = ["current", "stale", "unchecked", None]
    assert [state for (state,) in read(run, "translation_state").values()] == states
    assert spf.coverage(run).loc["pt-BR"].to_dict() == {
        **dict.fromkeys(["source", "suspect", "pending", "failed", "skipped"], 0),
        **dict.fromkeys(["human", "stale", "unchecked", "engine"], 1),
        "total": 4,
    }
    assert spf.coverage(run.path).loc["total", "total"] == 4


def test_columns_and_locales_of_the_table_count(translate, caplog):
    table = pd.DataFrame(
        {
            "id": ["one", "form", "cue"],
            "text": ["One file", "Many files", None],
            "de-DE": ["Eine Datei", None, "Nur hier."],
            "ja": ["ファイル", None, None],
            "locales": [None, ["de"], None],
        }
    )
    run = translate(table, targets=["de-DE", "ja"])
    origins = {"one/de-DE": "human", "one/ja": "human", "form/de-DE": "engine", "cue/de-DE": "human"}
    assert read(run, "origin") == {name: (origin,) for name, origin in origins.items()} | {"cue/ja": (None,)}
    assert read(run, "status")["cue/ja"] == ("skipped",)
    assert (
        "1 row: not made, because the target lacks this plural form, or locales leaves the target out"
        in caplog.text
    )
    run = translate(table[:1], False, targets=["de-DE", "ja"])
    assert set(read(run, "origin").values()) == {("engine",)}


def test_a_target_without_a_file_has_the_plural_forms_of_its_language(translate, caplog):
    table = pd.DataFrame(
        {
            "id": ["file[0]", "file[1]"],
            "text": ["%d file", "%d files"],
            "form": [0, 1],
            "ja": ["%d個", None],
            "locales": [None, ["de"]],
        }
    )
    run = translate(table, targets=["ja", "pt-BR"])
    assert set(read(run, "status")) == {"file[0]/ja", "file[0]/pt-BR", "file[1]/pt-BR"}
    people = pd.DataFrame({"id": ["file[0]", "file[1]"], "ru": ["%d файл", "%d файла"]})
    translate(table, people, targets=["ru"], run_dir=None)
    assert "ru has 3 plural forms, and the table only 2" in caplog.text


def test_a_resumed_run_keeps_the_texts_of_people(translate, faulty):
    run = translate(STRINGS, wide({"hello": "Olá, Tom.", "bye": "Até logo."}), dry_run=True)
    run = spf.resume(run, service=faulty.settings, progress=False)
    assert read(run, "translated_text")["hello/pt-BR"] == ("Olá, Tom.",)
    changed = STRINGS | {"hello": "Hello, Ann.", "more": "One more."}
    table = pd.DataFrame({"id": [*changed], "text": [*changed.values()]})
    run = spf.resume(run, table, service=faulty.settings, progress=False)
    found = read(run, "origin", "status")
    assert found["hello/pt-BR"] == ("human", "skipped")
    assert found["bye/pt-BR"] == ("human", "done")
    assert found["more/pt-BR"] == ("engine", "done")
    assert "Olá" not in (run.path / "run.json").read_text()


def test_a_language_that_only_people_know_is_no_error(service, tmp_path):
    table = pd.DataFrame({"id": ["a", "b"], "text": ["One", "Two"], "fi": ["Yksi", "Kaksi"]})
    options = {"targets": ["fi"], "id": "id", "service": service.settings, "progress": False}
    run = spf.translate(table, run_dir=tmp_path / "run", **options)
    assert list(run.to_pandas()["translated_text"]) == ["Yksi", "Kaksi"]
    table.loc[1, "fi"] = None
    with pytest.raises(spf.InvalidRows, match=r"b/fi.* no usable translation by people"):
        spf.translate(table, run_dir=tmp_path / "run", **options)


@pytest.mark.parametrize(("people", "fault"), [
    (wide({"x": "A"}), "has no row of the table"),
    (wide({"hello": "A"}).rename(columns={"pt-BR": "pt"}), "'pt', and not the target pt-BR"),
    (wide({"hello": "A"}).rename(columns={"pt-BR": "fr-FR"}), "no text in a target"),
    (wide({"hello": "A"}).rename(columns={"id": "key"}), "no column of ids"),
    (pd.concat([wide({"hello": "A"})] * 2), "the id 'hello' twice for pt-BR"),
    (pd.DataFrame({"id": ["a"], "locale": ["?"], "text": ["b"]}), "which is not a language"),
    (pd.DataFrame({"id": ["a"], "locale": ["pt-BR"]}), "no texts"),
])  # fmt: skip
def test_translations_that_cannot_be_meant_are_refused(translate, faulty, people, fault):
    before = faulty.books().requests
    with pytest.raises(spf.InvalidRows, match=fault):
        translate(STRINGS, people)
    assert faulty.books().requests == before


SOURCES, TEXTS = st.sampled_from("ST"), st.sampled_from(["U", "V"])
SPRINT = st.fixed_dictionaries({name: st.tuples(SOURCES, TEXTS, st.none() | SOURCES) for name in "ab"})


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sprints=st.lists(SPRINT, min_size=2, max_size=3))
def test_a_text_is_stale_exactly_while_its_source_differs(translate, tmp_path_factory, sprints):
    known, folder = {}, tmp_path_factory.mktemp("sprints")
    for sprint in sprints:
        sources, texts, source_texts = ({n: row[at] for n, row in sprint.items()} for at in range(3))
        run = translate(sources, wide(texts, source_text=[*source_texts.values()]), run_dir=folder)
        found = read(run, "translated_text", "stale_text")
        for name, source in sources.items():
            text, former = known.get(name, (None, None))
            belongs_to = source_texts[name] or (former if text == texts[name] else source)
            known[name] = texts[name], belongs_to
            wanted = (None, texts[name]) if belongs_to != source else (texts[name], None)
            assert found[f"{name}/pt-BR"] == wanted
