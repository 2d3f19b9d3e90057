"""A translation service that fails as a test scripts it, on a real port, and keeps books of what it was sent."""

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web
from pydantic import SecretStr

from served import Served
from speechframe.settings import Settings

KEY = "sk-babel"


def translated(text, target):
    """The translation this service has: tokens and numbers as they are, every other word turned round."""

    def turned(word):
        return word[0] if re.fullmatch(r"(PZ|XPH|ZQX|K7Q)\d+|\d+", word[0]) else word[0][::-1]

    return re.sub(r"\w+", turned, text) + f" ({target})"


@dataclass
class Seen:
    """One request: its texts, target, source, Idempotency-Key, and how it was answered."""

    texts: list
    target: str
    source: str | None
    key: str | None
    step: object = "ok"


@dataclass
class Babel(Served):
    """A service whose answers are scripted.

    A step is a status, or one of ``ok``, ``reset``, ``reset billed``, ``hang billed``, ``broken json``, ``swapped``,
    ``short``. `script` is played once, a request a step; `forever` after it. A text in `bad` makes any request with
    it a 400, one in `poison` a 500.

    Parameters
    ----------
    idempotent
        Honour ``Idempotency-Key`` and say so; None is a service without a page of limits.
    limits
        Further lines of the page of limits.
    quota
        Characters it sells; then 402.
    delay_s
        Time an answer takes.
    edit
        Changes a translation: called with text, target and translation.
    """

    idempotent: bool | None = True
    limits: dict = field(default_factory=dict)
    quota: int | None = None
    delay_s: float = 0.0
    script: list = field(default_factory=list)
    forever: object = "ok"
    bad: set = field(default_factory=set)
    poison: set = field(default_factory=set)
    edit: object = None
    warnings: object = None
    says: str | None = None
    has_metadata: bool = True
    seen: list = field(default_factory=list)
    billed: Counter = field(default_factory=Counter)
    paid_keys: dict = field(default_factory=dict)
    in_flight: int = 0
    most_in_flight: int = 0
    port: int = 0

    # -- for tests ----------------------------------------------------------------

    @property
    def settings(self):
        return Settings(api_key=SecretStr(KEY), base_url=f"http://127.0.0.1:{self.port}", profile="babel")

    @property
    def characters(self):
        """What it billed."""
        return sum(len(text) * times for (text, _), times in self.billed.items())

    # -- the service ----------------------------------------------------------------

    def routes(self):
        return (
            ("GET", "/v1/limits", self.page),
            ("GET", "/v1/speech/voices", self.voices),
            ("POST", "/v1/text/translate", self.translate),
        )

    async def page(self, request):
        if self.idempotent is None:
            raise web.HTTPNotFound
        left = None if self.quota is None else self.quota - self.characters
        page = {
            "service": "speechframe",
            "identity": "babel/1",
            "pools": {"other": 4},
            "idempotency": self.idempotent,
            "idempotency_seconds": 86400,
            "remaining_characters": left,
        }
        return web.json_response(page | self.limits)

    async def voices(self, request):
        return web.json_response([])

    async def translate(self, request):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._play(request)
        finally:
            self.in_flight -= 1

    async def _play(self, request):
        fields = json.loads(await request.read())
        seen = Seen(
            fields["texts"],
            fields["targetLanguage"],
            fields.get("sourceLanguage"),
            request.headers.get("Idempotency-Key"),
        )
        self.seen.append(seen)
        seen.step = step = self.script.pop(0) if self.script else self.forever
        await asyncio.sleep(self.delay_s)
        if self.bad & set(seen.texts):
            step = seen.step = 400
        if self.poison & set(seen.texts):
            step = seen.step = 500
        if isinstance(step, int):
            return web.json_response({"error_message": "scripted"}, status=step)
        if step == "reset":
            request.transport.abort()
            return web.Response()
        if not self._bill(seen):
            return web.json_response({"error_message": "no credits"}, status=402)
        if step == "reset billed":
            request.transport.abort()
            return web.Response()
        if step == "hang billed":
            await asyncio.sleep(60)
        return self._good(seen, step)

    def _bill(self, seen):
        if self.idempotent and seen.key is not None and seen.key in self.paid_keys:
            assert self.paid_keys[seen.key] == seen.texts, "the same key with another body"
            return True
        if self.quota is not None and self.characters + sum(map(len, seen.texts)) > self.quota:
            return False
        self.billed.update((text, seen.target) for text in seen.texts)
        self.paid_keys[seen.key] = seen.texts
        return True

    def _good(self, seen, step):
        said = [translated(text, seen.target) for text in seen.texts]
        if self.edit is not None:
            said = [self.edit(text, seen.target, one) for text, one in zip(seen.texts, said, strict=True)]
        pairs = [
            {"source_text": text, "translated_text": one} for text, one in zip(seen.texts, said, strict=True)
        ]
        if step == "swapped":
            pairs.reverse()
        if step == "short":
            pairs.pop()
        characters = sum(map(len, seen.texts))
        fields = {
            "translations": pairs,
            "metadata": {"target_language": self.says or seen.target, "credits_used": float(characters)},
        }
        if not self.has_metadata:
            del fields["metadata"]
        body = json.dumps(fields).encode()
        if step == "broken json":
            body = body[:-20]
        response = web.Response(body=body, content_type="application/json")
        for warning in self.warnings(seen) if self.warnings else ():
            response.headers.add("X-Speech-Warning", warning)
        return response


def check_books(run, server):
    """The ledger's sum is what the service billed, and no file is wrong."""
    ledger = run.ledger
    assert ledger["credits"].sum() == server.characters
    assert not run._folder.verify()
    return ledger
