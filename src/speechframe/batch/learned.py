"""What is known of a lane on this machine: a file that its processes share and later runs begin with."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Learned:
    """What the process that wrote last has learned.

    Parameters
    ----------
    cap
        How many calls may be in flight.
    is_least
        Nothing was refused yet: perhaps more may be in flight.
    per_second
        Pace of all processes together; 0 where calls are not paced.
    told_until
        Unix time until which the service asked for no more calls.
    refused_at
        Unix time of the last refusal: whoever tries one more call at the moment learns that there is no room.
    """

    cap: int
    is_least: bool
    per_second: float
    told_until: float
    refused_at: float

    @classmethod
    def read(cls, path: Path | None) -> Self | None:
        """Return what the file says; None where there is none that can be read."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if path is not None:
                said = json.loads(path.read_bytes())
                times = (float(said[name]) for name in ("per_second", "told_until", "refused_at"))
                return cls(int(said["cap"]), bool(said["is_least"]), *times)
        return None

    def write(self, path: Path | None) -> None:
        """Replace the file. Without it each process learns by itself, which is no reason to stop a run."""
        with contextlib.suppress(OSError):
            if path is not None:
                temporary = path.with_suffix(f".{os.getpid()}")
                temporary.write_text(json.dumps(asdict(self)))
                temporary.replace(path)
