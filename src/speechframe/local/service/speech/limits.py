"""Calls for the limits, the OpenAPI document and the health of the service. The specification lacks them."""

import json
import sqlite3

from aiohttp import web

from speechframe._version import __version__
from speechframe.local.service.books import quota
from speechframe.local.service.books.database import now
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import JSON, Refusal
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
from speechframe.spec.pages.render import openapi as openapi_document


def identity(state: State, *kinds: str) -> str:
    """Return names and versions of the installed engines of some kinds, as one text beginning ``local/``."""
    engines = [pair for kind in kinds for pair in sorted(state.pools.installed.get(kind, {}).items())]
    return "local/" + "+".join(f"{name}-{version}" for name, version in engines)


def identities(state: State) -> dict[str, str]:
    """Return the identity of the engines that each verb uses, by verb."""
    return {
        "generate": identity(state, "speaker"),
        "stream": identity(state, "speaker"),
        "change_voice": identity(state, "changer", "speaker", "recogniser"),
        "translate": identity(state, "translator"),
        "dub": identity(state, "recogniser", "translator", "speaker"),
    }


def translation(state: State) -> TranslationPairs:
    """Return the pairs of languages that this service can translate, with quality and route."""
    routes = state.routes.supported()
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


def stream(state: State, key: Key) -> StreamLimits:
    """Return the limits of HTTP streams and WebSockets for a key."""
    return StreamLimits(
        default_model=REGIONS[state.config.region].default_stream_model,
        max_sockets=chosen.SOCKETS_PER_CONCURRENCY * state.slots.cap(key, Pool.STREAMING),
        socket_idle_seconds=state.config.socket_idle_s,
        max_frame_bytes=chosen.MAX_FRAME_BYTES,
        generation_requests_per_second=chosen.GENERATION_REQUESTS_PER_S,
    )


def dubbing(state: State, balance: quota.Balance | None) -> DubbingLimits:
    """Return the limits of dubbing, and the quota and remaining credits in a dubbing key's balance."""
    return DubbingLimits(
        installed=bool(state.languages.targets),
        at_once=state.config.dub_worker_count,
        max_seconds=chosen.MAX_DUB_SECONDS,
        link_seconds=chosen.DUB_LINK_SECONDS,
        project_job_seconds=chosen.DUB_PROJECT_JOB_SECONDS,
        characters_per_second=chosen.DUB_CHARACTERS_PER_SECOND,
        least_text_seconds=chosen.DUB_TEXT_LEAST_SECONDS,
        voices_at_once=chosen.DUB_VOICES_AT_ONCE,
        corrections_per_locale=chosen.DUB_CORRECTIONS,
        waiting_jobs=chosen.DUB_WAITING_JOBS,
        failed_jobs=chosen.DUB_FAILED_JOBS,
        projects=chosen.DUB_PROJECTS,
        max_credits=True,
        quota_credits=balance.quota_millis // billing.CREDIT if balance else None,
        remaining_credits=balance.remaining_characters if balance else None,
    )


async def limits(request: web.Request) -> web.Response:
    """Answer ``GET /v1/limits`` for a speech key or a dubbing key, with the balances of this key."""
    state = request.app[STATE]
    speech_key, dub_key = require_any_key(request)
    key = speech_key or Key(b"", "", 0, None)

    def balances(connection: sqlite3.Connection) -> tuple[quota.Balance, quota.Balance | None]:
        credit = quota.balance(connection, dub_key) if dub_key is not None else None
        return quota.balance(connection, key), credit

    balance, dub_balance = await state.database.read(balances)
    paces = state.pools.paces(state.slots.cap(key, Pool.OTHER))
    return _answer(
        Limits(
            service="speechframe",
            version=__version__,
            identity=identity(state, "speaker"),
            identities=identities(state),
            region=state.config.region,
            concurrency=state.slots.cap(key, Pool.OTHER),
            pools={pool.value: state.slots.cap(key, pool) for pool in Pool},
            stream=stream(state, key),
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
            translation=translation(state),
            dubbing=dubbing(state, dub_balance),
            quota_characters=key.quota_millis // billing.CREDIT,
            remaining_characters=balance.remaining_characters,
            billing_cycle=quota.cycle_of(now()),
            prices={
                name: PriceOf(
                    unit=price.unit, credits=billing.to_credits(price.millicredits), balance=price.balance
                )
                for name, price in billing.PRICES.items()
            },
            chosen=[
                Choice(id=point.id, point=point.point, choice=point.choice) for point in chosen.OPEN_POINTS
            ],
        )
    )


def _answer(model: Limits | Health) -> web.Response:
    return web.Response(body=model.model_dump_json().encode(), content_type=JSON)


# The OpenAPI document as JSON, once it has been requested.
_OPENAPI: list[bytes] = []


async def openapi(request: web.Request) -> web.Response:
    """Answer ``GET /v1/openapi.json`` with the OpenAPI description of all calls."""
    del request
    if not _OPENAPI:
        _OPENAPI.append(json.dumps(openapi_document()).encode())
    return web.Response(body=_OPENAPI[0], content_type=JSON)


async def health(request: web.Request) -> web.Response:
    """Answer ``GET /healthz`` with 200, or with 503 if no worker process runs."""
    state = request.app[STATE]
    figures = state.pools.figures()
    if not figures["alive"]:
        raise Refusal(HttpErrorCode.UNAVAILABLE, "no worker process is running", retry_after_s=1.0)
    return _answer(Health(status="ok", version=__version__, workers=Workers.model_validate(figures)))
