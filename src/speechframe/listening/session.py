"""Check the vote in a page's message, and convert it to rows of the vote table.

A message comes from a browser, so every value is checked. Errors are shown to the listener, so they must not
name a condition. This module does not open files.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from speechframe.errors import VoteRefused
from speechframe.listening.design import Page
from speechframe.statistics.votes import AB, ABX, METHODS, TIE, A, B, Method

MIN_LISTENED_S = 3.0
"""Seconds that a listener must play of every signal (sound of a trial) before the vote.

A shorter signal must be played to its end.
"""

_SLACK_S, _SLACK_SHARE = 0.2, 0.1
"""Part at the end of a short signal that need not be played, because pages measure time in steps.

It is the smaller of these seconds and this share of the signal's length.
"""

REFERENCE_SLOT = "R"
"""Slot (place of a sound on a page) of the open reference."""

X_SLOT = "X"
"""Slot of X in ``abx``."""

_LATEST_MS = 9.2e12
"""Latest accepted time in milliseconds since 1970 (year 2261). Times of pandas end soon after this."""

_MAX_AMOUNT = 366 * 86_400
"""Largest accepted number of plays of a signal, and of its seconds (a year). Real values are far smaller."""

_Amounts = dict[str, Annotated[float, Field(ge=0, le=_MAX_AMOUNT)]]
_Time = Annotated[float, Field(gt=0, lt=_LATEST_MS)]


class VoteMessage(BaseModel):
    """The vote in a page's message. It contains `scores`, `choice` or `answer`, depending on the method.

    Parameters
    ----------
    plays, listened_s
        Number of plays and seconds of each signal, by slot.
    unplayable
        Slots that could not be played.
    first_play_ms, voted_ms
        Times in milliseconds since 1970.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    plays: _Amounts
    listened_s: _Amounts
    unplayable: list[str] = []
    first_play_ms: _Time | None = None
    voted_ms: _Time
    scores: Any = None
    choice: Any = None
    answer: Any = None


def compute_needed_s(audio_seconds: float) -> float:
    """Return the seconds of a signal that must be played before a vote, from the length of the signal.

    Examples
    --------
    >>> compute_needed_s(8.0), compute_needed_s(2.0), compute_needed_s(0.5)
    (3.0, 1.8, 0.45)
    """
    return round(min(MIN_LISTENED_S, audio_seconds - min(_SLACK_S, _SLACK_SHARE * audio_seconds)), 3)


def make_vote_rows(
    page: Page,
    message: Mapping[str, Any],
    *,
    method: str,
    needed: Mapping[str, float],
    known: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the rows of a vote. A missing score is None.

    Parameters
    ----------
    page
        The page of the vote.
    message
        The message of the page, with the fields of :class:`VoteMessage`.
    method
        Name of the test method, such as ``ab``.
    needed
        Seconds of each slot that must be played, including the slots of the reference and of X.
    known
        Columns with equal values in all rows, such as ``test_id`` and ``seed``.

    Raises
    ------
    VoteRefused
        The message breaks a rule or is not a vote.
    """
    vote = _read_message(page.trial, message)
    _refuse_unplayed(page, vote, needed)
    times = {
        "first_play_utc": _convert_time(vote.first_play_ms),
        "voted_utc": _convert_time(vote.voted_ms),
    }
    if method in {AB, ABX}:
        choice = _read_choice(page, vote, method)
        played = {
            "plays": sum(map(int, vote.plays.values())),
            "listened_s": round(sum(vote.listened_s.values()), 3),
        }
        return [{**known, **page.rows[0], **choice, **played, **times}]
    scores = _read_scores(page, vote, method)
    return [
        {
            **known,
            **row,
            "score": scores[slot],
            "plays": int(vote.plays.get(slot, 0)),
            "listened_s": round(vote.listened_s.get(slot, 0.0), 3),
            **times,
        }
        for row, slot in zip(page.rows, page.slots, strict=True)
    ]


def _read_message(trial: int, message: Mapping[str, Any]) -> VoteMessage:
    """Return the vote in a page's message on a trial, or raise VoteRefused if a field is not valid."""
    try:
        return VoteMessage.model_validate(message)
    except ValidationError as error:
        name, *inside = error.errors()[0]["loc"]
    if name in {"first_play_ms", "voted_ms"}:
        fault = "does not contain a valid time"
    elif name in {"plays", "listened_s"} and inside:
        fault = f"is invalid, because plays and listened_s must be numbers from 0 to {_MAX_AMOUNT:,}"
    else:
        fault = "does not contain the played sounds"
    raise VoteRefused(f"this vote {fault}: reload the page", trial=trial)


def _refuse_unplayed(page: Page, vote: VoteMessage, needed: Mapping[str, float]) -> None:
    """Raise VoteRefused if a playable signal was not played for long enough, or if a signal is unknown."""
    if not {*vote.plays, *vote.listened_s, *vote.unplayable} <= set(needed):
        raise VoteRefused(
            "this vote names sounds that the trial does not have: reload the page", trial=page.trial
        )
    for slot, seconds in needed.items():
        is_played = vote.plays.get(slot) and vote.listened_s.get(slot, 0.0) >= seconds
        if slot not in vote.unplayable and not is_played:
            raise VoteRefused(
                f"listen to {slot} first: at least {MIN_LISTENED_S:g} s, or all of it if it is shorter",
                trial=page.trial,
            )


def _read_choice(page: Page, vote: VoteMessage, method: str) -> dict[str, Any]:
    """Return the columns of a choice between two signals. They are None only if a signal is unplayable."""
    row = page.rows[0]
    condition_of_slot = dict(zip(page.slots, (A, B) if row["left"] == A else (B, A), strict=True))
    if method == AB:
        condition_of_slot[TIE] = TIE
    name = "choice" if method == AB else "answer"
    given = getattr(vote, name)
    if given is None and vote.unplayable:
        return {name: None, **({"correct": None} if method == ABX else {})}
    if not isinstance(given, str) or given not in condition_of_slot:
        raise VoteRefused(f"choose one of {', '.join(condition_of_slot)}", trial=page.trial)
    chosen = condition_of_slot[given]
    return {name: chosen, **({"correct": chosen == row["truth"]} if method == ABX else {})}


def _read_scores(page: Page, vote: VoteMessage, method: str) -> dict[str, float | None]:
    """Return the score of each slot. Only the score of an unplayable slot may be None."""
    scale, given = METHODS[method], vote.scores
    if not isinstance(given, Mapping) or not set(given) <= set(page.slots):
        raise VoteRefused(f"scores must be given for {', '.join(page.slots)} only", trial=page.trial)
    found: dict[str, float | None] = {}
    for slot in page.slots:
        score = given.get(slot)
        if score is None and slot in vote.unplayable:
            found[slot] = None
        elif not _is_score(scale, score):
            steps = "" if scale.step is None else f" in steps of {scale.step:g}"
            raise VoteRefused(
                f"rate {slot}, from {scale.lowest:g} to {scale.highest:g}{steps}", trial=page.trial
            )
        else:
            found[slot] = float(score)  # type: ignore[arg-type]
    return found


def _is_score(scale: Method, value: Any) -> bool:
    lowest, highest = scale.limits
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and lowest <= value <= highest
        and (scale.step is None or not (float(value) - lowest) % scale.step)
    )


def _convert_time(milliseconds: float | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
