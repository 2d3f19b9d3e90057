"""Looks at a run that is live or was killed: they say what going on with it would do, and change nothing."""

import signal

import pytest

import speechframe as spf
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i:03d}." for i in range(20)]
EACH = billed_characters(LINES[0])
LIMIT = 30 * EACH


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "lock"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("idempotent", [None, True])
def test_a_look_at_a_live_or_killed_run_says_what_its_resume_does(
    make_faulty, lab, speak, tmp_path, idempotent
):
    server = make_faulty(idempotent=idempotent, held=LINES[10:])
    given = {"service": server.settings, "progress": False, "max_concurrency": 4}
    client = lab.start(LINES, server.settings, tmp_path / "run", max_credits=LIMIT)
    server.until(lambda s: s.in_flight == 4 and len(s.seen) == 14)
    folder = spf.open_run(tmp_path / "run")._folder
    server.until(lambda _: len(folder.index()) == 10)

    def looks():
        before = files_of(tmp_path / "run")
        yield speak(server, LINES, dry_run=True, max_credits=LIMIT).estimate
        yield spf.resume(tmp_path / "run", dry_run=True, **given).estimate
        spf.configure(max_credits=LIMIT)
        differs = spf.changes(tmp_path / "run", [*LINES, LINES[0] + "!"], service=server.settings)
        spf.configure(max_credits=None)
        assert differs.credits == 7 * EACH + 1
        assert files_of(tmp_path / "run") == before

    seen = list(looks())
    client.signal(signal.SIGKILL)
    client.end()
    seen += looks()
    server.held = []
    run = spf.resume(tmp_path / "run", **given)
    assert seen == [run.estimate] * 4
    estimate = run.estimate
    in_doubt = (estimate.unknown, estimate.calls, estimate.paid)
    assert in_doubt == ((0, 10, 4) if idempotent else (4, 6, 0))
    assert (estimate.finished, estimate.credits, estimate.budget) == (10, 6 * EACH, LIMIT - 14 * EACH)
    assert len(server.seen) == 14 + estimate.calls
