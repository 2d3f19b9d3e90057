"""The verb `translate`, which translates each row of text into several languages.

Section 2.6 of the service document describes the call.
"""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from types import MappingProxyType
from typing import Any, Unpack

import pyarrow as pa

from speechframe.backends import placeholders
from speechframe.backends.glossary import Glossary, read_glossary
from speechframe.backends.placeholders import Span
from speechframe.backends.service import CallBackend
from speechframe.backends.targets import format_locales, pack_rows, read_targets, refuse_targets, share_cost
from speechframe.backends.translations import (
    STALE,
    UNCHECKED,
    HumanText,
    HumanTranslations,
    get_human_text,
    judge_source,
    match_targets,
    read_allowed_locales,
    read_tag,
    read_translations,
)
from speechframe.batch.backend import Answer, Finding, Opened, Record, Request, RowWithoutCall
from speechframe.batch.live import Run
from speechframe.batch.run_options import RunOptions
from speechframe.client import PreparedCall
from speechframe.client.answers import assign_warnings
from speechframe.errors import BadAnswer, SpeechframeError
from speechframe.scale.run import make_run
from speechframe.settings import Settings
from speechframe.spec import locales
from speechframe.spec.billing import compute_translation_millicredits, convert_to_credits
from speechframe.spec.check import FieldProblem, check, shorten_value
from speechframe.spec.chosen import MAX_TEXTS_PER_CALL, MAX_TRANSLATE_CHARACTERS
from speechframe.spec.translate import TranslateRequest
from speechframe.store.schema import DONE, SKIPPED, columns
from speechframe.strings.entries import NOT_TRANSLATABLE, is_usable_state
from speechframe.strings.plurals import get_plural_rule
from speechframe.tables.column import Column
from speechframe.wire.answers import collect_warnings, read_whole_number
from speechframe.wire.requests import encode_request
from speechframe.wire.translate import decode_translate
from speechframe.writing.words import format_count

TRANSLATION_COLUMNS = columns(
    text=pa.string(),
    translated_text=pa.string(),
    route=pa.string(),
    length_ratio=pa.float64(),
    placeholders_ok=pa.bool_(),
    glossary_ok=pa.bool_(),
)

STALE_REASON = "the source has changed since its translation by people"
"""The reason why a stale row is skipped."""
_ROW_COLUMNS = columns(
    locale=pa.string(),
    text=pa.string(),
    translated_text=pa.string(),
    origin=pa.string(),
    translation_state=pa.string(),
    source_sha256=pa.string(),
    stale_text=pa.string(),
)

# The fault of a target in an error.
_UNKNOWN_TARGET_FAULT = "is not a language that this service translates into"

# Bounds of a plausible translation. They are wide, so that no good translation becomes suspect.
_MIN_CHECKED_CHARACTERS = 20
"""Shortest text whose translation is checked for its length. "OK" may become a word of twelve letters."""
_MIN_LENGTH_RATIO, _MAX_LENGTH_RATIO = 0.08, 8.0
"""Smallest and largest length of a translation in characters, divided by that of the text. A Chinese text has
about a quarter of the characters of the same text in English."""


@dataclass(slots=True)
class _TranslationRecord(Record):
    """The record of a translation, with facts that only :meth:`TranslateBackend.judge` uses."""

    stated_locale: str | None = None  # the locale in the answer
    is_explained: bool = False  # the service sent a warning about the text or the call
    # True if a translation that equals its text is plausible. The text may lack words to translate, both
    # languages may be the same, or the service may have sent a warning about the text.
    may_be_same: bool = False


@dataclass
class _Text:
    """One text with one target, as stored in the body of a request."""

    text: str
    sent: str  # the text as it is sent, with tokens for its placeholders and terms
    target: str
    source_locale: str | None
    glossary: list[tuple[int, int, str]]  # start, end and translation of each term in the text

    @classmethod
    def from_request(cls, request: Request) -> "_Text":
        """Return the text in the body of a request."""
        return cls(**json.loads(request.body))


def _is_same_language(text: _Text) -> bool:
    source = text.source_locale
    return source is not None and locales.get_language(source) == locales.get_language(text.target)


def _count_forms(target: str) -> int:
    """Return the number of plural forms of a target, or 2 (as in English) if it is not known."""
    try:
        return get_plural_rule(target)[0]
    except ValueError:
        return 2


class TranslateBackend(CallBackend):
    """Backend of `translate`. It collects texts into calls, and makes a row from each translation."""

    operation = "translate"
    columns = TRANSLATION_COLUMNS
    arguments = ("text", "targets", "source_locale", "glossary", "translations", "row_id")
    table_arguments = frozenset({"targets", "glossary", "translations"})
    row_columns = _ROW_COLUMNS
    unit = "text"

    def __init__(self, settings: Settings, constants: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(settings)
        self._targets: Sequence[str] = constants.get("targets", ())
        # Targets with texts in `translations=`, or False to use no texts by people.
        self._given_locales: Any = constants.get("translations", ())
        self.translations: HumanTranslations | None = None  # a resumed run has only its own table
        self._has_people = bool(self._given_locales)  # True if any target has texts by people
        self._left_out = 0  # number of rows that the column `locales` or their plural form excludes
        self._column_tags: set[str] = set()  # locales that have a column in the table
        self._form_count = 0  # number of plural forms in the table
        self._notes: list[str] = []
        self._unknown_targets: list[str] = []  # targets that the service does not translate into
        self._known_targets: list[str] = []
        # Source locales by target language, or None if the service publishes no languages.
        self._sources: dict[str, list[str]] | None = None
        self._glossaries: dict[str, Glossary] = {}

    async def open(self) -> Opened:
        """Open the backend, and report that the service cannot make further takes of a translation."""
        return replace(await super().open(), takes=False)

    async def look_up(self) -> Mapping[str, Any]:
        """Read the limits and languages that the service publishes."""
        self._most_texts = read_whole_number(self.limits, "max_texts_per_call") or MAX_TEXTS_PER_CALL
        self._most_characters = (
            read_whole_number(self.limits, "max_translate_characters") or MAX_TRANSLATE_CHARACTERS
        )
        self._sends_source = self.limits.get("source_language") is True
        published = self.limits.get("translation")
        pairs = published.get("pairs") if isinstance(published, Mapping) else None
        if not isinstance(pairs, list):
            return {}
        self._sources, known = {}, []
        for pair in pairs:
            with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError):
                source, target = locales.normalise(pair["source"]), locales.normalise(pair["target"])
                self._sources.setdefault(locales.get_language(target), []).append(source)
                known.append(target)
        # Accept any region of a known language, because the service decides about regions.
        self._unknown_targets = [
            one for one in self._targets if locales.get_language(one) not in self._sources
        ]
        self._known_targets = known
        return {}

    def find_columns(self, names: Sequence[str], taken: Collection[str]) -> Mapping[str, str]:
        """Return the columns with texts by people and their states, and the column `locales`.

        InvalidRows for a target that neither the service nor people translate into.
        """
        given = self._given_locales or ()
        found, by_target = {"locales": "locales", "form": "form"}, {}
        self._column_tags = {tag for name in names if name not in taken and (tag := read_tag(name))}
        if self._given_locales is not False:
            others = [one for one in self._targets if one not in given]
            by_target = match_targets(names, others, taken, field="table")
            found["state"] = "state"
            for target, name in by_target.items():
                found |= {f"translations.{target}": name, f"state.{target}": f"state.{name}"}
        if both := [name for name in names if name in given]:
            self._notes.append(f"columns of the table that translations= replaces: {', '.join(both)}")
        self._has_people = self._has_people or bool(by_target)
        covered = {*by_target, *given, *map(read_tag, taken)}
        unknown = [one for one in self._unknown_targets if one not in covered]
        refuse_targets(unknown, self._known_targets, _UNKNOWN_TARGET_FAULT)
        return {name: column for name, column in found.items() if column in names and column not in taken}

    def finish_table(self) -> list[str]:
        """Return notes about the translations by people and the rows that are not made."""
        notes = [*self._notes, *(self.translations.describe() if self.translations else [])]
        if self._left_out:
            reason = "not made, because the target lacks this plural form, or locales leaves the target out"
            notes.append(f"{format_count(self._left_out, 'row')}: {reason}")
        lacking = {one: _count_forms(one) for one in self._targets if not self._has_column(one)}
        return notes + [
            f"{target} has {forms} plural forms, and the table only {self._form_count}: give read_strings a "
            f"file in {target}, too"
            for target, forms in lacking.items()
            if forms > self._form_count > 0
        ]

    def expand(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the row once for each target, or for each target in the column `locales`.

        A plural form is made for each target that has it. For a target without a column in the table, the
        usual number of plural forms of its language counts.
        """
        try:
            allowed = read_allowed_locales(values.get("locales"))
        except ValueError as error:
            allowed, values = None, {**values, "locales_fault": str(error)}
        form = values.get("form")
        form = None if form is None else int(form)
        self._form_count = max(self._form_count, 0 if form is None else form + 1)
        for target in values["targets"]:
            if form is not None and not self._has_column(target):
                is_made = form < _count_forms(target)
            else:
                is_made = allowed is None or any(locales.is_within(target, one) for one in allowed)
            if is_made:
                yield f"/{target}", {**values, "target": target}
            else:
                self._left_out += 1

    def _has_column(self, target: str) -> bool:
        """Return whether the table has a column of a target, so that its files state the plural forms."""
        return any(locales.is_within(target, tag) for tag in self._column_tags)

    def check(self, values: Mapping[str, Any]) -> Request | RowWithoutCall | list[FieldProblem]:
        """Return the request or the result for the text and target of a row, or all problems of the row."""
        text, target = values.get("text"), values["target"]
        if (fault := values.get("locales_fault")) is not None:
            return [FieldProblem("locales", fault, "", "a list of locales, or null for all targets")]
        if text is not None and not isinstance(text, str):
            return self._check_text(values)
        is_blank = not (text or "").strip()
        if values.get("state") == NOT_TRANSLATABLE and not is_blank:
            ours = {"locale": target, "text": text, "translated_text": text, "origin": "source"}
            return RowWithoutCall(DONE, f"left in the source language (state {NOT_TRANSLATABLE!r})", ours)
        human = self._find_human_text(values)
        if human is not None and is_usable_state(human.state):
            return self._use_human_text(human, text or "", values)
        if is_blank and self._has_people:
            return RowWithoutCall(SKIPPED, "there is no text to translate", {"locale": target})
        if target in self._unknown_targets:
            fault = f"{_UNKNOWN_TARGET_FAULT}, and the row has no usable translation by people"
            return [FieldProblem("targets", fault, target, format_locales(self._known_targets))]
        request = self._check_text(values)
        is_known = human is not None or get_human_text(self._get_known(values)) is not None
        if not isinstance(request, Request) or not is_known:
            return request
        reason = f"has the state {human.state!r}" if human is not None else "is no longer given"
        return replace(request, note=f"translated by the engine, because the text by people {reason}")

    def _get_known(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a row in the run's table so far. They may be empty."""
        earlier = self.earlier.find(values["row_id"])
        return {} if earlier is None else earlier.row_values

    def _find_human_text(self, values: Mapping[str, Any]) -> HumanText | None:
        """Return the text by people for a row, or None. A blank text is none."""
        target, row_id = values["target"], values["row_id"]
        given = self._given_locales
        if given is False:
            return None
        if target not in given:
            text = str(values.get(f"translations.{target}", ""))
            state = values.get(f"state.{target}") or values.get("state")
            return HumanText(text, state) if text.strip() else None
        if self.translations is not None:
            return self.translations.find(row_id.removesuffix(f"/{target}"), target)
        # A resumed run has no other source of these texts than its own table.
        remembered = get_human_text(self._get_known(values))
        return None if remembered is None else HumanText(remembered)

    def _use_human_text(self, human: HumanText, text: str, values: Mapping[str, Any]) -> RowWithoutCall:
        """Return the result of a row with a usable text by people."""
        known = self._get_known(values) if human.source_text is None else {}
        state, sha256 = judge_source(human, text, known)
        ours = {"locale": values["target"], "text": text, "origin": "human"}
        ours |= {"translation_state": state, "source_sha256": sha256}
        if state == STALE:
            return RowWithoutCall(SKIPPED, STALE_REASON, ours | {"stale_text": human.text})
        reason = "translated by people"
        if state == UNCHECKED:
            reason += " (unchecked, because it is not known which source text they translated)"
        return RowWithoutCall(DONE, reason, ours | {"translated_text": human.text})

    def _check_text(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request for the text and target of a row, or all problems of the row."""
        text, target = values.get("text"), values["target"]
        source, problems = self._check_source(values.get("source_locale"), target)
        if text is None:
            problems.append(FieldProblem("text", "is missing", "", "text"))
        elif isinstance(text, str) and not any(one.isprintable() and not one.isspace() for one in text):
            problems.append(FieldProblem("text", "is empty", shorten_value(text), "more than whitespace"))
        else:
            # The document's field is a list of texts, so name the column `text` in problems.
            found = check(TranslateRequest, {"target_language": target, "texts": [text]})
            problems += [replace(one, field="text") for one in found.problems]
        if problems or not isinstance(text, str):
            return problems
        if target not in self._glossaries:  # all rows of a run have the same glossary
            self._glossaries[target] = Glossary(values.get("glossary") or (), target)
        spans = placeholders.find_placeholders(text)
        terms = self._glossaries[target].find_terms(text, spans)
        sent = placeholders.replace_spans(text, [*spans, *terms]).sent
        if len(sent) > self._most_characters:
            fault = f"is too long ({len(sent):,} characters as it is sent)"
            return [FieldProblem("text", fault, "", f"at most {self._most_characters:,} characters")]
        kept = [(span.start, span.end, span.replacement) for span in terms]
        fields = asdict(_Text(text, sent, target, source, kept))
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        price = compute_translation_millicredits([sent])
        ours = {"locale": target, "origin": "engine"}
        return Request(body, body, price, len(sent), {"locale": target}, varies=False, row_values=ours)

    def _check_source(self, given: Any, target: str) -> tuple[str | None, list[FieldProblem]]:
        """Return the source language of a row, or None if there is none, and its problems."""
        if given is None:
            return None, []
        try:
            source = locales.normalise(given)
        except (ValueError, AttributeError):
            allowed = "a code or locale, such as en-US"
            return None, [FieldProblem("source_locale", "is not a language", shorten_value(given), allowed)]
        language, into = map(locales.get_language, (source, target))
        known = (self._sources or {}).get(into, [])
        if source == target:
            fault, allowed = f"is {target}, the same as the target", "another language than the target"
        elif self._sources is None or language == into or language in map(locales.get_language, known):
            return source, []
        else:
            fault, allowed = f"is not translated into {target} by this service", format_locales(known)
        return source, [FieldProblem("source_locale", fault, source, allowed)]

    def pack(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Yield packs, which are calls for several rows. All texts of a pack have the same languages.

        Each pack has as many texts and characters as the service accepts in one call. A text that alone is
        too long for a call gets its own call.
        """
        open_packs: dict[tuple[str, str | None], list[Request]] = {}
        for request in requests:
            languages = self._get_languages(request)
            rows = open_packs.setdefault(languages, [])
            characters = sum(row.characters for row in rows) + request.characters
            if rows and characters > self._most_characters:
                yield pack_rows(open_packs.pop(languages))
                rows = open_packs[languages] = []
            rows.append(request)
            if len(rows) >= self._most_texts:
                yield pack_rows(open_packs.pop(languages))
        yield from map(pack_rows, open_packs.values())

    def _get_languages(self, request: Request) -> tuple[str, str | None]:
        """Return the target of a row and its source language as sent, or None. Rows of a pack share both."""
        text = _Text.from_request(request)
        return text.target, text.source_locale if self._sends_source else None

    def call(self, request: Request, **call_options: Any) -> PreparedCall[TranslateRequest]:
        """Return the call of a request, which may be a pack."""
        target, source = self._get_languages(request.rows[0])
        # Do not check again, because `check` has checked each text, and `pack` the number of texts.
        unchecked = TranslateRequest.model_construct(
            target_language=target,
            texts=[_Text.from_request(row).sent for row in request.rows],
            source_language=source,
        )
        return PreparedCall("translate", unchecked, encode_request(unchecked), **call_options)

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the arguments in which two stored bodies differ. Leave out `sent`, which is no argument."""
        return tuple(name for name in super().differences(before, after) if name != "sent")

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return a record for the translation of each text of a call, or the error of the translation."""
        call, raw = answer.data
        texts, price = call.request.texts, convert_to_credits(request.price)
        decoded = decode_translate(raw.body, texts)
        routes, of_texts, of_all = assign_warnings(
            collect_warnings(raw.headers, clean=raw.redactor.clean), len(texts)
        )
        notes = list(decoded.notes)
        if decoded.credits_used is not None and decoded.credits_used != price:
            reported = format_count(decoded.credits_used, "credit")
            notes.append(f"the service reports a cost of {reported}, expected {price:g}")
        found: list[Record | SpeechframeError] = []
        costs: list[int | None] = [None for _ in request.rows]
        if decoded.credits_used is not None:
            costs = [*share_cost([row.price for row in request.rows], decoded.credits_used)]
        for row, translation, route, text_warnings, cost in zip(
            request.rows, decoded.texts, routes, of_texts, costs, strict=True
        ):
            if isinstance(translation, BadAnswer):
                found.append(translation)
                continue
            text, remarks = _Text.from_request(row), [*text_warnings, *of_all]
            terms = [Span(*term, is_term=True) for term in text.glossary]
            protected = placeholders.replace_spans(
                text.text, [*placeholders.find_placeholders(text.text), *terms]
            )
            restored = protected.restore(translation)
            # Do not assume a direct route if there is a warning. The text may have been returned unchanged.
            is_direct = text.source_locale is not None and not remarks
            values = {
                "text": text.text,
                "translated_text": restored.text,
                "route": route or (f"{text.source_locale}>{text.target}" if is_direct else None),
                "length_ratio": len(restored.text) / len(text.text),
                "placeholders_ok": restored.placeholders_ok,
                "glossary_ok": restored.terms_ok,
            }
            warnings = [*remarks, *notes, *restored.warnings]
            found.append(
                _TranslationRecord(
                    values,
                    warnings=warnings,
                    millicredits=cost,
                    basis="computed" if cost is None else "reported",
                    stated_locale=decoded.target,
                    is_explained=bool(remarks),
                    may_be_same=bool(text_warnings) or not protected.has_words() or _is_same_language(text),
                )
            )
        return found

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return findings if a translation is empty, unchanged, of odd length or in another language."""
        del learned
        if not isinstance(record, _TranslationRecord):
            return []
        text, translated = record.values["text"], record.values["translated_text"]
        if not translated.strip():
            return [Finding("empty", f"the translation of {len(text):,} characters is empty")]
        findings = []
        stated, target = record.stated_locale, request.facts["locale"]
        if not record.is_explained and stated is not None and locales.is_certainly_different(stated, target):
            message = f"the answer states the language {stated}, requested {target}"
            findings.append(Finding("target", message))
        if not record.may_be_same and text.casefold().split() == translated.casefold().split():
            message = "the translation equals the text; list words that must stay in a glossary"
            findings.append(Finding("untranslated", message))
        if (
            len(text) >= _MIN_CHECKED_CHARACTERS
            and not _MIN_LENGTH_RATIO <= len(translated) / len(text) <= _MAX_LENGTH_RATIO
        ):
            message = f"the text has {len(text):,} characters, its translation {len(translated):,}"
            findings.append(Finding("length", message))
        return findings


async def translate(
    table: Any,
    *,
    text: str | Column | Any = "text",
    targets: list[str],
    source_locale: str | Column | Any = None,
    glossary: str | PathLike[str] | Any = None,
    translations: str | PathLike[str] | Any = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run` with every row of `table` in every language of `targets`, one row each.

    A row of the run is a row of the table with a target. Its id is ``<id>/<locale>``, such as
    ``greeting/pt-BR``. Its columns are those of the table, and ``locale``, ``translated_text``, ``route``
    (all languages from the source to the target), ``length_ratio``, ``placeholders_ok``, ``glossary_ok``,
    ``credits`` and ``status``. ``origin`` is ``engine``, ``human`` or ``source`` (a row with the ``state``
    ``no`` keeps its text). A column ``locales`` of the table limits its rows to some of the targets.

    Translations by people are used as they are and cost nothing. The service fills the gaps: empty texts, and
    texts with a ``state`` such as ``fuzzy`` or ``needs-translation``. If the source text has changed since it
    was translated, ``translation_state`` is ``stale``. Such a row is ``skipped``, and the old translation is
    in ``stale_text``. The state ``unchecked`` means that nothing shows which text was translated.

    A call contains many texts, and equal texts are sent once. Calling :func:`translate` again with the same
    rows and parameters costs nothing. After a crash, the same call makes only the missing rows. A run can be
    used as a table, so ``generate(run, text="translated_text", locale=col("locale"), ...)`` speaks the
    translations.

    Parameters
    ----------
    table
        A pandas, polars or Dask frame, Arrow table, dataset (of Arrow, Ray or Hugging Face), list of strings,
        another run, or the path of a CSV, TSV, JSONL, Parquet, XLSX or text file, or of a folder of Parquet.
    text
        The column with the text, or a Series or list of texts. Placeholders of the common frameworks are not
        translated. Examples are ``{name}``, ``%1$s``, ``:name``, ``{% if x %}``, tags, URLs, e-mail
        addresses and whole ICU messages. Each is sent, and billed, as a token of a few characters.
        ``placeholders_ok`` is True if each placeholder and each number is in the translation, and everything
        else that looks like code is unchanged. ``placeholders_ok`` is False if an ICU message has branches
        with words, because branches are not translated. A warning lists these branches.
    targets
        Languages to translate into, as codes or locales in any spelling: ``["fr-FR", "pt_BR"]``.
    source_locale
        The language of the texts, if the service requires or cannot detect the language; ``col("x")`` takes
        the language from a column, and a list has a language for each row.
    glossary
        Fixed translations of terms, as a frame, list of dicts or file with the columns ``source``, ``locale``
        (empty for every target) and ``target``, or as a dict of source to target. A term matches only whole
        words, and the longest match counts. ``glossary_ok`` is True if each term of a row is in its
        translation, and null if the row has no term. A name that must stay is a term that is its own
        translation: ``{"Berlin":
        "Berlin"}``. Other words that come back unchanged make a row ``suspect``.
    translations
        Translations by people: a frame or file with the column ``id`` and a column for each locale, or with
        ``id``, ``locale`` and ``translated_text`` (or ``text``). ``source_text`` (the text that was
        translated) and ``state`` (or ``state.<locale>``) are optional. For other targets, and if None
        (default), columns of the table that are named like a target count. False ignores these columns.
        Without ``source_text``, changes are seen only if the run has the same ``run_dir`` as before.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``max_concurrency``, ``max_credits``, ``cache``,
        ``truth_checks``, ``on_invalid``, ``wait``, ``dry_run`` and more. Translations cannot have further
        takes.

    Raises
    ------
    InvalidRows
        If rows or languages cannot be sent. ``problems`` lists all problems, and nothing was spent.
    RunMismatch, RunLocked, StoreError
        If the folder cannot be used for this run.
    SettingsError, ServiceError, ConnectionFailed
        If an option or a limit in the settings forbids the run, or the service cannot be used at all. Later
        errors are columns of their rows.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.translate(["Good morning, {name}."], targets=["fr-FR", "pt-BR"])  # doctest: +SKIP
    >>> run.to_pandas()[["locale", "translated_text", "route"]]  # doctest: +SKIP
    """
    locales_of_run = read_targets(targets)
    people = read_translations(translations, locales_of_run, options.get("id"))
    arguments = {
        "text": text,
        "targets": locales_of_run,
        "source_locale": source_locale,
        "glossary": read_glossary(glossary),
    }
    # run.json has only the locales of the translations. Their texts are in the run's table.
    if translations is not None:
        arguments["translations"] = people.locales if people is not None else False
    backend = TranslateBackend(options["service"], arguments)
    backend.translations = people
    return await make_run(backend, table, arguments, options)
