"""Plots as people see them: nothing overlaps, nothing is cut off, colours are not needed."""

import io
import subprocess
import sys
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from speechframe.errors import AnalysisError
from speechframe.statistics.listening import analyse
from speechframe.statistics.plots import plot_pairs, plot_scores, plot_spread

PLOTS = {"scores": plot_scores, "pairs": plot_pairs, "spread": plot_spread}
NAMES = [
    "human reference",
    "our new voice of this spring",
    "theirs",
    "older",
    "anchor 7 kHz",
    "anchor 3.5 kHz",
]


def mushra_result():
    draw = np.random.default_rng(0)
    rows = []
    for w in range(14):
        for i in range(12):
            for name, mean in zip(NAMES, (98, 72, 72, 55, 40, 20), strict=True):
                low = 30 if (w, name) == (3, NAMES[0]) else 0
                score = np.clip(mean - low + draw.normal(0, 3 if name == NAMES[0] else 12), 0, 100)
                rows.append((f"listener {w}", f"sentence {i}", name, score))
    votes = pd.DataFrame(rows, columns=["listener", "item", "condition", "score"])
    return analyse(votes, method="mushra", reference=NAMES[0])


@pytest.fixture(scope="module")
def mushra():
    return mushra_result()


@pytest.fixture
def preferences(rng, ab):
    return analyse(ab(rng, strengths={"x": 0.8, "y": 0.0, "z": -0.4}, tie=0.3), method="ab", replicates=50)


@pytest.fixture
def answers(rng, ab):
    votes = ab(rng, strengths={"x": 0.8, "y": 0.0}).assign(truth="a").rename(columns={"choice": "answer"})
    return analyse(votes, method="abx")


def words_of(ax):
    """Every text that is seen, with the box it takes, as drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    texts = [*ax.texts, ax.xaxis.label]
    for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        texts += [label for place, label in ticks if min(limits) <= place <= max(limits)]
    legend = ax.get_legend()
    texts += legend.get_texts() if legend is not None else []
    return [(text, text.get_window_extent()) for text in texts if text.get_text() and text.get_visible()]


def assert_readable(ax):
    frame = ax.figure.bbox
    words = words_of(ax)
    assert words
    for text, box in words:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= frame.width + 1 and box.y1 <= frame.height + 1
        assert inside, f"{text.get_text()!r} is cut off"
    # The upright box around a slanted text says nothing of what it covers.
    upright = [(text, box) for text, box in words if text.get_rotation() == 0]
    for (one, box), (other, other_box) in combinations(upright, 2):
        assert not box.overlaps(other_box), f"{one.get_text()!r} lies over {other.get_text()!r}"


@pytest.mark.parametrize("name", PLOTS)
def test_mushra_plots_are_readable(name, mushra):
    assert_readable(*PLOTS[name](mushra).axes)


@pytest.mark.parametrize("name", ["scores", "pairs"])
def test_preference_plots_are_readable(name, preferences):
    assert_readable(*PLOTS[name](preferences).axes)


def test_the_plot_of_correct_answers_is_readable_and_shows_guessing(answers):
    (ax,) = plot_scores(answers).axes
    assert_readable(ax)
    assert "guessing" in [text.get_text() for text in ax.texts]


def test_the_plot_of_mos_names_the_steps_and_two_conditions_make_a_readable_matrix(rng, mos):
    result = analyse(mos(rng, means=(2.0, 4.0)), method="mos")
    (ax,) = plot_scores(result).axes
    assert_readable(ax)
    assert ax.get_xticklabels()[4].get_text() == "5\nExcellent"
    assert_readable(*plot_pairs(result).axes)


def test_points_and_intervals_stand_where_the_figures_are(mushra):
    (ax,) = plot_scores(mushra).axes
    assert [label.get_text() for label in ax.get_yticklabels()][:2] == [NAMES[0], "our new voice of this s…"]
    points = ax.containers[0].lines[0].get_xdata()
    assert sorted(points) == pytest.approx(sorted(mushra.scores["mean"]))
    (bars,) = ax.containers[0].lines[2]
    ends = sorted(segment[0][0] for segment in bars.get_segments())
    assert ends == pytest.approx(sorted(mushra.scores["low"]))


def test_both_results_are_drawn_with_other_shapes(mushra):
    (ax,) = plot_scores(mushra).axes
    assert mushra.screened == ("listener 3",)
    lines = [container.lines[0] for container in ax.containers]
    assert [line.get_marker() for line in lines] == ["o", "D"]
    assert lines[1].get_markerfacecolor() == "white"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "all listeners",
        "without those screened out (13)",
    ]


def test_every_pair_has_its_cell_and_what_was_found_is_bold(mushra):
    (ax,) = plot_pairs(mushra).axes
    assert len(ax.texts) == len(mushra.pairs) == 15
    bold = [text.get_text() for text in ax.texts if text.get_fontweight() == "bold"]
    assert len(bold) == (mushra.pairs["p_holm"] < 0.05).sum()
    assert len(bold) < 15
    borders = sorted(patch.get_linewidth() for patch in ax.patches)
    assert borders.count(borders[-1]) == len(bold)


def test_spread_shows_every_listener_and_item_and_crosses_the_screened(mushra):
    (ax,) = plot_spread(mushra).axes
    points = {line.get_marker(): line for line in ax.lines if line.get_marker() in {"o", "X"}}
    count = sum(len(line.get_xdata()) for line in ax.lines if line.get_marker() in {"o", "X"})
    assert count == len(mushra.spread) == 26
    assert set(points) == {"o", "X"}


def test_a_plot_is_drawn_where_it_is_told_and_is_a_page_of_pdf(mushra):
    from matplotlib.figure import Figure

    figure, page = Figure(), io.BytesIO()
    axes = figure.subplots(1, 3)
    for ax, plot in zip(axes, PLOTS.values(), strict=True):
        assert plot(mushra, ax=ax) is figure
    assert len(figure.axes) == 3
    figure.savefig(page, format="pdf")
    assert page.getvalue().startswith(b"%PDF-")


def test_what_has_no_figure_is_named_in_the_plot():
    rows = [("k", i, "x", "y", "a") for i in "pq"]
    votes = pd.DataFrame(rows, columns=["listener", "item", "condition_a", "condition_b", "choice"])
    (ax,) = plot_scores(analyse(votes, method="ab")).axes
    assert [text.get_text() for text in ax.texts] == [
        "one group won every comparison, so its strength is infinite"
    ] * 2
    assert_readable(ax)


def test_plots_that_a_method_does_not_have_are_refused(preferences, answers, rng, mos):
    with pytest.raises(AnalysisError, match="no spread in points"):
        plot_spread(preferences)
    with pytest.raises(AnalysisError, match="use plot_scores"):
        plot_pairs(answers)
    with pytest.raises(AnalysisError, match="no pairs"):
        plot_pairs(analyse(mos(rng, means=(3.0,)), method="mos"))


def test_libraries_are_loaded_when_they_are_used_and_named_when_they_are_missing():
    code = (
        "import sys; from speechframe.statistics import plots; from speechframe.statistics.listening import analyse;"
        "assert not {'scipy', 'matplotlib'} & {*sys.modules};"
        "rows = [dict(listener=w, item=i, condition=c, score=3) for w in 'kl' for i in 'pq' for c in 'xy'];"
        "plots.plot_scores(analyse(rows, method='mos')); assert 'matplotlib.pyplot' not in sys.modules;"
        "sys.modules |= {name: None for name in sys.modules if name.startswith('scipy')};"
        "analyse(rows, method='mos')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1].endswith(
        "AnalysisError: scipy is not installed: pip install 'speechframe[listening]'"
    )
