"""Calls for the limits, the OpenAPI document and the health of the service. The specification lacks them."""

import json
import sqlite3

from aiohttp import web

from speechframe._version import __version__
from speechframe.local.service.books import quota
from speechframe.local.service.books.database import now
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import JSON_TYPE, Refusal
from speechframe.local.service.http.auth import require_any_key
from speechframe.local.service.state import STATE, State
from speechframe.spec import billing, chosen
from speechframe.spec.additions import (
    Choice,
    DubbingLimits,
    Health,
    Limits,
    Pace,
    Pair,
    PriceOf,
    StreamLimits,
    TranslationPairs,
    Workers,
)
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.limits import REGIONS, Pool
from speechframe.spec.pages.render import build_openapi as openapi_document


def describe_engines(state: State, *kinds: str) -> str:
    """Return names and versions of the installed engines of some kinds, as one text beginning ``local/``."""
    engines = [pair for kind in kinds for pair in sorted(state.pools.installed.get(kind, {}).items())]
    return "local/" + "+".join(f"{name}-{version}" for name, version in engines)


def describe_engines_by_verb(state: State) -> dict[str, str]:
    """Return the identity of the engines that each verb uses, by verb."""
    return {
        "generate": describe_engines(state, "speaker"),
        "stream": describe_engines(state, "speaker"),
        "change_voice": describe_engines(state, "changer", "speaker", "recogniser"),
        "translate": describe_engines(state, "translator"),
        "dub": describe_engines(state, "recogniser", "translator", "speaker"),
    }


def describe_translation_pairs(state: State) -> TranslationPairs:
    """Return the pairs of languages that this service can translate, with quality and route."""
    routes = state.routes.list_supported()
    return TranslationPairs(
        sources=sorted({route.locales[0] for route in routes}),
        targets=sorted({route.target for route in routes}),
        pairs=[
            Pair(
                source=route.locales[0],
                target=route.target,
                quality=route.quality.value,
                route=str(route),
            )
            for route in routes
        ],
    )


def describe_stream_limits(state: State, key: Key) -> StreamLimits:
    """Return the limits of HTTP streams and WebSockets for a key."""
    return StreamLimits(
        default_model=REGIONS[state.config.region].default_stream_model,
        max_sockets=chosen.SOCKETS_PER_CONCURRENCY * state.slots.get_cap(key, Pool.STREAMING),
        socket_idle_seconds=state.config.socket_idle_s,
        max_frame_bytes=chosen.MAX_FRAME_BYTES,
        generation_requests_per_second=chosen.MAX_GENERATION_REQUESTS_PER_S,
    )


def describe_dubbing_limits(state: State, balance: quota.Balance | None) -> DubbingLimits:
    """Return the limits of dubbing, and the quota and remaining credits in a dubbing key's balance."""
    return DubbingLimits(
        installed=bool(state.languages.targets),
        at_once=state.config.dub_worker_count,
        max_seconds=chosen.MAX_DUB_SECONDS,
        link_seconds=chosen.DUB_LINK_LIFETIME_SECONDS,
        project_job_seconds=chosen.PROJECT_JOB_LIFETIME_SECONDS,
        characters_per_second=chosen.MAX_DUB_CHARACTERS_PER_SECOND,
        least_text_seconds=chosen.MIN_DUB_TEXT_SECONDS,
        voices_at_once=chosen.MAX_DUB_VOICES_AT_ONCE,
        corrections_per_locale=chosen.MAX_CORRECTIONS_PER_LOCALE,
        waiting_jobs=chosen.MAX_UNFINISHED_DUB_JOBS,
        failed_jobs=chosen.MAX_KEPT_FAILED_DUB_JOBS,
        projects=chosen.MAX_DUB_PROJECTS,
        max_credits=True,
        quota_credits=balance.quota_millis // billing.MILLICREDITS_PER_CREDIT if balance else None,
        remaining_credits=balance.remaining_characters if balance else None,
    )


async def show_limits(request: web.Request) -> web.Response:
    """Answer ``GET /v1/limits`` for a speech key or a dubbing key, with the balances of this key."""
    state = request.app[STATE]
    speech_key, dub_key = require_any_key(request)
    key = speech_key or Key(b"", "", 0, None)

    def read_balances(connection: sqlite3.Connection) -> tuple[quota.Balance, quota.Balance | None]:
        credit = quota.read_balance(connection, dub_key) if dub_key is not None else None
        return quota.read_balance(connection, key), credit

    balance, dub_balance = await state.database.read(read_balances)
    paces = state.pools.list_paces(state.slots.get_cap(key, Pool.OTHER))
    return _build_response(
        Limits(
            service="speechframe",
            version=__version__,
            identity=describe_engines(state, "speaker"),
            identities=describe_engines_by_verb(state),
            region=state.config.region,
            concurrency=state.slots.get_cap(key, Pool.OTHER),
            pools={pool.value: state.slots.get_cap(key, pool) for pool in Pool},
            stream=describe_stream_limits(state, key),
            max_text_characters=chosen.MAX_TEXT_CHARACTERS,
            max_texts_per_call=chosen.MAX_TEXTS_PER_CALL,
            max_translate_characters=chosen.MAX_TRANSLATE_CHARACTERS,
            max_audio_seconds=state.config.max_audio_seconds,
            max_upload_bytes=state.config.max_upload_bytes,
            idempotency=True,
            idempotency_seconds=chosen.IDEMPOTENCY_SECONDS,
            take_header=chosen.TAKE_HEADER,
            progress_header=chosen.PROGRESS_HEADER,
            paces={work: Pace.model_validate(pace) for work, pace in paces.items()},
            source_language=True,
            translation=describe_translation_pairs(state),
            dubbing=describe_dubbing_limits(state, dub_balance),
            quota_characters=key.quota_millis // billing.MILLICREDITS_PER_CREDIT,
            remaining_characters=balance.remaining_characters,
            billing_cycle=quota.format_cycle(now()),
            prices={
                name: PriceOf(
                    unit=price.unit,
                    credits=billing.convert_to_credits(price.millicredits),
                    balance=price.balance,
                )
                for name, price in billing.PRICES.items()
            },
            chosen=[
                Choice(id=point.id, point=point.point, choice=point.choice) for point in chosen.OPEN_POINTS
            ],
        )
    )


def _build_response(model: Limits | Health) -> web.Response:
    return web.Response(body=model.model_dump_json().encode(), content_type=JSON_TYPE)


# The OpenAPI document as JSON, once it has been requested.
_OPENAPI_CACHE: list[bytes] = []


async def send_openapi(request: web.Request) -> web.Response:
    """Answer ``GET /v1/openapi.json`` with the OpenAPI description of all calls."""
    del request
    if not _OPENAPI_CACHE:
        _OPENAPI_CACHE.append(json.dumps(openapi_document()).encode())
    return web.Response(body=_OPENAPI_CACHE[0], content_type=JSON_TYPE)


async def show_health(request: web.Request) -> web.Response:
    """Answer ``GET /healthz`` with 200, or with 503 if no worker process runs."""
    state = request.app[STATE]
    figures = state.pools.count_workers()
    if not figures["alive"]:
        raise Refusal(HttpErrorCode.UNAVAILABLE, "no worker process is running", retry_after_s=1.0)
    return _build_response(Health(status="ok", version=__version__, workers=Workers.model_validate(figures)))
