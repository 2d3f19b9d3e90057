"""file_url: fetched from the public Internet, from nowhere else, and within bounds. Real servers on loopback."""

import asyncio
import contextlib
import gzip
import os
import socket
import ssl
import tracemalloc
import zlib
from functools import partial
from ipaddress import ip_address, ip_network
from types import SimpleNamespace

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer as Server

from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.http import guard
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.http.fetch import fetch_file
from speechframe.local.service.http.threads import FairThreads
from speechframe.network.addresses import is_public
from speechframe.spec.chosen import MAX_REDIRECTS

MIB = 1 << 20
CONTENT = os.urandom(200_000)
PRIVATE = "its host is not on the public Internet"


# Transcribed by hand from IANA's registries of special-purpose addresses, IPv4 and IPv6: what is not globally
# reachable. IPv4 inside IPv6 (::ffff:0:0/96, 64:ff9b::/96, 2002::/16) is in `spellings` below.
SPECIAL = """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
192.0.0.8/32 192.0.0.170/31 192.0.2.0/24 192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24
203.0.113.0/24 240.0.0.0/4 255.255.255.255/32
::1/128 ::/128 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:2::/48 2001:10::/28
2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 fe80::/10
"""
# Not in them: multicast, a large provider's host, addresses of a site, IPv4 written in further ways, blocks that
# nobody was given. And what they call reachable inside blocks that are not.
NOT_FOR_FILES = """
224.0.0.0/4 168.63.129.16/32 ff00::/8 fec0::/10 ::/96 ::ffff:0:0:0/96 400::/6 4000::/3 e000::/4
192.0.0.9/32 192.0.0.10/32 2001:1::1 2001:1::2 2001:1::3 2001:3::/32 2001:4:112::/48 2001:20::/28 2001:30::/28
"""
REACHABLE = "192.31.196.0/24 192.52.193.0/24 192.175.48.0/24 2620:4f:8000::/48"
# What lies beside them.
PUBLIC = """
1.0.0.0 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0
192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0
223.255.255.255 168.63.129.17 2000:: 2001:200:: 2001:db7:ffff:: 2001:db9:: 2003:: 2606:4700::1111 3ffe:ffff::
3fff:1000::
"""


def test_no_address_of_a_special_block_is_public():
    for network in map(ip_network, (SPECIAL + NOT_FOR_FILES).split()):
        for address in (network[0], network[network.num_addresses // 2], network[-1]):
            assert not any(map(is_public, spellings(address))), address


def test_a_block_is_public_that_the_registries_call_so():
    for network in map(ip_network, REACHABLE.split()):
        for address in (network[0], network[-1]):
            assert all(map(is_public, spellings(address))), address


def test_what_lies_beside_them_is_public():
    for address in map(ip_address, PUBLIC.split()):
        assert all(map(is_public, spellings(address))), address


def spellings(address):
    """Return an address and, of IPv4, every IPv6 address that leads there."""
    if address.version == 6:
        return [address]
    number = int(address)
    inside = (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80 | 1)
    return [address, *(ip_address(other.to_bytes(16, "big")) for other in inside)]


# On real ports


class Site:
    """A site and what it was asked."""

    def __init__(self):
        self.asked = []
        self.app = web.Application()
        self.app.router.add_get("/{name:.*}", self._answer)
        self.answers = {}

    async def _answer(self, request):
        self.asked.append(request)
        return await self.answers[request.match_info["name"]](request)

    def answer(self, name, body=CONTENT, status=200, **headers):
        async def made(request):
            del request
            return web.Response(body=body, status=status, headers=headers)

        self.answers[name] = made


@pytest.fixture
async def site():
    made = Site()
    made.answer("a.wav")
    async with Server(made.app) as server:
        made.port = server.port
        made.url = f"http://127.0.0.1:{server.port}/"
        yield made


def parts(tmp_path, **options):
    """Return the parts of a service that fetch a file: the configuration, the guard, and the threads of keys."""
    guard_ = guard.Guard(allow_private=options["allow_private_urls"])
    config = ServiceConfig(data=tmp_path, **options)
    return SimpleNamespace(config=config, guard=guard_, threads=FairThreads(2))


@pytest.fixture
def get(tmp_path):
    """Fetch into a file, as the service would; private addresses are allowed unless told otherwise."""

    async def got(url, **options):
        options = {"allow_private_urls": True, "max_upload_mb": 1, "body_timeout_s": 60, **options}
        path = tmp_path / f"fetched-{len(list(tmp_path.iterdir()))}"
        upload = await fetch_file(url, parts(tmp_path, **options), b"key", path)
        assert upload.size_bytes == path.stat().st_size
        assert path.stat().st_mode & 0o777 == 0o600
        return path.read_bytes()

    return got


async def refused(got):
    with pytest.raises(Refusal) as caught:
        await got
    assert caught.value.code.status == 400
    assert caught.value.message.startswith("file_url")
    return caught.value.message


async def test_what_is_there_is_fetched_without_key_cookies_or_proxy(site, get, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert await get(site.url + "a.wav?sig=a%2Fb%20c#part") == CONTENT
    (request,) = site.asked
    assert request.raw_path == "/a.wav?sig=a%2Fb%20c"
    assert set(request.headers) == {"Host", "Accept", "Accept-Encoding", "User-Agent", "Connection"}


async def test_no_spelling_of_this_machine_is_visited(site, get):
    for host in (
        "127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "0.0.0.0", "[::1]",
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[fe80::1%lo]", "127.0.0.1.", "LOCALHOST",
        "127。0。0。1", "①②⑦.0.0.1",
    ):  # fmt: skip
        message = await refused(get(f"http://{host}:{site.port}/a.wav", allow_private_urls=False))
        assert any(words in message for words in (PRIVATE, "cannot be found", "it is not")), host
    assert site.asked == []


@pytest.fixture
def names(monkeypatch):
    """Give names of our own to addresses, and count who asks: as a DNS server of somebody's would."""
    table = {}
    asked = []
    real = socket.getaddrinfo

    def getaddrinfo(host, port, *arguments, **options):
        asked.append(host)
        if host not in table:
            return real(host, port, *arguments, **options)
        answers = table[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [pair for each in found for pair in real(each, port, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return SimpleNamespace(table=table, asked=asked)


@pytest.mark.parametrize("found", [["127.0.0.1"], ["8.8.8.8", "::ffff:10.0.0.1"]])
async def test_a_name_with_any_address_that_is_not_public_is_not_visited(site, get, names, found):
    names.table["127.0.0.1.site.example"] = [found]
    message = await refused(get(f"http://127.0.0.1.site.example:{site.port}/a.wav", allow_private_urls=False))
    assert PRIVATE in message
    assert "127" not in message, "what was found there is not told"
    assert site.asked == []


async def test_the_address_that_was_looked_at_is_the_one_that_is_visited(site, get, names, monkeypatch):
    # The second answer of this name would be refused; nobody asks for it.
    names.table["rebind.example"] = [["127.0.0.1"], ["127.0.0.2"]]
    monkeypatch.setattr(guard, "is_public", lambda address: str(address) == "127.0.0.1")
    assert await get(f"http://rebind.example:{site.port}/a.wav", allow_private_urls=False) == CONTENT
    assert names.asked.count("rebind.example") == 1
    assert site.asked[0].headers["Host"] == f"rebind.example:{site.port}"
    message = await refused(get(f"http://rebind.example:{site.port}/a.wav", allow_private_urls=False))
    assert PRIVATE in message, "the next fetch looks anew"


async def test_a_redirect_is_followed_and_looked_at(site, get, monkeypatch):
    monkeypatch.setattr(guard, "is_public", lambda address: str(address) == "127.0.0.1")
    site.answer("start", status=302, Location="/next?x=%2F")
    site.answer("next", status=307, Location=f"http://127.0.0.1:{site.port}/a.wav")
    assert await get(site.url + "start", allow_private_urls=False) == CONTENT
    assert [request.raw_path for request in site.asked] == ["/start", "/next?x=%2F", "/a.wav"]
    for location in (
        f"http://127.0.0.2:{site.port}/a.wav",
        f"http://[::1]:{site.port}/a.wav",
        "//127.0.0.3/a.wav",
    ):
        site.answer("start", status=301, Location=location)
        asked = len(site.asked)
        assert PRIVATE in await refused(get(site.url + "start", allow_private_urls=False))
        assert len(site.asked) == asked + 1


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://user:word@127.0.0.1/", "http://[::1"])
async def test_a_redirect_to_what_may_not_be_visited_is_refused(site, get, location):
    site.answer("start", status=302, Location=location)
    message = await refused(get(site.url + "start"))
    assert "it " in message or "its " in message
    assert len(site.asked) == 1


async def test_redirects_end(site, get):
    for number in range(MAX_REDIRECTS + 1):
        site.answer(f"hop{number}", status=308, Location=f"/hop{number + 1}")
    site.answer(f"hop{MAX_REDIRECTS + 1}")
    assert await get(site.url + "hop1") == CONTENT
    assert f"redirected more than {MAX_REDIRECTS} times" in await refused(get(site.url + "hop0"))
    site.answer("round", status=302, Location="/round")
    assert "redirected more than" in await refused(get(site.url + "round"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "not an http or https address"),
        ("file:///etc/passwd", "not an http or https address"),
        ("http:///a.wav", "not an http"),
        ("http://:word@127.0.0.1/", "contains a user name or password"),
        ("http://127.0.0.1:0/", "its port must be 1 to 65535"),
        ("http://127.0.0.1:99999/", "it is not an address"),
        ("http://[::1/", "it is not an address"),
        ("http://nothing.invalid/", "its host cannot be found"),
        ("http://127.0.0.1/" + "a" * 9000, "more than 8,192 characters"),
    ],
)
async def test_what_is_no_address_is_refused(get, url, words):
    assert words in await refused(get(url))


@pytest.mark.parametrize("status", [204, 206, 404, 503])
async def test_another_status_is_told_and_nothing_of_what_came(site, get, status):
    site.answer("a", status=status, body=b"" if status == 204 else b"a secret inside")
    message = await refused(get(site.url + "a"))
    assert message == f"file_url cannot be fetched: its host answered with status {status}"


async def test_size_is_bounded_whether_announced_or_not(site, get):
    site.answer("exact", bytes(MIB))
    site.answer("more", bytes(MIB + 1))
    assert len(await get(site.url + "exact")) == MIB
    assert "too large" in await refused(get(site.url + "more"))
    sent = 0

    async def endless(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                sent += MIB
                await response.write(bytes(MIB))
        return response

    site.answers["endless"] = endless
    assert "too large" in await refused(get(site.url + "endless"))
    assert sent < 100 * MIB


async def test_a_disk_that_takes_nothing_is_not_the_callers_fault(site, tmp_path):
    path = tmp_path / "missing" / "upload"
    with pytest.raises(Refusal) as caught:
        await fetch_file(site.url + "a.wav", parts(tmp_path, allow_private_urls=True), b"key", path)
    assert caught.value.code.status == 500
    assert caught.value.message == (
        "file_url: the service cannot write the file: No such file or directory; nothing was billed"
    )


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_what_is_packed_is_unpacked_and_bounded_by_what_comes_out(site, get, encoding):
    # As quickly as it can be packed.
    pack = partial(gzip.compress, compresslevel=1) if encoding == "gzip" else partial(zlib.compress, level=1)
    for name, content in (("small", CONTENT), ("bomb", bytes(40 * MIB)), ("exact", bytes(MIB))):
        site.answer(name, pack(content), **{"Content-Encoding": encoding})
    assert await get(site.url + "small") == CONTENT
    assert len(await get(site.url + "exact")) == MIB
    tracemalloc.start()
    try:
        assert "too large" in await refused(get(site.url + "bomb"))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB, "unpacked piece by piece"
    finally:
        tracemalloc.stop()
    site.answer("cut", pack(CONTENT)[:-20], **{"Content-Encoding": encoding})
    assert "cut off" in await refused(get(site.url + "cut"))
    site.answer("junk", b"junk", **{"Content-Encoding": encoding})
    assert "cannot be read" in await refused(get(site.url + "junk"))


async def test_all_members_of_a_gzip_file_are_read_and_count_towards_the_limit(site, get):
    def answer(name, body):
        site.answer(name, body, **{"Content-Encoding": "gzip"})

    answer("two", gzip.compress(CONTENT) + gzip.compress(b"end"))
    assert await get(site.url + "two") == CONTENT + b"end"
    answer("padded", gzip.compress(CONTENT) + bytes(512))
    assert await get(site.url + "padded") == CONTENT, "gzip allows zeros at the end"
    answer("many", gzip.compress(b"") * 5 + gzip.compress(CONTENT))
    assert await get(site.url + "many") == CONTENT
    answer("large", gzip.compress(bytes(MIB)) + gzip.compress(b"1"))
    assert "too large" in await refused(get(site.url + "large"))
    answer("cut", gzip.compress(CONTENT) + gzip.compress(CONTENT)[:-9])
    assert "cut off" in await refused(get(site.url + "cut"))
    answer("junk", gzip.compress(CONTENT) + b"junk")
    assert "cannot be read" in await refused(get(site.url + "junk"))


async def test_another_packing_is_refused(site, get):
    site.answer("a", b"junk", **{"Content-Encoding": "br"})
    assert "compressed in another way than gzip or deflate" in await refused(get(site.url + "a"))


@pytest.mark.parametrize("after", [0, 1000])
async def test_a_host_that_stalls_is_left(site, get, after):
    async def stalling(request):
        response = web.StreamResponse()
        if after:
            await response.prepare(request)
            await response.write(bytes(after))
        await asyncio.sleep(30)
        return response

    site.answers["slow"] = stalling
    async with asyncio.timeout(60):
        assert "its host stalled" in await refused(get(site.url + "slow", body_timeout_s=0.5))


@pytest.mark.parametrize(
    "answer",
    [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"],
    ids=["no http", "cut off"],
)
async def test_an_answer_that_is_no_http_or_cut_off_is_refused(get, answer):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert "its host's answer cannot be read" in await refused(get(f"http://127.0.0.1:{port}/"))


async def test_a_secure_host_must_show_that_it_is_the_one_that_was_named(get, names, monkeypatch, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("good.example").configure_cert(context)

    async def answer(request):
        return web.Response(body=CONTENT)

    app = web.Application()
    app.router.add_get("/", answer)
    names.table.update({"good.example": [["127.0.0.1"]], "other.example": [["127.0.0.1"]]})
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        port = runner.addresses[0][1]
        assert "the secure connection to its host failed" in await refused(
            get(f"https://good.example:{port}/")
        )
        trusted = ssl.create_default_context()
        authority.configure_trust(trusted)
        monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusted)
        assert await get(f"https://good.example:{port}/") == CONTENT
        assert "the secure connection to its host failed" in await refused(
            get(f"https://other.example:{port}/")
        )
    finally:
        await runner.cleanup()
