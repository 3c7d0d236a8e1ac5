import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.in_process import Stage
from tests.support.odd_certificates import DAY, OddPki
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel import peer_certificate
from umbilical.tunnel.settings import AgentSettings, ServerAddress, TlsFiles


def settings(pki: TunnelPki, port: int) -> AgentSettings:
    tls = TlsFiles(pki.agent.certificate, pki.agent.key, pki.authority.certificate_file)
    return AgentSettings("a", (ServerAddress("127.0.0.1", port),), tls)


def explained(settings: AgentSettings, code: str) -> str:
    return asyncio.run(peer_certificate.explain(settings, settings.servers[0], None, code))


def test_the_dates_and_names_of_a_server_are_told_and_the_server_is_not_troubled(
    tunnel_pki: TunnelPki, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = OddPki(tmp_path)
    pki = odd.tunnel(tunnel_pki, odd.server(starts=DAY, hosts=("web", "::1")), odd.agent())
    stage = Stage(pki, tmp_path)
    try:
        ours = settings(pki, stage.start_server().agent_port)
        assert explained(ours, "UMB323") == "; it is for web, 0:0:0:0:0:0:0:1"
        assert f"only from {odd.now + DAY - timedelta(hours=1):%Y-%m-%dT%H:%M:%S}Z" in explained(ours, "UMB322")
        assert f"until {odd.now + 2 * DAY:%Y-%m-%dT%H:%M:%S}Z" in explained(ours, "UMB321")
        stage.eventually(lambda: not stage.servers[0].server.exchange.transports)
    finally:
        stage.stop()
    assert caplog.messages == []


def test_a_server_that_is_gone_or_strange_adds_no_words(stage: Stage, tmp_path: Path) -> None:
    port = stage.start_server().agent_port
    odd = OddPki(tmp_path)
    stranger = settings(odd.tunnel(stage.pki, odd.server(), odd.agent()), port)
    assert explained(stranger, "UMB322") == ""
    stage.call(stage.servers[0].server.close)
    assert explained(settings(stage.pki, port), "UMB322") == ""


def test_only_questions_of_dates_and_names_are_looked_into(stage: Stage) -> None:
    ours = settings(stage.pki, 1)
    assert explained(ours, "UMB311") == ""
    assert explained(ours, "UMB331").startswith("; ours is valid from 20")
    assert explained(AgentSettings("a", ours.servers, TlsFiles()), "UMB331") == ""


def test_files_that_went_bad_meanwhile_add_no_words(stage: Stage, tmp_path: Path) -> None:
    gone = TlsFiles(authority=tmp_path / "gone")
    assert explained(AgentSettings("a", settings(stage.pki, 1).servers, gone), "UMB322") == ""
