"""Plan, pay for and store the calls of a run, for any backend, and continue runs that stopped."""
