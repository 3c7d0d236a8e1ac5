"""Servers that publish leases and agents that count them, ours and upstream's on one real API server."""

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from tests.interop.endpoints import echo, endpoint
from tests.interop.fleet import Fleet, check_tunnel, fleet, say, wait_for_servers
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.tunnel_pair import TunnelPair, http_get, wait_until
from tests.support.tunnel_pki import TunnelPki

from umbilical.fault import HostError

pytestmark = pytest.mark.real(*PROGRAMS, "proxy-server", "proxy-agent")

NAMESPACE: Final = "kube-system"
LABELS: Final = {"k8s-app": "konnectivity-server"}
PREFIX: Final = "konnectivity-proxy-server-"
# A renewal and a collection, every 15 s each, with room for a busy machine.
BEAT_SECONDS: Final = 40.0
RIGHTS: Final = {"publisher": "get,create,update,list,delete", "counter": "get,list,watch"}


class Leases:
    """The leases as the API server shows them."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.publisher = plane.make_kubeconfig("publisher")
        self.counter = plane.make_kubeconfig("counter")

    def get(self, server_id: str) -> Any:
        return json.loads(self._plane.kubectl("-n", NAMESPACE, "get", "lease", PREFIX + server_id, "-o", "json"))

    def names(self) -> set[str]:
        listed = self._plane.kubectl("-n", NAMESPACE, "get", "leases", "-o", "name")
        names = (line.rpartition("/")[2] for line in listed.split())
        return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}

    def make(self, server_id: str, renewed: timedelta, labels: dict[str, str] = LABELS) -> None:
        """Leave a lease as a server did that renewed it at some time from now."""
        metadata = {"name": PREFIX + server_id, "namespace": NAMESPACE, "labels": labels}
        renew_time = (datetime.now(UTC) + renewed).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": server_id, "leaseDurationSeconds": 30, "renewTime": renew_time}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        self._plane.apply({**kind, "metadata": metadata, "spec": spec})

    def delete(self, server_id: str) -> None:
        self._plane.kubectl("-n", NAMESPACE, "delete", "lease", PREFIX + server_id, "--ignore-not-found")

    def wait_for(self, *server_ids: str, timeout: float = 60.0) -> None:
        """Wait until these servers, and no others, have leases."""
        wait_until(lambda: self.names() == set(server_ids), f"leases of {server_ids} and no others", timeout)


@pytest.fixture(scope="module")
def plane(namespace: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("lease-plane")) as plane:
        for user, verbs in RIGHTS.items():
            role = ("-n", NAMESPACE, "create", "role", user, f"--verb={verbs}", "--resource=leases")
            plane.kubectl(*role)
            plane.kubectl("-n", NAMESPACE, "create", "rolebinding", user, f"--role={user}", f"--user={user}")
        yield plane


@pytest.fixture
def leases(plane: ControlPlane) -> Iterator[Leases]:
    """Nothing is left of the test before."""
    leases = Leases(plane)
    yield leases
    with suppress(HostError):
        for server_id in leases.names():
            leases.delete(server_id)


@pytest.fixture
def servers(leases: Leases, pki: TunnelPki, tmp_path: Path) -> Iterator[Fleet]:
    """Servers that publish leases and say of themselves that they are alone."""
    with fleet(pki, tmp_path, "--enable-lease-controller", f"--kubeconfig={leases.publisher}") as servers:
        yield servers


def counting(leases: Leases) -> list[str]:
    return ["--count-server-leases", f"--kubeconfig={leases.counter}"]


def known(agent: TunnelPair) -> int:
    return int(agent.agent_metric("known_server_count"))


def wait_for_known(agent: TunnelPair, count: int, timeout: float = 60.0) -> None:
    wait_until(lambda: known(agent) == count, f"the agent knows of {count} servers", timeout)


def renewed_at(lease: Any) -> datetime:
    return datetime.fromisoformat(lease["spec"]["renewTime"])


def test_our_lease_looks_like_upstreams(servers: Fleet, leases: Leases) -> None:
    servers.add_server("ours")
    servers.add_server("theirs", implementation="upstream")
    leases.wait_for("ours", "theirs")
    shapes = {}
    for server_id in ("ours", "theirs"):
        lease = leases.get(server_id)
        assert lease["spec"].pop("holderIdentity") == server_id
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", lease["spec"]["renewTime"])
        assert datetime.now(UTC) - renewed_at(lease) < timedelta(seconds=30)
        shapes[server_id] = lease["metadata"]["labels"], lease["spec"].keys(), lease["spec"]["leaseDurationSeconds"]
    assert shapes["ours"] == shapes["theirs"]
    assert shapes["ours"] == (LABELS, {"leaseDurationSeconds", "renewTime"}, 30)


@pytest.mark.parametrize("implementation", ["ours", "upstream"])
def test_expired_leases_with_the_label_are_collected_and_counted(
    servers: Fleet, leases: Leases, implementation: str
) -> None:
    leases.make("dead", timedelta(seconds=-60))
    leases.make("dead-of-others", timedelta(seconds=-60), {"k8s-app": "something-else"})
    leases.make("alive", timedelta(seconds=60))
    server = servers.add_server("collector", implementation=implementation)
    leases.wait_for("collector", "alive", "dead-of-others")
    wait_until(lambda: server.server_metric("culled_leases_count") == 1, "the collected lease is counted")
    assert lease_samples(server) == {
        'lease_list_total{http_status_code="200",reason=""}',
        'lease_delete_total{http_status_code="200",reason=""}',
        'lease_list_latency_seconds_count{http_status_code="200"}',
        'lease_delete_latency_seconds_count{http_status_code="200"}',
        "culled_leases_count",
    }


def lease_samples(server: TunnelPair) -> set[str]:
    """Names and labels of what the server measured of leases; of a histogram, its count."""
    _, text = http_get(f"http://127.0.0.1:{server.ports.server_admin}/metrics")
    names = re.findall(r"^konnectivity_network_proxy_server_(\S*lease\S*) ", text, re.MULTILINE)
    return {name for name in names if "_bucket{" not in name and "_sum{" not in name}


def test_leases_are_renewed_repaired_and_collected_again_and_again(
    plane: ControlPlane, servers: Fleet, leases: Leases
) -> None:
    for server_id in ("kept", "stripped", "deleted"):
        servers.add_server(server_id)
    leases.wait_for("kept", "stripped", "deleted")
    before = renewed_at(leases.get("kept"))
    plane.kubectl("-n", NAMESPACE, "label", "lease", PREFIX + "stripped", "k8s-app-", "mine=stays")
    leases.delete("deleted")
    # Valid now, expired before the next collection.
    leases.make("dying", timedelta(seconds=-27))

    wait_until(lambda: renewed_at(leases.get("kept")) > before, "the lease is renewed", BEAT_SECONDS)
    leases.wait_for("kept", "stripped", "deleted", timeout=BEAT_SECONDS)
    wait_until(
        lambda: leases.get("stripped")["metadata"]["labels"] == {**LABELS, "mine": "stays"},
        "the label is back",
        BEAT_SECONDS,
    )
    assert renewed_at(leases.get("kept")) - before > timedelta(seconds=14)


def test_every_agent_counts_every_servers_lease(servers: Fleet, leases: Leases) -> None:
    ours = servers.add_server("s1")
    servers.add_server("s2", implementation="upstream")
    leases.wait_for("s1", "s2")
    agents = [
        servers.add_agent(f"a-{implementation}", *counting(leases), implementation=implementation)
        for implementation in ("ours", "upstream")
    ]
    for agent in agents:
        wait_for_servers(agent, 2)
        assert known(agent) == 2
    servers.add_server("s3")
    for agent in agents:
        wait_for_servers(agent, 3)
        assert known(agent) == 3

    servers.remove("s1")
    ours.server.signal(signal.SIGTERM)
    assert ours.server.wait() == 0
    leases.wait_for("s2", "s3")
    for agent in agents:
        wait_for_servers(agent, 2)
        wait_for_known(agent, 2)


def test_a_leaving_server_withdraws_its_lease_before_it_waits_for_its_tunnels(servers: Fleet, leases: Leases) -> None:
    leaver = servers.add_server("leaver", "--graceful-shutdown-timeout=60s")
    agent = servers.add_agent("a1", *counting(leases))
    wait_for_servers(agent, 1)
    leases.wait_for("leaver")
    with endpoint(echo) as address:
        tunnel = leaver.frontend().open(address)
        servers.remove("leaver")
        leaver.server.signal(signal.SIGTERM)
        wait_until(lambda: leaver.server_health("/readyz")[0] != 200, "the server is unready")
        leases.wait_for()
        say(tunnel, b"still here")
        assert leaver.server.is_running()
        tunnel.close()
    assert leaver.server.wait() == 0
    assert leases.names() == set()


def test_an_agent_takes_the_larger_of_both_counts_if_told_so(servers: Fleet, leases: Leases) -> None:
    servers.add_server("s1", "--server-count=3")
    leases.wait_for("s1")
    by_lease = servers.add_agent("by-lease", *counting(leases))
    by_both = servers.add_agent("by-both", *counting(leases), "--server-count-source=max")
    blind = servers.add_agent("blind", *counting(leases), "--lease-label-selector=k8s-app in (nothing,else)")
    for agent in (by_lease, by_both, blind):
        wait_for_servers(agent, 1)
    assert (known(by_lease), known(by_both), known(blind)) == (1, 3, 1)
    leases.make("s2", timedelta(0))
    leases.make("stale", timedelta(seconds=-60))
    wait_until(lambda: known(by_lease) == 2, "the new lease counts, the stale one does not")
    time.sleep(0.5)
    assert (known(by_both), known(blind)) == (3, 1)
    text = http_get(f"http://127.0.0.1:{by_lease.ports.agent_health}/metrics")[1]
    for name in ("lease_lists_total", "lease_list_latency_seconds_count"):
        assert f'konnectivity_network_proxy_agent_{name}{{http_response_code="200"' in text


def test_our_own_commands_publish_and_count(leases: Leases, pki: TunnelPki, tmp_path: Path) -> None:
    publish = (
        *("--publish-lease", "--lease-labels", "app=umbilical", "--kubeconfig", str(leases.publisher)),
        *("--agent-ca", str(pki.authority.certificate_file), "--mode", "http-connect"),
    )
    count = (
        *("--count-leases", "--lease-selector", "app=umbilical", "--kubeconfig", str(leases.counter)),
        *("--cert", str(pki.agent.certificate), "--key", str(pki.agent.key)),
    )
    with fleet(pki, tmp_path) as servers:
        first, second = (servers.add_native_server(name, *publish) for name in ("n1", "n2"))
        leases.wait_for("n1", "n2")
        agent = servers.add_native_agent("a1", *count)
        wait_for_servers(agent, 2)
        check_tunnel(first)
        check_tunnel(second)
        second.server.signal(signal.SIGTERM)
        assert second.server.wait() == 0
        leases.wait_for("n1")
        wait_for_known(agent, 1)


def test_agents_reach_each_server_by_the_address_in_its_lease_and_need_no_balancer(
    leases: Leases, pki: TunnelPki, tmp_path: Path
) -> None:
    publish = (
        *("--publish-lease", "--kubeconfig", str(leases.publisher), "--mode", "http-connect"),
        *("--agent-ca", str(pki.authority.certificate_file)),
    )
    count = (
        *("--count-leases", "--kubeconfig", str(leases.counter)),
        *("--cert", str(pki.agent.certificate), "--key", str(pki.agent.key)),
    )
    with fleet(pki, tmp_path) as servers:
        for name in ("n1", "n2", "n3"):
            servers.add_native_server(name, *publish, advertise=True)
        leases.wait_for("n1", "n2", "n3")
        agent = servers.add_native_agent("a1", *count, through_balancer=False)
        wait_for_servers(agent, 3)
        for server in servers.servers.values():
            check_tunnel(server)
        assert servers.balancer.accepted == 0

        leaver = servers.remove("n2")
        leaver.server.signal(signal.SIGTERM)
        assert leaver.server.wait() == 0
        leases.wait_for("n1", "n3")
        wait_for_servers(agent, 2)
        wait_for_known(agent, 2)
        newcomer = servers.add_native_server("n4", *publish, advertise=True)
        wait_for_servers(agent, 3)
        check_tunnel(newcomer)


def test_every_worker_has_a_lease_and_agents_find_all_of_them_behind_the_published_address(
    leases: Leases, pki: TunnelPki, tmp_path: Path
) -> None:
    publish = (
        *("--publish-lease", "--kubeconfig", str(leases.publisher), "--mode", "http-connect", "--workers", "2"),
        *("--agent-ca", str(pki.authority.certificate_file)),
    )
    count = (
        *("--count-leases", "--kubeconfig", str(leases.counter)),
        *("--cert", str(pki.agent.certificate), "--key", str(pki.agent.key)),
    )
    with fleet(pki, tmp_path) as servers:
        for name in ("n1", "n2"):
            servers.add_native_server(name, *publish, advertise=True)
        leases.wait_for("n1-0", "n1-1", "n2-0", "n2-1")
        agent = servers.add_native_agent("a1", *count, through_balancer=False)
        wait_for_servers(agent, 4)
        wait_for_known(agent, 4)
        for server in servers.servers.values():
            for _ in range(2):
                check_tunnel(server)
        assert servers.balancer.accepted == 0
        leaver = servers.remove("n2")
        leaver.server.signal(signal.SIGTERM)
        assert leaver.server.wait() == 0
        leases.wait_for("n1-0", "n1-1")
        wait_for_servers(agent, 2)


def test_neither_side_needs_the_api_to_start_or_to_go_on(plane: ControlPlane, servers: Fleet, leases: Leases) -> None:
    servers.add_server("s1")
    servers.add_server("s2")
    leases.wait_for("s1", "s2")
    counted = servers.add_agent("counted", *counting(leases))
    wait_for_servers(counted, 2)
    plane.stop_apiserver()
    try:
        newcomer = servers.add_server("s3")
        late = servers.add_agent("late", *counting(leases))
        wait_for_servers(late, 1)
        assert late.agent_health("/readyz")[0] == 200
        check_tunnel(servers.servers["s1"])
        assert known(counted) == 2
        leaver = servers.remove("s2")
        leaver.server.signal(signal.SIGTERM)
        assert leaver.server.wait() == 0
        assert "stays until it expires" in leaver.server.log.read_text()
    finally:
        plane.start_apiserver()
    wait_until(lambda: {"s1", "s3"} <= leases.names(), "the newcomer publishes as soon as it can")
    leases.delete("s2")
    for agent in (counted, late):
        wait_for_known(agent, 2, BEAT_SECONDS)
    check_tunnel(newcomer)
