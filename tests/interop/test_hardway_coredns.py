"""The Corefile of the kubernetes profile in the real CoreDNS, beside a real kube-apiserver."""

import socket
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest
from tests.support import hardway
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane

import peers
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.manifests.coredns import coredns
from umbilical.host.files import write_file
from umbilical.host.processes import start

pytestmark = pytest.mark.real(*PROGRAMS, "coredns")
READY_SECONDS = 60.0


def corefile(folder: Path, plane: ControlPlane, ports: list[int]) -> Path:
    """Ours, on ports that are free here, and with a kubeconfig where a pod has its account."""
    made = next(one for one in coredns(hardway.inputs(Profile.KUBERNETES)) if one["kind"] == "ConfigMap")
    text = made["data"]["Corefile"]
    health, ready, metrics = (f"127.0.0.1:{port}" for port in ports[1:])
    for old, new in (
        (".:53 {", f".:{ports[0]} {{\n    bind 127.0.0.1"),
        ("health {", f"health {health} {{"),
        ("    ready\n", f"    ready {ready}\n"),
        ("prometheus :9153", f"prometheus {metrics}"),
        ("pods insecure", f"pods insecure\n        kubeconfig {plane.kubeconfig}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return write_file(folder / "Corefile", text.encode(), overwrite=True)


def free_ports(count: int) -> list[int]:
    """Ask the kernel for some at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A resolver of the cluster, and the port on which it answers."""
    folder = tmp_path_factory.mktemp("dns")
    services = str(hardway.cluster(Profile.KUBERNETES).networks.services)
    with control_plane(folder / "plane", apiserver_arguments=[f"--service-cluster-ip-range={services}"]) as plane:
        ports = free_ports(4)
        program = peers.binary("coredns")
        assert program is not None
        command = [str(program), "-conf", str(corefile(folder, plane, ports))]
        with start(command, folder / "coredns.log", name="coredns") as child:
            child.wait_ready(lambda: answers(ports[0]), READY_SECONDS)
            yield ports[0]


def ask(port: int, name: str) -> dns.message.Message:
    return dns.query.udp(dns.message.make_query(name, dns.rdatatype.A), "127.0.0.1", port=port, timeout=5)


def addresses(port: int, name: str) -> list[str]:
    return [item.to_text() for group in ask(port, name).answer for item in group]


def answers(port: int) -> bool:
    try:
        return bool(addresses(port, "kubernetes.default.svc.cluster.local"))
    except (OSError, dns.exception.DNSException):
        return False


def test_a_service_is_found_by_its_name(resolver: int) -> None:
    assert addresses(resolver, "kubernetes.default.svc.cluster.local") == [
        str(hardway.cluster(Profile.KUBERNETES).service_ip)
    ]


def test_a_pods_address_is_told_without_asking_for_the_pod(resolver: int) -> None:
    assert addresses(resolver, "10-128-0-7.default.pod.cluster.local") == ["10.128.0.7"]


def test_a_name_that_no_service_has_is_not_invented(resolver: int) -> None:
    assert ask(resolver, "nobody.default.svc.cluster.local").rcode() is dns.rcode.NXDOMAIN
