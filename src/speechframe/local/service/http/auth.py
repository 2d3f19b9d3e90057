"""Find the key or token of a request, and answer the token call.

Sections 5 and 4.4 of the service document describe keys and the token call.
"""

from aiohttp import web

from speechframe.local.service.books.keys import Key, KeyRing, find_token, make_token
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.state import STATE
from speechframe.settings.hidden import Hidden
from speechframe.spec import chosen
from speechframe.spec.auth import AuthToken
from speechframe.spec.codes import HttpErrorCode

_HEADER_HINT = f"; send it in the {chosen.API_KEY_HEADER} header"
"""End of a refusal of a request without a key."""


def require_key(request: web.Request) -> Key:
    """Return the speech key of a request.

    Raises
    ------
    Refusal
        403 if the key is missing or unknown, or is a dubbing key (section 5, rule 5; ``spec.chosen``:
        missing-key).
    """
    state = request.app[STATE]
    return _find_key(
        request, state.ring, state.dub_ring, "this is a dubbing key; this call needs a speech key"
    )


def require_any_key(request: web.Request) -> tuple[Key | None, Key | None]:
    """Return a request's key as a speech key and as a dubbing key. At most one of the two is None.

    Raises
    ------
    Refusal
        403 if the key is missing or unknown.
    """
    state = request.app[STATE]
    secret = Hidden(request.headers.get(chosen.API_KEY_HEADER, ""))
    dub_key = state.dub_ring.find(secret)
    return (state.ring.find(secret), dub_key) if dub_key is not None else (require_key(request), None)


def require_dub_key(request: web.Request) -> Key:
    """Return the dubbing key of a request.

    Raises
    ------
    Refusal
        403 if the key is missing or unknown, or is only a speech key.
    """
    state = request.app[STATE]
    return _find_key(
        request, state.dub_ring, state.ring, "this is a speech key; this call needs a dubbing key"
    )


def _find_key(request: web.Request, ring: KeyRing, other: KeyRing, wrong_kind_message: str) -> Key:
    secret = Hidden(request.headers.get(chosen.API_KEY_HEADER, ""))
    if not secret:
        raise Refusal(HttpErrorCode.INVALID_KEY, "the api key is missing" + _HEADER_HINT)
    key = ring.find(secret)
    if key is None:
        is_other = other.find(secret) is not None
        message = wrong_kind_message if is_other else "the api key is invalid or expired"
        raise Refusal(HttpErrorCode.INVALID_KEY, message)
    return key


async def require_key_or_token(request: web.Request) -> Key:
    """Return the speech key of a request that sends the key itself, or a token of the key.

    If a request sends both, one valid value is enough.

    Raises
    ------
    Refusal
        403 if key and token are missing, or if neither is valid.
    """
    state = request.app[STATE]
    token = Hidden(request.headers.get(chosen.TOKEN_HEADER, ""))
    if not token:
        return require_key(request)
    secret = Hidden(request.headers.get(chosen.API_KEY_HEADER, ""))
    key = state.ring.find(secret) if secret else None
    if key is None:
        key = await state.database.read(lambda c: find_token(c, state.ring, token))
    if key is None:
        raise Refusal(HttpErrorCode.INVALID_KEY, "the token is invalid or expired")
    return key


async def issue_token(request: web.Request) -> web.Response:
    """Answer ``GET /v1/auth/token``. Only here, an invalid key gives 401, and a missing key gives 400."""
    state = request.app[STATE]
    secret = Hidden(request.headers.get(chosen.API_KEY_HEADER, ""))
    if not secret:
        raise Refusal(HttpErrorCode.MISSING_KEY, f"the {chosen.API_KEY_HEADER} header is missing")
    key = state.ring.find(secret)
    if key is None:
        raise Refusal(HttpErrorCode.UNAUTHORIZED, "the api key is invalid or expired")
    token, expires_at = await state.database.run(lambda c: make_token(c, state.ring, key))
    answer = AuthToken(token=token, expiry_in_epoch_millis=int(expires_at * 1000))
    return web.json_response(
        text=answer.model_dump_json(by_alias=True), headers={"Cache-Control": "no-store"}
    )
