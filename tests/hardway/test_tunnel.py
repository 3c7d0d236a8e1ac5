"""The tunnel while a cluster is born: certificates from the node to the API and nowhere else, agents, and its end."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_stock import Stock, namespace
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import OPENSHIFT, live_site, machines_of, switch_on

from umbilical.assets.hardway.static_pods.tunnel import AGENT_PKI
from umbilical.assets.names import AGENT_NAME, AGENT_SECRET
from umbilical.checks.check import Outcome
from umbilical.cluster import objects
from umbilical.hardway import kube, tunnel
from umbilical.hardway.machines import Done, Power
from umbilical.hardway.site import Site
from umbilical.hardway.waiting import NotYet

pytestmark = pytest.mark.real(*PROGRAMS)
PLACE = "bootstrap-konnectivity"
FILES = ("ca.crt", "tls.crt", "tls.key")


@pytest.fixture
def place(shelf: Stock) -> Iterator[Stock]:
    shelf.put(namespace(PLACE))
    yield shelf
    for kind, name, version in (("Secret", AGENT_SECRET, "v1"), ("DaemonSet", AGENT_NAME, "apps/v1")):
        shelf.take(kind, name, PLACE, version)


def daemon_set(ready: int, wanted: int) -> dict[str, Any]:
    labels = {"app": "agent"}
    pod = {"containers": [{"name": "agent", "image": "localhost/agent:lab"}]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    counts = {"numberReady": ready, "desiredNumberScheduled": wanted, "currentNumberScheduled": wanted}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AGENT_NAME, "namespace": PLACE},
        "spec": spec,
        "status": {**counts, "numberMisscheduled": 0},
    }


@pytest.mark.usefixtures("place")
def test_the_agents_get_what_the_node_made_and_nothing_of_it_lies_on_disk(site: Site) -> None:
    with pytest.raises(NotYet, match=f"no {AGENT_PKI}/ca.crt on the bootstrap node"):
        tunnel.hand_out_certificates(site)
    for name in FILES:
        machines_of(site).files["bootstrap", f"{AGENT_PKI}/{name}"] = f"secret {name}".encode()
    for _ in range(2):
        tunnel.hand_out_certificates(site)
    found = kube.get(site, objects.SECRET, AGENT_SECRET, PLACE)
    assert found is not None
    assert {name: base64.b64decode(value).decode() for name, value in found["data"].items()} == {
        name: f"secret {name}" for name in FILES
    }
    assert not any(b"secret tls.key" in path.read_bytes() for path in site.folder.rglob("*") if path.is_file())


def test_agents_must_be_as_many_as_nodes_and_all_of_them_ready(site: Site, place: Stock) -> None:
    sight = tunnel.agents_sight(2)
    assert sight.check.judge(site).evidence == f"there is no DaemonSet {PLACE}/{AGENT_NAME}"
    place.put(daemon_set(1, 1))
    assert sight.check.judge(site).evidence == "1 of 2 agents are ready"
    place.put(daemon_set(2, 3))
    assert sight.check.judge(site).evidence == "2 of 3 agents are ready"
    place.put(daemon_set(2, 2))
    assert sight.check.judge(site).outcome is Outcome.PASSED


def test_it_is_cut_with_its_namespace_and_its_static_pod_and_cutting_twice_is_fine(site: Site, place: Stock) -> None:
    switch_on(site)
    machines = machines_of(site)
    machines.responders.append(lambda node, command, stdin: Done(0, b"", b""))
    place.put(daemon_set(1, 1))
    still = f"the namespace {PLACE} is still there"
    assert tunnel.gone_sight().check.judge(site).evidence == still
    for _ in range(2):
        tunnel.cut(site)
    assert machines.calls[0].startswith("run bootstrap rm -f /etc/kubernetes/manifests/konnectivity-server")
    left = kube.get(site, objects.NAMESPACE, PLACE)
    assert left is not None
    assert "deletionTimestamp" in left["metadata"]
    assert tunnel.gone_sight().check.judge(site).evidence == still
    place.take("DaemonSet", AGENT_NAME, PLACE, "apps/v1")
    place.take("Namespace", PLACE)
    assert tunnel.gone_sight().check.judge(site).outcome is Outcome.PASSED


def test_a_bootstrap_machine_that_is_off_is_left_alone(site: Site) -> None:
    machines_of(site).powers["bootstrap"] = Power.OFF
    tunnel.cut(site)
    assert machines_of(site).calls == []


def test_openshift_has_it_in_a_namespace_of_its_own(tmp_path: Path, plane: ControlPlane, site: Site) -> None:
    assert tunnel.namespace(site) == PLACE
    assert tunnel.namespace(live_site(tmp_path, plane, OPENSHIFT)) == "openshift-bootstrap-konnectivity"
