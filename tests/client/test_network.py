"""Proxies of the environment and certificate authorities of one's own; the key passes through, seen by none."""

import asyncio
import base64
import contextlib
import threading

import pytest
from pydantic import SecretStr

from speechframe.client import Client
from speechframe.errors import ConnectionFailed, SettingsError
from speechframe.settings import Settings


class Proxy:
    """A proxy on loopback that sends every name to the odd server."""

    def __init__(self, odd, refuse):
        self.odd, self.refuse, self.heads = odd, refuse, []
        self.loop, ready = asyncio.new_event_loop(), threading.Event()

        def run():
            server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0))
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            self.loop.run_forever()
            server.close()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0.05))
            self.loop.close()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert ready.wait(60)

    async def serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if self.refuse:
                writer.write(f"HTTP/1.1 {self.refuse} No\r\nContent-Length: 0\r\n\r\n".encode())
            else:
                far, other = await asyncio.open_connection("127.0.0.1", self.odd.tls_port)
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await asyncio.gather(pipe(reader, other), pipe(far, writer))
        writer.close()


async def pipe(reader, writer):
    # The proxy may end while a connection is open.
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@pytest.fixture
def make_proxy(odd, monkeypatch):
    made = []
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)

    def make(refuse=None):
        made.append(Proxy(odd, refuse))
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pa%20ss@127.0.0.1:{made[-1].port}")
        return made[-1]

    yield make
    for proxy in made:
        proxy.loop.call_soon_threadsafe(proxy.loop.stop)
        proxy.thread.join(5)


@pytest.fixture
def far(odd, key):
    """A service under a name that only the proxy can reach, behind TLS of an own authority."""
    return Settings(api_key=SecretStr(key), base_url="https://speech.test", ca_file=odd.ca_file)


async def test_https_goes_through_a_tunnel_whose_password_stays_there_and_which_sees_no_key(
    odd, make_proxy, far, call, key
):
    proxy = make_proxy()
    async with Client(far) as client:
        for _ in range(2):
            assert (await client.send_once(call)).audio == odd.audio
    (head,) = proxy.heads
    assert head.startswith("CONNECT speech.test:443 ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:pa ss').decode()}" in head
    assert key not in head
    assert odd.seen[0].headers["api-key"] == key
    assert not [name for name in odd.seen[0].headers if name.lower().endswith("authorization")]


async def test_this_machine_is_never_behind_a_proxy_and_proxies_can_be_switched_off(
    odd, make_proxy, client, far, call, monkeypatch
):
    proxy = make_proxy()
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
    assert (await client.send_once(call)).audio == odd.audio
    for settings, skipped in (
        (Settings(api_key=far.api_key, base_url=far.base_url, trust_env=False), ""),
        (far, ".test"),
    ):
        monkeypatch.setenv("NO_PROXY", skipped)
        async with Client(settings) as direct:
            with pytest.raises(ConnectionFailed, match=r"speech\.test:443 cannot be reached"):
                await direct.send_once(call)
    assert proxy.heads == []


async def test_a_proxy_that_refuses_or_is_not_there_has_sent_nothing(odd, make_proxy, far, call, monkeypatch):
    make_proxy(refuse=407)
    async with Client(far) as client:
        with pytest.raises(
            ConnectionFailed, match=r"the proxy .* refused a connection to .*: status 407"
        ) as caught:
            await client.send_once(call)
    assert not caught.value.sent
    assert "pa ss" not in str(caught.value)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    async with Client(far) as client:
        with pytest.raises(ConnectionFailed, match=r"the proxy 127\.0\.0\.1:9 cannot be reached"):
            await client.send_once(call)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    async with Client(far) as client:
        with pytest.raises(SettingsError, match="HTTPS_PROXY must be an http"):
            await client.send_once(call)
    assert odd.seen == []


async def test_an_own_authority_is_trusted_when_named_and_for_its_names_alone(odd, key, call, tmp_path):
    async with Client(Settings(api_key=SecretStr(key), base_url=odd.tls_url, ca_file=odd.ca_file)) as client:
        assert (await client.send_once(call)).audio == odd.audio
    other = Settings(
        api_key=SecretStr(key), base_url=f"https://127.0.0.2:{odd.tls_port}", ca_file=odd.ca_file
    )
    async with Client(other) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.send_once(call)
    assert not caught.value.sent
    assert len(odd.seen) == 1
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(SettingsError, match=r"ca_file .*ca\.pem' cannot be used"):
        Client(
            Settings(api_key=SecretStr(key), base_url="https://far.example.com", ca_file=tmp_path / "ca.pem")
        )
