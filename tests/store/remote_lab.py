"""A writer of a remote run, to be killed: answers calls, and prints each number that it was told is kept.

Arguments: address, first number, how many calls, rows of a part.
"""

import os
import sys

from store_cases import done, key_of, sent, tried

from speechframe.old_store import RunFolder, writer


def main(address, first, calls, part_rows):
    writer.PART_ROWS = part_rows
    run = RunFolder.open(address)
    with run.lock():
        run.recover()
        with run.writer() as out:
            for number in range(first, first + calls):
                key = key_of(number)
                out.sent(sent(key))
                out.answer(done(key, size=200), tried(key))
                os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
