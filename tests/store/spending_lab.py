"""One process that spends: takes leases on one account until it is refused, and says each and what it spent of it.

Arguments: folder, run id, limit, seed, and "hold" to settle nothing.
"""

import random
import sys
import time
from pathlib import Path

from speechframe.old_store.spending import Account, Spending

ACCOUNT = Account("api.example.com", "0f3a", "2026-11")


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(folder, run_id, limit, seed, *ways):
    chance = random.Random(int(seed))
    say("ready")
    sys.stdin.readline()
    with Spending(Path(folder)) as spending:
        while True:
            # A call takes its time; without, the first of the processes would not let the others in.
            time.sleep(0.004 * chance.random())
            needed = chance.randrange(1, 40)
            granted = spending.lease(ACCOUNT, run_id, needed, wanted=5 * needed, limit=int(limit))
            if not granted:
                return
            spent = chance.randrange(granted + 1)
            # Said before it is settled: of what a killed process spent, nothing is unknown.
            say(granted, spent)
            if not ways:
                spending.settle(ACCOUNT, run_id, spent=spent, given_back=granted - spent)


if __name__ == "__main__":
    main(*sys.argv[1:])
