"""The phonemes of a Piper voice: piper-tts has them from the espeak-ng inside it."""

from collections.abc import Sequence
from typing import Any

from speechframe.local.engines.neural.phonemes import Phonemiser

__all__ = ["PiperPhonemiser"]

_PAD, _BEGIN, _END = "_", "^", "$"


class PiperPhonemiser(Phonemiser):
    """The phonemiser of one voice.

    Parameters
    ----------
    settings
        What stands in the voice's settings file.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        from piper import PiperConfig, PiperVoice

        config = PiperConfig.from_dict(settings)
        session: Any = None  # of the model; text becomes phonemes without it
        self._voice = PiperVoice(session, config)
        self._numbers = config.phoneme_id_map
        super().__init__(config.phoneme_id_map)

    def _phonemise(self, text: str) -> Sequence[Sequence[str]]:
        return self._voice.phonemize(text)

    def _ids(self, symbols: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return each phoneme followed by padding, as models are trained."""
        numbers = self._numbers
        ids = [*numbers[_BEGIN], *numbers[_PAD]]
        starts = []
        for symbol in symbols:
            starts.append(len(ids))
            if symbol in numbers:
                ids += [*numbers[symbol], *numbers[_PAD]]
        return [*ids, *numbers[_END]], starts
