"""The progress of a run: counters anyone may read, and a tqdm bar over them."""

import contextlib
import logging
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

from speechframe.old_batch.options import DASHBOARD
from speechframe.old_batch.outcome import CACHED, CHARGED_UNKNOWN, DONE, FAILED, SUSPECT
from speechframe.spec.billing import Millicredits, to_credits

if TYPE_CHECKING:
    from collections.abc import Callable

    from speechframe.old_batch.run import Run

log = logging.getLogger(__name__)

_DISPLAY = "speechframe.widgets.dashboard"
"""Named, and loaded when it is wanted: it stands above this room and needs what many do not install."""

_REDRAW_S = 0.2
_MINUTE_S = 60
_LINE_S = 15.0
_COUNTER = {
    DONE: "done",
    CACHED: "cached",
    SUSPECT: "suspect",
    FAILED: "failed",
    CHARGED_UNKNOWN: "unknown",
}


@dataclass
class Progress:
    """What has happened so far in one run.

    Attributes
    ----------
    total
        Calls this run has to make.
    done, cached, suspect, failed, unknown
        Calls by outcome.
    retries
        Attempts beyond each call's first.
    retried_by, failed_by
        Retries, and calls that failed or may have been billed without an answer, by error code.
    credits_millis
        Thousandths of credits spent in this run.
    planned_millis, ended_millis
        Price of all calls that were to be paid, and of those that were paid or have an outcome.
    balance
        Characters left on the key after the newest answer; None if unknown.
    unit
        What a call is to people who count them: a text, where several go in one request.
    is_watched
        A dashboard shows the run: a bar in the same notebook would say the same.
    """

    total: int = 0
    done: int = 0
    cached: int = 0
    suspect: int = 0
    failed: int = 0
    unknown: int = 0
    retries: int = 0
    retried_by: Counter[str] = field(default_factory=Counter)
    failed_by: Counter[str] = field(default_factory=Counter)
    credits_millis: Millicredits = 0
    planned_millis: Millicredits = 0
    ended_millis: Millicredits = 0
    audio_seconds: float = 0.0
    balance: int | None = None
    started: float = field(default_factory=time.monotonic)
    finished: float | None = None
    unit: str = "call"
    is_watched: bool = False

    @property
    def ended(self) -> int:
        """Calls with an outcome."""
        return self.done + self.cached + self.suspect + self.failed + self.unknown

    @property
    def seconds(self) -> float:
        """Seconds since the first call was allowed to start."""
        return (self.finished or time.monotonic()) - self.started

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.ended / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds to go at this rate; None before the first outcome."""
        return (self.total - self.ended) / self.rate if self.ended else None

    def count(self, status: str, error_code: str | None = None) -> None:
        """Count one outcome."""
        if status == DONE:
            self.done += 1
            return
        name = _COUNTER[status]
        setattr(self, name, getattr(self, name) + 1)
        if error_code is not None and status in {FAILED, CHARGED_UNKNOWN}:
            self.failed_by[error_code] += 1

    def retried(self, code: str) -> None:
        """Count one attempt that will be repeated."""
        self.retries += 1
        self.retried_by[code] += 1

    def in_vain(self) -> str:
        """Return in words how many calls have brought nothing; empty for none."""
        parts = ((self.failed, "failed"), (self.unknown, "may have been billed without an answer"))
        return ", ".join(f"{counted(n, self.unit)} {what}" for n, what in parts if n)

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as plain values."""
        return {
            "total": self.total,
            "done": self.done,
            "cached": self.cached,
            "suspect": self.suspect,
            "failed": self.failed,
            "charged_unknown": self.unknown,
            "retries": self.retries,
            "credits": to_credits(self.credits_millis),
            "balance": self.balance,
            "audio_seconds": round(self.audio_seconds, 3),
            "seconds": round(self.seconds, 3),
            "rate": round(self.rate, 2),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
        }


def display_of(progress: bool | str) -> "Callable[[Run], None] | None":  # noqa: FBT001 - the option as it stands
    """Return what shows a run beside the bar's lines, instead of the bar; None where the bar is to be shown.

    Parameters
    ----------
    progress
        The run option.
    """
    if progress != DASHBOARD or not _is_notebook():
        return None
    try:
        shown: Callable[[Run], None] = import_module(_DISPLAY).show
    except ImportError as error:
        log.warning("there is no dashboard here, only a bar: %s", error)
        return None
    return shown


def _is_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


class Bar:
    """A tqdm bar that follows a :class:`Progress`; does nothing when switched off.

    Where standard error is no terminal and no notebook (a log file, a pipe), it is a plain line every
    15 seconds instead.

    Parameters
    ----------
    progress
        The counters to show.
    name
        What stands before the bar.
    shown
        False for no output at all.
    """

    def __init__(self, progress: Progress, *, name: str, shown: bool) -> None:
        self.progress = progress
        self.name = name
        self._drawn = time.monotonic()
        self._bar: Any = None
        self._lines = shown and not _can_draw()
        if shown and progress.total and not self._lines:
            self._bar = _tqdm()(
                total=progress.total, desc=name, unit=progress.unit, dynamic_ncols=True, file=_output()
            )

    def draw(self, *, force: bool = False) -> None:
        """Bring the bar up to date, a few times a second at most."""
        if self._bar is not None and self.progress.is_watched and _is_notebook():
            self._bar.leave = False
            self._bar.close()
            self._bar = None
        if self._bar is None and not self._lines:
            return
        now = time.monotonic()
        if self._lines and now - self._drawn >= _LINE_S:
            self._drawn = now
            say(self._line(), shown=True)
        if self._bar is None or (not force and now - self._drawn < _REDRAW_S):
            return
        self._drawn = now
        p = self.progress
        figures = {"credits": f"{to_credits(p.credits_millis):,.10g}"}
        if p.balance is not None:
            figures["left"] = f"{p.balance:,}"
        if p.retries:
            figures["retries"] = str(p.retries)
        figures |= {name: str(n) for name in ("cached", "suspect", "failed") if (n := getattr(p, name))}
        self._bar.set_postfix(figures, refresh=False)
        self._bar.update(p.ended - self._bar.n)

    def _line(self) -> str:
        p = self.progress
        credits = credits_in_words(to_credits(p.credits_millis))
        figures = [f"{p.ended:,}/{counted(p.total, p.unit)}", f"{p.rate:,.1f} a second", credits]
        figures += [f"{n:,} {name}" for name in ("cached", "suspect", "failed") if (n := getattr(p, name))]
        figures += [f"about {p.eta_s:,.0f} s to go"] if p.eta_s is not None else []
        return f"{self.name}: {', '.join(figures)}"

    def close(self) -> None:
        """Draw the last state and let go of the line."""
        if self._bar is not None:
            self.draw(force=True)
            self._bar.close()


def _can_draw() -> bool:
    # A notebook's output is no terminal either, but draws its own bar.
    return _is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _output() -> TextIO:
    # Notebooks show standard error in a red box.
    return sys.stdout if _is_notebook() else sys.stderr


def _tqdm() -> Any:
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # Without ipywidgets tqdm falls back to text and warns; the text bar is good enough.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm


def say(line: str, *, shown: bool) -> None:
    """Write one line beside the bar, to standard error; in a notebook to standard output."""
    if shown:
        # Whoever read along may have gone (`2>&1 | head`): no reason to end a run.
        with contextlib.suppress(BrokenPipeError):
            _tqdm().write(line, file=_output())


def counted(number: int, thing: str) -> str:
    """Return a number and what it counts.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def credits_in_words(credits: float) -> str:
    """Return a price for people.

    Examples
    --------
    >>> credits_in_words(1), credits_in_words(1234.5)
    ('1 credit', '1,234.5 credits')
    """
    return f"{credits:,.10g} credit{'' if credits == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a length of audio for people.

    Examples
    --------
    >>> duration(3.21), duration(90)
    ('3.2 s', '1.5 min')
    """
    return f"{seconds:,.1f} s" if seconds < _MINUTE_S else f"{seconds / _MINUTE_S:,.1f} min"
