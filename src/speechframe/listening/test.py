"""A listening test: its material, design, rules and votes; what a notebook, a server and a page share."""

import logging
from collections.abc import Callable, Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from speechframe._words import counted, printable
from speechframe.analysis.votes import AB, METHODS
from speechframe.errors import ListeningError, StoreError, VoteRefused
from speechframe.listening.ballots import Ballots
from speechframe.listening.design import Page, listener_name, pages_of
from speechframe.listening.session import LISTEN_S, vote_rows
from speechframe.listening.setup import Setup, drawn, read_design, write_design
from speechframe.listening.sheet import Sheet, sheet_of
from speechframe.listening.stimuli import Stimuli, open_stimuli
from speechframe.listening.votes import VOTE
from speechframe.page.arguments import place, whole
from speechframe.page.html import saved

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.analysis.listening import ListeningResult, Power

__all__ = ["LISTENERS", "MOST_LISTENERS", "Test", "open_test", "refuse_listener"]

log = logging.getLogger(__name__)

LISTENERS = 20
"""For how many listeners a design is drawn at first; more can be invited at any time."""

MOST_LISTENERS = 10_000
"""More than a design is drawn for."""


class Test:
    """A listening test, in its folder.

    Made by :func:`~speechframe.listening.making.make_test`; :func:`open_test` opens one that was made before.

    Attributes
    ----------
    setup
        What it was set up with.
    folder
        Where it lies: set-up, design, sounds and votes.
    stimuli
        Its sounds.
    listener
        Whose pages are meant where no other listener is named.
    """

    __test__: ClassVar[bool] = False  # nothing for pytest to collect

    def __init__(
        self, setup: Setup, folder: Path, stimuli: Stimuli, design: "pd.DataFrame", listener: int | str = 1
    ) -> None:
        self.setup = setup
        self.folder = folder
        self.stimuli = stimuli
        self._design = design
        self._sheets: dict[str, Sheet] = {}
        self._ballots = Ballots(folder, setup, self._pages)
        self.listener = self.name_of(listener)

    @property
    def test_id(self) -> str:
        """Its name: the method, and a hash of what makes it this test."""
        return self.setup.test_id

    @property
    def method(self) -> str:
        """How listeners are asked."""
        return self.setup.method

    @property
    def title(self) -> str:
        """What its page is called."""
        return self.setup.title

    @property
    def design(self) -> "pd.DataFrame":
        """Who hears what in which order; see :func:`~speechframe.listening.design.design`."""
        return self._design.copy()

    @property
    def listeners(self) -> tuple[str, ...]:
        """The names of all listeners the design is drawn for."""
        return tuple(self._design["listener"].unique())

    def invite(self, listeners: int) -> tuple[str, ...]:
        """Return the names of the first listeners; the design is drawn for them where it was not yet.

        Parameters
        ----------
        listeners
            How many, up to 10,000.

        Raises
        ------
        ListeningError
            That is no number of listeners.
        """
        import pandas as pd

        listeners = whole("listeners", listeners, high=MOST_LISTENERS, error=ListeningError)
        there = len(self.listeners)
        if listeners > there:
            more = drawn(self.setup, listeners - there, first_listener=there + 1)
            self._design = pd.concat([self._design, more], ignore_index=True)
            write_design(self._design, self.folder)
        return self.listeners[:listeners]

    def name_of(self, listener: int | str) -> str:
        """Return a listener's name, by number (from 1) or name; the design is drawn for a new number.

        Raises
        ------
        ListeningError
            There is no such listener.
        """
        refuse_listener(listener, self.listeners)
        return listener if isinstance(listener, str) else self.invite(listener)[listener - 1]

    def plan(self, listener: int | str) -> dict[str, Any]:
        """Return what a listener's page needs, as plain values: nothing in it tells what is heard.

        Parameters
        ----------
        listener
            By number or name.
        """
        name, scale = self.name_of(listener), METHODS[self.method]
        begun, done = self._ballots.how_far(name)
        return {
            "test_id": self.test_id,
            "listener": name,
            "method": self.method,
            "title": self.title,
            "intro": self.setup.intro,
            "consent": self.setup.consent,
            "questions": [question.to_page() for question in self.setup.questions],
            "scale": {
                "low": scale.lowest,
                "high": scale.highest,
                "step": scale.step or 1,
                "labels": [*scale.labels],
            }
            if scale.has_scores
            else None,
            "rules": {"listen_s": LISTEN_S, "ties": self.method == AB, "reveal": self.setup.reveal},
            "begun": begun,
            "done": done,
            "trials": self._sheet(name).trials,
        }

    def clips(self, listener: int | str) -> tuple[str, ...]:
        """Return the names of all sounds on a listener's pages; each is on one page, in one place."""
        return self._sheet(self.name_of(listener)).clips

    def audio(self, listener: int | str, clip_id: str) -> tuple[bytes, str]:
        """Return a sound of a listener's pages, and its content type.

        Raises
        ------
        KeyError
            The sound is on no page of theirs.
        """
        if clip_id not in self.clips(listener):
            raise KeyError(f"there is no sound {clip_id!r} here")
        return self.stimuli.audio(clip_id)

    def answer(self, listener: int | str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a message of a page: ``{"kind": "begun"}``, or what :meth:`record` returns.

        Parameters
        ----------
        listener
            By number or name.
        message
            What the page sent: ``begin`` or ``vote``.
        """
        if message.get("kind") == VOTE:
            return self.record(listener, message)
        return self._kept(lambda: self._begin(listener, message), None)

    def record(self, listener: int | str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the vote of a page: when this returns ``stored``, it is on the disk.

        Parameters
        ----------
        listener
            By number or name.
        message
            The page's ``vote``; see :func:`~speechframe.listening.session.vote_rows`.

        Returns
        -------
        dict
            ``{"kind": "stored", "trial", "reveal"}``, or ``{"kind": "refused", "trial", "message", "done"}``
            where it breaks a rule, could not be kept (then ``try_again`` is true) or is there already, which
            ``done`` tells.
        """
        answer = self._kept(lambda: self._vote(listener, message), message.get("trial"))
        if answer["kind"] == "refused":
            # A page that did not hear of it goes on, instead of voting again.
            answer["done"] = answer["trial"] in self._done(listener)
        return answer

    def rows(self, listener: int | str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows that a vote becomes, without keeping them; times are texts.

        Raises
        ------
        VoteRefused
            The vote breaks a rule.
        """
        name = self.name_of(listener)
        sheet, trial = self._sheet(name), message.get("trial")
        if isinstance(trial, bool) or not isinstance(trial, int) or trial not in sheet.pages:
            raise VoteRefused("this test has no such trial")
        known = {"test_id": self.test_id, "seed": self.setup.seed}
        return vote_rows(
            sheet.pages[trial], message, method=self.method, needed=sheet.needed[trial], known=known
        )

    @property
    def votes(self) -> "pd.DataFrame":
        """All votes so far, practice among them, with the columns of
        :data:`~speechframe.analysis.votes.VOTE_SCHEMA`.

        A stored vote that cannot be read is left out, and a warning in the log names its file and line.
        """  # noqa: D205 - one sentence
        return self._ballots.votes

    @property
    def answers(self) -> "pd.DataFrame":
        """Who began when, and what they answered: one row a listener."""
        return self._ballots.answers

    @property
    def results(self) -> "ListeningResult":
        """What the votes say so far; practice is left out."""
        return self.analyse()

    def analyse(self, votes: "pd.DataFrame | None" = None, **options: Any) -> "ListeningResult":
        """Return what votes of this test say; see :func:`~speechframe.analysis.listening.analyse`.

        Parameters
        ----------
        votes
            Those of the folder by default; or others, such as what :func:`~speechframe.read_votes` returns.
        **options
            ``confidence``, ``duplicates``, ``replicates``, ``seed``, ``compare_anchors``.
        """
        from speechframe.analysis.listening import analyse

        return analyse(
            self.votes if votes is None else votes,
            method=self.method,
            reference=self.setup.reference,
            conditions=self.setup.conditions,
            anchors=self.setup.anchors,
            **options,
        )

    def power(self, *, effect: float, listeners: int = LISTENERS, **options: Any) -> "Power":
        """Return how likely this test is to find an effect; see :func:`~speechframe.analysis.power.power`.

        Parameters
        ----------
        effect
            Points of the scale in methods with scores, else the share of the votes that are for one side.
        listeners
            How many take part.
        **options
            Further arguments of it, such as ``simulations`` and ``alpha``.
        """
        from speechframe.analysis.power import power

        listeners = whole("listeners", listeners, high=MOST_LISTENERS, error=ListeningError)
        planned = drawn(self.setup, listeners)
        planned = planned[~planned["training"]]
        if self.setup.anchors:
            # Their differences are not tested.
            planned = planned[~planned["condition"].isin(self.setup.anchors)]
        return power(self.method, effect=effect, design=planned, **options)

    def methods(self, **options: Any) -> str:
        """Return the paragraph on methods for a paper, by the votes so far.

        Parameters
        ----------
        **options
            As :meth:`analyse` takes them.
        """
        return self.analyse(**options).methods(setup=self._setup_in_words())

    def to_html(
        self, path: str | PathLike[str] | None = None, *, listener: int | str | None = None
    ) -> str | Path:
        """Return one listener's test as a page that works offline, or write it to `path` and return that.

        Its votes are saved as a file that :func:`~speechframe.read_votes` reads.

        Parameters
        ----------
        path
            Where to; None returns the page.
        listener
            Whose, by number or name; the test's own by default. Give each listener a page of their own.

        Raises
        ------
        ListeningError
            There is no such listener.
        StoreError
            A sound cannot be read, or the page cannot be written.
        """
        # Imported here because it reads, with this class, what its pages send back.
        from speechframe.listening.offline import offline_page

        return saved(offline_page(self, self.listener if listener is None else listener), path)

    def __repr__(self) -> str:
        return printable(
            f"<Test {self.test_id}: {counted(len(self.setup.conditions), 'condition')}, "
            f"{counted(len(self.setup.items), 'item')}, "
            f"{counted(len(self.listeners), 'listener')}, in {self.folder}>"
        )

    def _setup_in_words(self) -> str:
        counted = self._design[~self._design["training"]]
        trials = int(counted.groupby("listener")["trial"].nunique().max())
        practice = f" after {self.setup.training} for practice" if self.setup.training else ""
        asked = f"{trials} {'trial' if trials == 1 else 'trials'}{practice}"
        return (
            f"Each was asked for {asked}, drawn (seed {self.setup.seed}) so that conditions, their order and "
            "their places are balanced. All sounds were mono at one sampling rate and of equal loudness "
            f"(ITU-R BS.1770). A vote could be given once {LISTEN_S:g} s, or all, of every sound had been "
            "heard."
        )

    def _kept(self, work: Callable[[], dict[str, Any]], trial: Any) -> dict[str, Any]:
        answer = {"kind": "refused", "trial": trial if isinstance(trial, int) else None}
        try:
            return work()
        except VoteRefused as error:
            return {**answer, "message": str(error)}
        except StoreError:
            # The words name the folder, which is no business of a listener.
            log.exception("a vote of %s could not be kept", self.test_id)
            said = "this could not be kept; please try again, and tell who asked you to take part"
            return {**answer, "message": said, "try_again": True}

    def _begin(self, listener: int | str, message: Mapping[str, Any]) -> dict[str, Any]:
        self._ballots.begin(self.name_of(listener), message)
        return {"kind": "begun"}

    def _vote(self, listener: int | str, message: Mapping[str, Any]) -> dict[str, Any]:
        name = self.name_of(listener)
        rows = self.rows(name, message)
        trial = message["trial"]
        self._ballots.vote(name, trial, rows)
        reveal = self._sheet(name).told(trial) if self.setup.reveal else None
        return {"kind": "stored", "trial": trial, "reveal": reveal}

    def _done(self, listener: int | str) -> list[int]:
        try:
            return self._ballots.how_far(self.name_of(listener))[1]
        except StoreError:
            return []

    def _pages(self, name: str) -> Mapping[int, Page]:
        is_known = name in self._sheets or name in self.listeners
        return self._sheet(name).pages if is_known else {}

    def _sheet(self, name: str) -> Sheet:
        if name not in self._sheets:
            self._sheets[name] = sheet_of(name, pages_of(self._design, name), self.stimuli, self.setup)
        return self._sheets[name]


def refuse_listener(listener: Any, names: Collection[str]) -> None:
    """Raise ListeningError for what is neither a listener's number nor one of the names."""
    if isinstance(listener, str) and listener in names:
        return
    if isinstance(listener, int) and not isinstance(listener, bool) and 1 <= listener <= MOST_LISTENERS:
        return
    raise ListeningError(
        f"there is no listener {listener!r}; a number from 1 on, or a name such as {listener_name(1)!r}"
    )


def open_test(folder: str | PathLike[str]) -> Test:
    """Return the listening test that was made in a folder.

    Raises
    ------
    StoreError
        There is none, or it cannot be read.
    """
    target = place("folder", folder, error=StoreError)
    setup = Setup.read(target)
    return Test(setup, target, open_stimuli(target), read_design(target))
