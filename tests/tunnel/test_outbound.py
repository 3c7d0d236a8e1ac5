import asyncio
import base64
import socket
import subprocess
import sys
from typing import Any

import pytest
from tests.support.dialling import closed_port, listening, silent_port
from tests.support.socket_pairs import kept, tcp_pair

from umbilical.tunnel import outbound

FAR = "konnectivity.example"
"""Not a name of this machine, so a proxy is used for it; only our own proxy sees the name."""


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_a_server_is_reached_by_address_or_name(host: str) -> None:
    listener, port = listening("::1" if host == "::1" else "127.0.0.1")

    sock = kept(await outbound.connect(host, port))
    peer = kept(listener.accept()[0])
    assert not sock.getblocking()
    assert not sock.get_inheritable()
    sock.send(b"hello")
    assert peer.recv(10) == b"hello"


async def test_a_refused_connect_names_the_address() -> None:
    port = closed_port()

    with pytest.raises(OSError) as caught:
        await outbound.connect("127.0.0.1", port)
    assert str(caught.value) == f"dial 127.0.0.1:{port}: Connection refused"


async def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    _, port = listening()
    shut = closed_port()

    def two(*_: object, **__: object) -> list[tuple[Any, ...]]:
        first = (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("::1", shut, 0, 0))
        return [first, (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", two)

    sock = kept(await outbound.connect("two.example", 1))
    assert sock.getpeername() == ("127.0.0.1", port)


async def test_a_name_that_is_not_found_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    with pytest.raises(OSError) as caught:
        await outbound.connect("nowhere.example", 1)
    assert str(caught.value) == "lookup nowhere.example: Name or service not known"


async def test_a_name_that_is_not_valid_is_reported() -> None:
    with pytest.raises(OSError, match=r"lookup a\.\.b: "):
        await outbound.connect("a..b", 1)


async def test_with_an_address_the_name_is_not_looked_up() -> None:
    listener, port = listening()

    sock = kept(await outbound.connect("nobody.example", 1, (socket.AF_INET, ("127.0.0.1", port))))
    kept(listener.accept()[0])
    assert sock.getpeername() == ("127.0.0.1", port)


async def test_all_addresses_of_a_name_are_found_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(*_: object, **__: object) -> list[tuple[Any, ...]]:
        six = (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("::1", 5, 0, 0))
        four = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 5))
        return [six, four, six]

    monkeypatch.setattr(socket, "getaddrinfo", twice)

    found = await outbound.look_up("two.example", 5)
    assert found == [(socket.AF_INET6, ("::1", 5, 0, 0)), (socket.AF_INET, ("127.0.0.1", 5))]


async def test_a_name_without_an_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [])

    with pytest.raises(OSError, match=r"^lookup empty\.example: no address$"):
        await outbound.look_up("empty.example", 1)


@pytest.mark.parametrize(
    ("host", "literal"),
    [("10.0.0.1", True), ("::1", True), ("fe80::1%eth0", True), ("localhost", False), ("10.0.0", False), ("", False)],
)
def test_addresses_are_distinguished_from_names(host: str, literal: bool) -> None:
    assert outbound.is_literal(host) is literal


async def test_a_connect_that_is_given_up_leaves_no_socket() -> None:
    port = silent_port()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await outbound.connect("127.0.0.1", port)


_LEAVING = """
import asyncio, socket, time
from umbilical.tunnel import outbound
from umbilical.tunnel.event_loop import new_event_loop

socket.getaddrinfo = lambda *_, **__: time.sleep(3600)

async def main():
    try:
        async with asyncio.timeout(0.05):
            await outbound.connect("hanging.example", 1)
    except TimeoutError:
        print("given up")

with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(main())
"""


def test_a_lookup_that_hangs_does_not_delay_the_exit() -> None:
    done = subprocess.run([sys.executable, "-c", _LEAVING], check=True, timeout=20, capture_output=True)
    assert done.stdout == b"given up\n"


def test_a_long_lived_connection_is_probed_and_does_not_wait_to_fill_packets() -> None:
    ours, _ = tcp_pair()
    outbound.tune(ours)
    options = (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, outbound.KEEPALIVE_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, outbound.KEEPALIVE_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, outbound.USER_TIMEOUT_MILLISECONDS),
    )
    assert [ours.getsockopt(level, option) for level, option, _ in options] == [value for _, _, value in options]


@pytest.mark.parametrize(
    ("setting", "proxy"),
    [
        ("http://proxy.example:3128", ("proxy.example", 3128, "")),
        ("proxy.example:3128", ("proxy.example", 3128, "")),
        ("http://proxy.example", ("proxy.example", 80, "")),
        ("https://proxy.example", ("proxy.example", 443, "")),
        ("http://[fd00::1]:3128/", ("fd00::1", 3128, "")),
        (
            "http://user:pa%3Ass@proxy.example:1",
            ("proxy.example", 1, "Basic " + base64.b64encode(b"user:pa:ss").decode()),
        ),
        ("http://user@proxy.example:1", ("proxy.example", 1, "Basic " + base64.b64encode(b"user:").decode())),
        ("", None),
    ],
)
def test_the_environment_prescribes_a_proxy(
    monkeypatch: pytest.MonkeyPatch, setting: str, proxy: tuple[str, int, str] | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", setting)
    assert outbound.proxy_for(FAR, 8091) == proxy
    assert outbound.is_proxied(FAR, 8091) is (proxy is not None)


def test_the_lower_case_name_counts_when_the_other_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://lower.example:1")
    assert outbound.proxy_for(FAR, 1) == ("lower.example", 1, "")
    monkeypatch.setenv("HTTPS_PROXY", "http://upper.example:1")
    assert outbound.proxy_for(FAR, 1) == ("upper.example", 1, "")


def test_the_proxy_of_plain_http_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:1")
    assert outbound.proxy_for(FAR, 1) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_this_machine_is_never_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:1")
    assert outbound.proxy_for(host, 1) is None


@pytest.mark.parametrize(
    "setting", ["http://user:secret@proxy.example:port", "http://user:secret@proxy.example:99999", "http://[secret"]
)
async def test_a_proxy_that_cannot_be_read_is_an_error_without_its_credentials(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", setting)

    with pytest.raises(OSError) as caught:
        await outbound.connect(FAR, 1)
    assert "HTTPS_PROXY" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert outbound.is_proxied(FAR, 1), "to fail with this reason"


@pytest.mark.parametrize(
    ("setting", "host", "bypassed"),
    [
        ("*", "any.example", True),
        ("", "any.example", False),
        (" , ,", "any.example", False),
        ("konnectivity.example", "konnectivity.example", True),
        ("KONNECTIVITY.example", "konnectivity.EXAMPLE", True),
        ("example", "konnectivity.example", True),
        ("example", "notexample", False),
        (".example", "konnectivity.example", True),
        (".konnectivity.example", "konnectivity.example", False),
        ("*.example", "konnectivity.example", True),
        ("*.konnectivity.example", "konnectivity.example", False),
        ("other.example, konnectivity.example", "konnectivity.example", True),
        ("konnectivity.example:8091", "konnectivity.example", True),
        ("konnectivity.example:443", "konnectivity.example", False),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.70", False),
        ("10.0.0.7:8091", "10.0.0.7", True),
        ("10.0.0.7:443", "10.0.0.7", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "ten.example", False),
        ("fd00::7", "fd00::7", True),
        ("fd00:0::0:7", "fd00::7", True),
        ("[fd00::7]", "fd00::7", True),
        ("[fd00::7]:8091", "fd00::7", True),
        ("[fd00::7]:443", "fd00::7", False),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "fe80::1", False),
        ("10.0.0.0/8", "fd00::1", False),
        ("not/a/network", "10.0.0.1", False),
    ],
)
def test_no_proxy_names_servers_that_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch, setting: str, host: str, bypassed: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", setting)
    assert outbound.is_bypassed(host, 8091) is bypassed
    assert (outbound.proxy_for(host, 8091) is None) is bypassed


def test_no_proxy_may_be_written_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", FAR)
    assert outbound.is_bypassed(FAR, 1)
