"""Convert text to the phonemes of a Piper voice, with the espeak-ng inside piper-tts."""

from collections.abc import Sequence
from typing import Any

from speechframe.local.engines.neural.phonemes import Phonemiser

_PAD_SYMBOL, _BEGIN_SYMBOL, _END_SYMBOL = "_", "^", "$"


class PiperPhonemiser(Phonemiser):
    """The phonemiser of one voice.

    Parameters
    ----------
    settings
        The content of the voice's settings file.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        from piper import PiperConfig, PiperVoice

        config = PiperConfig.from_dict(settings)
        session: Any = None  # the model, which phonemes do not need
        self._voice = PiperVoice(session, config)
        self._numbers = config.phoneme_id_map
        super().__init__(config.phoneme_id_map)

    def _phonemise(self, text: str) -> Sequence[Sequence[str]]:
        return self._voice.phonemize(text)

    def _number_symbols(self, symbols: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the numbers of the phonemes, each followed by padding as in training, and their starts."""
        numbers = self._numbers
        ids = [*numbers[_BEGIN_SYMBOL], *numbers[_PAD_SYMBOL]]
        starts = []
        for symbol in symbols:
            starts.append(len(ids))
            if symbol in numbers:
                ids += [*numbers[symbol], *numbers[_PAD_SYMBOL]]
        return [*ids, *numbers[_END_SYMBOL]], starts
