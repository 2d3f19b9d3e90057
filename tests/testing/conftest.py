"""Calls to a faulty service by the real client, and by hand where a client would be too polite."""

import asyncio
import http.client
import json
from urllib.parse import urlsplit

import pytest

from speechframe.client import Client, PreparedCall
from speechframe.errors import SpeechframeError
from speechframe.spec.speech import GenerateRequest
from speechframe.testing import FaultyService


class Tools:
    """What the tests of this room share."""

    @staticmethod
    def call(text, *, idempotency_key=None, take=0, **fields):
        fields = {"voice_id": "en-US-nora", "encode_as_base64": True} | fields
        return PreparedCall.from_request(
            GenerateRequest(text=text, **fields), idempotency_key=idempotency_key, take=take
        )

    def outcomes(self, service, *calls, at_once=True, timeout_s=20.0, region=None):
        """What single attempts end in: an answer or an error, in the order of the calls."""

        async def all_of_them():
            async with Client(service.settings) as client:

                async def one(call):
                    try:
                        return await client.send_once(call, timeout_s=timeout_s, region=region)
                    except SpeechframeError as error:
                        return error

                made = [self.call(call) if isinstance(call, str) else call for call in calls]
                if at_once:
                    return await asyncio.gather(*map(one, made))
                return [await one(call) for call in made]

        return asyncio.run(all_of_them())

    def outcome(self, service, call, **options):
        return self.outcomes(service, call, **options)[0]

    @staticmethod
    def post(service, body=None, *, headers=None, key=None, method="POST", path="/v1/speech/generate"):
        """Status, headers and body of a bare request."""
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body)
        secret = service.api_key.get_secret_value() if key is None else key
        try:
            connection.request(method, path, data, {"api-key": secret, **(headers or {})})
            reply = connection.getresponse()
            return reply.status, {n.lower(): v for n, v in reply.getheaders()}, reply.read()
        finally:
            connection.close()


@pytest.fixture(scope="session")
def tools():
    return Tools()


@pytest.fixture
def faulty():
    """Make services; they end with the test."""
    made = []

    def make(**knobs):
        service = FaultyService(**knobs)
        made.append(service)
        return service.start()

    yield make
    for service in made:
        service.stop()
