"""Detect the language of texts, among a few possible languages."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines.translation.text import has_letters

_CERTAIN_PROBABILITY = 0.9
"""Least probability of a language that counts as certain."""
_CLEAR_RATIO = 4.0
"""Another language must be at least this many times as likely as the usual language of the call."""


def detect_languages(texts: Sequence[str], languages: Iterable[str]) -> list[str]:
    """Return the language of each text.

    A text of one or two words fits many languages. So each text gets the usual language of the call, unless
    another language is clearly more likely. The usual language is the most frequent among the texts whose
    language is certain. If no language is certain, it is the most likely language of all texts together.

    Parameters
    ----------
    texts
        The texts of one call.
    languages
        The possible languages, as codes such as ``en``.

    Raises
    ------
    EngineError
        None of the languages is supported, or py3langid is not installed.

    Examples
    --------
    >>> detect_languages(["The meeting starts at ten.", "A reunião começa às dez.", "OK"], ["en", "pt"])
    ['en', 'pt', 'en']
    """
    asked = tuple(sorted(set(languages)))
    if len(asked) == 1:
        return [asked[0]] * len(texts)
    identifier = _load_identifier(asked)
    ranked = [dict(identifier.rank(text)) if has_letters(text) else {} for text in texts]
    sure = Counter(
        _find_likeliest(shares)
        for shares in ranked
        if shares and max(shares.values()) >= _CERTAIN_PROBABILITY
    )
    together: Counter[str] = Counter()
    for shares in ranked:
        together.update(shares)
    usual = _find_likeliest(sure or together) if together else asked[0]
    return [_choose_language(shares, usual) for shares in ranked]


def _choose_language(shares: dict[str, float], usual: str) -> str:
    if not shares:
        return usual
    likeliest = _find_likeliest(shares)
    return likeliest if shares[likeliest] >= _CLEAR_RATIO * shares.get(usual, 0.0) else usual


def _find_likeliest(shares: Mapping[str, float]) -> str:
    # If languages are equally likely, return the first by name, so that equal calls have equal results.
    return min(shares, key=lambda language: (-shares[language], language))


@lru_cache(maxsize=64)
def _load_identifier(languages: tuple[str, ...]) -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise EngineFault("py3langid is not installed: pip install 'speechframe[local]'") from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = [language for language in languages if language in identifier.labels]
    if not known:
        raise EngineError(f"the language of a text cannot be told among {', '.join(languages) or 'none'}")
    identifier.set_languages(known)
    return identifier
