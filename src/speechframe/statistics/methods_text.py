"""Write the methods paragraph of a paper: design, screening and statistics of a listening test."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from speechframe._version import __version__
from speechframe.statistics.figures import Findings
from speechframe.statistics.screening import MIN_VOTES, REFERENCE_SCORE, TOLERATED_SHARE
from speechframe.statistics.votes import AB, MOS, MUSHRA
from speechframe.writing.words import format_count

REFERENCES = {
    "BS.1534": "ITU-R BS.1534-3 (2015). Method for the subjective assessment of intermediate quality level "
    "of audio systems.",
    "BS.2132": "ITU-R BS.2132-0 (2019). Method for the subjective quality assessment of audible differences "
    "of sound systems using multiple stimuli without a given reference.",
    "P.800": "ITU-T P.800 (1996). Methods for subjective determination of transmission quality.",
    "P.808": "ITU-T P.808 (2021). Subjective evaluation of speech quality with a crowdsourcing approach.",
    "Munson and Gardner 1950": "Munson, W. A. and Gardner, M. B. (1950). Standardizing auditory tests. "
    "Journal of the Acoustical Society of America 22, 675.",
    "Cameron et al. 2011": "Cameron, A. C., Gelbach, J. B. and Miller, D. L. (2011). Robust inference with "
    "multiway clustering. Journal of Business & Economic Statistics 29, 238-249.",
    "MacKinnon et al. 2024": "MacKinnon, J. G., Nielsen, M. Ø. and Webb, M. D. (2024). Jackknife inference "
    "with two-way clustering. arXiv:2406.08880.",
    "Holm 1979": "Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian "
    "Journal of Statistics 6, 65-70.",
    "Wilcoxon 1945": "Wilcoxon, F. (1945). Individual comparisons by ranking methods. Biometrics Bulletin 1, "
    "80-83.",
    "Wilson 1927": "Wilson, E. B. (1927). Probable inference, the law of succession, and statistical "
    "inference. Journal of the American Statistical Association 22, 209-212.",
    "Bradley and Terry 1952": "Bradley, R. A. and Terry, M. E. (1952). Rank analysis of incomplete block "
    "designs: I. The method of paired comparisons. Biometrika 39, 324-345.",
    "Davidson 1970": "Davidson, R. R. (1970). On extending the Bradley-Terry model to accommodate ties in "
    "paired comparison experiments. Journal of the American Statistical Association 65, 317-328.",
}
"""Full references by their short forms, as the paragraph contains them."""


def write_methods_text(result: Findings, *, setup: str = "") -> str:
    """Return the methods paragraph, followed by a list of the references that the paragraph cites.

    Parameters
    ----------
    result
        The result of a listening test.
    setup
        Sentences to insert after the description of the design. The default is none.

    Examples
    --------
    >>> from speechframe.statistics.listening import analyse
    >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 3 + (w + i) % 2}
    ...         for w in range(3) for i in range(4) for c in "xy"]
    >>> analyse(rows, method="mos").methods().partition(" of ")[0]
    '3 listeners took part in a test by mean opinion score (MOS) (ITU-T P.800)'
    """
    sentences = [
        *_describe_design(result),
        setup.strip(),
        *_describe_screening(result),
        *_describe_statistics(result),
        _describe_software(),
    ]
    paragraph = " ".join(sentence for sentence in sentences if sentence)
    cited = [full for short, full in REFERENCES.items() if short in paragraph]
    return "\n".join([paragraph, "", "References", *cited])


def _describe_design(result: Findings) -> Iterator[str]:
    method, counts = result.method, result.everyone
    names = ", ".join(result.conditions)
    yield (
        f"{counts.listeners} {_choose_number('listener', counts.listeners)} took part in a test by "
        f"{method.title} ({method.source}) of "
        f"{len(result.conditions)} {_choose_number('condition', len(result.conditions))} "
        f"({names}) with {counts.items} {_choose_number('item', counts.items)}."
    )
    if result.reference is not None:
        yield f"The hidden reference was {result.reference}."
    if result.anchors:
        count, names = len(result.anchors), _join_with_and(result.anchors)
        yield (
            f"{_choose_number('Anchor', count)} of ITU-R BS.1534 {_choose_verb(count)} {names}, "
            "made from the reference with a low-pass filter."
        )
    votes = format_count(counts.votes, "vote")
    if method.has_scores:
        steps = f" in steps of {method.step:g}" if method.step is not None else ""
        yield (
            f"They gave {votes} on a scale from {method.lowest:g} to {method.highest:g}"
            f"{steps}, with the labels {', '.join(method.labels)}."
        )
    else:
        ties = " or for neither" if method.name == AB else ""
        yield f"They gave {votes}, each for one of two clips{ties}."
    if result.untouched:
        untouched = f"{format_count(result.untouched, 'vote')} {_choose_verb(result.untouched)}"
        yield f"{untouched} left untouched and counted as missing."
    if result.practice:
        practice = format_count(result.practice, "vote")
        yield f"{practice} on practice pages {_choose_verb(result.practice)} left out."


def _describe_screening(result: Findings) -> Iterator[str]:
    rules = list(_describe_rules(result))
    source = ", by rules similar to those of ITU-T P.808" if result.method.name == MOS else ""
    if rules:
        yield f"Listeners were to be screened out if they {_join_with_or(rules)}{source}."
    out, total = len(result.screened), format_count(result.everyone.listeners, "listener")
    if not out:
        yield f"None of the {total} was screened out."
    else:
        was, them = ("was", "this listener") if out == 1 else ("were", "these listeners")
        yield f"{out} of {total} {was} screened out. Results were computed with and without {them}."


def _describe_rules(result: Findings) -> Iterator[str]:
    name, seen = result.method.name, result.screening.notna().any()
    many = f"in {MIN_VOTES} votes or more"
    if name == MUSHRA:
        yield (
            f"gave the hidden reference less than {REFERENCE_SCORE:g} in more than {TOLERATED_SHARE:.0%} "
            f"of their trials (ITU-R BS.1534)"
        )
        if result.anchors:
            yield (
                f"gave {result.anchors[-1]} more than {REFERENCE_SCORE:g} in more than {TOLERATED_SHARE:.0%} "
                f"of their trials (ITU-R BS.1534)"
            )
    if result.method.has_scores:
        yield f"gave every condition the same score {many}"
    if name == AB:
        yield f"never had a preference {many}"
    if seen["same_side"]:
        yield f"always chose the same side {many}"
    if seen["unheard"]:
        yield f"voted without playing a clip in more than {TOLERATED_SHARE:.0%} of their votes"


def _describe_statistics(result: Findings) -> Iterator[str]:
    percent = f"{result.confidence:.0%}"
    degrees = min(result.everyone.listeners, result.everyone.items) - 1
    clustering = (
        "clustered by listener and by item (Cameron et al. 2011; the largest of the three variances, "
        "MacKinnon et al. 2024)"
    )
    with_t = f"t with min(listeners, items) - 1 degrees of freedom ({degrees} over all votes)"
    both_ways = f"once for independent votes and once {clustering}. The clustered intervals use {with_t}."
    comparisons = len(result.compared) * (len(result.compared) - 1) // 2
    pairs = f"{comparisons} {_choose_number('pair', comparisons)}"
    if result.method.has_scores:
        yield f"Mean scores have {percent} intervals, {clustering}. The intervals use {with_t}."
        yield (
            f"The {pairs} of conditions {_choose_verb(comparisons)} compared on the items that were "
            "heard in both conditions. The t tests use the same clustering. Signed-rank tests use the "
            "listeners' mean differences (Wilcoxon 1945). Both kinds of p values were adjusted for all pairs "
            "(Holm 1979)."
        )
        if result.compared != result.conditions:
            yield "Anchors were left out of the comparisons."
    elif result.method.name == AB:
        yield (
            f"Shares among the votes without ties have {percent} intervals (Wilson 1927), {both_ways} "
            "Clustered tests against one half were adjusted for all pairs (Holm 1979)."
        )
        if result.everyone.strengths is not None:
            samples = f"{result.everyone.strengths.replicates:,} bootstrap samples"
            yield (
                "Strengths were fitted by maximum likelihood (Bradley and Terry 1952), with ties as in "
                f"Davidson 1970. Their standard errors come from {samples} of listeners, as many of "
                "items, and as many of combinations of listener and item."
            )
    else:
        yield (
            "Correct answers were tested against guessing with exact one-sided binomial tests, for each "
            "pair, for each listener, and over all answers. The p values were adjusted for all pairs, and "
            f"for all listeners (Holm 1979). Shares of correct answers have {percent} intervals (Wilson "
            f"1927), {both_ways}"
        )


def _describe_software() -> str:
    return f"All figures were computed with speechframe {__version__} and scipy {version('scipy')}."


def _choose_number(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _choose_verb(count: int) -> str:
    return "was" if count == 1 else "were"


def _join_with_or(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, or {parts[-1]}"


def _join_with_and(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
