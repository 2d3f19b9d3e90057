"""The command ``speechframe quality``, which grades the clips of runs."""

import argparse
from pathlib import Path

from speechframe.cli import exits, selection, show

_ROWS_SHOWN = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        "Measure every clip of runs, compare it with its voice's other clips, and grade it. "
        f"The exit code is {exits.ROWS_FAILED} if a row is bad."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or its URL (s3://bucket/run)")
    parser.add_argument(
        "--transcripts",
        action="append",
        metavar="RUN",
        help="run of transcribe with a reference over the run; repeatable, one for each run in order",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write all measures of all rows as CSV")
    selection.add_executor(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Print the number of rows of each grade, and the bad rows with their reasons."""
    from speechframe.errors import StoreError
    from speechframe.exports.quality import describe_quality, quality
    from speechframe.processes.executors import connect_executor

    given = {"transcripts": options.transcripts, "progress": not options.json}
    with connect_executor(options.executor) as executor:
        found = quality(options.runs, **given, executor=executor)
    if options.csv is not None:
        try:
            found.assign(reasons=found["reasons"].map("; ".join)).to_csv(options.csv)
        except OSError as error:
            raise StoreError(f"{options.csv} cannot be written: {error.strerror or error}") from error
    counts = {grade: int((found["grade"] == grade).sum()) for grade in ("good", "check", "bad")}
    odd = found[found["grade"] != "good"].sort_values("grade", kind="stable").reset_index()
    code = exits.ROWS_FAILED if counts["bad"] else exits.OK
    if options.json:
        rows = odd[["run_id", "row_id", "grade", "reasons", "advice"]].to_dict("records")
        show.print_json({"grades": counts, "rows": rows, "exit_code": code})
        return code
    show.write_line("\n".join(describe_quality(found)))
    if len(odd):
        names = ["run_id", "row_id", "grade", "advice", "reasons"]
        cells = odd[names].head(_ROWS_SHOWN).itertuples(index=False)
        show.write_table(names, cells)
    if len(odd) > _ROWS_SHOWN:
        show.write_line(f"... and {len(odd) - _ROWS_SHOWN:,} more; --csv FILE writes all rows")
    return code
