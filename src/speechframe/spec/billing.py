"""Prices of calls, from a table of prices per unit (chosen: billed-characters, prices).

Amounts are whole thousandths of a credit (`Millicredits`), so that sums are exact. They are converted to
credits only in HTTP answers and for people. A billed character of speech costs one credit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from speechframe.spec.texts import count_billed_characters

Millicredits = int
MILLICREDITS_PER_CREDIT: Millicredits = 1000
"""One credit in thousandths."""
MAX_BUDGET_CREDITS = 10**15
"""Largest spending limit in credits. The limit in thousandths fits into 64 bits."""
MAX_CALL_CREDITS = 10**9
"""Largest amount in credits that an answer may report for one call. A larger amount is treated as an error.

The most expensive valid call, a dub of four hours into 200 locales, costs 2,880,000 credits.
"""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one unit of an operation, in thousandths of a credit."""

    operation: str
    unit: str
    millicredits: Millicredits
    balance: str

    @property
    def credits(self) -> float:
        """The price of one unit in credits."""
        return convert_to_credits(self.millicredits)


PRICES: dict[str, Price] = {
    price.operation: price
    for price in (
        Price("generate", "billed character", MILLICREDITS_PER_CREDIT, "speech"),
        Price("stream", "billed character", MILLICREDITS_PER_CREDIT, "speech"),
        Price("convert", "second of input audio", 15 * MILLICREDITS_PER_CREDIT, "speech"),
        Price("translate", "character of source text", MILLICREDITS_PER_CREDIT, "speech"),
        Price("dub", "second of media and target locale", MILLICREDITS_PER_CREDIT, "dubbing"),
    )
}
"""Price of each operation. `balance` is the balance of the key that is charged."""


def compute_speech_millicredits(text: str) -> Millicredits:
    """Return the price of speaking a text (generate and stream).

    Examples
    --------
    >>> compute_speech_millicredits("Hello")
    5000
    """
    return count_billed_characters(text) * PRICES["generate"].millicredits


def compute_translation_millicredits(texts: list[str]) -> Millicredits:
    """Return the price of translating a list of texts. Every character counts."""
    return sum(map(len, texts)) * PRICES["translate"].millicredits


def compute_voice_change_millicredits(audio_seconds: float) -> Millicredits:
    """Return the price of changing the voice of a clip, rounded up to thousandths of a credit."""
    return ceil(audio_seconds * PRICES["convert"].millicredits)


def compute_dub_millicredits(media_seconds: float, target_locales: int) -> Millicredits:
    """Return the price of dubbing a media file. The price of each locale is rounded up to thousandths."""
    return ceil(media_seconds * PRICES["dub"].millicredits) * target_locales


def convert_to_credits(millicredits: Millicredits) -> float:
    """Convert thousandths of a credit to credits, for people and for HTTP answers.

    Examples
    --------
    >>> convert_to_credits(1500)
    1.5
    """
    return millicredits / MILLICREDITS_PER_CREDIT
