"""Reads take no lock: they are answered whoever writes, and see all that was written before."""

import asyncio
import contextlib
import sqlite3

import pytest
from dub_lab import PROJECTS, create, project, ready, status

from speechframe.local.service.books.database import FILE_NAME, Database
from speechframe.spec import chosen


async def test_reads_are_answered_while_another_process_holds_the_write_lock(dubbing, http_to):
    speech, dub = http_to(dubbing, "speech"), http_to(dubbing, "dub")
    project_id, job_id = await project(dub), (await create(dub)).json["job_id"]
    await ready(dub, job_id)
    link = (await speech.generate()).json["audioFile"]
    token = (await speech.get("/v1/auth/token")).json["token"]
    with contextlib.closing(sqlite3.connect(dubbing.data / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # A write of the service itself that waits, too.
        writing = asyncio.create_task(speech.generate())
        # A third of the time that a transaction waits for the lock.
        async with asyncio.timeout(10):
            assert (await speech.remaining()) > 0
            assert (await status(dub, job_id))["status"] == "FAILED"
            assert project_id in [one["project_id"] for one in (await dub.get(PROJECTS)).json["projects"]]
            assert (await speech.get(link)).status == 200
            headers = {chosen.TOKEN_HEADER: token}
            assert (await speech.get("/v1/speech/voices", key=None, headers=headers)).status == 200
        assert not writing.done()
        other.execute("ROLLBACK")
        assert (await writing).status == 200


async def test_a_read_sees_what_was_written_before_and_cannot_write(tmp_path):
    database = Database(tmp_path / FILE_NAME)
    with contextlib.closing(database):
        for number in range(20):
            await database.run(
                lambda c, name=str(number): c.execute("INSERT INTO facts VALUES (?, 0)", (name,))
            )
            assert await database.read(lambda c: c.execute("SELECT COUNT(*) FROM facts").fetchone()) == (
                number + 1,
            )
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await database.read(lambda c: c.execute("DELETE FROM facts"))
        assert await database.read(lambda c: c.execute("SELECT COUNT(*) FROM facts").fetchone()) == (20,)
