"""What several tests of budgets do."""

from speechframe.spec.billing import CREDIT


def call(budget, price, remaining, *, in_doubt=False):
    """Make one call at a quiet moment."""
    mark = budget.mark()
    assert budget.reserve(price * CREDIT, in_doubt=in_doubt)
    budget.note_balance(remaining, mark, price * CREDIT)
    budget.settle(reserved=price * CREDIT, spent=price * CREDIT)
