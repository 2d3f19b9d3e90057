"""Prices of calls by billed characters and a table (chosen: billed-characters, prices).

Amounts are whole thousandths of a credit (`Millicredits`), so that sums are exact. They become credits only
at the wire and for people. For speech one credit is one billed character.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from speechframe.spec.texts import billed_characters

Millicredits = int
CREDIT: Millicredits = 1000
"""One credit in thousandths."""
MOST_CREDITS = 10**15
"""The largest limit in credits. Its thousandths fit into 64 bits."""
MOST_CALL_CREDITS = 10**9
"""The largest amount in credits that a service can have billed for one call.

The dearest call costs some millions, for four hours of media in every locale. A larger amount is a mistake.
"""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one unit of an operation, in thousandths of a credit."""

    operation: str
    unit: str
    millicredits: Millicredits
    balance: str


PRICES: dict[str, Price] = {
    price.operation: price
    for price in (
        Price("generate", "billed character", CREDIT, "speech"),
        Price("stream", "billed character", CREDIT, "speech"),
        Price("convert", "second of input audio", 15 * CREDIT, "speech"),
        Price("translate", "character of source text", CREDIT, "speech"),
        Price("dub", "second of media and target locale", CREDIT, "dubbing"),
    )
}
"""Prices by operation. `balance` names the balance of a key that pays."""


def generate_millicredits(text: str) -> Millicredits:
    """Return the price of speaking a text (generate and stream).

    Examples
    --------
    >>> generate_millicredits("Hello")
    5000
    """
    return billed_characters(text) * PRICES["generate"].millicredits


def translate_millicredits(texts: list[str]) -> Millicredits:
    """Return the price of translating a list of texts. Every character counts."""
    return sum(map(len, texts)) * PRICES["translate"].millicredits


def convert_millicredits(audio_seconds: float) -> Millicredits:
    """Return the price of changing the voice of a clip. A begun thousandth of a credit counts whole."""
    return ceil(audio_seconds * PRICES["convert"].millicredits)


def dub_millicredits(media_seconds: float, target_locales: int) -> Millicredits:
    """Return the price of dubbing a medium into a number of locales. A begun thousandth counts whole."""
    return ceil(media_seconds * PRICES["dub"].millicredits) * target_locales


def to_credits(millicredits: Millicredits) -> float:
    """Return thousandths as credits, for people and for the wire.

    Examples
    --------
    >>> to_credits(1500)
    1.5
    """
    return millicredits / CREDIT
