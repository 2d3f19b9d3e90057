"""Plan each request: its step (fault, error status or good answer), its latency, and its waiting time.

These functions have no state and read no clock. Equal arguments give equal results, in every process and
version. The fault of an attempt depends on the seed, the text, and the number of the attempt. So a run
against a faulty service gets the same faults in any order of its rows.
"""

import functools
import hashlib
import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from enum import StrEnum
from statistics import NormalDist
from typing import Literal, NamedTuple, Self

REPEAT_LAST_STEP = "..."
"""Last item of a script (the steps of one text). All later attempts repeat the step before this item."""
EVERY_TEXT = "*"
"""Key of the script that applies to every text without a script of its own."""

_RANDOM_BITS = 53
"""Number of random bits in a drawn number, the precision of a float."""
_STANDARD_NORMAL = NormalDist()
_ERROR_STATUSES = range(400, 600)
_MAX_SHARE_SUM = 1.0 + 1e-9
"""Largest allowed sum of all shares, with a tolerance for rounding errors."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A latency that is always the same.

    Parameters
    ----------
    seconds
        Time in seconds from the complete request to the answer.

    Examples
    --------
    >>> Fixed(0.05).seconds_at(0.9)
    0.05
    """

    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < math.inf:
            raise ValueError(f"a latency is 0 or more seconds, not {self.seconds}")

    def seconds_at(self, number: float) -> float:
        """Return the latency in seconds. It is the same for every `number`."""
        del number
        return self.seconds


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A latency with a log-normal distribution, whose long tail is typical of network services.

    Parameters
    ----------
    mean_s
        Mean in seconds.
    sigma
        Standard deviation of the logarithm of the latency (default 0.5). With 0.5, one latency in a hundred
        exceeds 2.8 times the mean.

    Examples
    --------
    >>> round(Lognormal(mean_s=0.2, sigma=0.5).seconds_at(0.5), 4)
    0.1765
    """

    mean_s: float
    sigma: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.mean_s < math.inf and 0 <= self.sigma < math.inf):
            raise ValueError(
                f"a lognormal latency needs a mean above 0 s and a sigma of 0 or more, not {self.mean_s} "
                f"and {self.sigma}"
            )

    def seconds_at(self, number: float) -> float:
        """Return a quantile of the latency in seconds. `number` is the share of shorter latencies."""
        deviation = _STANDARD_NORMAL.inv_cdf(min(max(number, 2.0**-_RANDOM_BITS), 1 - 2.0**-_RANDOM_BITS))
        return self.mean_s * math.exp(self.sigma * deviation - self.sigma**2 / 2)


Latency = Lognormal | Fixed


class Fault(StrEnum):
    """The faults other than error statuses. `billed` is true if the service bills the call nevertheless."""

    billed: bool

    def __new__(cls, value: str, billed: bool) -> Self:  # noqa: FBT001 - a row of a table
        """Store the name and whether the call is billed."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.billed = billed
        return member

    RESET_BEFORE = "reset_before", False
    """The connection is reset after the request has arrived."""
    HANG = "hang", False
    """The service never answers. The slot is held until the client disconnects."""
    RESET_AFTER = "reset_after", True
    """The connection is reset after billing, instead of an answer."""
    HANG_BILLED = "hang_billed", True
    """As ``hang``, but the call is billed."""
    TRUNCATED = "truncated", True
    """The body ends half-way and the connection is closed."""
    BROKEN_JSON = "broken_json", True
    """The body is complete but is not JSON."""
    BROKEN_BASE64 = "broken_base64", True
    """``encodedAudio`` contains a character that is invalid in Base64."""
    EXPIRED_URL = "expired_url", True
    """The answer contains an expired audio URL, even if Base64 was requested."""
    NO_AUDIO = "no_audio", True
    """``encodedAudio`` is valid Base64, but not of audio."""
    SLOW_BYTES = "slow_bytes", True
    """A good answer that is sent slowly, in small pieces."""


class Step(NamedTuple):
    """The plan for one request: a good answer, a fault, or an error status.

    Attributes
    ----------
    name
        ``ok``, the name of the fault, or the status.
    fault
        The fault. None for a good answer or an error status.
    status
        HTTP status of the answer. 200 unless the step is an error status.
    retry_after
        Value of Retry-After from a script. None for the value by the settings of the service.
    """

    name: str
    fault: Fault | None = None
    status: int = 200
    retry_after: str | None = None


OK_STEP = Step("ok")


@functools.lru_cache(maxsize=1024)
def parse_step(text: str) -> Step:
    """Return the step for ``ok``, the name of a fault, a status, or ``status:Retry-After``.

    Any other text raises ValueError.

    Examples
    --------
    >>> parse_step("reset_after").fault.billed
    True
    >>> parse_step("429:1.5")
    Step(name='429', fault=None, status=429, retry_after='1.5')
    """
    if text == OK_STEP.name:
        return OK_STEP
    if text in Fault.__members__.values():
        return Step(text, fault=Fault(text))  # type: ignore[call-arg]  # mypy reads __new__ as the look-up
    status, _, wait = text.partition(":")
    if status.isascii() and status.isdecimal() and int(status) in _ERROR_STATUSES:
        return Step(status, status=int(status), retry_after=wait or None)
    raise ValueError(
        f"{text!r} is not a step; allowed: ok, {', '.join(Fault)}, a status from 400 to 599, or such a "
        "status with its Retry-After, as in 429:1.5"
    )


def get_scripted_step(script: Sequence[str], attempt: int) -> Step:
    """Return the step of a script for an attempt, counted from 0. After the script, the step is `OK_STEP`.

    Examples
    --------
    >>> [get_scripted_step(["503", "hang"], attempt).name for attempt in range(3)]
    ['503', 'hang', 'ok']
    >>> [get_scripted_step(["503", "500", "..."], attempt).name for attempt in range(4)]
    ['503', '500', '500', '500']
    """
    if script and script[-1] == REPEAT_LAST_STEP:
        steps = script[:-1]
        return parse_step(steps[min(attempt, len(steps) - 1)])
    return parse_step(script[attempt]) if attempt < len(script) else OK_STEP


def check_script(script: Sequence[str]) -> None:
    """Raise ValueError if a step of a script is unknown, or if a script is only `REPEAT_LAST_STEP`."""
    steps = script[:-1] if script and script[-1] == REPEAT_LAST_STEP else script
    if len(steps) < len(script) and not steps:
        raise ValueError(
            f"a script of {REPEAT_LAST_STEP!r} alone has no step to repeat. Put a step before it."
        )
    for text in steps:
        parse_step(text)


class FaultTable:
    """The share of attempts for each step (fault or error status). All other attempts get good answers.

    The constructor raises ValueError for an unknown step, a share outside 0 to 1, or a sum above 1.

    Examples
    --------
    >>> table = FaultTable({"500": 0.25, "hang": 0.25})
    >>> [table.choose_step(place).name for place in (0.1, 0.3, 0.5, 0.99)]
    ['500', 'hang', 'ok', 'ok']
    """

    def __init__(self, shares: Mapping[str, float]) -> None:
        for name, part in shares.items():
            if not 0 <= part <= 1:
                raise ValueError(f"the share of {name!r} is {part}; allowed: 0 to 1")
        self._steps = [parse_step(name) for name in shares]
        self._ends = list(itertools.accumulate(shares.values()))
        if self._ends and self._ends[-1] > _MAX_SHARE_SUM:
            raise ValueError(f"the shares of all faults add up to {self._ends[-1]:g}; allowed: at most 1")

    def __bool__(self) -> bool:
        return bool(self._steps)

    def choose_step(self, number: float) -> Step:
        """Return the step of an attempt. `number` is its random number, from 0 to below 1."""
        index = bisect_right(self._ends, number)
        return self._steps[index] if index < len(self._steps) else OK_STEP


def draw(seed: int, what: str, *of: int) -> float:
    """Return a uniform pseudo-random number from 0 to below 1 that depends only on the arguments.

    `what` names the use of the number, so that the fault and the latency of a request are independent. `of`
    identifies the request: the tag of its text with the number of the attempt, or a running number.

    Examples
    --------
    >>> draw(1, "fault", 77, 0) == draw(1, "fault", 77, 0) != draw(2, "fault", 77, 0)
    True
    """
    digest = hashlib.blake2b(repr((seed, what, of)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _RANDOM_BITS)) / (1 << _RANDOM_BITS)


Form = Literal["seconds", "float", "date", "mixed"] | None
"""Form of Retry-After. None omits the header. "mixed" chooses among the other forms for each refusal."""

_MIXED_FORMS: tuple[Form, ...] = ("seconds", "float", "date", None)
"""The forms among which "mixed" chooses."""


def choose_form(form: Form, number: float) -> Form:
    """Return `form`, or for "mixed" the form that `number`, a random number from 0 to below 1, selects.

    Examples
    --------
    >>> choose_form("date", 0.9), choose_form("mixed", 0.1), choose_form("mixed", 0.99)
    ('date', 'seconds', None)
    """
    return _MIXED_FORMS[int(number * len(_MIXED_FORMS))] if form == "mixed" else form


def make_retry_after(form: Form, wait_s: float, now_s: float) -> tuple[str | None, float]:
    """Return the value of a Retry-After header, and the waiting time in seconds that the value means.

    If `form` is None, the value is None. Whole seconds and HTTP dates round up, so the waiting time may be
    longer than `wait_s`. `now_s` is the Unix time.

    Examples
    --------
    >>> make_retry_after("seconds", 0.5, 1.75e9), make_retry_after("float", 0.5, 1.75e9)
    (('1', 1.0), ('0.5', 0.5))
    >>> make_retry_after("date", 0.5, 1.75e9 + 0.75)
    ('Sun, 15 Jun 2025 15:06:42 GMT', 1.25)
    """
    if form is None:
        return None, 0.0
    if form == "date":
        then_s = math.ceil(now_s + wait_s)
        return formatdate(then_s, usegmt=True), then_s - now_s
    if form == "seconds":
        return str(math.ceil(wait_s)), float(math.ceil(wait_s))
    return repr(float(wait_s)), float(wait_s)
