"""Translation bodies: canonical on the way out, and on the way in whatever can be made of them, never swapped."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.errors import BadAnswer
from speechframe.spec.translate import TranslateRequest
from speechframe.wire.requests import encode_request
from speechframe.wire.translate import decode_translate, get_max_translation_characters

TEXTS = ["Hello", "Good morning"]
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)


def answer(pairs, **changes):
    fields = {
        "translations": [{"source_text": s, "translated_text": t} for s, t in pairs],
        "metadata": {
            "target_language": "fr-FR",
            "credits_used": 17.0,
            "character_count": {"total_source_text_length": 17, "total_translated_text_length": 14},
        },
    } | changes
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


GOOD = [("Hello", "Salut"), ("Good morning", "Bonjour")]


def test_a_good_answer():
    found = decode_translate(answer(GOOD), TEXTS)
    assert (found.texts, found.target, found.credits_used, found.notes) == (
        ("Salut", "Bonjour"),
        "fr-FR",
        17.0,
        (),
    )


@pytest.mark.parametrize(
    ("source", "body"),
    [
        (None, b'{"targetLanguage":"fr-FR","texts":["b","a"]}'),
        ("en", b'{"sourceLanguage":"en","targetLanguage":"fr-FR","texts":["b","a"]}'),
    ],
)
def test_equal_requests_give_equal_bytes(source, body):
    request = TranslateRequest(texts=["b", "a"], target_language="fr-FR", source_language=source)
    assert encode_request(request) == body


@given(st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_what_comes_is_what_was_said(pairs):
    for encoded in (answer(pairs), json.dumps(json.loads(answer(pairs)), ensure_ascii=False).encode()):
        assert decode_translate(encoded, [s for s, _ in pairs]).texts == tuple(t for _, t in pairs)


@given(st.lists(st.text("abcdef", min_size=1, max_size=5), min_size=2, max_size=6, unique=True), st.data())
def test_translations_are_those_of_their_texts_in_any_order(texts, data):
    order = data.draw(st.permutations(range(len(texts))))
    body = answer([(texts[i], texts[i].upper()) for i in order])
    assert decode_translate(body, texts).texts == tuple(text.upper() for text in texts)


@pytest.mark.parametrize(
    "source", ["Hello", " Hello\n", None],
)  # fmt: skip
def test_a_source_may_be_missing_or_trimmed(source):
    assert decode_translate(answer([(source, "Salut")]), ["Hello"]).texts == ("Salut",)


def test_a_source_may_be_composed_otherwise():
    assert decode_translate(answer([("Cafe\u0301", "Kaffee")]), ["Caf\u00e9"]).texts == ("Kaffee",)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (answer(GOOD, translations={"a": 1}), "no list of translations"),
        (answer(GOOD, translations=["Salut", "Bonjour"]), "no translated_text for this text"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(body, words):
    with pytest.raises(BadAnswer, match=words):
        decode_translate(body, TEXTS)


@pytest.mark.parametrize(
    ("pairs", "place", "words"),
    [
        (GOOD[:1], 1, "no translation of this text"),
        ([GOOD[0], ("Other", "Bonjour")], 1, "no translation of this text"),
        ([GOOD[0], ("Good morning", 5)], 1, "no translated_text for this text"),
        ([("Hello", "x" * 1251), GOOD[1]], 0, "has 1,251 characters"),
    ],
)
def test_an_entry_that_cannot_be_used_costs_its_text_alone(pairs, place, words):
    found = decode_translate(answer(pairs), TEXTS).texts
    assert [isinstance(one, BadAnswer) for one in found] == [place == 0, place == 1]
    assert words in str(found[place])


def test_the_longest_translation_is_taken():
    longest = "x" * get_max_translation_characters("Hello")
    assert decode_translate(answer([("Hello", longest)]), ["Hello"]).texts == (longest,)


@pytest.mark.parametrize(
    "metadata",
    [None, 5, {"credits_used": "17"}, {"credits_used": -1}, {"credits_used": 2.0**52}, {"credits_used": 1e300, "target_language": ["fr"]}],
)  # fmt: skip
def test_metadata_may_be_anything(metadata):
    found = decode_translate(answer(GOOD, metadata=metadata), TEXTS)
    assert (found.texts, found.credits_used, found.target) == (("Salut", "Bonjour"), None, None)
    assert len(found.notes) == 1


@pytest.mark.parametrize("bad", [b'"Sal\\ud800ut"', b'"Sal\xffut"'])
def test_half_a_character_is_repaired_and_said(bad):
    body = answer([("Hello", "HERE")]).replace(b'"HERE"', bad)
    found = decode_translate(body, ["Hello"])
    assert found.texts == ("Sal\ufffdut",)
    assert found.notes == ("text in the answer was not valid Unicode and was repaired",)
    assert found.texts[0].encode()
