"""The ways between languages, and which language a text is in."""

import pickle

import pytest

from speechframe.engines.base import Quality, TranslationPair
from speechframe.errors import EngineError
from speechframe.local.engines.translation.language import detect_languages
from speechframe.local.engines.translation.routes import (
    Routes,
    RouteStep,
    UnknownPair,
    build_region_warnings,
    is_same_language,
    translate_along,
)


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
        ("en", "pt-PT", "en>pt-BR", "neural"),
        ("pt-PT", "en-GB", "pt-BR>en", "neural"),
        ("pt", "de", "pt-BR>en>de", "neural"),
        ("en", "fr", "en>pt-BR>es>fr", "rough"),
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
    ("source", "target", "told"),
    [
        (None, "pt-PT", ["pt-PT is not known here; the translation is in pt-BR"]),
        ("pt-PT", "en-GB", ["pt-PT is not known here; the text was read as pt-BR"]),
        ("en-AU", "pt", []),
    ],
)
def test_another_region_is_said(source, target, told):
    route = routes(NEURAL).route(source or "en", target)
    assert list(build_region_warnings(source, target, route)) == told


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
        routes(NEURAL).check_target("ja")
    with pytest.raises(UnknownPair, match="none: name folders"):
        routes().route("en", "ja")
    with pytest.raises(ValueError, match="is not a locale"):
        routes(NEURAL).route("en", "no such thing")


def test_supported_are_all_pairs_and_none_leads_back():
    found = routes(NEURAL, RULES).list_supported()
    pairs = [(route.locales[0], route.target) for route in found]
    assert len(set(pairs)) == len(pairs)
    assert all(not is_same_language(*pair) for pair in pairs)
    assert ("en", "fr") in pairs
    assert routes(NEURAL, RULES).list_sources("de") == ("en", "es", "pt-BR")


def test_texts_are_translated_along_the_route():
    graph = {"neural": NEURAL, "rules": RULES}
    steps = Routes(graph).route("en", "es").steps
    assert translate_along(["a", "b"], steps, graph) == ["es(pt-BR(a))", "es(pt-BR(b))"]


def test_a_translator_that_is_gone_or_miscounts_is_an_error():
    pair = TranslationPair("en", "de", Quality.NEURAL)
    with pytest.raises(EngineError, match="gone cannot be used"):
        translate_along(["a"], [RouteStep("gone", pair)], {})
    short = Table("short")
    short.translate = lambda texts, pair: texts[1:]
    with pytest.raises(EngineError, match="short gave 1 translation of 2 texts"):
        translate_along(["a", "b"], [RouteStep("short", pair)], {"short": short})


# Source languages

ENGLISH = ["Good morning.", "Thank you", "Settings", "Your order has shipped", "Please call me back", "Yes", "No", "Open the door", "Cancel", "What time is it?", "Save changes", "He arrived late", "Sign in", "I like it very much", "Welcome to the hotel", "Error", "Press any key", "Monday", "Password", "The weather is nice"]  # fmt: skip
PORTUGUESE = ["Bom dia.", "Obrigado", "Configurações", "Seu pedido foi enviado", "Por favor me ligue", "Sim", "Não", "Abra a porta", "Cancelar", "Que horas são?", "Salvar alterações", "Ele chegou tarde", "Entrar", "Gosto muito disso", "Bem-vindo ao hotel", "Erro", "Pressione qualquer tecla", "Segunda-feira", "Senha", "O tempo está bom"]  # fmt: skip


@pytest.mark.parametrize("among", [["en", "pt"], ["en", "pt", "es", "fr", "de"]])
def test_short_texts_of_one_call_are_told_together(among):
    assert detect_languages(ENGLISH, among) == ["en"] * len(ENGLISH)
    assert detect_languages(PORTUGUESE, among) == ["pt"] * len(PORTUGUESE)


@pytest.mark.parametrize(("among", "share"), [(["en", "pt"], 0.9), (["en", "pt", "es", "fr", "de"], 0.8)])
def test_most_short_texts_are_told_alone(among, share):
    known = [("en", text) for text in ENGLISH] + [("pt", text) for text in PORTUGUESE]
    right = sum(detect_languages([text], among) == [language] for language, text in known)
    assert right / len(known) >= share


def test_a_clear_text_among_others_is_told_by_itself():
    texts = [*ENGLISH, "Seu pedido foi enviado ontem à noite.", "OK"]
    assert detect_languages(texts, ["en", "pt"]) == [*["en"] * len(ENGLISH), "pt", "en"]


def test_texts_without_letters_go_with_the_others():
    assert detect_languages(["12", *PORTUGUESE, "😀"], ["en", "pt"]) == ["pt"] * (len(PORTUGUESE) + 2)
    assert detect_languages(["12"], ["en", "pt"]) == detect_languages(["13"], ["en", "pt"])


def test_one_language_needs_no_telling_and_none_is_an_error():
    assert detect_languages(["Bom dia"], ["en"]) == ["en"]
    with pytest.raises(EngineError, match="cannot be told"):
        detect_languages(["Bom dia"], [])
