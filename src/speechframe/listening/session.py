"""Check the vote in a page's message, and convert it to rows of the vote table.

A message comes from a browser, so every value is checked. Errors are shown to the listener, so they must not
name a condition. This module does not open files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from speechframe.errors import VoteRefused
from speechframe.listening.design import Page
from speechframe.statistics.votes import AB, ABX, METHODS, TIE, VOTE_SCHEMA, A, B, Method
from speechframe.writing.words import format_count

__all__ = [
    "MIN_LISTENED_S",
    "REFERENCE_SLOT",
    "X_SLOT",
    "compute_needed_s",
    "make_vote_rows",
    "refuse_invalid_rows",
]

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

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_MAX_PLAYS = 1_000_000
"""Largest accepted number of plays of a signal. Real numbers are far smaller."""

_MAX_LISTENED_S = 366 * 86_400
"""Largest accepted playing time of a signal in seconds (a year). Real times are far shorter."""


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
    """Return the rows of a vote as JSON values. Times are texts, and a missing score is None.

    Parameters
    ----------
    page
        The page of the vote.
    message
        The message of the page. It contains the vote as ``scores``, ``choice`` or ``answer``. It also has
        ``plays`` and ``listened_s`` by slot, ``unplayable`` (a list of slots that could not be played), and
        the times ``first_play_ms`` and ``voted_ms`` (milliseconds since 1970).
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
    played_signals = _PlayedSignals.from_message(page.trial, message, needed)
    played_signals.refuse_unplayed(needed)
    times = {
        "first_play_utc": _convert_time(page.trial, message.get("first_play_ms"), needed=False),
        "voted_utc": _convert_time(page.trial, message.get("voted_ms"), needed=True),
    }
    if method in {AB, ABX}:
        choice = _read_choice(page, message, method, played_signals)
        played = {
            "plays": sum(played_signals.plays.values()),
            "listened_s": round(sum(played_signals.listened_s.values()), 3),
        }
        return [{**known, **page.rows[0], **choice, **played, **times}]
    scores = _read_scores(page, message, method, played_signals)
    return [
        {
            **known,
            **row,
            "score": scores[slot],
            "plays": played_signals.plays[slot],
            "listened_s": round(played_signals.listened_s[slot], 3),
            **times,
        }
        for row, slot in zip(page.rows, page.slots, strict=True)
    ]


def refuse_invalid_rows(page: Page, rows: Sequence[Any], *, method: str, known: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError if stored rows are not a valid vote on this page.

    Parameters
    ----------
    page
        The page of the vote.
    rows
        The stored rows.
    method
        Name of the test method.
    known
        Columns with equal values in all rows, as in :func:`make_vote_rows`.
    """
    if len(rows) != len(page.rows):
        raise ValueError(f"it has {format_count(len(rows), 'row')} instead of {len(page.rows)}")
    for row, design_row in zip(rows, page.rows, strict=True):
        if not isinstance(row, Mapping):
            raise ValueError(f"a row is {row!r:.80}")  # noqa: TRY004 - the content is damaged
        expected = {**known, **design_row}
        if method == ABX:
            answer = row.get("answer")
            expected["correct"] = None if answer is None else answer == design_row["truth"]
        for name in VOTE_SCHEMA[method].names:
            value = row.get(name)
            is_right = (
                value == expected[name]
                if name in expected
                else _STORED_VALUE_CHECKS[name](value, METHODS[method])
            )
            if not is_right or name not in row:
                raise ValueError(f"{name} is {value!r:.80}")


@dataclass(frozen=True)
class _PlayedSignals:
    """Number of plays and playing time of each signal of a page, by slot."""

    trial: int
    plays: Mapping[str, int]
    listened_s: Mapping[str, float]
    unplayable: frozenset[str]

    @classmethod
    def from_message(
        cls, trial: int, message: Mapping[str, Any], slots: Mapping[str, float]
    ) -> "_PlayedSignals":
        """Return the plays in a page's message, or raise VoteRefused if they are not valid."""
        plays, listened = message.get("plays"), message.get("listened_s")
        unplayable = message.get("unplayable") or []
        if (
            not isinstance(plays, Mapping)
            or not isinstance(listened, Mapping)
            or not isinstance(unplayable, list)
        ):
            raise VoteRefused("this vote does not contain the played sounds: reload the page", trial=trial)
        if not {*plays, *listened, *map(str, unplayable)} <= set(slots):
            raise VoteRefused(
                "this vote names sounds that the trial does not have: reload the page", trial=trial
            )
        return cls(
            trial,
            {slot: int(_check_amount(trial, plays.get(slot, 0), _MAX_PLAYS)) for slot in slots},
            {slot: _check_amount(trial, listened.get(slot, 0.0), _MAX_LISTENED_S) for slot in slots},
            frozenset(map(str, unplayable)),
        )

    def refuse_unplayed(self, needed: Mapping[str, float]) -> None:
        """Raise VoteRefused if a playable signal was not played for long enough."""
        for slot, seconds in needed.items():
            if slot in self.unplayable:
                continue
            if not self.plays[slot] or self.listened_s[slot] < seconds:
                raise VoteRefused(
                    f"listen to {slot} first: at least {MIN_LISTENED_S:g} s, or all of it if it is shorter",
                    trial=self.trial,
                )


def _read_choice(
    page: Page, message: Mapping[str, Any], method: str, played_signals: _PlayedSignals
) -> dict[str, Any]:
    """Return the columns of a choice between two signals. They are None only if a signal is unplayable."""
    row = page.rows[0]
    condition_of_slot = dict(zip(page.slots, (A, B) if row["left"] == A else (B, A), strict=True))
    if method == AB:
        condition_of_slot[TIE] = TIE
    name = "choice" if method == AB else "answer"
    given = message.get(name)
    if given is None and played_signals.unplayable:
        return {name: None, **({"correct": None} if method == ABX else {})}
    if not isinstance(given, str) or given not in condition_of_slot:
        raise VoteRefused(f"choose one of {', '.join(condition_of_slot)}", trial=page.trial)
    chosen = condition_of_slot[given]
    return {name: chosen, **({"correct": chosen == row["truth"]} if method == ABX else {})}


def _read_scores(
    page: Page, message: Mapping[str, Any], method: str, played_signals: _PlayedSignals
) -> dict[str, float | None]:
    """Return the score of each slot. Only the score of an unplayable slot may be None."""
    scale, given = METHODS[method], message.get("scores")
    if not isinstance(given, Mapping) or not set(given) <= set(page.slots):
        raise VoteRefused(f"scores must be given for {', '.join(page.slots)} only", trial=page.trial)
    found: dict[str, float | None] = {}
    for slot in page.slots:
        score = given.get(slot)
        if score is None and slot in played_signals.unplayable:
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
    lowest, highest = float(scale.lowest or 0), float(scale.highest or 0)
    return (
        _is_number(value)
        and lowest <= value <= highest
        and (scale.step is None or not (float(value) - lowest) % scale.step)
    )


def _is_number(value: object) -> bool:
    # The bound is checked before any conversion to float, because a JSON integer may exceed every float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LATEST_MS


def _is_amount(value: Any, maximum: int) -> bool:
    return _is_number(value) and 0 <= value <= maximum


def _check_amount(trial: int, value: Any, maximum: int) -> float:
    if not _is_amount(value, maximum):
        raise VoteRefused(
            f"plays and listened_s must be numbers from 0 to {maximum:,}: reload the page", trial=trial
        )
    return float(value)


def _convert_time(trial: int, value: Any, *, needed: bool) -> str | None:
    """Return milliseconds since 1970 as an ISO 8601 text. A value that is not needed may be None."""
    if value is None and not needed:
        return None
    if not _is_number(value) or not 0 < value < _LATEST_MS:
        raise VoteRefused("this vote does not contain a valid time: reload the page", trial=trial)
    return datetime.fromtimestamp(value / 1000, UTC).isoformat()


def _is_time(value: Any) -> bool:
    # A text without a time zone raises TypeError here, which `refuse_invalid_rows` may raise.
    return isinstance(value, str) and 0 < (datetime.fromisoformat(value) - _EPOCH) / _MILLISECOND < _LATEST_MS


_STORED_VALUE_CHECKS: Mapping[str, Callable[[Any, Method], bool]] = {
    "score": lambda value, scale: value is None or _is_score(scale, value),
    "choice": lambda value, _: value in (A, B, TIE, None),
    "answer": lambda value, _: value in (A, B, None),
    "plays": lambda value, _: isinstance(value, int) and _is_amount(value, _MAX_PLAYS),
    "listened_s": lambda value, _: _is_amount(value, _MAX_LISTENED_S),
    "first_play_utc": lambda value, _: value is None or _is_time(value),
    "voted_utc": lambda value, _: _is_time(value),
}
"""Checks of stored values, by column. The values of all other columns are known in advance."""
