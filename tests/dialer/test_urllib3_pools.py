"""urllib3 through the tunnel: its own pools, its own TLS, and our causes in its exceptions."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from tests.support.dialer_scene import PATIENCE_SECONDS, settings_for
from tests.support.https_endpoint import web_server
from tests.support.in_process import Stage
from tests.support.scripted_frontend import answering, read_head, silent, unix_frontend
from tests.support.tunnel_pair import free_port

from umbilical.dialer.blocking import BlockingDialer
from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.dialer.urllib3_pools import tunnel_pool_manager


@pytest.fixture
def dialer(stage: Stage) -> Iterator[BlockingDialer]:
    server, _ = stage.start_pair(tcp=True)
    with BlockingDialer(settings_for(stage.pki, server.frontend)) as dialer:
        yield dialer


def test_http_and_https_requests_go_through_and_connections_are_kept(stage: Stage, dialer: BlockingDialer) -> None:
    authority = stage.pki.authority
    with (
        web_server() as plain,
        web_server(authority.server_context(stage.pki.server)) as secure,
        tunnel_pool_manager(dialer, ca_certs=str(authority.certificate_file), timeout=PATIENCE_SECONDS) as pools,
    ):
        for _ in range(3):
            assert pools.request("GET", f"http://127.0.0.1:{plain}/a").data == f"GET /a for 127.0.0.1:{plain}".encode()
            assert pools.request("GET", f"https://127.0.0.1:{secure}/b").status == 200
        assert stage.servers[0].gauges().established_connections == 2
        body = bytes(300_000)
        assert pools.request("POST", f"https://127.0.0.1:{secure}/", body=body).data == body


def test_the_endpoint_s_certificate_is_verified(stage: Stage, dialer: BlockingDialer) -> None:
    with (
        web_server(stage.pki.authority.server_context(stage.pki.server)) as port,
        tunnel_pool_manager(dialer, retries=False, timeout=PATIENCE_SECONDS) as pools,
        pytest.raises(urllib3.exceptions.SSLError),
    ):
        pools.request("GET", f"https://127.0.0.1:{port}/")


def test_a_dial_that_fails_is_told_with_its_cause(dialer: BlockingDialer) -> None:
    with (
        tunnel_pool_manager(dialer, retries=False) as pools,
        pytest.raises(urllib3.exceptions.NewConnectionError, match="UMB501 the endpoint refused the connection"),
    ):
        pools.request("GET", f"http://127.0.0.1:{free_port()}/")


def test_an_endpoint_or_a_server_that_is_silent_is_a_timeout(tmp_path: Path) -> None:
    reply = b"HTTP/1.1 504 Gateway Timeout\r\n\r\ndial tcp 10.0.0.1:80: i/o timeout"
    for name, deed, seconds in (("slow", answering(reply), PATIENCE_SECONDS), ("silent", silent, 0.05)):
        with (
            unix_frontend(tmp_path / name, deed) as path,
            BlockingDialer(DialerSettings((UnixServer(path),))) as dialer,
            tunnel_pool_manager(dialer, retries=False, timeout=seconds) as pools,
            pytest.raises(urllib3.exceptions.ConnectTimeoutError),
        ):
            pools.request("GET", "http://10.0.0.1/")


def test_an_ipv6_endpoint_is_asked_for_without_its_brackets(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def deed(sock: socket.socket) -> None:
        asked.append(read_head(sock))

    with (
        unix_frontend(tmp_path / "s", deed) as path,
        BlockingDialer(DialerSettings((UnixServer(path),))) as dialer,
        tunnel_pool_manager(dialer, retries=False) as pools,
        pytest.raises(urllib3.exceptions.NewConnectionError),
    ):
        pools.request("GET", "http://[fd00::7]:8080/")
    assert asked[0].startswith(b"CONNECT [fd00::7]:8080 HTTP/1.1\r\n")
