"""How many calls are in flight, where and when: runs against simulated services, in simulated time."""

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rooms.scripted import Scripted
from tests.rooms.simulated import PASSED, REFUSED, UNAVAILABLE, Run, Service, World, refused

import speechframe as spf
from speechframe import LaneSpec
from speechframe.batch.lanes import Cap, Lane, Ticket, choose_lanes


def _lanes(world, folder, *specs, most=None):
    specs = specs or (LaneSpec("us-east", "us-east/key"),)
    return [Lane(spec, most, folder, world.clock, world.clock) for spec in specs]


def _unavailable_since(lanes):
    return max(lane.unavailable_since_s for lane in lanes)


def _used(service, runs):
    """Return which part of what the service allows was used, until the last run ended."""
    end = max(run.ended_s for run in runs)
    ends = [since for since, _ in service.caps[1:]] + [end]
    allowed = sum(cap * max(0.0, min(until, end) - since)
                  for (since, cap), until in zip(service.caps, ends, strict=True))  # fmt: skip
    return service.passed * service.latency_s / allowed


def _run(folder, service, world, *, rows, processes=1, **options):
    runs = [
        Run(world, _lanes(world, folder, **options), lambda _: service.call(), rows // processes,
            starts_s=0.09 * number)
        for number in range(processes)
    ]  # fmt: skip
    world.run()
    assert service.passed == rows
    return runs


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_a_cap_that_nobody_tells_is_learned(tmp_path, seed):
    world = World()
    service = Service(world, caps=[(0, 15)], seed=seed)
    runs = _run(tmp_path, service, world, rows=900, most=100)
    assert service.refused <= 0.02 * 900
    assert _used(service, runs) >= 0.95
    assert choose_lanes(_lanes(world, tmp_path))[0].workers_to_add == 15, "the next run knows it"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_a_cap_that_changes_is_followed(tmp_path, seed):
    world = World()
    service = Service(world, caps=[(0, 15), (10, 30), (20, 5), (30, 15)], seed=seed)
    runs = _run(tmp_path, service, world, rows=2990, most=100)
    assert service.refused <= 0.02 * 2990
    assert _used(service, runs) >= 0.9


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("processes", "refused", "used"), [(2, 0.045, 0.88), (4, 0.045, 0.88), (20, 0.045, 0.85)]
)
def test_processes_share_a_cap_that_nobody_tells(tmp_path, processes, refused, used):
    world = World()
    service = Service(world, caps=[(0, 15)])
    runs = _run(tmp_path, service, world, rows=1800, processes=processes, most=100)
    assert service.refused <= refused * 1800
    assert _used(service, runs) >= used
    assert min(run.ended_s for run in runs) >= 0.6 * max(run.ended_s for run in runs), "each gets its share"


def test_single_refusals_whatever_is_in_flight_hardly_lower_the_cap(tmp_path):
    world = World()
    service, numbers = Service(world), itertools.count()

    def call(_):
        return _after(0.001, refused(1.0)) if next(numbers) % 17 == 0 else service.call()

    run = Run(world, _lanes(world, tmp_path, most=15), call, rows=1500)
    world.run()
    assert run.ended_s <= 1.5 * 1500 * service.latency_s / 15


def test_max_concurrency_is_a_ceiling_and_no_first_guess_above_16(tmp_path):
    world = World()
    _run(None, service := Service(world, caps=[(0, 200)]), world, rows=60, most=3)
    assert service.most_in_flight == 3
    [lane] = _lanes(world, None, most=100)
    assert lane.workers_to_add <= 16
    assert choose_lanes(_lanes(world, None))[0].workers_to_add == 2
    assert choose_lanes(_lanes(world, None, LaneSpec("in", "in/key", guess=7)))[0].workers_to_add == 7


def test_a_published_cap_is_used_as_far_as_the_process_may_open_files(tmp_path, monkeypatch, capsys):
    published = LaneSpec("in", "in/key", published=1000)
    [lane] = _lanes(World(), None, published)
    assert lane.workers_to_add == 1000
    free = 400
    limits = (sum(1 for _ in Path("/dev/fd").iterdir()) + 64 + free, 4000)
    monkeypatch.setattr("speechframe.network.descriptors.resource.getrlimit", lambda _: limits)
    run = spf.run(Scripted(published), ["a", "b"], run_dir=tmp_path / "run")
    assert 0.9 * free / 2 <= run.estimate.concurrency <= free / 2
    assert "calls in flight in each lane, because it may open few files" in capsys.readouterr().err


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("rate", "burst", "latency_s", "processes"),
    [(40, 5, 0.003, 1), (10, 10, 0.5, 1), (40, 1, 0.2, 1), (40, 5, 0.1, 2)],
)
def test_a_limit_of_calls_per_second_is_paced(tmp_path, rate, burst, latency_s, processes):
    world = World()
    service = Service(world, rate=rate, burst=burst, latency_s=latency_s)
    runs = _run(tmp_path, service, world, rows=1000, processes=processes)
    assert service.refused <= 0.08 * 1000
    assert max(run.ended_s for run in runs) <= 1.8 * 1000 / rate


@given(st.integers(1, 30), st.lists(st.tuples(st.sampled_from("bpr"), st.integers(0, 40)), max_size=300))
def test_a_cap_stays_between_one_and_the_most(most, events):
    cap, in_flight = Cap(min(2, most), most), []
    for what, number in events:
        if what == "b" and len(in_flight) < cap.limit + cap.is_probing:
            in_flight.append(Ticket(0.0, len(in_flight), cap.passes, cap.resets))
        elif in_flight:
            ticket = in_flight.pop(number % len(in_flight))
            limit = cap.limit
            if what == "p":
                cap.note_pass(ticket)
            else:
                cap.note_refusal(ticket, len(in_flight), is_lone=False)
                assert cap.limit <= limit
        assert 1 <= cap.limit <= cap.limit + cap.is_probing <= most


# -- waits that the service asks for ------------------------------------------------------


def _after(seconds, outcome):
    yield seconds
    return outcome


def test_a_wait_that_one_call_is_told_binds_no_other_call(tmp_path):
    world, sent = World(), []

    def call(_):
        sent.append(world.now)
        return _after(0.05, refused(5.0) if len(sent) % 5 == 0 else PASSED)

    run = Run(world, _lanes(world, tmp_path, most=1), call, rows=180)
    world.run()
    assert run.ended_s <= 1.5 * 180 * 0.05


def test_a_long_wait_is_kept_and_the_next_run_says_until_when(tmp_path):
    world = World()
    lanes = _lanes(world, tmp_path)
    [lane] = lanes
    for _ in range(3):
        lane.end(lane.begin(0), refused(3600.0))
    assert (choose_lanes(lanes), lane.compute_wait_s()) == ([], 3600.0)
    lane.close()
    lanes = _lanes(world, tmp_path)
    [lane] = lanes
    assert (choose_lanes(lanes), lane.compute_wait_s(), lane.waits_until) == ([], 3600.0, 3600.0)
    other = _lanes(world, tmp_path, LaneSpec("us-east", "us-east/other-key"))
    assert choose_lanes(other)
    world.now = 3600.0
    assert (choose_lanes(lanes), lane.compute_wait_s(), lane.waits_until) == ([lane], 0.0, None)


def test_a_service_that_refuses_everything_is_asked_ever_more_rarely(tmp_path):
    world = World()
    run = Run(world, _lanes(world, tmp_path, most=16), lambda _: _after(0.001, REFUSED), rows=100)
    world.run(until_s=600)
    assert len(run.outcomes) <= 60


# -- regions ------------------------------------------------------------------------------


def _regions(world, calls, rows, *, most=4):
    specs = [LaneSpec(name, f"{name}/key") for name in calls]
    run = Run(world, _lanes(world, None, *specs, most=most), lambda name: calls[name](), rows)
    world.run()
    assert run.rows == 0
    return run


@pytest.mark.parametrize(("takes_s", "width", "most"), [(60.0, 4, 20), (0.001, 4, 30)])
def test_a_region_that_hangs_or_refuses_connections_gets_one_call_at_growing_gaps(takes_s, width, most):
    world, asked = World(), []

    def bad():
        asked.append(world.now)
        return _after(takes_s, UNAVAILABLE)

    run = _regions(world, {"good": lambda: _after(0.2, PASSED), "bad": bad}, rows=20_000)
    assert run.ended_s <= 1.01 * 20_000 * 0.2 / 4 + 60
    assert width + 1 < len(asked) <= most
    first, *others = [at for at in asked if at > 0.1 or takes_s > 1][width if takes_s > 1 else 0 :]
    gaps = [later - earlier for earlier, later in zip([first, *others], others, strict=False)]
    assert all(gap <= 300 + takes_s + 1 for gap in gaps)
    assert gaps[-1] >= 300


def test_a_fallback_is_used_only_while_no_other_lane_works():
    world = World()
    main, fallback = (
        LaneSpec("main", "main", published=2),
        LaneSpec("global", "global", published=2, is_fallback=True),
    )
    lanes = _lanes(world, None, main, fallback)
    main, fallback = lanes
    assert (choose_lanes(lanes), fallback.workers_to_add) == ([main], 0)
    tickets = [main.begin(0) for _ in range(3)]
    for ticket in tickets:
        main.end(ticket, UNAVAILABLE)
    assert (choose_lanes(lanes), fallback.workers_to_add) == ([fallback], 2)
    assert _unavailable_since(lanes) == math.inf
    world.now = 1.0
    fallback.end(fallback.begin(0), UNAVAILABLE)
    assert _unavailable_since(lanes) == 1.0
    main.end(main.begin(0), PASSED)
    assert (choose_lanes(lanes), _unavailable_since(lanes)) == ([main], math.inf)
