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
    """Options of a whole run. They are the same for every verb.

    Parameters
    ----------
    run_dir
        The run's folder (default ``./speechframe-runs/<verb>-<hash>``).
    id
        The column of row ids (default: the index, or the row's number).
    sep
        Character between two fields of a CSV or TSV file (default: detected from the file).
    quoting
        ``"none"`` reads quotes in a CSV or TSV file as ordinary characters (default: detected from the file).
    max_concurrency
        Largest number of calls in flight, in each region.
    max_credits
        The run's budget for all its calls, resumes included. A call that would exceed it is not made.
    take
        Number of the take of every row. 0 is the first take (default: 0, or a later take if a review rejected
        that).
    truth_checks
        Check the audio and words of every answer (default). An implausible answer gets the status
        ``suspect``, with a reason. False accepts all answers unchecked, and does not cache them.
    max_retakes
        Number of further takes that the run makes of a suspect answer by itself, each billed (default 0).
    tags
        Tags for every attempt in the ledger. They map a name to a value, or to a column with a value for each
        row, as in ``{"team": "ads", "character": col("speaker")}``.
    on_alert
        A function that gets an :class:`Alert` when 80 % and 100 % of ``max_credits`` are spent or reserved.
        Budgets shared by many runs send alerts at the shares in their ``alerts``.
    cache
        Folder of answers that runs share: a call that is in it costs nothing (default: the settings' one,
        if they name one; True for that or your own, False for none).
    max_attempts
        Largest number of attempts for a row (default 6).
    patience_s
        Largest number of seconds for a row, retries included (default 900). A row fails at once if the
        service requires a longer wait (Retry-After). The next run observes the rest of that wait, up to one
        day, and sends the row only if its own ``patience_s`` allows the wait. A run also stops if the service
        is unreachable for this time, or for one minute if that is shorter.
    timeout_s
        Timeout of one attempt in seconds, download included. The default grows with the length of the text or
        clip (:class:`speechframe.client.Timeouts`).
    max_answer_mb
        Largest size of one row's answer in megabytes (default: depends on its text, format and duration).
    on_invalid
        For rows that cannot be sent: ``raise`` (default) sends nothing at all, ``skip`` leaves them out.
    on_error
        For rows that fail: ``column`` (default) writes the error beside the row, ``raise`` ends the run with
        the first error.
    on_unknown
        For rows that may have been billed without an answer: ``skip`` (default) or ``retry``.
    progress
        Show a progress bar (default), or a line now and then where there is no terminal. ``"dashboard"``
        shows the run's dashboard in a notebook (see :func:`speechframe.watch`), and the bar elsewhere.
    wait
        False returns the live run at once.
    dry_run
        Plan and price every row, but send nothing. A run that has begun keeps its table. A run that was only
        planned gets this table.
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
