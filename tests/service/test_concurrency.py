"""Many at once: slots, the queue over all keys, balances that sum exactly."""

import asyncio
import random
from collections import Counter

import pytest
from socket_lab import at_work

from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode
from speechframe.wire.errors import read_retry_after_s


@pytest.mark.rule("status.429-concurrency", "limit.concurrency-429")
async def test_above_the_keys_concurrency_is_429_with_retry_after_and_costs_nothing(http, hold, tools):
    before = await http.remaining("second")
    sends = [asyncio.ensure_future(http.generate(hold.text, key="second")) for _ in range(7)]
    await tools.until(lambda: sum(send.done() for send in sends) == 4)
    hold.let_go()
    answers = await asyncio.gather(*sends)
    assert Counter(answer.status for answer in answers) == {200: 3, 429: 4}
    for answer in answers:
        if answer.status == 429:
            assert answer.code == HttpErrorCode.CONCURRENCY_LIMIT
            assert answer.headers[chosen.RETRY_AFTER_HEADER].isdecimal()
            assert int(answer.headers[chosen.RETRY_AFTER_HEADER]) >= 1
            assert 0 < read_retry_after_s(answer.headers) <= 5
    assert await http.remaining("second") == before - 3 * len(hold.text)
    assert (await http.generate(key="second")).status == 200, "the slots are free again"


async def test_keys_have_slots_of_their_own(http, hold):
    busy = [asyncio.ensure_future(http.generate(hold.text, key="slow")) for _ in range(2)]
    await at_work(http, 2)
    assert (await http.generate(key="slow")).status == 429
    # Both workers are busy, so this one waits its turn and is served.
    other = asyncio.ensure_future(http.generate(key="second"))
    await at_work(http, 2, waiting=1)
    hold.let_go()
    assert (await other).status == 200
    assert [answer.status for answer in await asyncio.gather(*busy)] == [200, 200]


async def test_a_request_that_could_never_succeed_is_told_so_though_no_slot_is_free(http, hold):
    busy = [asyncio.ensure_future(http.generate(hold.text, key="slow")) for _ in range(2)]
    await at_work(http, 2)
    assert (await http.generate(key="slow", pitch=99)).status == 400
    hold.let_go()
    await asyncio.gather(*busy)


@pytest.mark.rule("status.402-quota", "limit.quota-exhausted-402")
async def test_402_exactly_when_the_quota_does_not_cover_the_text(http):
    assert (await http.generate("x" * 11, key="tiny")).status == 402
    answer = await http.generate("x" * 4, key="tiny")
    assert answer.status == 200, answer.body
    assert answer.json["remainingCharacterCount"] == 6
    answer = await http.generate("x" * 7, key="tiny")
    assert (answer.status, answer.code) == (402, HttpErrorCode.QUOTA_EXHAUSTED)
    assert "7 billed characters" in answer.message
    assert "6 are left" in answer.message
    answer = await http.generate("x" * 6, key="tiny")
    assert (answer.status, answer.json["remainingCharacterCount"]) == (200, 0)
    assert (await http.generate("x", key="tiny")).status == 402
    assert await http.remaining("tiny") == 0


async def test_balances_of_many_at_once_are_one_exact_chain(http):
    rng = random.Random(7)
    texts = ["x" * rng.randint(1, 60) for _ in range(150)]

    async def one(text):
        # Refused ones come again when they were told to, as a client's would.
        for _ in range(1000):
            answer = await http.generate(text, key="chain", encodeAsBase64=rng.random() < 0.5)
            if answer.status not in {429, 503}:
                return len(text), answer
            await asyncio.sleep(read_retry_after_s(answer.headers))
        raise AssertionError("never served")

    results = await asyncio.gather(*map(one, texts))
    served = [
        (cost, answer.json["remainingCharacterCount"]) for cost, answer in results if answer.status == 200
    ]
    refused = [cost for cost, answer in results if answer.status == 402]
    assert len(served) + len(refused) == len(texts)
    assert served
    assert refused
    # In the order they were settled, each balance is the one before less its own cost: nothing is lost,
    # counted twice, or ever negative.
    balance = 3000
    for cost, remaining in sorted(served, key=lambda pair: -pair[1]):
        balance -= cost
        assert remaining == balance >= 0
    assert await http.remaining("chain") == balance
    # What is left covers none of those that were refused last: the quota was used up, not held back.
    assert balance < max(refused)
    assert (await http.generate("x" * (balance + 1), key="chain")).status == 402
    if balance:
        assert (await http.generate("x" * balance, key="chain")).json["remainingCharacterCount"] == 0


@pytest.mark.rule("status.503-saturated", "stream.statuses-71")
async def test_a_full_queue_over_all_keys_is_503_with_retry_after_and_costs_nothing(
    start, http_to, hold, tools
):
    keys = ["one:100000:20", "two:100000:20", "broke:0"]
    with start(keys=keys, workers=1, options=["--queue", "4"]) as service:
        http = http_to(service)
        sends = [http.generate(hold.text, key=("one", "two")[n % 2]) for n in range(12)]
        sends = list(map(asyncio.ensure_future, sends))
        await at_work(http, 1, waiting=4)
        await tools.until(lambda: sum(send.done() for send in sends) == 7)
        # A stream has no byte before that.
        streamed = await http.ask("POST", "/v1/speech/stream", json={"text": "Hi.", "voiceId": "ivy"})
        assert (streamed.status, streamed.code) == (503, "UNAVAILABLE")
        assert read_retry_after_s(streamed.headers) > 0
        # Whether it could be paid for is looked at after that.
        assert (await http.generate("hello", key="broke")).status == 503
        hold.let_go()
        answers = await asyncio.gather(*sends)
        assert (await http.generate("hello", key="broke")).status == 402
        counts = Counter(answer.status for answer in answers)
        assert counts == {200: 5, 503: 7}
        for answer in answers:
            if answer.status == 503:
                assert answer.code == HttpErrorCode.UNAVAILABLE
                assert read_retry_after_s(answer.headers) > 0
        left = await http.remaining("one") + await http.remaining("two")
        assert left == 200_000 - 5 * len(hold.text)
        assert (await http.generate("hello", key="one")).status == 200


@pytest.mark.rule("status.generate-subset")
async def test_whatever_comes_generate_answers_only_its_statuses(http):
    rng = random.Random(3)
    values = [None, True, -1, 1e9, "x", "", [], {}, "MP3", "gen2", "en-US", 24000, "[pause 99s]"]
    names = [
        "text", "voiceId", "audioDuration", "channelType", "encodeAsBase64", "format", "modelVersion", "locale",
        "multiNativeLocale", "pitch", "rate", "sampleRate", "style", "variation", "wordDurationsAsOriginalText",
        "pronunciationDictionary",
    ]  # fmt: skip
    seen = set()
    for _ in range(80):
        body = {"text": "hi", "voiceId": "moody", rng.choice(names): rng.choice(values)}
        if rng.random() < 0.3:
            body[rng.choice(names)] = rng.choice(values)
        seen.add((await http.ask("POST", "/v1/speech/generate", json=body)).status)
    assert seen == {200, 400}
