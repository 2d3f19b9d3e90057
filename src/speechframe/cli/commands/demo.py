"""The command ``speechframe demo``, which speaks a table on the embedded service and suggests next steps."""

import argparse
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from speechframe.cli import exits, runs, selection, show
from speechframe.errors import SettingsError

if TYPE_CHECKING:
    from speechframe.batch.live import Run

TABLE_PATH = Path("datasets/demo.csv")
RUN_DIR = Path("runs/demo")
TEXT, VOICE, ID = "text", "voice", "id"
"""Columns of the table."""


class Suggestion(NamedTuple):
    """A suggested next step: a title and lines of code. Shell lines begin with ``$``, others are Python."""

    title: str
    lines: Sequence[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Speak a table on the embedded local service, even if another service is configured. The demo uses "
        "no key and costs nothing. A second demo keeps the finished rows."
    )
    parser.add_argument(
        "--table",
        metavar="TABLE",
        help=f"a table with the columns {TEXT} and {VOICE}, and optionally {ID} ({TABLE_PATH})",
    )
    parser.add_argument(
        "--run-dir", metavar="DIR", default=str(RUN_DIR), help="the run's folder (%(default)s)"
    )
    # The report reads these attributes. The demo offers no such options.
    parser.set_defaults(json=False, base_url=None, profile=None, regions=None)


def run(options: argparse.Namespace) -> int:
    """Speak the table, print the result and suggest next steps. Return the exit code."""
    table = _find_table(options)
    from speechframe import api
    from speechframe.local.start import get_shared_service
    from speechframe.tables.column import col
    from speechframe.tables.table_input import open_table

    started = time.monotonic()
    data, is_default = _find_local_folder()
    columns = open_table(table).schema.names
    missing = [name for name in (TEXT, VOICE) if name not in columns]
    if missing:
        options.parser.error(
            f"{table} lacks the column {' and '.join(missing)}; it has {', '.join(columns)}. "
            f"Rename a column to {' and '.join(missing)}"
        )
    row_ids = ID if ID in columns else None
    with runs.explain_interrupts():
        service = get_shared_service(data)
        made = api.generate(
            table, text=TEXT, voice=col(VOICE), id=row_ids, run_dir=options.run_dir, service=service
        )
    seconds = time.monotonic() - started
    if runs.find_exit_code(made) != exits.OK:
        return runs.report(made, options)
    for line in _summarise_run(made, seconds):
        show.write_line(line)
    show.write_line("\nNext steps, from this folder:")
    if not is_default:
        show.write_line(
            "(first unset SPEECHFRAME_API_KEY and SPEECHFRAME_BASE_URL, which select another service)"
        )
    for title, lines in _suggest_steps(made, options):
        show.write_line(f"\n  {title}")
        for line in lines:
            show.write_line(f"    {line}")
    return exits.OK


def _find_table(options: argparse.Namespace) -> Path:
    if options.table is not None:
        try:
            return runs.parse_existing_path(options.table)
        except argparse.ArgumentTypeError as error:
            options.parser.error(str(error))
    if not TABLE_PATH.exists():
        options.parser.error(
            f"{TABLE_PATH} is not here, because it comes with the repository, not with the package. "
            "Run this in a clone, or name your own table with --table. The table is a CSV file with the "
            f"columns {TEXT} and {VOICE}, for example\n  {TEXT},{VOICE}\n  Good morning.,en-US-nora"
        )
    return TABLE_PATH


def _find_local_folder() -> tuple[Path | None, bool]:
    """Return the data folder of the local service, and whether the settings select the local service.

    A folder of None means the default folder.
    """
    try:
        from speechframe import settings

        found = settings.resolve_settings()
    except SettingsError:
        return None, False
    return found.service, found.is_local


def _summarise_run(made: "Run", seconds: float) -> list[str]:
    facts = made.stats
    calls = made.dataset.to_table(columns=["locale", "voice_id"])
    locales = sorted({tag for tag in calls.column("locale").to_pylist() if tag})
    voices = {voice for voice in calls.column("voice_id").to_pylist() if voice}
    new = made.progress.ended if made.progress is not None else 0
    before = "" if new else ", because all rows were finished before"
    places = f"{show.format_count(len(locales), 'locale')} ({', '.join(locales)})"
    return [
        f"{show.format_count(facts['rows'], 'row')} in {places} by {show.format_count(len(voices), 'voice')}",
        f"{facts['audio_seconds'] / 60:,.1f} minutes of audio with word durations",
        f"{show.format_count(facts['credits'], 'credit')} of the local service, which cost nothing",
        f"{seconds:,.1f} seconds in all{before}",
        f"run folder: {made.short_path}",
    ]


def _suggest_steps(made: "Run", options: argparse.Namespace) -> list[Suggestion]:
    folder = made.short_path
    parts = f"{folder}/parts/*.parquet"
    row_id = _read_first_id(made)
    shell = shlex.quote(folder)
    return [
        Suggestion("play a row", [
            "import speechframe as spf",
            f"run = spf.open_run({folder!r})",
            f'run.clip({row_id!r}).save("first.wav")  # in a notebook, run.clip({row_id!r}) plays',
        ]),
        Suggestion("pandas, with rows, word durations and credits", [
            "import speechframe as spf",
            f"frame = spf.open_run({folder!r}).to_pandas()",
            'print(frame[["voice_id", "audio_seconds", "credits", "word_durations"]].head())',
        ]),
        Suggestion("DuckDB, straight from the files (equal rows share a call)", [
            "import duckdb",
            'duckdb.sql("select locale, count(*) as calls, sum(audio_seconds) / 60 as minutes "',
            f"""           "from '{parts}' group by locale order by minutes desc").show()""",
        ]),
        Suggestion("Hugging Face datasets", [
            "import speechframe as spf",
            "from datasets import Audio, Dataset",
            "import pyarrow.compute as pc",
            f"table = spf.open_run({folder!r}).to_arrow(audio=True)",
            f'table = table.filter(pc.field({made.name_of("status")!r}).isin(["done", "cached"]))',
            f'data = Dataset(table).cast_column({made.name_of("audio")!r}, Audio(decode=False))',
            'print(data.num_rows, "rows in the dataset")',
        ]),
        Suggestion("speak a line, list voices", [
            '$ speechframe say "Good morning." --voice nora',
            "$ speechframe voices --locale fr",
        ]),
        Suggestion("the same again, which costs nothing, and another take of one row", [
            f"$ speechframe resume {shell}{selection.repeat_options(options)}",
            f"$ speechframe resume {shell} --redo {shlex.quote(row_id)}",
        ]),
    ]  # fmt: skip


def _read_first_id(made: "Run") -> str:
    first: Any = next(made.batches([made.name_of("row_id")], batch_rows=1))
    return str(first.column(0)[0].as_py())
