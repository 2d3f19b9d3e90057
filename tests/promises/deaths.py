"""Runs whose process dies at a file operation."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Deaths:
    """Makes runs in processes that can be told to die at a file operation.

    Parameters
    ----------
    folder
        Where what the processes say is kept.
    settings
        What they are configured with: the service's address and key.
    """

    folder: Path
    settings: dict
    made: int = field(default=0)

    def __enter__(self):
        server = Path(__file__).with_name("death_server.py")
        self._server = subprocess.Popen(
            [sys.executable, str(server)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_):
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()

    def run(self, verb, table, run_dir, *, at=0, when="before", **options):
        """Make a run or go on with it; return whether its process died, and how many operations it began.

        Operations count in the folder that `run_dir` lies in: a run may begin in a draft beside its place.
        """
        self.made += 1
        errors = self.folder / f"errors-{self.made}.txt"
        request = {
            "verb": verb, "table": table, "folder": str(run_dir), "at": at, "when": when, "options": options,
            "settings": self.settings, "environment": dict(os.environ), "errors": str(errors),
            "counts": str(self.folder / f"counts-{self.made}"), "folders": [str(Path(run_dir).parent)],
        }  # fmt: skip
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        said = json.loads(self._server.stdout.readline())
        assert said["code"] in ({0} if not at else {0, -9}), errors.read_text()
        return said["code"] == -9, said["count"]
