"""The SOCKS5 proxy on real sockets, with a scripted opener instead of the tunnel."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from tests.support.fixture_types import Logged
from tests.support.proxy_testbed import (
    HELLO,
    LoopbackOpener,
    ask,
    connect_request,
    drop,
    echo,
    endpoint,
    eventually,
    rest_of,
    socks5_proxy,
)

from umbilical.dialer.failure import REPORTS, DialFailed, DialReason
from umbilical.dialer.settings import DialerSettings
from umbilical.fault import StartupError
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings
from umbilical.proxies.socks5 import MAX_FILE_BYTES, Socks5Credentials

ERROR_BYTES = bytes(6)


async def test_bytes_go_both_ways_and_are_counted() -> None:
    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener()) as proxy:
        client = await proxy.opened(port)
        client[1].write(b"hello")
        assert await client[0].readexactly(5) == b"hello"
        client[1].write_eof()
        assert await rest_of(client[0]) == b""
        await drop(client)
        await proxy.listener.until_idle()
        assert proxy.sample('umbilical_proxy_requests_total{protocol="socks5",result="ok"}') == 1
        assert proxy.sample('umbilical_proxy_bytes_total{direction="to_endpoint"}') == 5
        assert proxy.sample('umbilical_proxy_bytes_total{direction="to_client"}') == 5


async def test_a_success_names_the_address_that_the_connection_leaves_from() -> None:
    seen: list[tuple[str, int]] = []

    async def remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peername")[:2])
        await reader.read()

    async with endpoint(remember) as port, socks5_proxy(LoopbackOpener()) as proxy:
        reader, writer = await proxy.connect()
        writer.write(HELLO + connect_request("127.0.0.1", port))
        reply = (await reader.readexactly(12))[2:]
        assert reply[:4] == b"\x05\x00\x00\x01"
        await eventually(lambda: bool(seen))
        assert seen == [(socket.inet_ntop(socket.AF_INET, reply[4:8]), int.from_bytes(reply[8:], "big"))]
        await drop((reader, writer))


async def test_names_and_both_kinds_of_addresses_reach_the_opener_as_the_client_wrote_them() -> None:
    opener = LoopbackOpener()
    opener.names = {"api.my-ns.svc": "127.0.0.1"}
    async with endpoint(echo) as port, endpoint(echo, "::1") as port6, socks5_proxy(opener) as proxy:
        for host, where in (("127.0.0.1", port), ("api.my-ns.svc", port), ("::1", port6)):
            client = await proxy.connect()
            assert await ask(client, host, where) == 0
            await drop(client)
        assert opener.asked == [("127.0.0.1", port), ("api.my-ns.svc", port), ("::1", port6)]


@pytest.mark.parametrize("reason", list(DialReason), ids=lambda reason: reason.value)
async def test_a_failed_dial_is_answered_by_its_cause(reason: DialReason) -> None:
    opener = LoopbackOpener()
    opener.failures["there"] = DialFailed(reason, "there", "as somebody said")
    async with socks5_proxy(opener) as proxy:
        code = REPORTS[reason].socks_reply
        assert (
            await proxy.told(HELLO + connect_request("there", 443))
            == b"\x05\x00" + bytes((5, code, 0, 1)) + ERROR_BYTES
        )
        assert proxy.sample(f'umbilical_proxy_requests_total{{protocol="socks5",result="{reason.value}"}}') == 1


async def test_bind_with_a_name_is_refused_without_a_look_at_the_name() -> None:
    opener = LoopbackOpener()
    async with socks5_proxy(opener) as proxy:
        assert (
            await proxy.told(HELLO + b"\x05\x02" + connect_request("no.such.name", 443)[2:])
            == b"\x05\x00\x05\x07\x00\x01" + ERROR_BYTES
        )
        assert opener.asked == []
        assert proxy.sample('umbilical_proxy_requests_total{protocol="socks5",result="unsupported"}') == 1


async def test_who_speaks_another_protocol_is_closed_without_a_word() -> None:
    async with socks5_proxy(LoopbackOpener()) as proxy:
        assert await proxy.told(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") == b""
        assert proxy.sample('umbilical_proxy_requests_total{protocol="socks5",result="bad-request"}') == 1


async def test_bytes_behind_the_request_reach_the_endpoint_first() -> None:
    early = b"early " * 20_000  # more than one read of a handshake takes
    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener()) as proxy:
        reader, writer = await proxy.connect()
        writer.write(HELLO + connect_request("127.0.0.1", port) + early)
        writer.write(b"and late")
        writer.write_eof()
        assert (await rest_of(reader))[12:] == early + b"and late"
        await drop((reader, writer))
        await proxy.listener.until_idle()
        assert proxy.sample('umbilical_proxy_bytes_total{direction="to_endpoint"}') == len(early) + 8


async def test_a_client_may_speak_one_byte_at_a_time() -> None:
    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener()) as proxy:
        reader, writer = await proxy.connect()
        for byte in HELLO + connect_request("127.0.0.1", port) + b"x":
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
        assert (await rest_of(reader))[12:] == b"x"
        await drop((reader, writer))


def _file(folder: Path, text: str) -> Path:
    path = folder / "users"
    path.write_text(text)
    path.chmod(0o600)
    return path


async def test_a_wrong_password_does_not_and_is_not_in_the_log(tmp_path: Path, caplog: Logged) -> None:
    opener = LoopbackOpener()
    async with socks5_proxy(opener, Socks5Credentials(_file(tmp_path, "ann:s3cret\n"))) as proxy:
        assert (
            await proxy.told(b"\x05\x01\x02\x01\x03ann\x07s3crets" + connect_request("127.0.0.1", 1))
            == b"\x05\x02\x01\x01"
        )
        assert await proxy.told(HELLO + connect_request("127.0.0.1", 1)) == b"\x05\xff"
        assert opener.asked == []
        assert proxy.sample('umbilical_proxy_requests_total{protocol="socks5",result="unauthorized"}') == 2
    assert "UMB522" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_storm_of_failures_is_one_line(caplog: Logged) -> None:
    opener = LoopbackOpener()
    opener.failures["there"] = DialFailed(DialReason.REFUSED, "there:443", "connection refused")
    async with socks5_proxy(opener) as proxy:
        for _ in range(20):
            client = await proxy.connect()
            assert await ask(client, "there", 443) == 5
            await drop(client)
    assert caplog.text.count("UMB501") == 1
    assert "dial of there:443 failed" in caplog.text


def test_a_user_with_the_right_password_is_let_in_and_nobody_else(tmp_path: Path) -> None:
    known = Socks5Credentials(_file(tmp_path, "ann:s3cret\n\nbob:with:colons\n"))
    assert known.are_valid(b"ann", b"s3cret")
    assert known.are_valid(b"bob", b"with:colons")
    for username, password in ((b"ann", b"s3cre"), (b"ann", b""), (b"", b""), (b"eve", b""), (b"bob", b"s3cret")):
        assert not known.are_valid(username, password)


def test_a_changed_file_counts_at_once(tmp_path: Path, caplog: Logged) -> None:
    caplog.set_level("INFO")
    path = _file(tmp_path, "ann:old\n")
    known = Socks5Credentials(path)
    path.write_text("ann:newer\n")
    assert known.are_valid(b"ann", b"newer")
    assert not known.are_valid(b"ann", b"old")
    assert "read again: 1 users" in caplog.text
    assert "newer" not in caplog.text


def test_a_secret_that_is_replaced_by_its_link_counts_too(tmp_path: Path) -> None:
    for name, password in (("one", "first"), ("two", "again")):
        (tmp_path / name).mkdir()
        _file(tmp_path / name, f"ann:{password}\n")
    link = tmp_path / "..data"
    link.symlink_to("one")
    known = Socks5Credentials(link / "users")
    os.symlink("two", tmp_path / "..tmp")
    os.rename(tmp_path / "..tmp", link)
    assert known.are_valid(b"ann", b"again")


@pytest.mark.parametrize("text", ["no colon", "ann:", ":s3cret", f"ann:{'p' * 256}"])
def test_a_bad_line_is_named_by_its_number_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartupError) as fault:
        Socks5Credentials(_file(tmp_path, f"bob:fine\n{text}\n"))
    assert fault.value.code == "UMB521"
    assert "line 2" in fault.value.why
    assert text not in str(fault.value)


def test_no_file_is_no_open_door_an_empty_one_lets_nobody_in_and_a_huge_one_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="No such file"):
        Socks5Credentials(tmp_path / "users")
    assert not Socks5Credentials(_file(tmp_path, "")).are_valid(b"", b"")
    with pytest.raises(StartupError, match="more than"):
        Socks5Credentials(_file(tmp_path, "a:b\n" * (MAX_FILE_BYTES // 4 + 1)))


@pytest.mark.parametrize("text", ["broken", None])
def test_a_file_that_breaks_later_leaves_those_from_before(tmp_path: Path, text: str | None, caplog: Logged) -> None:
    path = _file(tmp_path, "ann:s3cret\n")
    known = Socks5Credentials(path)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    for _ in range(3):
        assert known.are_valid(b"ann", b"s3cret")
    assert caplog.text.count("UMB521") == 1
    assert "s3cret" not in caplog.text


def test_settings_of_the_http_proxy_show_no_url_that_may_hold_a_password() -> None:
    settings = HttpsSettings(
        ListenerSettings(()),
        OutboundSettings(DialerSettings(())),
        http_proxy="http://user:s3cret@proxy",
        https_proxy="http://user:s3cret@proxy",
    )
    assert "ListenerSettings" in repr(settings)
    assert "s3cret" not in repr(settings)
