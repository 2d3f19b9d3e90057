"""The command ``speechframe runs``, which lists, verifies and removes run folders."""

import argparse
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.cli import exits, show
from speechframe.cli.actions import add_action, add_actions
from speechframe.errors import NotARun, SpeechframeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from speechframe.cli.run_facts import RunFacts
    from speechframe.store.folder import Folder
    from speechframe.store.verify import Problem

_DEFAULT_ROOTS = (Path("speechframe-runs"), Path("runs"))
"""Folders that ``ls`` searches by default."""
_TABLE_HEAD = ("path", "verb", "done", "status", "credits", "audio", "size", "changed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``ls``, ``verify`` and ``rm``."""
    below = add_actions(parser)
    ls = add_action(below, "ls", "List run folders.")
    roots = " and ".join(f"./{root}" for root in _DEFAULT_ROOTS)
    ls.add_argument(
        "folders",
        nargs="*",
        type=_make_folder_parser("ls", "list"),
        metavar="FOLDER",
        help=f"folders to search, at any depth (default: {roots})",
    )
    verify = add_action(
        below, "verify", "Read all files of runs, check the audio by sha256, and list problems."
    )
    verify.add_argument(
        "folders", nargs="+", metavar="RUN", help="a run's folder, or its URL (s3://bucket/run)"
    )
    rm = add_action(below, "rm", "Remove runs with all of their files.")
    rm.add_argument(
        "folders", nargs="+", type=_make_folder_parser("rm", "remove"), metavar="RUN", help="a run's folder"
    )
    rm.add_argument(
        "--yes", action="store_true", help="remove without a question. Required without a terminal"
    )


def _make_folder_parser(action: str, doing: str) -> "Callable[[str], Path]":
    def parse_folder(text: str) -> Path:
        if not text:
            # Refuse an empty text, often from an empty shell variable. Path("") would be the current folder.
            raise argparse.ArgumentTypeError(f"'' is not a folder; name the folder to {doing}")
        if "://" in text:
            raise argparse.ArgumentTypeError(
                f"runs {action} works on local folders; {doing} {text} with the tools of its store"
            )
        return Path(text)

    return parse_folder


def run(options: argparse.Namespace) -> int:
    """List, verify or remove runs. Return the exit code."""
    return {"ls": _list, "verify": _verify, "rm": _remove}[options.action](options)


# -- ls ------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    from speechframe.cli.run_facts import find_run_folders, read_facts

    missing = [folder for folder in options.folders if not folder.is_dir()]
    if missing:
        raise NotARun(f"{missing[0]} is not a folder; name a run, or a folder that contains runs")
    found: list[RunFacts] = []
    for folder in find_run_folders(options.folders or _DEFAULT_ROOTS):
        try:
            facts = read_facts(folder)
        except SpeechframeError as error:
            show.write_note(f"not listed: {error}")
            continue
        if facts.problem is not None:
            show.write_note(f"damaged: {facts.problem}")
        found.append(facts)
    found.sort(key=lambda facts: facts.changed_at, reverse=True)
    if options.json:
        show.print_json({"runs": list(map(asdict, found)), "exit_code": exits.OK})
        return exits.OK
    if found:
        show.write_line(
            show.format_table(_TABLE_HEAD, map(_make_cells, found), width=show.get_terminal_width())
        )
    else:
        where = ", ".join(map(str, options.folders or _DEFAULT_ROOTS))
        show.write_line(f"no runs below {where}")
    return exits.OK


def _make_cells(facts: "RunFacts") -> list[Any]:
    changed = show.format_time(facts.changed_at)
    if facts.problem is not None:
        return [str(facts.path), None, None, facts.status, None, None, show.format_size(facts.bytes), changed]
    return [
        str(facts.path),
        facts.operation,
        f"{facts.done:,}/{facts.rows:,}",
        facts.status,
        f"{facts.credits:,.10g}",
        show.format_seconds(facts.audio_seconds if facts.has_audio else None),
        show.format_size(facts.bytes),
        changed,
    ]


# -- verify --------------------------------------------------------------------------


def _verify(options: argparse.Namespace) -> int:
    found: dict[str, list[Problem]] = {}
    code = exits.OK
    for folder in options.folders:
        try:
            path, faults = _find_problems(folder)
        except SpeechframeError as error:
            if not options.folders[1:]:
                raise
            # Report this run as damaged and continue with the other runs.
            found[folder] = [_make_unreadable_problem(error)]
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
        count = show.format_count(len(faults), "problem", "problems") if faults else "whole"
        show.write_line(f"{path}: {count}")
        if faults:
            rows = [[problem.file, problem.request_key, _remove_advice(problem)] for problem in faults]
            show.write_line(show.format_table(["file", "request_key", "problem"], rows))
            for advice in _list_advice(path, faults):
                show.write_line(advice)
    return code


def _remove_advice(problem: "Problem") -> str:
    from speechframe.store.folder import DAMAGE_ADVICE
    from speechframe.store.verify import RESTORE_ADVICE, RESUME_ADVICE

    words = problem.words.removesuffix(DAMAGE_ADVICE)
    return words.removesuffix(f": {RESTORE_ADVICE}").removesuffix(f": {RESUME_ADVICE}")


def _list_advice(path: str, faults: "Sequence[Problem]") -> "Iterator[str]":
    """Yield each advice on the problems of a run once, in words of the command line."""
    from speechframe.store.folder import DAMAGE_ADVICE
    from speechframe.store.verify import RESTORE_ADVICE, RESUME_ADVICE

    if any(problem.words.endswith((RESTORE_ADVICE, DAMAGE_ADVICE)) for problem in faults):
        yield "restore these files from a copy of the folder"
    if any(problem.words.endswith(RESUME_ADVICE) for problem in faults):
        yield f"the journal lost nothing; continue the run with: speechframe resume {shlex.quote(path)}"


def _find_problems(folder: str) -> "tuple[str, list[Problem]]":
    from speechframe.store.reader import open_folder
    from speechframe.store.verify import verify

    run = open_folder(folder)
    return str(run), verify(run)


def _make_unreadable_problem(error: SpeechframeError) -> "Problem":
    from speechframe.store.folder import RUN_FILE
    from speechframe.store.verify import Problem

    return Problem(RUN_FILE, None, str(error))


# -- rm ------------------------------------------------------------------------------


def _remove(options: argparse.Namespace) -> int:
    from speechframe.cli.run_facts import read_facts
    from speechframe.store.reader import open_folder
    from speechframe.store.verify import remove_run

    # Remove each folder once, even if it is given under several names.
    folders = list({folder.resolve(): folder for folder in reversed(options.folders)}.values())[::-1]
    facts = [read_facts(folder) for folder in folders]
    for each in facts:
        show.write_note(f"{each.path}: {_describe_loss(each)}")
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
        show.print_json({"removed": list(map(asdict, facts)), "exit_code": exits.OK})
    return exits.OK


def _write_missing_attempts(run: "Folder") -> None:
    """Write missing attempts of a killed run to the ledger, before the folder of the run is removed.

    If this fails, print a note.
    """
    from speechframe.settings import read_settings
    from speechframe.settings.spending import read_spending_rules
    from speechframe.store import ledger, parts
    from speechframe.store.folder import read_manifest
    from speechframe.store.reader import open_folder

    try:
        manifest, of_all = read_manifest(run), open_folder(str(read_spending_rules(read_settings()).ledger))
        if manifest.run_id in ledger.read_open_notes(of_all):
            of_run = ledger.Ledger(of_all, manifest.run_id)
            with run.lock():
                parts.recover_journal(run, manifest.schema, {}, time.time(), of_run)
            of_run.end()
    except SpeechframeError as error:
        show.write_note(f"the ledger may lack the last attempts of {run}: {error}")


def _describe_loss(facts: "RunFacts") -> str:
    if facts.problem is not None:
        return f"it cannot be read ({facts.problem}), {show.format_size(facts.bytes)}"
    if facts.has_audio:
        made = (
            show.format_count(facts.clips or 0, "clip", "clips")
            + f", {(facts.audio_seconds or 0.0) / 60:,.1f} minutes of audio"
        )
    else:
        made = show.format_count(facts.clips or 0, "translation", "translations")
    spent = show.format_count(facts.credits or 0.0, "credit")
    return f"{made}, {spent} spent on {facts.service}, {show.format_size(facts.bytes)}"


def _is_confirmed(parser: argparse.ArgumentParser, facts: "Sequence[RunFacts]") -> bool:
    if not sys.stdin.isatty():
        parser.error("a terminal is needed to confirm the removal; add --yes to remove without a question")
    show.write_note(f"Remove {show.format_count(len(facts), 'run', 'runs')} for good? [y/N]")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
