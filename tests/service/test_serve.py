"""`speechframe serve` as a command: options, what it says, how it ends."""

import argparse
import asyncio
import json
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
from aiohttp import WSMsgType
from socket_lab import MOODY, at_work, talking

from speechframe.errors import SettingsError
from speechframe.local.service import config, serve
from speechframe.local.service.books import keys
from speechframe.local.service.books.database import FILE_NAME, LAYOUT_NUMBER
from speechframe.local.service.config import parse_key, parse_keys, remove_duplicate_keys
from speechframe.spec import chosen


def options(*argv):
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(argv)


class Child:
    """A service as a command, and what it says."""

    def __init__(self, *argv):
        command = [
            sys.executable,
            "-m",
            "speechframe.local.service",
            "--port",
            "0",
            "--json",
            "--workers",
            "1",
            *argv,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = json.loads(self.process.stdout.readline())
        self.url = self.said["url"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def ended(self):
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.mark.parametrize(
    ("words", "quota", "concurrency"),
    [
        (" k:0 ", 0, None),
        ("k:500:3", 500, 3),
        ("k::3", chosen.DEFAULT_QUOTA_CHARACTERS, 3),
    ],
)
def test_a_key_with_its_figures(words, quota, concurrency):
    spec = parse_key(words)
    assert (spec.key.get_secret_value(), spec.quota_characters, spec.concurrency) == ("k", quota, concurrency)


@pytest.mark.parametrize("words", [
    "", ":5", "k:-1", "k:1.5", "k:1:0", "k:1:2:3", "schlüssel", "a b", "k\nk", "x" * 201, "k:" + "9" * 30,
])  # fmt: skip
def test_what_is_no_key_is_refused_without_repeating_it(words):
    with pytest.raises(SettingsError) as refused:
        parse_key(words)
    assert "schlüssel" not in str(refused.value)


def test_a_keys_file_has_comments_and_names_the_line_that_is_wrong():
    assert len(parse_keys("# comment\n\n  # another\na:5\nb")) == 2
    with pytest.raises(SettingsError, match="line 3"):
        parse_keys("a\n\nb:x")


def test_a_key_given_twice_must_be_given_alike():
    assert len(remove_duplicate_keys([parse_key("a:5"), parse_key("a:5")])) == 1
    with pytest.raises(SettingsError, match="twice"):
        remove_duplicate_keys([parse_key("a:5"), parse_key("a:6")])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--port", "70000"], "not a port"),
        (["--workers", "-1"], "--workers"),
        (["--keys-file", "/nowhere/keys"], "/nowhere/keys"),
    ],
)
def test_options_that_cannot_be_served_are_refused_in_words(argv, words):
    with pytest.raises(SettingsError, match=words):
        serve.build_config(options(*argv))


def test_options_become_the_configuration(tmp_path):
    (tmp_path / "keys").write_text("# mine\nb:7:2\n", encoding="utf-8")
    made = serve.build_config(
        options("--key", "a", "--keys-file", str(tmp_path / "keys"), "--body-timeout-s", "3", "--port", "0",
                "--host", "0.0.0.0", "--allow-remote", "--workers", "3", "--queue", "9", "--shelf-mb", "5")
    )  # fmt: skip
    assert [spec.key.get_secret_value() for spec in made.keys] == ["a", "b"]
    assert (made.body_timeout_s, made.worker_count, made.waiting_limit) == (3, 3, 9)
    assert made.shelf_mb == 5


def test_workers_are_one_a_core_and_at_most_four(monkeypatch, tmp_path):
    for cores, expected in ((1, 1), (2, 2), (64, 4)):
        monkeypatch.setattr(config, "_count_cores", lambda cores=cores: cores)
        assert config.ServiceConfig(data=tmp_path).worker_count == expected


def test_one_json_line_once_it_answers_and_a_key_of_its_own(plugins, tmp_path, tools):
    with Child("--data", str(tmp_path / "d")) as child:
        assert child.said["pid"] == child.process.pid
        key_file = tmp_path / "d" / "key"
        assert child.said["keys"] == [key_file.read_text().strip()]
        assert len(child.said["keys"][0]) > 30
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "d" / FILE_NAME).stat().st_mode) == 0o600
        with socket.create_connection(("127.0.0.1", int(child.url.rpartition(":")[2]))):
            pass
        child.process.send_signal(signal.SIGTERM)
        code, out, err = child.ended()
    assert (code, out, err) == (0, "", "")
    assert keys.load_own_key(tmp_path / "d").key.get_secret_value() == child.said["keys"][0], (
        "the key is kept"
    )


@pytest.mark.slow
def test_without_json_it_says_where_it_is_and_not_the_key(plugins, tmp_path):
    command = [
        sys.executable,
        "-m",
        "speechframe.local.service",
        "--port",
        "0",
        "--workers",
        "1",
        "--data",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert "http://127.0.0.1:" in line
    assert str(tmp_path / "key") in line
    assert (tmp_path / "key").read_text().strip() not in line


def test_a_port_in_use_is_one_clear_line_and_an_exit_code(plugins, tmp_path, tools):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tools.run_service("--port", str(port), "--data", str(tmp_path))
    assert done.returncode == serve.EXIT_FAILED
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr


def test_a_wrong_option_is_exit_code_2(tools):
    assert tools.run_service("--port", "many").returncode == 2
    assert tools.run_service("--body-timeout-s", "0").returncode == 2
    assert tools.run_service("--port", "99999").returncode == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "content", ["no database at all, but long enough to be looked at " * 40, "newer"], ids=["none", "newer"]
)
def test_a_data_folder_that_cannot_be_used_is_named(plugins, tmp_path, tools, content):
    path = tmp_path / FILE_NAME
    if content == "newer":
        import sqlite3

        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {LAYOUT_NUMBER + 1}")
        connection.close()
    else:
        path.write_text(content, encoding="utf-8")
    done = tools.run_service("--port", "0", "--json", "--data", str(tmp_path))
    assert done.returncode == serve.EXIT_FAILED
    assert str(path) in json.loads(done.stdout)["error"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", ["", "two words"])
def test_a_key_file_that_holds_no_key_is_named_and_not_repeated(tmp_path, content):
    (tmp_path / "key").write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match="Remove the file") as refused:
        keys.load_own_key(tmp_path)
    assert not content or content not in str(refused.value)


def test_two_that_start_at_once_agree_on_the_key(tmp_path):
    import threading

    found = []
    threads = [threading.Thread(target=lambda: found.append(keys.load_own_key(tmp_path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({spec.key.get_secret_value() for spec in found}) == 1
    assert len(found) == 16
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


async def stopping(http):
    """Wait until a service knows that it is to stop; it closes the connection it says so on."""
    async with asyncio.timeout(60):
        while (await http.get("/healthz")).status == 200:  # noqa: ASYNC110 - the service runs elsewhere
            await asyncio.sleep(0.02)


async def test_what_is_in_flight_is_answered_when_the_service_is_told_to_stop(
    plugins, tmp_path, http_to, tools, hold
):
    with Child("--data", str(tmp_path), "--key", "k:1000", "--grace-s", "60", "--workers", "3") as child:
        http = http_to(child, "k")
        # Connections that are kept alive: for what is in flight, for one that looks, for another.
        await asyncio.gather(*[http.generate("sleep 0.1") for _ in range(5)])
        said, headers = f"Hello there. {hold.text} long. Bye now.", {chosen.API_KEY_HEADER: "k"}
        body = {"text": said, "voiceId": MOODY["voiceId"], "model": "gen2", "format": "PCM"}
        async with (
            talking(http, "model=gen2&format=PCM") as talk,
            http.session.post(f"{http.url}/v1/speech/stream", json=body, headers=headers) as stream,
        ):
            await talk.send(voice_config=MOODY, context_id="open")
            await talk.say(said, "a", MOODY, min_buffer_size=0)
            await talk.frame()
            await stream.content.readany()
            flying = asyncio.ensure_future(http.generate(hold.text))
            await at_work(http, 3)
            workers = tools.worker_pids(child.process.pid)
            child.process.send_signal(signal.SIGTERM)
            await stopping(http)
            # The connection that was kept alive still gets an answer, and a new one nobody to talk to.
            late = await http.generate("hello")
            assert (late.status, late.code) == (503, "UNAVAILABLE")
            assert late.headers[chosen.RETRY_AFTER_HEADER]
            hold.let_go()
            answer = await flying
            assert answer.status == 200
            assert await stream.content.read(), "and it ended as it should"
            await talk.finals(1)
            assert talk.frames[-1]["final"] is True
            message = await talk.socket.receive(timeout=60)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1000)
        assert child.ended()[0] == 0
        assert not any(map(tools.alive, workers))


@pytest.mark.slow
async def test_what_does_not_finish_in_time_is_503_and_not_billed(plugins, tmp_path, http_to):
    arguments = ("--data", str(tmp_path), "--key", "k:1000")
    with Child(*arguments, "--grace-s", "0.3") as child:
        http = http_to(child, "k")
        flying = asyncio.ensure_future(http.generate("sleep 30"))
        await at_work(http, 1)
        started = time.monotonic()
        child.process.send_signal(signal.SIGTERM)
        answer = await flying
        assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        assert child.ended()[0] == 0
        assert time.monotonic() - started < 5
    with Child(*arguments) as child:
        assert await http_to(child, "k").remaining() == 1000


async def test_the_second_ctrl_c_does_not_wait(plugins, tmp_path, http_to):
    with Child("--data", str(tmp_path), "--key", "k:1000", "--grace-s", "60") as child:
        http = http_to(child, "k")
        # A connection that is kept alive, beside that of the request in flight.
        await asyncio.gather(*[http.generate("sleep 0.1") for _ in range(2)])
        flying = asyncio.ensure_future(http.generate("sleep 300"))
        await at_work(http, 1)
        child.process.send_signal(signal.SIGINT)
        await stopping(http)
        child.process.send_signal(signal.SIGINT)
        assert (await flying).status == 503
        assert child.ended()[0] == 0


@pytest.mark.slow
async def test_keys_of_an_earlier_start_are_not_keys_any_more(plugins, tmp_path, http_to):
    with Child("--data", str(tmp_path), "--key", "old:100") as child:
        assert (await http_to(child, "old").generate("x" * 40)).status == 200
        child.process.send_signal(signal.SIGTERM)
        child.ended()
    with Child("--data", str(tmp_path), "--key", "new:100") as child:
        assert (await http_to(child, "old").generate("x")).status == 403
        assert await http_to(child, "new").remaining() == 100


def test_a_data_folder_that_cannot_be_written(plugins, tools):
    # /proc takes no folders, whoever asks.
    folder = "/proc/speechframe-data"
    done = tools.run_service("--port", "0", "--data", folder)
    assert done.returncode == serve.EXIT_FAILED
    assert folder in done.stderr
