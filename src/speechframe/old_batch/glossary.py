"""A glossary: terms that must be translated as their owner says, whole words, longest first."""

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from speechframe.errors import InvalidRows
from speechframe.old_batch.placeholders import Span
from speechframe.old_batch.table import open_table, problem
from speechframe.spec import locales

__all__ = ["Glossary", "read_glossary"]

SOURCE, LOCALE, TARGET = "source", "locale", "target"

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of languages that write no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""

_NO_LETTER_BEFORE, _NO_LETTER_AFTER = r"(?<!\w)", r"(?!\w)"

Terms = Sequence[Sequence[str | None]]
"""Lines of source, locale (None: any) and target, as run.json keeps them."""


def read_glossary(table: Any) -> list[list[str | None]] | None:
    """Return a glossary as plain lines; None for none.

    Parameters
    ----------
    table
        A frame, list of dicts or file with the columns ``source``, ``locale`` and ``target``; without a
        locale a line holds for every target. A dict is source to target, for every target.

    Raises
    ------
    InvalidRows
        For a missing column, an empty term, an unknown locale, or two targets for one term.

    Examples
    --------
    >>> read_glossary([{"source": "account", "locale": "fr_fr", "target": "compte"}])
    [['account', 'fr-FR', 'compte']]
    """
    if table is None:
        return None
    if isinstance(table, (Mapping, list, tuple)) and not table:
        return []
    if isinstance(table, Mapping) and not {SOURCE, TARGET} <= set(table):
        table = [{SOURCE: source, TARGET: target} for source, target in table.items()]
    try:
        read = open_table(table)
    except InvalidRows as error:
        raise InvalidRows([{**line, "field": "glossary"} for line in error.problems]) from None
    missing = [name for name in (SOURCE, TARGET) if name not in read.schema.names]
    if missing:
        columns = f"columns {SOURCE}, {LOCALE} and {TARGET}"
        raise InvalidRows([problem("glossary", f"has no column {missing[0]!r}", allowed=columns)])
    lines: list[list[str | None]] = []
    problems = []
    told: dict[tuple[str, str | None], str] = {}
    place, number = _place(table), 0
    for batch in read.batches:
        for row in batch.select([n for n in (SOURCE, LOCALE, TARGET) if n in batch.schema.names]).to_pylist():
            number += 1
            found = _line(row, place.format(number), told)
            if isinstance(found, list):
                lines.append(found)
            else:
                problems.append(found)
    if problems:
        raise InvalidRows(problems)
    return lines


def _place(table: Any) -> str:
    """Return what a row of `table` is called where it comes from, to be filled in with its number, from 1."""
    ending = Path(table).suffix.lower() if isinstance(table, (str, PathLike)) else ""
    if ending in {".jsonl", ".ndjson"}:
        return "line {}"
    return "row {} below its header" if ending in {".csv", ".tsv", ".xlsx"} else "row {}"


def _line(
    row: Mapping[str, Any], place: str, told: dict[tuple[str, str | None], str]
) -> list[str | None] | dict[str, Any]:
    source, target = (str(row[name] or "").strip() for name in (SOURCE, TARGET))
    if not source or not target:
        allowed = "a term and its translation in every row"
        return problem("glossary", f"has an empty term in {place}", allowed=allowed)
    try:
        locale = locales.normalise(str(row[LOCALE])) if row.get(LOCALE) else None
    except ValueError as error:
        return problem("glossary", f"{place}: {error}", value=row[LOCALE])
    known = told.setdefault((source, locale), target)
    if known != target:
        words = f"translates {source!r} twice for {locale or 'every target'}: {known!r} and {target!r}"
        return problem("glossary", words, allowed="one translation a term and locale")
    return [source, locale, target]


class Glossary:
    """The terms of a glossary that hold for one target.

    Parameters
    ----------
    lines
        What :func:`read_glossary` returned.
    target
        The locale that is translated into. A line for its language holds too, a line for just this locale
        before that, and one without a locale last.

    Examples
    --------
    >>> glossary = Glossary([["sign in", None, "se connecter"], ["sign", None, "signe"]], "fr-FR")
    >>> [(span.start, span.end, span.back) for span in glossary.find("Sign in or sign!", [])]
    [(0, 7, 'Se connecter'), (11, 15, 'signe')]
    """

    def __init__(self, lines: Terms, target: str) -> None:
        wanted = {None: 0, locales.language_of(target): 1, target: 2}
        best: dict[str, tuple[int, str]] = {}
        for words, locale, back in lines:
            source, rank = " ".join((words or "").split()), wanted.get(locale)
            if source and back and rank is not None and rank >= best.get(source, (0, ""))[0]:
                best[source] = rank, back
        self._exact = {source: back for source, (_, back) in best.items()}
        self._folded: dict[str, str] = {}
        for source, back in self._exact.items():
            if source == source.lower():
                self._folded.setdefault(source.casefold(), back)
        self._pattern = self._compiled()

    def _compiled(self) -> re.Pattern[str] | None:
        if not self._exact:
            return None
        # Capitals in a term mean just these ("IT", "Word"); without any, a sentence may begin with it.
        words = [
            f"(?i:{_whole(source)})" if source == source.lower() else _whole(source)
            for source in sorted(self._exact, key=len, reverse=True)
        ]
        return re.compile("|".join(words))

    def find(self, text: str, taken: Iterable[Span]) -> list[Span]:
        """Return the terms in a text that stand outside of what is `taken`."""
        if self._pattern is None:
            return []
        found = []
        position = 0
        for span in (*sorted(taken, key=lambda span: span.start), Span(len(text), len(text), "")):
            matches = self._pattern.finditer(text, position, span.start)
            found += [Span(*match.span(), self._back(match[0]), is_term=True) for match in matches]
            position = span.end
        return found

    def _back(self, term: str) -> str:
        term = " ".join(term.split())
        exact = self._exact.get(term)
        if exact is not None:
            return exact
        # A regular expression takes a dotless i for an i; folded, the two differ.
        back = self._folded.get(term.casefold()) or self._matched(term)
        if len(term) > 1 and term.isupper():
            return back.upper()
        return back[:1].upper() + back[1:] if term[:1].isupper() else back

    def _matched(self, term: str) -> str:
        of_lower = ((source, back) for source, back in self._exact.items() if source == source.lower())
        return next(back for source, back in of_lower if re.fullmatch(re.escape(source), term, re.IGNORECASE))


def _whole(source: str) -> str:
    before, after = ("" if _UNSPACED.match(edge) else edge for edge in (source[0], source[-1]))
    # Not \b: a term may begin or end with a sign ("C++", ".NET").
    words = r"\s+".join(map(re.escape, source.split()))
    return (_NO_LETTER_BEFORE if before else "") + words + (_NO_LETTER_AFTER if after else "")
