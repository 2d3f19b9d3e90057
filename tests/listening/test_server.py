"""A served listening test, by plain HTTP: what a link gives, and that nothing else gives anything."""

import contextlib
import json
import logging
import re
import resource
import socket
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from listening_lab import begin, made, vote

from speechframe.errors import ListeningError, SettingsError, StoreError
from speechframe.listening.server import serve_test
from speechframe.listening.test import open_test
from speechframe.network.connections import collapse_repeats


@pytest.fixture(scope="module")
def test_made(tmp_path_factory):
    return made(tmp_path_factory.mktemp("served") / "test")


@pytest.fixture(scope="module")
def served(test_made):
    with serve_test(test_made, listeners=3) as served:
        yield served


def ask(url, data=None, *, method=None, headers=None):
    """Return status, headers and body."""
    said = {"content-type": "application/json"} if data is not None else {}
    request = urllib.request.Request(url, data=data, method=method, headers=said | (headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def say(link, message):
    status, _, body = ask(f"{link}messages", json.dumps(message).encode())
    assert status == 200
    return json.loads(body)


def plan_in(page):
    return json.loads(re.search(r'id="spf-state">(.*?)</script>', page.decode(), re.DOTALL)[1])["plan"]


def links(served):
    return list(served.links.values())


def test_each_listener_has_a_link_of_192_random_bits(served, test_made):
    assert list(served.links) == list(test_made.listeners)
    tokens = [re.fullmatch(rf"{re.escape(served.url)}/([0-9a-f]{{48}})/", link)[1] for link in links(served)]
    assert len(set(tokens)) == 3
    assert served.url.startswith("http://127.0.0.1:")
    assert not any(token in repr(served) for token in tokens)


def test_a_link_gives_the_listeners_own_page_with_its_script_and_style(served, test_made):
    for name, link in served.links.items():
        status, headers, page = ask(link)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert plan_in(page) == json.loads(json.dumps(test_made.plan(name)))
        for file, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
            status, headers, body = ask(link + file)
            assert (status, headers["Content-Type"].split(";")[0]) == (200, kind)
            assert len(body) > 500
            assert file.encode() in page


def test_sounds_are_there_under_the_link_that_plays_them_and_under_no_other(served, test_made):
    first, second, _ = links(served)
    mine, theirs = test_made.list_clips("listener-01"), test_made.list_clips("listener-02")
    assert not set(mine) & set(theirs)
    status, headers, body = ask(f"{first}clips/{mine[0]}")
    assert (status, headers["Content-Type"]) == (200, "audio/wav")
    assert body == test_made.read_audio("listener-01", mine[0])[0]
    assert ask(f"{first}clips/{theirs[0]}")[0] == 404
    assert ask(f"{second}clips/{mine[0]}")[0] == 404
    assert "filename" not in str(headers).lower()


@pytest.mark.parametrize(
    "path",
    [
        "", "0" * 48 + "/", "0" * 48 + "/page.js", "LINK/clips/", "LINK/clips/00001.wav", "LINK/clips/..%2F..%2Fsecret",
        "LINK/%2e%2e/test.json", "LINK/clips/%00", "listener-01/",
    ],
)  # fmt: skip
def test_everything_else_is_one_and_the_same_404(served, path):
    token = links(served)[0].split("/")[-2]
    status, headers, body = ask(f"{served.url}/{path.replace('LINK', token)}")
    assert (status, body) == (404, b"404\n")
    other = ask(f"{served.url}/{'1' * 48}/")
    assert {k: v for k, v in headers.items() if k != "Date"} == {
        k: v for k, v in other[1].items() if k != "Date"
    }


def test_answers_tell_browsers_to_keep_and_to_pass_on_nothing(served, test_made):
    link = links(served)[0]
    for address in (
        link,
        f"{link}page.js",
        f"{link}clips/{test_made.list_clips('listener-01')[0]}",
        served.url,
    ):
        _, headers, _ = ask(address)
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "aiohttp" not in str(headers).lower()
        assert "Set-Cookie" not in headers


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400), (b"[]", {}, 400), (b'{"kind": "load"}', {}, 400), (b"\xff", {}, 400), (b"[" * 60_000, {}, 400),
        (b'{"kind": "vote"}', {"content-type": "text/plain"}, 415), (b" " * 70_000, {}, 413),
    ],
)  # fmt: skip
def test_what_no_page_says_is_refused(served, test_made, body, headers, status):
    before = len(test_made.votes)
    assert ask(f"{links(served)[2]}messages", body, headers=headers)[0] == status
    assert len(test_made.votes) == before
    assert ask(f"{served.url}/{'0' * 48}/messages", body, headers=headers)[0] == 404, (
        "wrong links learn nothing"
    )


def test_a_vote_is_on_disk_when_the_page_is_told_and_a_reload_goes_on(served, test_made):
    link = links(served)[0]
    plan = plan_in(ask(link)[2])
    assert say(link, vote(plan, 0))["kind"] == "refused", "it has not begun"
    assert say(link, begin()) == {"kind": "begun"}
    assert say(link, vote(plan, 0)) == {"kind": "stored", "trial": 0, "reveal": None}
    assert list(open_test(test_made.folder).votes["trial"]) == [0]
    again = plan_in(ask(link)[2])
    assert (again["begun"], again["done"]) == (True, [0])
    assert again["trials"] == plan["trials"], "the same trials, the same names of sounds"
    assert served.progress["listener-01"] == (1, 4)


def test_a_vote_that_comes_twice_is_stored_once_and_told_so_twice(served, test_made):
    link = links(served)[1]
    plan = plan_in(ask(link)[2])
    said = vote(plan, 0)
    assert say(link, begin()) == say(link, begin()) == {"kind": "begun"}
    assert say(link, said) == say(link, said) == {"kind": "stored", "trial": 0, "reveal": None}
    changed = say(link, {**said, "choice": "B", "voted_ms": said["voted_ms"] + 1})
    assert (changed["kind"], changed["done"]) == ("refused", True), "the page goes on"
    assert len(test_made.votes.query("listener == 'listener-02'")) == 1


def test_votes_of_all_listeners_at_once_are_all_kept_and_wait_ends(tmp_path):
    test = made(tmp_path / "test", "mos", listeners=6)
    with serve_test(test, listeners=6) as served:
        assert not served.wait(0)

        def listen(link):
            plan = plan_in(ask(link)[2])
            say(link, begin())
            for trial in range(len(plan["trials"])):
                assert say(link, vote(plan, trial))["kind"] == "stored"

        threads = [threading.Thread(target=listen, args=(link,)) for link in links(served)]
        for thread in threads:
            thread.start()
        assert served.wait(60)
        for thread in threads:
            thread.join()
        assert set(served.progress.values()) == {(4, 4)}
    assert len(test.votes) == 6 * 4
    assert set(test.votes.groupby("listener")["trial"].nunique()) == {4}


def test_served_again_the_test_has_the_same_links_and_is_finished_where_it_was(tmp_path):
    with serve_test(made(tmp_path / "test"), listeners=2) as served:
        first = served.links
        plan = plan_in(ask(first["listener-01"])[2])
        say(first["listener-01"], begin())
        say(first["listener-01"], vote(plan, 0))
        port = int(served.url.rsplit(":", 1)[1])
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(served.url, timeout=60)
    with serve_test(open_test(tmp_path / "test"), port=port, listeners=3) as served:
        assert {name: served.links[name] for name in first} == first
        assert plan_in(ask(first["listener-01"])[2])["done"] == [0]


def test_the_same_test_in_another_folder_has_other_links(tmp_path):
    tokens = []
    for name in ("one", "two"):
        with serve_test(made(tmp_path / name), listeners=2) as served:
            tokens += [link.split("/")[-2] for link in links(served)]
    assert len(set(tokens)) == 4


def test_a_vote_that_could_not_be_kept_is_kept_when_it_comes_again(tmp_path):
    test = made(tmp_path / "test")
    (tmp_path / "test" / "votes").write_text("in the way")
    with serve_test(test, listeners=1) as served:
        (link,) = links(served)
        assert ask(f"{link}messages", json.dumps(begin()).encode())[0] == 503, "the page sends it again"
        (tmp_path / "test" / "votes").unlink()
        assert say(link, begin()) == {"kind": "begun"}


def test_no_log_holds_a_link(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    test = made(tmp_path / "test")
    with serve_test(test, listeners=1) as served:
        (link,) = links(served)
        test.reply = None  # what fails in a handler is logged, too
        assert ask(f"{link}messages", json.dumps(begin()).encode())[0] == 500
        ask(f"{link}clips/none")
    assert "a request of a listener's page failed" in caplog.text
    assert link.split("/")[-2] not in caplog.text


def test_equal_lines_of_the_log_are_counted(caplog):
    log = logging.getLogger("speechframe.counted")
    with collapse_repeats(log.name):
        for number in range(50):
            log.error("a crowd of %d", 7)
            log.warning("line %d", number // 49)
            log.info("not counted")
    told = [(line.levelname, line.getMessage()) for line in caplog.records if line.name == log.name]
    assert told == [
        ("ERROR", "a crowd of 7"),
        ("WARNING", "line 0"),
        ("WARNING", "line 1"),
        ("ERROR", "a crowd of 7 (49 times more)"),
        ("WARNING", "line 0 (48 times more)"),
    ]


@contextlib.contextmanager
def few_descriptors(count):
    """Let this process have so many descriptors, as it seems to what is begun meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("sent", "status"), [(b"", 200), (b"GET / HTTP/1.1\r\n", 503)])
def test_a_crowd_is_bounded_and_nobody_is_kept_out_by_who_is_idle(tmp_path, sent, status):
    test = made(tmp_path / "test")
    with contextlib.ExitStack() as stack:
        with few_descriptors(400):
            served = stack.enter_context(serve_test(test, listeners=1))
        host, port = served.url.removeprefix("http://").split(":")

        def join_crowd():
            one = stack.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(OSError):
                one.sendall(sent)

        for _ in range(230):
            join_crowd()
        # What was sent is read in its own time: until then, a place of the crowd can still be had.
        while (answer := ask(links(served)[0]))[0] != status:
            join_crowd()
        assert answer[1].get("Retry-After") == ("1" if status == 503 else None)
        assert answer[1]["X-Frame-Options"] == "DENY"


def test_a_port_that_is_taken_and_no_listeners_are_said(tmp_path):
    test = made(tmp_path / "test")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(SettingsError, match="choose another port"),
    ):
        serve_test(test, port=taken.getsockname()[1], listeners=1)
    with pytest.raises(SettingsError, match="1 to 10,000"):
        serve_test(test, listeners=0)
    with pytest.raises(SettingsError, match="port must be a whole number, 0 to 65,535, not 70000"):
        serve_test(test, port=70000)
    with pytest.raises(SettingsError, match="host must be a text"):
        serve_test(test, host=None)


def test_beyond_this_machine_only_when_asked_and_it_says_so(tmp_path, caplog):
    test = made(tmp_path / "test")
    with serve_test(test, listeners=1) as served:
        assert served.is_local
    assert "without encryption" not in caplog.text
    with serve_test(test, host="0.0.0.0", listeners=1) as served:
        assert not served.is_local
        assert "0.0.0.0" not in served.url, "a link names an address that others can reach"
        assert ask(links(served)[0].replace(served.url.split("/")[2].split(":")[0], "127.0.0.1"))[0] == 200
    assert "without encryption" in caplog.text


def test_the_links_of_an_ipv6_address_lead_to_the_page(tmp_path):
    test = made(tmp_path / "test")
    for host in ("::1", "::"):
        if not socket.has_dualstack_ipv6():
            with pytest.raises(SettingsError, match=f"cannot be served at {host} port"):
                serve_test(test, host=host, listeners=1)
            continue
        with serve_test(test, host=host, listeners=1) as served:
            assert ask(links(served)[0])[0] == 200


def test_a_server_that_fails_to_start_closes_its_socket(tmp_path, monkeypatch):
    test, sockets = made(tmp_path / "test"), []
    create_server = socket.create_server

    def create(*args, **options):
        sockets.append(create_server(*args, **options))
        return sockets[-1]

    async def fail(runner):
        raise OSError("no")

    monkeypatch.setattr("speechframe.listening.server.socket.create_server", create)
    monkeypatch.setattr("aiohttp.web.AppRunner.setup", fail)
    with pytest.raises(OSError, match="no"):
        serve_test(test, listeners=1)
    assert [one.fileno() for one in sockets] == [-1]


def test_a_test_can_be_given_by_its_folder_or_by_what_shows_it(tmp_path):
    test = made(tmp_path / "test")
    for given in (test, test.folder, str(test.folder), SimpleNamespace(test=test)):
        with serve_test(given, listeners=1) as served:
            assert ask(links(served)[0])[0] == 200
    with pytest.raises(ListeningError, match="the type int is not a listening test"):
        serve_test(3)
    with pytest.raises(StoreError):
        serve_test(tmp_path / "nothing")


def test_closing_twice_is_closing_once(tmp_path):
    served = serve_test(made(tmp_path / "test"), listeners=1)
    served.close()
    served.close()
    assert "closed" in repr(served)


def test_a_link_without_its_last_sign_leads_to_the_page(served):
    status, _, page = ask(links(served)[0].rstrip("/"))
    assert status == 200
    assert plan_in(page)["listener"] == "listener-01"
