"""A blind listening test in a notebook: hear, vote, and know what the votes say."""

import functools
import inspect
import logging
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import traitlets as t

from speechframe.errors import SpeechframeError
from speechframe.listening.making import make_test
from speechframe.listening.test import LISTENERS, Test
from speechframe.widgets.base import PageWidget

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.statistics.listening import ListeningResult, Power

__all__ = ["ListeningTest", "listening_test"]

P = ParamSpec("P")

log = logging.getLogger(__name__)


class ListeningTest(PageWidget):
    """A listening test, as one listener gets it.

    Made by :func:`listening_test`. Until a vote is given, nothing that goes to the page tells what is heard.

    Parameters
    ----------
    test
        The test.
    listener
        Who listens: a number, counted from 1, or a name; who the test is for by default.

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

    def __init__(self, test: Test, listener: int | str | None = None) -> None:
        self.test = test
        name = test.listener if listener is None else test.name_of(listener)
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
        """Return what votes of this test say; see :func:`~speechframe.statistics.listening.analyse`.

        Parameters
        ----------
        votes
            Those of the folder by default; or others, such as what :func:`~speechframe.read_votes` returns.
        **options
            ``confidence``, ``duplicates``, ``replicates``, ``seed``, ``compare_anchors``.
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
        answer = self.test.answer(self.listener, message)
        self.send(answer)
        # Whoever opens the notebook's page again goes on from here.
        if not answer.get("try_again"):
            self.plan = self.test.plan(self.listener)

    def to_text(self) -> str:
        """Return how far this listener is; not what is compared, for it may be the listener who reads it."""
        done, trials = len(self.plan["done"]), len(self.plan["trials"])
        return f"<ListeningTest {self.test.test_id}: {self.listener}, {done} of {trials} trials done>"


def _shown(make: Callable[P, Test]) -> Callable[P, ListeningTest]:
    """Return what makes a test and shows it, with the arguments and the words of `make`."""
    signature = inspect.signature(make).replace(return_annotation=ListeningTest)

    @functools.wraps(make, assigned=("__doc__", "__annotations__"))
    def listening_test(*args: P.args, **kwargs: P.kwargs) -> ListeningTest:
        # An unknown argument is one of this function, not of the one behind it.
        signature.bind(*args, **kwargs)
        return ListeningTest(make(*args, **kwargs))

    listening_test.__qualname__ = listening_test.__name__
    listening_test.__signature__ = signature  # type: ignore[attr-defined]
    return listening_test


listening_test = _shown(make_test)
