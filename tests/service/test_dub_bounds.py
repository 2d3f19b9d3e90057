"""Bounds of dubbing: waiting jobs of a key, projects, and rows and files that another release left."""

import asyncio
import logging
import sqlite3
import time

import pytest
from dub_lab import CREATE, CREATE_PROJECT, PROJECTS, create, project, ready
from pydantic import SecretStr

from speechframe.local.service.background import Background
from speechframe.local.service.books import keys
from speechframe.local.service.books.database import FILE_NAME, Database, connect
from speechframe.local.service.books.keys import KeyRing
from speechframe.local.service.config import KeySpec, ServiceConfig
from speechframe.local.service.dubbing.queue import DubQueue
from speechframe.local.service.dubbing.webhooks import Webhooks
from speechframe.spec import chosen
from speechframe.spec.endpoints import get_endpoint

ELSEWHERE = "a service process elsewhere"
INSERT = (
    "INSERT INTO dubs (job_id, key_hash, made_at, priority, link, status, owner, job) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


@pytest.fixture
def http(dubbing, http_to):
    return http_to(dubbing, "full")


@pytest.fixture
def rows(dubbing):
    connection = sqlite3.connect(dubbing.data / FILE_NAME, isolation_level=None)
    yield connection
    connection.close()


def insert(rows, job_id, key_hash, *, status="QUEUED", priority="NORMAL", owner=None, job="{}"):
    rows.execute(INSERT, (job_id, key_hash, time.time(), priority, f"link-{job_id}", status, owner, job))


async def test_a_key_with_a_hundred_jobs_is_refused_before_its_upload_is_read(http, dubbing, rows):
    headers = {chosen.IDEMPOTENCY_HEADER: "before the queue was full"}
    first = (await create(http, headers=headers)).json["job_id"]
    (key_hash,) = rows.execute("SELECT key_hash FROM dubs WHERE job_id = ?", (first,)).fetchone()
    rows.execute("BEGIN")
    for number in range(chosen.MAX_UNFINISHED_DUB_JOBS):
        insert(rows, f"full{number}", key_hash, status="IN_PROGRESS", owner=ELSEWHERE)
    rows.execute("COMMIT")
    folders = set((dubbing.data / "dubs").iterdir())
    # Of the body nothing is sent.
    host, port = dubbing.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {CREATE} HTTP/1.1\r\nHost: x\r\n{chosen.API_KEY_HEADER}: full\r\nContent-Length: 1000000\r\n"
    )
    writer.write(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
    writer.close()
    answer = await create(http)
    assert (answer.status, answer.code) == (503, "UNAVAILABLE")
    assert " dubbing jobs that wait or are under way; allowed: 100; send the request again" in answer.message
    assert int(answer.headers["Retry-After"]) > 0
    assert set((dubbing.data / "dubs").iterdir()) <= folders
    # A repeat is answered, and other keys are served.
    assert (await create(http, headers=headers)).json["job_id"] == first
    assert (await create(http, key="dub")).status == 200
    rows.execute("DELETE FROM dubs WHERE owner = ?", (ELSEWHERE,))
    assert (await create(http)).status == 200
    told = (await http.get("/v1/limits")).json["dubbing"]
    assert (told["waiting_jobs"], told["characters_per_second"]) == (
        chosen.MAX_UNFINISHED_DUB_JOBS,
        chosen.MAX_DUB_CHARACTERS_PER_SECOND,
    )


async def test_a_project_beyond_the_bound_replaces_one_that_nobody_has_used_for_long(http, rows):
    used = await project(http, name="in use")
    (key_hash,) = rows.execute("SELECT key_hash FROM dub_projects WHERE project_id = ?", (used,)).fetchone()
    (count,) = rows.execute("SELECT COUNT(*) FROM dub_projects WHERE key_hash = ?", (key_hash,)).fetchone()
    rows.execute("BEGIN")
    rows.executemany(
        "INSERT INTO dub_projects (project_id, key_hash, project, used_at) VALUES (?, ?, '{}', ?)",
        [(f"p{number}", key_hash, time.time()) for number in range(chosen.MAX_DUB_PROJECTS - count)],
    )
    rows.execute("COMMIT")
    body = {"name": "more", "dubbing_type": "QA", "target_locales": ["pt-BR"]}
    answer = await http.ask("POST", CREATE_PROJECT, json=body)
    assert (answer.status, "this key has 1,000 projects; allowed: 1,000" in answer.message) == (400, True)
    long_ago = time.time() - chosen.PROJECT_JOB_LIFETIME_SECONDS - 60
    rows.execute("UPDATE dub_projects SET used_at = ? WHERE project_id = 'p3'", (long_ago,))
    made = await project(http, name="more")
    left = [
        name
        for (name,) in rows.execute("SELECT project_id FROM dub_projects WHERE key_hash = ?", (key_hash,))
    ]
    assert {used, made} <= {*left}
    assert "p3" not in left
    # Those that cannot be read are left out, and none of the others.
    seen, place = [], ""
    while place is not None:
        page = (await http.get(f"{PROJECTS}?limit=100{place and '&next=' + place}")).json
        seen += [each["project_id"] for each in page["projects"]]
        place = page.get("next")
    assert (seen, len(left)) == ([used, made], chosen.MAX_DUB_PROJECTS)


def bad_rows(rows, key_hash):
    """Put records of another release, and damaged ones, into a database; return all of the first kind."""
    insert(rows, "of another release", key_hash, job='{"job_id": "of another release", "layout": 2}')
    insert(rows, "no JSON", key_hash, job="\x00")
    insert(rows, "no UTF-8", key_hash)
    rows.execute("UPDATE dubs SET job = CAST(x'ff' AS TEXT) WHERE job_id = 'no UTF-8'")
    insert(rows, "unknown priority", key_hash, priority="URGENT")
    insert(rows, "unknown status", key_hash, status="DREAMING")
    insert(rows, "ended", key_hash, status="COMPLETED")
    rows.execute(
        "INSERT INTO dub_projects (project_id, key_hash, project) VALUES ('bad project', ?, '[]')",
        (key_hash,),
    )
    rows.execute("INSERT INTO webhooks VALUES ('bad webhook', CAST(7 AS BLOB), 7, 7, 0, 0, x'')")
    rows.execute("INSERT INTO owners VALUES ('a folder', 1, 0)")
    return jobs(rows)


def jobs(rows):
    query = "SELECT job_id, status, owner, CAST(job AS BLOB) FROM dubs WHERE link LIKE 'link-%' ORDER BY 1"
    return rows.execute(query).fetchall()


async def test_a_start_and_the_queue_go_on_beside_what_cannot_be_read(start, http_to, tmp_path):
    rows = connect(tmp_path / FILE_NAME)
    salt = keys.load_salt(rows)
    key_hash = KeyRing(salt, [KeySpec(SecretStr("dub"), 0)], balance="dubbing").find("dub").key_hash
    before = bad_rows(rows, key_hash)
    (tmp_path / "owners" / "a folder").mkdir(parents=True)
    (tmp_path / "dubs" / "ended").mkdir(parents=True)
    for stray in ("dubs", "uploads", "audio"):
        (tmp_path / stray).mkdir(exist_ok=True)
        (tmp_path / stray / "stray").touch()
    with start(keys=["speech"], workers=1, options=["--dub-key", "dub:0"], data=tmp_path) as service:
        http = http_to(service, "dub")
        for _ in range(2):
            found = await ready(http, (await create(http)).json["job_id"])
            assert found["failure_code"] == "INSUFFICIENT_CREDITS"
        answer = await http.get(get_endpoint("job_status").path.format(job_id="of another release"))
        assert (answer.status, "another release of speechframe wrote it" in answer.message) == (500, True)
        assert (await http.get(PROJECTS)).json == {"projects": []}
    assert jobs(rows) == before
    assert (tmp_path / "dubs" / "ended").is_dir()
    rows.close()


async def test_each_row_that_cannot_be_read_has_one_line_in_the_log(tmp_path, caplog):
    config = ServiceConfig(data=tmp_path, keys=(KeySpec(SecretStr("key"), 0),))
    opened, rows = Database(tmp_path / FILE_NAME), connect(tmp_path / FILE_NAME)
    bad_rows(rows, b"key")
    webhooks = Webhooks(config, opened)
    queue = DubQueue(config, opened, "me", webhooks)
    with caplog.at_level(logging.INFO, "speechframe.service"):
        for _ in range(3):
            assert await queue.find_work() is None
            if (work := await webhooks.find_work()) is not None:
                await work
            rows.execute("UPDATE webhooks SET due_at = 0")
    named = ["of another release", "no JSON", "no UTF-8", "unknown priority", "bad webhook"]
    lines = [record.getMessage() for record in caplog.records]
    assert sorted(name for name in named for line in lines if f"{name} cannot be read" in line) == sorted(
        named
    )
    assert len(lines) == len(named)
    rows.close()
    opened.close()


async def test_no_error_ends_a_loop_in_the_background(caplog):
    done = asyncio.Event()
    errors = [ValueError("an unknown priority"), OSError("a disk"), None]

    class Loop(Background):
        async def find_work(self):
            if (error := errors.pop(0) if errors else None) is not None:
                raise error
            return None if done.is_set() else work()

    async def work():
        done.set()

    task = asyncio.create_task(Loop(1, 0.01).run())
    try:
        async with asyncio.timeout(30):
            await done.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [str(record.exc_info[1]) for record in caplog.records] == ["an unknown priority", "a disk"]
