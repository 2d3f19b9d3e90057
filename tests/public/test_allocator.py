"""The tuned allocator: what it keeps, that it keeps no more with time, and where there is none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from speechframe.processes import allocator

# Buffers as answers have them, in a thread of its own as the client's loop is.
_CHURN = """
import json, resource, sys, threading
sys.path.insert(0, sys.argv[2])
from peak import peak_kb
from speechframe.processes.allocator import tune_allocator

tuned = [tune_allocator() for _ in range(2)] if sys.argv[1] == "tuned" else [False]

def churn(rounds):
    for n in range(rounds):
        alive = [bytearray(60_000 + (n * 7919 + i * 104_729) % 400_000) for i in range(15)]
        del alive

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

thread = threading.Thread(target=lambda: churn(200))
thread.start(); thread.join()
before, first = faults(), peak_kb()
thread = threading.Thread(target=lambda: churn(3000))
thread.start(); thread.join()
last = peak_kb()
print(json.dumps({"tuned": tuned, "faults": faults() - before, "grown_kb": last - first}))
"""


def _churned(way):
    done = subprocess.run(
        [sys.executable, "-c", _CHURN, way, Path(__file__).parents[1]],
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_tuned_memory_is_used_again_instead_of_asked_for_and_does_not_grow():
    plain, tuned = _churned("plain"), _churned("tuned")
    assert tuned["tuned"] == [True, True]
    assert tuned["faults"] * 10 < plain["faults"]
    assert tuned["grown_kb"] * 1024 < allocator.TRIM_THRESHOLD_BYTES


@pytest.mark.parametrize("where", ["darwin", "musl"])
def test_elsewhere_nothing_is_done(monkeypatch, where):
    if where == "musl":
        monkeypatch.setattr(allocator.platform, "libc_ver", lambda: ("", ""))
    else:
        monkeypatch.setattr(allocator.sys, "platform", where)
    monkeypatch.setattr(allocator.ctypes, "CDLL", None)
    assert allocator.tune_allocator.__wrapped__() is False
