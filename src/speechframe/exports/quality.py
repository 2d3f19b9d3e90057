"""Measure the quality of the clips of runs, and grade them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from speechframe.store.reader import StoredRun

if TYPE_CHECKING:
    import pandas as pd


def quality(runs: Any) -> "pd.DataFrame":
    raise NotImplementedError


def measure_runs(
    runs: Sequence[StoredRun], *, progress: bool, is_cancelled: Callable[[], bool]
) -> "pd.DataFrame":
    raise NotImplementedError


def describe_quality(measured: "pd.DataFrame") -> tuple[str, ...]:
    raise NotImplementedError
