"""Answer ``POST /v1/text/translate`` (section 2.6 of the service document).

The translations have the order of the texts. The checks have the same order as for the generate call, with
two differences, by section 7.2. If all slots of the key are taken, a call waits for a short time and then
gets 503. A body that stalls gets 400. A call is
split into slices (groups of text portions), and each worker has at most one slice of a call at a time. So a
long call does not block other calls, and it ends when its caller leaves.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from speechframe.local.engines.translation.routes import (
    Route,
    UnknownPair,
    build_region_warnings,
    is_same_language,
)
from speechframe.local.engines.translation.text import split_portions
from speechframe.local.service.books import quota
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal, build_json_response
from speechframe.local.service.http.auth import require_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields, read_body
from speechframe.local.service.http.middleware import LOG_NOTE_KEY
from speechframe.local.service.speech.paid import hold_slot, paid_call, read_mark
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.job import WorkerJob
from speechframe.local.service.workers.translation import LanguagesJob, TranslateJob
from speechframe.spec import billing, chosen, locales
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.limits import Pool
from speechframe.spec.translate import (
    CharacterCount,
    TranslateMetadata,
    TranslateRequest,
    TranslateResponse,
    Translation,
)

# JSON may write a character as two escapes of six bytes each. 64 KB are enough for the other fields.
_MAX_BODY_BYTES = 12 * chosen.MAX_TRANSLATE_CHARACTERS + (1 << 16)
_SIZE_HINT = f"the texts may have at most {chosen.MAX_TRANSLATE_CHARACTERS:,} characters together"
"""End of the message that refuses a large body."""

_SLICE_CHARACTERS = 1500
"""Largest number of characters in a slice, unless a single portion is longer."""
_SLICE_TEXTS = 50
"""Largest number of portions in a slice."""


@dataclass(frozen=True)
class TranslationCall:
    """A checked request with its target locale, its price and its warnings."""

    request: TranslateRequest
    target: str
    reservation: quota.Reservation
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class TranslationPlan:
    """The route of each text through the translation models.

    Parameters
    ----------
    routes
        The route of each text, in order. None if the text is already in the target language.
    target
        Locale of the translations.
    warnings
        Warnings about the routes, for the answer.
    """

    routes: tuple[Route | None, ...]
    target: str
    warnings: tuple[str, ...]


async def translate(request: web.Request) -> web.Response:
    """Answer a translation request."""
    state = request.app[STATE]
    key = require_key(request)
    fields = await read_body(request, max_bytes=_MAX_BODY_BYTES, hint=_SIZE_HINT)
    call = _read_call(request, state, key, fields)
    async with hold_slot(state, key, Pool.OTHER, waits=True):
        return await _answer(request, state, call)


def _read_call(request: web.Request, state: State, key: Key, fields: dict[str, object]) -> TranslationCall:
    wanted, result = check_fields(TranslateRequest, fields)
    target = _read_locale(wanted, "target_language")
    try:
        state.routes.check_target(target)
        if wanted.source_language is not None:
            source = _read_locale(wanted, "source_language")
            if not is_same_language(source, target):
                state.routes.route(source, target)
    except UnknownPair as unknown:
        raise Refusal(HttpErrorCode.INVALID_REQUEST, str(unknown)) from None
    content = json.dumps(
        wanted.model_dump(mode="json", by_alias=True, exclude_none=True),
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    price_millis = billing.compute_translation_millicredits(wanted.texts)
    mark = read_mark(request, "translate", content)
    reservation = quota.Reservation(state.owner.name, key, mark, "translate", price_millis)
    warnings = (describe_unknown_fields(result.unknown),)
    return TranslationCall(wanted, target, reservation, tuple(warning for warning in warnings if warning))


def _read_locale(wanted: TranslateRequest, field: str) -> str:
    try:
        return locales.normalise(getattr(wanted, field))
    except ValueError as error:
        message = f"{wanted.get_wire_names()[field]}: {error}"
        raise Refusal(HttpErrorCode.INVALID_REQUEST, message) from None


async def _answer(request: web.Request, state: State, call: TranslationCall) -> web.Response:
    key, price_millis = call.reservation.key, call.reservation.price_millis
    state.pools.slow.check_room(key.key_hash)
    price_text = f"the texts have {sum(map(len, call.request.texts)):,} characters"
    async with paid_call(state, call.reservation, price_text) as paid:
        plan = await _plan_routes(state, call)
        translations = await _translate_texts(state, key, call.request.texts, plan.routes)
        await paid.settle()
    request[LOG_NOTE_KEY] = (
        f"key {key.fingerprint} texts {len(translations)} characters "
        f"{price_millis // billing.MILLICREDITS_PER_CREDIT}"
    )
    answer = TranslateResponse(
        translations=[
            Translation(source_text=source, translated_text=translation)
            for source, translation in zip(call.request.texts, translations, strict=True)
        ],
        metadata=TranslateMetadata(
            target_language=plan.target,
            credits_used=billing.convert_to_credits(price_millis),
            character_count=CharacterCount(
                total_source_text_length=sum(map(len, call.request.texts)),
                total_translated_text_length=sum(map(len, translations)),
            ),
        ),
    )
    return build_json_response(answer, (*call.warnings, *plan.warnings))


async def _plan_routes(state: State, call: TranslationCall) -> TranslationPlan:
    """Return the route of each text, by its given or detected language."""
    texts = call.request.texts
    if call.request.source_language is not None:
        languages = [call.request.source_language] * len(texts)
    else:
        known = {locales.get_language(source) for source in state.routes.list_sources(call.target)}
        languages_job = LanguagesJob(
            texts=texts, languages=sorted(known | {locales.get_language(call.target)})
        )
        languages = await _run_worker(state, call.reservation.key, languages_job, sum(map(len, texts)))
    routes_by_language = {
        language: None
        if is_same_language(language, call.target)
        else state.routes.route(language, call.target)
        for language in dict.fromkeys(languages)
    }
    routes = tuple(routes_by_language[language] for language in languages)
    target = next((route.target for route in routes if route is not None), call.target)
    return TranslationPlan(routes, target, tuple(_list_warnings(routes, call)))


def _list_warnings(routes: Sequence[Route | None], call: TranslationCall) -> list[str]:
    source = call.request.source_language
    source = locales.normalise(source) if source is not None else None
    positions: dict[Route | None, list[int]] = {}
    for position, route in enumerate(routes):
        positions.setdefault(route, []).append(position)
    warnings = []
    for route, text_indexes in positions.items():
        if route is None:
            warnings.append(
                f"already in {call.target} and returned as they are: texts "
                f"{chosen.format_ranges(text_indexes)}"
            )
            continue
        warnings.append(chosen.make_route_warning(str(route), text_indexes))
        warnings += build_region_warnings(source, call.target, route)
    return list(dict.fromkeys(warnings))


@dataclass
class _Slice:
    """A group of text portions with the same route.

    `places` has, for each portion, all places where it stands: pairs of text index and portion index.
    """

    route: Route
    portions: list[str]
    places: list[list[tuple[int, int]]]
    characters: int = 0

    def has_room(self, portion: str) -> bool:
        return (
            len(self.portions) < _SLICE_TEXTS and self.characters + len(portion) <= _SLICE_CHARACTERS
        ) or not self.portions

    def add(self, portion: str, places: list[tuple[int, int]]) -> None:
        self.portions.append(portion)
        self.places.append(places)
        self.characters += len(portion)


def _make_slices(text_portions: Sequence[Sequence[str]], routes: Sequence[Route | None]) -> list[_Slice]:
    """Group the portions of texts into slices. Equal portions with the same route are translated once."""
    places: dict[tuple[Route, str], list[tuple[int, int]]] = {}
    for text, (pieces, route) in enumerate(zip(text_portions, routes, strict=True)):
        if route is not None:
            for number, piece in enumerate(pieces):
                places.setdefault((route, piece), []).append((text, number))
    slices: list[_Slice] = []
    open_slices: dict[Route, _Slice] = {}
    for (route, piece), portion_places in places.items():
        if route not in open_slices or not open_slices[route].has_room(piece):
            open_slices[route] = _Slice(route, [], [])
            slices.append(open_slices[route])
        open_slices[route].add(piece, portion_places)
    return slices


async def _translate_texts(
    state: State, key: Key, texts: Sequence[str], routes: Sequence[Route | None]
) -> list[str]:
    # Split the texts in a thread, because long texts take some time.
    text_portions = await asyncio.to_thread(lambda: [split_portions(text) for text in texts])
    slices = _make_slices(text_portions, routes)
    todo = iter(slices)

    async def translate_slices() -> None:
        # Each task queues one slice at a time, so that slices of other calls run in between.
        for part in todo:
            steps = part.route.steps
            job = TranslateJob(texts=part.portions, steps=steps)
            translations = await _run_worker(state, key, job, part.characters * len(steps))
            for where, translation in zip(part.places, translations, strict=True):
                for text, number in where:
                    text_portions[text][number] = translation

    tasks = [asyncio.create_task(translate_slices()) for _ in range(min(state.pools.slow.count, len(slices)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return ["".join(pieces) for pieces in text_portions]


async def _run_worker(state: State, key: Key, job: WorkerJob, characters: int) -> list[str]:
    limit_s = state.config.limits.compute_job_limit_s(characters, 0.0)
    # The call has already passed `check_room`, so a full queue must not refuse its slices.
    pool = state.pools.slow
    reply = await pool.run(job, limit_s=limit_s, key_hash=key.key_hash, under_way=True)
    problem = reply.facts.refused or reply.facts.failed
    if problem is not None:
        raise Refusal(
            HttpErrorCode.INTERNAL_ERROR, f"the translation engine failed: {problem}; nothing was billed"
        )
    translations: list[str] = json.loads(reply.result_json)
    return translations
