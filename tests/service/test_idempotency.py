"""Idempotency-Key: a repeat is synthesised again, byte for byte, and bills nothing."""

import asyncio

import pytest
from socket_lab import at_work

from speechframe.spec import chosen

NAME = chosen.IDEMPOTENCY_HEADER


async def test_a_repeat_is_the_same_audio_and_bills_nothing(http):
    headers = {NAME: "repeat-1"}
    first = await http.generate("once and for all", encodeAsBase64=True, headers=headers)
    again = await http.generate("once and for all", encodeAsBase64=True, headers=headers)
    assert again.status == 200
    assert again.json == first.json, "the balance too: nothing else was billed in between"
    linked = await http.generate("once and for all", headers=headers)
    assert (await http.get(linked.json["audioFile"])).body == first.audio
    assert linked.json["remainingCharacterCount"] == first.json["remainingCharacterCount"]


@pytest.mark.parametrize("other", [{"text": "other"}, {"pitch": 1}, {"headers": {chosen.TAKE_HEADER: "1"}}])
async def test_the_same_key_with_another_request_is_400(http, other):
    headers = {NAME: f"other-{sorted(other)}"}
    assert (await http.generate("hello", headers=headers)).status == 200
    before = await http.remaining()
    changed = {"text": "hello", **other, "headers": {**headers, **other.get("headers", {})}}
    answer = await http.generate(**changed)
    assert answer.status == 400
    assert answer.message.startswith(NAME)
    assert await http.remaining() == before


async def test_the_same_request_in_other_words_is_a_repeat(http):
    headers = {NAME: "spelled", "Content-Type": "application/json"}
    before = await http.remaining()
    for data in (
        b'{"text":"hey","voiceId":"moody"}',
        b' {"voiceId": "moody", "variation": 1, "text": "hey"} ',
    ):
        answer = await http.ask("POST", "/v1/speech/generate", data=data, headers=headers)
        assert answer.status == 200
    assert await http.remaining() == before - 3


@pytest.mark.parametrize("text", ["crash now", "refuse now"])
async def test_errors_are_not_remembered(http, text):
    headers = {NAME: f"error-{text}"}
    assert (await http.generate(text, headers=headers)).status in {400, 500}
    before = await http.remaining()
    assert (await http.generate("well then", headers=headers)).status == 200
    assert await http.remaining() == before - 9


async def test_many_repeats_at_once_bill_once(http):
    before = await http.remaining()
    headers = {NAME: "at-once"}
    answers = await asyncio.gather(
        *[http.generate("sleep 0.1 together", encodeAsBase64=True, headers=headers) for _ in range(8)]
    )
    assert {answer.status for answer in answers} == {200}
    assert {answer.audio for answer in answers} == {answers[0].audio}
    assert await http.remaining() == before - len("sleep 0.1 together")


async def test_when_the_first_of_two_at_once_crashes_the_second_is_billed(hasty, http_to, hold):
    http = http_to(hasty)
    before = await http.remaining()
    headers = {NAME: "takes-over"}
    # One worker: the second waits until the first has gone down with its client.
    doomed = asyncio.ensure_future(http.generate(hold.text, headers=headers))
    await at_work(http, 1)
    second = asyncio.ensure_future(http.generate(hold.text, headers=headers))
    await at_work(http, 1, waiting=1)
    doomed.cancel()
    await asyncio.sleep(0.1)
    hold.let_go()
    assert (await second).json["remainingCharacterCount"] == before - len(hold.text)
