"""Calls for the limits, the OpenAPI document and the health of the service. The specification lacks them."""

import functools
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
from speechframe.spec.additions import Health, Limits
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


async def show_limits(request: web.Request) -> web.Response:
    """Answer ``GET /v1/limits`` for a speech key or a dubbing key, with the balances of this key."""
    state = request.app[STATE]
    config, slots, routes = state.config, state.slots, state.routes.list_supported()
    speech_key, dub_key = require_any_key(request)
    key = speech_key or Key(b"", "", 0, None)

    def read_balances(connection: sqlite3.Connection) -> tuple[quota.Balance, quota.Balance | None]:
        credit = quota.read_balance(connection, dub_key) if dub_key is not None else None
        return quota.read_balance(connection, key), credit

    balance, dub_balance = await state.database.read(read_balances)
    page = {
        "version": __version__,
        "identity": describe_engines(state, "speaker"),
        "identities": describe_engines_by_verb(state),
        "region": config.region,
        "concurrency": slots.get_cap(key, Pool.OTHER),
        "pools": {pool.value: slots.get_cap(key, pool) for pool in Pool},
        "stream": {
            "default_model": REGIONS[config.region].default_stream_model,
            "max_sockets": chosen.SOCKETS_PER_CONCURRENCY * slots.get_cap(key, Pool.STREAMING),
            "socket_idle_seconds": config.socket_idle_s,
        },
        "max_audio_seconds": config.max_audio_seconds,
        "max_upload_bytes": config.max_upload_bytes,
        "paces": state.pools.list_paces(slots.get_cap(key, Pool.OTHER)),
        "translation": {
            "sources": sorted({route.locales[0] for route in routes}),
            "targets": sorted({route.target for route in routes}),
            "pairs": [
                {"source": way.locales[0], "target": way.target, "quality": way.quality, "route": str(way)}
                for way in routes
            ],
        },
        "dubbing": {
            "installed": bool(state.languages.targets),
            "at_once": config.dub_worker_count,
            "quota_credits": dub_balance and dub_balance.quota_millis // billing.MILLICREDITS_PER_CREDIT,
            "remaining_credits": dub_balance and dub_balance.remaining_characters,
        },
        "quota_characters": key.quota_millis // billing.MILLICREDITS_PER_CREDIT,
        "remaining_characters": balance.remaining_characters,
        "billing_cycle": quota.format_cycle(now()),
    }
    return _build_response(Limits.model_validate(page))


def _build_response(model: Limits | Health) -> web.Response:
    return web.Response(body=model.model_dump_json().encode(), content_type=JSON_TYPE)


@functools.cache
def _encode_openapi() -> bytes:
    return json.dumps(openapi_document()).encode()


async def send_openapi(request: web.Request) -> web.Response:
    """Answer ``GET /v1/openapi.json`` with the OpenAPI description of all calls."""
    del request
    return web.Response(body=_encode_openapi(), content_type=JSON_TYPE)


async def show_health(request: web.Request) -> web.Response:
    """Answer ``GET /healthz`` with 200, or with 503 if no worker process runs."""
    state = request.app[STATE]
    figures = state.pools.count_workers()
    if not figures["alive"]:
        raise Refusal(HttpErrorCode.UNAVAILABLE, "no worker process is running", retry_after_s=1.0)
    page = {"status": "ok", "version": __version__, "workers": figures}
    return _build_response(Health.model_validate(page))
