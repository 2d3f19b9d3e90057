"""Files of strings are tables, and the command reads and writes them."""

import json
from pathlib import Path

import speechframe as spf
from speechframe.testing import FaultyService

FOLDER = Path(__file__).parents[1] / "strings/files/film"
FILM = {locale: FOLDER / f"film.{locale}.srt" for locale in ("en-US", "de-DE", "fr-FR", "es-ES", "ja-JP")}


def test_files_of_strings_are_tables_and_the_command_reads_and_writes_them(tmp_path, here):
    run = spf.generate(FILM["fr-FR"], voice="nora", locale="fr-FR", id="id", dry_run=True, progress=False)
    assert len(run.to_pandas()) == 15
    out = tmp_path / "film.csv"
    said = here(
        "strings", "read", *(f"{locale}={path}" for locale, path in FILM.items()), "--out", out, "--json"
    )
    assert (said.code, json.loads(said.out)["rows"]) == (0, 16)
    said = here(
        "strings",
        "write",
        out,
        "--template",
        FILM["de-DE"],
        "--out",
        tmp_path / "de.srt",
        "--locale",
        "de-DE",
    )
    assert (said.code, "0 texts in de-DE written, 15 unchanged" in said.out) == (0, True), said.err
    assert (tmp_path / "de.srt").read_bytes() == FILM["de-DE"].read_bytes()


def test_a_run_of_translate_is_written_into_the_file_and_is_the_previous_of_the_next(tmp_path):
    template = FOLDER.parent / "validators.xlf"
    strings = spf.read_strings(template, progress=False)
    with FaultyService() as service:
        given = {"id": "id", "source_locale": "en", "service": service.settings, "progress": False}
        run = spf.translate(strings, targets=["fr-FR", "es-ES"], run_dir=tmp_path / "tr", **given)
        report = spf.write_strings(
            run, template=template, out=tmp_path / "v.xlf", locale="fr-FR", progress=False
        )
        corrected = run.to_pandas().assign(spoken_text="Corrigé", corrected_from=None)
        corrected.iloc[0, corrected.columns.get_loc("corrected_from")] = "Before"
        spf.write_strings(
            run,
            template=template,
            out=tmp_path / "c.xlf",
            locale="fr-FR",
            corrections=corrected,
            progress=False,
        )
    rows = run.to_pandas().query("locale == 'fr-FR'").set_index("id")
    written = spf.read_strings(tmp_path / "v.xlf", previous=tmp_path / "tr", progress=False).set_index("id")
    done = rows.index[rows["status"].isin(["done", "cached"])].drop("14")
    assert written.loc[done, "fr-FR"].tolist() == rows.loc[done, "translated_text"].tolist()
    assert report.written + report.unchanged == len(done) > 10
    assert sum(report.left.values()) == 18 - len(done)
    assert set(written["previous_basis"]) == {"id"}
    assert spf.read_strings(tmp_path / "c.xlf", progress=False)["fr-FR"].iloc[0] == "Corrigé"
