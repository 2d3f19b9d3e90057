"""Neural translation with Firefox-Translations models, run by fxtranslate.

The models are small and quick, but they invent words for characters that they
cannot read. So a character outside a model's vocabulary never reaches the model.
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
    found,
    left_out,
)
from speechframe.local.engines.translation.text import has_letters, shielded
from speechframe.local.engines.translation.vocabulary import Alphabet, readable_characters

__all__ = ["FirefoxTranslator"]

_MOST_MODELS = 4
_SHOWN_DIGITS = 8


class _Loaded(NamedTuple):
    engine: Any
    alphabet: Alphabet


class FirefoxTranslator:
    """A translator with the packaged models and those in ``SPEECHFRAME_TRANSLATION_MODELS``.

    The library's objects are bound to the thread that made them, so an
    instance belongs to one thread. Each worker process has its own instance.
    """

    name = "firefox"
    licence = "MPL-2.0"

    def __init__(self) -> None:
        self._loaded: OrderedDict[tuple[str, str], _Loaded] = OrderedDict()

    @property
    def version(self) -> str:
        """The version of fxtranslate and a mark of the models, because other models translate otherwise.

        Raises
        ------
        EngineFault
            fxtranslate is not installed, or there is no model.
        """
        try:
            library = installed_version("fxtranslate")
        except PackageNotFoundError:
            raise EngineFault("fxtranslate is not installed: pip install 'speechframe[translate]'") from None
        models = found()
        if not models:
            raise EngineFault(
                f"there is no translation model; name folders of Firefox models in {FOLDERS_VARIABLE}: "
                "speechframe serve --translation-models DIR"
            )
        try:
            mark = hashlib.sha256(b"".join(sorted(model.mark() for model in models))).hexdigest()
        except OSError as error:
            raise EngineFault(f"{error.filename} cannot be read: {error.strerror}") from None
        return f"{library}+{mark[:_SHOWN_DIGITS]}"

    def pairs(self) -> Sequence[TranslationPair]:
        """Return every direction that has a model.

        Examples
        --------
        >>> TranslationPair("en", "pt-BR", Quality.NEURAL) in FirefoxTranslator().pairs()
        True
        """
        return tuple(TranslationPair(model.source, model.target, Quality.NEURAL) for model in found())

    def left_out(self) -> Sequence[str]:
        """Return a sentence for each model that :meth:`pairs` leaves out."""
        return left_out()

    def files(self) -> Sequence[Path]:
        """Return the files of every model."""
        return tuple(path for model in found() for path in model.files)

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations in order. A text without a readable letter is returned unchanged.

        Lines and the whitespace around them stay. Tags, addresses, and words with characters outside the
        model's vocabulary stay, too.

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
        engine, alphabet = self._model(pair)
        return [shielded(text, alphabet, engine.translate_long) for text in texts]

    def _model(self, pair: TranslationPair) -> _Loaded:
        asked = (pair.source, pair.target)
        if asked not in self._loaded:
            model = next((model for model in found() if (model.source, model.target) == asked), None)
            if model is None:
                raise EngineFault(f"there is no model from {pair.source} to {pair.target}")
            self._loaded[asked] = _load(model)
        self._loaded.move_to_end(asked)
        while len(self._loaded) > _MOST_MODELS:
            self._loaded.popitem(last=False)
        return self._loaded[asked]


def _load(model: ModelFolder) -> _Loaded:
    try:
        from fxtranslate import Translator
    except ImportError:
        raise EngineFault("fxtranslate is not installed: pip install 'speechframe[translate]'") from None
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
    except Exception as error:  # noqa: BLE001 - a native library raises errors of its own
        raise EngineFault(f"the model {model.model} cannot be loaded: {error}") from None
    return _Loaded(engine, alphabet)
