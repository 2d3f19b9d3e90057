"""SIGKILL in the middle of translations: nothing lost, nothing billed twice, packs go again as they were."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from babel import Babel, check_books, translated

import speechframe as spf

TEXTS = [f"Round and round goes line {i}, and nobody stops it." for i in range(60)]
TARGETS = ["fr-FR", "es-ES"]
CLIENT = """
import json, sys
import speechframe as spf
from pydantic import SecretStr
from speechframe.settings import Settings
order = json.load(sys.stdin)
service = Settings(api_key=SecretStr("sk-babel"), base_url=order["url"], profile="babel")
spf.translate(order["texts"], targets=order["targets"], service=service, run_dir=order["folder"], progress=False,
              max_concurrency=3)
"""


@pytest.fixture
def babel():
    server = Babel(limits={"max_texts_per_call": 7})
    server.up()
    yield server
    server.down()


def start(server, folder):
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    order = {"texts": TEXTS, "targets": TARGETS, "folder": str(folder), "url": server.settings.base_url}
    client.stdin.write(json.dumps(order).encode())
    client.stdin.close()
    return client


def kill(client):
    client.send_signal(signal.SIGKILL)
    client.wait(60)
    client.stderr.close()


def finish(server, folder):
    run = spf.translate(
        TEXTS, targets=TARGETS, service=server.settings, run_dir=folder, progress=False, max_concurrency=3
    )
    found = run.to_pandas()
    assert run.status == "finished"
    assert set(found["status"]) == {"done"}
    assert found["translated_text"].tolist() == [translated(t, x) for t in TEXTS for x in TARGETS]
    # Every text was billed once, whatever was sent how often.
    assert Counter(server.billed.values()) == {1: len(TEXTS) * len(TARGETS)}
    ledger = check_books(run, server)
    done = ledger[ledger["status"] == "done"]
    assert done["request_key"].nunique() == len(done) == len(TEXTS) * len(TARGETS)
    return run


def test_packs_in_flight_when_the_client_was_killed_go_again_as_they_were(babel, tmp_path):
    folder = tmp_path / "run"
    babel.forever = "hang billed"
    client = start(babel, folder)
    babel.until(lambda s: len(s.billed) == 21)
    kill(client)
    before = {s.key: s.texts for s in babel.seen}
    assert len(before) == 3
    babel.forever = "ok"
    run = finish(babel, folder)
    again = {s.key: s.texts for s in babel.seen[3:]}
    assert before.items() <= again.items()
    assert (run.ledger["status"] == "charged_unknown").sum() == 21


@pytest.mark.slow
def test_killed_again_and_again_with_the_same_packs_in_flight_they_are_billed_once(babel, tmp_path):
    folder = tmp_path / "run"
    babel.forever = "hang billed"
    for times in (1, 2, 3):
        client = start(babel, folder)
        babel.until(lambda s, sends=3 * times: len(s.seen) == sends)
        babel.until(lambda s: len(s.billed) == 21)
        kill(client)
    assert len({s.key for s in babel.seen}) == 3
    babel.forever = "ok"
    finish(babel, folder)


@pytest.mark.slow
def test_a_client_killed_between_two_tries_of_a_pack_still_knows_it(babel, tmp_path):
    folder = tmp_path / "run"
    # Answers that cannot be read, over and over: the client waits before it asks again.
    babel.forever = "broken json"
    client = start(babel, folder)
    babel.until(lambda s: len(s.seen) >= 9)
    kill(client)
    babel.forever = "ok"
    finish(babel, folder)


@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_lost_and_nothing_is_billed_twice(babel, tmp_path):
    seed = time.time_ns()
    draw = random.Random(seed)
    babel.delay_s = 0.02
    for number in range(12):
        folder = tmp_path / f"run-{number}"
        babel.seen.clear(), babel.billed.clear(), babel.paid_keys.clear()
        wanted = draw.randint(1, 17)
        client = start(babel, folder)
        with contextlib.suppress(AssertionError):
            babel.until(lambda s, n=wanted: len(s.seen) >= n)
        time.sleep(draw.random() * 0.03)
        kill(client)
        babel.until(lambda s: not s.in_flight)
        try:
            finish(babel, folder)
        except AssertionError as error:
            error.add_note(f"round {number} of seed {seed}, killed after {wanted} calls; {Path(folder)}")
            raise
