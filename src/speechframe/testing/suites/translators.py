"""What every translator does, as a suite of tests for your own.

::

    class TestMine(TranslatorSuite):
        engine = MyTranslator
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from speechframe.engines.base import TranslationPair, Translator
from speechframe.spec import locales

__all__ = ["TranslatorSuite"]


class TranslatorSuite:
    """Tests of a translator; a subclass names how one is made. Run by pytest.

    Attributes
    ----------
    engine
        The translator's class.
    texts
        Texts by source language; a pair whose source is not here is asked to translate those of English,
        and only shape and order are looked at. Each is about something else, so that no two translations
        may be equal.
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
    """Texts that are in no language: they come back as they are."""

    def pairs_and_texts(self) -> list[tuple[TranslationPair, Sequence[str]]]:
        """Return every pair with texts to try it on."""
        pairs = type(self).engine().pairs()
        return [(pair, self.texts.get(locales.language_of(pair.source), self.texts["en"])) for pair in pairs]

    def test_it_has_a_name_and_a_version(self) -> None:
        """The name is one word, the version is text."""
        translator = type(self).engine()
        assert translator.name
        assert translator.name == translator.name.strip().lower()
        assert isinstance(translator.version, str)
        assert translator.version

    def test_its_pairs_are_in_the_house_spelling_and_each_is_there_once(self) -> None:
        """Pairs name two languages, and none is there twice."""
        pairs = type(self).engine().pairs()
        assert pairs, "a translator without a pair says nothing"
        directions = [(pair.source, pair.target) for pair in pairs]
        assert len(set(directions)) == len(directions)
        for tags in directions:
            assert tags == tuple(map(locales.normalise, tags))
            assert tags[0] != tags[1]

    def test_every_pair_translates(self) -> None:
        """Each text becomes another one, of a length a translation can have."""
        translator = type(self).engine()
        for pair, texts in self.pairs_and_texts():
            done = translator.translate(texts, pair)
            assert len(done) == len(texts), pair
            if locales.language_of(pair.source) in self.texts:
                assert all(words.strip() for words in done), pair
                assert any(words != text for words, text in zip(done, texts, strict=True)), pair
                assert all(
                    len(words) <= 10 + 4 * len(text) for words, text in zip(done, texts, strict=True)
                ), pair

    def test_order_is_kept_and_a_text_does_not_depend_on_its_neighbours(self) -> None:
        """A text alone, in another order, or twice is translated as it is among others."""
        translator = type(self).engine()
        for pair, texts in self.pairs_and_texts():
            together = translator.translate(texts, pair)
            assert list(translator.translate(texts[::-1], pair)) == list(together)[::-1], pair
            assert list(translator.translate([texts[0]], pair)) == [together[0]], pair
            assert list(translator.translate([texts[1]] * 2, pair)) == [together[1]] * 2, pair

    def test_equal_calls_give_equal_translations(self) -> None:
        """Again, and by another instance."""
        translator = type(self).engine()
        for pair, texts in self.pairs_and_texts():
            first = list(translator.translate(texts, pair))
            assert list(translator.translate(texts, pair)) == first, pair
            assert list(type(self).engine().translate(texts, pair)) == first, pair

    def test_nothing_comes_of_nothing(self) -> None:
        """No text, no translation; what is in no language comes back as it is."""
        translator = type(self).engine()
        for pair, texts in self.pairs_and_texts():
            assert list(translator.translate([], pair)) == [], pair
            assert list(translator.translate(self.wordless, pair)) == list(self.wordless), pair
            mixed = [self.wordless[3], texts[0], self.wordless[0]]
            done = list(translator.translate(mixed, pair))
            assert (done[0], done[2]) == (mixed[0], mixed[2]), pair

    def test_lines_and_the_whitespace_around_a_text_stay(self) -> None:
        """A text of two lines has two lines, and what stands around it is not touched."""
        translator = type(self).engine()
        for pair, texts in self.pairs_and_texts():
            (done,) = translator.translate([f"  {texts[0]}\n\n{texts[1]}\n"], pair)
            assert done.startswith("  "), pair
            assert done.endswith("\n"), pair
            assert "\n\n" in done.strip(), pair
