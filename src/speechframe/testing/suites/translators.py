"""Tests of the behaviour that all translators share.

::

    class TestMine(TranslatorSuite):
        engine = MyTranslator
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from speechframe.engines.base import TranslationPair, Translator
from speechframe.spec import locales


class TranslatorSuite:
    """Tests of a translator. Derive a class and set `engine`, and pytest collects the tests.

    Attributes
    ----------
    engine
        Class of the translator.
    texts
        Texts by source language. Pairs with another source language get the English texts. Their translations
        are not compared with the texts.
    wordless
        Texts without words of any language. The translator must return them unchanged.
    """

    engine: ClassVar[Callable[[], Translator]]
    texts: ClassVar[dict[str, Sequence[str]]] = {
        "en": ("The house is big.", "Where is the station?", "Thank you for your help."),
        "pt": ("A casa é grande.", "Onde fica a estação?", "Obrigado pela sua ajuda."),
        "es": ("La casa es grande.", "¿Dónde está la estación?", "Gracias por su ayuda."),
        "fr": ("La maison est grande.", "Où est la gare ?", "Merci de votre aide."),
        "de": ("Das Haus ist groß.", "Wo ist der Bahnhof?", "Danke für Ihre Hilfe."),
    }
    wordless: ClassVar[Sequence[str]] = ("", " ", "\n", "12:30", "...", "😀", "https://example.com/a?b=c")

    def list_pairs_with_texts(self) -> list[tuple[TranslationPair, Sequence[str]]]:
        """Return each language pair of the translator, with the texts to translate."""
        pairs = type(self).engine().pairs()
        return [(pair, self.texts.get(locales.get_language(pair.source), self.texts["en"])) for pair in pairs]

    def test_it_has_a_name_and_a_version(self) -> None:
        """The name is one word, and the version is text."""
        translator = type(self).engine()
        assert translator.name
        assert translator.name == translator.name.strip().lower()
        assert isinstance(translator.version, str)
        assert translator.version

    def test_its_pairs_have_normalised_locales_and_no_duplicates(self) -> None:
        """Pairs name two languages, and no pair occurs twice."""
        pairs = type(self).engine().pairs()
        assert pairs, "a translator needs at least one pair"
        directions = [(pair.source, pair.target) for pair in pairs]
        assert len(set(directions)) == len(directions)
        for tags in directions:
            assert tags == tuple(map(locales.normalise, tags))
            assert tags[0] != tags[1]

    def test_all_pairs_translate(self) -> None:
        """Each text becomes another text of a believable length."""
        translator = type(self).engine()
        for pair, texts in self.list_pairs_with_texts():
            done = translator.translate(texts, pair)
            assert len(done) == len(texts), pair
            if locales.get_language(pair.source) in self.texts:
                assert all(translation.strip() for translation in done), pair
                assert any(translation != text for translation, text in zip(done, texts, strict=True)), pair
                assert all(
                    len(translation) <= 10 + 4 * len(text)
                    for translation, text in zip(done, texts, strict=True)
                ), pair

    def test_texts_keep_their_order_and_do_not_depend_on_each_other(self) -> None:
        """A text has the same translation alone, in another order, or twice."""
        translator = type(self).engine()
        for pair, texts in self.list_pairs_with_texts():
            together = translator.translate(texts, pair)
            assert list(translator.translate(texts[::-1], pair)) == list(together)[::-1], pair
            assert list(translator.translate([texts[0]], pair)) == [together[0]], pair
            assert list(translator.translate([texts[1]] * 2, pair)) == [together[1]] * 2, pair

    def test_equal_calls_give_equal_translations(self) -> None:
        """A second call and another instance give the same translations."""
        translator = type(self).engine()
        for pair, texts in self.list_pairs_with_texts():
            first = list(translator.translate(texts, pair))
            assert list(translator.translate(texts, pair)) == first, pair
            assert list(type(self).engine().translate(texts, pair)) == first, pair

    def test_texts_without_words_are_returned_unchanged(self) -> None:
        """An empty list gives an empty list, and texts without words come back unchanged."""
        translator = type(self).engine()
        for pair, texts in self.list_pairs_with_texts():
            assert list(translator.translate([], pair)) == [], pair
            assert list(translator.translate(self.wordless, pair)) == list(self.wordless), pair
            mixed = [self.wordless[3], texts[0], self.wordless[0]]
            done = list(translator.translate(mixed, pair))
            assert (done[0], done[2]) == (mixed[0], mixed[2]), pair

    def test_line_breaks_and_surrounding_whitespace_are_kept(self) -> None:
        """A text of two lines keeps two lines and the whitespace around it."""
        translator = type(self).engine()
        for pair, texts in self.list_pairs_with_texts():
            (done,) = translator.translate([f"  {texts[0]}\n\n{texts[1]}\n"], pair)
            assert done.startswith("  "), pair
            assert done.endswith("\n"), pair
            assert "\n\n" in done.strip(), pair
