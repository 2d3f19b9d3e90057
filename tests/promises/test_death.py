"""A process may die at any file operation of a run: nothing that was paid is lost, and nothing is paid twice."""

from collections import Counter
from math import isclose

import pytest
import soundfile as sf
from deaths import Deaths

import speechframe as spf
from speechframe.testing import FaultyService, tag_in, tag_of

IN_FLIGHT = 2
TOGETHER = {"max_concurrency": IN_FLIGHT, "max_attempts": 3}
OPTIONS = {
    "generate": {"voice": "en-US-nora", "sample_rate": 8000, **TOGETHER},
    "translate": {"targets": ["pt-BR"], **TOGETHER},
    "change_voice": {"voice": "en-US-nora", **TOGETHER},
}
PARTS = 38
"""Of the full matrix, so that each part has all three kinds of death."""
STRIDE = 38
PACK_PARTS = 4
"""Of the other verbs every 38th point in each part: again all three kinds of death."""


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "idempotent"])
def dying(request, tmp_path_factory):
    """Processes that die, the service they speak to, and whether it bills repeats."""
    folder = tmp_path_factory.mktemp("deaths")
    with FaultyService(idempotent=request.param, limits_page=request.param) as service:
        key = service.api_key.get_secret_value()
        with Deaths(folder, {"base_url": service.url, "api_key": key}) as deaths:
            yield deaths, service, request.param


def lines_of(service, name, scripts):
    """Return five lines for a run, two of them equal, some of them with a script."""
    name = name.replace("_", " ")  # an identifier is not translated, and the service gets a token for it
    lines = [f"{name} alpha.", f"{name} beta.", f"{name} gamma goes on.", f"{name} alpha.", f"{name} delta."]
    service.set(scripts={lines[number]: steps for number, steps in scripts.items()})
    return lines


def die_and_go_on(deaths, verb, table, folder, points):
    """Make a run for each point, dying there and in every second also while it recovers; yield what came of it."""
    for number, (at, when) in enumerate(points):
        run_dir = folder / f"{at}-{when}" / "run"
        run_dir.parent.mkdir()
        lines = table(f"{folder.name} {at} {when}")
        yield "begin", lines, run_dir, 0, ""
        killed = int(deaths.run(verb, lines, run_dir, at=at, when=when, **OPTIONS[verb])[0])
        if killed and number % 2 == 0:
            killed += deaths.run(verb, lines, run_dir, at=1 + at // 4, when=when, **OPTIONS[verb])[0]
        deaths.run(verb, lines, run_dir, **OPTIONS[verb])
        yield "end", lines, run_dir, killed, f"death {when} operation {at}"


def points_of(deaths, verb, lines, folder):
    """Return all points at which a run that is not disturbed can die, and some behind its last one."""
    (folder / "whole").mkdir()
    died, count = deaths.run(verb, lines, folder / "whole" / "run", **OPTIONS[verb])
    assert not died
    assert count > 10
    return [(at, when) for at in range(1, count + 4) for when in ("before", "middle", "after")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_every_file_operation(dying, tmp_path, part):
    check_lines(dying, "generate", tmp_path, slice(part, None, PARTS))


def check_lines(dying, verb, folder, some):
    deaths, service, honours = dying
    scripts = {1: ["500:0.05"], 2: ["400", "..."]}
    if verb == "translate":
        # When a pack is cut off and its repeat is refused, none of its texts is known to be unpaid.
        scripts = {} if honours else {2: ["400", "..."]}

    def table(name):
        return lines_of(service, f"{some.start} {name}", scripts)

    points = points_of(deaths, verb, table("whole"), folder)[some]
    seen, before = Counter(), None
    for stage, lines, run_dir, killed, note in die_and_go_on(deaths, verb, table, folder, points):
        if stage == "begin":
            before = service.books()
        else:
            seen[killed] += 1
            check(service, honours, before, run_dir, lines, killed, is_refused=2 in scripts, note=note)
    assert {1, 2} <= set(seen)


def check(service, honours, before, run_dir, lines, killed, *, is_refused, note):
    """See that each line is there once, as it is, and that the ledger tells what was billed."""
    run = spf.open_run(run_dir)
    frame = run.to_pandas(audio=True)
    assert list(frame["text"]) == lines, note
    books = service.books()
    for row in frame.itertuples():
        is_bad = is_refused and row.text == lines[2]
        expected = {"failed" if is_bad else "done"}
        if is_bad or not honours:
            # A call that was cut off may have been billed: no later answer can tell, not even a refusal.
            expected.add("charged_unknown")
        assert row.status in expected, (note, row.status, row.error_message)
        if row.status == "done":
            is_own(row, note)
        assert books.billed.get(tag_of(row.text), (0, 0))[0] <= 1, f"{note}: {row.text} was paid twice"
    unknown = set(frame.loc[frame["status"] == "charged_unknown", "text"])
    if run.operation == "generate":
        assert len(unknown) <= 2 * IN_FLIGHT * killed, note
    billed = books.billed_characters - before.billed_characters
    spent = run.ledger["credits"].sum()
    assert abs(billed - spent) <= sum(map(len, unknown)), note


def is_own(row, note):
    if hasattr(row, "translated_text"):
        assert row.translated_text.startswith(f"{row.text.split()[0]} "), note
        assert row.text.split()[-1].strip(".")[::-1] in row.translated_text, note
    else:
        assert tag_in(row.audio["bytes"]) == tag_of(row.text), note


@pytest.fixture(scope="module")
def changing(service, tmp_path_factory):
    """Processes that die while clips get another voice."""
    with Deaths(tmp_path_factory.mktemp("changing"), {
        "base_url": service.url, "api_key": service.api_key.get_secret_value(),
    }) as deaths:  # fmt: skip
        yield deaths


class TestDeathOfOtherVerbs:
    """In a class: so that these run beside the matrix, not after it."""

    @pytest.mark.sampled(1)
    @pytest.mark.parametrize("part", range(PACK_PARTS))
    def test_death_at_file_operations_of_packs(self, dying, tmp_path, part):
        check_lines(dying, "translate", tmp_path, slice(part * STRIDE // PACK_PARTS, None, STRIDE))

    @pytest.mark.slow
    def test_death_at_file_operations_of_a_voice_change(self, changing, service, tmp_path):
        clips = []
        for number in range(3):
            clip = spf.say(
                f"{number} good mornings.", voice="en-US-hank", sample_rate=24000, service=service.settings
            )
            clips.append(str(clip.save(tmp_path / f"{number}.wav")))
        points = points_of(changing, "change_voice", clips, tmp_path)[:: STRIDE // 2]
        price = spf.open_run(tmp_path / "whole" / "run").ledger["credits"].sum()
        seen = Counter()
        for stage, _, run_dir, killed, note in die_and_go_on(
            changing, "change_voice", lambda _: clips, tmp_path, points
        ):
            if stage == "end":
                seen[killed] += 1
                run = spf.open_run(run_dir)
                assert list(run.to_pandas()["status"]) == ["done"] * 3, note
                assert isclose(run.ledger["credits"].sum(), price), note
                for number, given in enumerate(clips):
                    assert run.clip(number).audio_seconds == pytest.approx(
                        sf.info(given).duration, rel=0.1
                    ), note
        assert {1, 2} <= set(seen)
