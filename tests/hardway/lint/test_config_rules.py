"""Rules about the config: they hold for usual clusters, and each notices the faults that it is there for."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any, Final

from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Sample, Subject, changed, replaced, verdict

from umbilical.checks.check import Outcome
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_FINAL, NETWORK, REVERSE_ZONE, ZONE
from umbilical.hardway.config.cluster import AddressRange, Cluster, ClusterProfile, NodeRole
from umbilical.hardway.lint.config_rules import RULES
from umbilical.hardway.lint.facts import LintFacts


def configured(change: Callable[[Cluster], Cluster]) -> Sample:
    def edit(subject: Subject) -> None:
        subject.cluster = change(subject.cluster)

    return edit


def cluster(**changes: Any) -> Sample:
    return configured(lambda of: replace(of, **changes))


def networks(**changes: Any) -> Sample:
    return configured(lambda of: replace(of, networks=replace(of.networks, **changes)))


def node(node_id: str, **changes: Any) -> Sample:
    return configured(
        lambda of: replace(of, nodes=tuple(replace(one, **changes) if one.id == node_id else one for one in of.nodes))
    )


def roles(*wanted: NodeRole) -> Sample:
    """A cluster with these numbers of nodes; the other artifacts do not matter to the rule."""
    return configured(
        lambda of: replace(
            of, nodes=tuple(replace(of.nodes[0], id=f"{role.value}-{n}", role=role) for n, role in enumerate(wanted))
        )
    )


def bridge(name: str) -> Sample:
    def change(of: Cluster) -> Cluster:
        assert of.libvirt is not None
        return replace(of, libvirt=replace(of.libvirt, bridge=name))

    return configured(change)


def told(paths: tuple[str, ...]) -> Sample:
    def edit(subject: Subject) -> None:
        subject.exposed = paths

    return edit


def otherwise_certified(kind: str) -> Sample:
    """Replace a master's certificate with another master's."""
    path = f"tls/etcd-{kind}-master-{{}}.crt"
    return lambda subject: subject.write(path.format(0), subject.assets[path.format(1)].content)


def overridden(subject: Subject) -> None:
    """A kubelet that is told another name by its unit."""
    path, flag = "ignition/worker-0.ign", "--config=/etc/kubernetes/kubelet.conf"
    subject.replace(path, flag, f"--hostname-override=worker-0 {flag}")
    # The last word counts, as for the kubelet.
    text = subject.assets[path].content.decode()
    subject.write(path, text.replace("--hostname-override=worker-0.ocp4.example.com", "").encode())


MASTER: Final = ip_address("192.168.126.101")
SAMPLES: Final[dict[str, Sample]] = {
    "CFG-01": cluster(name="Ocp_4"),
    "CFG-01 a long name": cluster(name="n" * 64),
    "CFG-01 the base": cluster(base_domain="example..com"),
    "CFG-01 a long domain": cluster(base_domain=".".join(["a" * 60] * 5)),
    "CFG-01 the bridge": bridge("virbr-production"),
    "CFG-01 a long node": node("master-0", name=f"master-0.{'a' * 60}.example.com"),
    "CFG-02": networks(pods=ip_network("192.168.0.0/16")),
    "CFG-02 services": networks(services=ip_network("10.128.0.0/16")),
    "CFG-02 a VIP outside": networks(api_vip=ip_address("192.168.127.10")),
    "CFG-02 a VIP at a node's": networks(ingress_vip=MASTER),
    "CFG-02 a VIP at the gateway's": networks(api_vip=ip_address("192.168.126.1")),
    "CFG-02 both VIPs": networks(api_vip=ip_address("192.168.126.11")),
    "CFG-02 a VIP that is given away": networks(api_vip=ip_address("192.168.126.210")),
    "CFG-02 a node outside": node("worker-1", address=ip_address("10.0.0.5")),
    "CFG-02 two nodes": node("worker-1", address=MASTER),
    "CFG-02 a node that is given away": node("worker-1", address=ip_address("192.168.126.254")),
    "CFG-02 the broadcast address": node("worker-1", address=ip_address("192.168.126.255")),
    "CFG-02 the resolver is a node": networks(dns=MASTER),
    "CFG-02 a range from elsewhere": networks(dhcp=AddressRange(ip_address("10.0.0.1"), ip_address("10.0.0.9"))),
    "CFG-02 a range from its end": networks(
        dhcp=AddressRange(ip_address("192.168.126.254"), ip_address("192.168.126.200"))
    ),
    "CFG-03": networks(host_prefix=14),
    "CFG-03 too few addresses": networks(host_prefix=26),
    "CFG-03 too few pieces": networks(pods=ip_network("10.128.0.0/22")),
    "CFG-03 no such prefix": networks(host_prefix=33),
    "CFG-03 one piece for two": lambda subject: [
        node(name, pod_network=ip_network("10.128.0.0/23"))(subject) for name in ("master-0", "master-1")
    ],
    "CFG-03 a piece of another network": node("master-0", pod_network=ip_network("10.0.0.0/23")),
    "CFG-04": roles(NodeRole.BOOTSTRAP),
    "CFG-04 seven": roles(NodeRole.BOOTSTRAP, *[NodeRole.MASTER] * 7),
    "CFG-04 an even number": roles(NodeRole.BOOTSTRAP, *[NodeRole.MASTER] * 4),
    "CFG-04 two bootstrap nodes": roles(NodeRole.BOOTSTRAP, NodeRole.BOOTSTRAP, NodeRole.MASTER),
    "CFG-06": lambda subject: subject.edit_ignition("master-1", "/etc/hostname", lambda _: b"master-1\n"),
    "CFG-06 the load balancer": replaced(HAPROXY_FINAL, "server master-0.ocp4.example.com", "server m0"),
    "CFG-06 a zone": replaced(ZONE, "worker-1.ocp4.example.com. IN A", "worker1.ocp4.example.com. IN A"),
    "CFG-06 backwards": replaced(REVERSE_ZONE, "IN PTR worker-1.ocp4", "IN PTR worker1.ocp4"),
    "CFG-06 libvirt": replaced(NETWORK, "<hostname>bootstrap.ocp4.example.com<", "<hostname>bootstrap<"),
    "CFG-06 a certificate": otherwise_certified("serving"),
    "CFG-06 a peer's certificate": otherwise_certified("peer"),
    "CFG-06 the config": node("master-2", name="other.ocp4.example.com"),
    "CFG-06 two of one name": node("worker-0", name="worker-1.ocp4.example.com"),
    "CFG-06 the kubelet": overridden,
    "CFG-07": told(("artifacts/tls/admin-kubeconfig-client.key",)),
}


def test_an_even_number_of_masters_warns_and_any_other_fails() -> None:
    original = everything(ClusterProfile.OPENSHIFT)
    outcomes = {
        count: verdict("CFG-04", changed(original, roles(NodeRole.BOOTSTRAP, *[NodeRole.MASTER] * count))).outcome
        for count in range(8)
    }
    passing, doubtful = {1, 3, 5}, {2, 4, 6}
    assert {count for count, outcome in outcomes.items() if outcome is Outcome.PASSED} == passing
    assert {count for count, outcome in outcomes.items() if outcome is Outcome.WARNED} == doubtful


def test_where_nobody_looked_at_a_disk_nothing_is_said_about_git() -> None:
    original = everything(ClusterProfile.OPENSHIFT)
    facts = LintFacts(original.cluster, original.assets, original.now, has_tunnel=True)
    [rule] = [one for one in RULES if one.id == "CFG-07"]
    assert rule.check.judge(facts).outcome is Outcome.SKIPPED
