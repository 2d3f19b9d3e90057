"""A blind listening test in a notebook: hear, vote, and know what the votes say."""

import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import traitlets as t

from speechframe.errors import SpeechframeError
from speechframe.listening.making import make_test
from speechframe.listening.test import LISTENERS, Test
from speechframe.widgets.base import PageWidget

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.analysis.listening import ListeningResult, Power

__all__ = ["ListeningTest", "listening_test"]

log = logging.getLogger(__name__)


class ListeningTest(PageWidget):
    """A listening test, as one listener gets it.

    Made by :func:`listening_test`. Until a vote is given, nothing that goes to the page tells what is heard.

    Parameters
    ----------
    test
        The test.
    listener
        Who listens: a number, counted from 1, or a name.

    Attributes
    ----------
    test
        The test: all listeners' votes, the design, the folder.
    plan
        What the page shows.
    listener
        Who listens here.
    """

    script = "listening"

    plan = t.Dict().tag(sync=True)
    listener = t.Unicode().tag(sync=True)

    def __init__(self, test: Test, listener: int | str = 1) -> None:
        self.test = test
        name = test.name_of(listener)
        super().__init__(plan=test.plan(name), listener=name)

    @property
    def votes(self) -> "pd.DataFrame":
        """All votes so far, of all listeners, practice among them; each is on the disk."""
        return self.test.votes

    @property
    def design(self) -> "pd.DataFrame":
        """Who hears what in which order: a row for each vote that will be given."""
        return self.test.design

    @property
    def results(self) -> "ListeningResult":
        """What the votes say so far; practice is left out."""
        return self.test.results

    def analyse(self, votes: "pd.DataFrame | None" = None, **options: Any) -> "ListeningResult":
        """Return what votes of this test say; see :func:`~speechframe.analysis.listening.analyse`.

        Parameters
        ----------
        votes
            Those of the folder by default; or others, such as what :func:`~speechframe.read_votes` returns.
        **options
            ``confidence``, ``duplicates``, ``replicates``, ``seed``.
        """
        return self.test.analyse(votes, **options)

    def power(self, *, effect: float, listeners: int = LISTENERS, **options: Any) -> "Power":
        """Return how likely this test is to find an effect with so many listeners.

        Parameters
        ----------
        effect
            Points of the scale, or in ``ab`` and ``abx`` the share of the votes that are for one side.
        listeners
            How many take part.
        **options
            ``simulations``, ``alpha``, ``spread`` or ``seed`` of the simulation.
        """
        return self.test.power(effect=effect, listeners=listeners, **options)

    def methods(self, **options: Any) -> str:
        """Return the paragraph on methods for a paper, by the votes so far; `options` as :meth:`analyse`."""
        return self.test.methods(**options)

    def to_html(
        self, path: str | PathLike[str] | None = None, *, listener: int | str | None = None
    ) -> str | Path:
        """Return one listener's test as a page that works offline, or write it to `path` and return that.

        Its votes are saved as a file that :func:`speechframe.read_votes` reads.

        Parameters
        ----------
        path
            Where to; None returns the page.
        listener
            Whose; this widget's own by default.
        """
        return self.test.to_html(path, listener=self.listener if listener is None else listener)

    def on_load(self, message: dict[str, Any]) -> None:
        """Send a sound of this listener's pages."""
        clip_id = str(message.get("clip"))
        try:
            data, mime = self.test.audio(self.listener, clip_id)
        except (KeyError, SpeechframeError, OSError) as error:
            # Why would tell which clip it is; that is for the log.
            log.warning("a sound of %s could not be sent: %s", self.test.test_id, error)
            self.send({"kind": "error", "clip": clip_id, "message": "this sound cannot be played"})
        else:
            self.send({"kind": "audio", "clip": clip_id, "mime": mime}, buffers=[data])

    def on_begin(self, message: dict[str, Any]) -> None:
        """Keep what the listener agreed to and answered."""
        self._answer(message)

    def on_vote(self, message: dict[str, Any]) -> None:
        """Keep a vote; the page is told when it is on the disk."""
        self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        self.send(self.test.answer(self.listener, message))
        # Whoever opens the notebook's page again goes on from here.
        self.plan = self.test.plan(self.listener)

    def to_text(self) -> str:
        """Return how far this listener is; not what is compared, for it may be the listener who reads it."""
        done, trials = len(self.plan["done"]), len(self.plan["trials"])
        return f"<ListeningTest {self.test.test_id}: {self.listener}, {done} of {trials} trials done>"


def listening_test(
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
) -> ListeningTest:
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
        made of what is compared and how.
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
    test = make_test(
        source,
        method,
        condition=condition,
        item=item,
        reference=reference,
        trials_per_listener=trials_per_listener,
        training=training,
        seed=seed,
        consent=consent,
        questions=questions,
        folder=folder,
        listeners=listeners,
        title=title,
        intro=intro,
        prompt=prompt,
        reveal=reveal,
        stacklevel=2,
    )
    return ListeningTest(test, listener)
