"""The whole check by files alone, through a real tunnel: what can be seen is judged, the rest says why not."""

from pathlib import Path
from typing import Any

import pytest
from tests.hosted.conftest import Tunnel
from tests.hosted.test_gather_tunnel import kubelet
from tests.hosted.test_port_forward import told as told_fixture
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.in_process import Stage
from tests.support.tunnel_pki import FolderAuthority, Pair, make_tunnel_pki

from umbilical.checks.check import Finding, Outcome
from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.hosted.check import check_findings
from umbilical.hosted.clusters import CheckOptions
from umbilical.tunnel.settings import TlsFiles

SECONDS = 60.0
told = told_fixture


def by_id(options: CheckOptions) -> dict[str, Finding]:
    return {finding.id: finding for finding in check_findings(options)}


def test_kubelets_and_the_intruder_are_judged_by_files_alone(tunnel: Tunnel, tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path, "kubelet-ca")
    agent = tunnel.pki.agent
    assert isinstance(tunnel.access.server, TcpServer)
    with kubelet(authority, 200) as port:
        found = by_id(
            CheckOptions(
                servers=(tunnel.access.server,),
                client=tunnel.access.tls,
                agent=TlsFiles(agent.certificate, agent.key),
                kubelet=TlsFiles(authority=authority.certificate_file),
                nodes=("127.0.0.1",),
                kubelet_port=port,
                hop_seconds=SECONDS,
            )
        )
    assert found["T1"].outcome is Outcome.PASSED
    assert found["C3"].outcome is Outcome.FAILED, "one authority for both listeners lets agents in"
    others = {finding.outcome for finding in found.values() if finding.id not in ("T1", "C3")}
    assert others == {Outcome.SKIPPED}


def test_a_unix_socket_needs_no_certificate_and_tells_nothing_about_them(stage: Stage, tmp_path: Path) -> None:
    server, _ = stage.start_pair()
    assert server.frontend.unix_path is not None
    with kubelet(FolderAuthority(tmp_path), 401) as port:
        found = by_id(
            CheckOptions(
                servers=(UnixServer(server.frontend.unix_path),),
                agent=TlsFiles(stage.pki.agent.certificate, stage.pki.agent.key),
                nodes=("127.0.0.1",),
                kubelet_port=port,
                hop_seconds=SECONDS,
            )
        )
    assert found["T1"].outcome is Outcome.PASSED
    assert found["C3"].outcome is Outcome.SKIPPED
    assert "Unix socket" in found["C3"].evidence


def test_servers_without_a_clients_certificate_are_not_asked() -> None:
    found = by_id(CheckOptions(servers=(TcpServer("127.0.0.1", 1),), nodes=("127.0.0.1",)))
    assert found["T1"].outcome is Outcome.SKIPPED
    assert "--cert" in found["T1"].evidence


def test_without_anything_everything_is_skipped() -> None:
    found = by_id(CheckOptions())
    assert {finding.outcome for finding in found.values()} == {Outcome.SKIPPED}
    assert "--server" in found["T1"].evidence
    assert "--kubeconfig" in found["H1"].evidence


@pytest.mark.real(*PROGRAMS)
def test_each_pods_port_is_forwarded_and_its_server_asked(
    plane: ControlPlane, told: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = "clusters-forwarded"
    pki = make_tunnel_pki(tmp_path_factory.mktemp("named"), ("127.0.0.1", "konnectivity-server-local"))
    stage = Stage(pki, tmp_path)
    try:
        server, _ = stage.start_pair(tcp=True)
        plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}},
            item(place, "Pod", "kas-0", spec={"containers": [server_container(server.frontend.port)]}),
            item(place, "Secret", "konnectivity-client", stringData=pair_data(pki.client)),
            item(
                place,
                "ConfigMap",
                "konnectivity-ca-bundle",
                data={"ca.crt": pki.authority.certificate_file.read_text()},
            ),
        )
        with kubelet(FolderAuthority(tmp_path, "kubelet-ca"), 200) as port:
            options = CheckOptions(
                plane.kubeconfig, place, nodes=("127.0.0.1",), kubelet_port=port, hop_seconds=SECONDS
            )
            found = by_id(options)
    finally:
        stage.stop()
    assert found["T1"].outcome is Outcome.PASSED, found["T1"].evidence
    assert f"pod/kas-0 :{server.frontend.port}" in told.read_text()


def item(namespace: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {"app": "kube-apiserver"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **content}


def server_container(port: int) -> dict[str, Any]:
    return {"name": "konnectivity-server", "image": "i", "args": [f"--server-port={port}"]}


def pair_data(pair: Pair) -> dict[str, str]:
    return {"tls.crt": pair.certificate.read_text(), "tls.key": pair.key.read_text()}


@pytest.mark.real(*PROGRAMS)
def test_ports_that_cannot_be_forwarded_are_told(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    place = "clusters-forward"
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}},
        item(place, "Pod", "kas-0", spec={"containers": [server_container(8090)]}),
        item(place, "Secret", "konnectivity-client", stringData={"tls.crt": "c", "tls.key": "k"}),
        item(place, "ConfigMap", "konnectivity-ca-bundle", data={"ca.crt": "x"}),
    )
    found = by_id(CheckOptions(plane.kubeconfig, place, nodes=("127.0.0.1",)))
    assert found["T1"].outcome is Outcome.SKIPPED
    assert "UMB571" in found["T1"].evidence
    assert found["M1"].outcome is Outcome.PASSED
    assert found["S1"].outcome is Outcome.FAILED
