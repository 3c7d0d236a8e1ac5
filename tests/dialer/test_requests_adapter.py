"""A requests session that is mounted on the tunnel."""

import sys
from collections.abc import Iterator

import pytest
import requests
from tests.support.dialer_scene import PATIENCE_SECONDS, settings_for
from tests.support.https_endpoint import web_server
from tests.support.in_process import Stage
from tests.support.tunnel_pair import free_port

from umbilical.dialer.blocking import BlockingDialer
from umbilical.dialer.requests_adapter import TunnelAdapter


@pytest.fixture
def session(stage: Stage) -> Iterator[requests.Session]:
    server, _ = stage.start_pair(tcp=True)
    with (
        BlockingDialer(settings_for(stage.pki, server.frontend)) as dialer,
        requests.Session() as session,
    ):
        session.mount("http://", TunnelAdapter(dialer))
        session.mount("https://", TunnelAdapter(dialer, pool_maxsize=2))
        yield session


def test_requests_go_through_the_tunnel_and_the_endpoint_is_verified(stage: Stage, session: requests.Session) -> None:
    authority = stage.pki.authority
    with web_server() as plain, web_server(authority.server_context(stage.pki.server)) as secure:
        answer = session.get(f"http://127.0.0.1:{plain}/x", timeout=PATIENCE_SECONDS)
        assert answer.text == f"GET /x for 127.0.0.1:{plain}"
        url = f"https://127.0.0.1:{secure}/"
        with pytest.raises(requests.exceptions.SSLError):
            session.get(url, timeout=PATIENCE_SECONDS)
        trusted = str(authority.certificate_file)
        answer = session.post(url, data=bytes(200_000), timeout=PATIENCE_SECONDS, verify=trusted)
        assert answer.content == bytes(200_000)


def test_proxies_of_the_environment_are_passed_over(session: requests.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with web_server() as port:
        assert session.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE_SECONDS).ok


def test_a_failed_dial_is_a_connection_error_with_its_cause(session: requests.Session) -> None:
    with pytest.raises(requests.exceptions.ConnectionError, match="UMB501"):
        session.get(f"http://127.0.0.1:{free_port()}/", timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(("module", "missing"), [("requests_adapter", "requests"), ("urllib3_pools", "urllib3")])
def test_without_the_library_one_learns_which(module: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == missing or name == f"umbilical.dialer.{module}":
            monkeypatch.setitem(sys.modules, name, sys.modules[name])  # put back at the end
            del sys.modules[name]
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=f"needs {missing}: pip install"):
        __import__(f"umbilical.dialer.{module}")
