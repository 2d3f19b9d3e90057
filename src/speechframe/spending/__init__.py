"""Report the spending of runs: sums, budgets, differences to a bill, and the end of a quota.

All reports read ledgers. A ledger contains one row for each attempt (one try of a call) and its cost.
"""
