"""Receive webhooks, the requests in which the service reports the end of dubbing jobs."""

import hmac
import inspect
import math
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import SecretStr

from speechframe.errors import BadAnswer
from speechframe.settings.hidden import wrap_key
from speechframe.spec.chosen import WEBHOOK_SIGNATURE_HEADER, WEBHOOK_TIMESTAMP_HEADER
from speechframe.spec.dubbing import DubJobStatus
from speechframe.wire.answers import decode_object
from speechframe.wire.dubbing import compute_webhook_signature, validate_value

MAX_AGE_S = 300.0
"""Largest age of a webhook in seconds. Its time may also be this far in the future, as clocks differ."""
# Largest body of a webhook that is read, in bytes.
_MAX_BODY_BYTES = 1 << 20
# Webhooks about other events are ignored. Their answer is 204.
_EVENT_NAME = "DUB_JOB"


def receive_webhooks(
    on_status: Callable[[DubJobStatus], Awaitable[None] | None],
    *,
    secret: str | SecretStr,
    path: str = "/",
    max_age_s: float = MAX_AGE_S,
) -> web.Application:
    """Return an aiohttp application that receives the webhooks of dubbing jobs, as an alternative to polling.

    The application calls `on_status` only for recent webhooks that are signed with `secret`, and answers 204
    after `on_status` has returned, 500 if `on_status` raises, 401 for a wrong signature or an old webhook,
    and 400 for a broken body. The service repeats a webhook if the answer was not a success or was lost. So
    the same status may come twice.

    Parameters
    ----------
    on_status
        A function, async or not, that is called with the status of the job.
    secret
        The ``webhook_secret`` of the jobs.
    path
        Path of the webhooks on this server.
    max_age_s
        Largest age of a webhook in seconds (default 300). Older webhooks are refused, so that an intercepted
        webhook cannot be used again later.

    Raises
    ------
    ValueError
        If the secret is empty, because then everybody could sign.

    Examples
    --------
    >>> app = receive_webhooks(print, secret="s3cret", path="/dubbed")
    >>> aiohttp.web.run_app(app, port=8080)  # doctest: +SKIP
    """
    hidden = wrap_key(secret)
    del secret
    if hidden is None or not hidden.get_secret_value():
        raise ValueError("the secret is empty; give the webhook_secret of the jobs")

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        timestamp = request.headers.get(WEBHOOK_TIMESTAMP_HEADER, "")
        signature = request.headers.get(WEBHOOK_SIGNATURE_HEADER, "")
        if problem := _find_problem(body, timestamp, signature, hidden, max_age_s):
            return web.Response(status=401, text=problem)
        try:
            event = decode_object(body)
            if event.get("eventName") != _EVENT_NAME:
                return web.Response(status=204)
            status = validate_value(DubJobStatus, event.get("data"))
        except BadAnswer as error:
            return web.Response(status=400, text=str(error))
        result = on_status(status)
        if inspect.isawaitable(result):
            await result
        return web.Response(status=204)

    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.router.add_post(path, receive)
    return app


def _find_problem(body: bytes, timestamp: str, signature: str, secret: SecretStr, max_age_s: float) -> str:
    """Return the reason to refuse a webhook, or an empty text."""
    # Use the bytes of the headers, because they may not be valid text.
    signed_time, given = (text.encode("utf-8", "surrogateescape") for text in (timestamp, signature))
    signed = compute_webhook_signature(secret.get_secret_value(), body, signed_time)
    # Compare the signature before the age, and in constant time. So a sender without the secret cannot learn
    # anything from the answer or its delay.
    if not hmac.compare_digest(signed.encode(), given.lower()):
        return "the signature is wrong"
    age_s = time.time() - int(timestamp) / 1000 if timestamp.isdecimal() else math.inf
    return (
        ""
        if abs(age_s) <= max_age_s
        else f"the time of the webhook is missing, or more than {max_age_s:g} s from now"
    )
