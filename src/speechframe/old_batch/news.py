"""What a lane has learned, told to the others that use its key, and what they tell it."""

import time
from dataclasses import dataclass

from speechframe.old_batch.cap import Cap
from speechframe.old_batch.learned import KnownRate
from speechframe.old_batch.permits import SharedPermits
from speechframe.old_batch.rate import Rate

FEW = 2
"""So low a cap was disproved, and yet a call is refused beside no more than so many: that is a rate."""

_TELL_EVERY_S = 0.25
_LEARNED_LASTS_S = 3600.0
_NO_RATE = (0.0, 0.0, 0.0)


@dataclass(slots=True)
class News:
    """What is told and heard of a lane's cap and rate.

    Parameters
    ----------
    cap, rate
        The lane's.
    permits
        Who else uses the lane, and where they tell.
    """

    cap: Cap
    rate: Rate
    permits: SharedPermits
    _told: int = 0
    _told_rate: KnownRate | None = None
    _told_at: float = float("-inf")
    _heard: int = 0

    def __post_init__(self) -> None:
        # The first guess is no finding.
        self._told = self.cap.held

    @property
    def is_untold(self) -> bool:
        """Whether there is anything that the others have not been told."""
        return self.cap.held != self._told or self._rate != self._told_rate

    @property
    def _rate(self) -> KnownRate | None:
        """The rate that the others may go by; not the first guess, which may be a mistake."""
        return self.rate.known if self.rate.has_stood or self._told_rate is not None else None

    def hear(self, now: float, *, is_shared: bool) -> None:
        """Take over what was told since the last time; a rate only while others use the lane."""
        found = self.permits.learned
        if found is None or found.sequence == self._heard:
            return
        self._heard = found.sequence
        if time.time() - found.at >= _LEARNED_LASTS_S:
            return
        if found.rate is not None and is_shared:
            self.rate.adopt(found.rate, now)
            self._told, self._told_rate = self.cap.held, self.rate.known
            if self.rate.per_second is not None:
                return
        before = self.cap.held
        self.cap.adopt(found.cap, is_floor=found.is_floor)
        self._told = min(found.cap, self.cap.held)
        # What another found out about a cap of one or two tells as much about a rate as what is found here.
        if before == 1 < self.cap.held:
            self.rate.doubted(now)
        elif self.cap.held == 1 < before <= FEW and self.rate.per_second is None:
            self.rate.refused_few(now, processes=1 + self.permits.others())

    def tell_refused(self, now: float, *, is_shared: bool) -> None:
        """Tell even where the number stays as it is: the others need not find out the same."""
        self._told, self._told_at = 0, float("-inf")
        self.tell(now, is_shared=is_shared)

    def tell(self, now: float, *, is_shared: bool) -> None:
        """Tell the others, at once or before long."""
        if self.cap.is_floor:
            # What was refused to another tells more.
            self.hear(now, is_shared=is_shared)
        if (rate := self._rate) is not None and rate == self._told_rate:
            return
        if self.is_untold and (is_shared or now - self._told_at >= _TELL_EVERY_S):
            if rate is None and self._told_rate is not None:
                rate = _NO_RATE
            self._told, self._told_rate, self._told_at = self.cap.held, self._rate, now
            found = self.permits.publish(self.cap.held, time.time(), is_floor=self.cap.is_floor, rate=rate)
            if found is not None and found.rate == rate:
                self._heard = found.sequence
