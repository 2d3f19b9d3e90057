"""List the voices of one model: ``GET /v1/speech/voices`` (section 4.1 of the service document)."""

from aiohttp import web

from speechframe.local.service.http.answers import JSON_TYPE
from speechframe.local.service.http.auth import require_key_or_token
from speechframe.local.service.http.body import check_fields
from speechframe.local.service.state import STATE
from speechframe.spec.speech import VoicesQuery


async def list_voices(request: web.Request) -> web.Response:
    """Answer with the voices of the model in the query, or of the default model."""
    await require_key_or_token(request)
    name = "model"
    query = {name: request.query[name]} if name in request.query else {}
    wanted, _ = check_fields(VoicesQuery, query)
    return web.Response(
        body=request.app[STATE].catalogues.by_model[wanted.model].listing, content_type=JSON_TYPE
    )
