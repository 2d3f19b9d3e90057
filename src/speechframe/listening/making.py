"""A listening test is made: what is compared, how it is asked, who hears what, in a folder of its own."""

import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from speechframe.analysis.votes import AB, ABX, METHODS, MULTI, MUSHRA
from speechframe.errors import ListeningError
from speechframe.listening.instructions import INTROS, PROMPTS, TITLE
from speechframe.listening.session import questions_of
from speechframe.listening.setup import Setup, drawn, gone_on_with, write_design
from speechframe.listening.signals import ANCHORS
from speechframe.listening.sources import material_of, nearest_in_words
from speechframe.listening.stimuli import prepare
from speechframe.listening.test import LISTENERS, Test

__all__ = ["make_test"]

_HOME = Path("listening")


def make_test(
    source: Any,
    method: str = AB,
    *,
    condition: str = "voice_id",
    item: str = "id",
    reference: str | None = None,
    trials_per_listener: int = 30,
    training: int = 3,
    seed: int = 0,
    consent: str | None = None,
    questions: Sequence[str | Mapping[str, Any]] = (),
    folder: str | PathLike[str] | None = None,
    listeners: int = LISTENERS,
    title: str | None = None,
    intro: str | None = None,
    prompt: str | None = None,
    reveal: bool = False,
    stacklevel: int = 1,
) -> Test:
    """Return a listening test of what a source holds, made in its folder, or gone on with where it is there.

    The parameters are those of :func:`~speechframe.widgets.listening.listening_test`; `stacklevel` says whose
    line a warning names, counted from the function that calls this one.

    Raises
    ------
    ListeningError
        There is nothing to compare, or the folder holds another test; nothing was written then.
    """
    if method not in METHODS:
        raise ListeningError(f"there is no method {method!r}; {nearest_in_words(method, METHODS)}")
    if reveal and method not in {AB, ABX}:
        raise ListeningError(
            f"reveal=True would tell listeners of {method} what they go on to rate; ab and abx only"
        )
    asked = questions_of(questions)
    material = material_of(source, condition=condition, item=item)
    if method == MUSHRA and reference is None:
        warnings.warn(
            "without a natural reference this is no MUSHRA (ITU-R BS.1534): it is made, and called, a "
            'multi-stimulus test, method="multi"; reference="..." names the condition that is the reference',
            stacklevel=stacklevel + 1,
        )
        method = MULTI
    _refuse_reference(reference, method, material.conditions)
    setup = Setup(
        method=method,
        items=material.items,
        conditions=(*material.conditions, *(ANCHORS if method == MUSHRA else ())),
        reference=reference,
        source=material.identity,
        trials_per_listener=trials_per_listener,
        training=training,
        seed=seed,
        title=title or TITLE,
        intro=intro or INTROS[method],
        prompt=prompt or PROMPTS[method],
        consent=consent,
        questions=asked,
        reveal=reveal,
    )
    planned = drawn(setup, listeners)
    target = Path(folder) if folder is not None else _HOME / setup.test_id
    setup.refuse_other(target)
    stimuli = prepare(material, target, reference=reference, anchors=method == MUSHRA)
    planned = gone_on_with(planned, target)
    write_design(planned, target)
    # Last: it says that everything else is there.
    setup.write(target)
    return Test(setup, target, stimuli, planned)


def _refuse_reference(reference: str | None, method: str, conditions: Sequence[str]) -> None:
    if reference is None:
        return
    if method not in {MULTI, MUSHRA}:
        raise ListeningError(f"a test by {method} has no reference; mushra has one, and multi may have one")
    if reference not in conditions:
        raise ListeningError(
            f"reference={reference!r} is no condition; {nearest_in_words(reference, conditions)}"
        )
