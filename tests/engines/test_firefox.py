"""The Firefox models: what is translated, what models cannot read, which there are."""

import os
import re
import shutil
import time
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.engines.base import Quality, TranslationPair
from speechframe.errors import EngineError
from speechframe.local.engines.models import FIREFOX_PAIRS
from speechframe.local.engines.translation import firefox, firefox_models
from speechframe.local.engines.translation.firefox import FirefoxTranslator
from speechframe.local.engines.translation.text import split_portions, translate_protected
from speechframe.local.engines.translation.vocabulary import Alphabet
from speechframe.testing.suites.translators import TranslatorSuite

EN_PT = TranslationPair("en", "pt-BR", Quality.NEURAL)
PT_EN = TranslationPair("pt-BR", "en", Quality.NEURAL)


one_for_all = lru_cache(FirefoxTranslator)
"""Each loads its models anew."""


@pytest.fixture(scope="module")
def models():
    return one_for_all()


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    """A folder of the user's: the packaged English model, called Galician, so that nobody confuses the two."""

    def make(name="engl", **renamed):
        packaged = next(model for model in firefox_models.find_packaged_models() if model.source == "en")
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        for path in (packaged.model, packaged.source_vocabulary, packaged.shortlist):
            plain = path.name.replace("enpt", renamed.get("key", "engl"))
            shutil.copy(path, folder / plain)
        monkeypatch.setenv(firefox_models.FOLDERS_VARIABLE, str(tmp_path / "models"))
        return folder

    return make


class TestFirefox(TranslatorSuite):
    engine = one_for_all


@pytest.mark.slow
class TestFirefoxAnew(TranslatorSuite):
    engine = FirefoxTranslator


def test_the_packaged_models_are_english_and_brazilian_portuguese(models):
    assert set(models.pairs()) >= {EN_PT, PT_EN}
    assert models.version.startswith(version("fxtranslate") + "+")


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("Save changes", "Salvar mudanças"),
        ("We need more time to finish this project.", "Precisamos de mais tempo para terminar este projeto."),
        ("  Good morning, Anna.\n", "  Bom dia, Anna.\n"),
        (
            "Good morning, Anna.\r\n\r\n\tThank you for your help.",
            "Bom dia, Anna.\r\n\r\n\tObrigado pela sua ajuda.",
        ),
        ("<b>Save changes</b>", "<b>Salvar mudanças</b>"),
    ],
)
def test_texts_are_translated_and_what_is_around_them_stays(models, text, translation):
    assert models.translate([text], EN_PT) == [translation]


def test_nothing_is_invented_for_what_the_model_cannot_read(models):
    texts = ["", " ", "\n\t", "12.50", "👩‍👩‍👧", "https://example.com/a?b=c", "me@example.com"]
    texts += ["Привет мир", "你好，世界", "...", "\u200b", "{name}", "%s"]
    assert models.translate(texts, EN_PT) == texts


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Hello 😀", ["😀"]),
        ("It costs £5.00 or €6.", ["£5.00", "€6"]),
        ("Mr. Müller lives in Zürich.", ["Müller", "Zürich"]),
        (
            "Visit https://example.com/a?b=c now, or write to me@example.com.",
            ["https://example.com/a?b=c", "me@example.com"],
        ),
        ("Hello {name}, you have {n} new messages.", ["{name}", "{n}"]),
        ("PZ0 and XPH1 met {x} in the house.", ["PZ0", "XPH1", "{x}"]),
        ("Please read x^2+y^2 before Friday.", ["x^2+y^2"]),
        (
            r"Welcome, :Name (:count new)\nYou have {% if a %}mail{% endif %}.",
            [":Name", ":count", r"\n", "{% if a %}"],
        ),
        ('A <a title="a > b">red house</a> in the city.', ['<a title="a > b">']),
    ],
)
def test_what_it_cannot_read_inside_a_text_comes_through(models, text, kept):
    (words,) = models.translate([text], EN_PT)
    assert words != text
    for each in kept:
        assert words.count(each) == 1, words


def test_typed_quotes_and_capitals_with_accents_are_read(models):
    assert models.translate(["She said: \u201cDon\u2019t stop!\u201d"], EN_PT) == ['Ela disse: "Não pare!"']
    (words,) = models.translate(["ATENÇÃO: a porta está aberta."], PT_EN)
    assert "attention" in words.lower()


def test_a_long_text_takes_time_by_its_length_and_keeps_every_sentence(models):
    sentence = "We need more time to finish this project. "
    models.translate([sentence], EN_PT)
    started = time.process_time()
    models.translate([sentence * 10], EN_PT)
    short_s = time.process_time() - started
    started = time.process_time()
    (words,) = models.translate([sentence * 100], EN_PT)
    assert time.process_time() - started < 40 * short_s
    assert words.count("projeto") == 100


@pytest.mark.slow
def test_a_text_without_an_end_is_cut_before_it_costs_the_square_of_its_length(models):
    (words,) = models.translate(["the quick brown fox and a house " * 100], EN_PT)
    assert len(words) > 1000


def test_a_pair_without_a_model_is_an_error(models):
    with pytest.raises(EngineError, match="no model from en to fr"):
        models.translate(["Hello"], TranslationPair("en", "fr", Quality.NEURAL))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the installed package, found before it."""
    copy = tmp_path / FIREFOX_PAIRS.module
    shutil.copytree(FIREFOX_PAIRS.folder, copy)
    monkeypatch.syspath_prepend(tmp_path)
    return copy


def test_a_packaged_file_that_was_changed_is_not_loaded(package):
    lexicon = next(package.rglob("lex.50.50.enpt.s2t.bin"))
    data = bytearray(lexicon.read_bytes())
    data[1000] ^= 1
    lexicon.write_bytes(data)
    with pytest.raises(EngineError, match="is not the model file it should be") as refused:
        FirefoxTranslator().translate(["Hello"], EN_PT)
    assert str(lexicon) in str(refused.value)
    assert FirefoxTranslator().translate(["Obrigado pela sua ajuda."], PT_EN) == ["Thank you for your help."]


def test_a_model_that_is_new_in_the_package_is_none_of_ours(package):
    listed = next(package.rglob("model.enpt*.bin"))
    other = shutil.copytree(listed.parent, listed.parent.with_name("engl-1"))
    (other / "modelMeta.json").unlink()
    for path in sorted(other.glob("*enpt*")):
        path.rename(path.with_name(path.name.replace("enpt", "engl")))
    shutil.copy(listed, listed.with_name("model.aaaa.bin"))
    assert [model.model.name for model in firefox_models.find_packaged_models()] == [
        "model.enpt.intgemm.alphas.bin", "model.pten.intgemm.alphas.bin",
    ]  # fmt: skip
    assert set(FirefoxTranslator().pairs()) == {EN_PT, PT_EN}


@pytest.mark.parametrize("name", ["engl", "whatever"])
def test_a_folder_of_the_users_is_a_pair(model_folder, name):
    model_folder(name)
    pair = TranslationPair("en", "gl", Quality.NEURAL)
    before = FirefoxTranslator()
    assert pair in before.pairs()
    assert before.translate(["Save changes"], pair) == ["Salvar mudanças"]


def test_a_folder_says_its_pair_in_its_metadata(model_folder):
    folder = model_folder(key="xxxx")
    (folder / "metadata.json").write_text('{"sourceLanguage": "en", "targetLanguage": "ast"}')
    assert TranslationPair("en", "ast", Quality.NEURAL) in FirefoxTranslator().pairs()


def test_other_models_are_another_version(model_folder):
    before = FirefoxTranslator().version
    folder = model_folder()
    with_one = FirefoxTranslator().version
    assert with_one != before
    lexicon = next(folder.glob("lex*"))
    data = bytearray(lexicon.read_bytes())
    data[10] ^= 1
    lexicon.write_bytes(data)
    assert FirefoxTranslator().version not in {before, with_one}


def test_what_is_no_model_is_left_out_and_named(tmp_path, monkeypatch):
    for name in ("empty", "half", "void", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "half" / "model.enfr.bin").write_bytes(b"x")
    for path, make in {
        "void/model.ende.bin": Path.touch,
        "void/vocab.ende.spm": Path.touch,
        "pipe/model.enit.bin": Path.touch,
        "pipe/vocab.enit.spm": os.mkfifo,
        # Nobody would ever write into it.
        "pipe/metadata.json": os.mkfifo,
    }.items():
        make(tmp_path / path)
    monkeypatch.setenv(firefox_models.FOLDERS_VARIABLE, os.pathsep.join([str(tmp_path), "/no/such", ""]))
    translator = FirefoxTranslator()
    assert set(translator.pairs()) == {EN_PT, PT_EN}
    assert translator.version
    left_out = " ".join(translator.left_out())
    for words in (f"{tmp_path / 'half'} is left out", "model.ende.bin is empty", "/no/such cannot be read"):
        assert words in left_out
    assert f"{tmp_path / 'pipe'} is left out" in left_out
    assert len(translator.left_out()) == 4


def test_a_model_that_is_none_is_an_error_and_not_a_crash(model_folder):
    folder = model_folder()
    pair = TranslationPair("en", "gl", Quality.NEURAL)
    next(folder.glob("model*")).write_bytes(b"no model at all" * 100)
    with pytest.raises(EngineError, match="cannot be loaded"):
        FirefoxTranslator().translate(["Hello"], pair)
    next(folder.glob("vocab*")).write_bytes(b"\xff" * 100)
    with pytest.raises(EngineError, match="not a SentencePiece model"):
        FirefoxTranslator().translate(["Hello"], pair)


def test_no_more_models_are_held_than_may_be(model_folder, monkeypatch):
    model_folder()
    monkeypatch.setattr(firefox, "_MAX_MODELS", 2)
    translator = FirefoxTranslator()
    gl = TranslationPair("en", "gl", Quality.NEURAL)
    for pair in (EN_PT, gl, EN_PT, PT_EN):
        translator.translate(["Hello"], pair)
    assert list(translator._loaded) == [("en", "pt-BR"), ("pt-BR", "en")], "the one longest unused went"


# What models cannot read

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?'-\"()/:")


@given(st.text(max_size=400), st.integers(1, 50))
def test_portions_are_the_text_and_never_too_long(text, most):
    found = split_portions(text, most)
    assert "".join(found) == text
    assert all(len(portion) <= most for portion in found)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("It costs 3.14 or so", "3.14"),
        ("We read a.b.c now", "a.b.c"),
        ("Hello dear {{ user name }} of ours", "{{ user name }}"),
        ('So <a title="One. Two">this</a> is', '<a title="One. Two">'),
        ("今日は{user_first name}さん", "{user_first name}"),
    ],
)
def test_no_portion_ends_inside_a_number_or_a_placeholder(text, whole):
    for most in range(len(whole) + 1, len(text) + 1):
        found = split_portions(text, most)
        assert "".join(found) == text
        assert any(whole in portion for portion in found), (most, found)


@given(st.lists(st.sampled_from([*"abc XY12.,\n😀ü<>/€ł", "PZ0", "<b>", "</b>"]), max_size=80).map("".join))
def test_a_model_gets_only_what_it_can_read_and_all_else_stays_in_order(text):
    alphabet = Alphabet(LETTERS)
    sent = []

    def model(words):
        sent.append(words)
        return words

    done = translate_protected(text, alphabet, model)
    for words in sent:
        assert alphabet.can_read(words), words
        assert words == words.strip()
        assert re.search(r"[^\W\d_]", words)
    # A model that changes nothing gives the text back: nothing of it was lost or moved.
    assert done == text


def test_a_token_that_is_lost_or_doubled_is_mended_by_its_parts():
    alphabet = Alphabet(LETTERS)
    lost = translate_protected(
        "Hello €5 world", alphabet, lambda words: re.sub(r"\s*PZ\d", "", words).upper()
    )
    assert lost == "HELLO €5 WORLD"
    doubled = translate_protected(
        "Hello €5 world", alphabet, lambda words: words.upper() + (" PZ0" if "PZ0" in words else "")
    )
    assert doubled == "HELLO €5 WORLD"


@pytest.mark.parametrize("unseen", ["\ufeff", "\u200b", "\u200e", "\u202e", "\u2068", " \ufeff "])
def test_what_cannot_be_seen_around_a_line_keeps_no_word_from_the_model(unseen):
    alphabet = Alphabet(LETTERS)
    text = f"{unseen}Hello world{unseen}\n{unseen}The house"
    assert translate_protected(text, alphabet, str.upper) == f"{unseen}HELLO WORLD{unseen}\n{unseen}THE HOUSE"
    assert translate_protected(unseen, alphabet, str.upper) == unseen
