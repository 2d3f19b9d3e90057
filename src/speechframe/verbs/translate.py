"""The verb `translate`: rows of text in, each in every language asked for out (section 2.6)."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Unpack

import pyarrow as pa

from speechframe.batch.backend import MAKERS, Answer, Finding, Opened, Record, Request, packed
from speechframe.batch.live import Run
from speechframe.batch.options import RunOptions
from speechframe.batch.run import make
from speechframe.client import Call
from speechframe.errors import BadAnswer, InvalidRows, SpeechframeError
from speechframe.settings import Settings
from speechframe.spec import locales
from speechframe.spec.billing import to_credits, translate_millicredits
from speechframe.spec.check import FieldProblem, check, shown
from speechframe.spec.chosen import MAX_TEXTS_PER_CALL, MAX_TRANSLATE_CHARACTERS
from speechframe.spec.translate import TranslateRequest
from speechframe.store.schema import columns
from speechframe.tables.columns import Column, problem
from speechframe.verbs import placeholders
from speechframe.verbs.glossary import Glossary, read_glossary
from speechframe.verbs.packs import Said, packs, read_answer
from speechframe.verbs.placeholders import Span
from speechframe.verbs.service import ServiceBackend
from speechframe.wire.translate import encode_translate

__all__ = ["TranslateBackend", "translate"]

COLUMNS = columns(
    text=pa.string(),
    translated_text=pa.string(),
    route=pa.string(),
    length_ratio=pa.float64(),
    placeholders_ok=pa.bool_(),
    glossary_ok=pa.bool_(),
)

_TARGET = "target"
"""What a row's own target is called, beside the argument ``targets`` of all rows."""
_SHOWN_LANGUAGES = 40

# What a translation must be to be true. Only what no translator means is doubted.
_LEAST_CHARACTERS = 20
"""Of a text whose length says something: "OK" may become a word of twelve letters."""
_SHORTEST, _LONGEST = 0.08, 8.0
"""Characters of a translation for each of the text: Chinese needs a quarter of those of English."""
_SAME_WORDS, _SAME_CHARACTERS = 6, 30
"""Names, addresses and titles up to this length may well be the same in two languages."""
_REPEATS = 6
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class _Translation(Record):
    """A record with what only :meth:`TranslateBackend.judge` wants to know.

    Parameters
    ----------
    said_locale
        The language that the answer says it is in.
    is_explained
        Whether the service itself has something to say of the text: it has no French of that region.
    """

    said_locale: str | None = None
    is_explained: bool = False


@dataclass(frozen=True, slots=True)
class _Text:
    """One text with one target, as a request's body keeps it.

    Parameters
    ----------
    text
        As it stands in the table.
    sent
        With tokens for its placeholders and terms.
    target, source_locale
        Locales; the source may not be known.
    glossary
        Start, end and translation of each term in the text.
    """

    text: str
    sent: str
    target: str
    source_locale: str | None
    glossary: list[tuple[int, int, str]]

    @classmethod
    def of(cls, request: Request) -> "_Text":
        return cls(**json.loads(request.body))

    def body(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


class TranslateBackend(ServiceBackend):
    """How a text becomes a part of a translation call, and its translation a row.

    Parameters
    ----------
    settings
        Where the service is.
    targets
        The locales of the run, which the service is to know.
    """

    operation = "translate"
    columns = COLUMNS
    arguments = ("text", "targets", "source_locale", "glossary")
    table_arguments = frozenset({"targets", "glossary"})
    unit = "text"

    def __init__(self, settings: Settings, targets: Sequence[str] = ()) -> None:
        super().__init__(settings)
        self._targets = targets
        self._languages = Languages({})
        self._most_texts, self._most_characters = MAX_TEXTS_PER_CALL, MAX_TRANSLATE_CHARACTERS
        self._sends_source = False
        self._glossaries: dict[str, Glossary] = {}

    async def open(self) -> Opened:
        """Return what the service offers; there are no other takes of a translation.

        Raises
        ------
        InvalidRows
            For a target that the service does not know.
        """
        return replace(await super().open(), takes=False)

    async def look_up(self) -> Mapping[str, Any]:
        """Read what the page of limits says of translations."""
        self._languages = Languages(self.limits)
        self._most_texts = _limit(self.limits, "max_texts_per_call", MAX_TEXTS_PER_CALL)
        self._most_characters = _limit(self.limits, "max_translate_characters", MAX_TRANSLATE_CHARACTERS)
        self._sends_source = self.limits.get("source_language") is True
        found = [one for target in self._targets for one in self._languages.of_target(target)]
        if found:
            raise InvalidRows([problem(p.field, p.problem, value=p.value, allowed=p.allowed) for p in found])
        return {}

    def expand(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the row once for each target."""
        for target in values["targets"]:
            yield f"/{target}", {**values, _TARGET: target}

    def check(self, values: Mapping[str, Any]) -> Request | list[FieldProblem]:
        """Return the request for one text and target, or everything that is wrong with it."""
        text, target = values.get("text"), values[_TARGET]
        source, problems = self._source_of(values.get("source_locale"), target)
        problems = [*_problems_of(text, target), *problems]
        if problems or not isinstance(text, str):
            return problems
        spans = placeholders.find(text)
        terms = self._glossary(values.get("glossary") or (), target).find(text, spans)
        sent = placeholders.protect(text, [*spans, *terms]).sent
        if len(sent) > self._most_characters:
            words = f"is too long ({len(sent):,} characters as it is sent)"
            return [FieldProblem("text", words, "", f"at most {self._most_characters:,} characters")]
        kept = [(span.start, span.end, span.replacement) for span in terms]
        body = _Text(text, sent, target, source, kept).body()
        price = translate_millicredits([sent])
        return Request(body, body, price, len(sent), {"locale": target}, varies=False)

    def _source_of(self, source: Any, target: str) -> tuple[str | None, list[FieldProblem]]:
        if source is None:
            return None, []
        try:
            normal = locales.normalise(source)
        except (ValueError, AttributeError):
            allowed = "a code or locale, such as en-US"
            return None, [FieldProblem("source_locale", "is no language", shown(source), allowed)]
        return normal, self._languages.of_pair(normal, target)

    def _glossary(self, lines: Any, target: str) -> Glossary:
        # A run has one glossary: it is an argument of the whole table.
        if target not in self._glossaries:
            self._glossaries[target] = Glossary(lines, target)
        return self._glossaries[target]

    def pack(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Yield calls of as many texts of one language as the service takes at a time."""
        gathered = packs(
            requests, self._kind, most_texts=self._most_texts, most_characters=self._most_characters
        )
        for parts in gathered:
            # In the order of their keys: the same texts are the same call again, wherever they came from.
            yield packed(sorted(parts, key=lambda part: part.key), b"") if len(parts) > 1 else parts[0]

    def _kind(self, request: Request) -> tuple[str, str | None]:
        text = _Text.of(request)
        return text.target, text.source_locale if self._sends_source else None

    def call(self, request: Request) -> Call[TranslateRequest]:
        """Return the client's call of one text or of a pack."""
        target, source = self._kind(request.rows[0])
        # Each text was checked by itself, and the service says how many a call takes.
        asked = TranslateRequest.model_construct(
            target_language=target,
            texts=[_Text.of(row).sent for row in request.rows],
            source_language=source,
        )
        return Call("translate", asked, encode_translate(asked))

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two bodies differ; tokens follow from the others."""
        return tuple(name for name in super().differences(before, after) if name != "sent")

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return the translation of each text of a pack, or what is wrong with its entry of the answer.

        Raises
        ------
        BadAnswer
            When the answer has no usable translation at all.
        """
        call, raw = answer.data
        said = read_answer(raw.body, raw.headers, call.request.texts, credits=to_credits(request.price))
        return [_record(_Text.of(part), one) for part, one in zip(request.rows, said, strict=True)]

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return why a translation cannot be true; nothing as a rule."""
        del learned
        if not isinstance(record, _Translation):
            return []
        return list(_findings(record, request.facts["locale"]))


def _record(text: _Text, said: Said) -> Record | SpeechframeError:
    if isinstance(said.translation, BadAnswer):
        return said.translation
    terms = [Span(*term, is_term=True) for term in text.glossary]
    protected = placeholders.protect(text.text, [*placeholders.find(text.text), *terms])
    restored = protected.restore(said.translation)
    # A text that the service has something to say of may have been given back as it was.
    known_route = f"{text.source_locale}>{text.target}" if text.source_locale and not said.told else None
    return _Translation(
        {
            "text": text.text,
            "translated_text": restored.text,
            "route": said.route or known_route,
            "length_ratio": len(restored.text) / len(text.text),
            "placeholders_ok": restored.placeholders_ok,
            "glossary_ok": restored.terms_ok,
        },
        warnings=[*said.told, *said.noted, *restored.warnings],
        said_locale=said.target,
        is_explained=bool(said.told),
    )


def _findings(record: _Translation, target: str) -> Iterator[Finding]:
    text, translated = record.values["text"], record.values["translated_text"]
    said, is_explained = record.said_locale, record.is_explained
    if said is not None and not is_explained and locales.is_another(said, target):
        yield Finding("target", f"the answer says it is in {said}, {target} was asked for")
    if not translated.strip():
        yield Finding("empty", f"the text has {len(text):,} characters, its translation none")
        return
    words = _WORD.findall(text)
    is_long = len(words) > _SAME_WORDS or len(text) > _SAME_CHARACTERS
    if is_long and not is_explained and _folded(text) == _folded(translated):
        yield Finding("untranslated", f"the translation is the text itself, {len(words)} words long")
    if len(text) >= _LEAST_CHARACTERS and not _SHORTEST <= len(translated) / len(text) <= _LONGEST:
        yield Finding("length", f"the text has {len(text):,} characters, its translation {len(translated):,}")
    repeated = _longest_repeat(translated)
    if repeated >= _REPEATS > _longest_repeat(text):
        yield Finding("repeating", f"the translation has the same word {repeated} times in a row")


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _longest_repeat(text: str) -> int:
    longest = repeats = 0
    before = None
    for found in _WORD.finditer(text):
        word = found[0].casefold()
        repeats = repeats + 1 if word == before else 1
        longest, before = max(longest, repeats), word
    return longest


def _problems_of(text: Any, target: str) -> list[FieldProblem]:
    """Return what is wrong with a text; the document speaks of a list of texts."""
    if isinstance(text, str) and not any(one.isprintable() and not one.isspace() for one in text):
        return [FieldProblem("text", "is empty", shown(text), "more than whitespace")]
    fields = {"target_language": target, "texts": None if text is None else [text]}
    return [
        FieldProblem("text", p.problem, p.value, "text" if p.problem == "is missing" else p.allowed)
        for p in check(TranslateRequest, fields).problems
    ]


def _limit(limits: Mapping[str, Any], name: str, usual: int) -> int:
    value = limits.get(name)
    return value if type(value) is int and value > 0 else usual


class Languages:
    """What a service says it translates, on its page of limits; one that says nothing may know any language.

    Parameters
    ----------
    limits
        The page.

    Examples
    --------
    >>> languages = Languages({"translation": {"pairs": [{"source": "en", "target": "pt-BR"}]}})
    >>> languages.of_target("pt-PT"), languages.of_target("fr")[0].allowed
    ([], 'pt-BR')
    >>> languages.of_pair("de", "pt-BR")[0].problem
    'is not translated into pt-BR by this service'
    """

    def __init__(self, limits: Mapping[str, Any]) -> None:
        said = limits.get("translation")
        listed = said.get("pairs") if isinstance(said, Mapping) else None
        self._is_told = isinstance(listed, list)
        self._pairs = [pair for pair in map(_pair, listed) if pair] if isinstance(listed, list) else []
        self._languages = {tuple(map(locales.language_of, pair)) for pair in self._pairs}

    def of_target(self, target: str) -> list[FieldProblem]:
        """Return what is wrong with a target; another region of a known language is up to the service."""
        if not self._is_told or any(known == locales.language_of(target) for _, known in self._languages):
            return []
        known = [locale for _, locale in self._pairs]
        allowed = _listed([*locales.nearest(target, known), *known])
        return [FieldProblem("targets", "is no language this service translates into", target, allowed)]

    def of_pair(self, source: str, target: str) -> list[FieldProblem]:
        """Return what is wrong with translating from one language into another."""
        if source == target:
            words = f"is {target}, the language that is asked for"
            return [FieldProblem("source_locale", words, source, "another language than the target")]
        pair = locales.language_of(source), locales.language_of(target)
        if not self._is_told or pair in self._languages or pair[0] == pair[1]:
            return []
        known = _listed([one for one, other in self._pairs if locales.language_of(other) == pair[1]])
        words = f"is not translated into {target} by this service"
        return [FieldProblem("source_locale", words, source, known)]


def _pair(said: Any) -> tuple[str, str] | None:
    """Return a pair of languages; None for anything else that a page may hold."""
    try:
        return locales.normalise(said["source"]), locales.normalise(said["target"])
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def _listed(tags: Sequence[str]) -> str:
    unique = list(dict.fromkeys(tags))
    more = f" and {len(unique) - _SHOWN_LANGUAGES} more" if len(unique) > _SHOWN_LANGUAGES else ""
    return (
        ", ".join(unique[:_SHOWN_LANGUAGES]) + more or "no language at all: the service has no translations"
    )


def read_targets(given: Any) -> list[str]:
    """Return the locales to translate into in the house spelling, each once.

    Raises
    ------
    InvalidRows
        When there is none, or one is no language.

    Examples
    --------
    >>> read_targets(["fr_fr", "pt-BR", "FR-fr"]), read_targets("de")
    (['fr-FR', 'pt-BR'], ['de'])
    """
    tags = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    found: list[str] = []
    problems = []
    for tag in tags:
        try:
            found.append(locales.normalise(tag))
        except (ValueError, AttributeError):
            allowed = "a code or locale, such as fr-FR"
            problems.append(problem("targets", "is no language", value=tag, allowed=allowed))
    if not tags:
        problems.append(problem("targets", "is empty", allowed="at least one language, such as fr-FR"))
    if problems:
        raise InvalidRows(problems)
    return list(dict.fromkeys(found))


MAKERS["translate"] = lambda service, arguments: TranslateBackend(service, arguments.get("targets", ()))


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

    A row of the run is a row of the table and a target: its id is ``<id>/<locale>``, such as
    ``greeting/pt-BR``. Its columns are those of the table, ``locale``, ``translated_text``, ``route`` (the
    languages it went through), ``length_ratio``, ``placeholders_ok``, ``glossary_ok``, ``credits`` and
    ``status``.

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
        ``%s``, an ICU message, a tag, a URL or an e-mail address is not translated: it is sent, and billed,
        as a token of a few characters. ``placeholders_ok`` is False where one was lost, where a number is
        missing in the translation, or where the branches of an ICU message contain words, which stay as they
        are: a warning lists these.
    targets
        Languages to translate into, as codes or locales in any spelling: ``["fr-FR", "pt_BR"]``.
    source_locale
        The language of the texts, where the service asks for it or cannot tell; ``col("x")`` takes it
        from a column, a list gives one a row.
    glossary
        How terms are to be translated: a frame, list of dicts or file with the columns ``source``,
        ``locale`` (empty: every target) and ``target``, or a dict of source to target. Terms are whole
        words, the longest counts; ``glossary_ok`` says whether all of a row are in its translation, and is
        null where there is none.
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
    found = read_targets(targets)
    arguments = {
        "text": text,
        "targets": found,
        "source_locale": source_locale,
        "glossary": read_glossary(glossary),
    }
    return await make(TranslateBackend(options["service"], found), table, arguments, options)
