"""The spending of runs, from their ledgers: sums, budgets, bills and the end of the quota."""
