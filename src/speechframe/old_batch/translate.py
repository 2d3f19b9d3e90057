"""The verb `translate`: rows of text in, each in every language asked for out (section 2.6)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from types import MappingProxyType
from typing import Any, Self, Unpack

from speechframe.errors import InvalidRows
from speechframe.old_batch import placeholders
from speechframe.old_batch.columns import Column, Source
from speechframe.old_batch.drive import drive
from speechframe.old_batch.glossary import Glossary, read_glossary
from speechframe.old_batch.operation import Checked, Context, Planned, Service, Textual, Todo, request_key
from speechframe.old_batch.options import RunOptions
from speechframe.old_batch.outcome import DONE
from speechframe.old_batch.packs import Packer, halves
from speechframe.old_batch.placeholders import Protected
from speechframe.old_batch.run import Run
from speechframe.old_batch.table import problem
from speechframe.old_batch.translate_languages import SOURCE_FIELD, TARGET_FIELD, Languages, targets_of
from speechframe.old_batch.translate_truth import TranslationTruth
from speechframe.old_batch.verbs import verb
from speechframe.old_client import Call, Translated
from speechframe.old_client.translate import call_of, takes_source
from speechframe.old_store import Record
from speechframe.spec import locales
from speechframe.spec.billing import translate_millicredits
from speechframe.spec.check import FieldProblem, check
from speechframe.spec.chosen import MAX_TEXTS_PER_CALL, MAX_TRANSLATE_CHARACTERS
from speechframe.spec.limits import Pool
from speechframe.spec.translate import TranslateRequest

_TEXTS_FIELD = TranslateRequest.wire_names()["texts"]

# A glossary never leaves: it is ours.
ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "text": _TEXTS_FIELD,
        "targets": TARGET_FIELD,
        "source_locale": SOURCE_FIELD,
        "glossary": "glossary",
    }
)
"""Argument of :func:`translate` to the field it fills."""

_SHOWN = 40


@dataclass
class TranslateOperation(Textual):
    """How a row becomes a text of a translation call, and a translation a record.

    Parameters
    ----------
    service
        What is known of the service.
    """

    service: Service
    name: str = "translate"
    pool: str = Pool.OTHER
    arguments: Mapping[str, str] = field(default_factory=lambda: ARGUMENTS)
    data_arguments: frozenset[str] = frozenset({"text"})
    constant_arguments: frozenset[str] = frozenset({"targets", "glossary"})
    packs: bool = True
    takes: bool = False
    unit: str = "text"

    def __post_init__(self) -> None:
        limits = self.service.limits
        self._most_texts = _offered(limits, "max_texts_per_call", MAX_TEXTS_PER_CALL)
        self._most_characters = _offered(limits, "max_translate_characters", MAX_TRANSLATE_CHARACTERS)
        self._languages = Languages(limits)
        self._sends_source = takes_source(limits)
        self._lines: Any = None
        self._glossaries: dict[str, Glossary] = {}

    @classmethod
    def on(cls, service: Service) -> Self:
        """Return the verb as it is with a service."""
        return cls(service)

    @staticmethod
    def looker() -> TranslationTruth:
        """Return what doubts translations."""
        return TranslationTruth()

    def spread(self, sources: Mapping[str, Source]) -> Sequence[str]:
        """Return the languages that each row is translated into.

        Raises
        ------
        InvalidRows
            For one that the service cannot translate into.
        """
        targets = targets_of(sources["targets"].constant if "targets" in sources else None)
        found = [p for target in targets for p in self._languages.of_target(target)]
        if found:
            raise InvalidRows(
                [problem("targets", p.problem, value=p.value, allowed=p.allowed) for p in found]
            )
        return targets

    # -- a row to its call ----------------------------------------------------------------

    def check(self, values: Mapping[str, Any], take: int) -> Checked:
        """Return the call of one row, or everything that is wrong with it."""
        del take
        text, target = values.get("text"), str(values["target"])
        checked = check(
            TranslateRequest, {TARGET_FIELD: target, _TEXTS_FIELD: None if text is None else [text]}
        )
        problems = [_of_text(p, text) for p in checked.problems]
        source, found = self._source(values.get("source_locale"), target)
        problems += found
        if problems or not isinstance(text, str):
            return Checked(None, tuple(problems))
        kept = self._protected(text, target, values.get("glossary"))
        if len(kept.sent) > self._most_characters:
            words = f"is too long ({len(kept.sent):,} characters as it is sent)"
            allowed = f"at most {self._most_characters:,} characters"
            return Checked(None, (FieldProblem(_TEXTS_FIELD, words, "", allowed),))
        return self._plan(text, kept, target, source)

    def _source(self, source: Any, target: str) -> tuple[str | None, Sequence[FieldProblem]]:
        if source is None:
            return None, ()
        try:
            normal = locales.normalise(source)
        except (ValueError, AttributeError):
            words = f"{str(source)[:40]!r} is no language"
            return None, (FieldProblem(SOURCE_FIELD, words, "", "a code or locale, such as en-US"),)
        return normal, self._languages.of_pair(normal, target)

    def _protected(self, text: str, target: str, lines: Any) -> Protected:
        spans = placeholders.find(text)
        if lines:
            if lines is not self._lines:
                self._lines, self._glossaries = lines, {}
            if (glossary := self._glossaries.get(target)) is None:
                glossary = self._glossaries[target] = Glossary(lines, target)
            spans += glossary.find(text, spans)
        return placeholders.protect(text, spans)

    def _plan(self, text: str, kept: Protected, target: str, source: str | None) -> Checked:
        content = {
            "text": text,
            "sent": kept.sent,
            "target": target,
            "source": source,
            "terms": [span.back for span in kept.spans if span.is_term],
            "protected": placeholders.VERSION,
        }
        body = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        key = request_key(self.name, body.encode(), model="", take=0, service=self.service.identity)
        return Checked(
            Planned(
                request_key=key,
                take=0,
                call=_call([kept.sent], target, source if self._sends_source else None),
                characters=len(kept.sent),
                millicredits=translate_millicredits([kept.sent]),
                text=text,
                locale=target,
                own=(kept, source),
            )
        )

    # -- calls to packs -----------------------------------------------------------------

    def packed(self, todos: Iterator[Todo], together: Mapping[str, tuple[str, ...]]) -> Iterator[Todo]:
        """Yield calls of as many texts of one language as the service takes at a time."""
        packer = Packer(self._most_texts, self._most_characters, _kind, _call_of)
        return packer.packed(todos, together)

    @staticmethod
    def split(planned: Planned) -> tuple[Planned, ...]:
        """Return a pack's halves; nothing for a single text."""
        return halves(planned, _call_of)

    # -- an answer to records -----------------------------------------------------------

    @staticmethod
    def records(planned: Planned, answer: Translated, context: Context) -> list[Record]:
        """Return what is kept of an answer: a record for each text."""
        answers = zip(answer.translations, answer.routes, answer.text_warnings, strict=True)
        return [
            _record(part, said, answer, context) for part, said in zip(planned.parts, answers, strict=True)
        ]


def _record(
    part: Planned, said: tuple[str, str | None, tuple[str, ...]], answer: Translated, context: Context
) -> Record:
    translated, route, warnings = said
    kept, source = part.own
    restored = kept.restore(translated)
    if route is None and source is not None and not warnings:
        route = f"{source}>{part.locale}"
    return Record(
        request_key=part.request_key,
        status=DONE,
        text=part.text,
        translated_text=restored.text,
        route=route,
        length_ratio=len(restored.text) / len(part.text),
        placeholders_ok=restored.placeholders_ok,
        glossary_ok=restored.terms_ok,
        billed_characters=part.characters,
        credits_millis=part.millicredits,
        balance_after=answer.remaining_characters,
        trace_id=answer.trace_id,
        attempts=context.attempts,
        latency_ms=answer.latency_ms,
        lane=context.lane,
        service=context.service,
        locale=part.locale,
        warnings=[*answer.warnings, *warnings],
        finished_at=datetime.now(UTC),
    )


def _of_text(found: FieldProblem, text: Any) -> FieldProblem:
    """Return a problem of the list of texts in the words of one text."""
    if found.problem.startswith("has empty texts"):
        return FieldProblem(_TEXTS_FIELD, "is empty", repr(text)[:_SHOWN], "more than whitespace")
    if found.problem == "is missing":
        return FieldProblem(_TEXTS_FIELD, "is missing", "", "text")
    return FieldProblem(found.field.partition(".")[0], found.problem, found.value, found.allowed)


def _offered(limits: Mapping[str, Any], name: str, usual: int) -> int:
    value = limits.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else usual


def _kind(planned: Planned) -> tuple[str, str | None]:
    request = planned.call.request
    return request.target_language, request.source_language


def _call_of(members: Sequence[Planned]) -> Call[TranslateRequest]:
    target, source = _kind(members[0])
    return _call([text for member in members for text in member.call.request.texts], target, source)


def _call(texts: list[str], target: str, source: str | None) -> Call[TranslateRequest]:
    # Each text was checked by itself, and how many a call takes is the service's to say.
    return call_of(
        TranslateRequest.model_construct(target_language=target, texts=texts, source_language=source)
    )


@verb(chapter="translate", operation=TranslateOperation)
async def translate(
    table: Any,
    *,
    text: str | Column | Any = "text",
    targets: list[str],
    source_locale: str | Column | Any = None,
    glossary: str | PathLike[str] | Any = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Return a :class:`Run`: every row of `table` in every language of `targets`, one row each.

    A row of the run is a row of the table and a target: its id is ``<id>:<locale>``. Its columns are those of
    the table, ``locale``, ``translated_text``, ``route`` (the languages it went through), ``length_ratio``,
    ``placeholders_ok``, ``glossary_ok``, ``credits`` and ``status``.

    Many texts go in one call, and equal ones once. Calling again with the same rows and parameters costs
    nothing; after a crash only what is missing is made. A run goes wherever a table goes:
    ``generate(run, text="translated_text", locale=col("locale"), ...)`` speaks it.

    Parameters
    ----------
    table
        A pandas or polars frame, Arrow table, Hugging Face dataset, list of strings,
        another run, or the path of a CSV, TSV, JSONL, Parquet, XLSX or text file.
    text
        The column that holds the text (or a Series or list of texts). What stands in it as ``{name}``,
        ``%s``, an ICU message, a tag, a URL or an e-mail address is not translated, and numbers are looked
        for in the translation: ``placeholders_ok`` is False where one was lost. A placeholder is billed as
        the few characters that stand for it in the call.
    targets
        Languages to translate into, as codes or locales in any spelling: ``["fr-FR", "pt_BR"]``.
    source_locale
        The language of the texts, where the service asks for it or cannot tell; ``col("x")`` takes it
        from a column, a list gives one a row.
    glossary
        How terms are to be translated: a frame, list of dicts or file with the columns ``source``,
        ``locale`` (empty: every target) and ``target``, or a dict of source to target. Terms are whole
        words, the longest counts; ``glossary_ok`` says whether all of a row came back, and is null where
        none applied.
    **options
        See :class:`RunOptions`: ``run_dir``, ``id``, ``max_concurrency``, ``max_credits``, ``cache``,
        ``truth_checks``, ``on_invalid``, ``wait``, ``dry_run`` and more. There are no other takes of a
        translation.

    Raises
    ------
    InvalidRows
        Before anything is spent, when rows or languages cannot be sent; ``problems`` has every one.
    RunMismatch, RunLocked, StoreError
        When the folder cannot take this run.
    SettingsError, ServiceError, ConnectionFailed
        When an option or a house rule forbids it, or the service cannot be used at all. Later errors are
        columns of their rows.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.translate(["Good morning, {name}."], targets=["fr-FR", "pt-BR"])  # doctest: +SKIP
    >>> run.to_pandas()[["locale", "translated_text", "route"]]  # doctest: +SKIP
    """
    arguments = {
        "text": text,
        "targets": targets_of(targets),
        "source_locale": source_locale,
        "glossary": read_glossary(glossary),
    }
    return await drive("translate", table, arguments, options)
