"""List, verify and remove run folders for ``speechframe runs``. No service or web client is imported."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.batch.live import open_run
from speechframe.cli import exits, show
from speechframe.errors import NotARun, RunMismatch, SpeechframeError, StoreError
from speechframe.settings import read_settings
from speechframe.settings.spending import read_spending_rules
from speechframe.store import ledger, parts
from speechframe.store.folder import DAMAGE_ADVICE, RUN_FILE, Folder, read_manifest
from speechframe.store.reader import open_folder
from speechframe.store.schema import FINISHED_STATUSES
from speechframe.store.verify import RESTORE_ADVICE, RESUME_ADVICE, Problem, remove_run, verify

_TABLE_HEAD = ("path", "verb", "done", "status", "credits", "audio", "size", "changed")
_RUN_FACTS = ("operation", "service", "rows", "done", "clips", "has_audio", "audio_seconds", "credits")
"""Facts of a run that are unknown if the run is damaged."""


# -- ls ------------------------------------------------------------------------------


def list_runs(options: argparse.Namespace) -> int:
    """Print the run folders below the named folders. Return the exit code."""
    missing = [folder for folder in options.folders if not folder.is_dir()]
    if missing:
        raise NotARun(f"{missing[0]} is not a folder; name a run, or a folder that contains runs")
    found: list[dict[str, Any]] = []
    for folder in _find_run_folders(options.folders or options.roots):
        try:
            facts = _read_facts(folder)
        except SpeechframeError as error:
            show.write_note(f"not listed: {error}")
            continue
        if facts["problem"] is not None:
            show.write_note(f"damaged: {facts['problem']}")
        found.append(facts)
    found.sort(key=lambda facts: facts["changed_at"], reverse=True)
    if options.json:
        show.print_json({"runs": found, "exit_code": exits.OK})
        return exits.OK
    if found:
        show.write_table(_TABLE_HEAD, map(_make_cells, found))
    else:
        show.write_line(f"no runs below {', '.join(map(str, options.folders or options.roots))}")
    return exits.OK


def _make_cells(facts: Mapping[str, Any]) -> list[Any]:
    done = credits = seconds = None
    if facts["problem"] is None:
        done, credits = f"{facts['done']:,}/{facts['rows']:,}", f"{facts['credits']:,.10g}"
        seconds = facts["audio_seconds"] if facts["has_audio"] else None
    made = (done, facts["status"], credits, show.format_seconds(seconds))
    size, changed = show.format_size(facts["bytes"]), show.format_time(facts["changed_at"])
    return [facts["path"], facts["operation"], *made, size, changed]


def _find_run_folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield each run folder among `roots` and below them. A missing root is skipped."""
    seen: set[Path] = set()
    for root in roots:
        for name, below, files in os.walk(root):
            if RUN_FILE in files:
                # Yield a folder once, even if one root is inside another or is given twice.
                if (path := Path(name).resolve()) not in seen:
                    seen.add(path)
                    yield Path(name)
                below.clear()
            # Skip hidden folders. They contain unfinished work, or files of other programs.
            below[:] = sorted(folder for folder in below if not folder.startswith("."))


def _read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of a run folder, which ``--json`` prints.

    ``bytes`` is the size of all files, and ``changed_at`` the time of their last change in UTC. ``clips`` and
    ``audio_seconds`` count an answer that equal rows share once. They include answers to rows that only an
    earlier table of this run had. ``done`` counts rows with an answer. If the files are unreadable, `status`
    is ``damaged``, `problem` is the error, and all facts of the run are None.

    Raises
    ------
    NotARun
        If the folder is not a run.
    RunMismatch
        If another version of speechframe wrote the run, in another layout.
    """
    files = list(_stat_files(folder))
    changed_at = datetime.fromtimestamp(max((file.st_mtime for file in files), default=0.0), UTC)
    facts = {"path": folder, "bytes": sum(file.st_size for file in files), "changed_at": changed_at}
    try:
        return facts | _read_run(folder)
    except (NotARun, RunMismatch):
        raise
    except StoreError as error:
        return facts | {"status": "damaged", "problem": str(error)} | dict.fromkeys(_RUN_FACTS)


def _read_run(folder: Path) -> dict[str, Any]:
    run = open_run(folder)
    stats, records = run.stats, run.snapshot()
    seconds = 0.0
    if has_audio := "audio_seconds" in run.record_schema.names:
        columns = pa.schema([("audio_seconds", pa.float64())])
        lengths = records.read_records(records.index.find_with_status(FINISHED_STATUSES), columns).column(0)
        seconds = pc.sum(lengths).as_py() or 0.0
    calls = records.index.count_by_status()
    done, clips = (sum(n.get(status, 0) for status in FINISHED_STATUSES) for n in (stats, calls))
    values = (run.operation, run.service, stats["rows"], done, clips, has_audio, round(seconds, 3))
    facts = zip(_RUN_FACTS, (*values, stats["credits"]), strict=True)
    return {"status": run.status, "problem": None, **dict(facts)}


def _stat_files(folder: Path) -> Iterator[os.stat_result]:
    for path in folder.rglob("*"):
        # A run that is in progress may remove a file between the listing and this call.
        with suppress(FileNotFoundError):
            if path.is_file():
                yield path.stat()


# -- verify --------------------------------------------------------------------------


def verify_runs(options: argparse.Namespace) -> int:
    """Read all files of runs and print their problems. Return the exit code."""
    found: dict[str, list[Problem]] = {}
    code = exits.OK
    for folder in options.folders:
        try:
            path = str(run := open_folder(folder))
            faults = verify(run)
        except SpeechframeError as error:
            if not options.folders[1:]:
                raise
            # Report this run as damaged and continue with the other runs.
            found[folder] = [Problem(RUN_FILE, None, str(error))]
            code = exits.find_error_code(error)
            continue
        found[path] = faults
        if faults and code == exits.OK:
            code = exits.ROWS_FAILED
    if options.json:
        problems = {path: [asdict(problem) for problem in faults] for path, faults in found.items()}
        show.print_json({"runs": problems, "ok": code == exits.OK, "exit_code": code})
        return code
    for path, faults in found.items():
        count = show.format_count(len(faults), "problem") if faults else "whole"
        show.write_line(f"{path}: {count}")
        if faults:
            rows = [[problem.file, problem.request_key, _remove_advice(problem)] for problem in faults]
            show.write_table(["file", "request_key", "problem"], rows, is_cut=False)
            for advice in _list_advice(path, faults):
                show.write_line(advice)
    return code


def _remove_advice(problem: Problem) -> str:
    words = problem.words.removesuffix(DAMAGE_ADVICE)
    return words.removesuffix(f": {RESTORE_ADVICE}").removesuffix(f": {RESUME_ADVICE}")


def _list_advice(path: str, faults: Sequence[Problem]) -> Iterator[str]:
    """Yield each advice on the problems of a run once, in words of the command line."""
    if any(problem.words.endswith((RESTORE_ADVICE, DAMAGE_ADVICE)) for problem in faults):
        yield "restore these files from a copy of the folder"
    if any(problem.words.endswith(RESUME_ADVICE) for problem in faults):
        yield f"the journal lost nothing; continue the run with: speechframe resume {shlex.quote(path)}"


# -- rm ------------------------------------------------------------------------------


def remove_runs(options: argparse.Namespace) -> int:
    """Remove runs after a question, and print what is lost. Return the exit code."""
    # Remove each folder once, even if it is given under several names.
    folders = list({folder.resolve(): folder for folder in reversed(options.folders)}.values())[::-1]
    facts = [_read_facts(folder) for folder in folders]
    for each in facts:
        show.write_note(f"{each['path']}: {_describe_loss(each)}")
    if not options.yes and not _is_confirmed(options.parser, facts):
        show.write_note("nothing was removed")
        return exits.INTERRUPTED
    for folder in folders:
        _write_missing_attempts(open_folder(folder))
        left = remove_run(open_folder(folder))
        if left:
            more = " ..." if left[3:] else ""
            show.write_note(
                f"{folder} keeps files that speechframe did not write: {', '.join(left[:3])}{more}"
            )
        if not options.json:
            show.write_line(f"removed {folder}")
    if options.json:
        show.print_json({"removed": facts, "exit_code": exits.OK})
    return exits.OK


def _write_missing_attempts(run: Folder) -> None:
    """Write missing attempts of a killed run to the ledger, before the folder of the run is removed.

    If this fails, print a note.
    """
    try:
        manifest, of_all = read_manifest(run), open_folder(str(read_spending_rules(read_settings()).ledger))
        if manifest.run_id in ledger.read_open_notes(of_all):
            of_run = ledger.Ledger(of_all, manifest.run_id)
            with run.lock():
                parts.recover_journal(run, manifest.schema, {}, time.time(), of_run)
            of_run.end()
    except SpeechframeError as error:
        show.write_note(f"the ledger may lack the last attempts of {run}: {error}")


def _describe_loss(facts: Mapping[str, Any]) -> str:
    if facts["problem"] is not None:
        return f"it cannot be read ({facts['problem']}), {show.format_size(facts['bytes'])}"
    if facts["has_audio"]:
        minutes = f"{facts['audio_seconds'] / 60:,.1f} minutes of audio"
        made = f"{show.format_count(facts['clips'], 'clip')}, {minutes}"
    else:
        made = show.format_count(facts["clips"], "translation")
    spent = show.format_count(facts["credits"], "credit")
    return f"{made}, {spent} spent on {facts['service']}, {show.format_size(facts['bytes'])}"


def _is_confirmed(parser: argparse.ArgumentParser, facts: Sequence[Mapping[str, Any]]) -> bool:
    if not sys.stdin.isatty():
        parser.error("a terminal is needed to confirm the removal; add --yes to remove without a question")
    show.write_note(f"Remove {show.format_count(len(facts), 'run')} for good? [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
