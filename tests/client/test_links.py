"""Audio that comes as an address: fetched without the key, from nowhere inside a network, paid for once."""

import pytest
from pydantic import SecretStr

from speechframe.client import Bounds, Client, Timeouts
from speechframe.errors import BadAnswer
from speechframe.settings import Settings


@pytest.fixture
def by_url(odd):
    """The next answers point at an address."""

    def point(url):
        odd.script(odd.spoken(encodedAudio=None, audioFile=url))

    odd.script(odd.answer(200, odd.audio), path="/audio/x.wav")
    return point


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "is not http or https"),
        ("http://127.0.0.2:{port}/x.wav", "plain http"),
        ("http://cdn.example.com/x.wav", "plain http"),
        ("https://169.254.169.254/latest/", "private network"),
        ("https://10.0.0.1/x", "private network"),
        ("https://2130706433/x", "a number, not a host"),
        ("http://127.0.0.1:0/x", "port 0|not a URL"),
        ("https://user:pass@cdn.example.com/x", "user name"),
        ("https://cdn.example.com/x HTTP/1.1\r\nHost: evil", "not a URL"),
    ],
)
async def test_addresses_that_are_not_asked(odd, client, call, by_url, url, words):
    by_url(url.format(port=odd.port))
    with pytest.raises(BadAnswer, match=words) as caught:
        await client.send_once(call)
    assert caught.value.remaining_characters == 990
    assert len(odd.seen) == 1


async def test_it_is_fetched_without_the_key_and_spelled_as_it_was(odd, client, call, by_url, key):
    path = "/audio/a%2Fb%20c+d~(1).wav?sig=a%2Bb%2F%3d%3D&e=%C3%A9&x=a+b&empty=&z"
    odd.script(odd.answer(200, odd.audio), path=path.partition("?")[0])
    by_url(odd.url + path)
    assert (await client.send_once(call)).audio == odd.audio
    assert odd.seen[-1].path == path
    assert key not in odd.seen[-1].headers.values()


async def test_redirects_are_followed_to_the_services_own_host_only(odd, client, call, by_url):
    odd.script(odd.redirect("/audio/y.wav"), path="/audio/start.wav")
    odd.script(odd.redirect(f"{odd.url}/audio/x.wav", 307), path="/audio/y.wav")
    by_url(f"{odd.url}/audio/start.wav")
    assert (await client.send_once(call)).audio == odd.audio
    odd.script(odd.redirect(f"{odd.other_url}/audio/x.wav"), path="/audio/away.wav")
    odd.script(odd.redirect("/audio/loop.wav"), path="/audio/loop.wav")
    for name, words in (("away", r"127\.0\.0\.2 behind plain http"), ("loop", "more than 5 redirects")):
        by_url(f"{odd.url}/audio/{name}.wav")
        with pytest.raises(BadAnswer, match=words):
            await client.send_once(call)
    assert [seen.path for seen in odd.seen if seen.host.startswith("127.0.0.2")] == []


@pytest.mark.parametrize("status", [408, 503])
async def test_a_failed_fetch_is_tried_again_because_it_was_paid_for(odd, client, call, by_url, status):
    odd.script(odd.answer(status), odd.reset(), odd.answer(200, odd.audio), path="/audio/flaky.wav")
    by_url(f"{odd.url}/audio/flaky.wav")
    assert (await client.send_once(call)).audio == odd.audio
    assert len(odd.posts()) == 1


async def test_an_expired_link_is_said_at_once_and_its_signature_is_not(odd, client, call, by_url):
    odd.script(odd.answer(403), path="/audio/gone.wav")
    by_url(f"{odd.url}/audio/gone.wav?signature=abc")
    with pytest.raises(BadAnswer, match="may have expired") as caught:
        await client.send_once(call)
    assert "abc" not in str(caught.value)
    assert len(odd.gets("/audio/gone.wav")) == 1


@pytest.mark.parametrize(
    ("kind", "words"),
    [("endless", r"1\.\d MB, 1\.0 MB are allowed"), ("bomb", "unpacks to more than 1,048,576 bytes"),
     ("no audio", "cannot be read"), ("dribble", "within 0")],
)  # fmt: skip
async def test_what_is_fetched_is_bounded_in_size_and_time(odd, settings, quick, call, by_url, kind, words):
    odd.script(
        {
            "endless": odd.endless(),
            "bomb": odd.bomb(),
            "no audio": odd.answer(200, b"<html>"),
            "dribble": odd.dribble(),
        }[kind],
        path="/audio/odd.wav",
    )
    by_url(f"{odd.url}/audio/odd.wav")
    slow = Timeouts(download_s=0.5 if kind == "dribble" else 20)
    async with Client(
        settings, patience=quick, bounds=Bounds(download_bytes=1 << 20), timeouts=slow
    ) as client:
        with pytest.raises(BadAnswer, match=words) as caught:
            await client.send_once(call)
    assert caught.value.remaining_characters == 990


async def test_audio_may_lie_on_another_host_behind_tls_which_gets_no_key(odd, call, key):
    odd.script(odd.spoken(encodedAudio=None, audioFile=f"https://127.0.0.1:{odd.tls_port}/audio/x.wav"))
    odd.script(odd.answer(200, odd.audio), path="/audio/x.wav")
    settings = Settings(api_key=SecretStr(key), base_url=odd.tls_url, ca_file=odd.ca_file)
    async with Client(settings) as client:
        assert (await client.send_once(call)).audio == odd.audio
    assert [key in seen.headers.values() for seen in odd.seen] == [True, False]
