"""Code in a Python process of its own, where nothing is loaded yet."""

import os
import subprocess
import sys
import textwrap


def in_another_process(code, **environment):
    """Return the lines that code prints; what it is told comes by environment variables."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()
