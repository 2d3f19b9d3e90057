"""The run options of all verbs, such as the run's folder and its budget."""

from collections.abc import Callable, Mapping
from dataclasses import field
from decimal import Decimal
from numbers import Real
from os import PathLike
from typing import Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, Strict, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from speechframe.settings.typed import (
    ALLOWED,
    CONFIG,
    Allowed,
    Credits,
    LocalPath,
    Switch,
    Text,
    Whole,
    refused,
)
from speechframe.store.folder import Folder

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
        The take of every row: 0 is the first, 1, 2, ... are others (default: 0, or a later take if a review
        rejected that).
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
        Seconds one row may take, retries included (default 900). A row fails at once if the service asks to
        wait for longer. The next run keeps that wait, for a day at most, and sends the row only if it may
        wait so long. A service that does not answer at all ends the run after this time, or after a minute.
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
        Plan and price every row, send nothing. A run that has begun keeps its table. A run that was only
        planned takes this table.
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


def _is_folder(value: Any) -> Any:
    # A remote folder may be an object with its own filesystem, such as a UPath.
    if not isinstance(value, (str, PathLike, Folder)) and not hasattr(value, "fs"):
        raise ValueError
    return value


def _is_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise PydanticCustomError(ALLOWED, "a mapping of name to value or column")
    return value


def _is_named(value: Any) -> Any:
    if isinstance(value, type) or not hasattr(value, "name"):
        raise ValueError
    return value


_Count = Annotated[Whole, Field(ge=1), Allowed("a whole number of at least 1")]
_Retakes = Annotated[Whole, Field(ge=0), Allowed("a whole number of at least 0")]
_Number = Annotated[float, Strict(), Field(ge=0), Allowed("a number of at least 0")]
_Positive = Annotated[float, Strict(), Field(ge=0.001), Allowed("a number of at least 0.001")]
_Tag = Annotated[
    Text | InstanceOf[Real] | InstanceOf[Decimal] | Annotated[Any, AfterValidator(_is_named)],
    Allowed('a text, a number, True, False or col("column")'),
]
_Tags = Annotated[
    dict[Annotated[Text, Field(min_length=1), Allowed("a name as text")], _Tag], BeforeValidator(_is_mapping)
]


@dataclass(frozen=True, config=CONFIG)
class Options:
    """:class:`RunOptions` with every default filled in and checked."""

    run_dir: Annotated[
        Any, AfterValidator(_is_folder), Allowed("a folder, or the address of one as text")
    ] = None
    id: Annotated[Text, Allowed("the name of a column, as text")] | None = None
    sep: Annotated[Text, Field(min_length=1, max_length=1), Allowed("one character")] | None = None
    quoting: Quoting | None = None
    max_concurrency: _Count | None = None
    max_credits: Credits | None = None
    take: Any = None
    truth_checks: Switch = True
    max_retakes: _Retakes = 0
    # Left out of the repr, because error reports show refused Options, which have no tags yet.
    tags: _Tags = field(default_factory=dict, repr=False)
    on_alert: Annotated[Callable[[Any], None], Allowed("a function")] | None = None
    cache: Annotated[Switch | LocalPath, Allowed("a folder, True or False")] | None = None
    max_attempts: _Count = 6
    patience_s: _Number = 900.0
    timeout_s: _Positive | None = None
    max_answer_mb: _Positive | None = None
    on_invalid: OnInvalid = "raise"
    on_error: OnError = "column"
    on_unknown: OnUnknown = "skip"
    progress: Annotated[Switch | Literal["dashboard"], Allowed("True, False, 'dashboard'")] = True
    wait: Switch = True
    dry_run: Switch = False
    service: Any = None

    @classmethod
    def of(cls, **given: Any) -> "Options":
        """Return the options in force (given, configured, or by default), or raise SettingsError."""
        said = {**_configured, **{name: value for name, value in given.items() if value is not None}}
        try:
            return cls(**said)
        except ValidationError as error:
            raise refused(error, "option", sorted(OPTION_NAMES)) from None


OPTION_NAMES = frozenset(RunOptions.__annotations__)
_configured: dict[str, Any] = {}


def configure_options(**values: Any) -> None:
    """Set run options for every later call in this process. ``None`` resets an option to its default.

    An unknown option or a value that is not allowed raises SettingsError. Then no option is set.
    """
    Options.of(**values)
    _configured.update(values)
    for name in [name for name, value in values.items() if value is None]:
        del _configured[name]
