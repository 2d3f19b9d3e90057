"""Show progress, spending and newest clips of a run. Buttons stop and resume the run."""

import asyncio
import html
import math
import threading
import time
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

import traitlets as t

from speechframe import aio
from speechframe.audio.peaks import compute_peaks
from speechframe.batch.live import RUNNING, Run
from speechframe.batch.options import Options
from speechframe.batch.run_options import RunOptions
from speechframe.errors import SpeechframeError
from speechframe.page.clips import ClipShelf, Entry
from speechframe.processes.loop import start_in_background
from speechframe.store.schema import AUDIO_COLUMN
from speechframe.widgets.base import ClipWidget, resolve_run
from speechframe.widgets.watcher import Watcher
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count, shorten_service

if TYPE_CHECKING:
    from concurrent.futures import Future

MIN_PAUSE_S = 0.25
"""Shortest time in seconds between two updates. Notebook servers throttle more frequent messages."""

_SHOWN_CLIPS = 4
"""Number of newest clips that the page shows."""

_KEPT_CLIPS = 24
"""Number of clips whose audio the page can still load. This includes clips that it no longer shows."""

_MIN_CLIPS_UPDATE_S = 2.0
"""Shortest time in seconds between two updates of the clips."""

_READING_DIVISOR = 10
"""Reads of the run take at most one tenth of the time, unless the pause between them is the longest."""

_MAX_PAUSE_S = 5.0
"""Longest pause in seconds between two reads, even if a read on a busy machine took a minute."""


def compute_pause_s(cost_s: float) -> float:
    """Return the seconds to wait after reading a run took `cost_s`.

    Examples
    --------
    >>> [compute_pause_s(cost_s) for cost_s in (0.0, 0.1, 60.0)]
    [0.25, 0.9, 5.0]
    """
    return min(_MAX_PAUSE_S, max(MIN_PAUSE_S, (_READING_DIVISOR - 1) * cost_s))


class RunDashboard(ClipWidget):
    """A page with progress, failures, spending and newest clips of a run, and buttons to stop and resume it.

    :func:`watch` makes a dashboard.

    Parameters
    ----------
    run
        The run.
    options
        Run options for the button Resume, in addition to those of the run's last call in this process.

    Attributes
    ----------
    run
        The run. The button Resume makes it live again.
    figures
        The shown figures: ``run.progress.to_dict()``, status, failures and retries by error code.
    burn
        Credits or characters left over time. ``points`` and ``forecast`` are pairs of seconds and amount.
    offer
        Price of the rest of a stopped run whose budget is too small: ``spent_credits``, the ``max_credits``
        that suffice for the rest, and a sentence in ``words``. Empty if the budget suffices.
    loads
        Request keys of the clips whose audio was sent to the page, in order.
    """

    script = "dashboard"

    heading = t.Unicode().tag(sync=True)
    folder = t.Unicode().tag(sync=True)
    figures = t.Dict().tag(sync=True)
    burn = t.Dict().tag(sync=True)
    offer = t.Dict().tag(sync=True)
    asked = t.Unicode().tag(sync=True)
    trouble = t.Unicode().tag(sync=True)
    clips = t.List(t.Dict()).tag(sync=True)
    outlines = t.Dict().tag(sync=True)

    def __init__(self, run: Run, options: RunOptions | None = None) -> None:
        self.run = run
        self._options: dict[str, Any] = dict(options or {})
        self._watcher = Watcher(run)
        self._looking = threading.Lock()
        self._closed = False
        self._following: Future[None] | None = None
        self._resuming: Future[None] | None = None
        self._pricing: Future[None] | None = None
        self._known: dict[str, tuple[Entry, bytes]] = {}
        self._clips_due = 0.0
        self._pause_s = MIN_PAUSE_S
        self._audible = AUDIO_COLUMN in run.manifest.schema.names
        started = self._watcher.read_figures()
        super().__init__(
            ClipShelf(),
            heading=f"{run.operation} on {shorten_service(run.service)}",
            folder=run.short_path,
            figures=started.to_page(),
            burn=started.burn.to_page(),
        )
        self._update_clips()
        if started.is_live:
            self._start_updates()
        else:
            self._price_rest()

    # -- updates of the page -----------------------------------------------------------

    def _start_updates(self) -> None:
        """Start to update the page, unless it is being updated."""
        if self._following is None or self._following.done():
            self._following = start_in_background(self._update_until_end())

    async def _update_until_end(self) -> None:
        """Update the page until the run has ended. Threads read the run, so the event loop stays free."""
        while not self._closed:
            try:
                is_live = await asyncio.to_thread(self._update_page)
            except (SpeechframeError, OSError) as error:
                # No caller gets this error. Without a message, the page would show "running" for ever.
                self.trouble = str(error)
                return
            if not is_live:
                self._price_rest()
                return
            await asyncio.sleep(self._pause_s)

    def _update_page(self) -> bool:
        """Update the page with one message. Return whether the run is still live."""
        with self._looking:
            began = time.monotonic()
            figures = self._watcher.read_figures()
            # Reading the counters of a run in this process takes no time. Reading a folder does.
            cost_s = 0.0 if figures.is_here else time.monotonic() - began
            self._pause_s = compute_pause_s(cost_s)
            if self._closed:
                return False
            with self.hold_sync():
                self.figures = figures.to_page()
                self.burn = figures.burn.to_page()
                if not figures.is_live:
                    self.asked = ""
                if not figures.is_live or time.monotonic() >= self._clips_due:
                    self._update_clips()
            return figures.is_live

    def _update_clips(self) -> None:
        """Update the clips of the page to the newest clips of the run."""
        if not self._audible:
            return
        began = time.monotonic()
        keys = self.run.newest(_SHOWN_CLIPS)
        for key in reversed(keys):
            # The newest clips are moved to the end, so the clip that was shown longest ago is removed first.
            self._known[key] = self._known.pop(key) if key in self._known else self._read_clip(key)
        for key in list(self._known)[:-_KEPT_CLIPS]:
            del self._known[key]
        # This includes clips that the page no longer shows, because the page may still load their audio.
        self.shelf = ClipShelf(entry for entry, _ in self._known.values())
        self.clips = [self._known[key][0].to_page() for key in keys]
        self.outlines = {key: self._known[key][1] for key in keys}
        self._clips_due = began + max(_MIN_CLIPS_UPDATE_S, 2 * _READING_DIVISOR * (time.monotonic() - began))

    def _read_clip(self, key: str) -> tuple[Entry, bytes]:
        try:
            clip = self.run.clip_of_call(key)
            outline = compute_peaks(clip.samples)
        except (SpeechframeError, OSError, KeyError) as error:
            return Entry(key, row_id="", label="a clip", problem=str(error)), b""
        label = " ".join(clip.text.split()[:6]) or "a clip"
        entry = Entry(
            key, row_id="", label=label, text=clip.text, words=clip.words, audio_seconds=clip.audio_seconds,
            voice_id=clip.voice_id, load=partial(self.run.clip_of_call, key),
        )  # fmt: skip
        return entry, outline

    # -- buttons ---------------------------------------------------------------------

    def on_stop(self, message: dict[str, Any]) -> None:
        """Stop the run. Calls in flight finish, and the others stay pending."""
        del message
        self.asked = "stop"
        self.run.stop()
        # A busy kernel handles the click late. If the run ended before, no other code updates the page.
        if self._update_page():
            self._start_updates()

    def on_resume(self, message: dict[str, Any]) -> None:
        """Resume the run with its budget. A ``max_credits`` in the message replaces the budget."""
        if self.run.refresh().status == RUNNING or (self._resuming and not self._resuming.done()):
            return
        # Also a message that is the same as before must reach the page, which shows "resuming".
        self.trouble = ""
        extra_options: RunOptions = {}
        if (max_credits := message.get("max_credits")) is not None:
            spent = self.offer.get("spent_credits", 0)
            if isinstance(max_credits, (int, float)) and max_credits <= spent:
                self.trouble = (
                    f"max_credits={max_credits:,.10g} allows no further call, because {spent:,.10g} credits "
                    "are already spent; give a higher number"
                )
                return
            extra_options["max_credits"] = max_credits
        self.asked = "resume"
        self._resuming = start_in_background(self._resume_run(extra_options))

    async def _call_resume(self, extra_options: RunOptions) -> Run:
        """Return the resumed run. `extra_options` are further run options."""
        options: RunOptions = {**self.run.last_options, **self._options, "progress": False, **extra_options}  # type: ignore[typeddict-item]
        return await aio.resume(self.run.path, **options)

    async def _resume_run(self, extra_options: RunOptions) -> None:
        """Resume the run, and update the page from the resumed run."""
        try:
            self.run.take_state_of(await self._call_resume({**extra_options, "wait": False}))
            self.offer = {}
        except Exception as error:
            self.trouble = str(error)
            if not isinstance(error, (SpeechframeError, OSError)):
                raise
        finally:
            self.asked = ""
        self._start_updates()

    def _price_rest(self) -> None:
        """Plan the rest of a stopped run with a budget to get its price. A plan does not send calls."""
        if self._watcher.max_credits is not None and self.figures["can_resume"]:
            self._pricing = start_in_background(self._offer_rest())

    async def _offer_rest(self) -> None:
        """Show the price of the rest of the run."""
        budget = self._watcher.max_credits
        try:
            spent = await asyncio.to_thread(self._watcher.compute_spent_credits)
            rest = (await self._call_resume({"dry_run": True})).estimate
        except (SpeechframeError, OSError) as error:
            self.offer = {"words": f"the price of the rest is not known: {error}"}
            return
        if rest is None or budget is None or spent + rest.credits <= budget:
            return
        self.offer = {
            "spent_credits": spent,
            "max_credits": max(budget, math.ceil(spent + rest.credits)),
            "words": (
                f"{spent:,.10g} of {budget:,.10g} credits are spent; the rest costs {rest.credits:,.10g}"
            ),
        }

    # -- the end, and the view as text and plain HTML ---------------------------------

    def close(self) -> None:
        """Close the page. The run continues."""
        self._closed = True
        for work in (self._following, self._pricing):
            if work is not None:
                work.cancel()
        super().close()

    def to_text(self) -> str:
        """Return the run's state in one line."""
        f = self.figures
        failed = "".join(f", {f[name]:,} {name}" for name in ("suspect", "failed") if f[name])
        failed += f", {format_count(f['retries'], 'retry', 'retries')}" if f["retries"] else ""
        because = f" ({f['because']}: {f['words']})" if f["because"] else ""
        return (
            f"<RunDashboard {self.heading}: {f['status']}{because}, {f['so_far']}{failed}"
            f", {format_count(f['credits'], 'credit')}>"
        )

    def to_table(self) -> str:
        """Return the figures as a table."""
        in_words = {"ended", "so_far", "pace", "tallies"}  # names of figures that repeat others as text
        rows = [[k, v] for k, v in self.figures.items() if k not in in_words and v not in (None, {}, "")]
        return f"<p>{html.escape(self.folder)}</p>" + format_table(
            ["figure", "value"], rows, caption=self.to_text()
        )


def watch(run: Run | str | PathLike[str], **options: Unpack[RunOptions]) -> RunDashboard:
    """Return a dashboard of a run. The run may be live here or in another process, or it may have ended.

    Parameters
    ----------
    run
        A run, or its folder.
    **options
        Run options for the button Resume, such as ``service``. Options of the run's last call in this process
        are used by default.

    Raises
    ------
    ValueError
        `run` is neither a run nor a path.
    SettingsError
        An option does not exist, or has a wrong value.
    NotARun
        The folder does not contain a run.

    Examples
    --------
    >>> import speechframe as spf
    >>> run = spf.generate(frame, voice="nora", wait=False)  # doctest: +SKIP
    >>> spf.watch(run)  # doctest: +SKIP
    """
    Options.from_given(**options)
    return RunDashboard(resolve_run(run), options)


def show_dashboard(run: Run) -> None:
    """Show a run's dashboard in the notebook cell that starts the run."""
    from IPython.display import display

    display(watch(run))  # type: ignore[no-untyped-call]
