"""Glossaries of terms with fixed translations. A term matches whole words, and the longest match counts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from speechframe.backends.placeholders import Span
from speechframe.backends.sheets import read_table
from speechframe.errors import InvalidRows, make_problem, refuse
from speechframe.spec import locales

SOURCE, LOCALE, TARGET = GLOSSARY_COLUMNS = ("source", "locale", "target")

_UNSPACED_LETTER = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A letter of a language without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


def read_glossary(table: Any) -> list[list[str | None]] | None:
    """Return the lines of a glossary as source, locale and target. The locale None stands for every target.

    `table` is a frame, list of dicts or file with these columns, or a dict of source to target. The result is
    None if `table` is None or empty. Raises InvalidRows for a missing column, an empty term, an unknown
    locale, or two targets for the same term and locale.
    """
    if table is None or (isinstance(table, (Mapping, list, tuple)) and not table):
        return None
    if isinstance(table, Mapping) and not {SOURCE, TARGET} <= set(table):
        table = [{SOURCE: source, TARGET: target} for source, target in table.items()]
    found, _, _ = read_table(table, "glossary", GLOSSARY_COLUMNS)
    names = [name for name in GLOSSARY_COLUMNS if name in found.column_names]
    if not {SOURCE, TARGET} <= set(names):
        raise refuse("glossary", "lacks a column", f"columns {SOURCE}, {LOCALE} and {TARGET}")
    problems: list[tuple[str, str]] = []
    targets: dict[tuple[str, str | None], str] = {}
    for number, row in enumerate(found.select(names).to_pylist(), 1):
        source, target = (str(row[name] or "").strip() for name in (SOURCE, TARGET))
        try:
            locale = locales.normalise(str(row[LOCALE])) if row.get(LOCALE) else None
        except ValueError as error:
            problems.append((f"row {number}: {error}", "a code or locale, such as fr-FR"))
            continue
        known = targets.setdefault((source, locale), target)
        if not source or not target:
            fault = f"has an empty term in row {number}"
            problems.append((fault, "a term and its translation in every row"))
        elif known != target:
            fault = f"translates {source!r} twice for {locale or 'every target'}: {known!r} and {target!r}"
            problems.append((fault, "one translation a term and locale"))
    if problems:
        raise InvalidRows([make_problem("glossary", fault, allowed=allowed) for fault, allowed in problems])
    return [[source, locale, target] for (source, locale), target in targets.items()]


class Glossary:
    """The terms of a glossary that apply to one target locale.

    If several lines have the same term, a line for this locale comes first, then a line for its language,
    then a line without a locale.

    Examples
    --------
    >>> glossary = Glossary([["sign in", None, "se connecter"], ["sign", None, "signe"]], "fr-FR")
    >>> [(span.start, span.end, span.replacement) for span in glossary.find_terms("Sign in or sign!", [])]
    [(0, 7, 'Se connecter'), (11, 15, 'signe')]
    """

    def __init__(self, lines: Sequence[Sequence[str | None]], target: str) -> None:
        ranks = {None: 0, locales.get_language(target): 1, target: 2}
        applicable = sorted((line for line in lines if line[1] in ranks), key=lambda line: ranks[line[1]])
        best = {" ".join(str(source).split()): str(translation) for source, _, translation in applicable}
        # If two terms are equally long, try capitals first, because "IT" is not the word "it".
        sources = sorted(best, key=lambda source: (-len(source), source == source.lower()))
        self._terms = [(source, best[source]) for source in sources]
        self._pattern = re.compile("|".join(f"({_make_pattern(source)})" for source in sources))

    def find_terms(self, text: str, taken_spans: Iterable[Span]) -> list[Span]:
        """Return a span for each term in a text. Text inside the spans in `taken_spans` is not searched."""
        found: list[Span] = []
        if not self._terms:
            return found
        position = 0
        for span in (*sorted(taken_spans, key=lambda span: span.start), Span(len(text), len(text), "")):
            for match in self._pattern.finditer(text, position, span.start):
                source, translation = self._terms[(match.lastindex or 1) - 1]
                found.append(Span(*match.span(), _copy_capitals(match[0], source, translation), is_term=True))
            position = span.end
        return found


def _copy_capitals(term: str, source: str, translation: str) -> str:
    """Return a translation with capitals as in the text, unless the term `source` contains capitals."""
    if source != source.lower():
        return translation
    if len(term) > 1 and term.isupper():
        return translation.upper()
    return translation[:1].upper() + translation[1:] if term[:1].isupper() else translation


def _make_pattern(source: str) -> str:
    """Return the pattern of a term as whole words. Case matters only if the term contains a capital."""
    pattern = r"\s+".join(map(re.escape, source.split()))
    # Do not use \b, which fails for terms that begin or end with a sign ("C++", ".NET").
    before = "" if _UNSPACED_LETTER.match(source[0]) else r"(?<!\w)"
    after = "" if _UNSPACED_LETTER.match(source[-1]) else r"(?!\w)"
    pattern = f"{before}{pattern}{after}"
    return f"(?i:{pattern})" if source == source.lower() else pattern
