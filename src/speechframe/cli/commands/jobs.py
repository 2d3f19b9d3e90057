"""The command ``speechframe jobs``, which prints the status of dubbing jobs."""

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from speechframe.cli import exits, selection, show

if TYPE_CHECKING:
    from speechframe.spec.dubbing import DubJobStatus

_TABLE_HEAD = ("job", "rows", "locale", "status", "step", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Show the status of dubbing jobs. The exit code is "
        f"{exits.JOBS_RUNNING} while a job is running, {exits.ROWS_FAILED} if a job has failed."
    )
    parser.add_argument("jobs", nargs="+", metavar="RUN|JOB", help="the folder of a dub run, or a job's id")
    selection.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Request and print the status of each dubbing job. Return the exit code."""
    from speechframe.aio import resolve_service
    from speechframe.client import SyncClient
    from speechframe.spec.dubbing import JobStatusValue, is_ready

    jobs = _collect_jobs(options)
    service = asyncio.run(resolve_service(selection.choose_service(options)))
    with SyncClient(service) as client:
        found = [client.dubbing.job_status(job_id) for job_id in jobs]
    under_way = [status for status in found if not is_ready(status.status)]
    bad = {JobStatusValue.FAILED, JobStatusValue.PARTIALLY_COMPLETED}
    failed = [status for status in found if status.status in bad]
    code = exits.JOBS_RUNNING if under_way else exits.ROWS_FAILED if failed else exits.OK
    if options.json:
        facts = [
            {**one.model_dump(mode="json", exclude_none=True), "rows": jobs[one.job_id]} for one in found
        ]
        show.print_json({"jobs": facts, "exit_code": code})
        return code
    rows = [row for status in found for row in _make_rows(status, jobs[status.job_id])]
    show.write_table(_TABLE_HEAD, rows) if rows else show.write_line("no jobs")
    return code


def _collect_jobs(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the row ids of each job, by job id. A job that is given by its id has an empty list.

    Each argument of the command is a job id, or the folder of a dub run, whose jobs are all returned.
    """
    from speechframe.backends.dub_job import list_jobs
    from speechframe.batch.live import open_run

    jobs: dict[str, list[str]] = {}
    for word in options.jobs:
        if not Path(word).is_dir():
            jobs.setdefault(word, [])
            continue
        run = open_run(word)
        if run.operation != "dub":
            options.parser.error(
                f"{word} contains a {run.operation} run; allowed: a run of dub, or a job's id"
            )
        jobs |= list_jobs(run)
    return jobs


def _make_rows(status: "DubJobStatus", row_ids: list[str]) -> list[list[str | None]]:
    """Return a line of the table for each locale of a job, or one line if the status lists no locales."""
    rows = ", ".join(row_ids) or None
    found: list[list[str | None]] = [
        [d.locale, d.status or status.status, d.step, d.error_message or status.failure_reason]
        for d in status.download_details or ()
    ]
    found = found or [[None, status.status, None, status.failure_reason]]
    return [[status.job_id, rows, *line] for line in found]
