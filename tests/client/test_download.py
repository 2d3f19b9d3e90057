"""Audio behind a URL: where it may lie, what goes along, and how far the fetching goes."""

import time

import pytest
from pydantic import SecretStr
from yarl import URL

from speechframe.errors import BadAnswer
from speechframe.old_client import Bounds, Client, Timeouts
from speechframe.old_client.download import Downloader
from speechframe.old_client.transport import AiohttpTransport
from speechframe.settings import Settings

HOSTED = ["https://api.example.com", "https://us.example.com"]
LOCAL = ["http://127.0.0.1:8099"]


@pytest.mark.parametrize(
    ("addresses", "url"),
    [
        (LOCAL, "http://127.0.0.1:8099/v1/audio/x.wav"),
        (LOCAL, "http://localhost:8099/v1/audio/x.wav"),
        (LOCAL, "http://127.0.0.1:9000/bucket/x.wav"),
        (LOCAL, "https://cdn.example.com/x.wav"),
        (LOCAL, "/v1/audio/x.wav"),
        (LOCAL, "//127.0.0.1:8099/v1/audio/x%2Fy.wav"),
        (HOSTED, "//cdn.example.com/x.wav"),
        (["http://10.0.0.5:80"], "http://10.0.0.5/x.wav"),
        (["http://10.0.0.5:80"], "https://10.0.0.6/x.wav"),
        (["https://api.example.com:25"], "https://[2606:4700:4700::1111]/x.wav"),
        (HOSTED, "https://8.8.8.8/x.wav"),
        (HOSTED, "https://3.example.com/x.wav"),
        (HOSTED, "https://api.example.com/x.wav"),
        (HOSTED, "https://cdn.elsewhere.net:444/x.wav?sig=a%2Fb"),
        (HOSTED, "/x.wav"),
    ],
)
def test_addresses_that_are_fetched(addresses, url):
    downloader = Downloader(AiohttpTransport(), addresses, 1000)
    assert str(downloader.checked(url, URL(addresses[0]))).endswith(url)


@pytest.mark.parametrize(
    ("addresses", "url", "words"),
    [
        (LOCAL, "http://127.0.0.2:8099/x.wav", "plain http"),
        (LOCAL, "//127.0.0.2:8099/x.wav", "plain http"),
        (LOCAL, f"https://{'a.' * 900}example.com/x.wav", "name that is too long"),
        (LOCAL, "http://cdn.example.com/x.wav", "plain http"),
        (HOSTED, "http://api.example.com/x.wav", "plain http"),
        (HOSTED, "http://127.0.0.1:6379/x.wav", "plain http"),
        (HOSTED, "https://127.0.0.1/x.wav", "this machine"),
        (HOSTED, "https://localhost/x.wav", "this machine"),
        (HOSTED, "https://[::1]/x.wav", "this machine"),
        (HOSTED, "https://127.1.2.3/x.wav", "this machine"),
        (HOSTED, "https://LOCALHOST./x.wav", "this machine"),
        (HOSTED, "https://a.localhost/x.wav", "this machine"),
        (HOSTED, "https://0.0.0.0/x.wav", "this machine"),
        (HOSTED, "https://[::]/x.wav", "this machine"),
        (HOSTED, "https://[::ffff:127.0.0.1]/x.wav", "this machine"),
        (HOSTED, "https://[64:ff9b::7f00:1]/x.wav", "this machine"),
        (HOSTED, "https://[2002:7f00:1::]/x.wav", "this machine"),
        (HOSTED, "https://2130706433/x.wav", "number"),
        (HOSTED, "https://127.1/x.wav", "number"),
        (HOSTED, "https://0x7f.0.0.1/x.wav", "number"),
        (HOSTED, "https://0177.0.0.1/x.wav", "number"),
        (HOSTED, "https://１２７.0.0.1/x.wav", "this machine"),
        (HOSTED, "https://ⓛocalhost/x.wav", "this machine"),
        (HOSTED, "https://10.0.0.1/x.wav", "private network"),
        (HOSTED, "https://192.168.1.1/x.wav", "private network"),
        (HOSTED, "https://172.16.0.1/x.wav", "private network"),
        (HOSTED, "https://100.64.0.1/x.wav", "private network"),
        (HOSTED, "https://169.254.169.254/latest/meta-data", "private network"),
        (HOSTED, "https://[fe80::1]/x.wav", "private network"),
        (HOSTED, "https://[fd00:ec2::254]/x.wav", "private network"),
        (HOSTED, "https://[::ffff:a9fe:a9fe]/x.wav", "private network"),
        (HOSTED, "https://224.0.0.1/x.wav", "private network"),
        (["http://10.0.0.5:80"], "https://169.254.169.254/x.wav", "private network"),
        (LOCAL, "https://10.0.0.1/x.wav", "private network"),
        (HOSTED, "https://cdn.example.com:22/x.wav", "port 22"),
        (LOCAL, "http://127.0.0.1:25/x.wav", "port 25"),
        (LOCAL, "http://127.0.0.1:6379/x.wav", "port 6379"),
        (LOCAL, "http://127.0.0.1:0/x.wav", "port 0|no URL"),
        (HOSTED, "https://cdn.example.com:70000/x.wav", "no URL"),
        (HOSTED, "https://cdn.example.com:-1/x.wav", "no URL"),
        (HOSTED, "javascript:alert(1)", "neither http nor https"),
        (HOSTED, "gopher://api.example.com/x", "neither http nor https"),
        (HOSTED, "ftp://api.example.com/x.wav", "neither http nor https"),
        (HOSTED, "file:///etc/passwd", "neither http nor https"),
        (HOSTED, "data:audio/wav;base64,AAAA", "neither http nor https"),
        (HOSTED, "https://user:pass@cdn.example.com/x.wav", "user name"),
        (HOSTED, "https://", "no URL|neither"),
        (HOSTED, "https://cdn.example.com:port/x", "no URL"),
        (HOSTED, "https://cdn.example.com/x.wav HTTP/1.1\r\nHost: evil", "no URL"),
        (HOSTED, "https://cdn.example.com/" + "x" * 9000, "no URL"),
    ],
)
def test_addresses_that_are_not(addresses, url, words):
    downloader = Downloader(AiohttpTransport(), addresses, 1000)
    with pytest.raises(BadAnswer, match=words):
        downloader.checked(url, URL(addresses[0]))


@pytest.fixture
def by_url(odd):
    """The next generate answers point at an address."""

    def point(url, times=1):
        odd.script(*[odd.spoken(encodedAudio=None, audioFile=url)] * times)

    odd.script(odd.answer(200, odd.audio), path="/audio/x.wav")
    return point


async def test_a_url_answer_is_fetched_without_the_key(odd, client, call, by_url, key):
    by_url(f"{odd.url}/audio/x.wav")
    spoken = await client.send_once(call)
    assert spoken.audio == odd.audio
    (fetched,) = odd.gets("/audio/x.wav")
    assert not any(key in value for value in fetched.headers.values())
    assert "api-key" not in {name.lower() for name in fetched.headers}


async def test_a_signed_address_is_spelled_as_it_was(odd, client, call, by_url):
    path = "/audio/a%2Fb%20c+d~(1).wav?sig=a%2Bb%2F%3d%3D&e=%C3%A9&x=a+b&empty=&z"
    odd.script(odd.answer(200, odd.audio), path="/audio/a%2Fb%20c+d~(1).wav")
    by_url(odd.url + path)
    await client.send_once(call)
    assert odd.seen[-1].path == path


async def test_redirects_are_followed_to_the_services_own_host_only(odd, client, call, by_url):
    odd.script(odd.redirect("/audio/y.wav"), path="/audio/start.wav")
    odd.script(odd.redirect(f"{odd.url}/audio/x.wav", 307), path="/audio/y.wav")
    by_url(f"{odd.url}/audio/start.wav")
    assert (await client.send_once(call)).audio == odd.audio
    by_url(f"{odd.url}/audio/away.wav")
    odd.script(odd.redirect(f"{odd.other_url}/audio/x.wav"), path="/audio/away.wav")
    odd.seen.clear()
    with pytest.raises(BadAnswer, match=r"127\.0\.0\.2 behind plain http"):
        await client.send_once(call)
    assert [seen.path for seen in odd.seen if seen.host.startswith("127.0.0.2")] == []


async def test_endless_redirects_end(odd, client, call, by_url):
    odd.script(odd.redirect("/audio/loop.wav"), path="/audio/loop.wav")
    by_url(f"{odd.url}/audio/loop.wav")
    with pytest.raises(BadAnswer, match="more than 5 redirects"):
        await client.send_once(call)
    assert len(odd.gets("/audio/loop.wav")) == 6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_failed_fetch_is_tried_again_because_it_was_paid_for(odd, client, call, by_url, status):
    odd.script(odd.answer(status), odd.reset(), odd.answer(200, odd.audio), path="/audio/flaky.wav")
    by_url(f"{odd.url}/audio/flaky.wav")
    assert (await client.send_once(call)).audio == odd.audio
    assert len(odd.posts()) == 1


@pytest.mark.parametrize("status", [403, 404, 410])
async def test_an_expired_link_is_said_at_once(odd, client, call, by_url, status):
    odd.script(odd.answer(status), path="/audio/gone.wav")
    by_url(f"{odd.url}/audio/gone.wav?signature=abc")
    with pytest.raises(BadAnswer, match="may have expired") as caught:
        await client.send_once(call)
    assert caught.value.remaining_characters == 990
    assert caught.value.trace_id == "trace-1"
    assert "abc" not in str(caught.value)
    assert len(odd.gets("/audio/gone.wav")) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("odd_answer", ["endless", "bomb", "no audio", "empty", "truncated"])
async def test_what_is_fetched_is_bounded_and_checked(odd, settings, quick, call, by_url, odd_answer):
    odd.script(
        {
            "endless": odd.endless(),
            "bomb": odd.bomb(),
            "no audio": odd.answer(200, b"<html>"),
            "empty": odd.answer(200, b""),
            "truncated": odd.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\nRIFF"),
        }[odd_answer],
        path="/audio/odd.wav",
    )
    by_url(f"{odd.url}/audio/odd.wav")
    async with Client(settings, patience=quick, bounds=Bounds(download_bytes=1 << 20)) as client:
        with pytest.raises(BadAnswer) as caught:
            await client.send_once(call)
    assert caught.value.remaining_characters == 990


@pytest.mark.quiet
@pytest.mark.parametrize("odd_answer", ["hang", "dribble"])
async def test_a_fetch_ends_in_time(odd, settings, call, by_url, odd_answer):
    odd.script({"hang": odd.hang(), "dribble": odd.dribble()}[odd_answer], path="/audio/slow.wav")
    by_url(f"{odd.url}/audio/slow.wav")
    started = time.monotonic()
    async with Client(settings, timeouts=Timeouts(download_s=0.4)) as client:
        with pytest.raises(BadAnswer, match="could not be fetched"):
            await client.send_once(call)
    assert time.monotonic() - started < 2


async def test_audio_may_lie_on_another_host_behind_tls(odd, call, key):
    odd.script(odd.spoken(encodedAudio=None, audioFile=f"https://127.0.0.1:{odd.tls_port}/audio/x.wav"))
    odd.script(odd.answer(200, odd.audio), path="/audio/x.wav")
    settings = Settings(api_key=SecretStr(key), base_url=odd.tls_url, ca_file=odd.ca_file)
    async with Client(settings) as client:
        assert (await client.send_once(call)).audio == odd.audio
    assert [seen.host for seen in odd.seen] == [f"localhost:{odd.tls_port}", f"127.0.0.1:{odd.tls_port}"]
    assert key in odd.seen[0].headers.values()
    assert key not in odd.seen[1].headers.values()
