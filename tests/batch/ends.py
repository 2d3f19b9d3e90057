"""What the tests of ends have in common: when calls are in flight, when the run has stopped, what is kept then."""

import time

from faulty import check_audio, check_books, statuses

import speechframe as spf

# Ten seconds at the pace of `slow`: whatever comes in the middle of a run comes long before its end.
LINES = [f"This is line {i}." for i in range(96)]
SYNC = ["wait", "loop", "body", "asleep"]
ASYNC = ["await verb", "await live", "async for", "async body", "async verb beside"]


def in_motion(server):
    """Wait until four calls are in flight, and two were answered."""
    server.until(lambda s: len(s.seen) >= 6 and s.in_flight >= 4)


def seconds_until_stopped(server, folder, began):
    """Seconds since `began` after which the run has stopped; the interpreter's own end is none of ours."""
    server.until(lambda _: spf.open_run(folder).status == "stopped")
    return time.monotonic() - began


def check_nothing_is_lost(folder, server):
    """All that was sent is kept, and the run can go on."""
    run = spf.open_run(folder)
    states = list(statuses(run).values())
    sent = len(server.seen)
    assert 6 <= sent < len(LINES)
    assert (states.count("done"), states.count("pending")) == (sent, len(LINES) - sent)
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    check_audio(run)
    check_books(run, server)


def check_one_is_in_doubt(folder, server):
    """All that was sent is kept but for one call, which may have been billed."""
    states = list(statuses(spf.open_run(folder)).values())
    assert (states.count("done"), states.count("charged_unknown")) == (len(server.seen) - 1, 1)
