"""The cast of a table: voice, style, rate and pitch by character and locale."""

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from speechframe.backends.sheets import ANY, rank_locale, read_sheet
from speechframe.spec.check import FieldProblem

CHARACTER, LOCALE, *SPOKEN_COLUMNS = CAST_COLUMNS = ("character", "locale", "voice", "style", "rate", "pitch")
_NUMBERS = frozenset({"rate", "pitch"})
_MAX_SHOWN_NAMES = 5  # names that a problem lists


def read_cast(table: Any) -> list[list[Any]] | None:
    """Return the lines of a cast as character, locale and a dict of arguments. Empty texts stand for any."""
    return None if table is None else read_sheet(table, "cast", CAST_COLUMNS, _read_row)


def _read_row(row: Mapping[str, str]) -> tuple[tuple[str, str], list[Any]]:
    given: dict[str, Any] = {name: row[name] for name in SPOKEN_COLUMNS if row[name]}
    for name in _NUMBERS & given.keys():
        try:
            given[name] = int(given[name])
        except ValueError:
            raise ValueError(f"{name} {given[name]!r} is not an integer") from None
    return (row[CHARACTER].casefold(), row[LOCALE]), [row[CHARACTER], row[LOCALE], given]


class CastSheet:
    """The lines of a cast. The line with the fewest `*` wins, and on a tie the line with the character."""

    def __init__(self, lines: Sequence[Sequence[Any]]) -> None:
        self._lines = lines
        self._find = cache(self._find_line)

    def complete(self, row: Mapping[str, Any], character: Any) -> tuple[dict[str, Any], list[FieldProblem]]:
        """Return a row's arguments, completed by those of its line, and any problem."""
        locale = row.get("locale")
        found = self._find(str(character or "").strip(), locale if isinstance(locale, str) else None)
        if isinstance(found, FieldProblem):
            return dict(row), [] if "voice" in row else [found]
        completed = {**found, **row}
        fault, allowed = "is missing in the line of the cast", "a voice in the line, or voice="
        problem = FieldProblem("voice", fault, str(character or ""), allowed)
        return completed, [] if "voice" in completed else [problem]

    def _find_line(self, name: str, locale: str | None) -> Mapping[str, Any] | FieldProblem:
        """Return the arguments for a character and locale, or the problem."""
        ranked: dict[tuple[int, bool, int], Mapping[str, Any]] = {}
        for of_line, of_sheet, given in self._lines:
            locale_rank, is_named = rank_locale(of_sheet, locale), bool(of_line)
            if locale_rank is not None and (not is_named or of_line.casefold() == name.casefold()):
                # A language counts like a locale, but the exact locale comes first.
                ranked[is_named + bool(locale_rank), is_named, locale_rank] = given
        if ranked:
            return ranked[max(ranked)]
        names = sorted({f"{of_line} in {of_sheet or ANY}" for of_line, of_sheet, _ in self._lines if of_line})
        near = difflib.get_close_matches(f"{name} in {locale or ANY}", names, n=_MAX_SHOWN_NAMES, cutoff=0.3)
        shown = "; ".join(near or names[:_MAX_SHOWN_NAMES])
        who = f"the character {name!r}" if name else "rows without a character"
        fault = f"has no line for {who} and {f'the locale {locale}' if locale else 'no locale'}"
        allowed = f"a line for both, or with {ANY}; nearest: {shown or 'the sheet names no character'}"
        return FieldProblem("cast", fault, f"{name or ANY}, {locale or ANY}", allowed)
