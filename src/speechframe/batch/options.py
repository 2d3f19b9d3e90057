"""The options every verb shares: where a run's folder is, how fast it goes, what it may spend."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from os import PathLike
from typing import Any, Literal, TypedDict, get_args

from speechframe._numbers import plain_number
from speechframe.errors import SettingsError, nearest

OnInvalid = Literal["raise", "skip"]
OnError = Literal["column", "raise"]
OnUnknown = Literal["skip", "retry"]
Quoting = Literal["none"]


class RunOptions(TypedDict, total=False):
    """Run-wide options, the same for every verb.

    Parameters
    ----------
    run_dir
        The run's folder (default ``./speechframe-runs/<verb>-<hash>``).
    id
        The column of row ids (default: the index, or the row's number).
    sep
        Of a CSV or TSV file: the character between two fields (default: what the file shows).
    quoting
        Of a CSV or TSV file: ``"none"`` takes quotes as characters (default: what the file shows).
    max_concurrency
        Calls in flight at most, in each region.
    max_credits
        The run's budget over all its calls, resumes included: no call is made that would pass it.
    take
        Another take of every row: 1, 2, ...
    truth_checks
        Look at the audio and words of every answer (default); what cannot be true is ``suspect``, with the
        reason. False takes answers as they come, and puts none into the cache.
    max_retakes
        How many further takes of a suspect answer are made unasked, each billed (default 0).
    tags
        What to write beside every attempt in the ledger: name to value, or to the column that holds a value
        for each row, as in ``{"team": "ads", "character": col("speaker")}``.
    on_alert
        A function that is told, with an :class:`Alert`, when 80 % and all of ``max_credits`` are spent or set
        aside, and likewise of budgets over many runs at the shares of their ``alerts``.
    cache
        Folder of answers that runs share: a call that is in it costs nothing (default: the settings' one,
        if they name one; True for that or your own, False for none).
    max_attempts
        Attempts one row may take (default 6).
    patience_s
        Seconds one row may take, retries included (default 900); one told to wait for longer fails at once. A
        service that does not answer at all ends the run after this time, or after a minute.
    timeout_s
        Seconds one attempt may take, its download included; by default what grows with its text or clip
        (:class:`speechframe.client.Timeouts`).
    max_answer_mb
        Megabytes one row's answer may have (default: what its text, format and duration allow).
    on_invalid
        Rows that cannot be sent: ``raise`` (default) sends nothing at all, ``skip`` leaves them out.
    on_error
        Rows that fail: ``column`` (default) writes it beside the row, ``raise`` ends with the first error.
    on_unknown
        Rows that were sent without an answer and may have been billed: ``skip`` (default) or ``retry``.
    progress
        Show a progress bar (default), or a line now and then where there is no terminal. ``"dashboard"``
        shows the run's dashboard in a notebook (see :func:`speechframe.watch`), and the bar elsewhere.
    wait
        False returns the live run at once.
    dry_run
        Plan and price every row, send nothing; a run that exists keeps its table.
    service
        The service to use (default: settings, or the local one).
    """

    run_dir: str | PathLike[str] | None
    id: str | None
    sep: str | None
    quoting: Quoting | None
    max_concurrency: int | None
    max_credits: float | None
    take: Any
    truth_checks: bool
    max_retakes: int
    tags: Mapping[str, Any]
    on_alert: Callable[[Any], None] | None
    cache: str | PathLike[str] | bool | None
    max_attempts: int
    patience_s: float
    timeout_s: float | None
    max_answer_mb: float | None
    on_invalid: OnInvalid
    on_error: OnError
    on_unknown: OnUnknown
    progress: bool | Literal["dashboard"]
    wait: bool
    dry_run: bool
    service: Any


@dataclass(frozen=True)
class Options:
    """:class:`RunOptions` with every default filled in and checked."""

    run_dir: str | PathLike[str] | None = None
    id: str | None = None
    sep: str | None = None
    quoting: Quoting | None = None
    max_concurrency: int | None = None
    max_credits: float | None = None
    take: Any = 0
    truth_checks: bool = True
    max_retakes: int = 0
    tags: Mapping[str, Any] = field(default_factory=dict)
    on_alert: Callable[[Any], None] | None = None
    cache: str | PathLike[str] | bool | None = None
    max_attempts: int = 6
    patience_s: float = 900.0
    timeout_s: float | None = None
    max_answer_mb: float | None = None
    on_invalid: OnInvalid = "raise"
    on_error: OnError = "column"
    on_unknown: OnUnknown = "skip"
    progress: bool | Literal["dashboard"] = True
    wait: bool = True
    dry_run: bool = False
    service: Any = None

    @classmethod
    def of(cls, **given: Any) -> "Options":
        """Return the options in force (given, configured, or by default), or raise SettingsError."""
        check_names(given)
        values = {**_configured, **{name: value for name, value in given.items() if value is not None}}
        options = replace(cls(), **{name: plain_number(value) for name, value in values.items()})
        _check(options)
        return options


_configured: dict[str, Any] = {}


def option_names() -> frozenset[str]:
    """Return the names of all run options."""
    return frozenset(Options.__dataclass_fields__)


def check_names(given: Iterable[str], further: Iterable[str] = (), *, what: str = "option") -> None:
    """Raise SettingsError, with the nearest name, for one that is no option and none of `further`."""
    known = sorted({*option_names(), *further})
    for name in given:
        if name not in known:
            raise SettingsError(
                f"there is no {what} {name!r}; {nearest(name, known)}there are {', '.join(known)}"
            )


def configure_options(**values: Any) -> None:
    """Set run options for every later call in this process; ``None`` takes one back.

    Nothing is set where SettingsError is raised, for an unknown option or a value that is not allowed.
    """
    Options.of(**values)
    _configured.update(values)
    for name in [name for name, value in values.items() if value is None]:
        del _configured[name]


_Rule = tuple[Callable[[Any], bool], str]
"""Whether a value is allowed, and what is, in words."""


def _one_of(*allowed: Any) -> _Rule:
    # By identity or as text: 1 is no True, and an array has no truth value.
    return (
        lambda value: any(value is one or (isinstance(value, str) and value == one) for one in allowed),
        ", ".join(map(repr, allowed)),
    )


def _number(low: float, *, whole: bool = False) -> _Rule:
    def is_allowed(value: Any) -> bool:
        is_number = isinstance(value, int if whole else (Real, Decimal)) and not isinstance(value, bool)
        return is_number and value >= low and (whole or not sys.float_info.max < value < math.inf)

    return is_allowed, f"a {'whole ' if whole else ''}number of at least {low}"


_RULES: Mapping[str, _Rule] = {
    "on_invalid": _one_of(*get_args(OnInvalid)),
    "on_error": _one_of(*get_args(OnError)),
    "on_unknown": _one_of(*get_args(OnUnknown)),
    "quoting": _one_of(None, *get_args(Quoting)),
    "progress": _one_of(True, False, "dashboard"),
    **dict.fromkeys(("truth_checks", "wait", "dry_run"), _one_of(True, False)),
    **dict.fromkeys(("max_concurrency", "max_attempts"), _number(1, whole=True)),
    "max_retakes": _number(0, whole=True),
    **dict.fromkeys(("max_credits", "patience_s"), _number(0)),
    **dict.fromkeys(("timeout_s", "max_answer_mb"), _number(0.001)),
    "run_dir": (
        # A remote folder may come as an object that knows its own filesystem, such as a UPath.
        lambda value: isinstance(value, (str, PathLike)) or hasattr(value, "fs"),
        "a folder, or the address of one as text",
    ),
    "cache": (
        lambda value: isinstance(value, (bool, str, PathLike)) and value != "",
        "a folder, True or False",
    ),
    "id": (lambda value: isinstance(value, str), "the name of a column, as text"),
    "sep": (lambda value: isinstance(value, str) and len(value) == 1, "one character"),
    "on_alert": (callable, "a function"),
    "tags": (lambda value: isinstance(value, Mapping), "a mapping of name to value or column"),
}


def _check(options: Options) -> None:
    # Imported here: the command's help needs no settings.
    from speechframe.settings.typed import credit_limit, typed

    for name, (is_allowed, words) in _RULES.items():
        value = getattr(options, name)
        if value is not None and not is_allowed(value):
            raise _refused(name, value, words)
    if options.max_credits is not None:
        credit_limit("max_credits", options.max_credits)
    if isinstance(options.cache, (str, PathLike)):
        typed("cache", options.cache)
    tags: Mapping[Any, Any] = options.tags
    for name, value in tags.items():
        if not (isinstance(name, str) and name and _is_whole(name)):
            raise _refused("tags", options.tags, "names that are text")
        is_plain = _is_whole(value) if isinstance(value, str) else isinstance(value, (Real, Decimal))
        if not is_plain and (isinstance(value, type) or not hasattr(value, "name")):
            raise _refused(f"tags[{name!r}]", value, 'a text, a number, True, False or col("column")')


def _is_whole(text: str) -> bool:
    # A lone surrogate is half a character, and no file can hold it.
    return text == text.encode("utf-8", "replace").decode()


def _refused(name: str, value: Any, allowed: str) -> SettingsError:
    from speechframe.spec.check import shown

    return SettingsError(f"{name}={shown(value)}; allowed: {allowed}")
