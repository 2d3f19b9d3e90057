"""Packs: many texts in one call, and what the answer to it says of each text."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from speechframe.batch.backend import Request
from speechframe.errors import BadAnswer
from speechframe.spec.chosen import ROUTE_WARNING, read_route
from speechframe.wire.errors import warnings_of
from speechframe.wire.translate import pair_translations

__all__ = ["Said", "packs", "read_answer"]

_OPEN_PACKS = 16
"""The most texts that wait for their packs to be full, in full packs."""

_OF_TEXTS = re.compile(r"(.+): (texts [0-9,-]+)")


def packs(
    requests: Iterable[Request],
    kind: Callable[[Request], Hashable],
    *,
    most_texts: int,
    most_characters: int,
) -> Iterator[list[Request]]:
    """Yield the requests of each pack as soon as it is full, and those of the last packs at the end.

    A table whose rows have very many kinds is never held as a whole: the fullest pack is then yielded early.

    Parameters
    ----------
    requests
        One a text.
    kind
        What the requests of one pack have in common.
    most_texts, most_characters
        Of a pack. A single text that is longer than `most_characters` is a pack of its own.
    """
    filling: dict[Hashable, list[Request]] = {}
    characters: Counter[Hashable] = Counter()
    held = 0
    for request in requests:
        own = kind(request)
        if own in filling and characters[own] + request.characters > most_characters:
            held -= len(filling[own])
            yield filling.pop(own)
            del characters[own]
        filling.setdefault(own, []).append(request)
        characters[own] += request.characters
        held += 1
        if len(filling[own]) >= most_texts:
            full = own
        elif held >= _OPEN_PACKS * most_texts:
            full = max(filling, key=lambda one: len(filling[one]))
        else:
            continue
        held -= len(filling[full])
        yield filling.pop(full)
        del characters[full]
    yield from filling.values()


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says of one text.

    Parameters
    ----------
    translation
        The translation, or what is wrong with this text's entry.
    route
        The languages it went through (``en>pt-BR>es``); None where the service does not say.
    told
        What the service says of this text, or of all.
    noted
        What is odd about the answer though it can be used.
    target
        The language that the answer says it is in; None where it does not say.
    """

    translation: str | BadAnswer
    route: str | None
    told: tuple[str, ...]
    noted: tuple[str, ...]
    target: str | None


def read_answer(
    body: bytes, headers: Mapping[str, str], texts: Sequence[str], *, credits: float
) -> list[Said]:
    """Return what an answer says of each text.

    Parameters
    ----------
    body, headers
        The answer.
    texts
        What was sent, in order.
    credits
        What the call should cost.

    Raises
    ------
    BadAnswer
        When it has no usable translation of any text.
    """
    answer = pair_translations(body, texts)
    noted = answer.notes
    if answer.credits_used is not None and answer.credits_used != credits:
        noted += (f"the service says the call cost {answer.credits_used:g} credits, not {credits:g}",)
    routes: dict[int, str] = {}
    told: list[tuple[str, list[int] | None]] = []
    for warning in warnings_of(headers):
        if (route := read_route(warning)) is not None:
            routes.update(dict.fromkeys(route[1], route[0]))
        elif (of := _OF_TEXTS.fullmatch(warning)) and (places := read_route(f"{ROUTE_WARNING}-; {of[2]}")):
            # Every warning names its texts in the way that a route does.
            told.append((of[1], places[1]))
        else:
            told.append((warning, None))
    return [
        Said(
            translation,
            routes.get(place),
            tuple(words for words, places in told if places is None or place in places),
            noted,
            answer.target,
        )
        for place, translation in enumerate(answer.texts)
    ]
