"""Translations by people, which `translate` uses as they are. A text is found by row id and locale."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.backends.sheets import read_table
from speechframe.errors import InvalidRows, make_problem, refuse
from speechframe.spec import locales
from speechframe.spec.check import shorten_value
from speechframe.tables.table import convert_to_python
from speechframe.writing.words import format_count

CURRENT, UNCHECKED, STALE = "current", "unchecked", "stale"
"""Values of the column ``translation_state``. CURRENT: the source text is the one that was translated.
UNCHECKED: nothing shows which text was translated. STALE: the source text has changed since then."""

_MAX_SHOWN_IDS = 3
"""Number of row ids that a note or an error lists."""


_refuse = partial(refuse, "translations")


class HumanText(NamedTuple):
    """A text by people, its state, and the source text that was translated. None is unknown."""

    text: str
    state: str | None = None
    source_text: str | None = None


class HumanTranslations:
    """The texts of a table of translations, by locale and row id. An empty text is a gap."""

    def __init__(self, by_locale: Mapping[str, Mapping[str, HumanText]], notes: list[str]) -> None:
        self._by_locale, self._notes = by_locale, notes
        self._unknown = dict.fromkeys(row_id for texts in by_locale.values() for row_id in texts)
        self._count = len(self._unknown)

    @property
    def locales(self) -> list[str]:
        """The targets of which the table has texts."""
        return [*self._by_locale]

    def find(self, row_id: str, locale: str) -> HumanText | None:
        """Return the text of a row in a locale, or None if the table has no text for it."""
        found = self._by_locale.get(locale, {}).get(row_id)
        if found is not None:
            self._unknown.pop(row_id, None)
        return found if found is not None and found.text else None

    def describe(self) -> list[str]:
        """Return notes for the user, once all rows were looked up. InvalidRows if no row was found."""
        examples = ", ".join(islice(self._unknown, _MAX_SHOWN_IDS))
        if len(self._unknown) == self._count:
            fault = f"has no row of the table; its first ids are {examples}"
            raise _refuse(fault, "the ids of the table in a column named id, or in the column of id=")
        if not self._unknown:
            return self._notes
        rows = format_count(len(self._unknown), "row")
        return [*self._notes, f"{rows} of translations: the table has no such row ({examples})"]


def read_translations(
    given: Any, targets: Sequence[str], id_column: str | None = None
) -> HumanTranslations | None:
    """Return the texts of a wide or long table of translations, or None if `given` is None or False.

    `id_column` is the name of the column of ids in the caller's table.
    """
    if given is None or given is False:
        return None
    table, ids, opened = read_table(given, "translations")
    key = next((name for name in (id_column, "id") if name in table.column_names), None)
    if key is not None:
        ids = list(map(str, convert_to_python(table[key].combine_chunks(), key)))
    elif opened.is_numbered:
        raise _refuse("has no column of ids", "a column named id, or like id=")
    table = table.append_column("translations.id", pa.array(ids, pa.string()))
    try:
        by_locale, names = _read_texts(table, targets)
    except pa.ArrowException as error:
        raise _refuse(f"has a column that cannot be read as texts: {error}", "columns of texts") from None
    if not by_locale:
        allowed = f"a column for each locale or a column locale, with {', '.join(targets)}"
        raise _refuse("has no text in a target", allowed)
    notes = [*opened.notes]
    if unused := [name for name in names if name != key and read_tag(name) not in {None, *by_locale}]:
        fault = "locales of translations that are not used, as they are no targets"
        notes.append(f"{fault}: {', '.join(unused)}")
    return HumanTranslations(by_locale, notes)


def _read_texts(
    table: pa.Table, targets: Sequence[str]
) -> tuple[dict[str, dict[str, HumanText]], Sequence[str]]:
    """Return the texts by target and id, and the names of all columns or locales of a table."""
    is_long, names = "locale" in table.column_names, table.column_names
    tags: list[str | None] = []
    column: str | None = None
    if is_long:
        column = next((name for name in ("translated_text", "text") if name in names), None)
        if column is None:
            raise _refuse("has a column locale, but no texts", "a column translated_text or text")
        of_rows: list[Any] = table["locale"].cast(pa.string()).to_pylist()
        tag_by_name = {name: read_tag(name or "") for name in dict.fromkeys(of_rows)}
        if odd := [name for name, tag in tag_by_name.items() if tag is None]:
            fault = f"has the locale {odd[0]!r}, which is not a language"
            raise _refuse(fault, "a code or locale in every row, such as fr-FR")
        names, tags = [*tag_by_name], [tag_by_name[name] for name in of_rows]
    found: dict[str, dict[str, HumanText]] = {}
    for target, name in match_targets(names, targets, field="translations").items():
        part = table.filter(pa.array([tag == target for tag in tags])) if is_long else table
        texts = _get_texts(part, column or name)
        states = _get_texts(part, "state" if is_long else f"state.{name}", "state")
        source_texts, of_target = _get_texts(part, "source_text"), found.setdefault(target, {})
        ids: list[Any] = part["translations.id"].to_pylist()
        for row_id, text, state, source_text in zip(ids, texts, states, source_texts, strict=True):
            if row_id in of_target:
                fault = f"has the id {row_id!r} twice for {target}"
                raise _refuse(fault, "one row for each id, or for each id and locale")
            of_target[row_id] = HumanText(text or "", state, source_text)
    return found, names


def _get_texts(table: pa.Table, *names: str) -> list[str | None]:
    """Return the values of the first column that has one, as texts. An empty text is None."""
    columns = [table[name].cast(pa.large_string()) for name in names if name in table.column_names]
    filled = [pc.if_else(pc.match_substring_regex(one, r"[^\s\p{Z}]"), one, None) for one in columns]
    found: list[str | None] = pc.coalesce(*filled).to_pylist() if filled else [None] * len(table)
    return found


def match_targets(
    names: Iterable[str], targets: Sequence[str], taken: Collection[str] = (), *, field: str
) -> dict[str, str]:
    """Return the name of each target among `names`, which may spell a locale in any way.

    Names in `taken` and the name ``id`` are not locales. Raises InvalidRows if a target has only a name of
    its language, such as ``de`` for ``de-DE``. `field` is the argument at fault.
    """
    tags: dict[str | None, str] = {}
    for name in names:
        if name not in taken and name != "id":
            tags.setdefault(read_tag(name), name)
    problems, known = [], {*tags, *map(read_tag, taken)}
    for target in targets:
        language = locales.get_language(target)
        if target not in known and language in tags and language not in targets:
            fault = f"has the locale {tags[language]!r}, and not the target {target}"
            allowed = f"the name {target}; or leave {tags[language]!r} out, and the service translates"
            problems.append(make_problem(field, fault, allowed=allowed))
    if problems:
        raise InvalidRows(problems)
    return {target: tags[target] for target in targets if target in tags}


def read_tag(name: str) -> str | None:
    """Return a locale in its normal spelling, or None if a name is not a locale."""
    with suppress(ValueError):
        return locales.normalise(name)
    return None


def read_allowed_locales(value: Any) -> list[str] | None:
    """Return the locales in which a row exists. `value` is a list, a text with commas, or None for all."""
    if value is None or value == "":
        return None
    tags = re.findall(r"[\w-]+", value) if isinstance(value, str) else value
    if not isinstance(tags, list):
        raise ValueError(f"{shorten_value(value)} is not a list of locales")  # noqa: TRY004
    return [locales.normalise(str(tag)) for tag in tags]


def judge_source(human: HumanText, text: str, known: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of a human text, and the hash of the source text that it belongs to.

    `text` is the source text of now. `known` are the row's values in the run's table so far. They count if
    they contain the same human text, and if the human text has no source text.
    """
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    if human.source_text is not None:
        translated_sha256 = hashlib.sha256(human.source_text.encode()).hexdigest()
        return CURRENT if translated_sha256 == sha256 else STALE, translated_sha256
    former = known.get("source_sha256")
    if former is None or get_human_text(known) != human.text:
        return UNCHECKED, sha256
    if former != sha256:
        return STALE, former
    return CURRENT if known.get("translation_state") == CURRENT else UNCHECKED, sha256


def get_human_text(known: Mapping[str, Any]) -> str | None:
    """Return the human text in the values of a row of the run's table, or None."""
    if known.get("origin") != "human":
        return None
    text: str | None = known.get("stale_text") or known.get("translated_text")
    return text
