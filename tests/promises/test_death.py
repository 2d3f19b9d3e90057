"""A process may die at any file operation of a run: nothing that was paid is lost, and nothing is paid twice."""

from collections import Counter

import pytest
from deaths import Deaths

import speechframe as spf
from speechframe.spec.billing import billed_characters
from speechframe.testing import FaultyService, tag_in, tag_of

pytestmark = pytest.mark.slow

RATE_HZ = 8000
IN_FLIGHT = 2
OPTIONS = {"voice": "en-US-nora", "sample_rate": RATE_HZ, "max_concurrency": IN_FLIGHT, "max_attempts": 3}
PARTS = 13
POINTS = 60
"""File operations of such a run, and some more: at a point behind its last one it ends well."""


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "idempotent"])
def dying(request, tmp_path_factory):
    """Processes that die, and the service they speak to."""
    folder = tmp_path_factory.mktemp("deaths")
    with FaultyService(idempotent=request.param, limits_page=request.param) as service:
        key = service.api_key.get_secret_value()
        with Deaths(folder, {"base_url": service.url, "api_key": key}) as deaths:
            yield deaths, service, request.param


def lines_of(service, name):
    """Return five lines for a run: one is refused, one has to be sent twice, two are equal."""
    lines = [f"{name} alpha.", f"{name} beta.", f"{name} gamma goes on.", f"{name} alpha.", f"{name} delta."]
    service.set(scripts={lines[1]: ["500"], lines[2]: ["400", "..."]})
    return lines


def points(part):
    """Return every thirteenth point: so each part has all three kinds of death."""
    every = [(at, when) for at in range(1, POINTS + 1) for when in ("before", "middle", "after")]
    return every[part::PARTS]


@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_file_operation(dying, tmp_path, part):
    deaths, service, honours = dying
    seen = Counter()
    for number, (at, when) in enumerate(points(part)):
        name = f"{part} {at} {when}"
        folder = tmp_path / name.replace(" ", "-")
        lines = lines_of(service, name)
        before = service.books()
        died, _ = deaths.run("generate", lines, folder, at=at, when=when, **OPTIONS)
        killed = int(died)
        if died and number % 3 == 0:
            killed += deaths.run("generate", lines, folder, at=1 + at // 2, when=when, **OPTIONS)[0]
        deaths.run("generate", lines, folder, **OPTIONS)
        seen[killed] += 1
        check(service, honours, before, folder, lines, killed, note=f"death {when} operation {at}")
    assert {1, 2} <= set(seen)


def check(service, honours, before, folder, lines, killed, *, note):
    """See that each line is there once, as it is, and that the ledger tells what was billed."""
    run = spf.open_run(folder)
    frame = run.to_pandas(audio=True)
    assert list(frame["text"]) == lines, note
    books = service.books()
    for row in frame.itertuples():
        is_refused = row.text == lines[2]
        expected = {"failed" if is_refused else "done"}
        if is_refused or not honours:
            # A call that was cut off may have been billed: no later answer can tell, not even a refusal.
            expected.add("charged_unknown")
        assert row.status in expected, (note, row.status, row.error_message)
        if row.status == "done":
            assert tag_in(row.audio["bytes"]) == tag_of(row.text), note
        assert books.billed.get(tag_of(row.text), (0, 0))[0] <= 1, f"{note}: {row.text} was paid twice"
    unknown = set(frame.loc[frame["status"] == "charged_unknown", "text"])
    assert len(unknown) <= 2 * IN_FLIGHT * killed, note
    billed = books.billed_characters - before.billed_characters
    spent = run.ledger["credits"].sum()
    assert (
        billed - sum(map(billed_characters, unknown))
        <= spent
        <= billed + sum(map(billed_characters, unknown))
    ), note
