"""Files of strings are tables, and the command reads and writes them."""

import json
from pathlib import Path

import speechframe as spf

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
