"""Locales: one normaliser for every spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.spec.locales import (
    convert_to_dubbing_spelling,
    find_nearest,
    get_display_name,
    get_language,
    is_certainly_different,
    normalise,
)

KNOWN = ["fr-FR", "en-US", "pt-BR", "zh-Hans-CN", "es-419", "sr-Latn-RS", "yue-HK", "fil-PH", "hi-IN", "de"]


@given(st.sampled_from(KNOWN), st.sampled_from("-_"), st.sampled_from([str, str.upper, str.lower, str.title]))
def test_every_spelling_becomes_the_house_spelling(tag, separator, case):
    spelled = case(tag.replace("-", separator))
    assert normalise(spelled) == tag
    assert normalise(normalise(spelled)) == tag
    assert convert_to_dubbing_spelling(spelled) == tag.replace("-", "_")
    assert normalise(convert_to_dubbing_spelling(spelled)) == tag
    assert get_language(spelled) == tag.split("-")[0]


def test_only_the_spelling_changes():
    assert normalise("en_uk") == "en-UK"
    assert normalise("iw-IL") == "iw-IL"
    assert normalise(" fr-FR ") == "fr-FR"


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "hinglish",
        "xx-YY",
        "fr--FR",
        "en-US-nora",
        "x" * 500,
        "fr-\n",
    ],
)
def test_nonsense_is_refused_by_name(tag):
    with pytest.raises(ValueError, match="is not a locale") as refused:
        normalise(tag)
    assert len(str(refused.value)) < 120


@given(st.text(max_size=12))
def test_any_text_is_a_locale_or_a_value_error(text):
    try:
        tag = normalise(text)
    except ValueError:
        return
    assert normalise(tag) == tag


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("fr-FR", "French (France)"),
        ("hi", "Hindi"),
    ],
)
def test_display_names(tag, name):
    assert get_display_name(tag) == name


def test_nearest_offers_the_same_language_first():
    options = ["de-DE", "fr-CA", "fr-FR", "en-US", "en-GB"]
    assert find_nearest("fr_fr", options)[0] == "fr-FR"
    assert find_nearest("fr-BE", options) == ["fr-CA", "fr-FR"]
    assert find_nearest("en-UK", options) == ["en-US", "en-GB"]
    assert find_nearest("d-DE", options)[0] == "de-DE"
    assert find_nearest("", options) == []
    assert find_nearest("x" * 10_000, options) == []
    assert len(find_nearest("en", [f"en-{n:03}" for n in range(100)])) == 3


@pytest.mark.parametrize(
    ("tag", "wanted", "expected"),
    [
        ("nb", "no-NO", False),
        ("zh-Hans-CN", "zh-CN", False),
        ("zh-TW", "zh-CN", True),
        ("por", "pt-BR", False),
        ("en", "fr", True),
        ("es-419", "es-MX", False),
        ("es-MX", "es-419", False),
        ("en-150", "en-GB", False),
        ("es-ES", "es-MX", True),
        ("", "fr", False),
        ("\ud800", "fr", False),
        ("x" * 5000, "fr", False),
    ],
)
def test_a_locale_is_another_one_only_when_that_is_sure(tag, wanted, expected):
    assert is_certainly_different(tag, wanted) is expected
