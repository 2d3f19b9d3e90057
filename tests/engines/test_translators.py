"""Translators and the ways between languages: models, what they cannot read, rules, routes, source languages."""

import os
import pickle
import re
import shutil
import stat
import sys
import textwrap
import time
from importlib.metadata import version

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechframe.engines import apertium, firefox, firefox_models, registry
from speechframe.engines.apertium import ApertiumTranslator
from speechframe.engines.base import Quality, TranslationPair
from speechframe.engines.firefox import FirefoxTranslator
from speechframe.engines.language import detected
from speechframe.engines.translation import (
    Routes,
    Step,
    UnknownPair,
    is_same_language,
    region_warning,
    translated,
)
from speechframe.engines.translation_text import portions, shielded
from speechframe.engines.vocabulary import Alphabet, readable_characters
from speechframe.errors import EngineError
from speechframe.testing.suites.translators import TranslatorSuite

EN_PT = TranslationPair("en", "pt-BR", Quality.NEURAL)
PT_EN = TranslationPair("pt-BR", "en", Quality.NEURAL)

# -- the Firefox models ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    return FirefoxTranslator()


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    """A folder of the user's: the packaged English model, called Galician, so that nobody confuses the two."""

    def make(name="engl", **renamed):
        packaged = next(model for model in firefox_models.packaged() if model.source == "en")
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        for path in (packaged.model, packaged.source_vocabulary, packaged.shortlist):
            plain = path.name.replace("enpt", renamed.get("key", "engl"))
            shutil.copy(path, folder / plain)
        monkeypatch.setenv(firefox_models.FOLDERS_VARIABLE, str(tmp_path / "models"))
        return folder

    return make


class TestFirefox(TranslatorSuite):
    engine = FirefoxTranslator


def test_the_packaged_models_are_english_and_brazilian_portuguese(models):
    assert set(models.pairs()) >= {EN_PT, PT_EN}
    assert models.version.startswith(version("fxtranslate") + "+")


def test_the_built_in_translators_come_in_by_the_same_door_as_others():
    assert {"firefox", "apertium"} <= set(registry.translators())


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


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t",
        "12.50",
        "😀",
        "👩‍👩‍👧",
        "https://example.com/a?b=c",
        "me@example.com",
        "Привет мир",
        "你好，世界",
        "...",
        "\u200b",
        "{name}",
        "%s",
    ],
)
def test_nothing_is_invented_for_what_the_model_cannot_read(models, text):
    assert models.translate([text], EN_PT) == [text]


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
    started = time.perf_counter()
    models.translate([sentence * 20], EN_PT)
    short_s = time.perf_counter() - started
    started = time.perf_counter()
    (words,) = models.translate([sentence * 200], EN_PT)
    assert time.perf_counter() - started < 40 * short_s
    assert words.count("projeto") == 200


def test_a_text_without_an_end_is_cut_before_it_costs_the_square_of_its_length(models):
    (words,) = models.translate(["the quick brown fox and a house " * 100], EN_PT)
    assert len(words) > 1000


def test_a_pair_without_a_model_is_an_error(models):
    with pytest.raises(EngineError, match="no model from en to fr"):
        models.translate(["Hello"], TranslationPair("en", "fr", Quality.NEURAL))


def test_a_packaged_file_that_was_changed_is_not_loaded(tmp_path, monkeypatch):
    package = firefox_models._package_folder()
    copy = tmp_path / "models"
    shutil.copytree(package, copy)
    lexicon = next(copy.glob("*/lex.50.50.enpt.s2t.bin"))
    data = bytearray(lexicon.read_bytes())
    data[1000] ^= 1
    lexicon.write_bytes(data)
    monkeypatch.setattr(firefox_models, "_package_folder", lambda: copy)
    with pytest.raises(EngineError, match="sha256 differs"):
        FirefoxTranslator().translate(["Hello"], EN_PT)
    assert FirefoxTranslator().translate(["Obrigado pela sua ajuda."], PT_EN) == ["Thank you for your help."]


@pytest.mark.parametrize("name", ["engl", "en-gl", "whatever"])
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


def test_a_folder_that_is_not_there_or_holds_no_model_is_no_pair(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "model.enfr.bin").write_bytes(b"x")
    monkeypatch.setenv(firefox_models.FOLDERS_VARIABLE, os.pathsep.join([str(tmp_path), "/no/such", ""]))
    assert set(FirefoxTranslator().pairs()) == {EN_PT, PT_EN}


def test_a_model_that_is_none_is_an_error_and_not_a_crash(model_folder):
    folder = model_folder()
    pair = TranslationPair("en", "gl", Quality.NEURAL)
    next(folder.glob("model*")).write_bytes(b"no model at all" * 100)
    with pytest.raises(EngineError, match="cannot be loaded"):
        FirefoxTranslator().translate(["Hello"], pair)
    next(folder.glob("vocab*")).write_bytes(b"\xff" * 100)
    with pytest.raises(EngineError, match="no SentencePiece model"):
        FirefoxTranslator().translate(["Hello"], pair)


def test_no_more_models_are_held_than_may_be(model_folder, monkeypatch):
    model_folder()
    monkeypatch.setattr(firefox, "_MOST_MODELS", 2)
    translator = FirefoxTranslator()
    gl = TranslationPair("en", "gl", Quality.NEURAL)
    for pair in (EN_PT, gl, EN_PT, PT_EN):
        translator.translate(["Hello"], pair)
    assert list(translator._loaded) == [("en", "pt-BR"), ("pt-BR", "en")], "the one longest unused went"


# -- what models cannot read -------------------------------------------------------------------------------

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,!?'-\"()/:")


@given(st.text(max_size=3000), st.integers(1, 50))
def test_portions_are_the_text_and_never_too_long(text, most):
    found = portions(text, most)
    assert "".join(found) == text
    assert all(len(portion) <= most for portion in found)


@given(st.lists(st.sampled_from([*"abc XY12.,\n😀ü<>/€ł", "PZ0", "<b>", "</b>"]), max_size=80).map("".join))
def test_a_model_gets_only_what_it_can_read_and_all_else_stays_in_order(text):
    alphabet = Alphabet(LETTERS)
    sent = []

    def model(words):
        sent.append(words)
        return words

    done = shielded(text, alphabet, model)
    for words in sent:
        assert alphabet.knows(words), words
        assert words == words.strip()
        assert re.search(r"[^\W\d_]", words)
    # A model that changes nothing gives the text back: nothing of it was lost or moved.
    assert done == text


def test_a_token_that_is_lost_or_doubled_is_mended_by_its_parts():
    alphabet = Alphabet(LETTERS)
    lost = shielded("Hello €5 world", alphabet, lambda words: re.sub(r"\s*PZ\d", "", words).upper())
    assert lost == "HELLO €5 WORLD"
    doubled = shielded(
        "Hello €5 world", alphabet, lambda words: words.upper() + (" PZ0" if "PZ0" in words else "")
    )
    assert doubled == "HELLO €5 WORLD"


@pytest.mark.parametrize("unseen", ["\ufeff", "\u200b", "\u200e", "\u202e", "\u2068", " \ufeff "])
def test_what_cannot_be_seen_around_a_line_keeps_no_word_from_the_model(unseen):
    alphabet = Alphabet(LETTERS)
    text = f"{unseen}Hello world{unseen}\n{unseen}The house"
    assert shielded(text, alphabet, str.upper) == f"{unseen}HELLO WORLD{unseen}\n{unseen}THE HOUSE"
    assert shielded(unseen, alphabet, str.upper) == unseen


def test_tokens_that_change_places_are_filled_where_they_are():
    alphabet = Alphabet(LETTERS)
    assert shielded("a €1 b €2", alphabet, lambda words: "b PZ1 a PZ0") == "b €2 a €1"


def test_the_vocabulary_of_a_model_is_read():
    model = next(model for model in firefox_models.packaged() if model.source == "en")
    data = model.read(model.source_vocabulary)
    alphabet = readable_characters(data)
    assert alphabet.knows("The house, 12 (ção)!")
    assert not alphabet.knows("{")
    with pytest.raises(EngineError):
        readable_characters(data[:1000])


# -- apertium ----------------------------------------------------------------------------------------------

# Behaves as the real command does where it is used: modes by -l, a stream where brackets pass through and signs
# are escaped, marks of unknown words unless -u. Its only pair swaps a few words; oc-ca hangs, ca-oc fails.
FAKE = r"""
import re, sys, time
words = dict(house="casa", big="grande", the="la", where="dónde", station="estación", thank="gracias", you="usted")
arguments = sys.argv[1:]
if arguments == ["-l"]:
    print("  eng-spa\n  es-pt_BR\n  oc-ca\n  ca-oc\n  spa-eng_US\n  oci@aran-spa\n  cat-por_ABC")
elif arguments == ["-V"]:
    print("apertium 3.8.3")
else:
    mode = arguments[-1]
    assert arguments[:-1] == ["-u", "-f", "none"], arguments
    stream = sys.stdin.buffer.read().decode()
    if mode == "oc-ca":
        time.sleep(600)
    if mode == "ca-oc":
        sys.exit(1)
    assert not re.search(r"[\^$@<>{}]", re.sub(r"\[(?:[^\]\\]|\\.)*\]|\\.", "", stream)), "signs must be escaped"
    drop = "lose" in stream
    def one(match):
        if match[1] or match[2]:
            return "" if drop and stream.count("speechframe:") > 1 and "speechframe:0" in match[0] else match[0]
        word = match[3]
        other = words.get(word.lower(), word)
        return other.capitalize() if word[0].isupper() else other
    out = re.sub(r"(\[(?:[^\]\\]|\\.)*\])|(\\.)|([^\W\d_]+)", one, stream, flags=re.S)
    sys.stdout.buffer.write(out.encode())
"""

EN_ES = TranslationPair("en", "es", Quality.ROUGH)


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """A machine where the command is found."""
    command = tmp_path / "bin" / "apertium"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\n{textwrap.dedent(FAKE)}")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    apertium._modes.cache_clear()
    apertium._version.cache_clear()
    yield ApertiumTranslator()
    apertium._modes.cache_clear()
    apertium._version.cache_clear()


@pytest.fixture
def no_rules(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    apertium._modes.cache_clear()
    yield ApertiumTranslator()
    apertium._modes.cache_clear()


def test_the_modes_on_the_machine_are_pairs_and_variants_are_not(rules):
    assert rules.version == "3.8.3"
    assert set(rules.pairs()) == {
        EN_ES,
        TranslationPair("es", "pt-BR", Quality.RULES),
        TranslationPair("oc", "ca", Quality.RULES),
        TranslationPair("ca", "oc", Quality.RULES),
        TranslationPair("es", "en-US", Quality.RULES),
    }


def test_without_the_command_there_is_no_pair_and_it_says_what_to_do(no_rules):
    assert no_rules.pairs() == ()
    with pytest.raises(EngineError, match="apt install"):
        _ = no_rules.version


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("The house", "La casa"),
        ("  the  house \n\n\tbig\r\n", "  la  casa \n\n\tgrande\r\n"),
        (r"the [house] {big} <b>$5 ^a^ \n 1/2 @you", r"la [casa] {grande} <b>$5 ^a^ \n 1/2 @usted"),
        ("the [speechframe:0] house", "la [speechframe:0] casa"),
        ("house.[]", "casa.[]"),
        ("12:30", "12:30"),
        ("", ""),
        ("\n", "\n"),
        ("Kilimanjaro house", "Kilimanjaro casa"),
    ],
)
def test_texts_go_through_the_stream_and_come_back_whole(rules, text, translation):
    assert rules.translate([text], EN_ES) == [translation]
    assert rules.translate(["the house", text, "big"], EN_ES) == ["la casa", translation, "grande"]


def test_a_separator_that_is_lost_costs_no_text(rules):
    texts = ["lose the house", "big house", "12"]
    assert rules.translate(texts, EN_ES) == ["lose la casa", "grande casa", "12"]


def test_a_command_that_hangs_is_ended(rules, monkeypatch):
    monkeypatch.setattr(apertium, "_BASE_S", 0.5)
    started = time.monotonic()
    with pytest.raises(EngineError, match="took longer"):
        rules.translate(["casa"], TranslationPair("oc", "ca", Quality.RULES))
    assert time.monotonic() - started < 10


def test_a_command_that_fails_is_an_error(rules):
    with pytest.raises(EngineError, match="status 1"):
        rules.translate(["casa"], TranslationPair("ca", "oc", Quality.RULES))
    with pytest.raises(EngineError, match="no pair from en to fr"):
        rules.translate(["casa"], TranslationPair("en", "fr", Quality.RULES))


# -- routes ------------------------------------------------------------------------------------------------


class Table:
    """A translator that knows a few pairs, and writes which one it was."""

    def __init__(self, name, *pairs):
        self.name = name
        self._pairs = [TranslationPair(source, target, Quality(quality)) for source, target, quality in pairs]

    version = "1"

    def pairs(self):
        return self._pairs

    def translate(self, texts, pair):
        return [f"{pair.target}({text})" for text in texts]


NEURAL = Table("neural", ("en", "pt-BR", "neural"), ("pt-BR", "en", "neural"), ("en", "de", "neural"))
RULES = Table(
    "rules", ("en", "es", "rough"), ("pt", "es", "rules"), ("es", "pt-BR", "rules"), ("es", "fr", "rules"), ("fr", "oc", "rules")
)  # fmt: skip


def routes(*translators):
    return Routes({translator.name: translator for translator in translators})


@pytest.mark.parametrize(
    ("source", "target", "way", "quality"),
    [
        ("en", "pt-BR", "en>pt-BR", "neural"),
        ("en", "pt", "en>pt-BR", "neural"),
        ("en_us", "pt_br", "en>pt-BR", "neural"),
        ("en", "pt-PT", "en>pt-BR", "neural"),
        ("pt-PT", "en-GB", "pt-BR>en", "neural"),
        ("en", "es", "en>pt-BR>es", "rules"),
        ("pt", "de", "pt-BR>en>de", "neural"),
        ("en", "fr", "en>pt-BR>es>fr", "rough"),
        ("es", "en", "es>pt-BR>en", "rules"),
        ("es-MX", "oc", "es>fr>oc", "rough"),
    ],
)
def test_the_best_route_is_taken(source, target, way, quality):
    route = routes(NEURAL, RULES).route(source, target)
    assert str(route) == way
    assert route.quality == Quality(quality)
    assert route.is_pivoted == (way.count(">") > 1)


def test_of_equally_good_routes_the_shortest_is_taken():
    direct = Table("direct", ("pt", "de", "neural"))
    assert str(routes(NEURAL, direct).route("pt", "de")) == "pt>de"
    assert str(routes(NEURAL, Table("direct", ("pt", "de", "rules"))).route("pt", "de")) == "pt-BR>en>de"


def test_the_region_that_was_asked_for_is_preferred_to_a_better_model():
    both = routes(NEURAL, Table("european", ("en", "pt-PT", "rough")))
    assert both.route("en", "pt-PT").target == "pt-PT"
    assert both.route("en", "pt-BR").target == "pt-BR"
    assert both.route("en", "pt").target == "pt-BR", "where none is asked for, the better one"
    assert both.route("en", "pt-AO").target == "pt-BR"


@pytest.mark.parametrize(
    ("asked", "given_", "is_said"), [("pt-PT", "pt-BR", True), ("pt", "pt-BR", False), ("en-GB", "en", False)]
)
def test_another_region_is_said(asked, given_, is_said):
    assert (region_warning(asked, given_) is not None) is is_said


def test_scripts_are_languages_of_their_own():
    assert not is_same_language("zh-Hant", "zh")
    assert is_same_language("zh-TW", "zh-Hant")
    with pytest.raises(UnknownPair):
        routes(Table("chinese", ("en", "zh", "neural"))).route("en", "zh-TW")


def test_an_unknown_pair_lists_what_is_supported():
    with pytest.raises(UnknownPair, match="from en to ja; supported: en>de, en>es, ") as unknown:
        routes(NEURAL, RULES).route("en", "ja")
    assert unknown.value.target == "ja"
    assert "pt-BR>de" in unknown.value.supported
    again = pickle.loads(pickle.dumps(unknown.value))
    assert (str(again), again.supported) == (str(unknown.value), unknown.value.supported)
    with pytest.raises(UnknownPair, match="no translation to ja"):
        routes(NEURAL).reach("ja")
    with pytest.raises(UnknownPair, match="none: name folders"):
        routes().route("en", "ja")
    with pytest.raises(ValueError, match="is no locale"):
        routes(NEURAL).route("en", "no such thing")


def test_supported_are_all_pairs_and_none_leads_back():
    found = routes(NEURAL, RULES).supported()
    pairs = [(route.locales[0], route.target) for route in found]
    assert len(set(pairs)) == len(pairs)
    assert all(not is_same_language(*pair) for pair in pairs)
    assert ("en", "fr") in pairs
    assert routes(NEURAL, RULES).sources_of("de") == ("en", "es", "pt-BR")


def test_texts_are_translated_along_the_route():
    graph = {"neural": NEURAL, "rules": RULES}
    steps = Routes(graph).route("en", "es").steps
    assert translated(["a", "b"], steps, graph) == ["es(pt-BR(a))", "es(pt-BR(b))"]


def test_a_translator_that_is_gone_or_miscounts_is_an_error():
    pair = TranslationPair("en", "de", Quality.NEURAL)
    with pytest.raises(EngineError, match="gone cannot be used"):
        translated(["a"], [Step("gone", pair)], {})
    short = Table("short")
    short.translate = lambda texts, pair: texts[1:]
    with pytest.raises(EngineError, match="short gave 1 translations of 2 texts"):
        translated(["a", "b"], [Step("short", pair)], {"short": short})


# -- source languages --------------------------------------------------------------------------------------

ENGLISH = ["Good morning.", "Thank you", "Settings", "Your order has shipped", "Please call me back", "Yes", "No", "Open the door", "Cancel", "What time is it?", "Save changes", "He arrived late", "Sign in", "I like it very much", "Welcome to the hotel", "Error", "Press any key", "Monday", "Password", "The weather is nice"]  # fmt: skip
PORTUGUESE = ["Bom dia.", "Obrigado", "Configurações", "Seu pedido foi enviado", "Por favor me ligue", "Sim", "Não", "Abra a porta", "Cancelar", "Que horas são?", "Salvar alterações", "Ele chegou tarde", "Entrar", "Gosto muito disso", "Bem-vindo ao hotel", "Erro", "Pressione qualquer tecla", "Segunda-feira", "Senha", "O tempo está bom"]  # fmt: skip


@pytest.mark.parametrize("among", [["en", "pt"], ["en", "pt", "es", "fr", "de"]])
def test_short_texts_of_one_call_are_told_together(among):
    assert detected(ENGLISH, among) == ["en"] * len(ENGLISH)
    assert detected(PORTUGUESE, among) == ["pt"] * len(PORTUGUESE)


@pytest.mark.parametrize(("among", "share"), [(["en", "pt"], 0.9), (["en", "pt", "es", "fr", "de"], 0.8)])
def test_most_short_texts_are_told_alone(among, share):
    known = [("en", text) for text in ENGLISH] + [("pt", text) for text in PORTUGUESE]
    right = sum(detected([text], among) == [language] for language, text in known)
    assert right / len(known) >= share


def test_a_clear_text_among_others_is_told_by_itself():
    texts = [*ENGLISH, "Seu pedido foi enviado ontem à noite.", "OK"]
    assert detected(texts, ["en", "pt"]) == [*["en"] * len(ENGLISH), "pt", "en"]


def test_texts_without_letters_go_with_the_others():
    assert detected(["12", *PORTUGUESE, "😀"], ["en", "pt"]) == ["pt"] * (len(PORTUGUESE) + 2)
    assert detected(["12"], ["en", "pt"]) == detected(["13"], ["en", "pt"])


def test_one_language_needs_no_telling_and_none_is_an_error():
    assert detected(["Bom dia"], ["en"]) == ["en"]
    with pytest.raises(EngineError, match="cannot be told"):
        detected(["Bom dia"], [])
