"""A writer at work, to be read beside and to be killed: answers calls and notes each one it was told is kept.

Arguments: folder, file of acknowledgements, first number, how many calls; "stays" to end when it is killed.
"""

import os
import sys
import time

from store_cases import done, failed, key_of, sent, tried

from speechframe.old_store import RunFolder, parts, writer


def main(folder, acks, first, calls, *ways):
    parts.GROUP_ROWS, writer.PART_ROWS = 4, 10
    # What the kernel has survives a SIGKILL: waiting for the disk would only hide races.
    os.fsync = os.fdatasync = lambda descriptor: None
    diary = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    run = RunFolder.open(folder)
    with run.lock():
        run.recover()
        with run.writer() as out:
            for number in range(first, first + calls):
                key = key_of(number)
                outcomes = ["done"] if number % 5 else ["failed", "done"] if number % 2 else ["failed"]
                for attempt, outcome in enumerate(outcomes, 1):
                    out.sent(sent(key, attempt))
                    record = done(key) if outcome == "done" else failed(key)
                    out.answer(record, tried(key, outcome))
                    os.write(diary, f"{number} {attempt} {outcome}\n".encode())
            if ways:
                time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
