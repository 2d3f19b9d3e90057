"""Translation calls: what is sent, what comes back, and odd answers, each an error of its own."""

import json

import pytest

from speechframe.errors import BadAnswer, BadRequest, InvalidRows, PaymentRequired, PermissionDenied, TimedOut
from speechframe.old_client import Call, Client, SyncClient, Timeouts
from speechframe.old_client.translate import largest_answer, make_translate_call
from speechframe.spec.chosen import MAX_TEXTS_PER_CALL, MAX_TRANSLATE_CHARACTERS, route_warning
from speechframe.spec.translate import TranslateRequest

PATH, LIMITS = "/v1/text/translate", "/v1/limits"
TEXTS = ["Hello", "Good morning"]


def said(*translations, texts=TEXTS, credits_used=17.0, **changes):
    pairs = zip(texts, translations or ("Salut", "Bonjour"), strict=True)
    fields = {
        "translations": [{"source_text": s, "translated_text": t} for s, t in pairs],
        "metadata": {"target_language": "fr-FR", "credits_used": credits_used},
    }
    return fields | changes


@pytest.fixture
def answers(odd):
    def script(body=None, headers=None, status=200):
        odd.script(odd.answer(status, said() if body is None else body, headers), path=PATH)

    script()
    return script


async def test_texts_come_back_in_their_order(odd, answers, client, key):
    answers(headers={"X-Trace-Id": "trace-7"})
    found = await client.translate(TEXTS, target="fr_fr")
    assert found.translations == ("Salut", "Bonjour")
    assert (found.routes, found.text_warnings, found.warnings) == ((None, None), ((), ()), ())
    assert (found.billed_characters, found.credits_used, found.remaining_characters) == (17, 17.0, None)
    assert (found.trace_id, found.region, found.attempts, found.audio_seconds) == (
        "trace-7",
        "global",
        1,
        0.0,
    )
    assert found.latency_ms > 0
    (seen,) = odd.seen
    assert (seen.method, seen.path, seen.headers["api-key"]) == ("POST", PATH, key)
    assert json.loads(seen.body) == {"targetLanguage": "fr-FR", "texts": TEXTS}
    assert "X-Take" not in seen.headers


async def test_one_text_is_a_list_of_one(odd, answers, client):
    answers(said("Salut", texts=["Hello"], credits_used=5.0))
    assert (await client.translate("Hello", target="fr")).translations == ("Salut",)


async def test_the_idempotency_key_goes_along(odd, answers, client):
    await client.translate(TEXTS, target="fr", idempotency_key="k-1")
    assert odd.seen[0].headers["Idempotency-Key"] == "k-1"


@pytest.mark.parametrize("page", [{"source_language": True}, {"source_language": "yes"}, {}, None])
async def test_the_language_of_the_texts_is_told_only_to_a_service_that_takes_it(odd, answers, client, page):
    body = {"service": "speechframe", **page} if page is not None else b""
    odd.script(odd.answer(404 if page is None else 200, body), path=LIMITS)
    for _ in range(2):
        await client.translate(TEXTS, target="fr-FR", source="en_us")
    sent = json.loads(odd.posts()[-1].body)
    assert sent.get("sourceLanguage") == ("en-US" if page == {"source_language": True} else None)
    assert len(odd.gets(LIMITS)) == 1


async def test_what_is_said_of_single_texts_stands_at_them(odd, answers, client):
    headers = [
        ("X-Speech-Warning", route_warning("en>pt-BR>fr", [0])),
        ("X-Speech-Warning", "already in fr and returned as they are: texts 1"),
        ("X-Speech-Warning", "the moon is full: texts and all"),
        ("X-Speech-Warning", route_warning("en>de", [7, 8])),
    ]
    odd.script(odd.answer(200, said(), headers), path=PATH)
    found = await client.translate(TEXTS, target="fr")
    assert found.routes == ("en>pt-BR>fr", None)
    assert found.text_warnings == ((), ("already in fr and returned as they are",))
    assert found.warnings == ("the moon is full: texts and all",)


async def test_a_text_that_came_back_as_it_is_went_no_way(odd, client):
    odd.script(odd.answer(200, {"service": "speechframe", "source_language": True}), path=LIMITS)
    headers = [("X-Speech-Warning", "already in fr and returned as they are: texts 1")]
    odd.script(odd.answer(200, said(), headers), path=PATH)
    found = await client.translate(TEXTS, target="fr", source="en")
    assert found.routes == ("en>fr", None)


async def test_another_price_than_ours_is_said(answers, client):
    answers(said(credits_used=20.0))
    found = await client.translate(TEXTS, target="fr")
    assert (found.credits_used, found.billed_characters) == (20.0, 17)
    assert found.warnings == ("the service says the call cost 20 credits, not 17",)


@pytest.mark.parametrize(
    ("says", "warnings"),
    [
        ("fr", ()),
        ("FR_fr", ()),
        ("French", ()),
        (None, ()),
        (7, ()),
        ("es-ES", ("the answer says it is in es-ES, not in fr-FR",)),
        ("fr-CA", ("the answer says it is in fr-CA, not in fr-FR",)),
    ],
)
async def test_another_language_than_the_one_wanted_is_said(answers, client, says, warnings):
    answers(said(metadata={"target_language": says, "credits_used": 17.0}))
    found = await client.translate(TEXTS, target="fr-FR")
    assert (found.target, found.warnings) == (says if isinstance(says, str) else None, warnings)
    assert found.notes == warnings


async def test_a_key_in_the_place_of_a_language_is_not_shown(answers, client, key):
    for says in (key, "x" * 30 + key):
        answers(said(metadata={"target_language": says, "credits_used": 17.0}))
        found = await client.translate(TEXTS, target="fr-FR")
        assert key[:8] not in repr(found)


@pytest.mark.parametrize(
    ("texts", "target", "source", "words"),
    [
        ([], "fr", None, "texts"),
        (["  "], "fr", None, "texts"),
        (["x"] * (MAX_TEXTS_PER_CALL + 1), "fr", None, "texts"),
        (["x" * (MAX_TRANSLATE_CHARACTERS + 1)], "fr", None, "is too long"),
        ([5], "fr", None, "texts"),
        (["x"], "no such", None, "target_language"),
        (["x"], "fr", "??", "source_language"),
        (["x"], None, None, "targetLanguage"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_it_is(odd, client, texts, target, source, words):
    with pytest.raises(InvalidRows, match=words):
        await client.translate(texts, target=target, source=source)
    assert odd.seen == []


@pytest.mark.parametrize(
    ("status", "error"), [(400, BadRequest), (402, PaymentRequired), (403, PermissionDenied)]
)
async def test_refusals_are_errors_without_the_key(odd, answers, client, key, status, error):
    answers({"error_message": f"no, {key}"}, status=status)
    with pytest.raises(error) as caught:
        await client.translate(TEXTS, target="fr")
    assert key not in repr(caught.value) + str(caught.value) + caught.value.body
    assert len(odd.seen) == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", {"translations": []}, said("Salut", "Bonjour", texts=TEXTS[::-1]),
     said(translations=[{"translated_text": "a"}]), said("Salut", "x" * 10_000)],
)  # fmt: skip
async def test_answers_that_cannot_be_used_are_bad_answers(odd, answers, client, body):
    answers(body, headers={"X-Trace-Id": "trace-9"})
    with pytest.raises(BadAnswer) as caught:
        await client.translate(TEXTS, target="fr")
    assert caught.value.trace_id == "trace-9"
    assert len(odd.seen) == 1


@pytest.mark.slow
@pytest.mark.parametrize("step", ["endless", "bomb"])
async def test_an_answer_that_does_not_end_is_cut_off(odd, client, step):
    odd.script(getattr(odd, step)(), path=PATH)
    with pytest.raises(BadAnswer):
        await client.translate(TEXTS, target="fr")


async def test_the_time_limit_grows_with_the_characters(odd, settings):
    odd.script(odd.hang(), path=PATH)
    timeouts = Timeouts(base_s=0.05, per_translated_character_s=0.01)
    async with Client(settings, timeouts=timeouts) as client:
        with pytest.raises(TimedOut):
            await client.translate(["x"], target="fr")
    assert timeouts.translation_s(1000) == pytest.approx(10.05)


async def test_a_saturated_service_is_asked_again(odd, client):
    odd.script(odd.answer(503), odd.answer(200, said()), path=PATH)
    assert (await client.translate(TEXTS, target="fr")).attempts == 2


async def test_the_longest_answer_a_call_may_have_is_read(odd, client):
    texts = ["\U0001f600" * 100] * 50
    longest = "\U0001f600" * (1000 + 50 * 100)
    odd.script(odd.answer(200, said(*[longest] * 50, texts=texts, credits_used=5000.0)), path=PATH)
    found = await client.translate(texts, target="fr")
    assert set(found.translations) == {longest}
    assert len(json.dumps(said(*[longest] * 50, texts=texts))) < largest_answer(
        TranslateRequest(target_language="fr", texts=texts)
    )


def test_the_sync_client_is_the_same(odd, answers, settings):
    with SyncClient(settings) as client:
        assert client.translate(TEXTS, target="fr").translations == ("Salut", "Bonjour")


async def test_the_key_and_the_texts_are_in_no_repr(answers, client, key):
    call = make_translate_call(["a secret text"], target="fr")
    assert isinstance(call, Call)
    found = await client.translate(TEXTS, target="fr")
    assert key not in repr(found) + repr(client) + repr(call)
    assert "Salut" not in repr(found)
