"""Two callers with one folder: each gets its own rows, or a clear error, and nothing is paid twice."""

import asyncio
import contextlib

import pytest

import speechframe as spf
from speechframe import aio, errors
from speechframe.old_batch import drive, driver
from speechframe.old_batch.run import Run
from speechframe.old_store import RunFolder
from speechframe.testing import FaultyService, tag_of

MINE = [f"mine {number}" for number in range(3)]
YOURS = [f"yours {number}" for number in range(5)]


@pytest.fixture
def slow_to_begin(monkeypatch):
    """The first call waits, once it is planned, until it is told to go on."""
    carry_out = drive.carry_out
    planned, go_on = asyncio.Event(), asyncio.Event()

    async def first_waits(*args):
        if not planned.is_set():
            planned.set()
            await go_on.wait()
        return await carry_out(*args)

    monkeypatch.setattr(drive, "carry_out", first_waits)
    return planned, go_on


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_new", [True, False])
async def test_a_table_that_is_not_the_run_s_any_more_is_not_sent(tmp_path, slow_to_begin, is_new):
    planned, go_on = slow_to_begin
    with FaultyService(idempotent=False) as service:

        async def make(texts):
            return await aio.generate(
                texts, voice="nora", run_dir=tmp_path / "run", service=service, progress=False
            )

        if not is_new:
            planned.set()
            await make(["the first row"])
            planned.clear()
        mine = asyncio.create_task(make(MINE))
        await planned.wait()
        yours = await make(YOURS)
        go_on.set()
        with pytest.raises(errors.StoreError, match=r"another table .* call again"):
            await mine
        assert yours.to_pandas()["status"].tolist() == ["done"] * 5
        assert service.books().requests == 5 + (not is_new)
        again = await make(MINE)
        assert again.to_pandas()[["text", "status"]].values.tolist() == [[text, "done"] for text in MINE]
        assert service.books().duplicates == {}


async def test_the_same_table_twice_is_made_once(tmp_path, slow_to_begin):
    planned, go_on = slow_to_begin
    with FaultyService(idempotent=False) as service:

        async def make():
            return await aio.generate(
                MINE, voice="nora", run_dir=tmp_path / "run", service=service, progress=False
            )

        first = asyncio.create_task(make())
        await planned.wait()
        second = await make()
        go_on.set()
        assert (await first).stats["done"] == second.stats["done"] == 3
        assert service.books().requests == 3


async def test_one_of_many_gets_a_new_folder_and_the_others_hear_why_not(tmp_path):
    callers = [[f"caller {number} row {row}" for row in range(3)] for number in range(6)]
    with FaultyService(latency=0.02) as service:

        async def make(texts):
            return await aio.generate(
                texts, voice="nora", run_dir=tmp_path / "run", service=service, progress=False
            )

        found = await asyncio.gather(*map(make, callers), return_exceptions=True)
        billed = service.books().billed
    made = [(run, texts) for run, texts in zip(found, callers, strict=True) if isinstance(run, Run)]
    refused = [one for one in found if isinstance(one, errors.StoreError)]
    assert 1 <= len(made) == 6 - len(refused) < 6
    assert all("call again" in str(one) or isinstance(one, errors.RunLocked) for one in refused)
    for run, texts in made:
        assert run.status == "finished"
        assert run.to_pandas()["text"].tolist() == texts
    sent = {text for _, texts in made for text in texts}
    assert set(billed) == {tag_of(text) for text in sent}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("holds", [False, True])
def test_another_caller_s_table_is_left_alone_by_takes_that_are_made_by_themselves(
    faulty, speak, monkeypatch, holds
):
    """Between the first round of a run and its retakes, somebody gives the folder another table."""
    mine, yours = ["A line that is suspect, and not short.", "The other."], ["Yours, one.", "Yours, two."]
    faulty.audio_for = {mine[0]: "Hm."}
    find, held = driver.suspect_takes, contextlib.ExitStack()

    def found(folder, most):
        takes = find(folder, most)
        if faulty.sends(yours[0]) == 0:
            theirs = spf.resume(folder.path, table=yours, service=faulty.settings, progress=False)
            if holds:
                held.enter_context(RunFolder.open(theirs.path).lock())
        return takes

    monkeypatch.setattr(driver, "suspect_takes", found)
    with held:
        first = speak(faulty, mine, max_retakes=2)
    now = spf.open_run(first.path)
    assert now.to_pandas()[["text", "status"]].to_numpy().tolist() == [[text, "done"] for text in yours]
    assert [entry.rows for entry in now._folder.tables()] == [2, 2]
    assert faulty.sends(mine[0]) == 1
    assert now._folder.verify() == []
    # The call is its own again, and goes on with its takes.
    again = speak(faulty, mine, max_retakes=2).to_pandas()
    assert again["text"].tolist() == mine
    assert again["take"].tolist() == [2, 0]
