"""JSON of callers: what is counted is what the parser would make, whatever stands in its texts."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.spec.chosen import MAX_JSON_DEPTH, MAX_JSON_VALUES
from speechframe.spec.fields._json import read_json

TEXTS = st.text(st.sampled_from('\\"[]{},:a\n\u00e9'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.none() | st.just(1))
def test_what_is_json_is_read_as_it_stands(value, ascii_only, indent):
    assert read_json(json.dumps(value, ensure_ascii=ascii_only, indent=indent)) == value


@given(TEXTS)
def test_signs_in_texts_are_no_values(text):
    many = text * MAX_JSON_VALUES
    assert read_json(json.dumps({"text": many})) == {"text": many}


@pytest.mark.parametrize("unit", ["0", "{}", '"\\"",{"\\\\":0}'])
def test_a_text_may_have_so_many_values_and_no_more(unit):
    def listed(count):
        return "[" + ",".join([unit] * count) + "]"

    values = json.dumps(json.loads(f"[{unit}]")).count(",") + unit.count("{") + unit.count("[")
    most = MAX_JSON_VALUES // (1 + values) - 1
    assert len(read_json(listed(most))) >= most
    with pytest.raises(ValueError, match=f"too many values; allowed: {MAX_JSON_VALUES:,}"):
        read_json(listed(most + 4))


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_it_may_be_nested_so_deeply_and_no_deeper(opened, closed):
    def nested(levels):
        return opened * levels + ("0" if opened != "[" else "") + closed * levels

    read_json(nested(MAX_JSON_DEPTH))
    for levels in (MAX_JSON_DEPTH + 1, sys.getrecursionlimit() * 2):
        with pytest.raises(ValueError, match=f"nested too deeply; allowed: {MAX_JSON_DEPTH} levels"):
            read_json(nested(levels))


def test_a_number_of_thousands_of_digits_is_not_worked_out():
    with pytest.raises(ValueError, match="5,000 digits; allowed: 400"):
        read_json("[" + "1" * 5000 + "]")
