"""The options every verb shares: where a run lies, how fast it goes, what it may spend."""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from numbers import Real
from os import PathLike
from typing import Any, Literal, TypedDict, get_args

from speechframe._numbers import plain_number
from speechframe.errors import SettingsError

OnInvalid = Literal["raise", "skip"]
OnError = Literal["column", "raise"]
OnUnknown = Literal["skip", "retry"]

DASHBOARD: Literal["dashboard"] = "dashboard"


class RunOptions(TypedDict, total=False):
    """Run-wide options, the same for every verb.

    Parameters
    ----------
    run_dir
        The run's folder (default ``./speechframe-runs/<verb>-<hash>``).
    id
        The column of row ids (default: the index, or the row's number).
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
        Further takes that suspect answers get by themselves, each billed (default 0): so many beyond the take
        that was asked for, however often the call is made again.
    tags
        Words that are written beside every attempt in the ledger.
    cache
        Folder of answers that runs share: a call that is in it costs nothing (default: the settings' one,
        if they name one; True for that or your own, False for none).
    max_attempts
        Attempts one row may take (default 6).
    patience_s
        Seconds one row may take, retries included (default 900). One that is told to wait for longer ends
        then, unsent. A service that gives no answer at all ends the run after so long, or after a minute.
    timeout_s
        Seconds one attempt may take; by default what grows with its text or clip
        (:class:`speechframe.old_client.Timeouts`).
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
    max_concurrency: int | None
    max_credits: float | None
    take: Any
    truth_checks: bool
    max_retakes: int
    tags: list[str]
    cache: str | PathLike[str] | bool | None
    max_attempts: int
    patience_s: float
    timeout_s: float | None
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
    max_concurrency: int | None = None
    max_credits: float | None = None
    take: Any = 0
    truth_checks: bool = True
    max_retakes: int = 0
    tags: tuple[str, ...] = ()
    cache: str | PathLike[str] | bool | None = None
    max_attempts: int = 6
    patience_s: float = 900.0
    timeout_s: float | None = None
    on_invalid: OnInvalid = "raise"
    on_error: OnError = "column"
    on_unknown: OnUnknown = "skip"
    progress: bool | Literal["dashboard"] = True
    wait: bool = True
    dry_run: bool = False
    service: Any = None

    @classmethod
    def of(cls, **given: Any) -> "Options":
        """Return the options in force: given ones, then :func:`configure`'s, then defaults.

        Raises
        ------
        SettingsError
            For an unknown option or a value that is not allowed.
        """
        return _checked({**_configured, **{k: v for k, v in given.items() if v is not None}})


_configured: dict[str, Any] = {}


def option_names() -> frozenset[str]:
    """Return the names of all run options."""
    return frozenset(f.name for f in fields(Options))


def check_options(**values: Any) -> None:
    """Raise SettingsError unless :func:`configure_options` takes these."""
    check_names(values)
    _checked({name: value for name, value in {**_configured, **values}.items() if value is not None})


def configure_options(**values: Any) -> None:
    """Set run options for every later call in this process; ``None`` takes one back.

    Raises
    ------
    SettingsError
        For an unknown option or a value that is not allowed; then nothing is set.
    """
    check_options(**values)
    for name, value in values.items():
        if value is None:
            _configured.pop(name, None)
        else:
            _configured[name] = value


def _checked(values: dict[str, Any]) -> Options:
    check_names(values)
    if "tags" in values:
        values = {**values, "tags": _tags(values["tags"])}
    options = replace(Options(), **{name: plain_number(value) for name, value in values.items()})
    _check(options)
    return options


def check_names(values: dict[str, Any]) -> None:
    """Raise SettingsError for a name that is no run option."""
    known = option_names()
    for name in values:
        if name not in known:
            raise SettingsError(f"unknown option {name!r}; there are {', '.join(sorted(known))}")


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, Iterable) and not isinstance(value, str):
        tags = tuple(value)
        if all(isinstance(tag, str) and _is_whole(tag) for tag in tags):
            return tags
    raise SettingsError(f"tags must be a list of strings, not {value!r}")


def _is_whole(text: str) -> bool:
    # A lone surrogate is half a character, and no file can hold it.
    return text.isascii() or text == text.encode("utf-8", "replace").decode()


def _check(options: Options) -> None:
    # Not before: the command's help needs no settings.
    from speechframe.settings.typed import credit_limit

    choices = {"on_invalid": OnInvalid, "on_error": OnError, "on_unknown": OnUnknown}
    for name, literal in choices.items():
        allowed = get_args(literal)
        if getattr(options, name) not in allowed:
            raise SettingsError(f"{name}={getattr(options, name)!r}; allowed: {', '.join(allowed)}")
    _check_places(options)
    if options.id is not None and not isinstance(options.id, str):
        raise SettingsError(f"id={options.id!r}; allowed: the name of a column, as text")
    if not isinstance(options.progress, bool) and options.progress != DASHBOARD:
        raise SettingsError(f"progress={options.progress!r}; allowed: True, False or {DASHBOARD!r}")
    for name in ("truth_checks", "wait", "dry_run"):
        if not isinstance(getattr(options, name), bool):
            raise SettingsError(f"{name}={getattr(options, name)!r}; allowed: True or False")
    _at_least(options, "max_concurrency", 1, whole=True)
    _at_least(options, "max_attempts", 1, whole=True)
    _at_least(options, "max_retakes", 0, whole=True)
    _at_least(options, "max_credits", 0, whole=False)
    if options.max_credits is not None:
        credit_limit("max_credits", options.max_credits)
    _at_least(options, "patience_s", 0, whole=False)
    _at_least(options, "timeout_s", 0.001, whole=False)


def _check_places(options: Options) -> None:
    from speechframe.settings.typed import typed

    run_dir: Any = options.run_dir
    cache: Any = options.cache
    # What knows its own filesystem is a folder too, as a UPath or the folder of a remote run.
    if run_dir is not None and not isinstance(run_dir, (str, PathLike)) and not hasattr(run_dir, "fs"):
        raise SettingsError(f"run_dir={run_dir!r}; allowed: a folder, or the address of one as text")
    if cache is None or isinstance(cache, bool):
        return
    if not isinstance(cache, (str, PathLike)) or cache == "":
        raise SettingsError(f"cache={cache!r}; allowed: a folder, True or False")
    typed("cache", cache)


def _at_least(options: Options, name: str, low: float, *, whole: bool) -> None:
    value = getattr(options, name)
    if value is None:
        return
    kinds: tuple[type[Any], ...] = (int,) if whole else (Real, Decimal)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value >= low:
        # Not before: the command's help needs no fields.
        from speechframe.spec.check import shown

        raise SettingsError(
            f"{name}={shown(value)}; allowed: {'a whole number' if whole else 'a number'} of at least {low}"
        )
    if not whole and sys.float_info.max < value < math.inf:
        raise SettingsError(f"{name} is too large; allowed: a number of at least {low}, inf for no limit")
