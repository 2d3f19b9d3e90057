"""Build the content of one listener's pages, which does not reveal the conditions (such as voices)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speechframe.listening.design import Page
from speechframe.listening.session import REFERENCE_SLOT, X_SLOT, compute_needed_s
from speechframe.listening.setup import Setup
from speechframe.listening.stimuli import Stimuli


@dataclass(frozen=True)
class TrialSheet:
    """The trials of a listener. Each trial is one page.

    Parameters
    ----------
    trials
        Content of each page as JSON values. The content does not reveal any condition.
    pages
        The pages of the design with their conditions, by number of the trial.
    clips
        Opaque names of all sounds. Each name is used in one slot (place of a sound) of one page.
    needed
        Seconds of each sound that the listener must play before the vote, by trial and slot.
    """

    trials: list[dict[str, Any]]
    pages: Mapping[int, Page]
    clips: tuple[str, ...]
    needed: Mapping[int, Mapping[str, float]]

    def get_conditions(self, trial: int) -> dict[str, str]:
        """Return the condition of each slot of a trial, including that of X in ``abx``."""
        page = self.pages[trial]
        return {**page.slots, **({X_SLOT: page.x} if page.x is not None else {})}


def build_sheet(listener: str, pages: Sequence[Page], stimuli: Stimuli, setup: Setup) -> TrialSheet:
    """Return the trials of a listener, with names of sounds that reveal nothing.

    Parameters
    ----------
    listener
        Name of the listener.
    pages
        The listener's pages of the design.
    stimuli
        The sounds of the test.
    setup
        The settings of the test.
    """

    def name_sound(page: Page, slot: str, condition: str) -> dict[str, Any]:
        # A sound has another name in each slot of each trial, so names do not reveal which sounds are equal.
        clip_id = stimuli.make_opaque_id(
            page.item, condition, listener=listener, place=f"{page.trial}/{slot}"
        )
        seconds = round(stimuli.get_seconds(clip_id), 3)
        return {"slot": slot, "clip": clip_id, "seconds": seconds, "needed_s": compute_needed_s(seconds)}

    trials: list[dict[str, Any]] = []
    sounds: dict[int, list[dict[str, Any]]] = {}
    for page in pages:
        slots = [name_sound(page, slot, condition) for slot, condition in page.slots.items()]
        reference = name_sound(page, REFERENCE_SLOT, setup.reference) if setup.reference is not None else None
        x = name_sound(page, X_SLOT, page.x) if page.x is not None else None
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
    return TrialSheet(
        trials,
        {page.trial: page for page in pages},
        tuple(sound["clip"] for of in sounds.values() for sound in of),
        {trial: {sound["slot"]: sound["needed_s"] for sound in of} for trial, of in sounds.items()},
    )
