"""Draw the results of a listening test.

Every function draws into the axes `ax`, or into a new figure that pyplot does not manage, and returns the
figure. A notebook shows a new figure as a picture. To save a plot, call ``figure.savefig("x.pdf")``. Shapes
and texts repeat the meaning of all colours, so plots are readable in grey and with colour blindness.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from speechframe.errors import AnalysisError
from speechframe.extras import get_figure, import_library, provide_axes
from speechframe.statistics.figures import Figures
from speechframe.statistics.listening import ListeningResult
from speechframe.statistics.votes import AB

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour-blind people can distinguish this blue (by Okabe and Ito) and this dark orange.
_EVERYONE_STYLE: dict[str, Any] = {"color": "#0072B2", "marker": "o", "markerfacecolor": "#0072B2"}
"""Style of figures of all listeners."""
_KEPT_STYLE: dict[str, Any] = {"color": "#A34700", "marker": "D", "markerfacecolor": "white"}
"""Style of figures without the listeners who were screened out."""
_GREY_COLOR = "#767676"
_WIDTH_INCHES = 6.4
_ROW_INCHES = 0.42
"""Height of each row of `plot_scores`."""
_CELL_INCHES = 1.0
"""Width of each cell of `plot_pairs`."""
_HEAD_INCHES = 1.1
"""Height of the legend and the axis of `plot_scores`."""
_MAX_NAME_CHARACTERS = 24
"""Number of characters above which a name is shortened."""
_FOUND_P = 0.05
"""p values below this value count as found differences, which are drawn in bold."""
_SMALLEST_P = 0.001
"""p values below this value are written as ``p < .001``."""


def _shorten_name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[: _MAX_NAME_CHARACTERS - 1]}…"


def plot_scores(result: ListeningResult, ax: "Axes | None" = None) -> "Figure":
    """Plot the mean scores with their intervals, the best condition on top.

    For ab, plot strengths. For abx, plot shares of correct answers, with a line at 0.5 (guessing). If
    listeners were screened out, open diamonds show the results without these listeners.

    Parameters
    ----------
    result
        The result of :func:`~speechframe.statistics.listening.analyse`.
    ax
        Axes to draw into. With None (default), a new figure is made.

    Examples
    --------
    >>> from speechframe.statistics.listening import analyse
    >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 3 + (w + i) % 2}
    ...         for w in range(3) for i in range(4) for c in "xy"]
    >>> plot_scores(analyse(rows, method="mos")).axes[0].get_xlabel()
    'Mean score with 95% interval'
    """
    frame, value, label = _get_estimates(result, result.everyone)
    names = list(frame["name"])
    ax = provide_axes(ax, _WIDTH_INCHES, _HEAD_INCHES + _ROW_INCHES * len(names))
    if result.kept is None or not result.screened:
        _draw_estimates(ax, frame, value, names, style=_EVERYONE_STYLE, label="all listeners")
    else:
        kept, _, _ = _get_estimates(result, result.kept)
        left = f"without those screened out ({result.kept.listeners})"
        _draw_estimates(ax, frame, value, names, shift=-0.14, style=_EVERYONE_STYLE, label="all listeners")
        _draw_estimates(ax, kept, value, names, shift=0.14, style=_KEPT_STYLE, label=left)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    ax.set_yticks(range(len(names)), [_shorten_name(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel(f"{label} with {result.confidence:.0%} interval")
    _draw_scale(ax, result)
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return get_figure(ax)


def _get_estimates(result: ListeningResult, figures: Figures) -> tuple["pd.DataFrame", str, str]:
    if figures.scores is not None:
        return figures.scores.rename(columns={"condition": "name"}), "mean", "Mean score"
    if figures.strengths is not None:
        return (
            figures.strengths.frame.rename(columns={"condition": "name"}),
            "strength",
            "Strength (log odds)",
        )
    if figures.discrimination is None:
        raise AnalysisError(
            f"a result of {result.method.name} without figures cannot be drawn; pass a result of analyse(...)"
        )
    frame = figures.discrimination.pairs
    names = [
        a if a == b else f"{a} or {b}"
        for a, b in zip(frame["condition_a"], frame["condition_b"], strict=True)
    ]
    return frame.assign(name=names), "share", "Share of correct answers"


def _draw_estimates(
    ax: "Axes",
    frame: "pd.DataFrame",
    value: str,
    names: list[str],
    *,
    shift: float = 0.0,
    style: dict[str, Any],
    label: str,
) -> None:
    known = frame[frame[value].notna()]
    rows = np.array([names.index(name) for name in known["name"]], float) + shift
    ends = known[value].to_numpy(float)
    # If the interval is missing, draw only the point.
    reach = np.stack([ends - known["low"].fillna(known[value]), known["high"].fillna(known[value]) - ends])
    ax.errorbar(
        ends, rows, xerr=np.abs(reach), linestyle="none", capsize=3, markersize=5.5, label=label, **style
    )
    for row, reason in zip(names, frame.set_index("name").loc[names, "reason"], strict=True):
        if row not in set(known["name"]):
            place = (0.02, names.index(row) + shift)
            style = {"xycoords": ("axes fraction", "data"), "va": "center", "color": _GREY_COLOR}
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            _write(ax, reason.partition(":")[0], place, bbox=box, **style)


def _write(
    ax: "Axes", text: str, place: tuple[float, float], offset_points: tuple[int, int] = (0, 0), **options: Any
) -> None:
    """Write a small text beside a place."""
    ax.annotate(text, place, offset_points, textcoords="offset points", fontsize="small", **options)


def _draw_scale(ax: "Axes", result: ListeningResult) -> None:
    method = result.method
    if method.lowest is not None and method.highest is not None:
        margin = 0.02 * (method.highest - method.lowest)
        ax.set_xlim(method.lowest - margin, method.highest + margin)
        if method.step is not None:
            steps = np.linspace(method.lowest, method.highest, len(method.labels))
            ax.set_xticks(
                steps, [f"{step:g}\n{label}" for step, label in zip(steps, method.labels, strict=True)]
            )
        return
    if method.name == AB:
        ax.axvline(0.0, color=_GREY_COLOR, linestyle="--", linewidth=1)
        return
    ax.set_xlim(-0.02, 1.02)
    ax.axvline(0.5, color=_GREY_COLOR, linestyle="--", linewidth=1)
    units = ("data", "axes fraction")
    _write(ax, "guessing", (0.5, 1), (-4, 0), xycoords=units, ha="right", va="top", color=_GREY_COLOR)


def plot_pairs(result: ListeningResult, ax: "Axes | None" = None) -> "Figure":
    r"""Plot a matrix with one cell for each pair of conditions.

    A cell contains the score of its row minus the score of its column, and the p value adjusted for all pairs
    (Holm). For ab, a cell contains the share of votes that preferred the row. Cells with p below .05 are bold
    and have a thick border. A darker cell means a larger difference.

    Parameters
    ----------
    result
        The result of :func:`~speechframe.statistics.listening.analyse`, of any method except abx.
    ax
        Axes to draw into. With None (default), a new figure is made.

    Raises
    ------
    AnalysisError
        The method is abx, or there is only one condition.

    Examples
    --------
    >>> from speechframe.statistics.listening import analyse
    >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 3 + (w + i) % 2}
    ...         for w in range(3) for i in range(4) for c in "xy"]
    >>> [text.get_text() for text in plot_pairs(analyse(rows, method="mos")).axes[0].texts]
    ['0.00\nno p']
    """
    pairs, value = _get_pairs(result)
    estimates, _, _ = _get_estimates(result, result.everyone)
    names = list(estimates["name"])
    rows, columns = names[:-1], names[1:]
    size = _CELL_INCHES * len(columns)
    ax = provide_axes(ax, size + 2.2, 0.75 * size + 1.4)
    zero = 0.5 if value == "share" else 0.0
    most = float(np.nanmax(np.abs(pairs[value].to_numpy(float) - zero), initial=1e-9))
    for pair in pairs.to_dict("records"):
        cell = {str(column): content for column, content in pair.items()}
        _draw_cell(ax, cell, value, (rows, columns), zero, most)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(range(len(rows)), [_shorten_name(name) for name in rows])
    slanted: dict[str, Any] = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(columns)), [_shorten_name(name) for name in columns], **slanted)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    what = "Share for row over column" if zero else "Row minus column"
    ax.set_xlabel(f"{what};\np adjusted for all pairs (Holm)")
    return get_figure(ax)


def _get_pairs(result: ListeningResult) -> tuple["pd.DataFrame", str]:
    frame, value = (result.pairs, "difference") if result.preference is None else (result.preference, "share")
    if frame is None:
        raise AnalysisError(f"a result of {result.method.name} has no matrix of pairs; use plot_scores")
    if not len(frame):
        raise AnalysisError("one condition has no pairs to draw; use plot_scores")
    return frame, value


def _draw_cell(
    ax: "Axes",
    pair: dict[str, Any],
    value: str,
    names: tuple[list[str], list[str]],
    zero: float,
    most: float,
) -> None:
    rows, columns = names
    a, b, amount = pair["condition_a"], pair["condition_b"], pair[value]
    turned = a not in rows or b not in columns or columns.index(b) < rows.index(a)
    if turned:
        a, b, amount = b, a, 2 * zero - amount
    found = bool(pair["p_holm"] < _FOUND_P)
    depth = 0.0 if np.isnan(amount) else min(1.0, abs(amount - zero) / most)
    # Even the darkest blue is light enough for black text.
    shade = tuple(1 - depth * (1 - part) for part in (0.62, 0.78, 0.90))
    position = (columns.index(b), rows.index(a))
    patches = import_library("matplotlib.patches")
    border = {"edgecolor": "black", "linewidth": 1.8} if found else {"edgecolor": "#BBBBBB", "linewidth": 0.6}
    inset = 0.04
    ax.add_patch(
        patches.Rectangle(
            (position[0] - 0.5 + inset, position[1] - 0.5 + inset),
            1 - 2 * inset,
            1 - 2 * inset,
            facecolor=shade,
            **border,
        )
    )
    shown = "?" if np.isnan(amount) else f"{amount:.0%}" if zero else f"{amount:.2f}"
    ax.text(
        *position,
        f"{shown}\n{_format_p(pair['p_holm'])}",
        ha="center",
        va="center",
        fontsize="small",
        fontweight="bold" if found else "normal",
    )


def _format_p(value: float) -> str:
    if np.isnan(value):
        return "no p"
    return "p < .001" if value < _SMALLEST_P else f"p = {value:.3f}".replace("0.", ".")


def plot_spread(result: ListeningResult, ax: "Axes | None" = None) -> "Figure":
    """Plot how much each listener and each item deviates from the mean scores of the conditions.

    Each dot is a listener or an item. A cross is a listener who was screened out. The bar extends from minus
    one to plus one standard deviation. The lowest and the highest listener and item are labelled.

    Parameters
    ----------
    result
        The result of :func:`~speechframe.statistics.listening.analyse`, of a method with scores.
    ax
        Axes to draw into. With None (default), a new figure is made.

    Raises
    ------
    AnalysisError
        The votes are choices, not scores.

    Examples
    --------
    >>> from speechframe.statistics.listening import analyse
    >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 3 + (w + i) % 2}
    ...         for w in range(3) for i in range(4) for c in "xy"]
    >>> [label.get_text() for label in plot_spread(analyse(rows, method="mos")).axes[0].get_yticklabels()]
    ['3 listeners', '4 items']
    """
    frame = result.spread
    if frame is None:
        raise AnalysisError(
            f"votes of {result.method.name} are choices, so there is no spread in points; use plot_scores"
        )
    ax = provide_axes(ax, _WIDTH_INCHES, 3.0)
    labels = []
    for row, kind in enumerate(("listener", "item")):
        of_kind = frame[frame["kind"] == kind]
        _draw_dots(ax, of_kind, row, set(result.screened) if kind == "listener" else set())
        labels.append(f"{len(of_kind)} {kind}{'s' if len(of_kind) != 1 else ''}")
    ax.axvline(0, color=_GREY_COLOR, linewidth=0.8, zorder=0)
    ax.set_yticks([0, 1], labels)
    ax.set_ylim(1.6, -0.6)
    ax.margins(x=0.08)
    ax.set_xlabel("Mean deviation from the scores of the conditions (points)")
    ax.spines[["top", "right"]].set_visible(False)
    return get_figure(ax)


def _draw_dots(ax: "Axes", frame: "pd.DataFrame", row: int, out: set[str]) -> None:
    deviation = frame["deviation"].to_numpy(float)
    # Draw neighbours at different heights, so that their dots do not overlap.
    heights = row + 0.09 * ((np.arange(len(frame)) % 3) - 1)
    crossed = frame["name"].isin(out).to_numpy()
    style: dict[str, Any] = {"linestyle": "none", "markersize": 5, "zorder": 3}
    ax.plot(deviation[~crossed], heights[~crossed], marker="o", color="#0072B2", alpha=0.75, **style)
    ax.plot(deviation[crossed], heights[crossed], marker="X", color="#A34700", **style)
    if len(frame) > 1:
        reach = float(deviation.std(ddof=1))
        ax.plot([-reach, reach], [row + 0.3] * 2, color="black", linewidth=2, marker="|", markersize=8)
        _write(ax, f"SD {reach:.2g}", (reach, row + 0.3), (6, 0), va="center")
    for position in dict.fromkeys((0, len(frame) - 1)):
        name = _shorten_name(str(frame["name"].iloc[position]))
        _write(ax, name, (deviation[position], row - 0.14), (0, 5), ha="center", va="bottom")
