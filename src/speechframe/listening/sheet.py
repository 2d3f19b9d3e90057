"""One listener's pages: as a page gets them, under names that tell nothing, and what they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.listening.design import Page
from speechframe.listening.session import REFERENCE_SLOT, X_SLOT, needed_s
from speechframe.listening.setup import Setup
from speechframe.listening.stimuli import Stimuli

__all__ = ["Sheet", "sheet_of"]


@dataclass(frozen=True)
class Sheet:
    """A listener's trials.

    Parameters
    ----------
    trials
        As the page gets them: plain values, and nothing that tells what is heard.
    pages
        What they are, by trial.
    clips
        Names of all sounds, each of one place.
    needed
        Trial to slot to the seconds that must be heard before a vote.
    """

    trials: list[dict[str, Any]]
    pages: Mapping[int, Page]
    clips: tuple[str, ...]
    needed: Mapping[int, Mapping[str, float]]

    def told(self, trial: int) -> dict[str, str]:
        """Return what a listener may be told after the vote: slots to conditions."""
        page = self.pages[trial]
        return {**page.slots, **({X_SLOT: page.x} if page.x is not None else {})}


def sheet_of(listener: str, pages: Sequence[Page], stimuli: Stimuli, setup: Setup) -> Sheet:
    """Return a listener's pages.

    Parameters
    ----------
    listener
        Who it is.
    pages
        What the design has for them.
    stimuli
        The sounds.
    setup
        Of the test.
    """

    def placed(page: Page, slot: str, condition: str) -> dict[str, Any]:
        # Every place has a name of its own: equal sounds are not seen to be equal.
        clip_id = stimuli.opaque_id(page.item, condition, listener=listener, place=f"{page.trial}/{slot}")
        seconds = round(stimuli.seconds(clip_id), 3)
        return {"slot": slot, "clip": clip_id, "seconds": seconds, "needed_s": needed_s(seconds)}

    trials: list[dict[str, Any]] = []
    sounds: dict[int, list[dict[str, Any]]] = {}
    for page in pages:
        slots = [placed(page, slot, condition) for slot, condition in page.slots.items()]
        reference = placed(page, REFERENCE_SLOT, setup.reference) if setup.reference is not None else None
        x = placed(page, X_SLOT, page.x) if page.x is not None else None
        sounds[page.trial] = [*slots, *(sound for sound in (reference, x) if sound is not None)]
        trials.append(
            {
                "trial": page.trial,
                "training": page.training,
                "prompt": setup.prompt,
                "slots": slots,
                "reference": reference,
                "x": x,
            }
        )
    return Sheet(
        trials,
        {page.trial: page for page in pages},
        tuple(sound["clip"] for of in sounds.values() for sound in of),
        {trial: {sound["slot"]: sound["needed_s"] for sound in of} for trial, of in sounds.items()},
    )
