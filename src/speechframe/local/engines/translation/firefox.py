"""Translate with the neural models of Firefox Translations, run by fxtranslate.

The models are small and fast, but invent words for characters outside their
vocabulary. So such characters are never passed to a model.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, NamedTuple

from speechframe.engines.base import Quality, TranslationPair
from speechframe.errors import EngineFault
from speechframe.local.engines.translation.firefox_models import (
    FOLDERS_VARIABLE,
    ModelFolder,
    find_models,
    list_left_out,
)
from speechframe.local.engines.translation.text import has_letters, translate_protected
from speechframe.local.engines.translation.vocabulary import Alphabet, read_alphabet

_MAX_MODELS = 4
"""Largest number of models in memory."""
_VERSION_DIGITS = 8
"""Digits of the models' hash in the version."""


class _LoadedModel(NamedTuple):
    engine: Any
    alphabet: Alphabet


class FirefoxTranslator:
    """A translator with the packaged models and the models in ``SPEECHFRAME_TRANSLATION_MODELS``.

    Use an instance only in the thread that first translates with it, because the objects
    of fxtranslate are bound to their thread. Each worker process has its own instance.
    """

    name = "firefox"
    licence = "MPL-2.0"

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[str, str], _LoadedModel] = OrderedDict()

    @property
    def version(self) -> str:
        """The version of fxtranslate and a short hash of the models, because results depend on the models.

        Raises
        ------
        EngineFault
            fxtranslate is not installed, there is no model, or a model cannot be read.
        """
        try:
            library = installed_version("fxtranslate")
        except PackageNotFoundError:
            raise EngineFault("fxtranslate is not installed: pip install 'speechframe[translate]'") from None
        models = find_models()
        if not models:
            raise EngineFault(
                f"there is no translation model; name folders of Firefox models in {FOLDERS_VARIABLE}: "
                "speechframe serve --translation-models DIR"
            )
        try:
            mark = hashlib.sha256(b"".join(sorted(model.mark() for model in models))).hexdigest()
        except OSError as error:
            raise EngineFault(f"{error.filename} cannot be read: {error.strerror}") from None
        return f"{library}+{mark[:_VERSION_DIGITS]}"

    def pairs(self) -> Sequence[TranslationPair]:
        """Return each pair that has a model, by direction.

        Examples
        --------
        >>> TranslationPair("en", "pt-BR", Quality.NEURAL) in FirefoxTranslator().pairs()
        True
        """
        return tuple(TranslationPair(model.source, model.target, Quality.NEURAL) for model in find_models())

    def left_out(self) -> Sequence[str]:
        """Return a sentence for each model or folder that :meth:`pairs` leaves out."""
        return list_left_out()

    def files(self) -> Sequence[Path]:
        """Return the files of every model."""
        return tuple(path for model in find_models() for path in model.files)

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations in order. A text without a readable letter is returned unchanged.

        Line breaks and the whitespace around lines are kept. Tags, addresses, and words with characters
        outside the model's vocabulary are not translated.

        Parameters
        ----------
        texts
            The texts, of any length.
        pair
            One of :meth:`pairs`.

        Raises
        ------
        EngineFault
            The pair has no model, or its model cannot be loaded.

        Examples
        --------
        >>> FirefoxTranslator().translate(
        ...     ["We need more time.", "😀"], TranslationPair("en", "pt-BR", Quality.NEURAL)
        ... )
        ['Precisamos de mais tempo.', '😀']
        """
        if not any(map(has_letters, texts)):
            return list(texts)
        engine, alphabet = self._get_model(pair)
        return [translate_protected(text, alphabet, engine.translate_long) for text in texts]

    def _get_model(self, pair: TranslationPair) -> _LoadedModel:
        asked = (pair.source, pair.target)
        if asked not in self._loaded:
            model = next((model for model in find_models() if (model.source, model.target) == asked), None)
            if model is None:
                raise EngineFault(f"there is no model from {pair.source} to {pair.target}")
            self._loaded[asked] = _load_model(model)
        self._loaded.move_to_end(asked)
        while len(self._loaded) > _MAX_MODELS:
            self._loaded.popitem(last=False)
        return self._loaded[asked]


def _load_model(model: ModelFolder) -> _LoadedModel:
    try:
        from fxtranslate import Translator
    except ImportError:
        raise EngineFault("fxtranslate is not installed: pip install 'speechframe[translate]'") from None
    source = model.read(model.source_vocabulary)
    target = source
    if model.target_vocabulary != model.source_vocabulary:
        target = model.read(model.target_vocabulary)
    alphabet = read_alphabet(source)
    shortlist = model.read(model.shortlist) if model.shortlist is not None else None
    try:
        engine = Translator(
            model=model.read(model.model), src_vocab=source, trg_vocab=target, shortlist=shortlist
        )
    except Exception as error:  # noqa: BLE001 - a native library raises errors of its own
        raise EngineFault(f"the model {model.model} cannot be loaded: {error}") from None
    return _LoadedModel(engine, alphabet)
