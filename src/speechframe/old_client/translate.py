"""A translation call: what goes into it, what comes out, and which of its texts went which way."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from speechframe.errors import InvalidRows
from speechframe.old_client.calls import Call
from speechframe.spec import locales
from speechframe.spec.billing import to_credits, translate_millicredits
from speechframe.spec.check import check
from speechframe.spec.chosen import ROUTE_WARNING, read_route
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.translate import Translations, encode_translate, longest_translation

BYTES_A_CHARACTER = 12
"""A character outside the basic plane, written as two escapes."""
_BYTES_A_TEXT = 200
_BYTES_AROUND = 1 << 16

_PLACES = re.compile(r"(.+): (texts [0-9,-]+)")


@dataclass(frozen=True, slots=True)
class Translated:
    """The answer to a translation call (section 2.6).

    Parameters
    ----------
    translations
        One a text, in the order asked.
    routes
        The languages each text went through (``en>pt-BR>es``), as far as the service or the call says.
    text_warnings
        What the service says of single texts.
    billed_characters
        Characters this call should have cost, by the rule of `spec.billing`.
    credits_used
        What the answer says it cost; None when it does not.
    remaining_characters
        The balance after the call; None when the service did not say.
    warnings
        What concerns the call as a whole: of the service, and what the client noticed itself.
    trace_id
        The service's id of the answer.
    latency_ms
        Time of the successful attempt.
    region
        The region that answered.
    attempts
        How many attempts it took; always 1 from ``send_once``.
    audio_seconds
        0: there is no audio.
    target
        The language that the answer says it is in; None when it does not.
    notes
        Those among the warnings that are the client's own.

    Examples
    --------
    >>> with SyncClient() as client:  # doctest: +SKIP
    ...     client.translate(["Good morning."], target="fr-FR").translations
    ('Bonjour.',)
    """

    translations: tuple[str, ...] = field(repr=False)
    routes: tuple[str | None, ...]
    text_warnings: tuple[tuple[str, ...], ...]
    billed_characters: int
    credits_used: float | None
    remaining_characters: int | None
    warnings: tuple[str, ...]
    trace_id: str | None
    latency_ms: float
    region: str
    attempts: int = 1
    audio_seconds: float = 0.0
    target: str | None = None
    notes: tuple[str, ...] = ()


def make_translate_call(
    texts: Sequence[str],
    *,
    target: str,
    source: str | None = None,
    idempotency_key: str | None = None,
) -> Call[TranslateRequest]:
    """Return a checked call.

    Parameters
    ----------
    texts
        One to :data:`speechframe.spec.chosen.MAX_TEXTS_PER_CALL` texts.
    target
        The language wanted: a code or locale in any spelling.
    source
        The language of the texts, for a service that takes it.
    idempotency_key
        See :class:`Call`.

    Raises
    ------
    InvalidRows
        For a value that cannot be sent; ``problems`` lists all.

    Examples
    --------
    >>> make_translate_call(["Hello"], target="fr_fr").body
    b'{"targetLanguage":"fr-FR","texts":["Hello"]}'
    """
    problems: list[dict[str, Any]] = []
    fields: dict[str, Any] = {"texts": [texts] if isinstance(texts, str) else list(texts)}
    for name, tag in (("target_language", target), ("source_language", source)):
        if tag is None:
            continue
        try:
            fields[name] = locales.normalise(tag)
        except (ValueError, AttributeError) as error:
            problems.append({"field": name, "problem": str(error), "value": str(tag)[:80], "allowed": ""})
    if not problems:
        checked = check(TranslateRequest, fields)
        problems = [
            {"field": p.field, "problem": p.problem, "value": p.value, "allowed": p.allowed}
            for p in checked.problems
        ]
        if checked.value is not None:
            return call_of(checked.value, idempotency_key=idempotency_key)
    raise InvalidRows(problems)


def call_of(request: TranslateRequest, *, idempotency_key: str | None = None) -> Call[TranslateRequest]:
    """Return the call of a request, with its body encoded."""
    return Call("translate", request, encode_translate(request), idempotency_key)


def characters_of(request: TranslateRequest) -> int:
    """Return the characters of all texts of a request together."""
    return sum(map(len, request.texts))


def largest_answer(request: TranslateRequest) -> int:
    """Return the bytes of the largest answer a call can have: each text, and a translation as long as any.

    Examples
    --------
    >>> largest_answer(TranslateRequest(target_language="fr-FR", texts=["Hello"])) < 100_000
    True
    """
    characters = sum(len(text) + longest_translation(text) for text in request.texts)
    return _BYTES_AROUND + _BYTES_A_TEXT * len(request.texts) + BYTES_A_CHARACTER * characters


def translated(
    said: Translations, request: TranslateRequest, warnings: Iterable[str], **facts: Any
) -> Translated:
    """Return an answer with every warning at the text it is about.

    Parameters
    ----------
    said, request
        What came, and what was asked for.
    warnings
        What the service says.
    **facts
        Further fields of :class:`Translated`.
    """
    source, target = request.source_language, request.target_language
    routes: list[str | None] = [None] * len(request.texts)
    of_texts: Mapping[int, list[str]] = defaultdict(list)
    of_all = []
    for warning in warnings:
        if (way := read_route(warning)) is not None:
            for place in way[1]:
                if place < len(routes):
                    routes[place] = way[0]
        elif (found := _PLACES.fullmatch(warning)) and (way := read_route(f"{ROUTE_WARNING}-; {found[2]}")):
            # The places of any other warning are written as those of a route.
            for place in way[1]:
                of_texts[place].append(found[1])
        else:
            of_all.append(warning)
    if source is not None:
        # A text that the service says something else of may have gone no way at all.
        said_way = f"{source}>{target}"
        routes = [way or (None if of_texts.get(place) else said_way) for place, way in enumerate(routes)]
    price = to_credits(translate_millicredits(request.texts))
    notes = list(said.notes)
    if said.credits_used is not None and said.credits_used != price:
        notes.append(f"the service says the call cost {said.credits_used:g} credits, not {price:g}")
    if said.target is not None and locales.is_another(said.target, target):
        notes.append(f"the answer says it is in {said.target}, not in {target}")
    return Translated(
        translations=said.texts,
        routes=tuple(routes),
        text_warnings=tuple(tuple(of_texts.get(place, ())) for place in range(len(request.texts))),
        billed_characters=characters_of(request),
        credits_used=said.credits_used,
        remaining_characters=None,
        warnings=(*of_all, *notes),
        target=said.target,
        notes=tuple(notes),
        **facts,
    )


def takes_source(limits: Mapping[str, Any]) -> bool:
    """Whether a service says on its page of limits that it takes the language of the texts."""
    return limits.get("source_language") is True


def without_source(call: Call[TranslateRequest]) -> Call[TranslateRequest]:
    """Return a call for a service that does not take the language of the texts."""
    request = call.request.model_copy(update={"source_language": None})
    return replace(call, request=request, body=encode_translate(request))
