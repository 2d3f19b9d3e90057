"""A page of limits may hold anything: what cannot be used counts as not said."""

import math
from types import SimpleNamespace

import pytest
from pydantic import SecretStr

from speechframe.old_batch.connection import Connection, first_cap
from speechframe.settings import Settings


def connection(**limits):
    settings = Settings(api_key=SecretStr("sk-x"), base_url="http://127.0.0.1:9", profile="mine")
    client = SimpleNamespace(settings=settings, regions=("global",))
    return Connection(client, {"service": "speechframe", **limits}, None)


@pytest.mark.parametrize("pools", [None, [], "x", 5, {"other": "5"}, {"other": -1}, {"other": True}, {}])
def test_pools(pools):
    assert connection(pools=pools).width("other", 7) == 7


def test_a_huge_cap_is_bounded():
    assert connection(pools={"other": 10**30}).width("other", None) <= 256


@pytest.mark.parametrize("seconds", [math.nan, -5, -math.inf, "86400", None, True, [], {}])
def test_a_memory_that_is_no_time_is_none(seconds):
    assert connection(idempotency=True, idempotency_seconds=seconds).repeat_seconds == 0


def test_a_memory_for_ever_is_a_year():
    for seconds in (math.inf, 10**400):
        assert connection(idempotency=True, idempotency_seconds=seconds).repeat_seconds == 366 * 86400
    assert connection(idempotency=False, idempotency_seconds=50).repeat_seconds == 0


@pytest.mark.parametrize("identity", [None, "", 5, [], "x" * 1000, "a\nb"])
def test_an_identity_that_is_no_name_is_the_settings(identity):
    assert connection(identity=identity).identity == "mine"


@pytest.mark.parametrize("balance", [None, "5", 1.5, True, [], 2**63, -(2**70), 1e308])
def test_a_balance_that_is_no_number_is_none(balance):
    assert connection(remaining_characters=balance).balance is None


def test_the_first_cap():
    assert [first_cap(*given).limit for given in [(5, None), (5, 2), (None, 100), (None, 3), (None, None)]] == [
        5, 5, 15, 3, 2,
    ]  # fmt: skip
