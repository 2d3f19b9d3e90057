"""Show a blind listening test in a notebook."""

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
from speechframe.listening.test import DEFAULT_LISTENERS, Test
from speechframe.widgets.base import PageWidget

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.statistics.listening import ListeningResult, Power

__all__ = ["ListeningTest", "listening_test"]

P = ParamSpec("P")

log = logging.getLogger(__name__)


class ListeningTest(PageWidget):
    """The pages of a listening test for one listener.

    :func:`listening_test` makes this widget. The page does not get the condition of a sound, such as its
    voice, before the vote on this sound.

    Parameters
    ----------
    test
        The test.
    listener
        The listener, as a number from 1 or as a name. None uses the default listener of the test.

    Attributes
    ----------
    test
        The test, with the votes of all listeners, the design and the folder.
    plan
        Content of the page, from :meth:`~speechframe.listening.test.Test.plan`.
    listener
        Name of the listener.
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
        """All votes so far, of all listeners and including practice."""
        return self.test.votes

    @property
    def design(self) -> "pd.DataFrame":
        """The trials of each listener in order, with one row for each expected vote."""
        return self.test.design

    @property
    def results(self) -> "ListeningResult":
        """Analysis of the votes so far, without practice."""
        return self.test.results

    def analyse(self, votes: "pd.DataFrame | None" = None, **options: Any) -> "ListeningResult":
        """Return the analysis of votes of this test. See :func:`~speechframe.statistics.listening.analyse`.

        Parameters
        ----------
        votes
            Votes to analyse, such as those of :func:`~speechframe.read_votes`. None uses the stored votes.
        **options
            ``confidence``, ``duplicates``, ``replicates``, ``seed``, ``compare_anchors`` of this function.
        """
        return self.test.analyse(votes, **options)

    def power(self, *, effect: float, listeners: int = DEFAULT_LISTENERS, **options: Any) -> "Power":
        """Return the probability that this test finds an effect.

        Parameters
        ----------
        effect
            Size of the effect. For methods with scores, a difference in points of the scale. For others, the
            share of votes for one side.
        listeners
            Number of listeners.
        **options
            ``simulations``, ``alpha``, ``spread`` or ``seed`` of the simulation.
        """
        return self.test.power(effect=effect, listeners=listeners, **options)

    def methods(self, **options: Any) -> str:
        """Return the paragraph on methods for a paper, with the votes so far. Options are as in `analyse`."""
        return self.test.methods(**options)

    def to_html(
        self, path: str | PathLike[str] | None = None, *, listener: int | str | None = None
    ) -> str | Path:
        """Return one listener's test as an offline page, or write the page to `path` and return `path`.

        The page saves its votes as a file for :func:`speechframe.read_votes`.

        Parameters
        ----------
        path
            File to write. None returns the page.
        listener
            Number or name of the listener. None uses the listener of this widget.
        """
        return self.test.to_html(path, listener=self.listener if listener is None else listener)

    def on_load(self, message: dict[str, Any]) -> None:
        """Send a sound of this listener's pages."""
        clip_id = str(message.get("clip"))
        try:
            data, mime = self.test.read_audio(self.listener, clip_id)
        except (KeyError, SpeechframeError, OSError) as error:
            # The message of the error could reveal the condition of the clip, so only the log contains it.
            log.warning("a sound of %s could not be sent: %s", self.test.test_id, error)
            self.send({"kind": "error", "clip": clip_id, "message": "this sound cannot be played"})
        else:
            self.send({"kind": "audio", "clip": clip_id, "mime": mime}, buffers=[data])

    def on_begin(self, message: dict[str, Any]) -> None:
        """Store the consent and the answers of the listener."""
        self._store_message(message)

    def on_vote(self, message: dict[str, Any]) -> None:
        """Store a vote. The page gets the reply when the vote is on disk."""
        self._store_message(message)

    def _store_message(self, message: dict[str, Any]) -> None:
        """Store a message of the page, and send the reply."""
        reply = self.test.reply(self.listener, message)
        self.send(reply)
        # A page that is opened again continues with the updated plan.
        if not reply.get("try_again"):
            self.plan = self.test.plan(self.listener)

    def to_text(self) -> str:
        """Return the progress of the listener. Conditions are omitted, because the listener may read this."""
        done, trials = len(self.plan["done"]), len(self.plan["trials"])
        return f"<ListeningTest {self.test.test_id}: {self.listener}, {done} of {trials} trials done>"


def _wrap_as_widget(make: Callable[P, Test]) -> Callable[P, ListeningTest]:
    """Return a function that makes a test and shows it, with the signature and the docstring of `make`."""
    signature = inspect.signature(make).replace(return_annotation=ListeningTest)

    @functools.wraps(make, assigned=("__doc__", "__annotations__"))
    def listening_test(*args: P.args, **kwargs: P.kwargs) -> ListeningTest:
        # For an unknown argument, this raises TypeError, before `make` would raise it with its own name.
        signature.bind(*args, **kwargs)
        return ListeningTest(make(*args, **kwargs))

    listening_test.__qualname__ = listening_test.__name__
    listening_test.__signature__ = signature  # type: ignore[attr-defined]
    return listening_test


listening_test = _wrap_as_widget(make_test)
