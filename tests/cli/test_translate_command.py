"""``speechframe translate``: options from the declaration, languages as repeatable options, what it prints."""

import json

import pytest

from speechframe import open_run
from speechframe.testing import FaultyService


@pytest.fixture(scope="module")
def shared_faulty():
    with FaultyService() as service:
        yield service


@pytest.fixture
def faulty(shared_faulty):
    yield shared_faulty
    shared_faulty.set(scripts={})


@pytest.fixture
def translate(here, faulty, table, monkeypatch):
    """Run ``speechframe translate`` on a service that turns words round."""
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", faulty.url)
    monkeypatch.setenv("SPEECHFRAME_API_KEY", faulty.api_key.get_secret_value())
    return lambda *words: here("translate", table, "--text", "line", *words, "--no-progress")


def test_a_table_in_two_languages_with_its_price_before(translate, faulty, tmp_path):
    words = [
        "--target",
        "fr_fr",
        "--target",
        "es-ES",
        "--run-dir",
        "runs/t",
        "--source-locale",
        "en",
        "--id",
        "id",
    ]
    before = faulty.books().requests
    assert "4 texts, 52 credits" in translate(*words, "--dry-run").out
    assert faulty.books().requests == before
    said = translate(*words)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "translate: finished; 6 rows: 6 done"
    assert lines[1].startswith("126 characters of translation; 52 credits in all on ")
    assert lines[2].startswith("4 texts in ")
    assert lines[3] == "run folder: runs/t"
    found = open_run(tmp_path / "runs" / "t").to_pandas()
    assert found["id"].tolist() == ["01", "01", "02", "02", "03", "03"]


def test_a_glossary_is_a_file_and_a_column_names_the_language(translate, tmp_path, table):
    table.write_text("line,lang\nGood morning.,en\nGuten Morgen.,de\n")
    (tmp_path / "terms.csv").write_text("source,locale,target\nmorning,fr,matin\n")
    said = translate(
        "--target", "fr", "--glossary", "terms.csv", "--source-locale-col", "lang", "--run-dir", "run"
    )
    assert said.code == 0, said.err
    found = open_run(tmp_path / "run").to_arrow().to_pydict()
    assert found["glossary_ok"] == [True, None]
    assert found["route"] == ["en>fr", "de>fr"]


def test_rows_that_failed_are_shown(translate, faulty):
    faulty.set(scripts={"See you soon.": ["400", "..."]})
    said = translate("--target", "fr", "--run-dir", "run")
    assert said.code != 0
    assert "2 done, 1 failed" in said.out
    assert "PAYLOAD_TOO_LARGE" in said.out
    assert "continue with: speechframe resume run" in said.out


def test_a_target_is_needed_and_what_is_wrong_is_told_in_options(translate, here, table):
    said = here("translate", table)
    assert said.code == 2
    assert "usage: speechframe translate TABLE --target TARGET [options]" in said.err
    told = " ".join(here("translate", "--help").out.split())
    assert "--targets TARGET Languages to translate into" in told
    assert "--glossary PATH Fixed translations of terms" in told
    assert "--source-locale-col COLUMN" in told
    said = translate("--target", "zzzzz")
    assert said.code != 0
    assert "targets" in said.err
    assert "is not a language" in said.err


def test_runs_and_entries_of_translations_are_listed_and_removed(translate, here, tmp_path):
    cached = ["--target", "fr-FR", "--cache", tmp_path / "cache", "--run-dir"]
    facts = json.loads(translate(*cached, "runs/a", "--json").out)
    assert (facts["operation"], facts["done"], facts["translated_characters"]) == ("translate", 3, 63)
    assert "audio_seconds" not in facts
    said = here("cache", "ls", "--cache", tmp_path / "cache")
    assert (said.code, "2 " in said.out) == (0, True), said.err
    assert "3 cached" in translate(*cached, "b").out
    assert here("cache", "prune", "--cache", tmp_path / "cache", "--max-gb", "0").code == 0
    (listed,) = json.loads(here("runs", "ls", "runs", "--json").out)["runs"]
    assert (listed["operation"], listed["clips"], listed["has_audio"]) == ("translate", 2, False)
    assert "0.0 s" not in here("runs", "ls", "runs").out
    assert here("runs", "verify", "runs/a").code == 0
    said = here("runs", "rm", "runs/a", "--yes")
    assert f"runs/a: 2 translations, {listed['credits']:g} credits spent on " in said.err
    assert "audio" not in said.err


def test_the_folder_of_a_translation_is_a_table(translate, here):
    assert translate("--target", "en-GB", "--run-dir", "t").code == 0
    said = here(
        "generate", "t", "--text", "translated_text", "--voice", "nora", "--run-dir", "g", "--no-progress"
    )
    assert said.code == 0, said.err
    assert "3 rows: 3 done" in said.out
