"""What a run may spend: reserved before a call, settled after it, never passed.

Three limits hold at once, and a call is made only where it fits all of them:
the run's ``max_credits``, the month's ``max_credits_per_month`` over all runs
of the key, and the balance that the service says is left on the key, so that
a run stops before it is refused with 402. All amounts are whole thousandths.
"""

from dataclasses import dataclass, field

from speechframe.errors import BudgetExceeded
from speechframe.old_batch.balance import START, KnownBalance, Mark
from speechframe.old_batch.month import MonthBudget
from speechframe.old_batch.progress import counted
from speechframe.spec.billing import Millicredits, to_credits

RUN = "run"
MONTH = "month"
BALANCE = "balance"


async def not_said() -> int | None:
    """Return what is left on a key where nobody says it: nothing."""
    return None


@dataclass
class Budget:
    """Hard limits in our own count, whatever the concurrency.

    ``settled + reserved`` never passes ``limit``, nor the month's limit, nor
    what the service says is left. The service's own count may differ by what
    is in flight.

    Parameters
    ----------
    limit
        Thousandths of a credit this run may spend; None for no limit.
    settled, reserved
        What the run has spent, earlier drives included, and what is set aside.
    month
        The month's count; None where nothing is counted.
    house_rule
        Where the rule stands that the limit comes from; empty for the run's own.

    Examples
    --------
    >>> budget = Budget(limit=100_000)
    >>> budget.reserve(60_000), budget.reserve(60_000)
    (True, False)
    >>> budget.settle(reserved=60_000, spent=40_000)
    >>> budget.left
    60000
    """

    limit: Millicredits | None = None
    settled: Millicredits = 0
    reserved: Millicredits = 0
    month: MonthBudget | None = None
    balance: KnownBalance = field(default_factory=KnownBalance)
    house_rule: str = ""
    _refused_by: str = RUN

    def reserve(
        self, amount: Millicredits, *, from_balance: Millicredits | None = None, in_doubt: bool = False
    ) -> bool:
        """Set `amount` aside for one call; False when it does not fit one of the limits.

        Parameters
        ----------
        amount
            Thousandths of a credit.
        from_balance
            Thousandths of a character it may take from the key's balance (default: `amount`, as the price
            table has it). 0 for the repeat of a call that was billed, which the service does not refuse.
        in_doubt
            Pass over a balance that one answer alone has told: this call finds out whether it is one.

        Raises
        ------
        StoreError
            When the month's count cannot be used: the call must not be made.
        """
        if from_balance is None:
            from_balance = amount
        balance, left = self.balance, None
        if self.limit is not None:
            left = self.limit - self.settled - self.reserved
            # The repeat of a call that was paid is free, however little is left.
            if amount and amount > left:
                return self._refuse(RUN)
        if not balance.covers(from_balance, in_doubt=in_doubt):
            return self._refuse(BALANCE)
        if self.month is not None and not self.month.reserve(amount, most=left):
            return self._refuse(MONTH)
        self.reserved += amount
        balance.reserved += from_balance
        return True

    def settle(
        self,
        *,
        reserved: Millicredits,
        spent: Millicredits,
        balance_reserved: Millicredits | None = None,
        balance_spent: Millicredits | None = None,
    ) -> None:
        """Give a reservation back and book what the call really cost.

        Parameters
        ----------
        reserved, spent
            Thousandths of a credit; no more is spent than was reserved.
        balance_reserved, balance_spent
            The same of the key's balance, in thousandths of a character (default: as `reserved` and
            `spent`). Both 0 for a call whose answer was lost and that will be repeated under its
            ``Idempotency-Key``: it was billed already or its repeat will be, so it stays set aside.
        """
        self.reserved -= reserved
        self.settled += spent
        self.balance.reserved -= reserved if balance_reserved is None else balance_reserved
        self.balance.settled += spent if balance_spent is None else balance_spent
        if self.month is not None:
            self.month.settle(reserved=reserved, spent=spent)

    def mark(self) -> Mark:
        """Return this moment; taken right before a call is sent, for :meth:`note_balance`."""
        return self.balance.mark()

    def note_balance(
        self,
        remaining_characters: int | None,
        mark: Mark = START,
        charged: Millicredits = 0,
        *,
        is_sure: bool = False,
    ) -> None:
        """Take in what the service says is left on the key.

        Parameters
        ----------
        remaining_characters
            What an answer said; None and negative figures say nothing.
        mark
            :meth:`mark` of when the call was sent. Left out: the balance was asked for before the first call.
        charged
            Thousandths of a character that the call itself took: they are in the figure.
        is_sure
            The service was asked for it, so that it counts where the answer to a call alone would not.
        """
        if remaining_characters is not None:
            self.balance.note(remaining_characters, mark, charged, is_sure=is_sure)

    @property
    def is_in_doubt(self) -> bool:
        """Whether one answer alone says that less is left than the run's own calls explain."""
        return self.balance.doubt is not None

    @property
    def left(self) -> Millicredits | None:
        """What may still be reserved of the run's limit and the balance; None where neither is known."""
        known = [] if self.limit is None else [self.limit - self.settled - self.reserved]
        known += [] if self.balance.left is None else [self.balance.left]
        return min(known, default=None)

    def exceeded(self, needed: Millicredits, remaining_rows: int, *, unit: str = "call") -> BudgetExceeded:
        """Return the error that says which limit the last call did not fit, and what the rest would cost.

        Parameters
        ----------
        needed
            Thousandths of a credit that the calls that remain need.
        remaining_rows
            How many they are.
        unit
            What one of them is to people.
        """
        limit, spent, what, advice = self._refused()
        left = max(0, limit - spent)
        return BudgetExceeded(
            f"{what}{_are(left)} left, {to_come(needed, remaining_rows, unit)}. "
            f"Everything paid for is kept; {advice}.",
            limit=self._refused_by,
            max_credits=to_credits(limit),
            spent_credits=to_credits(spent),
            needed_credits=to_credits(needed),
        )

    def close(self) -> None:
        """Give back what was taken of the month and not spent.

        Raises
        ------
        StoreError
            When the month's count cannot be used; see :meth:`MonthBudget.close`.
        """
        if self.month is not None:
            self.month.close()

    def _refuse(self, limit: str) -> bool:
        self._refused_by = limit
        return False

    def _refused(self) -> tuple[Millicredits, Millicredits, str, str]:
        """Return limit, spent, words and advice of the limit that refused."""
        if self._refused_by == MONTH and self.month is not None:
            limit, spent = self.month.limit or 0, self.month.total()
            where = f" ({self.month.where})" if self.month.where else ""
            words = (
                f"max_credits_per_month={to_credits(limit):.15g}{where}: {_are(spent)} spent or set "
                f"aside in {self.month.month} (UTC) by all runs of this key on this machine, "
            )
            return limit, spent, words, "resume the run next month, or with a higher max_credits_per_month"
        if self._refused_by == BALANCE:
            limit, spent = self.balance.limit or 0, self.balance.settled + self.balance.reserved
            words = "the service would refuse the next call (402): of the key's characters "
            advice = "top up the key or wait for its next billing cycle, then resume the run"
            return limit, spent, words, advice
        limit, spent = self.limit or 0, self.settled + self.reserved
        name, advice = "max_credits", "resume the run with a higher max_credits"
        if self.house_rule:
            name = "max_credits_per_run"
            advice = f"have the rule changed ({self.house_rule}), then resume the run"
        words = f"{name}={to_credits(limit):.15g}: {_are(self.settled)} spent, "
        return limit, spent, words, advice


def to_come(needed: Millicredits, remaining_rows: int, unit: str) -> str:
    """Return what is still to be made, and its price, in words.

    Examples
    --------
    >>> to_come(20_500, 2, "call")
    'the 2 calls to come would cost 20.5'
    >>> to_come(0, 0, "call")
    'and no call is to come'
    """
    if not remaining_rows:
        return f"and no {unit} is to come"
    return f"the {counted(remaining_rows, unit)} to come would cost {_credits(needed)}"


def _are(millis: Millicredits) -> str:
    return f"{_credits(millis)} {'is' if to_credits(millis) == 1 else 'are'}"


def _credits(millis: Millicredits) -> str:
    return f"{to_credits(millis):,.15g}"
