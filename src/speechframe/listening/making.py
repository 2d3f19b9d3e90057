"""Make a listening test in its folder, with its clips, texts and design."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from speechframe.batch.progress import print_line
from speechframe.errors import ListeningError
from speechframe.listening.questions import parse_questions
from speechframe.listening.setup import Setup, draw_design, extend_design, write_design
from speechframe.listening.signals import ANCHOR_CUTOFFS_HZ
from speechframe.listening.sources import collect_material, describe_nearest_names
from speechframe.listening.stimuli import prepare_sounds
from speechframe.listening.test import DEFAULT_LISTENERS, MAX_LISTENERS, Test, refuse_listener
from speechframe.page.arguments import check_flag, check_path, check_text, check_whole_number
from speechframe.page.texts import LISTENING, resolve_texts
from speechframe.statistics.votes import AB, ABX, METHODS, MULTI, MUSHRA

_TESTS_FOLDER = Path("listening")
"""Folder of new tests, relative to the working directory."""

_MAX_SEED = 2**63 - 1
"""Largest seed, because the column ``seed`` of the votes has signed integers of 64 bits."""


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
    listeners: int = DEFAULT_LISTENERS,
    title: str | None = None,
    intro: str | None = None,
    prompt: str | None = None,
    reveal: bool = False,
    locale: str = "en",
    texts: Mapping[str, str] | None = None,
) -> Test:
    """Return a blind listening test of the clips of a source.

    All sounds are made equally loud. The trials of each listener are drawn at random, and balanced, before
    the test begins. Each vote is on disk before the next trial is shown. A call with the same arguments
    continues the test.

    Parameters
    ----------
    source
        The clips. A run, a selection of its rows, a list of these, or a DataFrame with a column ``audio``. Or
        a mapping of conditions to any of these, such as ``{"ours": run, "human": recordings}``.
    method
        The question to listeners. ``ab`` asks which of two clips is better, for all pairs of conditions.
        ``mos`` rates one clip at a time from 1 to 5 (ITU-T P.800). ``multi`` rates all conditions of an item
        on one page from 0 to 100 (ITU-R BS.2132). ``mushra`` adds a reference, a hidden copy of the reference
        and two anchors (ITU-R BS.1534). ``abx`` asks which of two clips is the same as a third clip.
    condition
        The column with the condition of each clip, which is what listeners compare, such as a voice. Not used
        if `source` is a mapping.
    item
        The column whose value is equal for clips that are compared with each other, such as ``"text"`` if all
        voices read the same texts. ``"id"`` means the row id if the source has no such column.
    reference
        The condition that serves as reference, such as recordings of people. Without a reference, ``mushra``
        becomes ``multi``, and a warning is shown.
    trials_per_listener
        Number of trials that count for each listener. The number of different trials is its limit, except in
        ``abx``.
    training
        Number of practice trials before the trials that count. Their votes are stored but not analysed.
    seed
        Seed of the design.
    consent
        Text that listeners must agree to before the test begins. None shows no consent text.
    questions
        Questions before the first trial. Each is a text or a mapping with ``label`` and optionally ``name``,
        ``kind`` (``text``, ``number``, ``choice``), ``choices`` and ``required``.
    folder
        Folder of the test. None selects a subfolder of ``listening`` in the working directory, named after
        the method and a hash of the settings. Only the owner of the folder can read its files.
    listener
        The listener whose page is shown by default, as a number from 1 or as a name of the design.
    listeners
        Number of listeners of the first design. More can be invited later.
    title, intro, prompt
        Title of the page, text before the test, and text above each trial.
    reveal
        Whether the page names the conditions after each vote, in ``ab`` and ``abx``. Use this only to test
        your own hearing, because a listener who knows the conditions votes differently.
    locale
        Locale of the pages. English (``en``) and German (``de``) are built in.
    texts
        Words of the pages that replace or complete those of the locale, by name. The error for a missing
        name says where the English words are.

    Raises
    ------
    ListeningError
        A column or method is unknown (the message has the nearest names), there are fewer than two
        conditions, an item cannot be heard in every condition (``missing`` lists these), a page would have
        too many signals, the words of the pages are incomplete, or the folder contains another test.
    StoreError
        The source does not contain clips, or the folder cannot be written.
    AudioError
        A clip cannot be read or is silent.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.open_run("runs/demo")  # doctest: +SKIP
    >>> test = spf.listening_test(run, method="ab", item="text")  # doctest: +SKIP
    >>> test.power(effect=0.65, listeners=12)  # doctest: +SKIP
    >>> test.results  # doctest: +SKIP
    """
    _refuse_method(method, reveal=check_flag("reveal", reveal, error=ListeningError))
    parsed_questions = parse_questions(questions)
    words = resolve_texts(locale, texts, page=LISTENING, error=ListeningError)
    optional = {"title": title, "intro": intro, "prompt": prompt, "consent": consent, "reference": reference}
    for name, given in optional.items():
        if given is not None:
            check_text(name, given, error=ListeningError)
    whole_numbers = {
        "trials_per_listener": check_whole_number(
            "trials_per_listener", trials_per_listener, error=ListeningError
        ),
        "training": check_whole_number("training", training, low=0, error=ListeningError),
        "seed": check_whole_number("seed", seed, low=0, high=_MAX_SEED, error=ListeningError),
    }
    listeners = check_whole_number("listeners", listeners, high=MAX_LISTENERS, error=ListeningError)
    target = None if folder is None else check_path("folder", folder, error=ListeningError)
    material = collect_material(source, condition=condition, item=item)
    used_method: str = method
    if used_method == MUSHRA and reference is None:
        print_line(
            "MUSHRA (ITU-R BS.1534) needs a natural reference, and none was given. This test therefore uses "
            'method="multi". To run MUSHRA, name the condition that is the reference with reference="..."',
            shown=True,
        )
        used_method = MULTI
    _refuse_reference(reference, used_method, material.conditions)
    _refuse_anchors(used_method, material.conditions)
    setup = Setup(
        method=used_method,
        items=material.items,
        conditions=(*material.conditions, *(ANCHOR_CUTOFFS_HZ if used_method == MUSHRA else ())),
        reference=reference,
        source=material.identity,
        **whole_numbers,
        title=title or words["title"],
        intro=intro or words[f"intro_{used_method}"],
        prompt=prompt or words[f"prompt_{used_method}"],
        consent=consent,
        questions=parsed_questions,
        reveal=reveal,
        locale=locale,
        texts=dict(texts or {}),
    )
    target = target or _TESTS_FOLDER / setup.test_id
    setup.refuse_other_test(target)
    planned = extend_design(draw_design(setup, listeners), target)
    refuse_listener(listener, set(planned["listener"]))
    stimuli = prepare_sounds(material, target, reference=reference, anchors=used_method == MUSHRA)
    write_design(planned, target)
    # The set-up is written last, so a folder with a set-up has all other files.
    setup.write(target)
    return Test(setup, target, stimuli, planned, listener)


def _refuse_method(method: Any, *, reveal: bool) -> None:
    """Raise ListeningError if the method is unknown or does not allow `reveal`."""
    if not isinstance(method, str) or method not in METHODS:
        raise ListeningError(f"there is no method {method!r}; {describe_nearest_names(str(method), METHODS)}")
    if reveal and method not in {AB, ABX}:
        raise ListeningError(
            f"reveal=True is allowed for ab and abx only: in {method}, listeners would learn the conditions "
            "that they rate next; leave reveal out"
        )


def _refuse_reference(reference: str | None, method: str, conditions: Sequence[str]) -> None:
    """Raise ListeningError if the method or the conditions do not allow the reference."""
    if reference is None:
        return
    if method not in {MULTI, MUSHRA}:
        raise ListeningError(
            f'a reference cannot be used with method="{method}"; use mushra or multi, or leave reference out'
        )
    if reference not in conditions:
        raise ListeningError(
            f"reference={reference!r} is not a condition; {describe_nearest_names(reference, conditions)}"
        )


def _refuse_anchors(method: str, conditions: Sequence[str]) -> None:
    """Raise ListeningError if a condition has the name of an anchor that `mushra` makes."""
    taken = [name for name in conditions if name in ANCHOR_CUTOFFS_HZ]
    if method == MUSHRA and taken:
        raise ListeningError(
            f"mushra makes its own anchors, and {taken[0]!r} is the name of one of them; leave this "
            "condition out, or rename it"
        )
