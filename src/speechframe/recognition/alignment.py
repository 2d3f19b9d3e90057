"""Find the time of each word of a text in its audio. The words of a recogniser are aligned with the text.

A recogniser spells words in its own way ("forty-two" for "42", "Jon" for "John"). The result has the words of
the text. A word that was recognised with the same spelling has the recogniser's times. Words that were
recognised differently share the time of the recognised words, in proportion to their lengths.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, Self

import numpy as np

from speechframe.audio import codec
from speechframe.audio._samples import mixed
from speechframe.engines import registry
from speechframe.engines.base import Recogniser, Recording, Word
from speechframe.engines.numbers import plain_numbers
from speechframe.engines.words import spoken_tokens
from speechframe.errors import EngineError, SettingsError
from speechframe.spec.locales import language_of
from speechframe.spec.speech import Format
from speechframe.spec.texts import strip_pauses

__all__ = ["INSTALL", "WordAligner", "laid_upon"]

INSTALL = "pip install 'speechframe[asr]'"

_LEAST_HEARD = 0.5
"""Smallest share of a text's letters that must be recognised. Otherwise text and audio do not match."""
_WITHOUT_SPACES = frozenset({"zh"})

_NOTHING = Recording(np.zeros(1600, np.float32), 16_000)

Timed = tuple[str, int, int]


class WordAligner:
    """Finds the words of texts in their audio with a recogniser.

    Parameters
    ----------
    recogniser
        The recogniser to use. Its model is loaded with the first clip.
    """

    def __init__(self, recogniser: Recogniser) -> None:
        self._recogniser = recogniser
        self.name = f"{recogniser.name} {recogniser.version}"

    @classmethod
    def installed(cls) -> Self:
        """Return an aligner with the first recogniser that works. A trial loads the recogniser's model.

        Raises
        ------
        SettingsError
            No recogniser works. The message names the package to install.
        """
        reasons = []
        for recogniser in registry.recognisers().values():
            try:
                # The trial is necessary, because the model of an installed recogniser may be unusable.
                recogniser.recognise(_NOTHING)
                return cls(recogniser)
            except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way, and the others go on
                reasons.append(str(error) if isinstance(error, EngineError) else type(error).__name__)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        raise SettingsError(
            f"words='align' needs a speech recogniser{why}: {INSTALL}. `speechframe models` shows what is "
            "installed. Nothing was sent."
        )

    def align(
        self,
        audio: bytes,
        *,
        text: str,
        locale: str | None,
        format: Format,
        sample_rate_hz: int,
        channels: int,
    ) -> list[Timed]:
        """Return the words of `text`, each with start and end in milliseconds.

        The times are in order and within the audio.

        Parameters
        ----------
        audio
            The encoded audio.
        text
            The spoken text. Pause markers are ignored.
        locale
            The locale of the text. None detects the language.
        format, sample_rate_hz, channels
            Properties of the audio.

        Raises
        ------
        AudioError, EngineError
            The audio cannot be read, the language is not supported, or the audio contains other words.
        """
        heard = codec.decode(audio, format=format, sample_rate_hz=sample_rate_hz, channels=channels)
        recording = Recording(mixed(heard.samples), heard.sample_rate_hz)
        language = None if locale is None else language_of(locale)
        said = self._recogniser.recognise(recording, language=language, words=True)
        plain = strip_pauses(text)
        numbers = [span[:2] for span in plain_numbers(plain, language)] if language else []
        tokens = spoken_tokens(plain, characters_are_words=language in _WITHOUT_SPACES, numbers=numbers)
        return laid_upon([token.shown for token in tokens], said.words, round(1000 * recording.audio_seconds))


def laid_upon(written: Sequence[str], heard: Sequence[Word], audio_ms: int) -> list[Timed]:
    """Return the words of a text with their times in the audio.

    Parameters
    ----------
    written
        The words of the text, in order.
    heard
        The recognised words, in order.
    audio_ms
        The length of the audio in milliseconds.

    Raises
    ------
    EngineError
        Less than half of the text's letters were recognised.

    Examples
    --------
    >>> heard = [Word("Room", 100, 300), Word("forty", 300, 500), Word("two.", 500, 700)]
    >>> laid_upon(["Room", "42", "now"], [*heard, Word("Now!", 800, 900)], 1000)
    [('Room', 100, 300), ('42', 300, 700), ('now', 800, 900)]
    """
    plain, spoken = [_folded(word) for word in written], [_folded(word.word) for word in heard]
    matcher = SequenceMatcher(None, plain, spoken, autojunk=False)
    pieces: list[_Piece] = []
    letters, found = sum(map(len, plain)), 0.0
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            pieces += [
                _Piece(first + i, first + i + 1, heard[begin + i].start_ms, heard[begin + i].end_ms)
                for i in range(last - first)
            ]
            found += sum(map(len, plain[first:last]))
        elif kind == "replace":
            pieces.append(_Piece(first, last, heard[begin].start_ms, heard[end - 1].end_ms))
            there, here = "".join(plain[first:last]), "".join(spoken[begin:end])
            found += SequenceMatcher(None, there, here, autojunk=False).ratio() * len(there)
        elif kind == "delete":
            pieces.append(_Piece(first, last))
    if letters and found < _LEAST_HEARD * letters:
        raise EngineError(f"about {found:.0f} of the text's {letters} letters were heard")
    return list(_timed(written, pieces, audio_ms))


class _Piece(NamedTuple):
    """A range of words of a text with a common start and end. -1 means that the time is unknown."""

    first: int
    last: int
    start_ms: int = -1
    end_ms: int = -1


def _timed(written: Sequence[str], pieces: Sequence[_Piece], audio_ms: int) -> Iterator[Timed]:
    now_ms = 0
    for number, piece in enumerate(pieces):
        start_ms, end_ms = piece.start_ms, piece.end_ms
        if start_ms < 0:
            # Words that were not recognised get the time between their neighbours.
            following = pieces[number + 1].start_ms if number + 1 < len(pieces) else audio_ms
            start_ms, end_ms = now_ms, following
        start_ms = min(max(start_ms, now_ms), audio_ms)
        end_ms = min(max(end_ms, start_ms), audio_ms)
        words = written[piece.first : piece.last]
        total, said, now_ms = sum(map(len, words)), 0, start_ms
        for word in words:
            said += len(word)
            begun_ms, now_ms = now_ms, start_ms + (end_ms - start_ms) * said // total
            yield word, begun_ms, now_ms


def _folded(word: str) -> str:
    return "".join(character for character in word.casefold() if character.isalnum())
