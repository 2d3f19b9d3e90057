"""Files of a run that somebody lost: what can be put right is, and nothing is paid for twice."""

import shutil

import pytest

import speechframe as spf
from speechframe.errors import StoreError

LINES = [f"This is line {i}." for i in range(4)]
MORE = [*LINES, "One more."]


def gone(path):
    path.unlink()


def odd(path):
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes(300) + content[320:])


@pytest.fixture
def resumed(faulty, speak):
    """The folder of a run that was given a second table."""
    run = speak(faulty, LINES)
    return spf.resume(run, table=MORE, service=faulty.settings, progress=False).path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", [gone, odd])
def test_a_lost_table_is_handed_in_again_and_nothing_is_paid_again(faulty, speak, resumed, damage, tmp_path):
    given = {"service": faulty.settings, "progress": False}
    billed = dict(faulty.billed)
    for name, hand_in in {
        "resume": lambda run: spf.resume(run, table=MORE, **given),
        "generate": lambda run: speak(faulty, MORE, run_dir=run),
        "another": lambda run: spf.resume(run, table=LINES, **given),
    }.items():
        run = shutil.copytree(resumed, tmp_path / name)
        damage(run / "input" / "0002.parquet")
        with pytest.raises(StoreError, match=r"(?s)0002\.parquet .*hand the table in again"):
            spf.resume(run, **given)
        speak(faulty, MORE, run_dir=run, dry_run=True)
        assert len(spf.open_run(run)._folder.verify()) == 1
        again = hand_in(run)
        rows = LINES if name == "another" else MORE
        assert (again.status, again.stats["done"], again.estimate.calls) == ("finished", len(rows), 0)
        assert list(again.to_pandas()["text"]) == rows
        assert spf.open_run(run)._folder.verify() == []
        assert spf.resume(run, table=MORE, **given).stats["done"] == len(MORE)
    assert faulty.billed == billed


def test_a_table_that_is_there_is_not_written_again(faulty, speak, resumed):
    files = sorted((resumed / "input").iterdir())
    speak(faulty, MORE)
    assert sorted((resumed / "input").iterdir()) == files


def test_a_lost_table_of_a_default_folder_is_handed_in_again(faulty, speak, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = speak(faulty, LINES, run_dir=None)
    billed = dict(faulty.billed)
    gone(run.path / "input" / "0001.parquet")
    assert speak(faulty, LINES, run_dir=None, dry_run=True).estimate.calls == 0
    again = speak(faulty, LINES, run_dir=None)
    assert (again.path, again.stats["done"]) == (run.path, len(LINES))
    assert spf.open_run(run.path)._folder.verify() == []
    assert faulty.billed == billed


def test_a_budget_is_not_passed_because_the_ledger_was_lost(faulty, speak):
    run = speak(faulty, LINES, max_credits=1_000)
    shutil.rmtree(run.path / "attempts")
    (problem,) = spf.open_run(run.path)._folder.verify()
    assert problem.words.startswith("of 4 calls no attempt is in the ledger")
    given = {"service": faulty.settings, "progress": False}
    # Nothing is to be spent: nothing is to be known of it.
    assert speak(faulty, LINES, max_credits=1_000).stats["done"] == 4
    with pytest.raises(StoreError, match=r"of 4 calls no attempt is in the ledger.*Restore attempts/"):
        spf.resume(run, table=MORE, **given)
    assert len(faulty.billed) == 4
    assert spf.resume(run, table=MORE, max_credits=float("inf"), **given).stats["done"] == 5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["redo", "resume", "generate", "retake"])
def test_what_is_refused_because_the_ledger_was_lost_leaves_the_run_as_it_was(faulty, speak, way):
    faulty.audio_for = {LINES[1]: "Something that is much, much longer than this."}
    run = speak(faulty, LINES, max_credits=1_000)
    shutil.rmtree(run.path / "attempts")
    given = {"service": faulty.settings, "progress": False}
    before, audio = (run.path / "run.json").read_bytes(), run.clip("1").audio
    ask = {
        "redo": lambda: spf.resume(run, redo=["1"], **given),
        "resume": lambda: spf.resume(run, table=MORE, **given),
        "generate": lambda: speak(faulty, MORE, max_credits=1_000),
        "retake": lambda: speak(faulty, LINES, max_credits=1_000, max_retakes=1),
    }
    with pytest.raises(StoreError, match=r"of 4 calls no attempt is in the ledger.*nothing was sent"):
        ask[way]()
    now = spf.open_run(run.path)
    if way != "retake":  # its first look has found all rows made, and that is noted
        assert (run.path / "run.json").read_bytes() == before
    assert [entry.rows for entry in now._folder.tables()] == [4]
    assert (now.status, now.clip("1").audio) == ("finished", audio)
    # Nothing is made behind the back of whoever lifts the limit.
    assert spf.resume(run, max_credits=float("inf"), **given).estimate.calls == 0
    assert len(faulty.seen) == 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("in_doubt", [False, True])
def test_attempts_that_were_repeated_do_not_stand_for_those_that_were_lost(
    make_faulty, speak, quick, in_doubt
):
    server = make_faulty(idempotent=None)
    server.scripts = {text: [500, 500] for text in LINES}
    given = {"service": server.settings, "progress": False}
    run = speak(server, LINES, max_credits=1_000)
    before = set((run.path / "attempts").iterdir())
    server.scripts = {"One more.": ["reset billed" if in_doubt else "ok"]}
    spf.resume(run, table=MORE, **given)
    (lost,) = set((run.path / "attempts").iterdir()) - before
    content = lost.read_bytes()
    lost.unlink()
    sent = len(server.seen)
    for look in (True, False):
        with pytest.raises(StoreError, match=r"of 1 call no attempt is in the ledger.*Restore attempts/"):
            spf.resume(run, table=[*MORE, "And more."], dry_run=look, **given)
    assert len(server.seen) == sent
    lost.write_bytes(content)
    assert spf.resume(run, table=[*MORE, "And more."], **given).stats["pending"] == 0
    assert len(server.seen) == sent + 1


def test_a_part_that_somebody_copied_does_not_make_its_calls_look_lost(faulty, speak):
    run = speak(faulty, LINES, max_credits=1_000)
    (part,) = (run.path / "parts").iterdir()
    shutil.copy(part, part.with_name("copied-0001.parquet"))
    assert spf.resume(run, table=MORE, service=faulty.settings, progress=False).stats["done"] == 5
