"""The process that does one job: ``python -m speechframe.dubbing.worker FOLDER PARENT_PID``.

Each step is a line of JSON on standard output, a locale and a word; what becomes of the job lies in the
folder. It ends with status 0 when it is through, whatever it came to, and with its parent.
"""

import json
import os
import signal
import sys
from pathlib import Path

from speechframe._parent import die_with_parent
from speechframe.dubbing.job import work

_NICE = 15
"""Whatever else the machine does goes first: nobody waits for a dub by the second."""


def main() -> None:
    """Do the job in the folder that is named."""
    # Told, because the parent may have died while this was imported: two at one job would disturb each other.
    die_with_parent(int(sys.argv[2]))
    # Ctrl-C in a terminal goes to the whole group: the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    # A native library that prints must not print among the steps.
    steps = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    work(Path(sys.argv[1]), lambda locale, step: print(json.dumps([locale, step]), file=steps))


if __name__ == "__main__":
    main()
