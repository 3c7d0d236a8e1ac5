"""Both APIs asked: what was given wins, what fails is a fact, and nothing stops because of it."""

import asyncio
from pathlib import Path

import pytest
from tests.hosted.test_health import serving
from tests.support.control_plane import PROGRAMS, ControlPlane

from umbilical.hosted.clusters import (
    NO_AGENT_PAIR,
    NO_CLIENT,
    NO_HEALTH,
    NO_HOSTED,
    NO_MANAGEMENT,
    NO_PROXIES,
    CheckOptions,
    Clusters,
    ask_clusters,
)
from umbilical.hosted.facts import HostedFacts, ManagementFacts, ServerHealth, Unknown
from umbilical.tunnel.settings import ServerAddress, TlsFiles

FILES = TlsFiles(Path("c"), Path("k"), Path("ca"))
SECONDS = 60.0


def asked(options: CheckOptions, folder: Path) -> Clusters:
    return asyncio.run(asyncio.wait_for(ask_clusters(options, folder), 2 * SECONDS))


def test_nothing_given_is_nothing_known(tmp_path: Path) -> None:
    found = asked(CheckOptions(), tmp_path)
    assert (found.client, found.agent, found.kubelet) == (NO_CLIENT, NO_AGENT_PAIR, None)
    assert (found.health, found.proxies) == (NO_HEALTH, NO_PROXIES)
    assert (found.management, found.hosted, found.certificates) == (NO_MANAGEMENT, NO_HOSTED, NO_MANAGEMENT)


def test_what_is_given_is_taken_and_ports_are_asked_directly(tmp_path: Path) -> None:
    pages = {"/healthz": (200, b"ok"), "/metrics": (200, b""), "/readyz": (503, b"not yet")}
    with serving(pages) as port:
        place = (ServerAddress("127.0.0.1", port),)
        options = CheckOptions(
            client=FILES, agent=FILES, kubelet=FILES, health=place, proxies=place, hop_seconds=SECONDS
        )
        found = asked(options, tmp_path)
    assert (found.client, found.agent, found.kubelet) == (FILES, FILES, FILES)
    assert found.health == (ServerHealth(f"127.0.0.1:{port}"),)
    assert isinstance(found.proxies, tuple)
    assert "not yet" in found.proxies[0].trouble


def test_kubeconfigs_that_cannot_be_used_are_failures(tmp_path: Path) -> None:
    options = CheckOptions(management_kubeconfig=tmp_path / "none", namespace="n", hosted_kubeconfig=tmp_path / "none")
    found = asked(options, tmp_path)
    for part in (found.management, found.hosted, found.certificates, found.client, found.health):
        assert isinstance(part, Unknown)
        assert part.is_failure
        assert "UMB601" in part.reason
    assert found.agent == NO_AGENT_PAIR


@pytest.mark.real(*PROGRAMS)
def test_a_namespace_without_a_tunnel_tells_what_is_missing(plane: ControlPlane, tmp_path: Path) -> None:
    options = CheckOptions(
        management_kubeconfig=plane.kubeconfig, namespace="kube-public", hosted_kubeconfig=plane.kubeconfig
    )
    found = asked(options, tmp_path)
    assert isinstance(found.management, ManagementFacts)
    assert isinstance(found.hosted, HostedFacts)
    assert found.health == ()
    assert isinstance(found.client, Unknown)
    assert "UMB570" in found.client.reason
    assert isinstance(found.certificates, tuple)
    assert {fact.trouble for fact in found.certificates} == {"there is no such Secret"}


@pytest.mark.real(*PROGRAMS)
def test_the_agents_pair_is_found_in_the_hosted_cluster(plane: ControlPlane, tmp_path: Path) -> None:
    secret = {"name": "konnectivity-agent", "namespace": "kube-system"}
    plane.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"tls.crt": "c", "tls.key": "k"}}
    )
    try:
        found = asked(CheckOptions(hosted_kubeconfig=plane.kubeconfig), tmp_path)
    finally:
        plane.kubectl("-n", "kube-system", "delete", "secret", "konnectivity-agent")
    assert isinstance(found.agent, TlsFiles)
    assert found.agent.key is not None
    assert found.agent.key.read_text() == "k"
    assert isinstance(found.certificates, tuple)
    assert "cannot be read" in found.certificates[0].trouble
