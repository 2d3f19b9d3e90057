"""Packs of texts: as large as the service takes, and each answer at its own text."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe import Request
from speechframe.errors import BadAnswer
from speechframe.settings import Settings
from speechframe.verbs.translate import TranslateBackend
from speechframe.wire.translate import decode_translate


def packer(most_texts):
    """Return a backend whose calls take so many texts and 100 characters; a row's kind is its body."""
    backend = TranslateBackend(Settings(base_url="http://127.0.0.1:1", api_key="k"))
    backend._most_texts, backend._most_characters = most_texts, 100
    backend._get_languages = lambda request: request.body
    return backend


def request_of(number, kind, characters=20):
    return Request(b"", b"%d" % kind, 0, characters, key=f"{number:04d}")


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 120)), max_size=300), st.integers(1, 5))
def test_packs_are_full_of_one_kind_and_hold_less_than_a_call_of_each_kind(rows, most_texts):
    taken = 0

    def requests():
        nonlocal taken
        for number, (kind, characters) in enumerate(rows):
            taken += 1
            yield request_of(number, kind, characters)

    yielded = []
    for pack in packer(most_texts).pack(requests()):
        assert len({one.body for one in pack.rows}) == 1
        assert len(pack.rows) <= most_texts
        assert len(pack.rows) == 1 or sum(one.characters for one in pack.rows) <= 100
        yielded += pack.rows
        assert taken - len(yielded) <= len({kind for kind, _ in rows}) * most_texts
    assert sorted(int(one.key) for one in yielded) == list(range(len(rows)))


def test_packs_are_as_few_as_can_be():
    found = packer(4).pack(request_of(number, 7) for number in range(41))
    assert [len(pack.rows) for pack in found] == [4] * 10 + [1]


def read(entries, texts):
    return decode_translate(json.dumps({"translations": entries}).encode(), texts).texts


TEXTS = st.lists(
    st.sampled_from(["Don't", "Don\u2019t", "a  b", "a b", "\u201cc\u201d", "d", "e"]), min_size=1, max_size=8
)


@settings(max_examples=40)
@given(TEXTS, st.data())
def test_every_text_gets_its_own_translation_or_an_error_never_another_s(texts, data):
    entries = [{"source_text": text, "translated_text": f"<{text}>"} for text in texts]
    order = data.draw(st.permutations(range(len(texts))))
    lost = data.draw(st.sets(st.sampled_from(range(len(texts))), max_size=len(texts) - 1))
    said = read([entries[place] for place in order if place not in lost], texts)
    plain = {"Don\u2019t": "Don't", "a  b": "a b", "\u201cc\u201d": '"c"'}
    assert sum(isinstance(one, BadAnswer) for one in said) == len(lost)
    for text, one in zip(texts, said, strict=True):
        if isinstance(one, str):
            own = one[1:-1]
            assert plain.get(own, own) == plain.get(text, text)
            if not lost:
                assert own == text


def test_an_entry_whose_quotes_are_spelled_otherwise_is_taken_by_its_place():
    texts = ["Don\u2019t go", "Don't go", "x"]
    entries = [{"source_text": "Don't  go", "translated_text": str(place)} for place in range(2)]
    said = read([*entries, {"source_text": "x", "translated_text": None}], texts)
    assert list(said[:2]) == ["0", "1"]
    assert "no translated_text" in str(said[2])
    unnamed = read([{"translated_text": "0"}, {"translated_text": "1" * 5000}], ["a", "b"])
    assert unnamed[0] == "0"
    assert "5,000 characters" in str(unnamed[1])


@pytest.mark.parametrize("entries", [[], [{}], [None], [{"source_text": "other", "translated_text": "x"}]])
def test_an_answer_without_any_usable_translation_is_bad_as_a_whole(entries):
    with pytest.raises(BadAnswer):
        read(entries, ["a"])
