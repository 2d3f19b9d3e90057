"""Short views of values: tables of HTML for notebooks, and a few lines for terminals."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from speechframe.writing.words import format_count, replace_unprintable


def format_table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """Return a table as HTML. All values are escaped."""
    top = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    cells = ("".join(f'<td dir="auto">{html.escape(str(value))}</td>' for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def format_lines(text: str) -> str:
    """Return lines of text as HTML."""
    # JupyterLab breaks the lines of other elements `pre` within words.
    style = "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere"
    return f'<pre style="{style}">{html.escape(text)}</pre>'


class Problems(list[Mapping[str, Any]]):
    """A list of problems of rows and arguments, one mapping each. It shows its first problems only.

    `total` is the number of all problems, if the list has only the first of very many problems.
    """

    MAX_SHOWN = 5

    def __init__(self, problems: Iterable[Mapping[str, Any]] = (), total: int | None = None) -> None:
        super().__init__(problems)
        self.total = len(self) if total is None else total

    def __str__(self) -> str:
        """Return the first problems, one a line."""
        lines = []
        for problem in self[: self.MAX_SHOWN]:
            row = f"row {problem['row_id']!r}" if problem.get("row_id") is not None else ""
            place = ", ".join(filter(None, (row, problem.get("field"))))
            allowed = f"; allowed: {problem['allowed']}" if problem.get("allowed") else ""
            value = f" (value {problem['value']})" if problem.get("value") not in {None, ""} else ""
            lines.append(f"  {place}: {problem.get('problem')}{value}{allowed}")
        if self.total > self.MAX_SHOWN:
            lines.append(f"  ... and {self.total - self.MAX_SHOWN:,} more; .problems lists {len(self):,}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return replace_unprintable(f"{format_count(self.total, 'problem')}\n{self}".strip())

    def _repr_html_(self) -> str:
        names = ("row_id", "field", "problem", "value", "allowed")
        shown = [
            ["" if problem.get(name) is None else problem[name] for name in names]
            for problem in self[: self.MAX_SHOWN]
        ]
        if not self:
            return "<p>0 problems</p>"
        more = "; the first of them are:" if self.total > self.MAX_SHOWN else ""
        return format_table(names, shown, caption=f"{format_count(self.total, 'problem')}{more}")
