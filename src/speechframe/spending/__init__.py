"""Reports on the spending of runs. They read ledgers for sums, budgets, bills and the end of the quota."""
