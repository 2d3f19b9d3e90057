"""Count the errors of a transcript against a reference text.

Both texts are normalised in the same way first:

* Pause markers are removed.
* Group marks in numbers are removed, so ``3,000`` is ``3000``. Numbers in digits and in words stay different.
* Unicode is normalised (NFKC), and upper case becomes lower case.
* Apostrophes are removed. All other punctuation and signs become spaces.
* In scripts without spaces between words, such as Chinese, Japanese and Thai, each character is a word.
"""

import unicodedata
from functools import lru_cache
from typing import Any

from speechframe.engines.numbers import find_rewritten_numbers
from speechframe.spec.texts import SCRIPTS_WITHOUT_SPACES, strip_pauses

_APOSTROPHES = frozenset("'\u2019\u02bc\u2032`\u00b4")
_MAX_CACHED_CHARACTERS = 1 << 14


def normalise_text(text: str, language: str | None) -> str:
    """Return the normalised words of a text, separated by single spaces.

    Parameters
    ----------
    text
        The text.
    language
        Its language, such as ``en``, which decides on the marks in numbers. None leaves numbers unchanged.

    Examples
    --------
    >>> normalise_text("It\u2019s 3,000 [pause 1s] EUROS \u2013 well-spent!", "en")
    'its 3000 euros well spent'
    >>> normalise_text("\u6211\u67093\u4e2aBook\u3002", "zh")
    '\u6211 \u6709 3 \u4e2a book'
    """
    plain = strip_pauses(text)
    for start, end, number in reversed(list(find_rewritten_numbers(plain, language)) if language else []):
        plain = plain[:start] + number + plain[end:]
    return " ".join("".join(map(_fold, unicodedata.normalize("NFKC", plain).casefold())).split())


@lru_cache(_MAX_CACHED_CHARACTERS)
def _fold(character: str) -> str:
    if character in _APOSTROPHES:
        return ""
    if unicodedata.category(character)[0] not in "LMN":
        return " "
    is_word = unicodedata.name(character, "").startswith(SCRIPTS_WITHOUT_SPACES)
    return f" {character} " if is_word else character


def count_errors(reference: str, transcript: str, language: str | None) -> dict[str, Any]:
    """Return the normalised reference, the errors of a transcript, and the rates.

    An error is a word, or a character, that was replaced, left out or added. A rate is the number of errors
    divided by the number of words or characters of the reference. Spaces do not count as characters. The rate
    of an empty reference is None.

    Examples
    --------
    >>> found = count_errors("Good morning!", "good mornings", "en")
    >>> found["wer"], found["word_errors"], found["reference_words"], found["character_errors"]
    (0.5, 1, 2, 1)
    """
    import jiwer

    wanted, recognised = (normalise_text(text, language) for text in (reference, transcript))
    found: dict[str, Any] = {"reference": wanted}
    joined, recognised_joined = wanted.replace(" ", ""), recognised.replace(" ", "")
    counts: dict[str, tuple[Any, int, str]] = {
        "word": (jiwer.process_words(wanted, recognised), len(wanted.split()), "wer"),
        "character": (jiwer.process_characters(joined, recognised_joined), len(joined), "cer"),
    }
    for unit, (result, length, rate) in counts.items():
        errors = result.substitutions + result.deletions + result.insertions
        found |= {f"{unit}_errors": errors, f"reference_{unit}s": length}
        found[rate] = errors / length if length else None
    return found
