"""The progress of a run in this process, with its counters, its progress bar, its outcomes and its end."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, TextIO

from speechframe.batch.notebook import find_cell, find_dashboard, is_notebook
from speechframe.batch.options import Options
from speechframe.errors import SpeechframeError
from speechframe.processes.ending import (
    get_running_loop,
    register_work,
    unregister_work,
    wait_until_terminated,
)
from speechframe.processes.loop import INTERRUPT_MESSAGE, get_background_loop, run_sync
from speechframe.spec.billing import convert_to_credits
from speechframe.store.schema import CHARGED_UNKNOWN, StopReason
from speechframe.writing.notebook import format_table
from speechframe.writing.words import format_count, replace_unprintable

log = logging.getLogger(__name__)

_REDRAW_S = 0.2
"""Shortest time in seconds between two updates of the bar."""
_LINE_S = 15.0
"""Shortest time in seconds between two lines in a log file or a pipe."""
_BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""Format of the bar of a run. With the rate, the line would be too long for a narrow notebook."""
_PAGE_COLUMNS, _LABEL_CHARACTERS = 58, 30
"""Number of characters that a line, and the label of a bar, may have in a notebook 600 pixels wide."""
_MINUTE_S = 60
_KINDS_SHOWN = 5
"""Largest number of kinds of warnings to show. Further kinds are only counted."""
_SMALLEST_ROUNDED_AMOUNT = 0.01
"""Amounts of money below this amount have two significant digits, others have two decimals."""

MAX_KEPT_OUTCOMES = 100_000
"""Number of outcomes in memory for slow or late readers. The run's folder contains all outcomes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one call. `status` is done, cached, suspect, failed or charged_unknown."""

    row_id: str  # id of the first row that has the call
    request_key: str
    status: str
    attempts: int
    audio_seconds: float | None = None
    credits_millis: int = 0  # cost of all attempts in this process, in thousandths of a credit
    reason: str | None = None  # the reason of a suspect answer
    error: SpeechframeError | None = None  # the error of a failed or charged_unknown call


class Progress:
    """The counters of a run in this process, and the line or bar that shows them.

    A terminal shows the plan and then a bar. A notebook shows a bar with the plan as its label, or the plan
    in a line of its own if the plan is long. The bar has one line. A log file or a pipe gets the plan and a
    plain line every 15 seconds. Output goes to standard error. In a notebook the
    output goes to standard output, because a notebook shows standard error as an error. `name` is the work,
    such as ``generate on local``. `describe_plan` returns the plan, such as ``3 rows, 12 credits``, in a
    number of characters if it can.
    """

    def __init__(
        self, unit: str, total: int, options: Options, name: str, describe_plan: Callable[[int | None], str]
    ) -> None:
        show = options.progress
        self.unit = unit  # the word for one call, such as "text"
        self.total = total  # number of calls to make, cached calls included; retakes raise it
        self.done = self.cached = self.suspect = self.failed = self.unknown = self.retries = 0
        # Counts of retries and of failed calls by error code. Calls that may have been billed without an
        # answer count as failed here.
        self.retried_by: Counter[str] = Counter()
        self.failed_by: Counter[str] = Counter()
        # Number of warnings, and one example, by kind.
        self.warned: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        # The run's spending in thousandths of a credit, when this process began and now. It is the sum over
        # all attempts of the run.
        self.spent_before = self.credits_millis = 0
        self.audio_seconds = 0.0
        self.balance: int | None = None  # characters left on the key, if known
        self.budget: float | None = None  # the run's `max_credits`, over all its calls
        self.money_per_credit, self.currency = 0.0, ""
        self.started = self._drawn = time.monotonic()
        self.finished: float | None = None
        # For each reader of the outcomes, a function that wakes the reader.
        self.followers: list[Callable[[], object]] = []
        # If the caller waits for the end of the run, nobody reads its outcomes, and none are kept.
        self._kept: deque[Outcome] = deque(maxlen=0 if options.wait else MAX_KEPT_OUTCOMES)
        self._count = 0
        self._lock = threading.Lock()
        self._shown = bool(show)
        self._draws = self._shown and find_dashboard(show) is None
        self._name = name
        # The cell that shows the notes and warnings, which the summary of the run in this cell leaves out.
        self.cell = find_cell() if self._shown else None
        self._bar: Any = None
        on_page, on_terminal = is_notebook(), sys.stderr is not None and sys.stderr.isatty()
        has_bar, label = self._draws and bool(total) and (on_page or on_terminal), name.partition(" ")[0]
        if self._shown:
            columns = _PAGE_COLUMNS if on_page else get_terminal_size().columns if on_terminal else None
            plan = describe_plan(None if columns is None else columns - len(name) - 2)
            in_short = describe_plan(_LABEL_CHARACTERS)
            if has_bar and on_page and len(in_short) <= _LABEL_CHARACTERS:
                label = in_short
            else:
                print_line(f"{name}: {plan}", shown=True)
        if has_bar:
            self._bar = open_bar(total, label, unit, is_shown=True, bar_format=_BAR_FORMAT)
        self._every_s = _LINE_S if self._bar is None else _REDRAW_S

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of one call and pass it to all readers of the run's outcomes."""
        name = "unknown" if outcome.status == CHARGED_UNKNOWN else outcome.status
        setattr(self, name, getattr(self, name) + 1)
        if outcome.error is not None:
            # The frames of a traceback would keep the request and the answer of each failed call in memory.
            outcome.error.__traceback__ = None
            if name in {"failed", "unknown"}:
                self.failed_by[get_error_code(outcome.error)] += 1
        self.audio_seconds += outcome.audio_seconds or 0.0
        self.redraw()
        self.follow([outcome])

    def follow(self, outcomes: Sequence[Outcome]) -> None:
        """Pass outcomes that are already counted to all readers of the run's outcomes."""
        with self._lock:
            self._kept.extend(outcomes)
            self._count += len(outcomes)
        if self.followers:
            self.wake()

    def redraw(self) -> None:
        """Show the counters, unless they were shown a moment ago."""
        if self._draws and time.monotonic() - self._drawn >= self._every_s:
            self._draw()

    def wake(self) -> None:
        """Wake all readers, because there is another outcome or the run has ended."""
        for wake in tuple(self.followers):
            # The event loop of a reader may already be closed.
            with contextlib.suppress(RuntimeError):
                wake()

    def read_outcomes_since(self, position: int) -> tuple[list[Outcome], int]:
        """Return the outcomes after the first `position`, and the number of all outcomes so far.

        Outcomes that are no longer kept are left out.
        """
        with self._lock:
            missing = min(self._count - position, len(self._kept))
            # Read from the right end, because access to the middle of a deque is slow.
            return list(islice(reversed(self._kept), missing))[::-1], self._count

    def count_retry(self, code: str) -> None:
        """Count an attempt that will be repeated, by its error code."""
        self.retries += 1
        self.retried_by[code] += 1

    def warn(self, kind: str, message: str) -> None:
        """Count a warning about an answer. Show the first warning of each of the first few kinds.

        A notebook shows all kinds at the end of the run instead.
        """
        kind, message = replace_unprintable(kind), replace_unprintable(message)
        self.warned[kind] += 1
        if kind not in self.examples:
            self.examples[kind] = message
            if len(self.examples) <= _KINDS_SHOWN and self.cell is None:
                self.note(f"warning: {message}" if kind == message else f"warning ({kind}): {message}")

    @property
    def ended(self) -> int:
        """Number of calls with an outcome."""
        return self.done + self.cached + self.suspect + self.failed + self.unknown

    @property
    def calls(self) -> int:
        """Number of ended calls without those that the cache answered."""
        return self.ended - self.cached

    def describe_answers(self) -> str:
        """Return the numbers of ended calls and of answers from the cache as text."""
        cached = f" and {format_count(self.cached, 'answer')} from the cache" if self.cached else ""
        return f"{format_count(self.calls, self.unit)}{cached}"

    @property
    def seconds(self) -> float:
        """Seconds since the first call was allowed to start."""
        return (self.finished or time.monotonic()) - self.started

    @property
    def rate(self) -> float:
        """Number of ended calls per second, since the first call was allowed to start."""
        return self.ended / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Estimated seconds until the end, or None before the first outcome."""
        return (self.total - self.ended) / self.rate if self.ended else None

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as plain values."""
        names = ("total", "done", "cached", "suspect", "failed")
        return {
            **{name: getattr(self, name) for name in names},
            "charged_unknown": self.unknown,
            "retries": self.retries,
            "warnings": self.warned.total(),
            "credits": convert_to_credits(self.credits_millis),
            "budget": self.budget,
            "money": self.describe_cost(convert_to_credits(self.credits_millis)),
            "balance": self.balance,
            "audio_seconds": round(self.audio_seconds, 3),
            "seconds": round(self.seconds, 3),
            "rate": round(self.rate, 2),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
        }

    def __str__(self) -> str:
        """Return progress, spending and trouble in one line."""
        parts = [
            f"{self.ended:,} of {format_count(self.total, self.unit)}",
            f"{self.rate:,.1f} a second",
            format_count(convert_to_credits(self.credits_millis), "credit"),
        ]
        troubles = {name: getattr(self, name) for name in ("suspect", "failed", "unknown", "retries")}
        parts += [f"{number:,} {name}" for name, number in troubles.items() if number]
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<Progress: {self}>"

    def _repr_html_(self) -> str:
        names = {
            "total": f"{self.unit}s",
            "rate": f"{self.unit}s a second",
            "eta_s": "seconds to go",
            "balance": "characters left on the key",
        }
        rows = [
            [names.get(name, name.replace("_", " ")), value if isinstance(value, str) else f"{value:,.10g}"]
            for name, value in self.to_dict().items()
            if value or name in {"done", "credits"}
        ]
        return format_table(["progress", "value"], rows)

    def describe_cost(self, credits: float) -> str:
        """Return the cost of `credits` in money as text. The text is empty if the plan has no price."""
        amount = credits * self.money_per_credit
        return describe_money(amount, self.currency) if self.money_per_credit else ""

    def note(self, line: str) -> None:
        """Write one line to the log. If progress is shown, also write the line above the bar."""
        line = replace_unprintable(line)
        log.info("%s", line)
        print_line(line, shown=self._shown)

    def close(self, end_line: str = "") -> None:
        """Show the last state of the bar, then the number of warnings of each kind, and then `end_line`."""
        self.finished = time.monotonic()
        if self._bar is not None:
            self._draw()
            self._bar.close()
            if self.ended < self.total and hasattr(self._bar, "disp"):
                # The bar of a notebook is red then, although the run may go on later.
                self._bar.disp(bar_style="warning", check_delay=False)
        for line in filter(None, (describe_warnings(self.warned, self.examples), end_line)):
            self.note(line)

    def _draw(self) -> None:
        bar, self._drawn = self._bar, time.monotonic()
        credits = convert_to_credits(self.credits_millis)
        of = "" if self.budget is None else f" of {self.budget:,.10g}"
        figures = {"credits": f"{credits:,.10g}{of}"}
        names = ("retries", "cached", "suspect", "failed", "unknown")
        troubles = {name: f"{n:,}" for name in names if (n := getattr(self, name))}
        if bar is not None:
            bar.total = self.total
            # The line has no room for more. The summary of the run contains the rest.
            shown = list((figures | dict(reversed(troubles.items()))).items())[:2]
            bar.set_postfix_str(", ".join(f"{n} {name}" for name, n in shown), refresh=False)
            bar.update(self.ended - bar.n)
        else:
            figures |= {"cost": money} if (money := self.describe_cost(credits)) else {}
            figures |= {} if self.balance is None else {"left": f"{self.balance:,}"}
            figures |= troubles | {kind: f"{n:,}" for kind, n in self.warned.most_common(_KINDS_SHOWN)}
            made = f"{self.ended:,}/{format_count(self.total, self.unit)}, {self.rate:,.1f} a second"
            to_go = "" if self.eta_s is None else f", about {self.eta_s:,.0f} s to go"
            others = "".join(f", {name}={n}" for name, n in figures.items())
            print_line(f"{self._name}: {made}{to_go}{others}", shown=True)


class Live:
    """A run that this process is making. Create this object in the event loop that makes the run.

    `stop(drain=..., reason=...)` is called in this loop to end the run early. The run then starts no further
    call. If `drain` is True, the calls in flight finish.
    """

    def __init__(self, progress: Progress, options: Options, stop: Callable[..., None]) -> None:
        self.progress, self.options, self._stop = progress, options, stop
        self.loop = asyncio.get_running_loop()
        self.ended: Future[None] = Future()
        self.stopped_by: SpeechframeError | None = None
        self._waiting: list[None] = []  # one entry per task that waits for the end

    def start(self, making: Coroutine[Any, Any, None], name: str) -> None:
        """Start the task that makes the run. When the task ends, set :attr:`ended`."""
        register_work(self)
        # Keep a reference, because an event loop holds its tasks by weak references only.
        self._task = asyncio.create_task(making, name=f"speechframe-run-{name}")
        self._task.add_done_callback(self._close)

    def _close(self, task: "asyncio.Task[None]") -> None:
        unregister_work(self)
        # The task is cancelled when its event loop ends. The run then counts as stopped, as after a kill,
        # and all answers are kept.
        error = None if task.cancelled() else task.exception()
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
        self.progress.wake()

    def end(self, *, drain: bool, because: StopReason = StopReason.INTERRUPTED) -> None:
        """Start no further call. Without `drain` also cancel the calls in flight.

        Any thread may call this method.
        """
        if not self.ended.done():
            # The event loop may have been closed before the end of the run.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(partial(self._stop, drain=drain, reason=because))

    def refuse_endless_wait(self, *, blocks: str = "") -> None:
        """Raise RuntimeError if the run cannot end.

        The run cannot end if its event loop is closed, or if the caller would block this loop with a wait.
        `blocks` is the message for the second case. If `blocks` is empty, this case is not checked.
        """
        if self.ended.done():
            return
        if blocks and get_running_loop() is self.loop:
            raise RuntimeError(blocks)
        if self.loop.is_closed():
            unregister_work(self)
            raise RuntimeError(
                "the event loop of this run was closed before the run had ended; resume() makes the rest. "
                "Let the loop run until `await run` returns"
            )

    async def wait_until_ended(
        self, cancelled: asyncio.CancelledError | None = None, timeout_s: float | None = None
    ) -> None:
        """Wait for the end of the run, in any event loop, and raise the run's error if it has one.

        A cancellation of the caller stops the run and lets the calls in flight finish. A second cancellation
        cancels these calls. The cancellation is raised after the end of the run. `cancelled` is the first
        cancellation if the caller has already received this cancellation. TimeoutError is raised if the run
        has not ended after `timeout_s`, and the run goes on.
        """
        self.refuse_endless_wait()
        ended = asyncio.wrap_future(self.ended)
        # Retrieve the exception. Otherwise asyncio logs it if no task waits any more.
        ended.add_done_callback(asyncio.Future.exception)
        if cancelled is not None:
            self.end(drain=True)
        self._waiting.append(None)
        try:
            while not ended.done():
                try:
                    done, _ = await asyncio.wait({ended}, timeout=timeout_s)
                except asyncio.CancelledError as order:
                    self.end(drain=cancelled is None)
                    cancelled = order
                else:
                    if not done and cancelled is None:
                        raise TimeoutError(f"the run has not ended in {timeout_s:g} s; it goes on")
        finally:
            self._waiting.pop()
        # After SIGTERM the program ends soon, so the caller must not continue as after a normal end.
        await wait_until_terminated()
        if cancelled is not None:
            raise cancelled
        ended.result()

    @contextlib.contextmanager
    def open_reader(
        self, loop: asyncio.AbstractEventLoop
    ) -> Iterator[Callable[[], Coroutine[Any, Any, list[Outcome]]]]:
        """Yield a coroutine function that waits in `loop` for the next outcomes and returns these outcomes.

        After the end of the run the coroutine function returns an empty list.
        """
        arrived, position = asyncio.Event(), 0

        async def read_more() -> list[Outcome]:
            nonlocal position
            while True:
                arrived.clear()
                # Check for the end before reading. So an outcome that arrives in between is read next time.
                has_ended = self.ended.done()
                found, position = self.progress.read_outcomes_since(position)
                if found or has_ended:
                    return found
                self.refuse_endless_wait()
                try:
                    await arrived.wait()
                except asyncio.CancelledError as order:
                    is_alone = not self._waiting and len(self.progress.followers) == 1
                    if is_alone or order.args == (INTERRUPT_MESSAGE,):
                        await self.wait_until_ended(order)
                    raise

        wake = partial(loop.call_soon_threadsafe, arrived.set)
        self.progress.followers.append(wake)
        try:
            yield read_more
        finally:
            self.progress.followers.remove(wake)


class Outcomes:
    """The outcomes of a live run, for ``for`` and ``async for``.

    Each loop begins with the first outcome and ends with the run. The newest 100,000 outcomes are kept for
    slow or late readers. A reader that falls further behind continues with the oldest kept outcome.
    """

    def __init__(self, live: Live) -> None:
        self._live = live

    def __iter__(self) -> Iterator[Outcome]:
        """Yield each outcome as soon as its call has ended. Block until then."""
        self._live.refuse_endless_wait(
            blocks="a plain `for` would block the event loop that makes the run: use `async for`"
        )
        with self._live.open_reader(get_background_loop()) as read_more:
            while found := run_sync(read_more()):
                yield from found

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Yield each outcome as soon as its call has ended, in any event loop."""
        with self._live.open_reader(asyncio.get_running_loop()) as read_more:
            while found := await read_more():
                for outcome in found:
                    yield outcome
        await wait_until_terminated()


def print_line(line: str, *, shown: bool) -> None:
    """Write one line above any bar to standard error, or in a notebook to standard output.

    Write nothing if `shown` is False.
    """
    if shown:
        line = replace_unprintable(line)
        if is_notebook():
            # JupyterLab would break long lines within words.
            parts = (fill(part, _PAGE_COLUMNS, break_long_words=False) for part in line.splitlines())
            line = "\n".join(parts)
        # The program at the other end of a pipe may have ended (`2>&1 | head`). The run goes on without it.
        with contextlib.suppress(BrokenPipeError):
            _import_tqdm().write(line, file=_choose_output())


def open_bar(total: int, label: str, unit: str, *, is_shown: bool, bar_format: str | None = None) -> Any:
    """Return a tqdm bar. It is invisible outside terminals and notebooks."""
    is_hidden = True if not is_shown else False if is_notebook() else None  # None: tqdm looks for a terminal
    return _import_tqdm()(
        total=total,
        desc=label,
        unit=f" {unit}",
        dynamic_ncols=True,
        file=_choose_output(),
        disable=is_hidden,
        bar_format=bar_format,
    )


def _choose_output() -> TextIO:
    # Notebooks show standard error in a red box.
    return sys.stdout if is_notebook() else sys.stderr


def _import_tqdm() -> Any:
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # If ipywidgets is missing, tqdm warns and shows a text bar. The text bar is good enough.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm


def get_error_code(error: SpeechframeError) -> str:
    """Return the service's code of an error, or the name of its class if it has no code."""
    return str(getattr(error, "code", None) or type(error).__name__)


def describe_warnings(counts: Counter[str], examples: dict[str, str]) -> str:
    """Return the number of warnings of the most frequent kinds in words, with an example of each.

    Return an empty text if there are no warnings.
    """
    if not counts:
        return ""
    kinds = counts.most_common(_KINDS_SHOWN)
    shown = {kind: f" ({example})" for kind, example in examples.items() if example != kind}
    texts = [f"{n:,} {kind}{shown.get(kind, '')}" for kind, n in kinds]
    if len(counts) > len(kinds):
        texts.append(format_count(len(counts) - len(kinds), "other kind"))
    return f"{format_count(counts.total(), 'warning')}: {', '.join(texts)}; run.warnings shows them"


def describe_balance(characters: int) -> str:
    """Return the balance of a key as text, such as ``1 character is left on the key``."""
    return f"{format_count(characters, 'character')} {'is' if characters == 1 else 'are'} left on the key"


def describe_money(amount: float, currency: str | None) -> str:
    """Return an amount of money as text. An amount below 0.01 has two significant digits.

    Examples
    --------
    >>> describe_money(1234.5, "EUR"), describe_money(0.000456, "EUR")
    ('1,234.50 EUR', '0.00046 EUR')
    """
    return (
        f"{amount:,.2f} {currency}"
        if amount >= _SMALLEST_ROUNDED_AMOUNT or not amount
        else f"{amount:.2g} {currency}"
    )


def describe_duration(seconds: float) -> str:
    """Return a duration as text, such as ``3.2 s`` or ``1.5 min``."""
    return f"{seconds:,.1f} s" if round(seconds, 1) < _MINUTE_S else f"{seconds / _MINUTE_S:,.1f} min"
