"""Section 5: who is let in, and how those are told who are not."""

import time

import pytest

from speechframe.local.service.books import keys
from speechframe.local.service.books.database import FILE_NAME, connect, run_transaction
from speechframe.local.service.books.keys import KeyRing
from speechframe.local.service.config import KeySpec
from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode


@pytest.mark.rule("auth.403-never-401", "status.403-bad-key")
@pytest.mark.parametrize("key", [None, "", "MAIN", "main:1000", "x" * 5000, "mäin"])
async def test_a_bad_or_missing_key_is_403_everywhere_but_on_the_token_call(http, key):
    asked = {"/v1/speech/generate": b"not even JSON", "/v1/speech/voices": None, "/v1/limits": None}
    for path, data in asked.items():
        answer = await http.ask("POST" if data else "GET", path, key=key, data=data)
        assert (answer.status, answer.code) == (403, HttpErrorCode.INVALID_KEY)
        assert not key or key not in answer.body.decode()


@pytest.mark.rule("auth.token-missing-key-400", "status.token-subset")
@pytest.mark.parametrize("key", [None, ""])
async def test_the_token_call_without_a_key_is_400(http, key):
    answer = await http.get("/v1/auth/token", key=key)
    assert (answer.status, answer.code) == (400, HttpErrorCode.MISSING_KEY)
    assert "api-key" in answer.message


@pytest.mark.rule("auth.token-bad-key-401")
async def test_the_token_call_with_a_bad_key_is_401(http):
    answer = await http.get("/v1/auth/token", key="wrong")
    assert (answer.status, answer.code) == (401, HttpErrorCode.UNAUTHORIZED)


@pytest.mark.rule("auth.token-issued", "auth.voices-token-header")
async def test_a_token_lives_half_an_hour_and_opens_the_voice_listing(http):
    answer = await http.get("/v1/auth/token")
    assert set(answer.json) == {"token", "expiryInEpochMillis"}
    assert answer.json["expiryInEpochMillis"] / 1000 - time.time() == pytest.approx(1800, abs=30)
    assert len(answer.json["token"]) >= 40
    headers = {chosen.TOKEN_HEADER: answer.json["token"]}
    assert (await http.get("/v1/speech/voices", key=None, headers=headers)).status == 200


async def test_a_token_opens_nothing_else(http):
    headers = {chosen.TOKEN_HEADER: (await http.get("/v1/auth/token")).json["token"]}
    assert (await http.generate(key=None, headers=headers)).status == 403
    assert (await http.get("/v1/limits", key=None, headers=headers)).status == 403
    assert (await http.get("/v1/auth/token", key=None, headers=headers)).status == 400
    assert (await http.get("/v1/limits", key=headers[chosen.TOKEN_HEADER])).status == 403


async def test_one_good_one_of_key_and_token_is_enough(http):
    token = {chosen.TOKEN_HEADER: (await http.get("/v1/auth/token")).json["token"]}
    wrong = {chosen.TOKEN_HEADER: "wrong"}
    assert (await http.get("/v1/speech/voices", key="wrong", headers=token)).status == 200
    assert (await http.get("/v1/speech/voices", headers=wrong)).status == 200
    assert (await http.get("/v1/speech/voices", key="wrong", headers=wrong)).status == 403
    assert (await http.get("/v1/speech/voices", key=None, headers=wrong)).status == 403


def ring_of(*secrets):
    return KeyRing(b"salt", [KeySpec(keys.parse_key(secret).key) for secret in secrets])


def test_a_token_ends_at_its_time_and_with_its_key(tmp_path, monkeypatch):
    connection = connect(tmp_path / FILE_NAME)
    ring = ring_of("a", "b")
    token, expires_at = run_transaction(connection, lambda c: keys.make_token(c, ring, ring.find("a")))
    assert keys.find_token(connection, ring, token) == ring.find("a")
    assert keys.find_token(connection, ring_of("b"), token) is None, "its key is not in force any more"
    monkeypatch.setattr(keys, "now", lambda: expires_at)
    assert keys.find_token(connection, ring, token) is None
    run_transaction(connection, lambda c: keys.make_token(c, ring, ring.find("b")))
    assert connection.execute("SELECT COUNT(*) FROM tokens").fetchone() == (1,), "old ones do not pile up"
    connection.close()


# Of the process list, see `test_local.py`: there it is started anew.
async def test_keys_and_tokens_are_nowhere_on_disk(http, service, tools):
    token = (await http.get("/v1/auth/token", key="a-secret")).json["token"]
    headers = {chosen.IDEMPOTENCY_HEADER: "idempotency-key-in-the-clear"}
    assert (await http.generate("words of the caller", key="a-secret", headers=headers)).status == 200
    stored = b"".join(path.read_bytes() for path in tools.files_below(service.data))
    assert b"SQLite" in stored
    for secret in ("a-secret", token, "idempotency-key-in-the-clear", "words of the caller"):
        assert secret.encode() not in stored
