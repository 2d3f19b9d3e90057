"""One process that makes calls on a month's budget until it is refused, and says what each cost, then what is left.

Arguments: folder, run id, limit, seed, and after how many calls it is killed, if it is.
"""

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from speechframe.old_batch.budget import Budget
from speechframe.old_batch.month import MonthBudget
from speechframe.old_store.spending import Spending

WHO = {"service": "api.example.com", "key_fingerprint": "0f3a"}
NOVEMBER = 1_793_500_000.0
"""Unix time of an early day of November 2026."""


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(folder, run_id, limit, seed, last="0"):
    chance = random.Random(int(seed))
    say("ready")
    sys.stdin.readline()
    with Spending(Path(folder)) as spending:
        month = MonthBudget(spending, **WHO, run_id=run_id, limit=int(limit), clock=lambda: NOVEMBER)
        budget, flying, calls = Budget(month=month), [], 0
        while True:
            amount = chance.randrange(1, 40)
            if budget.reserve(amount):
                flying.append(amount)
            elif not flying:
                break
            if len(flying) > 4 or budget._refused_by == "month":
                time.sleep(0.001 * chance.random())
                amount = flying.pop(chance.randrange(len(flying)))
                spent = chance.choice([0, amount, amount, amount])
                say(spent)
                calls += 1
                if calls == int(last):
                    # By itself: others may be slow, and it must be in the middle of its calls.
                    threading.Timer(0.02 * chance.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()
                budget.settle(reserved=amount, spent=spent)
                budget._refused_by = ""
        say("left", int(limit) - month.total())
        budget.close()
        assert budget.reserved == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
