"""Show a blind listening test in a notebook."""

import functools
import inspect
import logging
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec

import traitlets as t

from speechframe.errors import SpeechframeError
from speechframe.listening.making import make_test
from speechframe.listening.test import Test
from speechframe.widgets.base import PageWidget

P = ParamSpec("P")

log = logging.getLogger(__name__)


def _delegate(name: str) -> Any:
    """Return a method of the widget that calls the method `name` of its test. It has the same docstring."""
    method = getattr(Test, name)

    @functools.wraps(method)
    def call_test(self: "ListeningTest", *args: Any, **kwargs: Any) -> Any:
        return method(self.test, *args, **kwargs)

    return call_test


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

    def __init__(self, test: Test, listener: int | str | None = None) -> None:
        self.test = test
        self.listener = test.listener if listener is None else test.name_of(listener)
        super().__init__(plan=test.plan(self.listener))

    votes = property(lambda self: self.test.votes, doc=Test.votes.__doc__)
    design = property(lambda self: self.test.design, doc=Test.design.__doc__)
    results = property(lambda self: self.test.results, doc=Test.results.__doc__)
    analyse = _delegate("analyse")
    power = _delegate("power")
    methods = _delegate("methods")

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

    def on_vote(self, message: dict[str, Any]) -> None:
        """Store a vote, or the start with consent and answers. The page gets the reply when it is on disk."""
        reply = self.test.reply(self.listener, message)
        self.send(reply)
        # A page that is opened again continues with the updated plan.
        if not reply.get("try_again"):
            self.plan = self.test.plan(self.listener)

    on_begin = on_vote

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
