"""Write an HTML page about spending by team, operation and status, and about the end of the quota."""

import contextlib
import warnings
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from speechframe.errors import AnalysisError
from speechframe.extras import import_library
from speechframe.spending.budgets import check_budgets
from speechframe.spending.forecast import forecast, plot_burn_down
from speechframe.spending.ledger import open_ledgers
from speechframe.spending.usage import (
    AMOUNT_COLUMNS,
    TAG_PREFIX,
    UsageTable,
    drop_empty_columns,
    plot_usage,
    usage,
)

if TYPE_CHECKING:
    from os import PathLike

_STYLE_SHEET = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; --page: light-dark(#fff, #121212); }
html { background: var(--page); }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
.wide { overflow: auto; max-height: 28rem; margin: .5rem 0 1.5rem; } table { border-collapse: collapse; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #8886; }
td { white-space: nowrap; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--page); vertical-align: bottom; font-weight: 600; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--page); text-align: left; }
th:first-child { z-index: 1; } figure { margin: 0; }
svg { max-width: 100%; height: auto; background: #fff; }
.dim { color: light-dark(#5a5f66, #a9b0b8); }
"""

_COLUMN_NAMES = {
    "cached": "from the cache",
    "refusals": "refused by a limit",
    "odd": "without a valid amount",
    "computed": "computed price",
    "reported": "reported price",
    "charged_unknown": "perhaps billed, no answer",
    "undelivered": "billed, no answer",
    "suspect": "suspect answers",
    "retakes": "further takes",
    "saved": "saved by shared calls and the cache",
    "credits_per_minute": "credits a minute of audio",
}
"""Name in the report for each column of a usage table whose own name is not plain enough."""


def report(
    path: "str | PathLike[str]",
    source: Any = None,
    *,
    start: Any = None,
    end: Any = None,
    tz: str = "UTC",
    by: str = "team",
) -> Path:
    """Write an HTML page about spending and a CSV file of the spending by day. Return the path of the page.

    Parameters
    ----------
    path
        Path of the page, such as ``report.html``. An existing page is replaced. The CSV file has the same
        name with the suffix ``.csv``. An existing CSV file is replaced only if a report wrote it.
    source, start, end, tz
        Runs or ledgers and the window, as for :func:`usage`.
    by
        Name of the tag that contains the team.

    Raises
    ------
    AnalysisError
        As for :func:`usage`. Also if a file cannot be written or must not be replaced.
    StoreError
        If a ledger cannot be read.

    Examples
    --------
    >>> report("november.html", start="2026-11-01", end="2026-12-01")  # doctest: +SKIP
    """
    page = Path(path).with_suffix(".html")
    if page != Path(path) and page.exists():
        raise AnalysisError(
            f"{page} exists already; give this full name to replace it, or choose another name"
        )
    window = {"start": start, "end": end, "tz": tz}
    # Open the ledgers only once, so that all tables show the same attempts.
    ledgers = open_ledgers(source)
    days = usage(ledgers, f"tag:{by}", **window)
    table, csv = page.with_suffix(".csv"), days.to_csv(index=False)
    if not _is_from_report(table, csv):
        raise AnalysisError(f"{table} exists, but no report wrote it; give the page another name")
    pieces = [f"<h1>What was spent</h1><p class=dim>{escape(days.covers)}</p>"]
    for title, group_by in (
        ("In all", ()), (f"By {by}", f"tag:{by}"), ("By operation", "operation"), ("By status", "status"),
    ):  # fmt: skip
        pieces.append(
            f"<h2>{escape(title)}</h2>{_render_table(usage(ledgers, group_by, every=None, **window), title)}"
        )
    pieces.append(f"<h2>By day</h2>{_render_svg(plot_usage(days))}{_render_table(days, 'By day')}")
    lines, _ = check_budgets()
    if lines:
        pieces.append(f"<h2>Budgets</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>")
    pieces.append("<h2>When the quota ends</h2>")
    try:
        found = forecast(ledgers, tz=tz)
        pieces.append(f"<p>{escape(str(found))}</p>{_render_svg(plot_burn_down(found))}")
    except AnalysisError as error:
        pieces.append(f"<p>No forecast: {escape(str(error))}.</p>")
    meta = '<meta charset=utf-8><meta name="viewport" content="width=device-width">'
    head = f"<!doctype html><html lang=en>{meta}<title>What was spent</title><style>{_STYLE_SHEET}</style>"
    try:
        page.write_text(f"{head}<body><main>{''.join(pieces)}</main></body></html>", encoding="utf-8")
        table.write_text(csv, encoding="utf-8")
    except OSError as error:
        raise AnalysisError(f"{page} cannot be written: {error}") from error
    return page


def _is_from_report(path: Path, csv: str) -> bool:
    """Return whether `csv` may replace the file. A file that exists must have the same first line."""
    if not path.exists():
        return True
    with contextlib.suppress(OSError, ValueError), path.open(encoding="utf-8", newline="") as file:
        return file.readline(1 << 16).rstrip() == csv.partition("\n")[0].rstrip()
    return False


def _render_table(table: UsageTable, title: str) -> str:
    """Return a table with plain names, units and grouped digits. A large table scrolls."""
    columns = {}
    for name, values in drop_empty_columns(table).items():
        if name == "period":
            columns["day"] = values.dt.strftime("%Y-%m-%d")
        elif name == "audio_seconds":
            columns["audio (min)"] = values.map(lambda seconds: f"{seconds / 60:,.1f}")
        elif name == "money":
            currency = table["currency"].iloc[0]
            columns[f"cost ({currency})"] = values.map("{:,.2f}".format, na_action="ignore")
        elif name != "currency":
            plain = _COLUMN_NAMES.get(name, name.removeprefix(TAG_PREFIX).replace("_", " "))
            unit = " (credits)" if name in AMOUNT_COLUMNS and name != "credits" else ""
            is_number = values.dtype.kind in "iuf"
            columns[plain + unit] = values.map("{:,.10g}".format, na_action="ignore") if is_number else values
    shown = pd.DataFrame(columns).to_html(index=False, border=0, na_rep="")
    # A region that scrolls must be reachable with the keyboard.
    return f'<div class=wide tabindex=0 role=region aria-label="{escape(title)}">{shown}</div>'


def _render_svg(figure: Any) -> str:
    file, style = StringIO(), import_library("matplotlib").rc_context
    with warnings.catch_warnings(), style({"svg.fonttype": "none"}):
        # The SVG contains text, not outlines. So a browser can show characters that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format="svg")
    text = file.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"
