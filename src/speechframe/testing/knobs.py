"""Check the settings of a faulty service (its knobs). The child process receives the knobs as JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from speechframe.errors import SettingsError
from speechframe.settings import GLOBAL_REGION
from speechframe.spec.limits import REGIONS
from speechframe.testing.plan import FaultTable, Fixed, Form, Latency, check_script

DEFAULT_KEY = "faulty-key"

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
RegionNames = tuple[str, ...]

_FIXED_AT_START = frozenset({"seed", "regions", "keys"})
"""Knobs that cannot change while the service runs."""
_ALLOWED_VALUES: Mapping[str, str] = MappingProxyType(
    {
        "latency": "seconds, Fixed or Lognormal",
        "cap_plan": "a list of pairs (seconds, cap)",
        "faults": "steps and their shares, such as {'500': 0.1}",
        "scripts": "texts and their steps, such as {'Hello': ['503', 'ok']}",
        "regions": "a list of names",
        "down_regions": "a list of names",
    }
)


def _convert_latency(value: object) -> object:
    return Fixed(float(value)) if isinstance(value, (int, float)) else value


class Knobs(BaseModel):
    """Every knob (setting) with its default. The docstring of ``FaultyService`` describes each knob."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    seed: int = 0
    latency: Annotated[Latency, BeforeValidator(_convert_latency)] = Fixed(0.0)
    cap: Annotated[int, Field(ge=1)] | None = None
    cap_plan: tuple[tuple[Seconds, Annotated[int, Field(ge=1)] | None], ...] = ()
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    burst: Annotated[int, Field(ge=1)] = 1
    quota: Count | None = None
    faults: dict[str, float] = Field(default_factory=dict)
    scripts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    odd: dict[str, dict[str, str]] = Field(default_factory=dict)
    retry_after: Form = "seconds"
    retry_after_s: Seconds = 1.0
    audio_bytes: Annotated[int, Field(ge=1)] | None = None
    regions: Annotated[RegionNames, Field(min_length=1)] = (GLOBAL_REGION,)
    down_regions: frozenset[str] = frozenset()
    publish_cap: bool = False
    limits_page: bool = True
    idempotent: bool = True
    billed_times: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    takes: bool = True
    hang_s: Seconds = 3600.0
    slow_s: Seconds = 1.0
    keys: Annotated[tuple[str, ...], Field(min_length=1)] = (DEFAULT_KEY,)

    @field_validator("cap_plan", "regions", "down_regions", mode="before")
    @classmethod
    def _convert_to_tuple(cls, value: object) -> object:
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
            return tuple(value)
        return () if value is None else value

    @field_validator("faults", "scripts", "odd", mode="before")
    @classmethod
    def _convert_to_dict(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return dict(value)
        return {} if value is None else value

    @field_validator("faults")
    @classmethod
    def _check_faults(cls, value: dict[str, float]) -> dict[str, float]:
        FaultTable(value)
        return value

    @field_validator("scripts")
    @classmethod
    def _check_scripts(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for script in value.values():
            check_script(script)
        return value

    @field_validator("regions", "down_regions")
    @classmethod
    def _check_region_names(cls, value: tuple[str, ...] | frozenset[str]) -> tuple[str, ...] | frozenset[str]:
        unknown = sorted(set(value) - set(REGIONS))
        if unknown:
            raise ValueError(f"unknown region {unknown[0]!r}; allowed: {', '.join(REGIONS)}")
        if len(value) > len(set(value)):
            raise ValueError(f"{Counter(value).most_common(1)[0][0]} twice; allowed: each region once")
        return value

    @field_validator("down_regions")
    @classmethod
    def _check_down_regions(cls, value: frozenset[str], known: ValidationInfo) -> frozenset[str]:
        # If `regions` itself is invalid, it is missing in `known.data`. Then accept any names here.
        regions = known.data.get("regions", value)
        for name in sorted(value):
            if name not in regions:
                raise ValueError(f"{name} is not a region of this service; it has {', '.join(regions)}")
        return value

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Return knobs with these values. Raise SettingsError if a knob is unknown or a value is invalid."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingsError(_describe_error(error)) from None

    def with_changes(self, changes: dict[str, Any]) -> Self:
        """Return a copy with changed knobs.

        Raise SettingsError if a knob is unknown, cannot change while the service runs, or has an invalid
        value.
        """
        fixed = sorted(_FIXED_AT_START & set(changes))
        if fixed:
            raise SettingsError(f"{fixed[0]} cannot change after the start. Make a new FaultyService.")
        return self.from_values({name: getattr(self, name) for name in type(self).model_fields} | changes)


def _describe_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return f"a FaultyService has no {name!r}; it has {', '.join(Knobs.model_fields)}"
    fault = first["msg"].removeprefix("Value error, ")
    allowed = "" if first["type"] == "value_error" else _ALLOWED_VALUES.get(name, "")
    return f"{name}: {fault}; allowed: {allowed}" if allowed else f"{name}: {fault}"
