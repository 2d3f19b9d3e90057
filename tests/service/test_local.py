"""local_service(): a child that is there for a block, and gone with it or with its parent."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import pytest
from socket_lab import at_work

from speechframe.errors import SettingsError
from speechframe.local import start as local
from speechframe.local.start import get_shared_service, local_service
from speechframe.settings import find_default_service_folder
from speechframe.spec import chosen

fresh = pytest.mark.fresh


@fresh
async def test_it_answers_inside_the_block_and_is_gone_after_it(start, http_to, tools):
    service = start(keys=["a-secret"], quota=500, concurrency=3, workers=1)
    with pytest.raises(SettingsError, match="context manager"):
        _ = service.api_key
    with service:
        with pytest.raises(SettingsError, match="started before"):
            service.start()
        limits = (await http_to(service).get("/v1/limits")).json
        assert (limits["quota_characters"], limits["concurrency"]) == (500, 3)
        assert service.is_running
        pids = [service.pid, *tools.worker_pids(service.pid)]
        folder = service.data
        assert len(pids) == 2
        assert folder.exists()
        for process in map(tools.psutil.Process, pids):
            assert "a-secret" not in f"{process.cmdline()} {process.environ()}"
            # An interrupt of the terminal is the parent's alone.
            assert os.getpgid(process.pid) != os.getpgid(0)
    assert not service.is_running
    assert not any(map(tools.alive, pids))
    assert not folder.exists(), "a temporary folder goes with it"
    service.stop()


def test_the_key_is_hidden_and_settings_are_ready_for_a_client(service):
    assert "main" not in repr(service.api_key) + repr(service) + repr(service.keys) + repr(service.settings)
    assert service.settings.base_url == service.url
    assert service.settings.api_key.get_secret_value() == "main"
    assert [key.get_secret_value() for key in service.keys][:2] == ["main", "second"]


def test_quota_and_concurrency_count_for_keys_that_do_not_say_their_own():
    made = local_service(keys=["a", "b:5", "c:5:6", "d::7"], quota=1, concurrency=2)
    assert made._key_lines == ["a:1:2", "b:5:2", "c:5:6", "d:1:7"]
    assert local_service(keys=["a"])._key_lines == ["a"]
    assert local_service(keys=["a"], concurrency=2)._key_lines == ["a::2"]
    assert local_service()._key_lines == []
    assert local_service(quota=7)._key_lines[0].endswith(":7")


@pytest.mark.slow
async def test_a_data_folder_of_ones_own_stays_with_its_key_and_balance(start, http_to, tmp_path):
    with start(data=tmp_path / "kept", workers=1) as service:
        await http_to(service).generate("hello")
        key = service.api_key
    async with start(data=tmp_path / "kept", workers=1) as service:
        assert service.api_key == key
        assert await http_to(service).remaining() == chosen.DEFAULT_QUOTA_CHARACTERS - 5


def test_what_keeps_it_from_starting_is_said_in_its_own_words(start, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="data folder"), start(data=tmp_path / "file"):
        pass
    with pytest.raises(SettingsError, match="line 1"), start(keys=["a b"]):
        pass
    with pytest.raises(SettingsError, match="line break"):
        start(keys=["a\nb"])
    with pytest.raises(SettingsError, match="unrecognized arguments"), start(options=["--no-such-option"]):
        pass


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"regions": 5}, "names of regions"),
        ({"workers": True}, "workers=True; allowed: a whole number"),
        ({"quota": "x"}, "quota='x'; allowed: a whole number"),
        ({"concurrency": 1.5}, "concurrency=1.5; allowed: a whole number"),
        ({"keys": 5}, "keys is of type int; allowed: a list of keys"),
        ({"keys": [5]}, "keys contains something of type int; allowed: a list of keys"),
        ({"data": 5}, "data=5; allowed: a folder"),
        ({"translation_models": [5]}, "translation_models contains something of type int"),
        ({"options": "--region=uk"}, "options is of type str; allowed: a list of options"),
    ],
)
def test_what_it_cannot_be_given_is_refused_at_once(given, words):
    with pytest.raises(SettingsError, match=words):
        local_service(**given)


@fresh
def test_a_missing_extra_names_it(start, tmp_path, monkeypatch):
    # A path hook in the child that knows no soxr: what an install without the extra looks like.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'soxr' else find(name, package)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"soxr: pip install 'speechframe\[local\]'"), start():
        pass


@fresh
@pytest.mark.slow
def test_without_a_working_engine_it_says_what_is_wrong_with_each(tmp_path, monkeypatch):
    # Installed, but broken: the library cannot be loaded; and nothing else speaks.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'piper' else find(name, package)\n",
        encoding="utf-8",
    )
    (tmp_path / "espeakng_loader.py").write_text("raise OSError('no such library here')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        pytest.raises(SettingsError, match=r"no speech engine works: .*no such library here"),
        local_service(workers=1),
    ):
        pass


@fresh
@pytest.mark.slow
def test_a_worker_that_cannot_even_start_is_said_with_its_last_words(tmp_path, monkeypatch):
    (tmp_path / "soxr.py").touch()
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'speechframe.local.service.workers.main' in sys.orig_argv: raise SystemExit('broken install')\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SettingsError, match="did not start"), local_service(workers=1):
        pass


@pytest.fixture
def never_ready(tmp_path, monkeypatch):
    """Let workers start for ever."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nwhile 'speechframe.local.service.workers.main' in sys.orig_argv: time.sleep(0.01)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@fresh
@pytest.mark.usefixtures("never_ready")
async def test_cancelled_while_it_starts_it_leaves_nothing_behind(start, tools):
    before = set(tools.psutil.Process().children())
    service = start(workers=1)
    task = asyncio.ensure_future(service.__aenter__())
    await tools.until(lambda: set(tools.psutil.Process().children()) - before)
    task.cancel()
    # Long before the minute that a worker may take to start.
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert set(tools.psutil.Process().children()) <= before


@fresh
@pytest.mark.slow
@pytest.mark.usefixtures("never_ready")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_while_it_starts_it_ends_with_its_worker(tools, tmp_path, number):
    command = [
        sys.executable,
        "-m",
        "speechframe.local.service",
        "--port",
        "0",
        "--data",
        tmp_path,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        service = tools.psutil.Process(process.pid)
        asyncio.run(tools.until(service.children))
        pids = [child.pid for child in service.children()]
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert not any(map(tools.alive, pids))


def run_parent(code, **environment):
    """Start a parent process that prints one JSON line."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


PARENT = """
    import json, sys, time
    from speechframe.local.start import local_service
    with local_service(keys=["k"], workers=2) as service:
        print(json.dumps({"pid": service.pid, "url": service.url}), flush=True)
        {then}
"""


async def gone(tools, pids):
    await tools.until(lambda: not any(map(tools.alive, pids)))


async def test_the_parent_is_killed_and_service_and_workers_are_gone_in_the_middle_of_a_job(
    plugins, tools, http_to
):
    with run_parent(PARENT.replace("{then}", "sys.stdin.read()")) as parent:
        said = json.loads(parent.stdout.readline())
        http = http_to(SimpleNamespace(url=said["url"]), "k")
        flying = [asyncio.ensure_future(http.generate("sleep 100")) for _ in range(2)]
        await at_work(http, 2)
        pids = [said["pid"], *tools.worker_pids(said["pid"])]
        assert len(pids) == 3
        assert all(map(tools.alive, pids))
        parent.kill()
    await gone(tools, pids)
    await asyncio.gather(*flying, return_exceptions=True)


@pytest.mark.slow
async def test_also_when_another_child_of_the_parent_keeps_the_pipe_open(plugins, tools):
    then = (
        "import os, subprocess; os.set_inheritable(service._children['global']._process.stdin.fileno(), True); "
        "subprocess.Popen(['sleep', '60'], close_fds=False); print('ready', flush=True); sys.stdin.read()"
    )
    with run_parent(PARENT.replace("{then}", then)) as parent:
        said = json.loads(parent.stdout.readline())
        parent.stdout.readline()
        others = [p for p in tools.psutil.Process(parent.pid).children() if p.name() == "sleep"]
        pids = [said["pid"], *tools.worker_pids(said["pid"])]
        parent.kill()
        await gone(tools, pids)
        assert len(others) == 1
        assert others[0].is_running(), "it is not its end that ended the service"
        others[0].kill()


async def test_the_service_is_killed_and_its_workers_are_gone_in_the_middle_of_a_job(start, http_to, tools):
    with start(workers=2) as service:
        http = http_to(service)
        flying = [asyncio.ensure_future(http.generate("sleep 100")) for _ in range(2)]
        await at_work(http, 2)
        workers = tools.worker_pids(service.pid)
        assert len(workers) == 2
        os.kill(service.pid, signal.SIGKILL)
        await gone(tools, workers)
        await asyncio.gather(*flying, return_exceptions=True)


def test_the_default_folder_is_the_users_cache_or_what_is_set(monkeypatch, tmp_path):
    monkeypatch.delenv("SPEECHFRAME_SERVICE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_default_service_folder() == tmp_path / "speechframe" / "service"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_default_service_folder() == tmp_path / ".cache" / "speechframe" / "service"
    monkeypatch.setenv("SPEECHFRAME_SERVICE", "~/own")
    assert find_default_service_folder() == tmp_path / "own"


@pytest.fixture
def own_cache(plugins, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_SERVICE", str(tmp_path / "shared"))
    yield tmp_path / "shared"
    local._stop_shared()


@pytest.mark.slow
async def test_the_shared_service_is_one_a_folder_and_made_anew_when_it_died(
    own_cache, http_to, tools, tmp_path
):
    found = []
    threads = [threading.Thread(target=lambda: found.append(get_shared_service())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(service) for service in found}) == 1
    first = found[0]
    await http_to(first).generate("hello")
    os.kill(first.pid, signal.SIGKILL)
    await tools.until(lambda: not first.is_running)
    second = get_shared_service()
    assert second.pid != first.pid
    assert await http_to(second).remaining() == chosen.DEFAULT_QUOTA_CHARACTERS - 5
    other = get_shared_service(tmp_path / "other")
    assert other.url != second.url
    assert other.data == tmp_path / "other"


SHARED = """
    import json, sys
    from speechframe.local.start import get_shared_service
    service = get_shared_service()
    said = {"url": service.url, "key": service.api_key.get_secret_value(), "pid": service.pid}
    print(json.dumps(said), flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
async def test_two_processes_share_the_default_folder_with_one_balance(own_cache, http_to, tools):
    parents = [run_parent(SHARED) for _ in range(2)]
    try:
        said = [json.loads(parent.stdout.readline()) for parent in parents]
        assert said[0]["key"] == said[1]["key"]
        assert said[0]["url"] != said[1]["url"]
        clients = [http_to(SimpleNamespace(url=one["url"]), one["key"]) for one in said]
        answers = await asyncio.gather(*[clients[n % 2].generate("x" * 10) for n in range(24)])
        assert {answer.status for answer in answers} == {200}
        balances = sorted(answer.json["remainingCharacterCount"] for answer in answers)
        full = chosen.DEFAULT_QUOTA_CHARACTERS
        assert balances == [full - 10 * n for n in range(24, 0, -1)], "each was right at its moment"
        # One repeats what the other was asked, and fetches what the other made.
        headers = {chosen.IDEMPOTENCY_HEADER: "across"}
        both = await asyncio.gather(*[client.generate("sleep 0.2", headers=headers) for client in clients])
        assert await clients[0].remaining() == full - 240 - len("sleep 0.2")
        link = both[0].json["audioFile"].replace(said[0]["url"], said[1]["url"])
        assert (await clients[1].get(link)).status == 200
        # The end of one is not the end of the other.
        parents[0].stdin.close()
        await gone(tools, [said[0]["pid"]])
        assert (await clients[1].generate()).status == 200
    finally:
        for parent in parents:
            parent.kill()
            parent.wait()
            for stream in (parent.stdin, parent.stdout):
                stream.close()


@pytest.mark.slow
def test_after_a_fork_the_child_gets_a_service_of_its_own_and_leaves_ours_alone(own_cache):
    ours = get_shared_service()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            theirs = get_shared_service()
            os.write(writer, json.dumps([theirs.pid, theirs.is_running]).encode())
            local._stop_shared()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        their_pid, running = json.loads(pipe.read())
    os.waitpid(pid, 0)
    assert running
    assert their_pid != ours.pid
    assert ours.is_running
    assert get_shared_service() is ours


@pytest.mark.slow
def test_at_exit_the_shared_service_ends(plugins, tmp_path, tools):
    code = "import sys, json; from speechframe.local.start import get_shared_service; print(get_shared_service().pid, flush=True)"
    with run_parent(code, SPEECHFRAME_SERVICE=str(tmp_path)) as parent:
        pid = int(parent.stdout.readline())
    assert not tools.alive(pid)
