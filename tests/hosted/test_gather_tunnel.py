"""Probes through real tunnels: kubelets that live, are ill or away; and an agent's certificate at the frontend."""

import asyncio
import ssl
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hosted.conftest import Tunnel, access_to
from tests.support.in_process import Stage, refused_address
from tests.support.tls_listener import listener, says_nothing
from tests.support.tunnel_pki import FolderAuthority
from tests.support.web_server import Handler, serving

from umbilical.hosted.access import Access
from umbilical.hosted.facts import Probe
from umbilical.hosted.gather_tunnel import probe_dials, probe_intruder, probe_kubelets
from umbilical.tunnel.settings import TlsFiles

SECONDS = 60.0


def kubelet(authority: FolderAuthority, status: int, *, asks: bool = False) -> AbstractContextManager[int]:
    class Health(Handler):
        def do_GET(self) -> None:
            self.answer(status if self.path == "/healthz" else 404)

    context = authority.server_context(authority.serving("kubelet"))
    if asks:
        context.load_verify_locations(authority.certificate_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return serving(Health, context)


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    (tmp_path / "kubelets").mkdir()
    return FolderAuthority(tmp_path / "kubelets", "kubelet-ca")


def kubelets(access: Access, port: int, tls: TlsFiles | None = None) -> Probe:
    (probe,) = asyncio.run(probe_kubelets([access], [("127.0.0.1", port)], tls, SECONDS))
    return probe


def test_a_kubelet_that_lives_is_reached_with_its_own_certificates(tunnel: Tunnel, authority: FolderAuthority) -> None:
    client = authority.client("kube-apiserver")
    files = TlsFiles(client.certificate, client.key, authority.certificate_file)
    with kubelet(authority, 200, asks=True) as port:
        probe = kubelets(tunnel.access, port, files)
    assert probe == Probe(tunnel.access.title, f"127.0.0.1:{port}", True, "HTTP 200 on /healthz")


@pytest.mark.parametrize(("status", "is_ok"), [(401, True), (403, True), (500, False), (404, False)])
def test_a_kubelet_that_does_not_know_us_is_reached_and_one_that_is_ill_is_not_well(
    tunnel: Tunnel, authority: FolderAuthority, status: int, is_ok: bool
) -> None:
    with kubelet(authority, status) as port:
        probe = kubelets(tunnel.access, port)
    assert (probe.is_ok, probe.text) == (is_ok, f"HTTP {status} on /healthz")


def test_a_kubelet_of_another_authority_is_not_taken_for_it(
    tunnel: Tunnel, authority: FolderAuthority, tmp_path: Path
) -> None:
    other = FolderAuthority(tmp_path, "other")
    with kubelet(authority, 200) as port:
        probe = kubelets(tunnel.access, port, TlsFiles(authority=other.certificate_file))
    assert not probe.is_ok
    assert "UMB574" in probe.text


def test_a_kubelet_that_is_away_is_told_with_the_hop(tunnel: Tunnel) -> None:
    probe = kubelets(tunnel.access, int(refused_address().rpartition(":")[2]))
    assert not probe.is_ok
    assert probe.text.startswith("UMB501 dial: ")


def test_an_endpoint_that_speaks_tls_and_says_nothing_is_no_kubelet(tunnel: Tunnel, authority: FolderAuthority) -> None:
    context = authority.server_context(authority.serving("silent"))
    with listener(says_nothing(context)) as port:
        (probe,) = asyncio.run(probe_kubelets([tunnel.access], [("127.0.0.1", port)], None, 1.0))
    assert not probe.is_ok


def test_every_endpoint_is_dialled_through_every_server(stage: Stage) -> None:
    servers = [stage.start_server(tcp=True), stage.start_server(tcp=True)]
    stage.start_agent(servers[0].agent_port)
    servers[0].wait_for_agents()
    places = [access_to(stage, server.frontend.port) for server in servers]
    host, _, port = stage.endpoint().address.rpartition(":")
    probes = asyncio.run(probe_dials(places, [(host, int(port)), (host, int(port))], SECONDS))
    assert [probe.is_ok for probe in probes] == [True, True, False, False]
    assert probes[0].text == "agent agent-0"
    assert "UMB505" in probes[2].text


def test_an_agents_certificate_of_the_same_authority_gets_in_and_that_is_told(tunnel: Tunnel) -> None:
    agent = TlsFiles(tunnel.pki.agent.certificate, tunnel.pki.agent.key)
    (probe,) = asyncio.run(probe_intruder([tunnel.access], agent, SECONDS))
    assert (probe.subject, probe.is_ok) == ("agent", False)


def test_an_agents_certificate_of_another_authority_is_turned_away(tunnel: Tunnel, authority: FolderAuthority) -> None:
    stranger = authority.client("konnectivity-agent")
    files = TlsFiles(stranger.certificate, stranger.key)
    (probe,) = asyncio.run(probe_intruder([tunnel.access], files, SECONDS))
    assert (probe.subject, probe.is_ok) == ("agent", True)


def test_an_agents_certificate_is_turned_away_by_its_name(stage: Stage) -> None:
    server = stage.start_server(tcp=True, frontend_identities=("CN=proxy-client",))
    stage.start_agent(server.agent_port)
    server.wait_for_agents()
    agent = TlsFiles(stage.pki.agent.certificate, stage.pki.agent.key)
    (probe,) = asyncio.run(probe_intruder([access_to(stage, server.frontend.port)], agent, SECONDS))
    assert (probe.subject, probe.is_ok) == ("agent", True)
    assert "UMB509" in probe.text


def test_where_a_client_does_not_get_in_either_nothing_is_shown(tunnel: Tunnel, authority: FolderAuthority) -> None:
    stranger = authority.client("nobody")
    files = TlsFiles(stranger.certificate, stranger.key, tunnel.access.tls.authority)
    (probe,) = asyncio.run(probe_intruder([replace(tunnel.access, tls=files)], files, SECONDS))
    assert (probe.subject, probe.is_ok) == ("client", False)
