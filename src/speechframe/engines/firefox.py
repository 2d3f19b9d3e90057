"""Neural translation with Firefox-Translations models, run by fxtranslate.

The models are small and quick, and invent where they cannot read: what is
outside of a model's vocabulary never reaches it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any, NamedTuple

from speechframe.engines.base import Quality, TranslationPair
from speechframe.engines.firefox_models import FOLDERS_VARIABLE, ModelFolder, found
from speechframe.engines.translation_text import has_letters, shielded
from speechframe.engines.vocabulary import Alphabet, readable_characters
from speechframe.errors import EngineError

__all__ = ["FirefoxTranslator"]

_MOST_MODELS = 4
_SHOWN_DIGITS = 8


class _Loaded(NamedTuple):
    engine: Any
    alphabet: Alphabet


class FirefoxTranslator:
    """Translates with the models in the folders of ``SPEECHFRAME_TRANSLATION_MODELS`` and the packaged ones.

    The library's objects are bound to the thread that made them, so an
    instance belongs to one thread: each worker process has its own.
    """

    name = "firefox"

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[str, str], _Loaded] = OrderedDict()

    @property
    def version(self) -> str:
        """The version of fxtranslate and a mark of the models: with others, texts come out otherwise.

        Raises
        ------
        EngineError
            When fxtranslate is not installed, or there is no model.
        """
        try:
            library = installed_version("fxtranslate")
        except PackageNotFoundError:
            raise EngineError("fxtranslate is not installed: pip install 'speechframe[translate]'") from None
        models = found()
        if not models:
            raise EngineError(
                f"there is no translation model; name folders of Firefox models in {FOLDERS_VARIABLE}: "
                "speechframe serve --translation-models DIR"
            )
        try:
            mark = hashlib.sha256(b"".join(sorted(model.mark() for model in models))).hexdigest()
        except OSError as error:
            raise EngineError(f"a model folder cannot be read: {error.strerror}") from None
        return f"{library}+{mark[:_SHOWN_DIGITS]}"

    def pairs(self) -> Sequence[TranslationPair]:
        """Return every direction there is a model for.

        Examples
        --------
        >>> TranslationPair("en", "pt-BR", Quality.NEURAL) in FirefoxTranslator().pairs()
        True
        """
        return tuple(TranslationPair(model.source, model.target, Quality.NEURAL) for model in found())

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations in order; a text without a letter that the model knows comes back as it is.

        Lines and the whitespace around them stay; so do tags, addresses, and words with characters that the
        model's vocabulary lacks.

        Parameters
        ----------
        texts
            What is to be translated, of any length.
        pair
            One of :meth:`pairs`.

        Raises
        ------
        EngineError
            For a pair without a model, or a model that cannot be loaded.

        Examples
        --------
        >>> FirefoxTranslator().translate(
        ...     ["We need more time.", "😀"], TranslationPair("en", "pt-BR", Quality.NEURAL)
        ... )
        ['Precisamos de mais tempo.', '😀']
        """
        if not any(map(has_letters, texts)):
            return list(texts)
        engine, alphabet = self._model(pair)
        return [shielded(text, alphabet, engine.translate_long) for text in texts]

    def _model(self, pair: TranslationPair) -> _Loaded:
        asked = (pair.source, pair.target)
        if asked not in self._loaded:
            model = next((model for model in found() if (model.source, model.target) == asked), None)
            if model is None:
                raise EngineError(f"there is no model from {pair.source} to {pair.target}")
            self._loaded[asked] = _load(model)
        self._loaded.move_to_end(asked)
        while len(self._loaded) > _MOST_MODELS:
            self._loaded.popitem(last=False)
        return self._loaded[asked]


def _load(model: ModelFolder) -> _Loaded:
    try:
        from fxtranslate import Translator
    except ImportError:
        raise EngineError("fxtranslate is not installed: pip install 'speechframe[translate]'") from None
    source = model.read(model.source_vocabulary)
    target = source
    if model.target_vocabulary != model.source_vocabulary:
        target = model.read(model.target_vocabulary)
    alphabet = readable_characters(source)
    shortlist = model.read(model.shortlist) if model.shortlist is not None else None
    try:
        engine = Translator(
            model=model.read(model.model), src_vocab=source, trg_vocab=target, shortlist=shortlist
        )
    except ValueError as error:
        raise EngineError(f"the model {model.model} cannot be loaded: {error}") from None
    return _Loaded(engine, alphabet)
