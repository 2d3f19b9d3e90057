"""The progress of a run: counters anyone may read, and the line or bar that shows them."""

import contextlib
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TextIO

from speechframe.errors import SpeechframeError
from speechframe.spec.billing import to_credits
from speechframe.store.schema import CHARGED_UNKNOWN

log = logging.getLogger(__name__)

_REDRAW_S = 0.2
_LINE_S = 15.0
_MINUTE_S = 60
_KINDS_SHOWN = 5
_CENT = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one call: ``done``, ``cached``, ``suspect``, ``failed`` or ``charged_unknown``."""

    row_id: str  # of the first row that has the call
    request_key: str
    status: str
    attempts: int
    audio_seconds: float | None = None
    credits_millis: int = 0
    reason: str | None = None  # why it is suspect
    error: SpeechframeError | None = None  # why it failed, or why nobody knows whether it was billed


class Progress:
    """What has happened so far in a run of this process, and the line or bar that shows it.

    On a terminal the plan is followed by a bar; in a notebook it is the label of one; elsewhere (a log file,
    a pipe) a plain line is written every 15 seconds. All goes to standard error, in a notebook to standard
    output, where it is not shown as an error. `line` is the plan: ``generate on local: 3 rows, 12 credits``.
    """

    def __init__(self, unit: str, total: int, show: bool | Literal["dashboard"], line: str) -> None:  # noqa: FBT001 - the option as it was given
        self.unit = unit  # what a call is to people who count them
        self.total = total  # calls to make, cached ones included; grows with retakes
        self.done = self.cached = self.suspect = self.failed = self.unknown = self.retries = 0
        # By error code; calls that may have been billed without an answer are among the failed ones.
        self.retried_by: Counter[str] = Counter()
        self.failed_by: Counter[str] = Counter()
        # Warnings, and an example, by kind.
        self.warned: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.credits_millis = 0
        self.audio_seconds = 0.0
        self.balance: int | None = None  # characters left on the key, if known
        self.budget: float | None = None  # credits that may be spent here
        self.money_per_credit, self.currency = 0.0, ""
        self.started = self._drawn = time.monotonic()
        self.finished: float | None = None
        self._shown = bool(show)
        self._draws = self._shown and dashboard(show) is None
        self._name = line.partition(": ")[0]
        self._bar: Any = None
        on_page = self._draws and is_notebook()
        if not on_page:
            # Not as the label of a terminal's bar: its end, the price, would be cut off at the right edge.
            say(line, shown=self._shown)
        if on_page or (self._draws and total and sys.stderr is not None and sys.stderr.isatty()):
            label = line if on_page else self._name
            self._bar = _tqdm()(total=total, desc=label, unit=f" {unit}", dynamic_ncols=True, file=_output())
        self._every_s = _LINE_S if self._bar is None else _REDRAW_S

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of one call."""
        name = "unknown" if outcome.status == CHARGED_UNKNOWN else outcome.status
        setattr(self, name, getattr(self, name) + 1)
        if outcome.error is not None and name in {"failed", "unknown"}:
            self.failed_by[code_of(outcome.error)] += 1
        self.credits_millis += outcome.credits_millis
        self.audio_seconds += outcome.audio_seconds or 0.0
        if self._draws and time.monotonic() - self._drawn >= self._every_s:
            self._draw()

    def retried(self, code: str) -> None:
        """Count an attempt that will be repeated, by its error code."""
        self.retries += 1
        self.retried_by[code] += 1

    def warn(self, kind: str, words: str) -> None:
        """Count a warning about an answer; the first one of a kind is shown as its example."""
        self.warned[kind] += 1
        if kind not in self.examples:
            self.examples[kind] = words
            if len(self.examples) <= _KINDS_SHOWN:
                self.note(f"warning: {words}" if kind == words else f"warning ({kind}): {words}")

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

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as plain values."""
        names = ("total", "done", "cached", "suspect", "failed")
        return {
            **{name: getattr(self, name) for name in names},
            "charged_unknown": self.unknown,
            "retries": self.retries,
            "warnings": self.warned.total(),
            "credits": to_credits(self.credits_millis),
            "budget": self.budget,
            "money": self.money_of(to_credits(self.credits_millis)),
            "balance": self.balance,
            "audio_seconds": round(self.audio_seconds, 3),
            "seconds": round(self.seconds, 3),
            "rate": round(self.rate, 2),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
        }

    def money_of(self, credits: float) -> str:
        """Return what credits cost in words, by the price of the plan; empty where they cost nothing."""
        amount = credits * self.money_per_credit
        return money_in_words(amount, self.currency) if self.money_per_credit else ""

    def note(self, line: str) -> None:
        """Write one line beside the bar, unless nothing is to be shown; the log has it either way."""
        log.info("%s", line)
        say(line, shown=self._shown)

    def close(self, end_line: str = "") -> None:
        """Show the last state, then what is said of the end, or how many warnings there were."""
        self.finished = time.monotonic()
        if self._bar is not None:
            self._draw()
            self._bar.close()
        if line := end_line or warnings_in_words(self.warned, self.examples):
            self.note(line)

    def _draw(self) -> None:
        bar, self._drawn = self._bar, time.monotonic()
        names = ("retries", "cached", "suspect", "failed", "unknown")
        counts = {name: getattr(self, name) for name in names} | dict(self.warned.most_common(_KINDS_SHOWN))
        of = "" if self.budget is None else f" of {self.budget:,.10g}"
        figures = {"credits": f"{to_credits(self.credits_millis):,.10g}{of}"}
        figures |= {"cost": money} if (money := self.money_of(to_credits(self.credits_millis))) else {}
        figures |= {} if self.balance is None else {"left": f"{self.balance:,}"}
        figures |= {name: f"{n:,}" for name, n in counts.items() if n}
        if bar is not None:
            bar.total = self.total
            bar.set_postfix(figures, refresh=False)
            bar.update(self.ended - bar.n)
        else:
            made = f"{self.ended:,}/{counted(self.total, self.unit)}, {self.rate:,.1f} a second"
            to_go = "" if self.eta_s is None else f", about {self.eta_s:,.0f} s to go"
            others = "".join(f", {name}={n}" for name, n in figures.items())
            say(f"{self._name}: {made}{to_go}{others}", shown=True)


def dashboard(show: bool | str) -> Callable[[Any], None] | None:  # noqa: FBT001 - the option as it was given
    """Return what shows a run's dashboard in a notebook; None where a bar is to be shown, or nothing."""
    if show != "dashboard" or not is_notebook():
        return None
    try:
        # By name: that room is above this one, and needs packages that many do not install.
        shown: Callable[[Any], None] = import_module("speechframe.widgets.dashboard").show
    except ImportError as error:
        log.info("no dashboard but a bar is shown, for a package is missing: %s", error)
        return None
    return shown


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def say(line: str, *, shown: bool) -> None:
    """Write one line beside any bar, to standard error; in a notebook to standard output."""
    if shown:
        # Whoever reads along may have left (`2>&1 | head`): no reason to end a run.
        with contextlib.suppress(BrokenPipeError):
            _tqdm().write(line, file=_output())


def _output() -> TextIO:
    # Notebooks show standard error in a red box.
    return sys.stdout if is_notebook() else sys.stderr


def _tqdm() -> Any:
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # Without ipywidgets tqdm falls back to text and warns; the text bar is good enough.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm


def code_of(error: SpeechframeError) -> str:
    """Return the code by which an error is counted: the service's own, or its class."""
    return str(getattr(error, "code", None) or type(error).__name__)


def warnings_in_words(counts: Counter[str], examples: dict[str, str]) -> str:
    """Return how many warnings there were of each kind, with one example each; empty for none."""
    if not counts:
        return ""
    kinds = counts.most_common(_KINDS_SHOWN)
    shown = {kind: f" ({words})" for kind, words in examples.items() if words != kind}
    parts = [f"{n:,} {kind}{shown.get(kind, '')}" for kind, n in kinds]
    if len(counts) > len(kinds):
        parts.append(counted(len(counts) - len(kinds), "other kind"))
    return f"{counted(counts.total(), 'warning')}: {', '.join(parts)}; run.warnings shows them"


def counted(number: int, thing: str) -> str:
    """Return a number and what it counts: ``1 row``, ``2,000 rows``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def credits_in_words(credits: float) -> str:
    """Return a price for people: ``1 credit``, ``1,234.5 credits``."""
    return f"{credits:,.10g} credit{'' if credits == 1 else 's'}"


def money_in_words(amount: float, currency: str | None) -> str:
    """Return an amount of money for people; of less than a hundredth two digits.

    Examples
    --------
    >>> money_in_words(1234.5, "EUR"), money_in_words(0.000456, "EUR")
    ('1,234.50 EUR', '0.00046 EUR')
    """
    return f"{amount:,.2f} {currency}" if amount >= _CENT or not amount else f"{amount:.2g} {currency}"


def duration(seconds: float) -> str:
    """Return a length of audio for people: ``3.2 s``, ``1.5 min``."""
    return f"{seconds:,.1f} s" if seconds < _MINUTE_S else f"{seconds / _MINUTE_S:,.1f} min"
