"""What several tests of budgets do."""

from dataclasses import dataclass, field
from random import Random

from speechframe.old_batch.balance import Mark
from speechframe.old_batch.budget import Budget
from speechframe.spec.billing import CREDIT


def call(budget, price, remaining, *, in_doubt=False):
    """Make one call at a quiet moment."""
    mark = budget.mark()
    assert budget.reserve(price * CREDIT, in_doubt=in_doubt)
    budget.note_balance(remaining, mark, price * CREDIT)
    budget.settle(reserved=price * CREDIT, spent=price * CREDIT)


@dataclass
class Sent:
    """One call under way: what it costs, when it was sent, what its answer says, and of how many takings."""

    price: int
    mark: Mark
    said: int | None = None
    knows: int = 0


@dataclass
class Calls:
    """The calls of one run, some at a time, that overtake each other as `chance` has it."""

    budget: Budget
    queue: list[int]
    width: int
    chance: Random
    sent: list[Sent] = field(default_factory=list)
    billed: list[Sent] = field(default_factory=list)

    @property
    def go_on(self):
        """Whether one is still to come or under way."""
        return bool(self.queue or self.sent or self.billed)

    def send(self, *, in_doubt=False):
        """Send the next one, if it fits."""
        if not self.queue or len(self.sent) + len(self.billed) >= self.width:
            return False
        if not self.budget.reserve(self.queue[0] * CREDIT, in_doubt=in_doubt):
            return False
        self.sent.append(Sent(self.queue.pop(0), self.budget.mark()))
        return True

    def arrived(self):
        """Return the one that comes to the service next; None when an answer comes first."""
        if self.sent and (not self.billed or self.chance.random() < 0.5):
            return self.sent.pop(self.chance.randrange(len(self.sent)))
        return None

    def answered(self):
        """Return the one whose answer comes next; None while there is none."""
        return self.billed.pop(self.chance.randrange(len(self.billed))) if self.billed else None
