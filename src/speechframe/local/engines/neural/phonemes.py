"""Convert text to the phonemes of a neural model, sentence by sentence, and find the word of each phoneme.

espeak-ng returns the phonemes of a whole text without the words that they belong to.
It merges function words ("so that a"), splits numbers and expands abbreviations.
So each word is also converted alone. Then both phoneme sequences are aligned with
the fewest differences.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from speechframe.engines.words import Token
from speechframe.errors import EngineError
from speechframe.local.engines.reading.text import SpokenText

FULL_STOP = "."
PUNCTUATION = frozenset(".,;:!?")
"""Punctuation that models read as a pause."""
_STRESS_MARKS = frozenset("\u02c8\u02cc")
"""IPA stress marks."""
_SILENT_SYMBOLS = PUNCTUATION | _STRESS_MARKS | {" ", "\u02d0", "'", '"', "(", ")", "-"}
"""Symbols without a sound of their own. The alignment ignores them."""
_MAX_SENTENCE_PHONEMES = 400
"""Longest sentence in phonemes. The memory of a model grows with the square of this length."""
# An ellipsis. The group matches if it ends the text.
_ELLIPSIS_PATTERN = re.compile(r"(?:\.{2,}|\u2026+)(\s*$)?")
_TITLE_PATTERN = re.compile(r"\b(Capt|Col|Dr|Gen|Hon|Lt|Mr|Mrs|Ms|Mt|Prof|Rep|Rev|Sen|Sgt|St)\.(?=\s+\w)")
PHONEME_BLOCK_PATTERN = re.compile(r"\[\[([^\[\]\n]*+)\]\]")
"""Phonemes in a text: ``[[...]]``."""
# Other spellings of IPA symbols, and the usual spelling.
_SYMBOL_SPELLINGS = str.maketrans({"g": "\u0261", "'": "\u02c8", ":": "\u02d0", ",": "\u02cc"})
_IGNORED_SYMBOLS = frozenset("./[]\u203f\u035c\u0361|\u2016\u02d1\u032f-")
"""Syllable dots, tie bars, and slashes and brackets around IPA. They are removed. No model has them."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence for a single call of a model.

    ``ids`` are the model's numbers. ``begins`` has an entry for each word that begins in the sentence. The
    entry contains the index of the word's token in the piece, and two indices into ``ids``: of the pause
    before the word, and of its first sound.
    """

    ids: tuple[int, ...]
    begins: tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class _PhonemeSentence:
    """A sentence as phonemes, with the tokens that begin in it as pairs of token and phoneme index."""

    phonemes: list[str]
    begins: list[tuple[int, int]] = field(default_factory=list)


class Phonemiser(ABC):
    """Converts text to the phonemes of a model.

    Parameters
    ----------
    symbols
        The symbols of the model.
    """

    def __init__(self, symbols: Collection[str]) -> None:
        self._symbols = symbols
        self._alone = lru_cache(maxsize=8192)(self._convert_alone)

    @abstractmethod
    def _phonemise(self, text: str) -> Sequence[Sequence[str]]:
        """Return the sentences of a line as symbols, including punctuation and spaces.

        Text in ``[[...]]`` consists of symbols already.
        """

    @abstractmethod
    def _number_symbols(self, symbols: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the model's numbers of a sentence, and for each symbol the index of its first number."""

    def convert_ipa(self, ipa: str) -> str:
        """Convert IPA to ``[[...]]``, which later steps read as phonemes.

        Raises
        ------
        EngineError
            The model lacks a symbol, or the IPA contains no sound. The message lists the symbols.
        """
        words = [self._check_word(word, ipa) for word in ipa.split()]
        if not any(words):
            raise EngineError(f"the pronunciation {ipa!r} contains no sound in IPA")
        return " ".join(f"[[{word}]]" for word in words if word)

    def make_sentences(self, spoken: SpokenText, tokens: Sequence[Token]) -> list[Sentence]:
        """Return the sentences of a piece, with the tokens that begin in them."""
        spelled = [
            _PhonemeSentence(part)
            for line in spoken.text.splitlines()
            for phonemes in self._convert_line(line)
            for part in _split_sentence(phonemes)
        ]
        places = [
            (sentence, index)
            for sentence in spelled
            for index, symbol in enumerate(sentence.phonemes)
            if self._has_sound(symbol)
        ]
        given = _mark_given(spoken)
        alone = [self._convert_token(token, spoken, given) for token in tokens]
        sounds = [sentence.phonemes[index] for sentence, index in places]
        for number, found in enumerate(_match_words(sounds, alone)):
            if found is not None:
                sentence, index = places[found]
                sentence.begins.append((number, _find_stress_start(sentence.phonemes, index)))
        return [self._number_sentence(sentence) for sentence in spelled]

    def _check_word(self, word: str, whole: str) -> str:
        symbols = self._convert_symbols(word.translate(_SYMBOL_SPELLINGS))
        symbols = "".join(symbol for symbol in symbols if symbol not in _IGNORED_SYMBOLS)
        if unknown := [symbol for symbol in dict.fromkeys(symbols) if symbol not in self._symbols]:
            named = ", ".join(f"{symbol!r} ({unicodedata.name(symbol, '?')})" for symbol in unknown)
            raise EngineError(
                f"the pronunciation {whole!r} has symbols that this voice has not learnt: {named}; "
                "write IPA, or another word with type SAY_AS"
            )
        return symbols if any(self._has_sound(symbol) for symbol in symbols) else ""

    def _convert_symbols(self, ipa: str) -> str:
        """Convert IPA to symbols of the model. Split letters from their marks if the model lacks the pair."""
        composed = unicodedata.normalize("NFC", ipa)
        return "".join(
            symbol if symbol in self._symbols else unicodedata.normalize("NFD", symbol) for symbol in composed
        )

    def _convert_line(self, text: str) -> list[list[str]]:
        # The phonemiser would end a sentence after "Dr.", and join the words around an ellipsis.
        text = _TITLE_PATTERN.sub(r"\1", text)
        text = _ELLIPSIS_PATTERN.sub(lambda match: ", " if match[1] is None else FULL_STOP, text)
        return [list(phonemes) for phonemes in self._phonemise(text)] if text.strip() else []

    def _has_sound(self, symbol: str) -> bool:
        return symbol in self._symbols and symbol not in _SILENT_SYMBOLS

    def _convert_token(self, token: Token, spoken: SpokenText, given: bytes) -> list[str]:
        """Return the sounds of a token that is spoken alone. Phonemes of the caller stay unchanged."""
        symbols: list[str] = []
        for text, is_phonemes in _split_runs(token, spoken, given):
            symbols.extend(symbol for symbol in (text if is_phonemes else self._alone(text)))
        return [symbol for symbol in symbols if self._has_sound(symbol)]

    def _convert_alone(self, text: str) -> tuple[str, ...]:
        return tuple(symbol for phonemes in self._convert_line(text) for symbol in phonemes)

    def _number_sentence(self, sentence: _PhonemeSentence) -> Sentence:
        """Convert a sentence to the numbers of the model. Add a full stop if it does not end with a mark."""
        symbols = sentence.phonemes
        closed = symbols[-1] in PUNCTUATION or FULL_STOP not in self._symbols
        ids, starts = self._number_symbols(symbols if closed else [*symbols, FULL_STOP])
        begins = []
        for token, index in sentence.begins:
            pause = _find_pause_start(symbols, index)
            begins.append((token, starts[pause] if pause else 0, starts[index]))
        return Sentence(tuple(ids), tuple(begins))


def _split_sentence(phonemes: list[str]) -> Iterator[list[str]]:
    """Split phonemes into parts that are short enough for a model, after punctuation if possible."""
    while len(phonemes) > _MAX_SENTENCE_PHONEMES:
        spaces = [index for index in range(1, _MAX_SENTENCE_PHONEMES) if phonemes[index] == " "]
        clauses = [index for index in spaces if phonemes[index - 1] in PUNCTUATION]
        cut = (clauses or spaces or [_MAX_SENTENCE_PHONEMES])[-1]
        yield phonemes[:cut]
        phonemes = phonemes[cut + (phonemes[cut] == " ") :]
    if phonemes:
        yield phonemes


def _mark_given(spoken: SpokenText) -> bytes:
    """Return a byte for each character: 1 if it belongs to phonemes of the caller, otherwise 0."""
    given = bytearray(len(spoken.text))
    if spoken.phoneme_input:
        for match in PHONEME_BLOCK_PATTERN.finditer(spoken.text):
            given[match.start() : match.end()] = b"\1" * (match.end() - match.start())
    return bytes(given)


def _split_runs(token: Token, spoken: SpokenText, given: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the text of a token in runs of plain text (False) and of phonemes (True)."""
    # Origins never decrease, so a binary search finds the characters of a token.
    start, end = (bisect_left(spoken.origins, index) for index in (token.start, token.end))
    run, kind = "", False
    for character, is_phoneme in zip(spoken.text[start:end], given[start:end], strict=True):
        if is_phoneme != kind:
            yield run, kind
            run, kind = "", bool(is_phoneme)
        run += character
    yield run, kind


def _find_stress_start(phonemes: list[str], index: int) -> int:
    while index and phonemes[index - 1] in _STRESS_MARKS:
        index -= 1
    return index


def _find_pause_start(phonemes: list[str], index: int) -> int:
    while index and (phonemes[index - 1] == " " or phonemes[index - 1] in PUNCTUATION):
        index -= 1
    return index


def _match_words(sounds: Sequence[str], words: Sequence[Sequence[str]]) -> list[int | None]:
    """Return the index of each word's first sound in the text, or None if the word was not found.

    The sounds of the words are aligned with the sounds of the text with the fewest differences (Levenshtein).
    """
    # Imported here, because only the extras with neural models install it, but voices are always listed.
    from rapidfuzz.distance import Levenshtein

    owners = [number for number, word in enumerate(words) for _ in word]
    alone = [symbol for word in words for symbol in word]
    firsts: list[int | None] = [None] * len(words)
    for step in Levenshtein.opcodes(alone, sounds):
        if step.tag in {"equal", "replace"}:
            for row, column in zip(
                range(step.src_start, step.src_end), range(step.dest_start, step.dest_end), strict=True
            ):
                if firsts[owners[row]] is None:
                    firsts[owners[row]] = column
    return firsts
