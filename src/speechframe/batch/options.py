"""Check run options and fill in their defaults."""

from collections.abc import Callable, Mapping
from dataclasses import field
from decimal import Decimal
from numbers import Real
from os import PathLike
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, Strict, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from speechframe.batch.run_options import OnError, OnInvalid, OnUnknown, Quoting, RunOptions
from speechframe.settings.typed import (
    ALLOWED_ERROR,
    CHECKED_CONFIG,
    Allowed,
    Credits,
    LocalPath,
    Switch,
    Text,
    Whole,
    make_refusal,
)
from speechframe.store.folder import Folder


def _check_is_folder(value: Any) -> Any:
    # A remote folder may be an object with a filesystem of its own in `fs`, such as a UPath.
    if not isinstance(value, (str, PathLike, Folder)) and not hasattr(value, "fs"):
        raise ValueError
    return value


def _check_is_executor(value: Any) -> Any:
    if isinstance(value, type) or not (value is None or hasattr(value, "submit")):
        raise ValueError
    return value


def _check_is_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise PydanticCustomError(ALLOWED_ERROR, "a mapping of name to value or column")
    return value


def _check_has_name(value: Any) -> Any:
    if isinstance(value, type) or not hasattr(value, "name"):
        raise ValueError
    return value


_Count = Annotated[Whole, Field(ge=1), Allowed("a whole number of at least 1")]
_Retakes = Annotated[Whole, Field(ge=0), Allowed("a whole number of at least 0")]
_NotNegative = Annotated[float, Strict(), Field(ge=0), Allowed("a number of at least 0")]
_Positive = Annotated[float, Strict(), Field(ge=0.001), Allowed("a number of at least 0.001")]
_Tag = Annotated[
    Text | InstanceOf[Real] | InstanceOf[Decimal] | Annotated[Any, AfterValidator(_check_has_name)],
    Allowed('a text, a number, True, False or col("column")'),
]
_Tags = Annotated[
    dict[Annotated[Text, Field(min_length=1), Allowed("a name as text")], _Tag],
    BeforeValidator(_check_is_mapping),
]


@dataclass(frozen=True, config=CHECKED_CONFIG)
class Options:
    """Checked :class:`RunOptions` in which no option is missing."""

    run_dir: Annotated[
        Any, AfterValidator(_check_is_folder), Allowed("a folder, or the address of one as text")
    ] = None
    id: Annotated[Text, Allowed("the name of a column, as text")] | None = None
    sep: Annotated[Text, Field(min_length=1, max_length=1), Allowed("one character")] | None = None
    quoting: Quoting | None = None
    max_concurrency: _Count | None = None
    max_credits: Credits | None = None
    take: Any = None
    truth_checks: Switch = True
    max_retakes: _Retakes = 0
    # Not in the repr. An error report may call repr on Options that failed a check and have no tags yet.
    tags: _Tags = field(default_factory=dict, repr=False)
    on_alert: Annotated[Callable[[Any], None], Allowed("a function")] | None = None
    cache: Annotated[Switch | LocalPath, Allowed("a folder, True or False")] | None = None
    max_attempts: _Count = 6
    patience_s: _NotNegative = 900.0
    timeout_s: _Positive | None = None
    max_answer_mb: _Positive | None = None
    on_invalid: OnInvalid = "raise"
    on_error: OnError = "column"
    on_unknown: OnUnknown = "skip"
    progress: Annotated[Switch | Literal["dashboard"], Allowed("True, False, 'dashboard'")] = True
    wait: Switch = True
    dry_run: Switch = False
    service: Any = None
    executor: Annotated[
        Any,
        AfterValidator(_check_is_executor),
        Allowed('an executor such as ProcessPoolExecutor(4), or a dask.distributed.Client("tcp://…")'),
    ] = field(default=None, repr=False)
    executor_workers: _Count | None = None

    @classmethod
    def from_given(cls, **given: Any) -> "Options":
        """Return the given options, completed by the configured options and then by the defaults.

        Raise SettingsError if an option is unknown or has a value that is not allowed. A `given` None counts
        as not given.
        """
        in_force = {**_configured, **{name: value for name, value in given.items() if value is not None}}
        try:
            return cls(**in_force)
        except ValidationError as error:
            raise make_refusal(error, "option", sorted(OPTION_NAMES)) from None


OPTION_NAMES = frozenset(RunOptions.__annotations__)
_configured: dict[str, Any] = {}


def configure_options(**values: Any) -> None:
    """Set run options for every later call in this process. ``None`` resets an option to its default.

    Raise SettingsError, and set no option, if an option is unknown or a value is not allowed.
    """
    Options.from_given(**values)
    _configured.update(values)
    for name in [name for name, value in values.items() if value is None]:
        del _configured[name]
