"""Estimate the probability that a listening test finds an effect, by analysing simulated votes."""

from dataclasses import asdict, dataclass
from itertools import combinations
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from speechframe.errors import AnalysisError
from speechframe.extras import import_library
from speechframe.statistics.clusters import adjust_holm
from speechframe.statistics.intake import Codes, get_method
from speechframe.statistics.proportions import compute_exact_p, compute_wilson_interval, estimate_share
from speechframe.statistics.scores import ScoreTable, compute_p_of_pairs
from speechframe.statistics.spread import Spread
from speechframe.statistics.votes import ABX, MOS, Method
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

ASSUMED_SPREAD = Spread(listener=0.10, item=0.07, listener_condition=0.05, item_condition=0.05, residual=0.18)
"""Assumed standard deviations of scores, as shares of the width of the scale.

MOS votes on one condition then have a standard deviation of 0.91 points, which is typical of MOS tests.
Measure the spread of your own tests with :meth:`Spread.from_votes`.
"""

ASSUMED_LOGIT_SD = 0.5
"""Assumed standard deviation of preferences between listeners, and between items, in natural log odds."""

DEFAULT_SIMULATIONS = 500
"""Default number of simulated studies."""

_MIN_STUDY_SIZE = 2
"""Smallest number of listeners, items and conditions of a study."""
_NO_EFFECT_SHARE = 0.5
"""Share of votes in ab and abx that means no effect."""

MAX_LISTENERS = 1_000
"""Default of the largest number of listeners that `listeners_needed` tries."""


@dataclass(frozen=True, slots=True)
class Power:
    """The share of simulated studies that find an effect, and the assumptions of the simulation.

    Parameters
    ----------
    power
        Share of the simulated studies with p below `alpha`.
    low, high
        95 % interval of `power`, whose width depends on the number of simulations.
    method, effect, listeners, items, trials_per_listener, conditions, alpha, simulations, seed
        Parameters of the simulation, as in :func:`power`.
    spread
        Standard deviations of the simulated scores. None in ab and abx.
    """

    power: float
    low: float
    high: float
    method: str
    effect: float
    listeners: int
    items: int
    trials_per_listener: int
    conditions: int
    alpha: float
    simulations: int
    seed: int
    spread: Spread | None

    def __str__(self) -> str:
        """Return the result and its assumptions as one sentence."""
        what = "points" if self.spread is not None else "of the votes for one side"
        return (
            f"{self.power:.0%} of {self.simulations} simulated {self.method} studies found an effect of "
            f"{self.effect:g} {what} (95 % interval {self.low:.0%} to {self.high:.0%}): "
            f"{format_count(self.listeners, 'listener')}, {format_count(self.trials_per_listener, 'trial')} "
            f"each, {format_count(self.items, 'item')}, {format_count(self.conditions, 'condition')}, alpha "
            f"{self.alpha:g}"
        )


def power(
    method: str,
    *,
    effect: float,
    listeners: int = 20,
    items: int = 30,
    trials_per_listener: int = 30,
    conditions: int = 2,
    spread: Spread | None = None,
    design: "pd.DataFrame | None" = None,
    alpha: float = 0.05,
    simulations: int = DEFAULT_SIMULATIONS,
    seed: int = 0,
) -> Power:
    """Estimate the probability that a study finds an effect.

    In a simulated study, the first condition differs from the others by `effect`. The study finds the effect
    if the first and the second condition differ with p below `alpha`, adjusted for all pairs (Holm). Scores
    and ab use the clustered test of the pair, and abx uses the exact binomial test of all answers.

    Parameters
    ----------
    method
        ``mos``, ``multi``, ``mushra``, ``ab`` or ``abx``.
    effect
        For methods with scores, the difference of the mean scores in points, before scores are rounded and
        limited to the scale. For ab, the share of votes for the better condition by a typical listener on a
        typical item. For abx, the share of correct answers.
    listeners, items, trials_per_listener
        Size of the study. A trial is a page. Each listener rates an item in all conditions, on one page
        (``multi``, ``mushra``) or on one page for each condition (``mos``).
    conditions
        Number of conditions, including the reference and anchors of ``mushra``.
    spread
        Standard deviations of scores. None uses :data:`ASSUMED_SPREAD` times the width of the scale.
    design
        A planned study, which replaces `listeners`, `items`, `trials_per_listener` and `conditions`. It is a
        DataFrame with one row for each vote and the columns ``listener``, ``item`` and ``condition``
        (``condition_a`` and ``condition_b`` in ab and abx). The conditions are sorted by name.
    alpha
        Significance level. An effect counts as found if p is below this value.
    simulations
        Number of simulated studies.
    seed
        Seed of the simulations.

    Raises
    ------
    AnalysisError
        The method is unknown, the effect is out of range, or the study has fewer than two listeners, items or
        conditions.

    Examples
    --------
    >>> found = power("mos", effect=0.5, listeners=20, simulations=100)
    >>> found.power > 0.5
    True
    """
    kind = get_method(method)
    _refuse_effect(kind, effect)
    plan = _make_plan_from_frame(design, kind) if design is not None else None
    if plan is None:
        plan = _make_balanced_plan(kind, listeners, items, trials_per_listener, conditions)
    if min(plan.listeners, plan.items, plan.conditions) < _MIN_STUDY_SIZE or simulations < 1:
        raise AnalysisError(
            "a study needs at least two listeners, two items, two conditions and one simulation"
        )
    rng = np.random.default_rng(seed)
    if kind.has_scores:
        spread = spread if spread is not None else _scale_assumed_spread(kind)
        found = [_simulate_score_study(plan, kind, effect, spread, rng) < alpha for _ in range(simulations)]
    else:
        spread = None
        found = [_simulate_pair_study(plan, kind, effect, rng) < alpha for _ in range(simulations)]
    hits = int(np.count_nonzero(found))
    low, high = compute_wilson_interval(
        hits / simulations, simulations, float(import_library("scipy.special").ndtri(0.975))
    )
    return Power(
        power=hits / simulations,
        low=low,
        high=high,
        method=method,
        effect=effect,
        listeners=plan.listeners,
        items=plan.items,
        trials_per_listener=plan.trials,
        conditions=plan.conditions,
        alpha=alpha,
        simulations=simulations,
        seed=seed,
        spread=spread,
    )


def listeners_needed(
    method: str, *, effect: float, wished_power: float = 0.8, most: int = MAX_LISTENERS, **study: Any
) -> Power:
    """Return the power of the smallest study that finds an effect with at least `wished_power`.

    A binary search finds the number of listeners. Every step is a simulation, so the number is only accurate
    to a few per cent.

    Parameters
    ----------
    method, effect
        As in :func:`power`.
    wished_power
        Probability with which a study must find the effect (default 0.8).
    most
        Largest number of listeners to try (default 1,000).
    **study
        The other arguments of :func:`power`, except ``listeners`` and ``design``.

    Raises
    ------
    AnalysisError
        `most` listeners are not enough, for example because there are few items. Or for a reason of
        :func:`power`.

    Examples
    --------
    >>> found = listeners_needed("mos", effect=0.6, items=20, trials_per_listener=20, simulations=100)
    >>> found.listeners < 60 and found.power >= 0.8
    True
    """
    if not 0 < wished_power < 1:
        raise AnalysisError(f"wished_power must be between 0 and 1, such as 0.8, not {wished_power:g}")
    below, enough = 1, None
    count = 4
    while enough is None:
        tried = power(method, effect=effect, listeners=min(count, most), **study)
        if tried.power >= wished_power:
            enough = tried
        elif count >= most:
            raise AnalysisError(
                f"{most} listeners find the effect in {tried.power:.0%} of the studies, not in "
                f"{wished_power:.0%}; plan more items, or a larger effect"
            )
        else:
            below, count = count, 2 * count
    while enough.listeners - below > 1:
        middle = (below + enough.listeners) // 2
        tried = power(method, effect=effect, listeners=middle, **study)
        if tried.power >= wished_power:
            enough = tried
        else:
            below = middle
    return enough


@dataclass(frozen=True, slots=True)
class _Plan:
    """A planned study, as arrays with one entry for each vote.

    `who`, `what`, `first` and `second` are the codes of the listener, the item and the two conditions of the
    vote. `second` is always greater than `first`, and None for methods with scores. `trials` is the number of
    pages of each listener.
    """

    who: Codes
    what: Codes
    first: Codes
    second: Codes | None
    listeners: int
    items: int
    conditions: int
    trials: int


def _refuse_effect(kind: Method, effect: float) -> None:
    if isinstance(effect, bool) or not isinstance(effect, Real):
        raise AnalysisError(f"effect must be a number, not {effect!r}")
    if kind.has_scores:
        lowest, highest = kind.limits
        if not 0 <= effect <= highest - lowest:
            allowed = f"0 to {highest - lowest:g} points"
            raise AnalysisError(f"the effect of {kind.name} must be {allowed}, not {effect:g}")
    elif not _NO_EFFECT_SHARE <= effect < 1:
        raise AnalysisError(f"the effect of {kind.name} must be a share from 0.5 to below 1, not {effect:g}")


def _scale_assumed_spread(kind: Method) -> Spread:
    lowest, highest = kind.limits
    return Spread(**{name: (highest - lowest) * part for name, part in asdict(ASSUMED_SPREAD).items()})


def _make_balanced_plan(kind: Method, listeners: int, items: int, trials: int, conditions: int) -> _Plan:
    if min(listeners, items, trials, conditions) < 1:
        raise AnalysisError("listeners, items, trials_per_listener and conditions must be 1 or more")
    pairs = np.array(list(combinations(range(conditions), 2)) or [(0, 0)], np.intp)
    ways = conditions if kind.has_scores else len(pairs)
    # A page of mos contains one condition of an item, and a page of ab or abx one pair of conditions. A page
    # of the other methods contains all conditions of an item.
    one_page = kind.has_scores and kind.name != MOS
    items_each = min(items, trials if one_page else max(1, trials // ways))
    who, turn, way = (axis.ravel() for axis in np.indices((listeners, items_each, ways), dtype=np.intp))
    # Let listeners begin at different items, so that all items get about the same number of votes.
    what = (turn + who * items_each) % items
    first, second = (way, None) if kind.has_scores else (pairs[way, 0], pairs[way, 1])
    pages = items_each if one_page else items_each * ways
    return _Plan(who, what, first, second, listeners, items, conditions, pages)


def _make_plan_from_frame(design: "pd.DataFrame", kind: Method) -> _Plan:
    columns = kind.condition_columns
    missing = [name for name in ("listener", "item", *columns) if name not in design.columns]
    if missing or not len(design):
        fault = f"lacks the columns {', '.join(missing)}" if missing else "has no rows"
        raise AnalysisError(
            f"the design {fault}; it needs one row a vote, with listener, item, {', '.join(columns)}",
            column=missing[0] if missing else None,
        )
    names = sorted({str(name) for column in columns for name in design[column]})
    code_of = {name: code for code, name in enumerate(names)}
    codes = [np.array([code_of[str(name)] for name in design[column]], np.intp) for column in columns]
    listeners, who = np.unique(design["listener"].astype(str).to_numpy(object), return_inverse=True)
    items, what = np.unique(design["item"].astype(str).to_numpy(object), return_inverse=True)
    first, second = (codes[0], None) if len(codes) == 1 else (np.minimum(*codes), np.maximum(*codes))
    one_page = kind.has_scores and kind.name != MOS
    trials = round(len(design) / len(listeners) / (len(names) if one_page else 1))
    return _Plan(who, what, first, second, len(listeners), len(items), len(names), max(1, trials))


def _simulate_score_study(
    plan: _Plan, kind: Method, effect: float, spread: Spread, rng: np.random.Generator
) -> float:
    lowest, highest = kind.limits
    middle = (lowest + highest) / 2
    normal = rng.standard_normal
    scores = (
        np.where(plan.first == 0, middle + effect / 2, middle - effect / 2)
        + spread.listener * normal(plan.listeners)[plan.who]
        + spread.item * normal(plan.items)[plan.what]
        + spread.listener_condition * normal((plan.listeners, plan.conditions))[plan.who, plan.first]
        + spread.item_condition * normal((plan.items, plan.conditions))[plan.what, plan.first]
        + spread.residual * normal(len(plan.who))
    )
    if kind.step is not None:
        scores = lowest + kind.step * np.round((scores - lowest) / kind.step)
    table = ScoreTable(np.clip(scores, lowest, highest), plan.first, plan.who, plan.what, plan.conditions)
    p = adjust_holm(compute_p_of_pairs(table, list(combinations(range(plan.conditions), 2))))
    return float(p[0])


def _simulate_pair_study(plan: _Plan, kind: Method, effect: float, rng: np.random.Generator) -> float:
    if kind.name == ABX:
        correct = rng.random(len(plan.who)) < effect
        return compute_exact_p(int(correct.sum()), len(correct), alternative="greater")
    second = plan.second if plan.second is not None else plan.first
    pair = plan.first * plan.conditions + second
    leaning = rng.standard_normal((plan.listeners, plan.conditions**2))[plan.who, pair]
    leaning += rng.standard_normal((plan.items, plan.conditions**2))[plan.what, pair]
    level = np.where(plan.first == 0, np.log(effect / (1 - effect)), 0.0)
    chance = 1 / (1 + np.exp(-level - ASSUMED_LOGIT_SD * leaning))
    yes = (rng.random(len(chance)) < chance).astype(float)
    p: list[float] = []
    for first, other in combinations(range(plan.conditions), 2):
        rows = np.flatnonzero(pair == first * plan.conditions + other)
        p.append(estimate_share(yes[rows], plan.who[rows], plan.what[rows]).p_clustered)
    return float(adjust_holm(np.array(p))[0])
