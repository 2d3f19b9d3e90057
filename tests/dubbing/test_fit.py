"""Lines brought into their slots, by the rule."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speechframe.local.dubbing.fit import TimedLine, fit_lines
from speechframe.spec.dubbing import Fit

EARLY_S, LATE_S = 0.045, 0.125
NOTHING_S = 3e-6


@st.composite
def dialogues(draw):
    """Lines with gaps or overlaps between them, and speech of 0.2 to 3 times their slots."""
    at, lines = draw(st.floats(0, 2)), []
    for _ in range(draw(st.integers(1, 12))):
        slot = draw(st.floats(0.1, 6))
        lines.append(TimedLine(at, at + slot, slot * draw(st.floats(0.2, 3) | st.floats(0.9, 1.4))))
        at += max(0.01, slot + draw(st.sampled_from([-1.0, 0.0, 0.0, 0.05, 0.3, 1.0, 5.0])))
    return lines, max(line.end_s for line in lines) + draw(st.floats(0, 2))


@given(dialogues())
@example(([TimedLine(0, 1, 2), TimedLine(1, 2, 1)], 2))
@example(([TimedLine(0, 1, 1), TimedLine(1, 2, 2)], 2))
@example(
    (
        [
            TimedLine(0, 1, 1),
            TimedLine(0.01, 3.01, 2.8125),
            TimedLine(2.01, 8.01, 7.125),
            TimedLine(8.31, 9.31, 1),
        ],
        10.31,
    )
)
@example(([TimedLine(0, 4, 4), TimedLine(3, 4, 1), TimedLine(3.01, 4.01, 1)], 4.01))
@example(([TimedLine(0, 1, 1.4), TimedLine(1, 2, 0.9), TimedLine(2, 3, 1.33)], 3))
def test_no_rule_is_broken(dialogue):
    lines, media_s = dialogue
    placed = fit_lines(lines, media_s)
    starts = [each.start_s for each in placed]
    ends = [each.start_s + line.natural_s / each.speed for each, line in zip(placed, lines, strict=True)]
    limits = [*starts[1:], media_s]
    assert all(0.85 <= each.speed <= 1.3 for each in placed)
    assert min(starts) >= 0
    assert all(abs(a.speed - b.speed) <= 0.15 + 1e-9 for a, b in itertools.pairwise(placed))
    # Only the last line may start earlier still, when it would be cut by the end of the medium.
    *others, last = zip(placed, lines, ends, limits, strict=True)
    for each, line, end, limit in others:
        assert -EARLY_S - NOTHING_S <= each.start_s - line.start_s <= LATE_S + NOTHING_S
        assert (each.fit is Fit.OVERRUN) == (end > limit + NOTHING_S)
    each, line, end, _ = last
    # Of originals that overlap, whoever waits for the first may begin after the third.
    assert starts == sorted(starts) or Fit.OVERRUN in {one.fit for one in placed}
    assert end <= media_s + NOTHING_S or each.start_s == 0
    if each.fit is not Fit.OVERRUN:
        assert -EARLY_S - NOTHING_S <= each.start_s - line.start_s <= LATE_S + NOTHING_S


@given(dialogues())
@example(([TimedLine(0, 1, 1.25), TimedLine(1, 1.15625, 0.46875), TimedLine(1.20625, 2.20625, 2)], 2.20625))
@example(([TimedLine(0, 4, 5.375), TimedLine(4.05, 4.55, 0.5)], 4.55))
def test_no_line_is_moved_that_need_not_be(dialogue):
    lines, media_s = dialogue
    placed = fit_lines(lines, media_s)
    moves = [each.start_s - line.start_s for each, line in zip(placed, lines, strict=True)]
    ends = [each.start_s + line.natural_s / each.speed for each, line in zip(placed, lines, strict=True)]
    for at, move in enumerate(moves):
        if move > 0:
            late_s = ends[at - 1] - placed[at].start_s
            is_over = placed[at].fit is Fit.OVERRUN
            assert late_s >= -NOTHING_S if is_over else abs(late_s) <= NOTHING_S, (
                "the one before still speaks"
            )
        if move < 0 and placed[at].fit is not Fit.OVERRUN:
            behind = at
            # Whoever waits does so for the one before; nobody waits for a line that runs over.
            while (
                behind < len(lines) - 1
                and placed[behind].fit is not Fit.OVERRUN
                and ends[behind] >= placed[behind + 1].start_s - NOTHING_S
            ):
                behind += 1
            at_the_end = ends[behind] >= media_s - NOTHING_S
            latest = max(moves[at + 1 : behind + 1], default=0.0)
            assert at_the_end or latest == pytest.approx(LATE_S, abs=NOTHING_S), (
                "one behind cannot wait longer"
            )
