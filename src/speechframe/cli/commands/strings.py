"""The command ``speechframe strings``, which reads and writes files of strings and subtitles."""

import argparse
from dataclasses import asdict
from pathlib import Path

from speechframe.cli import exits, show
from speechframe.cli.actions import add_action, add_actions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``read`` and ``write``."""
    below = add_actions(parser)
    read = add_action(below, "read", "Make a table of PO, XLIFF, SRT, WebVTT, CSV or XLSX files.")
    files = "files, LOCALE=FILE for each locale of the same strings, or a pattern: film.{locale}.srt"
    read.add_argument("files", nargs="+", metavar="FILE", help=files)
    read.add_argument("--previous", metavar="RUN|FILE", help="the strings of the last time, which keep ids")
    read.add_argument("--source-locale", metavar="LOCALE", help="locale of the source texts")
    read.add_argument("--out", required=True, metavar="FILE", help="the table: a .parquet or .csv file")
    write = add_action(below, "write", "Write the texts of a run of translate, or of a table, into a file.")
    write.add_argument("source", metavar="RUN|FILE", help="a run folder, or a table of strings")
    write.add_argument("--template", required=True, metavar="FILE", help="the file to fill")
    write.add_argument("--out", required=True, metavar="FILE", help="the new file, which may be the template")
    write.add_argument("--locale", required=True, metavar="LOCALE", help="locale of the texts")
    write.add_argument("--corrections", metavar="RUN", help="a run of generate with corrected texts to write")


def run(options: argparse.Namespace) -> int:
    """Read or write the files, and print the result."""
    from speechframe.verbs.strings import read_strings, write_strings

    if options.action == "write":
        report = write_strings(
            options.source,
            template=options.template,
            out=options.out,
            locale=options.locale,
            corrections=options.corrections,
            progress=False,
        )
        facts = {**asdict(report), "path": str(report.path), "exit_code": exits.OK}
        show.print_json(facts) if options.json else show.write_line(str(report))
        return exits.OK
    out = Path(options.out)
    if out.suffix.lower() not in {".parquet", ".csv"}:
        options.parser.error("--out must end in .parquet or .csv")
    files = options.files if len(options.files) > 1 else options.files[0]
    if all("=" in name and not Path(name).exists() for name in options.files):
        files = dict(name.split("=", 1) for name in options.files)
    strings = read_strings(
        files,
        previous=options.previous,
        source_locale=options.source_locale,
        progress=not options.json,
    )
    strings.to_csv(out, index=False) if out.suffix.lower() == ".csv" else strings.to_parquet(out)
    if options.json:
        facts = {"rows": len(strings), "columns": [*strings.columns], "notes": strings.attrs["notes"]}
        show.print_json({**facts, "path": str(out), "exit_code": exits.OK})
    else:
        show.write_line(f"{show.format_count(len(strings), 'string')} in {out}")
    return exits.OK
