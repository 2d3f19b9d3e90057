"""Proxies of the environment and certificate authorities of one's own."""

import asyncio
import base64
import contextlib
import threading

import pytest
from pydantic import SecretStr

from speechframe.errors import ConnectionFailed, SettingsError
from speechframe.old_client import Client
from speechframe.settings import Settings

VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)


class Proxy:
    """A proxy on loopback that knows one name and sends it to the odd server."""

    def __init__(self, odd, refuse=None):
        self.odd = odd
        self.refuse = refuse
        self.heads = []
        self.ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.ready.wait(60)

    def _run(self):
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self.loop.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    async def _serve(self, reader, writer):
        other = None
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if self.refuse:
                writer.write(f"HTTP/1.1 {self.refuse} No\r\nContent-Length: 0\r\n\r\n".encode())
            else:
                method, target, _ = head.split(" ", 2)
                tunnel = method == "CONNECT"
                port = self.odd.tls_port if tunnel else self.odd.port
                far, other = await asyncio.open_connection("127.0.0.1", port)
                if tunnel:
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    path = "/" + target.split("/", 3)[3]
                    other.write(head.replace(target, path, 1).encode())
                await asyncio.gather(_pipe(reader, other), _pipe(far, writer))
        for one in (writer, other):
            if one is not None:
                one.close()


async def _pipe(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make_proxy(odd):
    made = []

    def make(**options):
        made.append(Proxy(odd, **options))
        return made[-1]

    yield make
    for proxy in made:
        proxy.stop()


@pytest.fixture
def far(odd, key):
    """A service under a name that only the proxy can reach, behind TLS of an own authority."""
    return Settings(api_key=SecretStr(key), base_url="https://speech.test", ca_file=odd.ca_file)


async def test_https_goes_through_a_tunnel_and_the_proxy_sees_no_key(
    odd, make_proxy, far, call, key, monkeypatch
):
    proxy = make_proxy()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    async with Client(far) as client:
        for _ in range(2):
            assert (await client.send_once(call)).audio == odd.audio
    (head,) = proxy.heads
    assert head.startswith("CONNECT speech.test:443 ")
    assert key not in head
    assert odd.seen[0].headers["api-key"] == key


async def test_a_proxys_own_password_goes_to_the_proxy_only(odd, make_proxy, far, call, monkeypatch):
    proxy = make_proxy()
    monkeypatch.setenv("https_proxy", f"http://me:pa%20ss@127.0.0.1:{proxy.port}")
    async with Client(far) as client:
        await client.send_once(call)
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:pa ss').decode()}" in proxy.heads[0]
    assert not [name for name in odd.seen[0].headers if name.lower().endswith("authorization")]


async def test_plain_http_goes_through_a_proxy_when_allowed(odd, make_proxy, call, key, monkeypatch):
    proxy = make_proxy()
    monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{proxy.port}")
    settings = Settings(api_key=SecretStr(key), base_url="http://speech.test", allow_http=True)
    async with Client(settings) as client:
        assert (await client.send_once(call)).audio == odd.audio
    assert proxy.heads[0].startswith("POST http://speech.test/v1/speech/generate ")


async def test_this_machine_is_never_behind_a_proxy(odd, make_proxy, client, call, monkeypatch):
    proxy = make_proxy()
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
    assert (await client.send_once(call)).audio == odd.audio
    assert proxy.heads == []


@pytest.mark.parametrize(
    "environment", [{"NO_PROXY": "speech.test"}, {"NO_PROXY": ".test"}, {"NO_PROXY": "*"}, None]
)
async def test_proxies_can_be_switched_off(make_proxy, far, call, monkeypatch, environment):
    proxy = make_proxy()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)
    settings = far if environment else Settings(api_key=far.api_key, base_url=far.base_url, trust_env=False)
    async with Client(settings) as client:
        with pytest.raises(ConnectionFailed, match=r"speech\.test:443 cannot be reached"):
            await client.send_once(call)
    assert proxy.heads == []


@pytest.mark.parametrize("status", [403, 407, 502])
async def test_a_proxy_that_refuses_has_sent_nothing(odd, make_proxy, far, call, monkeypatch, status):
    proxy = make_proxy(refuse=status)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
    async with Client(far) as client:
        with pytest.raises(
            ConnectionFailed, match=rf"the proxy .* refused the way to .*: status {status}"
        ) as caught:
            await client.send_once(call)
    assert not caught.value.sent
    assert "secret" not in str(caught.value)
    assert odd.seen == []


async def test_a_proxy_that_is_not_there_has_sent_nothing(far, call, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    async with Client(far) as client:
        with pytest.raises(ConnectionFailed, match=r"the proxy 127\.0\.0\.1:9 cannot be reached") as caught:
            await client.send_once(call)
    assert not caught.value.sent


@pytest.mark.parametrize("address", ["socks5://127.0.0.1:1080", "http://", "ht!tp://x", "http://h:port"])
async def test_a_proxy_that_is_no_address_is_named_without_its_password(far, call, monkeypatch, address):
    monkeypatch.setenv("HTTPS_PROXY", address)
    async with Client(far) as client:
        with pytest.raises(SettingsError, match="HTTPS_PROXY is no http"):
            await client.send_once(call)


async def test_an_own_authority_is_trusted_when_named(odd, key, call):
    settings = Settings(api_key=SecretStr(key), base_url=odd.tls_url, ca_file=odd.ca_file)
    async with Client(settings) as client:
        assert (await client.send_once(call)).audio == odd.audio


async def test_a_certificate_of_another_name_is_not(odd, key, call):
    address = f"https://127.0.0.2:{odd.tls_port}"
    settings = Settings(api_key=SecretStr(key), base_url=address, ca_file=odd.ca_file)
    async with Client(settings) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.send_once(call)
    assert not caught.value.sent
    assert odd.seen == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_that_cannot_be_read_is_said(tmp_path, key, content):
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    with pytest.raises(SettingsError, match=r"ca_file .*ca\.pem' cannot be used"):
        Client(Settings(api_key=SecretStr(key), base_url="https://far.example.com", ca_file=path))
