"""Fast, and not too fast: caps told and untold, over processes; waits that a service asks for; regions."""

import json
import subprocess
import sys
import time

import pytest
from accounts import billed, check_audio, price, statuses

import speechframe as spf
from forked import Program

PROGRAM = Program("""
import json, sys
import speechframe as spf
url, key, folder, lines = sys.argv[1:]
spf.generate(json.loads(lines), voice="en-US-nora", sample_rate=8000, run_dir=folder, progress=False,
             service=spf.Settings(base_url=url, api_key=key, profile="faulty"))
""")


def test_a_published_cap_is_never_passed(services, speak, lines):
    service = services(cap=5, publish_cap=True, latency=0.02)
    run = speak(service, lines(120))
    assert set(statuses(run)) == {"done"}
    books = service.books()
    assert (books.refused, books.most_in_flight) == (0, 5)


def test_max_concurrency_is_never_passed(services, speak, lines):
    service = services(latency=0.01)
    speak(service, lines(60), max_concurrency=3)
    assert service.books().most_in_flight == 3


@pytest.mark.quiet
def test_a_cap_that_nobody_tells_is_learned(services, speak, lines):
    service = services(cap=6, latency=0.03, retry_after=None)
    run = speak(service, lines(300))
    assert set(statuses(run)) == {"done"}
    books = service.books()
    assert books.refused <= 0.06 * 300
    assert books.utilisation["global"] > 0.6
    assert billed(service, lines(300)) == price(lines(300))


@pytest.mark.quiet
@pytest.mark.slow
def test_a_cap_that_falls_and_rises_is_followed(services, speak, lines):
    service = services(cap_plan=[(0, 10), (1.0, 2), (2.5, 10)], latency=0.03, retry_after=None)
    run = speak(service, lines(400))
    assert set(statuses(run)) == {"done"}
    assert service.books().refused <= 0.15 * 400


def until(condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def program(service, lines, folder):
    key = service.api_key.get_secret_value()
    return subprocess.Popen([sys.executable, "-c", PROGRAM, service.url, key, folder, json.dumps(lines)])


@pytest.mark.quiet
def test_processes_that_share_a_key_share_its_cap(services, lines, tmp_path):
    service = services(cap=6, latency=0.03, retry_after=None)
    texts = {name: lines(200, name) for name in ("one", "two")}
    processes = [program(service, texts[name], tmp_path / name) for name in texts]
    assert [process.wait(240) for process in processes] == [0, 0]
    for name in texts:
        run = spf.open_run(tmp_path / name)
        assert set(statuses(run)) == {"done"}
        check_audio(run)
    assert service.books().refused <= 0.1 * 400


def test_a_killed_process_holds_no_permit(services, lines, tmp_path):
    service = services(cap=2, publish_cap=True, latency=60)
    holder = program(service, lines(4, "holds"), tmp_path / "holds")
    until(lambda: service.books().in_flight == 2)
    service.set(latency=0)
    waiting = program(service, lines(4, "waits"), tmp_path / "waits")
    until((tmp_path / "waits" / "run.json").exists)
    time.sleep(1)
    assert service.books().requests == 2, "both permits were held by the other process"
    # Of the service's own: it works on the two calls of a caller that is gone.
    service.set(cap=None)
    holder.kill()
    holder.wait(60)
    assert waiting.wait(60) == 0
    assert statuses(spf.open_run(tmp_path / "waits")) == ["done"] * 4
    assert service.books().refused == 0


@pytest.mark.parametrize("form", ["seconds", "float", "date", "mixed"])
@pytest.mark.sampled(1)
def test_a_wait_that_the_service_asks_for_is_kept(services, speak, lines, form):
    service = services(retry_after=form, retry_after_s=1.0)
    texts = lines(12)
    service.set(scripts={texts[2]: ["429"], texts[5]: ["503"], texts[8]: ["429", "503"]})
    run = speak(service, texts, max_concurrency=4)
    assert statuses(run) == ["done"] * 12
    assert service.books().early_retries == 0


def test_a_row_that_is_told_to_wait_too_long_fails_at_once_and_names_the_wait(services, speak, lines):
    service = services()
    texts = lines(6)
    service.set(scripts={texts[2]: ["429:7200", "..."]})
    began = time.monotonic()
    run = speak(service, texts, patience_s=8.0, max_concurrency=2)
    assert time.monotonic() - began < 5
    assert statuses(run).count("done") == 5
    assert (
        "7200" in run.failed["error_message"].iloc[0].replace(",", "")
        or "2 h" in run.failed["error_message"].iloc[0]
    )


@pytest.mark.quiet
def test_a_wait_binds_the_row_that_was_told_it(services, speak, lines):
    service = services()
    texts = lines(16)
    service.set(scripts={text: ["429:1"] for text in texts[::2]})
    began = time.monotonic()
    run = speak(service, texts, max_concurrency=1)
    assert statuses(run) == ["done"] * 16
    assert service.books().early_retries == 0
    assert time.monotonic() - began < 4


@pytest.mark.quiet
def test_a_limit_of_calls_a_second_is_paced(services, speak, lines):
    service = services(rate=40, burst=5, retry_after=None)
    run = speak(service, lines(160))
    assert set(statuses(run)) == {"done"}
    assert service.books().refused <= 0.3 * 160


def test_regions_work_on_one_queue_and_one_that_is_down_rests_and_comes_back(services, speak, lines):
    service = services(regions=["us-east", "eu-central"], cap=4, publish_cap=True, latency=0.02,
                       down_regions=["us-east"], retry_after_s=0.2, retry_after="float")  # fmt: skip
    texts = lines(100)
    live = speak(service, texts, wait=False)
    for number, _ in enumerate(live.outcomes()):
        if number == 10:
            service.set(down_regions=[])
    run = live.wait()
    assert statuses(run) == ["done"] * 100
    check_audio(run)
    assert billed(service, texts) == price(texts)
    assert service.books().most_in_flight_of["us-east"] >= 2, "the region that came back got no rows"


def test_a_service_that_answers_its_health_page_is_slow_and_not_gone(services, speak, lines):
    service = services(faults={"hang": 1.0}, idempotent=False)
    run = speak(service, lines(9), timeout_s=0.5, patience_s=1.5, max_concurrency=3)
    # Every row was sent: the run did not stop as unreachable after `patience_s`.
    assert statuses(run) == ["charged_unknown"] * 9


@pytest.mark.parametrize("other", ["silent", "refuses connections"])
def test_a_region_that_hangs_or_refuses_holds_few_rows(services, silent, lines, tmp_path, other):
    service = services(latency=0.01, idempotent=False, limits_page=False)
    texts = lines(80)
    bad = silent if other == "silent" else "http://127.0.0.1:9"
    settings = spf.Settings(
        api_key=service.api_key, profile="faulty", regions=["us-east", "eu-central"],
        region_urls={"us-east": service.url, "eu-central": bad},
    )  # fmt: skip
    run = spf.generate(texts, voice="en-US-nora", sample_rate=8000, run_dir=tmp_path / "run", progress=False,
                       timeout_s=1.5, patience_s=60.0, max_concurrency=4, service=settings)  # fmt: skip
    found = statuses(run)
    assert set(found) <= {"done", "charged_unknown"}
    assert found.count("charged_unknown") <= (4 if other == "silent" else 0)


@pytest.mark.slow
def test_a_long_wait_is_remembered_by_the_next_run(services, speak, lines, tmp_path):
    service = services(idempotent=False, limits_page=False)
    service.set(scripts={"*": ["429:3600", "..."]})
    speak(service, lines(3), run_dir=tmp_path / "first", patience_s=2.0, max_concurrency=1)
    before = service.books().requests
    run = speak(service, lines(3, "others"), run_dir=tmp_path / "second", patience_s=2.0)
    assert service.books().requests == before
    assert set(statuses(run)) != {"done"}


@pytest.mark.quiet
@pytest.mark.slow
def test_a_region_that_hangs_now_and_again_holds_as_few_rows_as_its_width(services, lines, tmp_path):
    knobs = {"cap": 4, "publish_cap": True, "idempotent": False}
    good, bad = services(latency=0.1, **knobs), services(faults={"hang": 1.0}, **knobs)
    settings = spf.Settings(
        api_key=good.api_key, profile="faulty", regions=["us-east", "eu-central"],
        region_urls={"us-east": good.url, "eu-central": bad.url},
    )  # fmt: skip
    texts = lines(200)
    run = spf.generate(texts, voice="en-US-nora", sample_rate=8000, run_dir=tmp_path / "run", progress=False,
                       timeout_s=0.5, patience_s=60.0, service=settings)  # fmt: skip
    found = statuses(run)
    assert set(found) <= {"done", "charged_unknown"}
    # Its width at once, and then one call that probes it, at doubling gaps.
    assert found.count("charged_unknown") <= 4 + 5


def test_the_estimate_knows_the_speed_of_each_voice(services, speak, lines, tmp_path):
    service = services(publish_cap=True, cap=2)
    texts = lines(4)
    for voice, latency_s in (("en-US-nora", 0.02), ("en-GB-finley", 1.5)):
        service.set(latency=latency_s)
        speak(service, texts, voice=voice, run_dir=tmp_path / voice)

    def estimate_s(*voices):
        longer = [f"Again {text}" for text in texts]
        voice = [voices[number % len(voices)] for number in range(len(longer))]
        planned = speak(service, longer, voice=voice, run_dir=tmp_path / "-".join(voices), dry_run=True)
        return planned.estimate.seconds

    fast_s, slow_s, both_s = estimate_s("nora"), estimate_s("finley"), estimate_s("nora", "finley")
    assert slow_s > 3 * fast_s
    assert fast_s < both_s < slow_s
