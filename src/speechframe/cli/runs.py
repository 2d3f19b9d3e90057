"""Shared code of the commands that make runs: options, Ctrl-C, and the report at the end."""

import argparse
import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from speechframe.cli import declared, exits, selection, show
from speechframe.cli.actions import Parser
from speechframe.cli.docstrings import replace_arguments
from speechframe.errors import SettingsError

if TYPE_CHECKING:
    import pyarrow as pa

    from speechframe.batch.live import Run
    from speechframe.batch.progress import Progress
    from speechframe.errors import BudgetExceeded
    from speechframe.settings.spending import SpendingRules

_STOPPING_MESSAGE = b"\nstopping: calls in flight finish first; Ctrl-C again cancels them\n"
_MAX_SHOWN_FAILURES = 5
_PLAN_FIELDS = ("rows", "unique", "finished", "invalid", "calls", "credits")
"""Attributes of the estimate of a dry run that ``--json`` prints."""
_REASON_COLUMNS = ("status", "error_code", "error_message")
"""Columns that explain why a row has no answer."""


def add_arguments(parser: argparse.ArgumentParser, *, without: Sequence[str] = ()) -> None:
    """Add the options of runs (except `without`) and of services, and ``--json`` for :func:`report`."""
    declared.add_options(parser.add_argument_group("the run"), declared.read_run_options(without=without))
    selection.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of the summary")


def call(options: argparse.Namespace, function: "Callable[..., Run]", *arguments: Any, **more: Any) -> "Run":
    """Call a verb or `resume` with these arguments and the options of the command line. Return the run."""
    from speechframe.processes.executors import connect_executor

    given = declared.collect_values(options)
    _prepare_run_options(options.parser, given)
    service = selection.choose_service(options)
    with explain_interrupts(), connect_executor(given.pop("executor", None)) as executor:
        return function(*arguments, **given, **more, executor=executor, service=service)


def _prepare_run_options(parser: Parser, given: dict[str, Any]) -> None:
    """Check the run options in `given`, and set those that a command sets. An invalid value is a usage error.

    Call this before a service starts. For a dry run, the function adds ``progress=False`` to `given` if
    `progress` is not set.
    """
    from speechframe.batch.options import OPTION_NAMES, Options

    if given.get("dry_run"):
        # The only line of the progress display would repeat the report.
        given.setdefault("progress", False)
    try:
        # The address of a scheduler becomes an executor later.
        names = OPTION_NAMES - {"executor"}
        chosen: Any = {name: value for name, value in given.items() if name in names}
        Options.from_given(**chosen)
    except SettingsError as error:
        parser.error(replace_arguments(str(error), parser.list_options()))


def parse_existing_path(text: str) -> Path:
    """Return the path of an existing file or folder, for argparse. Any other text is a usage error."""
    if text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(
            f"{text} is an address; name a file, or write the address into a column of a table"
        )
    path = Path(text).expanduser()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return path


def parse_table(text: str) -> Path | str:
    """Return the path of an existing file or folder, or an address such as ``s3://bucket/lines``."""
    is_remote = "://" in text and not text.startswith(("http://", "https://"))
    return text if is_remote else parse_existing_path(text)


@contextlib.contextmanager
def explain_interrupts() -> Iterator[None]:
    """Print a line at the first Ctrl-C, because a run may then take seconds to stop properly."""
    # Do not replace a handler of other code, or SIGINT that is ignored (a background job of a script).
    mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not mine or threading.current_thread() is not threading.main_thread():
        yield
        return
    explained = False

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal explained
        if not explained:
            explained = True
            # Do not use sys.stderr here, because the signal may interrupt one of its writes.
            with contextlib.suppress(OSError):
                os.write(2, _STOPPING_MESSAGE)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def find_exit_code(run: "Run") -> int:
    """Return the exit code of a run that has finished or stopped."""
    return exits.find_run_code(run.stopped_because, _select_status_counts(run.stats), run.count_undecided())


def _select_status_counts(facts: Mapping[str, Any]) -> dict[str, int]:
    from speechframe.store.schema import STATUSES

    return {name: facts[name] for name in STATUSES if name in facts}


def report(run: "Run", options: argparse.Namespace) -> int:
    """Print the result of a run, or the plan of a dry run, and its folder. Return the exit code."""
    from speechframe.batch.progress import describe_warnings

    progress, facts = run.progress, run.stats
    if progress is None:
        return _report_plan(run, options)
    counts = _select_status_counts(facts)
    code = exits.find_run_code(run.stopped_because, counts, undecided := run.count_undecided())
    if options.json:
        speed = {
            "calls": progress.calls, "seconds": round(progress.seconds, 3), "balance": progress.balance,
            "warnings": progress.warned.total(),
        }  # fmt: skip
        show.print_json({**_describe_identity(run), **facts, **speed, "exit_code": code})
        return code
    for line in _make_summary_lines(run, progress, facts, counts):
        show.write_line(line)
    if not declared.collect_values(options).get("progress", True):
        # With progress, the warnings were already printed.
        warned = describe_warnings(progress.warned, progress.examples)
        for message in filter(None, (run.stopped_by, warned)):
            show.write_line(replace_arguments(str(message), options.parser.list_options()))
    for reason, count in undecided.items():
        show.write_line(f"{show.format_count(count, 'row')}: {reason}")
    if code not in {exits.OK, exits.ROWS_UNDECIDED}:
        _show_failures(run)
        show.write_line(_make_hint(run, options, counts))
    if suspect := counts.get("suspect"):
        # Suspect rows (with answers that a check doubts) do not stop a run, so no other message names them.
        message = f"{suspect:,} suspect; the column error_message gives the reason"
        if "audio_seconds" in facts:
            message += f". Make another take with: {_join_resume_command(run, ' --redo suspect', options)}"
        show.write_line(message)
    return code


def _report_plan(run: "Run", options: argparse.Namespace) -> int:
    estimate = run.estimate
    assert estimate is not None  # noqa: S101 - a dry run always has one
    if options.json:
        plan = {name: getattr(estimate, name) for name in _PLAN_FIELDS}
        show.print_json({**_describe_identity(run), **plan, "problems": run.problems, "exit_code": exits.OK})
        return exits.OK
    show.write_line(f"{estimate.line()}: nothing was sent")
    for note in run.notes:
        show.write_line(note)
    if run.problems:
        names = options.parser.list_options()
        show.write_line(show.format_problems(run.problems, len(run.problems), names))
    show.write_line(f"run folder: {run.short_path}")
    show.write_line(f"start it with: {make_resume_command(run, options)}")
    return exits.OK


def make_resume_command(run: "Run", options: argparse.Namespace) -> str:
    """Return the command that continues a run, with a higher budget if the run needs it."""
    return _join_resume_command(run, _suggest_budget(run, options), options)


def _join_resume_command(run: "Run", extra_options: str, options: argparse.Namespace) -> str:
    executor = declared.collect_values(options).get("executor")
    at = "" if executor is None else f" --executor {shlex.quote(executor)}"
    repeated = f"{at}{selection.repeat_options(options)}"
    return f"speechframe resume {shlex.quote(run.short_path)}{extra_options}{repeated}"


def _make_hint(run: "Run", options: argparse.Namespace, counts: Mapping[str, int]) -> str:
    """Return the command that makes the missing rows, after the step that must come first."""
    from speechframe.store.schema import CHARGED_UNKNOWN, FAILED, INVALID, PENDING

    if counts.get(INVALID) and not any(counts.get(name) for name in (PENDING, FAILED, CHARGED_UNKNOWN)):
        command = _join_resume_command(run, " --table TABLE", options)
        return f"correct these rows in the table, then continue with: {command}"
    first = _describe_first_step(run, options)
    return f"{first}continue with: {make_resume_command(run, options)}"


def _describe_first_step(run: "Run", options: argparse.Namespace) -> str:
    """Return the step before a resume of a run that a limit of the settings stopped, or an empty text."""
    from speechframe.errors import BudgetExceeded

    by = run.stopped_by
    if not isinstance(by, BudgetExceeded):
        return ""
    rules = _read_rules(options)
    highest = rules.max_credits_per_run
    if highest is not None and (by.limit == "max_credits_per_run" or _exceeds(by, highest)):
        where = f" (set in {rules.run_rule_from})" if rules.run_rule_from else ""
        return f"raise max_credits_per_run{where}, then "
    return "" if by.limit == "run" else f"once {by.limit} allows more, "


def _exceeds(by: "BudgetExceeded", highest: float) -> bool:
    return by.limit == "run" and by.spent_credits + by.needed_credits > highest


def _read_rules(options: argparse.Namespace) -> "SpendingRules":
    from speechframe import settings
    from speechframe.settings.spending import read_spending_rules

    return read_spending_rules(settings.read_settings(profile=options.profile))


def _suggest_budget(run: "Run", options: argparse.Namespace) -> str:
    """Return the option ``--max-credits`` with a limit that lets the rest of the run through.

    Return an empty text if no budget of the run's own stopped it, or if another budget may stop it next.
    """
    from speechframe.errors import BudgetExceeded

    by = run.stopped_by
    if not isinstance(by, BudgetExceeded):
        return ""
    rules = _read_rules(options)
    is_one_of_many = rules.max_credits_per_month is not None or rules.budgets
    is_own = by.limit == "run" or (by.limit == "max_credits_per_run" and run.manifest.max_credits is not None)
    if is_one_of_many or not is_own:
        return ""
    return f" --max-credits {by.spent_credits + by.needed_credits:.15g}"


def _describe_identity(run: "Run") -> dict[str, Any]:
    return {
        "run_dir": run.short_path, "run_id": run.run_id, "operation": run.operation, "service": run.service,
        "status": run.status, "stopped_because": run.stopped_because,
        "stopped_by": None if run.stopped_by is None else str(run.stopped_by),
    }  # fmt: skip


def _make_summary_lines(
    run: "Run", progress: "Progress", facts: Mapping[str, Any], counts: Mapping[str, int]
) -> Iterator[str]:
    from speechframe.batch.live import describe_results
    from speechframe.batch.progress import describe_balance

    # After Ctrl-C the status and the reason are both "stopped". Print the word once.
    because = f" ({run.stopped_because})" if run.stopped_because not in {None, run.status} else ""
    by_status = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items() if n) or "none"
    rows = show.format_count(facts["rows"], "row")
    yield f"{run.operation}: {run.status}{because}; {rows}: {by_status}"
    spent = show.format_count(facts["credits"], "credit")
    yield "; ".join(filter(None, (describe_results(facts), f"{spent} in all on {run.service}")))
    left = "" if progress.balance is None else f"; {describe_balance(progress.balance)}"
    yield f"{progress.describe_answers()} in {progress.seconds:,.1f} s{left}"
    yield f"run folder: {run.short_path}"


def _show_failures(run: "Run") -> None:
    """Print the first rows that have no answer, with their errors."""
    count = 0
    rows: list[tuple[Any, ...]] = []
    for some in _read_failures(run):
        first = some.slice(0, max(0, _MAX_SHOWN_FAILURES - count))
        rows += zip(*(column.to_pylist() for column in first.columns), strict=True)
        count += some.num_rows
    if not count:
        return
    show.write_table(["row", *_REASON_COLUMNS], rows)
    if count > len(rows):
        show.write_line(f"... and {count - len(rows):,} more")


def _read_failures(run: "Run") -> "Iterator[pa.RecordBatch]":
    """Yield batches with id, status and error of the rows that are neither finished nor pending."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from speechframe.store.schema import FINISHED_STATUSES, PENDING

    others = pa.array([*FINISHED_STATUSES, PENDING])
    for batch in run.batches([run.name_of(name) for name in ("row_id", *_REASON_COLUMNS)]):
        yield batch.filter(pc.invert(pc.is_in(batch.column(1), value_set=others)))
