"""Find the times of the words of a text in its audio, by aligning recognised words with the text.

A recogniser spells words in its own way ("forty-two" for "42", "Jon" for "John"). The result has the words of
the text. A word that was recognised with the same spelling gets the recogniser's times. Words that were
recognised differently share the time of the recognised words, in proportion to their lengths in letters.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, Self

import numpy as np

from speechframe.audio import codec
from speechframe.audio._samples import mix_channels
from speechframe.engines import registry
from speechframe.engines.base import Recogniser, Recording, Word
from speechframe.engines.numbers import find_rewritten_numbers
from speechframe.engines.words import spoken_tokens
from speechframe.errors import EngineError, SettingsError
from speechframe.spec.locales import get_language
from speechframe.spec.speech import Format
from speechframe.spec.texts import strip_pauses

INSTALL_COMMAND = "pip install 'speechframe[asr]'"
"""The command that installs a recogniser."""

_MIN_RECOGNISED_SHARE = 0.5
"""Smallest share of a text's letters that must be recognised. With less, the audio has another text."""
# Languages in which each character counts as a word.
_LANGUAGES_WITHOUT_SPACES = frozenset({"zh"})

# A tenth of a second of silence, for a trial of a recogniser.
_SILENCE = Recording(np.zeros(1600, np.float32), 16_000)

TimedWord = tuple[str, int, int]
"""A word with its start and end in milliseconds."""


class WordAligner:
    """Finds the words of texts in their audio with a recogniser.

    Parameters
    ----------
    recogniser
        The recogniser to use. It loads its model with the first clip.
    """

    def __init__(self, recogniser: Recogniser) -> None:
        self._recogniser = recogniser
        self.name = f"{recogniser.name} {recogniser.version}"

    @classmethod
    def find_installed(cls) -> Self:
        """Return an aligner with the first recogniser that works, after a trial that loads its model.

        Raises
        ------
        SettingsError
            If no recogniser works. The message contains the command that installs one.
        """
        try:
            return cls(find_recogniser())
        except EngineError as error:
            raise SettingsError(
                f"words='align' needs a speech recogniser {error}. `speechframe models` shows what is "
                "installed. Nothing was sent."
            ) from None

    def align(
        self,
        audio: bytes,
        *,
        text: str,
        locale: str | None,
        format: Format,
        sample_rate_hz: int,
        channels: int,
    ) -> list[TimedWord]:
        """Return the words of `text`, each with start and end in milliseconds.

        The times are in order and within the audio.

        Parameters
        ----------
        audio
            The encoded audio.
        text
            The spoken text. Pause markers are ignored.
        locale
            The locale of the text. With None, the recogniser detects the language.
        format, sample_rate_hz, channels
            Properties of the audio.

        Raises
        ------
        AudioError, EngineError
            If the audio cannot be read, the language is not supported, or the audio contains other words.
        """
        decoded = codec.decode(audio, format=format, sample_rate_hz=sample_rate_hz, channels=channels)
        recording = Recording(mix_channels(decoded.samples), decoded.sample_rate_hz)
        language = None if locale is None else get_language(locale)
        transcript = self._recogniser.recognise(recording, language=language, words=True)
        plain = strip_pauses(text)
        numbers = [span[:2] for span in find_rewritten_numbers(plain, language)] if language else []
        tokens = spoken_tokens(
            plain, characters_are_words=language in _LANGUAGES_WITHOUT_SPACES, numbers=numbers
        )
        return align_words(
            [token.shown for token in tokens], transcript.words, round(1000 * recording.audio_seconds)
        )


def find_recogniser(name: str | None = None) -> Recogniser:
    """Return the recogniser with this name, or the first one that works. A trial loads its model.

    Raises
    ------
    EngineError
        No recogniser works, or none has the name. The message names the package to install.
    """
    reasons, recognisers = [], registry.load_recognisers()
    if name is not None and name not in recognisers:
        raise EngineError(f"{name!r} is not installed; allowed: {', '.join(recognisers) or INSTALL_COMMAND}")
    for recogniser in recognisers.values() if name is None else [recognisers[name]]:
        try:
            # The trial is necessary, because the model of an installed recogniser may be unusable.
            recogniser.recognise(_SILENCE)
        except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way, and the others go on
            reasons.append(str(error) if isinstance(error, EngineError) else type(error).__name__)
        else:
            return recogniser
    why = f"({'; '.join(reasons)}): " if reasons else ""
    raise EngineError(f"{why}{INSTALL_COMMAND}")


def align_words(written: Sequence[str], recognised: Sequence[Word], audio_ms: int) -> list[TimedWord]:
    """Return the words of a text with their times in the audio.

    Parameters
    ----------
    written
        The words of the text, in order.
    recognised
        The recognised words, in order.
    audio_ms
        The length of the audio in milliseconds.

    Raises
    ------
    EngineError
        If less than half of the text's letters were recognised.

    Examples
    --------
    >>> heard = [Word("Room", 100, 300), Word("forty", 300, 500), Word("two.", 500, 700)]
    >>> align_words(["Room", "42", "now"], [*heard, Word("Now!", 800, 900)], 1000)
    [('Room', 100, 300), ('42', 300, 700), ('now', 800, 900)]
    """
    plain, spoken = [_fold_word(word) for word in written], [_fold_word(word.word) for word in recognised]
    matcher = SequenceMatcher(None, plain, spoken, autojunk=False)
    pieces: list[_Piece] = []
    letters, found_letters = sum(map(len, plain)), 0.0
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            pieces += [
                _Piece(first + i, first + i + 1, recognised[begin + i].start_ms, recognised[begin + i].end_ms)
                for i in range(last - first)
            ]
            found_letters += sum(map(len, plain[first:last]))
        elif kind == "replace":
            pieces.append(_Piece(first, last, recognised[begin].start_ms, recognised[end - 1].end_ms))
            text_letters, recognised_letters = "".join(plain[first:last]), "".join(spoken[begin:end])
            found_letters += SequenceMatcher(
                None, text_letters, recognised_letters, autojunk=False
            ).ratio() * len(text_letters)
        elif kind == "delete":
            pieces.append(_Piece(first, last))
    if letters and found_letters < _MIN_RECOGNISED_SHARE * letters:
        raise EngineError(f"only about {found_letters:.0f} of the text's {letters} letters were recognised")
    return list(_assign_times(written, pieces, audio_ms))


class _Piece(NamedTuple):
    """The words ``written[first:last]`` of a text, with a common start and end. -1 is an unknown time."""

    first: int
    last: int
    start_ms: int = -1
    end_ms: int = -1


def _assign_times(written: Sequence[str], pieces: Sequence[_Piece], audio_ms: int) -> Iterator[TimedWord]:
    """Yield each word with its times, in order and within the audio. Words of a piece share its time."""
    now_ms = 0
    for number, piece in enumerate(pieces):
        start_ms, end_ms = piece.start_ms, piece.end_ms
        if start_ms < 0:
            # Words that were not recognised get the time between the pieces before and after.
            following = pieces[number + 1].start_ms if number + 1 < len(pieces) else audio_ms
            start_ms, end_ms = now_ms, following
        start_ms = min(max(start_ms, now_ms), audio_ms)
        end_ms = min(max(end_ms, start_ms), audio_ms)
        words = written[piece.first : piece.last]
        total, done_characters, now_ms = sum(map(len, words)), 0, start_ms
        for word in words:
            done_characters += len(word)
            begun_ms, now_ms = now_ms, start_ms + (end_ms - start_ms) * done_characters // total
            yield word, begun_ms, now_ms


def _fold_word(word: str) -> str:
    """Return the letters and digits of a word in lower case, for comparison."""
    return "".join(character for character in word.casefold() if character.isalnum())
