"""``speechframe translate``: options from the declaration, languages as repeatable options, what it prints."""

import json

import pytest
from babel import Babel

from speechframe import open_run


@pytest.fixture
def babel():
    server = Babel(limits={"source_language": True})
    server.up()
    yield server
    server.down()


@pytest.fixture
def translate(cli, babel, table):
    """Run ``speechframe translate`` on the scripted service."""
    env = {"SPEECHFRAME_BASE_URL": babel.settings.base_url, "SPEECHFRAME_API_KEY": "sk-babel"}

    def run(*words, name="translate"):
        return cli(name, table, *words, env=env)

    return run


@pytest.mark.slow
def test_a_table_in_two_languages(translate, babel, tmp_path):
    said = translate("--text", "line", "--target", "fr_fr", "--target", "es-ES", "--run-dir", tmp_path / "run",
                     "--source-locale", "en", "--id", "id", "--no-progress")  # fmt: skip
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "translate: finished; 6 rows: 6 done"
    assert lines[1] == "126 characters of translation; 52 credits in all on babel/1"
    assert lines[2].startswith("4 texts in ")
    assert lines[3] == "run folder: run"
    assert sorted((s.target, s.source, len(s.texts)) for s in babel.seen) == [
        ("es-ES", "en", 2),
        ("fr-FR", "en", 2),
    ]
    found = open_run(tmp_path / "run").to_pandas()
    assert found["id"].tolist() == ["01", "01", "02", "02", "03", "03"]


@pytest.mark.slow
def test_the_same_as_json(translate, tmp_path):
    said = translate(
        "--text", "line", "--target", "fr", "--run-dir", tmp_path / "run", "--json", "--no-progress"
    )
    facts = json.loads(said.out)
    assert (facts["operation"], facts["done"], facts["translated_characters"]) == ("translate", 3, 54)
    assert "audio_seconds" not in facts


def test_a_glossary_is_a_file_and_a_column_names_the_language(translate, babel, tmp_path, table):
    table.write_text("line,lang\nGood morning.,en\nGuten Morgen.,de\n")
    (tmp_path / "terms.csv").write_text("source,locale,target\nmorning,fr,matin\n")
    said = translate("--text", "line", "--target", "fr", "--glossary", "terms.csv", "--source-locale-col", "lang",
                     "--run-dir", "run", "--no-progress")  # fmt: skip
    assert said.code == 0, said.err
    found = open_run(tmp_path / "run").to_arrow().to_pydict()
    assert found["glossary_ok"] == [True, None]
    assert found["route"] == ["en>fr", "de>fr"]


def test_rows_that_failed_are_shown(translate, babel):
    babel.bad = {"See you soon."}
    said = translate("--text", "line", "--target", "fr", "--run-dir", "run", "--no-progress")
    assert said.code != 0
    assert "2 done, 1 failed" in said.out
    assert "BadRequest" in said.out
    assert "go on with: speechframe resume run" in said.out


def test_a_target_is_needed_and_usage_says_so(translate, here, table):
    said = here("translate", table)
    assert said.code == 2
    assert "usage: speechframe translate TABLE --target TARGET [options]" in said.err
    told = " ".join(here("translate", "--help").out.split())
    assert "--targets TARGET Languages to translate into" in told
    assert "--glossary PATH How terms are to be translated" in told
    assert "--source-locale-col COLUMN" in told


def test_what_is_wrong_is_told_in_options(translate, babel):
    said = translate("--text", "line", "--target", "zzzzz", "--no-progress")
    assert said.code != 0
    assert "targets" in said.err
    assert "is no language" in said.err
    assert babel.seen == []


def test_a_dry_run_prices_it(translate, babel):
    said = translate("--text", "line", "--target", "fr", "--target", "de", "--run-dir", "run", "--dry-run")
    assert "4 texts, 52 credits" in said.out
    assert babel.seen == []


@pytest.mark.slow
def test_runs_list_counts_translations(translate, cli, tmp_path):
    translate("--text", "line", "--target", "fr", "--run-dir", tmp_path / "runs" / "t", "--no-progress")
    said = cli("runs", "ls", tmp_path / "runs")
    assert (said.code, "damaged" in said.out) == (0, False)
    assert "translate" in said.out
    assert cli("runs", "verify", tmp_path / "runs" / "t").code == 0


def test_the_folder_of_a_translation_is_a_table(translate, cli, tmp_path):
    translate("--text", "line", "--target", "en-GB", "--run-dir", "t", "--no-progress")
    said = cli(
        "generate", "t", "--text", "translated_text", "--voice", "nora", "--run-dir", "g", "--no-progress"
    )
    assert said.code == 0, said.err
    assert "3 rows: 3 done" in said.out


@pytest.mark.slow
def test_entries_of_translations_are_listed_and_pruned(translate, cli, tmp_path):
    cache = tmp_path / "cache"
    translate("--text", "line", "--target", "fr", "--cache", cache, "--run-dir", "a", "--no-progress")
    said = cli("cache", "ls", "--cache", cache)
    assert (said.code, "2 " in said.out) == (0, True), said.err
    again = translate("--text", "line", "--target", "fr", "--cache", cache, "--run-dir", "b", "--no-progress")
    assert "3 cached" in again.out
    assert cli("cache", "prune", "--cache", cache, "--max-gb", "0").code == 0
    assert (
        "3 done"
        in translate(
            "--text", "line", "--target", "fr", "--cache", cache, "--run-dir", "c", "--no-progress"
        ).out
    )


@pytest.mark.slow
def test_what_is_lost_with_a_run_of_translations_is_no_audio(translate, cli, tmp_path):
    run = tmp_path / "run"
    assert translate("--text", "line", "--target", "fr-FR", "--run-dir", run, "--no-progress").code == 0
    (listed,) = json.loads(cli("runs", "ls", run, "--json").out)["runs"]
    assert (listed["clips"], listed["has_audio"]) == (2, False)
    assert "0.0 s" not in cli("runs", "ls", run).out
    said = cli("runs", "rm", run, "--yes")
    assert f"{run}: 2 translations, {listed['credits']:g} credits spent on babel/1, " in said.err
    assert "audio" not in said.err
