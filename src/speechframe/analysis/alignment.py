"""When each word of a text is heard: a recogniser listens, and its words are laid upon those of the text.

A recogniser writes words its own way ("forty-two" for "42", "Jon" for "John"). The words of the text are
kept: those that were heard as they are written have the times of the recogniser, and several that were heard
otherwise share the time of what was heard instead, by length.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, Self

import numpy as np

from speechframe.audio import codec
from speechframe.engines import registry
from speechframe.engines.base import Recogniser, Recording, Word
from speechframe.engines.words import spoken_tokens
from speechframe.errors import EngineError, SettingsError
from speechframe.spec.locales import language_of
from speechframe.spec.speech import Format
from speechframe.spec.texts import strip_pauses

__all__ = ["INSTALL", "WordAligner", "laid_upon"]

INSTALL = "pip install 'speechframe[asr]'"

_LEAST_HEARD = 0.5
"""Of the letters of a text: with fewer, the audio says something else, or the recogniser cannot tell."""
_WITHOUT_SPACES = frozenset({"zh"})

_NOTHING = Recording(np.zeros(1600, np.float32), 16_000)

Timed = tuple[str, int, int]


class WordAligner:
    """Finds the words of texts in their audio with a recogniser.

    Parameters
    ----------
    recogniser
        What listens; its model loads with the first clip.
    """

    def __init__(self, recogniser: Recogniser) -> None:
        self._recogniser = recogniser
        self.name = f"{recogniser.name} {recogniser.version}"

    @classmethod
    def installed(cls) -> Self:
        """Return one with the first recogniser that works; each is tried, so its model is loaded now.

        Raises
        ------
        SettingsError
            When none does, with what to install.
        """
        reasons = []
        for recogniser in registry.recognisers().values():
            try:
                # That a model is named does not say that it can be used.
                recogniser.recognise(_NOTHING)
                return cls(recogniser)
            except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way, and the others go on
                reasons.append(str(error) if isinstance(error, EngineError) else type(error).__name__)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        raise SettingsError(f"words='align' needs a speech recogniser{why}: {INSTALL}. Nothing was sent.")

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
        """Return the words of `text`, each with start and end in milliseconds, in order and in the audio.

        Parameters
        ----------
        audio
            The encoded audio.
        text
            What is said; pause markers do not count.
        locale
            Its language; None to find out.
        format, sample_rate_hz, channels
            Of the audio.

        Raises
        ------
        AudioError, EngineError
            When the audio cannot be read, the language is not known, or other words are heard.
        """
        heard = codec.decode(audio, format=format, sample_rate_hz=sample_rate_hz, channels=channels)
        samples = heard.samples if heard.channels == 1 else heard.samples.mean(axis=1)
        recording = Recording(samples, heard.sample_rate_hz)
        language = None if locale is None else language_of(locale)
        said = self._recogniser.recognise(recording, language=language, words=True)
        plain = strip_pauses(text)
        tokens = spoken_tokens(plain, characters_are_words=language in _WITHOUT_SPACES)
        return laid_upon([token.shown for token in tokens], said.words, round(1000 * recording.audio_seconds))


def laid_upon(written: Sequence[str], heard: Sequence[Word], audio_ms: int) -> list[Timed]:
    """Return the words of a text with the times at which they were heard.

    Parameters
    ----------
    written
        The words of the text, in order.
    heard
        What was recognised, in order.
    audio_ms
        The length of the audio in milliseconds.

    Raises
    ------
    EngineError
        When less than half of the text was heard, letter by letter.

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
    """Words of a text, from one to another, and when they are heard together; -1 for nobody knows."""

    first: int
    last: int
    start_ms: int = -1
    end_ms: int = -1


def _timed(written: Sequence[str], pieces: Sequence[_Piece], audio_ms: int) -> Iterator[Timed]:
    now_ms = 0
    for number, piece in enumerate(pieces):
        start_ms, end_ms = piece.start_ms, piece.end_ms
        if start_ms < 0:
            # Not heard: what lies between the neighbours is left for it.
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
