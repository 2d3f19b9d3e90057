"""Hold a listening test with its sounds, design and votes. Notebooks, servers and offline pages use it."""

import logging
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from speechframe.errors import ListeningError, StoreError, VoteRefused
from speechframe.listening.ballots import Ballots
from speechframe.listening.design import build_pages, make_listener_name
from speechframe.listening.questions import check_answers
from speechframe.listening.session import MIN_LISTENED_S, VoteMessage, make_vote_rows
from speechframe.listening.setup import Setup, draw_design, read_design, write_design
from speechframe.listening.sheet import TrialSheet, build_sheet
from speechframe.listening.stimuli import Stimuli, open_stimuli
from speechframe.listening.votes import BEGIN, VOTE, make_votes_frame
from speechframe.page.arguments import check_path, check_whole_number
from speechframe.page.html import save_page, stream_saved_page
from speechframe.page.texts import get_direction
from speechframe.statistics.votes import METHODS
from speechframe.writing.words import format_count, replace_unprintable

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.statistics.listening import ListeningResult
    from speechframe.statistics.power import Power

log = logging.getLogger(__name__)

DEFAULT_LISTENERS = 20
"""Default number of listeners of a new test. More can be invited at any time."""

MAX_LISTENERS = 10_000
"""Largest number of listeners of a design."""


class Test:
    """A listening test in its folder.

    :func:`~speechframe.listening.making.make_test` makes a test. :func:`open_test` opens an existing test.

    Attributes
    ----------
    setup
        Settings and texts of the test.
    folder
        Folder with set-up, design, sounds and votes.
    stimuli
        The sounds of the test.
    listener
        Name of the listener whose page is shown by default.
    """

    __test__: ClassVar[bool] = False  # pytest would collect this class because of its name

    def __init__(
        self, setup: Setup, folder: Path, stimuli: Stimuli, design: "pd.DataFrame", listener: int | str = 1
    ) -> None:
        self.setup = setup
        self.folder = folder
        self.stimuli = stimuli
        self._design = design
        self._listeners = dict.fromkeys(design["listener"])
        self._sheets: dict[str, TrialSheet] = {}
        self._ballots = Ballots(folder, setup)
        self.listener = self.name_of(listener)

    @property
    def test_id(self) -> str:
        """Name of the test, made of the method and a hash of the settings that identify the test."""
        return self.setup.test_id

    @property
    def method(self) -> str:
        """Name of the test method, such as ``ab`` or ``mos``."""
        return self.setup.method

    @property
    def title(self) -> str:
        """Title of the page."""
        return self.setup.title

    @property
    def design(self) -> "pd.DataFrame":
        """The trials of each listener in order. See :func:`~speechframe.listening.design.design_trials`."""
        return self._design.copy()

    @property
    def listeners(self) -> tuple[str, ...]:
        """The names of all listeners in the design."""
        return tuple(self._listeners)

    def invite(self, listeners: int) -> tuple[str, ...]:
        """Return the names of the first `listeners` listeners. Extend the design if it has fewer.

        Parameters
        ----------
        listeners
            Number of listeners, up to 10,000.

        Raises
        ------
        ListeningError
            `listeners` is not a valid number.
        StoreError
            The extended design cannot be written.
        """
        import pandas as pd

        listeners = check_whole_number("listeners", listeners, high=MAX_LISTENERS, error=ListeningError)
        existing = len(self._listeners)
        if listeners > existing:
            added = draw_design(self.setup, listeners - existing, first_listener=existing + 1)
            self._design = pd.concat([self._design, added], ignore_index=True)
            write_design(self._design, self.folder)
            self._listeners = dict.fromkeys(self._design["listener"])
        return self.listeners[:listeners]

    def name_of(self, listener: int | str) -> str:
        """Return a listener's name, by number (from 1) or name. A new number extends the design.

        Raises
        ------
        ListeningError
            There is no such listener.
        """
        refuse_listener(listener, self._listeners)
        return listener if isinstance(listener, str) else self.invite(listener)[listener - 1]

    def plan(self, listener: int | str) -> dict[str, Any]:
        """Return the content of a listener's page as JSON values. They do not reveal any condition.

        Parameters
        ----------
        listener
            Number or name of the listener.
        """
        name, scale, words = self.name_of(listener), METHODS[self.method], self.setup.words
        begun, done = self._ballots.read_progress(name)
        return {
            "test_id": self.test_id,
            "listener": name,
            **self.setup.model_dump(include={"method", "title", "intro", "consent", "questions", "locale"}),
            "scale": {
                "low": scale.lowest,
                "high": scale.highest,
                "step": scale.step or 1,
                "labels": [words[label.lower()] for label in scale.labels],
            }
            if scale.has_scores
            else None,
            "listen_s": MIN_LISTENED_S,
            "direction": get_direction(self.setup.locale),
            "texts": words,
            "begun": begun,
            "done": done,
            "trials": self._get_sheet(name).trials,
        }

    def list_clips(self, listener: int | str) -> tuple[str, ...]:
        """Return the opaque names of all sounds on a listener's pages. Each name is used only once."""
        return self._get_sheet(self.name_of(listener)).clips

    def read_audio(self, listener: int | str, clip_id: str) -> tuple[bytes, str]:
        """Return a sound of a listener's pages, and its content type.

        Raises
        ------
        KeyError
            The sound is not on any page of this listener.
        """
        if clip_id not in self.list_clips(listener):
            raise KeyError(f"there is no sound {clip_id!r} here")
        return self.stimuli.read_audio(clip_id)

    def reply(self, listener: int | str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Store a message of a page, and return the reply to the page. What is stored is on disk by then.

        Parameters
        ----------
        listener
            Number or name of the listener.
        message
            The page's message, with the kind ``begin`` or ``vote``. For the fields of a vote, see
            :class:`~speechframe.listening.session.VoteMessage`.

        Returns
        -------
        dict
            ``{"kind": "begun"}`` for a stored start, ``{"kind": "stored", "trial", "reveal"}`` for a stored
            vote, or ``{"kind": "refused", "trial", "message", "done"}``. A message is refused if it breaks a
            rule, if it could not be stored (then ``try_again`` is true, and ``text`` names the words of the
            page), or if the trial has a vote already (then ``done`` is true).
        """
        trial: Any = message.get("trial")
        refusal: dict[str, Any] = {"kind": "refused", "trial": trial if isinstance(trial, int) else None}
        try:
            name = self.name_of(listener)
            if message.get("kind") != VOTE:
                self._ballots.store_start(name, message)
                return {"kind": "begun"}
            self.make_rows(name, message)  # refuses an invalid vote
            vote = {field: message[field] for field in VoteMessage.model_fields if field in message}
            self._ballots.store_vote(name, trial, vote)
        except VoteRefused as error:
            refusal["message"] = str(error)
        except StoreError:
            # The message of the error names the folder, which the listener must not see.
            log.exception("a vote of %s could not be stored", self.test_id)
            refusal |= {"text": "not_stored", "try_again": True}
        else:
            reveal = self._get_sheet(name).get_conditions(trial) if self.setup.reveal else None
            return {"kind": "stored", "trial": trial, "reveal": reveal}
        # If the page did not get the first reply, `done` makes the page continue with the next trial.
        return {**refusal, "done": trial in self._list_voted_trials(listener)}

    def make_rows(self, listener: int | str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a vote without storing them.

        Raises
        ------
        VoteRefused
            The vote breaks a rule.
        """
        name = self.name_of(listener)
        sheet, trial = self._get_sheet(name), message.get("trial")
        if isinstance(trial, bool) or not isinstance(trial, int) or trial not in sheet.pages:
            raise VoteRefused("the trial does not exist in this test: reload the page")
        known = {"test_id": self.test_id, "seed": self.setup.seed}
        return make_vote_rows(
            sheet.pages[trial], message, method=self.method, needed=sheet.needed[trial], known=known
        )

    @property
    def votes(self) -> "pd.DataFrame":
        """All votes so far, including practice.

        The columns are those of :data:`~speechframe.statistics.votes.VOTE_SCHEMA`. A stored vote that cannot
        be read is left out. A warning in the log names its file and line.
        """
        votes = self._ballots.read_lines(VOTE, self.name_of, self.make_rows)
        return make_votes_frame((row for rows in votes for row in rows), self.method)

    @property
    def answers(self) -> "pd.DataFrame":
        """Start time and answers to the questions, one row a listener."""
        import pandas as pd

        names = [question.name for question in self.setup.questions]
        rows = self._ballots.read_lines(BEGIN, self.name_of, self._read_start)
        return pd.DataFrame(rows, columns=["listener", "begun_utc", "consent", *names])

    def _read_start(self, listener: str, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return the start time, the consent and the answers of a stored start."""
        import pandas as pd

        # The answers are checked again, because the file may be damaged.
        answers = check_answers(line, consent=None, questions=self.setup.questions)
        begun_utc = pd.Timestamp(line["begun_utc"])
        return {"listener": listener, "begun_utc": begun_utc, "consent": line["consent"], **answers}

    @property
    def results(self) -> "ListeningResult":
        """Analysis of the votes so far, without practice."""
        return self.analyse()

    def analyse(self, votes: "pd.DataFrame | None" = None, **options: Any) -> "ListeningResult":
        """Return the analysis of votes of this test. See :func:`~speechframe.statistics.listening.analyse`.

        Parameters
        ----------
        votes
            Votes to analyse, such as those of :func:`~speechframe.read_votes`. None uses the stored votes.
        **options
            ``confidence``, ``duplicates``, ``replicates``, ``seed``, ``compare_anchors`` of this function.
        """
        from speechframe.statistics.listening import analyse

        return analyse(
            self.votes if votes is None else votes,
            method=self.method,
            reference=self.setup.reference,
            conditions=self.setup.conditions,
            anchors=self.setup.anchors,
            **options,
        )

    def power(self, *, effect: float, listeners: int = DEFAULT_LISTENERS, **options: Any) -> "Power":
        """Return the probability of finding an effect. See :func:`~speechframe.statistics.power.power`.

        Parameters
        ----------
        effect
            Size of the effect. For methods with scores, a difference in points of the scale. For others, the
            share of votes for one side.
        listeners
            Number of listeners.
        **options
            Further arguments of ``power``, such as ``simulations`` and ``alpha``.
        """
        from speechframe.statistics.power import power

        listeners = check_whole_number("listeners", listeners, high=MAX_LISTENERS, error=ListeningError)
        planned = draw_design(self.setup, listeners)
        planned = planned[~planned["training"]]
        if self.setup.anchors:
            # Differences to the anchors are not tested.
            planned = planned[~planned["condition"].isin(self.setup.anchors)]
        return power(self.method, effect=effect, design=planned, **options)

    def methods(self, **options: Any) -> str:
        """Return the paragraph on methods for a paper, with the votes so far.

        Parameters
        ----------
        **options
            Options of :meth:`analyse`.
        """
        return self.analyse(**options).methods(setup=self._describe_setup())

    def to_html(
        self, path: str | PathLike[str] | None = None, *, listener: int | str | None = None
    ) -> str | Path:
        """Return one listener's test as an offline page, or write the page to `path` and return `path`.

        The names of the sounds on the page do not reveal any condition. The page keeps votes in the
        listener's browser, so the listener may close and reopen it. The page saves the votes as a file for
        :func:`~speechframe.read_votes`, which the listener sends back. Its checksum shows whether it was
        damaged. It does not stop a listener from sending other votes. The page is a third larger than its
        sounds, because it contains them as Base64.

        Parameters
        ----------
        path
            File to write. None returns the page.
        listener
            Number or name of the listener. None uses :attr:`listener`. Give each listener a separate page.

        Raises
        ------
        ListeningError
            There is no such listener.
        StoreError
            A sound cannot be read, or the page cannot be written.
        """
        name = self.listener if listener is None else self.name_of(listener)
        plan = self.plan(name)
        # Only the bar with the button that saves the votes knows whether the browser and a file have them.
        plan["texts"] = {**plan["texts"], "stop": "", "all_saved": ""}
        page = stream_saved_page(
            "listening",
            {"plan": plan},
            ((clip, *self.read_audio(name, clip)) for clip in self.list_clips(name)),
            title=plan["title"],
            model="offline",
            lang=plan["locale"],
            direction=plan["direction"],
        )
        return save_page(page, path)

    def __repr__(self) -> str:
        return replace_unprintable(
            f"<Test {self.test_id}: {format_count(len(self.setup.conditions), 'condition')}, "
            f"{format_count(len(self.setup.items), 'item')}, "
            f"{format_count(len(self.listeners), 'listener')}, in {self.folder}>"
        )

    def _describe_setup(self) -> str:
        """Return sentences about trials and sounds for the paragraph on methods."""
        analysed = self._design[~self._design["training"]]
        trials = int(analysed.groupby("listener")["trial"].nunique().max())
        practice = (
            f" after {format_count(self.setup.training, 'practice trial')}" if self.setup.training else ""
        )
        return (
            f"Each listener was given {format_count(trials, 'trial')}{practice}. The trials were drawn at "
            f"random (seed {self.setup.seed}), with balanced conditions, orders and places. All sounds were "
            "mono, had one sampling rate and were equally loud (ITU-R BS.1770). Listeners could vote after "
            f"they had played {MIN_LISTENED_S:g} s of every sound, or all of a shorter sound."
        )

    def _list_voted_trials(self, listener: int | str) -> list[int]:
        """Return the trials of a listener that have a vote. Return an empty list if they cannot be read."""
        try:
            return self._ballots.read_progress(self.name_of(listener))[1]
        except StoreError:
            return []

    def _get_sheet(self, name: str) -> TrialSheet:
        if name not in self._sheets:
            self._sheets[name] = build_sheet(name, build_pages(self._design, name), self.stimuli, self.setup)
        return self._sheets[name]


def refuse_listener(listener: Any, names: Collection[str]) -> None:
    """Raise ListeningError unless `listener` is a valid number or one of the names."""
    if isinstance(listener, str) and listener in names:
        return
    if isinstance(listener, int) and not isinstance(listener, bool) and 1 <= listener <= MAX_LISTENERS:
        return
    raise ListeningError(
        f"there is no listener {listener!r}; a number from 1 on, or a name such as {make_listener_name(1)!r}"
    )


def open_test(folder: str | PathLike[str]) -> Test:
    """Return the listening test that was made in a folder.

    Raises
    ------
    StoreError
        The folder does not contain a test, or the test cannot be read.
    """
    target = check_path("folder", folder, error=StoreError)
    setup = Setup.read(target)
    return Test(setup, target, open_stimuli(target), read_design(target))


def resolve_test(given: Any) -> Test:
    """Return the test of an argument, which is a test, the widget of a test, or the folder of a test.

    Raises
    ------
    ListeningError
        `given` is something else.
    StoreError
        The folder does not contain a test.
    """
    if isinstance(given, (str, PathLike)):
        return open_test(given)
    # A widget has the attribute `test`. Its class is not checked, because widgets import this package.
    found = given if isinstance(given, Test) else getattr(given, "test", None)
    if not isinstance(found, Test):
        raise ListeningError(
            f"the type {type(given).__name__} is not a listening test; pass the result of "
            "listening_test(...), or the folder of a test"
        )
    return found
