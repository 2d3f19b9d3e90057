"""A listening test is made: what is compared, how it is asked, who hears what, in a folder of its own."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from speechframe.batch.progress import say
from speechframe.errors import ListeningError
from speechframe.listening.instructions import INTROS, PROMPTS, TITLE
from speechframe.listening.questions import questions_of
from speechframe.listening.setup import Setup, drawn, gone_on_with, write_design
from speechframe.listening.signals import ANCHORS
from speechframe.listening.sources import material_of, nearest_in_words
from speechframe.listening.stimuli import prepare
from speechframe.listening.test import LISTENERS, MOST_LISTENERS, Test, refuse_listener
from speechframe.page.arguments import flag, place, text, whole
from speechframe.statistics.votes import AB, ABX, METHODS, MULTI, MUSHRA

__all__ = ["make_test"]

_HOME = Path("listening")
_MOST_SEED = 2**63 - 1
"""What a column of votes can hold."""


def make_test(
    source: Any,
    method: Literal["ab", "mos", "multi", "mushra", "abx"] = "ab",
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
    listener: int | str = 1,
    listeners: int = LISTENERS,
    title: str | None = None,
    intro: str | None = None,
    prompt: str | None = None,
    reveal: bool = False,
) -> Test:
    """Return a blind listening test of what a source holds.

    The sounds are made equally loud, and who hears what in which order is drawn and balanced, before anyone
    listens. Each vote is on the disk before the next trial comes; the same call, or the same cell, goes on
    with the test where it was.

    Parameters
    ----------
    source
        What is compared: a run, a selection of its rows, a list of these, a DataFrame with a column
        ``audio``; or conditions by name, as in ``{"ours": run, "human": recordings}``.
    method
        ``ab`` asks which of two is better, for all pairs of conditions; ``mos`` rates one clip at a time from
        1 to 5 (ITU-T P.800); ``multi`` rates all conditions of an item on one page from 0 to 100 (ITU-R
        BS.2132); ``mushra`` does so against a reference, which is hidden among them together with two anchors
        (ITU-R BS.1534); ``abx`` asks which of two a third one is.
    condition
        The column that says what made a clip; where `source` names its conditions it is not asked for.
    item
        The column that says which clips are of the same thing: ``"text"`` where all voices say the same
        texts. ``id`` is the row's own id where there is no such column.
    reference
        The condition that is the natural reference. Without one ``mushra`` becomes ``multi``, with a warning.
    trials_per_listener
        Trials that count; fewer where there are not as many different ones (``abx`` repeats).
    training
        Trials before them for practice: kept, and left out of the results.
    seed
        What the design is drawn with.
    consent
        What listeners have to agree to before the test begins; None asks for no consent.
    questions
        What they are asked before: texts, or mappings with ``label`` and, if wanted, ``name``, ``kind``
        (``text``, ``number``, ``choice``), ``choices`` and ``required``.
    folder
        Where the test is kept; by default in ``listening`` in the working directory, under a name that is
        made of what is compared and how. Only its owner can read what is put there.
    listener
        Who listens here: a number, counted from 1, or a name of the design.
    listeners
        For how many the design is drawn at first.
    title, intro, prompt
        What listeners read: the page's title, what stands before the test, and what stands above each trial.
    reveal
        ``ab`` and ``abx``: say after each vote what was heard. Only for a listener who tests for himself: to
        know what one heard changes the votes that follow.

    Raises
    ------
    ListeningError
        Before anything is shown: an unknown column or method (with the nearest names), fewer than two
        conditions, items that cannot be heard in every condition (``missing`` lists them), too many signals
        for a page, or a folder that holds another test.
    StoreError
        When the source holds no clips, or the folder cannot be written.
    AudioError
        When a clip cannot be read, or is silent.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.open_run("runs/demo")  # doctest: +SKIP
    >>> test = spf.listening_test(run, method="ab", item="text")  # doctest: +SKIP
    >>> test.power(effect=0.65, listeners=12)  # doctest: +SKIP
    >>> test.results  # doctest: +SKIP
    """
    _refuse_method(method, reveal=flag("reveal", reveal, error=ListeningError))
    asked = questions_of(questions)
    known = {"title": title, "intro": intro, "prompt": prompt, "consent": consent, "reference": reference}
    for name, given in known.items():
        if given is not None:
            text(name, given, error=ListeningError)
    figures = {
        "trials_per_listener": whole("trials_per_listener", trials_per_listener, error=ListeningError),
        "training": whole("training", training, low=0, error=ListeningError),
        "seed": whole("seed", seed, low=0, high=_MOST_SEED, error=ListeningError),
    }
    listeners = whole("listeners", listeners, high=MOST_LISTENERS, error=ListeningError)
    target = None if folder is None else place("folder", folder, error=ListeningError)
    material = material_of(source, condition=condition, item=item)
    kind: str = method
    if kind == MUSHRA and reference is None:
        say(
            "without a natural reference this is no MUSHRA (ITU-R BS.1534): it is made, and called, a "
            'multi-stimulus test, method="multi"; reference="..." names the condition that is the reference',
            shown=True,
        )
        kind = MULTI
    _refuse_reference(reference, kind, material.conditions)
    _refuse_anchors(kind, material.conditions)
    setup = Setup(
        method=kind,
        items=material.items,
        conditions=(*material.conditions, *(ANCHORS if kind == MUSHRA else ())),
        reference=reference,
        source=material.identity,
        **figures,
        title=title or TITLE,
        intro=intro or INTROS[kind],
        prompt=prompt or PROMPTS[kind],
        consent=consent,
        questions=asked,
        reveal=reveal,
    )
    target = target or _HOME / setup.test_id
    setup.refuse_other(target)
    planned = gone_on_with(drawn(setup, listeners), target)
    refuse_listener(listener, set(planned["listener"]))
    stimuli = prepare(material, target, reference=reference, anchors=kind == MUSHRA)
    write_design(planned, target)
    # Last: it says that everything else is there.
    setup.write(target)
    return Test(setup, target, stimuli, planned, listener)


def _refuse_method(method: Any, *, reveal: bool) -> None:
    if not isinstance(method, str) or method not in METHODS:
        raise ListeningError(f"there is no method {method!r}; {nearest_in_words(str(method), METHODS)}")
    if reveal and method not in {AB, ABX}:
        raise ListeningError(
            f"reveal=True would tell listeners of {method} what they go on to rate; ab and abx only"
        )


def _refuse_reference(reference: str | None, method: str, conditions: Sequence[str]) -> None:
    if reference is None:
        return
    if method not in {MULTI, MUSHRA}:
        raise ListeningError(f"a test by {method} has no reference; mushra has one, and multi may have one")
    if reference not in conditions:
        raise ListeningError(
            f"reference={reference!r} is no condition; {nearest_in_words(reference, conditions)}"
        )


def _refuse_anchors(method: str, conditions: Sequence[str]) -> None:
    taken = [name for name in conditions if name in ANCHORS]
    if method == MUSHRA and taken:
        raise ListeningError(
            f"{taken[0]!r} is what mushra calls an anchor, which it makes itself: leave that condition out, "
            "or give it another name"
        )
