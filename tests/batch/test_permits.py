"""Permits of all processes on a machine: never too many together, none lost with a process, a fair share for each."""

import asyncio
import contextlib
import itertools
import json
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from permit_lab import Far, context, hammer, work

from speechframe.old_batch import learned as learned_module
from speechframe.old_batch import permits as permits_module
from speechframe.old_batch import turns as turns_module
from speechframe.old_batch.cap import Cap
from speechframe.old_batch.learned import Learned, LearnedCap
from speechframe.old_batch.limiter import Lane
from speechframe.old_batch.permits import SharedPermits, _Lane, shared_folder
from speechframe.old_batch.places import Hand, SharedFile
from speechframe.old_batch.turns import Turns

SOON_S = 60.0


def until(condition, limit_s=SOON_S):
    """Wait for what other processes do."""
    end = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return found


@pytest.fixture
def permits(tmp_path):
    made = SharedPermits(tmp_path, name="lane")
    yield made
    made.close()


@pytest.fixture
def far(tmp_path):
    """Start processes that share a lane with this one."""
    started = []

    def start(name="lane"):
        started.append(Far(tmp_path, name))
        return started[-1]

    yield start
    for process in started:
        process.end()


def test_places_of_all_processes_count_together(permits, far):
    other, third = far(), far()
    assert [other.try_take(3) is None, permits.try_take(3) is None, third.try_take(3) is None] == [False] * 3
    assert permits.try_take(3) is None
    assert other.try_take(3) is None
    assert (permits.held(), other.held(), permits.held_here(), other.held_here()) == (3, 3, 1, 1)
    assert far("another lane").try_take(3) is not None


def test_a_place_is_held_by_one_alone_and_free_once_given(permits, far):
    other = far()
    ours = {permits.try_take(4), permits.try_take(4)}
    theirs = {other.try_take(4), other.try_take(4)}
    assert len(ours | theirs) == 4
    permits.give(ours.pop())
    assert until(lambda: other.try_take(4) is not None or permits.held() == 4)
    assert permits.held() == 4


def test_processes_that_hammer_never_hold_more_than_the_limit(tmp_path):
    together, most = context.Value("i", 0), context.Value("i", 0)
    counts = [context.Value("i", 0) for _ in range(6)]
    crowd = [
        context.Process(target=hammer, args=(tmp_path, 4, 2.0, seed, together, most, counts))
        for seed in range(6)
    ]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    assert [process.exitcode for process in crowd] == [0] * 6
    assert most.value == 4, "all places are used, and not one more"
    assert together.value == 0
    assert min(mine.value for mine in counts) > 0


@pytest.mark.quiet
def test_what_a_killed_process_held_is_free_within_a_second(permits, far):
    other = far()
    assert all(other.try_take(5) is not None for _ in range(5))
    assert permits.try_take(5) is None
    other.signal(signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: permits.try_take(5) is not None)
    assert time.monotonic() - killed < 1.0
    assert all(permits.try_take(5) is not None for _ in range(4))
    until(lambda: permits.others() == 0)


async def test_a_run_that_a_stopped_process_keeps_waiting_says_so_once(permits, far, monkeypatch, caplog):
    monkeypatch.setattr("speechframe.old_batch.limiter.STARVED_S", 0.3)
    other = far()
    assert all(other.try_take(3) is not None for _ in range(3))
    other.signal(signal.SIGSTOP)
    lane = Lane("global", Cap(3, 3), permits=permits, width=1)
    entering = asyncio.create_task(lane.enter(asyncio.Event()))

    def said():
        return [record.getMessage() for record in caplog.records if record.name.endswith("limiter")]

    async with asyncio.timeout(60):
        while not said():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.7)
    assert not entering.done()
    (line,) = said()
    assert "all 3 places of the key" in line
    assert "Ctrl-Z" in line
    other.signal(signal.SIGKILL)
    assert await asyncio.wait_for(entering, 30) is not None
    lane.close()


def test_a_smaller_limit_waits_until_enough_came_back(permits, far):
    other = far()
    theirs = [other.try_take(8) for _ in range(4)]
    ours = [permits.try_take(8) for _ in range(4)]
    assert None not in [*ours, *theirs]
    for place in [*ours[:3], theirs.pop()]:
        (permits if place in ours else other).give(place)
    assert (permits.held(), permits.held_here()) == (4, 1)
    assert permits.try_take(4) is None, "four are held, wherever they lie"
    assert permits.try_take(2) is None
    other.give(theirs.pop())
    assert permits.try_take(4) is not None
    assert permits.try_take(4) is None


class Clock:
    """Stands in for the module `time`: it goes on when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def monotonic_ns(self):
        return round(self.now * 1e9)


class Crowd(RuleBasedStateMachine):
    """Three processes' views of one lane, in one process: their locks count against one another all the same."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=permits_module.tempfile.gettempdir())
        self.look_s, permits_module._OTHERS_LOOK_S = permits_module._OTHERS_LOOK_S, 0.0
        self.clock = permits_module.time = Clock()

    @initialize()
    def begin(self):
        path = permits_module.Path(self.folder.name)
        self.lanes = [_Lane(path, "lane") for _ in range(3)]
        for lane in self.lanes:
            lane.join()

    @rule(who=st.integers(0, 2), limit=st.integers(1, 7), times=st.integers(1, 4))
    def take(self, who, limit, times):
        for _ in range(times):
            before = self.held
            place = self.lanes[who].take(limit, self)
            assert place is None or before < limit, "never more than the limit together"
            assert self.held == before + (place is not None), "nobody holds what another holds"

    @rule(who=st.integers(0, 2), which=st.integers(0, 9))
    def give(self, who, which):
        owned = list(self.lanes[who].owners)
        if owned:
            self.lanes[who].give(owned[which % len(owned)], self)

    @rule(who=st.integers(0, 2))
    def die(self, who):
        self.lanes[who].close()
        self.lanes[who] = _Lane(permits_module.Path(self.folder.name), "lane")
        self.lanes[who].join()

    @rule(limit=st.integers(1, 7))
    def everybody_wants_all(self, limit):
        for _ in range(12):
            self.clock.now += permits_module.POLL_S
            for lane in self.lanes:
                lane.take(limit, self)
        assert self.held >= limit, "no place stays empty while somebody wants it"

    @rule(limit=st.integers(3, 7))
    def everybody_works(self, limit):
        """Each gives a place back and wants it again, over and over: all come to their share."""
        for _ in range(40):
            self.clock.now += permits_module.POLL_S
            for lane in self.lanes:
                for place in [place for place in lane.owners if place >= limit] or list(lane.owners)[:1]:
                    lane.give(place, self)
                for _ in range(limit):
                    lane.take(limit, self)
        shares = [len(lane.owners) for lane in self.lanes]
        assert sum(shares) == limit
        assert min(shares) >= limit // 3

    @property
    def held(self):
        return len({place for lane in self.lanes for place in lane.owners})

    @invariant()
    def everybody_counts_the_same(self):
        assert [lane.held() for lane in self.lanes] == [self.held] * 3
        assert [lane.others() for lane in self.lanes] == [2] * 3

    def teardown(self):
        for lane in getattr(self, "lanes", ()):
            lane.close()
        permits_module._OTHERS_LOOK_S, permits_module.time = self.look_s, time
        self.folder.cleanup()


Crowd.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
test_any_order_of_takes_gives_and_deaths_keeps_the_count = Crowd.TestCase


# -- fair shares ----------------------------------------------------------------------


def recycle(busy, places, waiting):
    """Give one place back and want it again, while `waiting` asks, as two busy processes do."""
    place = places.pop(0)
    busy.give(place)
    again = busy.try_take(8)
    got = waiting.try_take(8)
    if again is not None:
        places.append(again)
    return got


def test_a_newcomer_gets_its_share_from_one_that_has_them_all(permits, far):
    other = far()
    places = [other.try_take(8) for _ in range(8)]
    assert permits.try_take(8) is None
    until(lambda: other.others() == permits.others() == 1)
    until(lambda: recycle(other, places, permits) is None and permits.held_here() >= 4)
    assert len(places) == 4
    for _ in range(20):
        recycle(other, places, permits)
    assert (len(places), permits.held_here()) == (4, 4), "and not more than its share"


def test_the_share_of_one_that_wants_nothing_is_used(permits, far):
    idle = far()
    until(lambda: permits.others() == 1)
    assert sum(permits.try_take(8) is not None for _ in range(8)) == 8
    assert idle.held() == 8


@pytest.fixture
def views(tmp_path, monkeypatch):
    """Three processes' views of a lane, and the clock they share."""
    clock = Clock()
    monkeypatch.setattr(permits_module, "time", clock)
    lanes = [_Lane(tmp_path, "lane") for _ in range(3)]
    for lane in lanes:
        lane.join()
    yield lanes, clock
    for lane in lanes:
        lane.close()


def test_a_raised_hand_is_seen_only_while_its_owner_goes_on_asking(views):
    (busy, waiting, _), clock = views
    places = [busy.take(3, None) for _ in range(3)]
    assert waiting.take(3, None) is None
    busy.give(places.pop(), None)
    for _ in range(3):
        clock.now += 0.1
        assert waiting.take(2, None) is None, "for it there is no place yet"
        assert busy.take(3, None) is None, "its hand is up"
    clock.now += 0.3
    assert busy.take(3, None) is not None


def test_two_that_want_all_leave_no_place_of_an_idle_third_empty(views):
    (one, two, _), clock = views
    for _ in range(30):
        clock.now += permits_module.POLL_S
        for lane in (one, two):
            for place in list(lane.owners)[:1]:
                lane.give(place, None)
            while lane.take(8, None) is not None:
                pass
    assert len(one.owners) + len(two.owners) == 8
    assert min(len(one.owners), len(two.owners)) >= 8 // 3


def test_a_stopped_process_that_waits_holds_up_nobody(permits, far):
    stopped = far()
    until(lambda: permits.others() == 1)
    places = [permits.try_take(2) for _ in range(2)]
    assert stopped.try_take(2) is None
    stopped.signal(signal.SIGSTOP)
    permits.give(places.pop())
    until(lambda: permits.try_take(2) is not None)


def test_with_fewer_places_than_processes_they_go_round(views):
    lanes, clock = views
    turns, holder = [], None
    for step in range(60):
        clock.now += permits_module.POLL_S
        for number in (0, 1, 2):
            if (place := lanes[number].take(1, None)) is not None:
                assert holder is None
                turns.append(number)
                holder, held = number, place
        if step % 4 == 3:
            lanes[holder].give(held, None)
            # The one that was served is the first to ask again, and yet the last to get.
            assert lanes[holder].take(1, None) is None
            holder = None
    assert len(turns) == 15
    assert all(len(set(turns[n : n + 3])) == 3 for n in range(len(turns) - 2)), turns


@pytest.mark.sampled(1)
@pytest.mark.quiet
@pytest.mark.parametrize("limit", [9, 2])
def test_four_busy_processes_use_the_places_as_well_as_one_and_all_alike(tmp_path, limit):
    used = {}
    for processes in (1, 4):
        folder = tmp_path / str(processes)
        folder.mkdir()
        start, books = context.Event(), [context.Array("d", 3, lock=False) for _ in range(processes)]
        crowd = [
            context.Process(target=work, args=(folder, limit, 2.0, seed, start, book))
            for seed, book in enumerate(books)
        ]
        for process in crowd:
            process.start()
        start.set()
        for process in crowd:
            process.join()
        assert [process.exitcode for process in crowd] == [0] * processes
        used[processes] = sum(book[0] for book in books)
    assert used[4] >= 0.9 * used[1]
    assert max(book[2] for book in books) <= 1.5, "nobody waits long for a first place"
    assert min(book[1] for book in books) >= max(book[1] for book in books) / 4


# -- objects, threads, forks ---------------------------------------------------------


def test_objects_of_one_process_share_like_processes_and_each_gives_back_its_own(tmp_path, permits, far):
    second = SharedPermits(tmp_path, name="lane")
    mine, other = permits.try_take(2), second.try_take(2)
    assert None not in {mine, other}
    assert permits.try_take(2) is None
    assert (permits.held_here(), second.held_here(), permits.held()) == (1, 1, 2)
    assert far().others() == 2
    if other != mine:
        permits.give(other)
    assert permits.held_here() == 1, "it is the other's to give"
    second.close()
    second.close()
    assert permits.held_here() == permits.held() == 1
    second.give(mine)
    permits.give(mine)
    permits.give(mine)
    assert permits.held() == 0
    with pytest.raises(ValueError, match="closed"):
        second.try_take(3)


def test_a_closed_lane_is_left_and_can_be_entered_again(tmp_path, far):
    other, first = far(), SharedPermits(tmp_path, name="lane")
    first.try_take(1)
    assert until(lambda: other.others() == 1)
    first.close()
    assert other.held() == first.held() == first.held_here() == 0
    until(lambda: other.others() == 0)
    again = SharedPermits(tmp_path, name="lane")
    assert again.try_take(1) is not None
    again.close()


def test_threads_take_no_place_twice(permits):
    held, seen, wrong = set(), [], []

    def take_and_give():
        for _ in range(300):
            if (place := permits.try_take(5)) is not None:
                if place in held:
                    wrong.append(place)
                held.add(place)
                seen.append(len(held))
                held.discard(place)
                permits.give(place)

    threads = [threading.Thread(target=take_and_give) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert max(seen) <= 5
    assert permits.held() == 0


FORK = """
    import json, os, sys, time
    from pathlib import Path
    from speechframe.old_batch.permits import SharedPermits

    permits = SharedPermits(Path(sys.argv[1]), name="lane")
    places = [permits.try_take(3), permits.try_take(3)]
    if os.fork() == 0:
        before = permits.held_here()
        for place in places:
            permits.give(place)
        taken = [permits.try_take(3) is not None for _ in range(2)]
        said = {"before": before, "taken": taken, "together": permits.held(), "others": permits.others()}
        print(json.dumps(said | {"pid": os.getpid()}), flush=True)
        sys.stdin.read()
        os._exit(0)
    time.sleep(60)
"""


def test_a_forked_child_has_none_of_its_parents_places_and_does_not_keep_them(tmp_path, permits):
    command = [sys.executable, "-c", textwrap.dedent(FORK), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        try:
            said = json.loads(parent.stdout.readline())
            expected = {"before": 0, "taken": [True, False], "together": 3, "others": 2}
            assert said == expected | {"pid": said["pid"]}
            until(lambda: permits.others() == 2)
            assert permits.try_take(3) is None
            parent.kill()
            parent.wait()
            until(lambda: permits.held() == 1)
        finally:
            parent.kill()


def test_a_fork_that_makes_no_calls_is_not_counted(permits, far):
    other = far()
    until(lambda: other.others() == 1)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reader, 1)
        os._exit(0)
    time.sleep(0.25)
    assert other.others() == 1
    os.write(writer, b"x")
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)


# -- the learned cap -----------------------------------------------------------------


def test_a_cap_learned_by_one_is_known_to_all(permits, far):
    other = far()
    assert permits.learned is None
    now = time.time()
    assert other.publish(15, now) == Learned(15, now, 1)
    until(lambda: permits.learned == Learned(15, now, 1))
    assert permits.publish(12, now + 0.001) == Learned(12, now + 0.001, 2)
    until(lambda: other.learned == Learned(12, now + 0.001, 2))
    newcomer = far()
    assert newcomer.learned == permits.learned


def test_the_latest_finding_counts_also_when_it_is_told_first(permits, far):
    other, now = far(), time.time()
    permits.publish(7, now)
    assert other.publish(3, now - 5) == Learned(7, now, 1)
    ahead = permits.publish(9, now + 3600)
    assert other.publish(4, now) == Learned(4, now, ahead.sequence + 1), "a clock was set back"


def test_who_counts_calls_takes_back_no_rate_that_another_has_just_found(tmp_path):
    mine, other, now = LearnedCap(tmp_path / "cap"), LearnedCap(tmp_path / "cap"), time.time() - 100
    paced = other.publish(5, now, rate=(20.0, 0.0, math.inf))
    assert mine.read() == paced == Learned(5, now, 1, rate=(20.0, 0.0, math.inf))
    assert mine.publish(3, now + 0.01).rate == paced.rate
    assert mine.publish(3, now + 0.02, rate=(0.0, 0.0, 0.0)).rate == (0.0, 0.0, 0.0)
    assert other.publish(3, now + 60).rate is None


def test_turns_are_a_gap_apart_and_a_share_for_each(tmp_path, monkeypatch):
    now_s = 1000.0
    monkeypatch.setattr(turns_module, "time", SimpleNamespace(monotonic_ns=lambda: round(1e9 * now_s)))
    each = [(Turns(), SharedFile(tmp_path / "lane")) for _ in range(2)]
    begun = []
    while now_s < 1002:
        # Always the same one asks first.
        begun += [
            (who, round(now_s, 4)) for who, (turns, file) in enumerate(each) if not turns.take(file, 0.1)
        ]
        now_s += 0.001
    assert [who for who, _ in begun] == [nth % 2 for nth in range(len(begun))]
    assert len(begun) >= 19
    assert all(later - sooner > 0.099 for (_, sooner), (_, later) in itertools.pairwise(begun))
    # Who ends, or was stopped, leaves its turns to the others.
    each[1][1].close()
    turns, file = each[0]
    assert turns.take(file, 0.1) <= 0.11
    now_s += 0.11
    assert not turns.take(file, 0.1)
    file.close()


def test_no_turns_are_kept_for_one_that_waits_for_none(tmp_path, monkeypatch):
    now_ms = 1_000_000
    monkeypatch.setattr(turns_module, "time", SimpleNamespace(monotonic_ns=lambda: 1_000_000 * now_ms))
    (mine, file), (turns, other) = [(Turns(), SharedFile(tmp_path / "lane")) for _ in range(2)]
    assert not turns.take(other, 0.1)
    begun = 0
    for now_ms in range(1_000_000, 1_001_951, 10):  # noqa: B007 - it is what the clock shows
        begun += not mine.take(file, 0.1)
    assert begun == 19
    # It comes back, and says so: it is first.
    assert turns.take(other, 0.1) == pytest.approx(0.05)
    now_ms = 1_002_001
    assert mine.take(file, 0.1) > 0
    assert not turns.take(other, 0.1)
    file.close()
    other.close()


def test_many_that_tell_at_once_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(learned_module, "_PUBLISH_S", 60.0)
    tellers, told = [LearnedCap(tmp_path / "cap") for _ in range(4)], []

    def tell(teller, cap):
        told.extend(teller.publish(cap, float(at)) for at in range(25))

    threads = [threading.Thread(target=tell, args=each) for each in zip(tellers, range(1, 5), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    findings = set(told)
    assert {finding.sequence for finding in findings} == set(range(1, len(findings) + 1))
    assert LearnedCap(tmp_path / "cap").read() == max(findings, key=lambda finding: finding.sequence)


def test_a_damaged_finding_is_none_and_the_next_one_counts(tmp_path, permits, far):
    permits.publish(5, time.time())
    (path,) = tmp_path.glob("*.cap")
    for damage in (
        b"",
        b"{",
        b"[]",
        b'{"cap": "x", "at": 1, "sequence": 1}',
        b'{"cap": 0, "at": 1, "sequence": 1}',
    ):
        path.write_bytes(damage)
        assert _Lane(tmp_path, "lane").learned() is None
        time.sleep(0.06)
        assert permits.learned.cap == 5
    permits.publish(6, time.time())
    assert far().learned.cap == 6


def test_one_that_was_stopped_while_it_told_keeps_no_other_from_telling(tmp_path, permits):
    permits.publish(5, time.time())
    (path,) = tmp_path.glob("*.cap")
    with FileLock(f"{path}.lock"):
        assert permits.publish(6, time.time()).cap == 6
    assert json.loads(path.read_bytes())["cap"] == 6


# -- where it is, and where it cannot be -----------------------------------------------


def test_the_folder_is_the_users_own_and_file_names_tell_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = shared_folder()
    assert folder == tmp_path / f"speechframe-{os.getuid()}"
    folder.chmod(0o755)
    assert shared_folder().stat().st_mode & 0o777 == 0o700
    named = SharedPermits(folder, name="api.example.com 0123abcd us-east other")
    named.publish(3, time.time())
    names = [path.name for path in folder.iterdir()]
    assert len(names) >= 2
    assert not any("example" in name or "0123abcd" in name for name in names)
    assert not any(path.stat().st_mode & 0o077 for path in folder.glob("*.lane"))
    named.close()


@pytest.fixture
def said(caplog, monkeypatch):
    monkeypatch.setattr(permits_module, "_said", set())
    caplog.set_level(logging.INFO, logger="speechframe.old_batch")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_link_in_place_of_the_folder_is_refused_with_one_line(tmp_path, monkeypatch, said):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"speechframe-{os.getuid()}").symlink_to("elsewhere")
    assert shared_folder() is None
    assert shared_folder() is None
    (line,) = said()
    assert "not shared" in line
    assert "link" in line


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch, said):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    true = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: true + 1)
    assert shared_folder() is None
    assert "another user" in said()[0]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, monkeypatch, said):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"speechframe-{os.getuid()}").touch()
    assert shared_folder() is None
    assert len(said()) == 1


@pytest.mark.parametrize("kind", ["none", "missing"])
def test_without_a_folder_the_process_counts_for_itself(tmp_path, said, kind):
    folder = None if kind == "none" else tmp_path / "no" / "such"
    first, second = SharedPermits(folder, name="alone"), SharedPermits(folder, name="alone")
    with contextlib.closing(first), contextlib.closing(second):
        assert [first.try_take(2) is None, second.try_take(2) is None, first.try_take(2) is None] == [
            False,
            False,
            True,
        ]
        assert (first.held(), first.held_here(), first.others()) == (2, 2, 0)
        first.publish(4, time.time())
        assert second.learned.cap == 4
    assert len(said()) == (kind == "missing")


def test_a_system_without_such_locks_imports_it_and_counts_for_itself():
    code = """
        import os, sys
        import speechframe.old_store.files, filelock, tempfile, asyncio, subprocess
        sys.platform, sys.modules["fcntl"] = "win32", None
        del os.register_at_fork, os.getuid
        from speechframe.old_batch import permits
        assert permits.shared_folder() is None
        alone = permits.SharedPermits(permits.shared_folder(), name="x")
        print(alone.try_take(1), alone.try_take(1))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr[-500:]) == ("0 None\n", "")


# -- hands and cost ---------------------------------------------------------------------


@given(st.integers(0, 2**59), st.integers(0, 2**50), st.booleans())
def test_a_raised_hand_is_read_from_its_offset(now_ns, waited_ns, is_below_share):
    since_ns = max(0, now_ns - waited_ns)
    hand = Hand.raised(now_ns, since_ns=since_ns, is_below_share=is_below_share)
    assert Hand.at(hand.offset) == hand
    assert 0 <= hand.offset < 2**63 - 1
    if waited_ns < 10**12:
        assert hand.since_ms == pytest.approx(since_ns / 1e6, abs=2)
    later = Hand.raised(now_ns + 25_000_000, since_ns=since_ns, is_below_share=False)
    assert later.offset > hand.offset, "newer hands lie behind older ones"


@pytest.mark.quiet
def test_a_place_costs_a_fraction_of_a_locked_file(tmp_path, permits, far):
    far()
    until(lambda: permits.others() == 1)
    lock = FileLock(tmp_path / "file.lock")

    def seconds(act, times):
        best = float("inf")
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(times):
                act()
            best = min(best, (time.perf_counter() - began) / times)
        return best

    def by_file():
        lock.acquire()
        lock.release()

    assert seconds(lambda: permits.give(permits.try_take(15)), 500) < seconds(by_file, 100) / 3
