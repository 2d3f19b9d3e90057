"""The command ``speechframe dub``. It can copy the dubs to a folder, or return before the dubs are made."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.cli import declared, exits, runs, show
from speechframe.cli.commands import verb
from speechframe.writing.files import make_safe_stem, write_new

if TYPE_CHECKING:
    from speechframe.batch.live import Run

_POLL_S = 0.2
"""Seconds between two looks at the run while ``--no-wait`` waits for the ids of the jobs."""
_FILE_COLUMNS = ("dub_path", "srt_path", "vtt_path")
"""Columns of a dub run with the paths of the files to copy."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the function `dub`, and the options ``--out`` and ``--no-wait``."""
    verb.add_arguments(parser)
    group = parser.add_argument_group("the files")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="copy dubs and subtitles to this folder, named by medium and locale. Existing files are kept",
    )
    group.add_argument(
        "--no-wait",
        action="store_true",
        help=f"return once every job exists, with exit code {exits.JOBS_RUNNING}. Fetch the dubs with resume",
    )


def run(options: argparse.Namespace) -> int:
    """Dub the media, print the report and copy the files. Return the exit code."""
    if options.out is not None:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            options.parser.error(f"--out {options.out} cannot be made: {error.strerror}")
    from speechframe.store.folder import convert_os_errors

    if options.no_wait:
        if "executor" in declared.collect_values(options):
            options.parser.error("--no-wait and --executor cannot be combined; leave --no-wait out")
        return _stop_once_jobs_exist(verb.call_verb(options, wait=False), options)
    made = verb.call_verb(options)
    code = runs.report(made, options)
    if options.out is not None and made.progress is not None:
        with convert_os_errors(options.out, "copying the dubs"):
            copied = _copy_files(made, options.out)
        for path in copied:
            show.write_note(str(path))
    return code


def _stop_once_jobs_exist(run: "Run", options: argparse.Namespace) -> int:
    """Wait until the run's folder contains the id of every job, then stop the run. Return the exit code.

    The service continues the jobs, and a later `resume` fetches their results.
    """
    from speechframe.backends.dub_job import list_jobs
    from speechframe.store.schema import PENDING

    if run.progress is None:
        return runs.report(run, options)  # a dry run
    with runs.explain_interrupts():
        while run.status == "running":
            with_job = {row_id for rows in list_jobs(run).values() for row_id in rows}
            ids = run.to_pandas([run.name_of("row_id"), run.name_of("status")])
            if with_job.issuperset(ids[ids.iloc[:, 1] == PENDING].iloc[:, 0]):
                break
            time.sleep(_POLL_S)
        run.stop(drain=False)
        run.wait()
    if not (jobs := list_jobs(run)) or not run.stats.get("charged_unknown"):
        return runs.report(run, options)
    if options.json:
        show.print_json({"run_dir": run.short_path, "jobs": jobs, "exit_code": exits.JOBS_RUNNING})
    else:
        show.write_table(["job", "rows"], jobs.items(), is_cut=False)
        show.write_line(f"see their status with: speechframe jobs {run.short_path}")
        show.write_line(f"fetch the dubs with: {runs.make_resume_command(run, options)}")
    return exits.JOBS_RUNNING


def _copy_files(run: "Run", folder: Path) -> list[Path]:
    """Copy the files of a run into `folder`, and return the paths of the copies.

    The name of a copy begins with the name of the media file. If the row names no media file, the copy begins
    with the row id.
    """
    frame = run.to_pandas()
    names = {name: run.name_of(name) for name in ("row_id", "locale", *_FILE_COLUMNS)}
    copied: list[Path] = []
    for row in frame.to_dict("records"):
        row_id, locale = row[names["row_id"]], row[names["locale"]]
        medium: Any = row.get("media")
        stem = Path(medium).stem if isinstance(medium, str) else row_id.removesuffix(f"/{locale}")
        found = [
            run.folder.find_path(row[names[name]])
            for name in _FILE_COLUMNS
            if isinstance(row[names[name]], str)
        ]
        files: dict[str, bytes | Path] = {
            f".{make_safe_stem(str(locale))}{path.suffix}": path for path in found
        }
        copied += write_new(folder, make_safe_stem(stem), files)
    return copied
