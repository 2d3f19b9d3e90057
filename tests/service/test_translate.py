"""``POST /v1/text/translate``: shape, order, prices, the way texts go, what is refused; over a real service."""

import asyncio
import io
import json
import os
import random
import shutil
import time

import pytest
from convert_lab import with_path
from hypothesis import given
from hypothesis import strategies as st
from socket_lab import at_work
from translate_lab import install

from speechframe.local.engines.translation import firefox_models
from speechframe.local.service.http.answers import escape_warning
from speechframe.spec import chosen
from speechframe.spec.codes import HttpErrorCode
from speechframe.wire.errors import read_retry_after_s

PATH = "/v1/text/translate"


@pytest.fixture(scope="module")
def translating(start, tmp_path_factory):
    """A service with the packaged models and a translator of moods."""
    folder = install(tmp_path_factory.mktemp("translator"))
    before = os.environ["PYTHONPATH"]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), before])
    keys = ["main", "narrow:1000000:1", "two:1000000:2", "poor:20", "spare:100000"]
    try:
        with start(keys=keys, workers=2, options=["--job-timeout-s", "60"]) as running:
            yield running
    finally:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def http(session, translating, http_to):
    return http_to(translating, "main")


@pytest.fixture
def translate(http):
    async def ask(texts, target="pt-BR", *, key=..., headers=None, **fields):
        body = {"targetLanguage": target, "texts": texts, **fields}
        return await http.ask("POST", PATH, key=key, headers=headers, json=body)

    return ask


def said(answer):
    assert answer.status == 200, answer.message
    return [entry["translated_text"] for entry in answer.json["translations"]]


def routes(answer):
    return [found for words in answer.warnings if (found := chosen.read_route(words)) is not None]


LINES = [
    "We need more time to finish this project.",
    "Please send me the report before Friday.",
    "Good morning, Anna.",
]


async def test_an_answer_has_the_fields_of_the_document_and_nothing_else(translate):
    answer = await translate(LINES)
    assert answer.status == 200
    body = answer.json
    assert set(body) == {"translations", "metadata"}
    assert set(body["metadata"]) == {"target_language", "credits_used", "character_count"}
    assert all(set(entry) == {"source_text", "translated_text"} for entry in body["translations"])
    assert [entry["source_text"] for entry in body["translations"]] == LINES
    assert said(answer)[0] == "Precisamos de mais tempo para terminar este projeto."
    assert body["metadata"]["target_language"] == "pt-BR"
    characters = sum(map(len, LINES))
    assert body["metadata"]["credits_used"] == float(characters)
    assert body["metadata"]["character_count"] == {
        "total_source_text_length": characters,
        "total_translated_text_length": sum(map(len, said(answer))),
    }


async def test_order_and_repetitions_of_a_full_call_are_kept(translate):
    rng = random.Random(4)
    texts = [f"Room {rng.randint(1, 60)} is open until {rng.randint(1, 12)}." for _ in range(200)]
    assert len(set(texts)) < len(texts)
    assert said(await translate(texts, "eo", sourceLanguage="en")) == [f"eo({text})" for text in texts]


async def test_lengths_count_code_points(translate):
    texts = ["Hello 👩‍👩‍👧, my friend.", "e\u0301cole"]
    answer = await translate(texts, sourceLanguage="en")
    count = answer.json["metadata"]["character_count"]
    assert count["total_source_text_length"] == sum(map(len, texts))
    assert count["total_translated_text_length"] == sum(map(len, said(answer)))
    assert "👩‍👩‍👧" in said(answer)[0]


async def test_nothing_is_invented_for_what_cannot_be_read(translate):
    texts = ["12:30", "😀", "https://example.com/a?b=c", "Привет мир", "..."]
    assert said(await translate(texts, sourceLanguage="en")) == texts


async def test_it_is_billed_by_characters_from_the_balance_of_speech(translate, http):
    before = await http.remaining("spare")
    texts = ["  Hello there.  ", "Hello there.", "Hello there."]
    answer = await translate(texts, key="spare", sourceLanguage="en")
    assert answer.status == 200
    cost = sum(map(len, texts))
    assert answer.json["metadata"]["credits_used"] == cost
    assert await http.remaining("spare") == before - cost
    spoken = await http.generate("hello there", key="spare")
    assert spoken.json["remainingCharacterCount"] == before - cost - len("hello there")


@pytest.mark.parametrize("target", ["pt", "PT_br"])
async def test_a_target_in_any_spelling_and_without_a_region(translate, target):
    answer = await translate(LINES[:1], target)
    assert said(answer) == ["Precisamos de mais tempo para terminar este projeto."]
    assert answer.json["metadata"]["target_language"] == "pt-BR"
    assert routes(answer) == [("en>pt-BR", [0])]
    assert len(answer.warnings) == 1


async def test_another_region_comes_with_a_warning(translate):
    answer = await translate(LINES[:1], "pt-PT")
    assert answer.json["metadata"]["target_language"] == "pt-BR"
    assert "pt-PT is not known here; the translation is in pt-BR" in answer.warnings
    answer = await translate(["Precisamos de mais tempo."], "en", sourceLanguage="pt-PT")
    assert "pt-PT is not known here; the text was read as pt-BR" in answer.warnings


async def test_a_bad_direct_pair_is_avoided_and_the_pivot_is_said(translate):
    answer = await translate(LINES[:2], "es", sourceLanguage="en")
    assert said(answer)[0] == "es(Precisamos de mais tempo para terminar este projeto.)"
    assert routes(answer) == [("en>pt-BR>es", [0, 1])]


async def test_languages_are_told_text_by_text_and_each_route_is_said(translate):
    texts = [
        "The weather is nice today.",
        "O tempo está muito bom hoje.",
        "Where is the station?",
        "A casa é grande e bonita.",
    ]
    answer = await translate(texts, "es")
    assert said(answer)[1] == "es(O tempo está muito bom hoje.)"
    assert routes(answer) == [("en>pt-BR>es", [0, 2]), ("pt-BR>es", [1, 3])]


async def test_a_text_of_the_targets_language_comes_back_as_it_is_and_is_billed(translate, http):
    before = await http.remaining("spare")
    texts = ["The weather is nice today.", "O tempo está muito bom hoje."]
    answer = await translate(texts, "pt", key="spare")
    assert said(answer)[1] == texts[1]
    assert "already in pt and returned as they are: texts 1" in answer.warnings
    assert await http.remaining("spare") == before - sum(map(len, texts))


async def test_a_source_that_is_given_is_believed(translate):
    answer = await translate(["Error"], sourceLanguage="EN_us")
    assert said(answer) == ["Erro"]
    assert routes(answer) == [("en>pt-BR", [0])]


async def test_the_page_of_limits_tells_what_is_translated_and_how_much_at_once(http):
    page = (await http.get("/v1/limits")).json
    assert page["max_texts_per_call"] == chosen.MAX_TEXTS_PER_CALL
    assert page["max_translate_characters"] == chosen.MAX_TRANSLATE_CHARACTERS
    assert page["source_language"] is True
    pairs = page["translation"]["pairs"]
    assert {"source": "en", "target": "pt-BR", "quality": "neural", "route": "en>pt-BR"} in pairs
    assert {"source": "en", "target": "es", "quality": "rules", "route": "en>pt-BR>es"} in pairs
    assert {pair["source"] for pair in pairs} == set(page["translation"]["sources"])
    assert {pair["target"] for pair in pairs} == set(page["translation"]["targets"])
    assert "firefox-" in page["identities"]["translate"]


class TestRefused:
    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"texts": ["a"]}, "targetLanguage"),
            ({"targetLanguage": "pt", "texts": []}, "texts"),
            ({"targetLanguage": "no such", "texts": ["a"]}, "targetLanguage: 'no such' is not a locale"),
            ({"targetLanguage": "pt", "texts": ["a", "", " \n", "b"]}, "empty texts (places 1, 2, counted from 0)"),
            ({"targetLanguage": "pt", "texts": ["a"] * 201}, "array of string, at most 200"),
            ({"targetLanguage": "pt", "texts": ["x" * 50_000, "x" * 50_001]}, "100,000"),
            ({"targetLanguage": "fr", "texts": ["a"]}, "no translation to fr; supported: en>"),
            ({"targetLanguage": "eo", "texts": ["a"], "sourceLanguage": "fr"}, "from fr to eo; supported: en>eo, "),
        ],
    )  # fmt: skip
    async def test_what_cannot_be_done_is_400_saying_why_and_costs_nothing(self, http, body, words):
        before = await http.remaining()
        answer = await http.ask("POST", PATH, json=body)
        assert (answer.status, answer.code) == (400, HttpErrorCode.INVALID_REQUEST)
        assert words in answer.message
        assert await http.remaining() == before

    @pytest.mark.rule("auth.key-header-translate")
    @pytest.mark.parametrize("key", [None, "nobody"])
    async def test_without_a_good_key_it_is_403(self, translate, key):
        answer = await translate(LINES, key=key)
        assert (answer.status, answer.code) == (403, HttpErrorCode.INVALID_KEY)

    async def test_more_than_the_quota_is_402(self, translate, http):
        answer = await translate(["x" * 21], key="poor", sourceLanguage="en")
        assert (answer.status, answer.code) == (402, HttpErrorCode.QUOTA_EXHAUSTED)
        assert "the texts have 21 characters" in answer.message
        assert (await translate(["x" * 20], key="poor", sourceLanguage="en")).status == 200
        assert await http.remaining("poor") == 0

    @pytest.mark.parametrize("mood", ["crash", "refuse", "raise it", "twice"])
    async def test_an_engine_that_fails_is_500_and_nothing_is_billed(self, translate, http, mood):
        before = await http.remaining()
        answer = await translate(["fine", mood, "fine too"], "eo", sourceLanguage="en")
        assert (answer.status, answer.code) == (500, HttpErrorCode.INTERNAL_ERROR)
        assert "nothing was billed" in answer.message
        assert "secret" not in answer.message
        assert await http.remaining() == before
        assert said(await translate(["fine"], "eo", sourceLanguage="en")) == ["eo(fine)"]

    @pytest.mark.slow
    async def test_an_engine_that_hangs_is_500_and_nothing_is_billed(self, start_with, tmp_path, http_to):
        engine, options = with_path(str(install(tmp_path))), ["--idle-timeout-s", "2"]
        asked = {"targetLanguage": "eo", "texts": ["fine", "hang", "fine too"], "sourceLanguage": "en"}
        with start_with(engine, keys=["main"], workers=1, options=options) as impatient:
            http = http_to(impatient)
            before = await http.remaining()
            answer = await http.ask("POST", PATH, json=asked)
            assert (answer.status, answer.code) == (500, HttpErrorCode.INTERNAL_ERROR)
            assert "nothing was billed" in answer.message
            assert await http.remaining() == before
            assert said(await http.ask("POST", PATH, json={**asked, "texts": ["fine"]})) == ["eo(fine)"]

    async def test_a_body_that_stalls_is_400(self, hasty):
        host = hasty.url.removeprefix("http://")
        name, _, port = host.partition(":")
        reader, writer = await asyncio.open_connection(name, int(port))
        writer.write(
            f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\napi-key: main\r\nContent-Length: 99\r\n\r\n{{".encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        writer.close()
        assert head.startswith(b"HTTP/1.1 400 ")

    async def test_a_body_may_be_as_large_as_the_texts_it_can_hold_and_no_larger(self, http):
        body = {"targetLanguage": "eo", "sourceLanguage": "en", "texts": ["👍" * 100_000]}
        data = json.dumps(body)
        assert len(data) > 1_200_000, "each is written as twelve letters"
        answer = await http.ask("POST", PATH, data=io.BytesIO(data.encode()))
        assert said(answer) == [f"eo({'👍' * 1000})" * 100]
        answer = await http.ask("POST", PATH, data=io.BytesIO(b" " * 1_300_000))
        assert (answer.status, answer.code) == (400, HttpErrorCode.PAYLOAD_TOO_LARGE)
        assert "100,000 characters" in answer.message


@pytest.mark.rule("status.translate-subset")
async def test_whatever_comes_translation_answers_only_its_statuses(http):
    rng = random.Random(5)
    values = [None, True, -1, "x", "", [], {}, ["a"], [""], [None], "pt", "en", "eo", "zz-ZZ", ["\u0000"]]
    seen = set()
    for _ in range(60):
        body = {"targetLanguage": "eo", "texts": ["hi"], "sourceLanguage": "en"}
        for name in rng.sample(sorted(body), 2):
            body[name] = rng.choice(values)
        seen.add((await http.ask("POST", PATH, json=body)).status)
    assert seen == {200, 400}


class TestIdempotency:
    async def test_a_repeat_is_the_same_answer_and_bills_nothing(self, translate, http):
        headers = {chosen.IDEMPOTENCY_HEADER: "translated-once"}
        before = await http.remaining("spare")
        first = await translate(LINES, key="spare", headers=headers)
        again = await translate(LINES, key="spare", headers=headers)
        assert again.json == first.json
        assert await http.remaining("spare") == before - sum(map(len, LINES))

    @pytest.mark.parametrize(
        "other",
        [{"texts": LINES[::-1]}, {"target": "es"}, {"sourceLanguage": "en"}],
    )
    async def test_the_key_of_another_request_is_400(self, translate, other):
        headers = {chosen.IDEMPOTENCY_HEADER: f"bound-{sorted(other)}{len(str(other))}"}
        asked = {"texts": LINES, "target": "pt"}
        assert (await translate(**asked, headers=headers)).status == 200
        answer = await translate(**{**asked, **other}, headers=headers)
        assert (answer.status, answer.code) == (400, HttpErrorCode.INVALID_REQUEST)

    async def test_a_call_that_failed_is_a_new_one(self, translate, http):
        headers = {chosen.IDEMPOTENCY_HEADER: "failed-first"}
        before = await http.remaining("spare")
        texts = ["refuse"]
        for _ in range(2):
            assert (
                await translate(texts, "eo", key="spare", headers=headers, sourceLanguage="en")
            ).status == 500
        assert await http.remaining("spare") == before


class TestOverTheCap:
    async def test_a_call_waits_for_its_turn(self, translate, http, hold):
        def one(words):
            return asyncio.ensure_future(translate([words], "eo", key="narrow", sourceLanguage="en"))

        first = one(hold.text)
        await at_work(http, 1)
        second = one("soon")
        await asyncio.sleep(0.5)
        assert not first.done()
        assert not second.done()
        hold.let_go()
        assert [answer.status for answer in await asyncio.gather(first, second)] == [200, 200]

    async def test_more_than_may_wait_are_503_with_retry_after_and_cost_nothing(
        self, translate, http, hold, tools
    ):
        before = await http.remaining("two")
        calls = [translate([hold.text], "eo", key="two", sourceLanguage="en") for _ in range(7)]
        calls = list(map(asyncio.ensure_future, calls))
        await tools.until(lambda: sum(call.done() for call in calls) == 3)
        hold.let_go()
        answers = await asyncio.gather(*calls)
        refused = [answer for answer in answers if answer.status == 503]
        assert len(refused) == 3, "two at work, two in the queue"
        for answer in refused:
            assert answer.code == HttpErrorCode.UNAVAILABLE
            assert read_retry_after_s(answer.headers) > 0
        assert await http.remaining("two") == before - 4 * len(hold.text)


@pytest.mark.quiet
async def test_a_long_call_runs_on_all_workers_and_lets_others_through(translate):
    texts = [f"sleep 0.2{n:02} {'x' * 900}" for n in range(20)]
    started = time.monotonic()
    long = asyncio.ensure_future(translate(texts, "eo", sourceLanguage="en"))
    await asyncio.sleep(0.3)
    short = await translate(["soon"], "eo", key="spare", sourceLanguage="en")
    assert short.status == 200
    assert not long.done(), "the short one did not wait for the end of the long one"
    assert len(said(await long)) == 20
    assert time.monotonic() - started < 20 * 0.2, "one after the other takes longer"


async def idle_within(http, limit_s):
    """Wait until no worker has anything to do."""
    end = time.monotonic() + limit_s
    while (workers := (await http.get("/healthz")).json["workers"])["busy"] or workers["waiting"]:
        assert time.monotonic() < end, workers
        await asyncio.sleep(0.05)


async def test_a_caller_that_goes_away_pays_nothing_and_stops_the_work(translate, http):
    before = await http.remaining("spare")
    # All of them together take 45 seconds at least.
    texts = [f"sleep 1.5{n:02} {'x' * 900}" for n in range(60)]
    call = asyncio.ensure_future(translate(texts, "eo", key="spare", sourceLanguage="en"))
    await at_work(http, 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await idle_within(http, 20)
    assert await http.remaining("spare") == before


async def test_where_one_slice_fails_the_others_are_not_done(translate, http):
    texts = ["refuse " + "x" * 900, *(f"sleep 1.5{n:02} {'x' * 900}" for n in range(60))]
    started = time.monotonic()
    assert (await translate(texts, "eo", key="spare", sourceLanguage="en")).status == 500
    await idle_within(http, 20)
    assert time.monotonic() - started < 30, "all of them together take 45 seconds at least"


async def test_a_long_text_is_cut_and_put_together_again(translate):
    text = " ".join(["We need more time to finish this project."] * 60) + "\n\nThe end."
    answer = await translate([text], sourceLanguage="en")
    words = said(answer)[0]
    assert words.endswith("\n\nO fim.")
    assert words.count("projeto") == 60


@pytest.fixture
def model_folder(tmp_path):
    """The packaged English model as a folder of the user's, called Galician."""
    packaged = next(model for model in firefox_models.find_packaged_models() if model.source == "en")
    folder = tmp_path / "engl"
    folder.mkdir()
    for path in (packaged.model, packaged.source_vocabulary, packaged.shortlist):
        shutil.copy(path, folder / path.name.replace("enpt", "engl"))
    return folder


@pytest.mark.slow
async def test_model_folders_of_the_users_are_served_beside_what_is_installed(start, http_to, model_folder):
    with start(workers=1, translation_models=[model_folder]) as service:
        http = http_to(service)
        answer = await http.ask("POST", PATH, json={"targetLanguage": "gl", "texts": ["Save changes"]})
        assert said(answer) == ["Salvar mudanças"]
        assert answer.json["metadata"]["target_language"] == "gl"
        page = (await http.get("/v1/limits")).json["translation"]
        assert {"gl", "pt-BR"} <= set(page["targets"])
        with_folder = (await http.get("/v1/limits")).json["identities"]["translate"]
    with start(workers=1) as service:
        assert (await http_to(service).get("/v1/limits")).json["identities"]["translate"] != with_folder


def test_a_model_folder_that_is_none_is_said_at_the_start(tools, tmp_path):
    ran = tools.run_service("--port", "0", "--data", str(tmp_path), "--translation-models", "/no/such/folder")
    assert ran.returncode == 1
    assert "--translation-models: /no/such/folder is not a folder" in ran.stderr


@given(
    st.sets(st.integers(0, chosen.MAX_TEXTS_PER_CALL - 1), min_size=1),
    st.sampled_from(["en>pt-BR", "a>b>c>d"]),
)
def test_what_is_said_of_a_route_can_be_read_and_fits_into_a_header(texts, route):
    words = chosen.make_route_warning(route, texts)
    assert chosen.read_route(words) == (route, sorted(texts))
    assert len(escape_warning(words)) == len(words) < 1000
    for other in ("route: en>pt", "route: ; texts 1", "already in pt", "route: en>pt; texts x", ""):
        assert chosen.read_route(other) is None
